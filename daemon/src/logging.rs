//! The daemon's log: one file a day in the log directory, written by a thread of its own.
//!
//! Nothing that logs ever waits for the disk: lines go through a bounded queue, and when the disk cannot keep up lines
//! are lost rather than runs delayed. The process's environment is not read; the level comes from the settings and can
//! be changed while the daemon runs.

use std::any::Any;
use std::io;
use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing::Subscriber;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Registry, fmt, reload};

/// The level when nobody chose one.
pub const DEFAULT_LEVEL: &str = "info";

/// Log files are named `atomicd.<date>.log`.
const PREFIX: &str = "atomicd";

/// See [`PREFIX`].
const SUFFIX: &str = "log";

/// Log files kept, one a day: a week, so that what happened before a weekend can still be read.
const MAX_FILES: usize = 7;

/// Lines that wait for the disk. At a few hundred bytes a line this holds a burst of some megabytes; beyond it lines are
/// lost.
const QUEUE_LINES: usize = 16 * 1024;

/// The daemon's running log. Keep it until the process ends: dropping it writes what still waits in the queue.
pub struct Logging {
    directory: PathBuf,
    level: Mutex<String>,
    filter: reload::Handle<EnvFilter, Registry>,
    lost: ErrorCounter,
    _writer: WorkerGuard,
}

/// What can go wrong with the log.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The log directory cannot be made or made private.
    #[error("cannot prepare the log directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No log file can be opened.
    #[error("cannot open a log file in {}: {reason}", path.display())]
    File {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The level is none.
    #[error(
        "\"{level}\" is no log level; use off, error, warn, info, debug or trace, or filters such as \
         \"info,atomic_providers=trace\""
    )]
    Level {
        /// What was asked for.
        level: String,
    },
    /// Somebody else took the process's log.
    #[error("the log was started twice in one process")]
    Twice,
    /// The log that a level is set on has ended.
    #[error("the log has ended")]
    Ended,
}

/// Starts the log of this process in `log_dir`, which is made when it is missing; on Unix only its owner may enter it.
///
/// `level` is what [`Logging::set_level`] takes.
///
/// # Errors
/// When the directory or a file in it cannot be made, the level is none, or the log was started before.
pub fn init(log_dir: &Path, level: &str) -> Result<Logging, LoggingError> {
    let (logging, subscriber) = build(log_dir, level)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::Twice)?;
    Ok(logging)
}

impl Logging {
    /// Changes what is logged from now on. A single word (`off`, `error`, `warn`, `info`, `debug`, `trace`) is the level
    /// of our own crates; libraries stay at `warn`, because below it some of them print headers, and headers carry
    /// keys. Anything else is taken as filter directives, exactly as given.
    ///
    /// # Errors
    /// When `level` is neither; the old level stays.
    pub fn set_level(&self, level: &str) -> Result<(), LoggingError> {
        let filter = parse_level(level)?;
        // Held over the reload, so that `level` never names another filter than the one in force.
        let mut current = self.level.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.filter.reload(filter).map_err(|_| LoggingError::Ended)?;
        level.trim().clone_into(&mut current);
        Ok(())
    }

    /// The level as it was last set.
    pub fn level(&self) -> String {
        self.level.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The newest log file; none before the first line of the first day.
    pub fn file(&self) -> Option<PathBuf> {
        // The date in the name sorts as text.
        log_files(&self.directory).max()
    }

    /// Lines lost so far because the disk did not keep up.
    pub fn lost_lines(&self) -> usize {
        self.lost.dropped_lines()
    }
}

/// Sends panics to the log: their text, place and thread. Before a log is started they go where they went before.
///
/// A panic belongs to its session alone; this only says that it happened.
pub fn install_panic_hook() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if tracing::dispatcher::has_been_set() {
            log_panic(info);
        } else {
            before(info);
        }
    }));
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(
        target: "atomicd::panic",
        thread = thread.name().unwrap_or("unnamed"),
        place,
        "panic: {}",
        panic_text(info.payload())
    );
}

/// The text of a panic, when it has one.
fn panic_text(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "without a text",
    }
}

fn build(
    log_dir: &Path,
    level: &str,
) -> Result<(Logging, impl Subscriber + Send + Sync + use<>), LoggingError> {
    let filter = parse_level(level)?;
    prepare_directory(log_dir)?;
    let file_error = |reason: String| LoggingError::File { path: log_dir.to_owned(), reason };
    let appender = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix(PREFIX)
        .filename_suffix(SUFFIX)
        .max_log_files(MAX_FILES)
        .build(log_dir)
        .map_err(|error| file_error(full_text(&error)))?;
    make_files_private(log_dir).map_err(|error| file_error(error.to_string()))?;
    let (writer, guard): (NonBlocking, WorkerGuard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(QUEUE_LINES)
        .thread_name("log")
        .finish(appender);
    let lost = writer.error_counter();
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_ansi(false).with_target(true).with_writer(writer);
    let logging = Logging {
        directory: log_dir.to_owned(),
        level: Mutex::new(level.trim().to_owned()),
        filter: handle,
        lost,
        _writer: guard,
    };
    Ok((logging, Registry::default().with(filter).with(lines)))
}

/// An error and its causes in one line.
fn full_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

fn parse_level(level: &str) -> Result<EnvFilter, LoggingError> {
    let level = level.trim();
    let wrong = || LoggingError::Level { level: level.to_owned() };
    let directives = match level.parse::<LevelFilter>() {
        // Numbers are levels to the parser as well, but to nobody else.
        Ok(_) if level.bytes().all(|byte| byte.is_ascii_digit()) => return Err(wrong()),
        // Targets are compared by prefix, so this one stands for all our crates.
        Ok(ours) => format!("{},atomic={ours}", ours.min(LevelFilter::WARN)),
        // A lone word that is no level would be taken as the name of a target.
        Err(_) if !level.contains('=') => return Err(wrong()),
        Err(_) => level.to_owned(),
    };
    EnvFilter::builder().parse(directives).map_err(|_| wrong())
}

/// The log files in a directory, in no order.
fn log_files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let inner = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX)).unwrap_or_default();
        inner.len() > 2 && inner.starts_with('.') && inner.ends_with('.')
    })
}

fn prepare_directory(path: &Path) -> Result<(), LoggingError> {
    let made = || {
        std::fs::create_dir_all(path)?;
        make_private(path, 0o700)
    };
    made().map_err(|source| LoggingError::Directory { path: path.to_owned(), source })
}

/// Files that are there already; later ones are made under the daemon's umask, in a directory nobody else can enter.
fn make_files_private(directory: &Path) -> io::Result<()> {
    log_files(directory).try_for_each(|file| make_private(&file, 0o600))
}

#[cfg(unix)]
fn make_private(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// A user's own directories are private on Windows by inheritance.
#[cfg(not(unix))]
fn make_private(_: &Path, _: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// Logs in `body` and gives the lines; dropping the log writes them all.
    fn logged(level: &str, body: impl FnOnce(&Logging)) -> Vec<String> {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("deep/logs");
        let (logging, subscriber) = build(&path, level).unwrap();
        tracing::subscriber::with_default(subscriber, || body(&logging));
        let file = logging.file().unwrap();
        drop(logging);
        fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_has_time_level_spans_and_target_and_no_colour() {
        let lines = logged("info", |_| {
            let session = tracing::info_span!(target: "atomic_daemon", "session", id = "s1");
            let _session = session.enter();
            let conn = tracing::info_span!(target: "atomic_daemon", "conn", n = 7);
            let _conn = conn.enter();
            tracing::info!(target: "atomic_daemon::session", entries = 3, "loaded");
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        let line = &lines[0];
        assert!(line.starts_with("20") && line.contains("Z  INFO "), "{line}");
        assert!(
            line.ends_with(r#"session{id="s1"}:conn{n=7}: atomic_daemon::session: loaded entries=3"#),
            "{line}"
        );
        assert!(!line.contains('\u{1b}'));
    }

    #[test]
    fn the_level_changes_while_it_runs() {
        let lines = logged("info", |logging| {
            tracing::debug!(target: "atomic_agent", "one");
            logging.set_level(" debug ").unwrap();
            assert_eq!(logging.level(), "debug");
            tracing::debug!(target: "atomic_agent", "two");
            tracing::debug!(target: "h2::client", "a library at debug");
            assert!(
                matches!(logging.set_level("loud"), Err(LoggingError::Level { level }) if level == "loud")
            );
            assert_eq!(logging.level(), "debug");
            tracing::debug!(target: "atomicd", "three");
            logging.set_level("warn,h2=trace").unwrap();
            tracing::info!(target: "atomic_agent", "four");
            tracing::trace!(target: "h2::client", "five");
            logging.set_level("off").unwrap();
            tracing::error!(target: "atomic_agent", "six");
            assert_eq!(logging.lost_lines(), 0);
        });
        let words: Vec<&str> = lines.iter().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(words, ["two", "three", "five"]);
    }

    #[test]
    fn levels_that_are_none_are_refused() {
        for level in ["", "loud", "3", "info;debug", "atomic=loud", "warn,debugg"] {
            assert!(matches!(parse_level(level), Err(LoggingError::Level { .. })), "{level}");
        }
        for level in ["off", "ERROR", "warn", DEFAULT_LEVEL, "debug", "trace", "info,atomic_tools=debug"] {
            assert!(parse_level(level).is_ok(), "{level}");
        }
    }

    #[test]
    fn the_newest_file_is_found_among_others() {
        let dir = TempDir::new().unwrap();
        for name in
            ["atomicd.2024-12-31.log", "atomicd.log", "other.2999-01-01.log", "atomicd.2999-01-01.txt"]
        {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let (logging, _subscriber) = build(dir.path(), "info").unwrap();
        let name = logging.file().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        assert!(
            name.starts_with("atomicd.20")
                && name.ends_with(".log")
                && name.as_str() > "atomicd.2024-12-31.log"
        );
    }

    #[test]
    fn old_files_go_when_there_are_too_many() {
        let dir = TempDir::new().unwrap();
        for day in 1..=20 {
            fs::write(dir.path().join(format!("atomicd.2024-12-{day:02}.log")), "").unwrap();
        }
        let (_logging, _subscriber) = build(dir.path(), "info").unwrap();
        assert!(log_files(dir.path()).count() <= MAX_FILES);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = build(&file.join("logs"), "info").err().expect("a file is no directory").to_string();
        assert!(error.starts_with("cannot prepare the log directory ") && error.contains("logs"), "{error}");
    }

    #[test]
    fn a_panic_is_logged_with_text_and_place() {
        let lines = logged("info", |_| {
            install_panic_hook();
            let caught = panic::catch_unwind(|| panic!("the session {} broke", 7));
            let _ = panic::take_hook();
            assert!(caught.is_err());
        });
        let line =
            lines.iter().find(|line| line.contains("the session 7 broke")).expect("the panic is in the log");
        assert!(line.contains("ERROR atomicd::panic: panic: the session 7 broke"), "{line}");
        assert!(line.contains("logging.rs:"), "{line}");
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("logs");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let old = path.join("atomicd.2024-12-31.log");
        fs::write(&old, "").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o644)).unwrap();
        let (logging, _subscriber) = build(&path, "info").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&path), mode(&old), mode(&logging.file().unwrap())], [0o700, 0o600, 0o600]);
    }
}
