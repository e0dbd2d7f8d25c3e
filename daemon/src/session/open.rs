//! Finds or makes the session a caller asks for.
//!
//! A stored session is opened by one task at a time, however many callers want it: the registry holds a cell per file,
//! the first caller fills it, the others join what it made.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atomic_agent::{Agent, Config, IdSource, Spent, Strategy};
use atomic_protocol::cli::{self, Invocation, SessionOptions};
use atomic_protocol::entry::{EntryId, Header};
use atomic_protocol::link::{Hello, OsText};
use atomic_protocol::model::ThinkingLevel;
use atomic_providers::{Registry, Setup};
use atomic_session_store::{self as store, Store};
use atomic_tools::{SessionEnv, ToolEnvironment};

use super::actor::Prepared;
use super::branches::{Branch, BranchSource};
use super::fallback;
use super::inputs::{self, Inputs};
use super::servers::{self, Asked};
use super::shape::{self, Chosen};
use super::{Opening, SessionHandle, SessionInfo};
use crate::clock;
use crate::daemon::Daemon;
use crate::settings::Settings;

/// A session for a caller.
pub struct Opened {
    /// The session.
    pub session: SessionHandle,
    /// Lines for the caller's stderr.
    pub notices: Vec<String>,
    /// It was live already.
    pub joined: bool,
}

/// Variables of a joiner that replace the session's, if it has them: they name sockets and displays that live no longer
/// than a login.
const JOINER_VARIABLES: [&str; 6] = [
    "SSH_AUTH_SOCK",
    "SSH_CONNECTION",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// The variables of a joiner that replace the session's.
pub fn joiner_variables(env: &SessionEnv) -> Vec<(OsString, OsString)> {
    let wanted =
        env.iter().filter(|(name, _)| name.to_str().is_some_and(|name| JOINER_VARIABLES.contains(&name)));
    wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Which session a caller asks for.
#[derive(Debug)]
enum Choice {
    /// A fresh one, with a file in this directory or in memory only.
    Fresh { dir: Option<PathBuf>, id: Option<String> },
    /// The one in this file, which need not exist.
    File(PathBuf),
    /// A fresh one that begins with what this file holds.
    Fork { source: PathBuf, dir: PathBuf, id: Option<String> },
}

/// What the choice led to.
enum Found {
    /// A fresh session to start, and lines for stderr.
    Fresh(Box<Prepared>, Vec<String>),
    /// A file that may be live already.
    File(PathBuf),
}

/// What the caller that says this hello brought along.
pub fn opening(hello: &Hello, options: SessionOptions) -> Arc<Opening> {
    let cwd = PathBuf::from(hello.cwd.to_os());
    let env: SessionEnv = hello.env.iter().map(|(name, value)| (name.to_os(), value.to_os())).collect();
    Arc::new(Opening { cwd, env: Arc::new(env), umask: hello.umask, options, argv: hello.argv.clone() })
}

/// What shapes the session that the caller of `hello` gets, if it is loaded for it. One that comes from another daemon is
/// shaped as it was, whoever brings it.
fn shaping(hello: &Hello, own: &Arc<Opening>) -> Arc<Opening> {
    if hello.session.is_none() {
        return own.clone();
    }
    let shaped_by = hello.shaped_by.as_ref().and_then(|argv| {
        let os: Vec<OsString> = argv.iter().map(OsText::to_os).collect();
        match cli::parse(&os) {
            Ok(Invocation::Session(options)) => Some((*options, argv.clone())),
            _ => None,
        }
    });
    let (options, argv) = shaped_by.unwrap_or_else(|| (own.options.clone(), own.argv.clone()));
    Arc::new(Opening {
        cwd: own.cwd.clone(),
        env: own.env.clone(),
        umask: own.umask,
        // A name was given when the session began; a session that has none is another one, which followed it.
        options: SessionOptions { name: None, ..options },
        argv,
    })
}

/// Opens the session that `hello` and the options of `opening` ask for.
///
/// # Errors
/// Complete lines for the caller's stderr.
pub async fn open(daemon: &Arc<Daemon>, hello: &Hello, opening: &Arc<Opening>) -> Result<Opened, String> {
    let options = &opening.options;
    let opening = shaping(hello, opening);
    let reattached = hello.session.is_some();
    let id = hello.session_id.clone();
    let work = Work { reattached, id, ..Work::new(daemon, opening.clone()) };
    let (asked, reattach) = (work.clone(), hello.session.clone());
    // One hop to a thread that may block for the usual case: a hop costs as much as the rest of it.
    let found = blocking(move || match choose(&asked, reattach.as_deref())? {
        Choice::Fresh { dir, id } => {
            let noted = id.as_deref().filter(|_| !reattached).map(created);
            let (prepared, mut notices) = asked.fresh(dir, id)?;
            notices.extend(noted);
            Ok(Found::Fresh(Box::new(prepared), notices))
        }
        Choice::Fork { source, dir, id } => {
            let parent_session = Some(source.to_string_lossy().into_owned());
            let (prepared, notices) = Work { parent_session, ..asked }.forked(&source, &dir, id)?;
            Ok(Found::Fresh(Box::new(prepared), notices))
        }
        Choice::File(path) => Ok::<_, String>(Found::File(path)),
    });
    match found.await?? {
        Found::Fresh(prepared, notices) => {
            let session = daemon.sessions.start_fresh(*prepared);
            Ok(Opened { session, notices, joined: false })
        }
        Found::File(path) => {
            let mut opened = work.join_or_load(path).await?;
            if opened.joined && !reattached {
                let info = opened.session.info();
                opened.notices.extend(not_applied(options, &info.opening.options, &info.id));
            }
            let cwd = &opened.session.info().cwd;
            if *cwd != opening.cwd {
                opened.notices.push(format!("Note: this session works in {}", cwd.display()));
            }
            Ok(opened)
        }
    }
}

/// A fresh session like the one `opening` asked for.
///
/// # Errors
/// A line that says what went wrong.
pub async fn fresh(
    daemon: &Arc<Daemon>,
    opening: Arc<Opening>,
    parent_session: Option<String>,
) -> Result<Opened, String> {
    let work = Work { parent_session, ..Work::new(daemon, opening) };
    let (prepared, notices) = blocking(move || {
        let opening = &work.opening;
        let dir = (!opening.options.no_session).then(|| session_dir(&work.daemon.agent_dir, opening));
        work.fresh(dir, None)
    })
    .await??;
    let session = daemon.sessions.start_fresh(prepared);
    Ok(Opened { session, notices, joined: false })
}

/// A new session that begins with a branch of the session `of`.
///
/// # Errors
/// A line that says what went wrong.
pub async fn branched(
    daemon: &Arc<Daemon>,
    opening: Arc<Opening>,
    of: &SessionInfo,
    branch: Branch,
) -> Result<Opened, String> {
    let parent_session = of.file.as_ref().map(|file| file.to_string_lossy().into_owned());
    let work = Work { parent_session, reattached: true, ..Work::new(daemon, opening) };
    let (prepared, notices) = blocking(move || {
        let failed = |error: store::Error| format!("Error: {error}");
        let store = match branch.source {
            BranchSource::Memory(store) => *store,
            BranchSource::File(file) => {
                let (source, _) = Store::open_read_only(&file).map_err(failed)?;
                source.fork(branch.leaf.as_ref(), work.header(None), file.parent()).map_err(failed)?
            }
        };
        let is_new = store.entries().is_empty();
        work.prepare(store, is_new)
    })
    .await??;
    let session = daemon.sessions.start_fresh(prepared);
    Ok(Opened { session, notices, joined: false })
}

/// The session in the file `path`, which need not exist: then it becomes the file of a fresh one.
///
/// # Errors
/// A line that says what went wrong.
pub async fn stored(
    daemon: &Arc<Daemon>,
    opening: Arc<Opening>,
    path: &str,
    cwd: Option<PathBuf>,
) -> Result<Opened, String> {
    let path = opening.cwd.join(expand_home(path.as_ref(), &opening.env));
    let file = blocking(move || canonical(&path)).await??;
    let is_new = !file.exists();
    let work = Work { reattached: !is_new, cwd, ..Work::new(daemon, opening) };
    let mut opened = work.join_or_load(file.clone()).await?;
    if is_new {
        opened.notices.push(format!("Note: {} does not exist; a new session goes there", file.display()));
    }
    Ok(opened)
}

/// The session with this id, or with one that begins so.
///
/// # Errors
/// A line that says what went wrong: there is none, or it cannot be opened.
pub async fn attached(daemon: &Arc<Daemon>, opening: Arc<Opening>, id: &str) -> Result<Opened, String> {
    let (asked, id) = ((daemon.clone(), opening.clone()), id.to_owned());
    let file = blocking(move || {
        let (daemon, opening) = asked;
        by_id(&daemon, &session_dir(&daemon.agent_dir, &opening), &id)
    })
    .await??;
    Work { reattached: true, ..Work::new(daemon, opening) }.join_or_load(file).await
}

/// A copy of the session file `path`, put beside the file of the session `beside`.
///
/// # Errors
/// A line that says what went wrong.
pub async fn imported(
    daemon: &Arc<Daemon>,
    opening: Arc<Opening>,
    beside: &SessionInfo,
    path: &str,
    cwd: Option<PathBuf>,
) -> Result<Opened, String> {
    let source = opening.cwd.join(expand_home(path.as_ref(), &opening.env));
    let beside = beside.file.as_ref().and_then(|file| file.parent()).map(Path::to_owned);
    let (agent_dir, asked, cwd) =
        (daemon.agent_dir.clone(), opening.clone(), cwd.map(|cwd| opening.cwd.join(cwd)));
    let wanted = cwd.clone();
    let copy = blocking(move || {
        if !source.exists() {
            return Err(format!("File not found: {}", source.display()));
        }
        match &wanted {
            Some(cwd) if !cwd.is_dir() => {
                return Err(format!("Working directory does not exist: {}", cwd.display()));
            }
            Some(_) => {}
            // Before it is copied: the caller may come again, with a directory.
            None => {
                let stored = store::read_header(&source);
                if let Some(cwd) =
                    stored.map(|stored| asked.cwd.join(stored.header.cwd)).filter(|cwd| !cwd.is_dir())
                {
                    return Err(missing_cwd(&cwd, Some(&source), &asked.cwd));
                }
            }
        }
        let dir = beside.unwrap_or_else(|| session_dir(&agent_dir, &asked));
        store::import(&source, &dir).map_err(|error| format!("Error: {error}"))
    })
    .await??;
    stored(daemon, opening, &copy.to_string_lossy(), cwd).await
}

/// The options that shape a session, were given to one that has its shape already, and differ from what made it.
fn not_applied(options: &SessionOptions, made_with: &SessionOptions, id: &str) -> Option<String> {
    let tools =
        |options: &SessionOptions| (options.tools.clone(), options.no_tools, options.no_builtin_tools);
    let given = |paths: &[PathBuf], made_with: &[PathBuf]| !paths.is_empty() && paths != made_with;
    let given = [
        ("--provider", options.provider.is_some() && options.provider != made_with.provider),
        ("--model", options.model.is_some() && options.model != made_with.model),
        ("--thinking", options.thinking.is_some() && options.thinking != made_with.thinking),
        ("--api-key", options.api_key.is_some() && options.api_key != made_with.api_key),
        ("--tools", tools(options) != (None, false, false) && tools(options) != tools(made_with)),
        (
            "--exclude-tools",
            !options.exclude_tools.is_empty() && options.exclude_tools != made_with.exclude_tools,
        ),
        ("--max-turns", options.max_turns.is_some() && options.max_turns != made_with.max_turns),
        ("--max-cost", options.max_cost.is_some() && options.max_cost != made_with.max_cost),
        (
            "--system-prompt",
            options.system_prompt.is_some() && options.system_prompt != made_with.system_prompt,
        ),
        (
            "--append-system-prompt",
            !options.append_system_prompt.is_empty()
                && options.append_system_prompt != made_with.append_system_prompt,
        ),
        ("--prompt-template", given(&options.prompt_templates, &made_with.prompt_templates)),
        ("--no-prompt-templates", options.no_prompt_templates && !made_with.no_prompt_templates),
        ("--skill", given(&options.skills, &made_with.skills)),
        ("--no-skills", options.no_skills && !made_with.no_skills),
        (
            if options.approve == Some(true) { "--approve" } else { "--no-approve" },
            options.approve.is_some() && options.approve != made_with.approve,
        ),
        ("--no-context-files", options.no_context_files && !made_with.no_context_files),
        ("--name", options.name.is_some() && options.name != made_with.name),
    ];
    let names: Vec<&str> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Warning: session {id} is live already; {} not applied (set_model, set_thinking_level and set_session_name \
             change it)",
            names.join(", ")
        )
    })
}

/// A session whose directory is gone (literal of the reference).
fn missing_cwd(cwd: &Path, file: Option<&Path>, current: &Path) -> String {
    format!(
        "Error: Stored session working directory does not exist: {}\nSession file: {}\nCurrent working directory: {}",
        cwd.display(),
        file.unwrap_or(Path::new("(none)")).display(),
        current.display()
    )
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| "Error: opening the session failed; the log says why".to_owned())
}

fn choose(work: &Work, reattach: Option<&str>) -> Result<Choice, String> {
    let (agent_dir, opening) = (&work.daemon.agent_dir, &work.opening);
    let options = &opening.options;
    if let Some(file) = reattach {
        return canonical(Path::new(file)).map(Choice::File);
    }
    if !opening.cwd.is_dir() {
        return Err(format!("Error: working directory does not exist: {}", opening.cwd.display()));
    }
    if options.no_session {
        return Ok(Choice::Fresh { dir: None, id: options.session_id.clone() });
    }
    let dir = session_dir(agent_dir, opening);
    let fresh = |id| Choice::Fresh { dir: Some(dir.clone()), id };
    let cwd = opening.cwd.to_string_lossy();
    // Only a directory that is not the directory's own can hold sessions of several.
    let own = dir == store::default_session_dir(agent_dir, &cwd);
    let filter = (!own).then_some(&*cwd);
    if let Some(wish) = &options.session {
        let file = named(work, &dir, wish)?;
        // An empty file would become one, too.
        let is_there =
            || std::fs::metadata(&file).is_ok_and(|metadata| !metadata.is_file() || metadata.len() > 0);
        if options.attach && !is_there() && work.daemon.sessions.with_file(&file).is_none() {
            return Err(not_found(&wish.to_string_lossy()));
        }
        return Ok(Choice::File(file));
    }
    if let Some(wish) = &options.fork {
        let source = named(work, &dir, wish)?;
        if !source.exists() {
            return Err(not_found(&wish.to_string_lossy()));
        }
        if let Some(id) = &options.session_id
            && find_exactly(&dir, id)?.is_some()
        {
            return Err(format!("Session already exists with id '{id}'"));
        }
        return Ok(Choice::Fork { source, dir, id: options.session_id.clone() });
    }
    if options.continue_newest {
        let newest = store::newest(&dir, filter).map_err(|error| format!("Error: {error}"))?;
        return match newest {
            Some(found) => canonical(&found.path).map(Choice::File),
            None => Ok(fresh(None)),
        };
    }
    if let Some(id) = &options.session_id {
        return match find_exactly(&dir, id)? {
            Some(path) => canonical(&path).map(Choice::File),
            None => Ok(fresh(Some(id.clone()))),
        };
    }
    Ok(fresh(None))
}

/// What a caller is told whose `--session-id` was new.
fn created(id: &str) -> String {
    format!("Note: No session found with id '{id}'; it is created")
}

/// The file of a session that is named by its path, which need not exist, or by its id.
fn named(work: &Work, dir: &Path, wish: &std::ffi::OsStr) -> Result<PathBuf, String> {
    let opening = &work.opening;
    let text = wish.to_string_lossy();
    if text.contains(['/', '\\']) || text.ends_with(".jsonl") {
        return canonical(&opening.cwd.join(expand_home(wish, &opening.env)));
    }
    by_id(&work.daemon, dir, &text)
}

/// The file of the session with this id, or of one whose id begins so: live or stored, and perhaps not written yet.
fn by_id(daemon: &Daemon, dir: &Path, id: &str) -> Result<PathBuf, String> {
    if let Some(file) = daemon.sessions.file_by_id(id, false) {
        return Ok(file);
    }
    match find_session(&daemon.agent_dir, dir, id)? {
        Some(path) => canonical(&path),
        None => daemon.sessions.file_by_id(id, true).ok_or_else(|| not_found(id)),
    }
}

fn not_found(wish: &str) -> String {
    format!("No session found matching '{wish}'")
}

/// The session in `dir` with exactly this id, which is a well-formed one.
fn find_exactly(dir: &Path, id: &str) -> Result<Option<PathBuf>, String> {
    store::check_session_id(id).map_err(|error| format!("Error: {error}"))?;
    let found = store::find_by_id(dir, id).map_err(|error| format!("Error: {error}"))?;
    Ok(found.filter(|found| found.header.header.id == *id).map(|found| found.path))
}

/// A session by id or the beginning of one: first among those of this directory, then everywhere.
fn find_session(agent_dir: &Path, dir: &Path, id: &str) -> Result<Option<PathBuf>, String> {
    let failed = |error: store::Error| format!("Error: {error}");
    if let Some(found) = store::find_by_id(dir, id).map_err(failed)? {
        return Ok(Some(found.path));
    }
    for other in store::session_dirs(&agent_dir.join("sessions")).map_err(failed)? {
        if let Some(found) = store::find_by_id(&other, id).map_err(failed)? {
            return Ok(Some(found.path));
        }
    }
    Ok(None)
}

/// `--session-dir`, else the variable, else the setting, else the usual place.
pub(crate) fn session_dir(agent_dir: &Path, opening: &Opening) -> PathBuf {
    session_dir_of(agent_dir, opening.options.session_dir.as_deref(), &opening.env, &opening.cwd)
}

/// The same, of a caller who starts no session.
pub(crate) fn session_dir_of(
    agent_dir: &Path,
    named: Option<&Path>,
    env: &SessionEnv,
    cwd: &Path,
) -> PathBuf {
    let (settings, _) = Settings::load(agent_dir, None, None);
    let variable = ["ATOMIC_CODING_AGENT_SESSION_DIR", "PI_CODING_AGENT_SESSION_DIR"]
        .iter()
        .find_map(|name| env.get_set(name).map(OsString::from));
    let named = named.map(|dir| dir.as_os_str().to_owned()).or(variable);
    let named = named.or_else(|| settings.session_dir.map(OsString::from));
    match named {
        Some(dir) => cwd.join(expand_home(&dir, env)),
        None => store::default_session_dir(agent_dir, &cwd.to_string_lossy()),
    }
}

pub(crate) fn expand_home(path: &std::ffi::OsStr, env: &SessionEnv) -> PathBuf {
    let path = Path::new(path);
    match (path.strip_prefix("~"), env.home()) {
        (Ok(below), Some(home)) => home.join(below),
        _ => path.to_owned(),
    }
}

/// One name for a file however it is reached. The file need not exist, its directory may be missing too.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf, String> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let name = path.file_name().ok_or_else(|| format!("Error: not a session file: {}", path.display()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
    Ok(parent.join(name))
}

/// Makes one session.
#[derive(Clone)]
struct Work {
    daemon: Arc<Daemon>,
    opening: Arc<Opening>,
    parent_session: Option<String>,
    /// The caller was attached before the daemon was lost: what it typed then has had its effect.
    reattached: bool,
    /// Where the session works instead of where its file says.
    cwd: Option<PathBuf>,
    /// The session's id, if the file that is asked for is not written yet.
    id: Option<String>,
}

impl Work {
    fn new(daemon: &Arc<Daemon>, opening: Arc<Opening>) -> Work {
        Work { daemon: daemon.clone(), opening, parent_session: None, reattached: false, cwd: None, id: None }
    }

    /// The session of a file, live already or loaded now. Whoever comes meanwhile waits and joins.
    async fn join_or_load(self, path: PathBuf) -> Result<Opened, String> {
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
    fn fresh(self, dir: Option<PathBuf>, id: Option<String>) -> Result<(Prepared, Vec<String>), String> {
        let header = self.header(id);
        let store = Store::create(header, dir.as_deref()).map_err(|error| format!("Error: {error}"))?;
        self.prepare(store, true)
    }

    /// A fresh session that begins with all that `source` holds. Blocking.
    fn forked(
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
    fn header(&self, id: Option<String>) -> Header {
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
    fn prepare(self, mut store: Store, is_new: bool) -> Result<(Prepared, Vec<String>), String> {
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
