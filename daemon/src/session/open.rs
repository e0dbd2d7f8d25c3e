//! Finds or makes the session a caller asks for.
//!
//! A stored session is opened by one task at a time, however many callers want it: the registry holds a cell per file,
//! the first caller fills it, the others join what it made.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atomic_protocol::cli::{self, Invocation, SessionOptions};
use atomic_protocol::link::{Hello, OsText};
use atomic_session_store::{self as store, Store};
use atomic_tools::SessionEnv;

use super::actor::Prepared;
use super::branches::{Branch, BranchSource};
use super::find::{Choice, by_id, canonical, choose, created, expand_home, session_dir};
use super::prepare::{Work, missing_cwd};
use super::{Opening, SessionHandle, SessionInfo};
use crate::daemon::Daemon;

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

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| "Error: opening the session failed; the log says why".to_owned())
}
