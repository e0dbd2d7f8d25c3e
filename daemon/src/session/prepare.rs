//! Makes one session: reads its file and all it is shaped by, and puts the agent together.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atomic_agent::{Agent, Config, IdSource, Spent, Strategy};
use atomic_protocol::entry::{EntryId, Header};
use atomic_protocol::model::ThinkingLevel;
use atomic_providers::{Registry, Setup};
use atomic_session_store::{self as store, Store};
use atomic_tools::ToolEnvironment;

use super::actor::Prepared;
use super::fallback;
use super::inputs::{self, Inputs};
use super::open::{Opened, blocking};
use super::servers::{self, Asked};
use super::shape::{self, Chosen};
use super::{Opening, SessionHandle, SessionInfo};
use crate::clock;
use crate::daemon::Daemon;

/// Makes one session.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) daemon: Arc<Daemon>,
    pub(super) opening: Arc<Opening>,
    pub(super) parent_session: Option<String>,
    /// The caller was attached before the daemon was lost: what it typed then has had its effect.
    pub(super) reattached: bool,
    /// Where the session works instead of where its file says.
    pub(super) cwd: Option<PathBuf>,
    /// The session's id, if the file that is asked for is not written yet.
    pub(super) id: Option<String>,
}

impl Work {
    pub(super) fn new(daemon: &Arc<Daemon>, opening: Arc<Opening>) -> Work {
        Work { daemon: daemon.clone(), opening, parent_session: None, reattached: false, cwd: None, id: None }
    }

    /// The session of a file, live already or loaded now. Whoever comes meanwhile waits and joins.
    pub(super) async fn join_or_load(self, path: PathBuf) -> Result<Opened, String> {
        let daemon = self.daemon.clone();
        let mut made = None;
        let cell = daemon.sessions.cell(&path);
        let session = cell
            .get_or_try_init(|| async {
                let (session, notices) = self.stored(path, &daemon.sessions, &cell).await?;
                made = Some(notices);
                Ok::<_, String>(session)
            })
            .await?
            .clone();
        let joined = made.is_none();
        Ok(Opened { session, notices: made.unwrap_or_default(), joined })
    }

    /// A session without a past. Blocking.
    pub(super) fn fresh(
        self,
        dir: Option<PathBuf>,
        id: Option<String>,
    ) -> Result<(Prepared, Vec<String>), String> {
        let header = self.header(id);
        let store = Store::create(header, dir.as_deref()).map_err(|error| format!("Error: {error}"))?;
        self.prepare(store, true)
    }

    /// A fresh session that begins with all that `source` holds. Blocking.
    pub(super) fn forked(
        self,
        source: &Path,
        dir: &Path,
        id: Option<String>,
    ) -> Result<(Prepared, Vec<String>), String> {
        let header = self.header(id);
        let store = store::fork_file(source, header, Some(dir)).map_err(|error| format!("Error: {error}"))?;
        let is_new = store.entries().is_empty();
        self.prepare(store, is_new)
    }

    /// The header of a session that begins now.
    pub(super) fn header(&self, id: Option<String>) -> Header {
        Header {
            id: id.unwrap_or_else(store::new_session_id),
            timestamp: clock::now(),
            cwd: self.opening.cwd.to_string_lossy().into_owned(),
            parent_session: self.parent_session.clone(),
        }
    }

    async fn stored(
        self,
        path: PathBuf,
        sessions: &Arc<crate::sessions::Sessions>,
        cell: &crate::sessions::Cell,
    ) -> Result<(SessionHandle, Vec<String>), String> {
        let header = self.header(self.id.clone().filter(|id| store::check_session_id(id).is_ok()));
        let shown = path.clone();
        let (prepared, notices) = blocking(move || {
            let (store, problems) =
                Store::open_or_create(&path, || header).map_err(|error| format!("Error: {error}"))?;
            for problem in &problems {
                tracing::warn!(file = %path.display(), %problem, "session file");
            }
            let is_new = store.entries().is_empty();
            let backup = store.backup().map(|backup| {
                format!(
                    "Note: {} was brought to version 3; as it was it is {}",
                    path.display(),
                    backup.display()
                )
            });
            // Of a session that nobody has said anything in nothing was kept: its options shape it anew.
            let reattached = self.reattached && !is_new;
            let (prepared, mut notices) = Work { reattached, ..self }.prepare(store, is_new)?;
            notices.extend(backup);
            if !problems.is_empty() {
                notices.push(format!(
                    "Warning: {} lines of {} could not be read and were left out; the log names them",
                    problems.len(),
                    path.display()
                ));
            }
            Ok::<_, String>((prepared, notices))
        })
        .await??;
        tracing::info!(file = %shown.display(), "session opened");
        Ok((sessions.start_stored(prepared, cell), notices))
    }

    /// Reads what a session is shaped by. Blocking.
    pub(super) fn prepare(self, mut store: Store, is_new: bool) -> Result<(Prepared, Vec<String>), String> {
        let Work { daemon, opening, reattached, cwd, .. } = self;
        let options = &opening.options;
        // A header without a directory is an old one: then it is the caller's.
        let cwd = cwd.unwrap_or_else(|| opening.cwd.join(&store.header().cwd));
        if !cwd.is_dir() {
            return Err(missing_cwd(&cwd, store.path(), &opening.cwd));
        }
        let mut notices = Vec::new();
        let inputs = Inputs::load(&daemon.agent_dir, &opening, &cwd, None, &mut notices);
        let settings = &inputs.settings;
        // Pi's summaries count as they do there for those who work with summaries; else nothing of a conversation is hidden by
        // what this program's other strategy did not write.
        store.take_unmarked_summaries(settings.compaction.strategy == Strategy::Summary);
        let provider_env = inputs::provider_env(&opening.env, settings);
        let context = store::context(&store);
        let registry = Registry::load(Setup {
            agent_dir: daemon.agent_dir.clone(),
            env: provider_env,
            pool: daemon.pool.clone(),
            ..Setup::default()
        });
        let registry = registry.with_options(inputs::request_options(settings));
        notices.extend(registry.warnings().iter().cloned());
        let saved = context.model.as_ref();
        let asked = Asked { options, saved, reattached, settings };
        let registry = servers::open(registry, &daemon.http, &asked, &mut notices)?;
        let Chosen { registry, model, thinking: typed, scope, unsupported_default } =
            shape::choose_model(registry, options, saved, reattached, settings, &mut notices)?;
        let thinking = (options.thinking.filter(|_| !reattached))
            .or(typed)
            .or_else(|| context.thinking.as_deref().and_then(ThinkingLevel::parse))
            .or_else(|| {
                let name = model.as_ref().map(|model| format!("{}/{}", model.provider, model.id))?;
                settings.model_thinking_levels.get(&name).copied()
            })
            .or(settings.default_thinking_level)
            .unwrap_or(ThinkingLevel::Medium);
        let fallbacks = fallback::resolve(&registry, settings, &mut notices);
        let tools = shape::choose_tools(options, settings, &mut notices);
        let sources = inputs.sources(&daemon.agent_dir, &opening, &cwd);
        let prompt = shape::prompt_parts(&sources, &inputs.resources, None, &mut notices)?;
        let id = store.header().id.clone();
        let file = store.path().map(Path::to_owned);
        let (record_model, record_thinking) = (is_new, context.thinking.is_none());
        let agent = Agent::new(
            Config {
                model,
                thinking,
                tools,
                prompt,
                context: context.messages,
                leaf: store.leaf().cloned(),
                steering_mode: settings.steering_mode,
                follow_up_mode: settings.follow_up_mode,
                retry: inputs::retry_policy(&settings.retry),
                compaction: inputs::compaction_policy(&settings.compaction),
                fallback_models: fallback::usable(&registry, &fallbacks),
                limits: inputs::limits(&settings.limits, options),
                spent: spent(&store),
            },
            (daemon.new_ids)(store.entries().iter().map(|entry| entry.id.clone()).collect()),
        );
        let environment = ToolEnvironment {
            cwd: cwd.clone(),
            env: opening.env.clone(),
            session_id: id.clone(),
            session_file: file.clone(),
            shell_path: settings.shell_path.clone().map(PathBuf::from),
            shell_command_prefix: settings.shell_command_prefix.clone(),
            resize_images: settings.image_auto_resize,
            umask: opening.umask,
            children: daemon.children.clone(),
        };
        let name = options.name.clone().filter(|_| !reattached);
        let info =
            SessionInfo { id, file, cwd, header: store.header().clone(), opening, unsupported_default };
        let record = (record_model, record_thinking);
        let Inputs { settings, resources, .. } = inputs;
        let prepared = Prepared {
            daemon,
            info,
            agent,
            store,
            registry,
            settings,
            resources,
            environment,
            record,
            name,
            scope,
            fallbacks,
        };
        let notices = notices.into_iter().map(|notice| warning(&notice)).collect();
        Ok((prepared, notices))
    }
}

/// What a session used so far, on all its branches, as its file says.
fn spent(store: &Store) -> Spent {
    let stats = store.stats();
    Spent { cost: stats.cost, turns: stats.assistant_messages, tokens: stats.tokens.total() }
}

/// A line for a person's stderr.
pub(super) fn warning(text: &str) -> String {
    if text.starts_with("Warning: ") || text.starts_with("Note: ") {
        text.to_owned()
    } else {
        format!("Warning: {text}")
    }
}

/// Ids of new entries: random, eight hex digits, none of those that the file has.
pub(crate) fn random_ids(taken: HashSet<EntryId>) -> Box<dyn IdSource> {
    Box::new(EntryIds(taken))
}

struct EntryIds(HashSet<EntryId>);

impl IdSource for EntryIds {
    fn entry(&mut self) -> EntryId {
        let id = store::new_entry_id(|id| self.0.contains(&EntryId::from(id)));
        self.0.insert(id.clone());
        id
    }
}

/// A session whose directory is gone (literal of the reference).
pub(super) fn missing_cwd(cwd: &Path, file: Option<&Path>, current: &Path) -> String {
    format!(
        "Error: Stored session working directory does not exist: {}\nSession file: {}\nCurrent working directory: {}",
        cwd.display(),
        file.unwrap_or(Path::new("(none)")).display(),
        current.display()
    )
}
