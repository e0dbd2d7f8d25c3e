//! The user's `settings.json`, read as types and changed field by field.
//!
//! Four files may say something, the later one wins key by key: `settings.json` of the legacy agent directory, of the
//! agent directory, and, for a project the user trusts, `.pi/settings.json` and `.atomic/settings.json` of its directory.
//! Objects are merged at any depth, arrays are replaced. Names and defaults are those of the reference, except for
//! `daemon`, which is ours.
//!
//! A mistake never keeps the daemon from starting: a file that is not JSON counts as empty, a value of the wrong type as
//! absent, and each is a warning that names the place. Keys we do not know are other programs' and stay as they are.
//!
//! Everything here blocks on the disk; call it from where that is allowed.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

pub use atomic_protocol::cli::OnDisconnect;
use atomic_protocol::command::QueueMode;
use atomic_protocol::json::{self, Fields, NotAnObject};
use atomic_protocol::model::ThinkingLevel;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Name of the file in each of its directories.
const FILE: &str = "settings.json";

/// Directories of a project that may hold a settings file; the later one wins.
const PROJECT_DIRECTORIES: [&str; 2] = [".pi", ".atomic"];

/// Lock among our own writers, beside the settings file.
const LOCK: &str = "settings.lock";

/// Directory that other programs of this family make while they write the settings file, and heed when it is there.
const FOREIGN_LOCK: &str = "settings.json.lock";

/// How long a foreign writer is waited for. They hold the lock for one small write; a second is long.
const FOREIGN_WAIT: Duration = Duration::from_secs(1);

/// How often it is looked at meanwhile.
const FOREIGN_POLL: Duration = Duration::from_millis(20);

/// A foreign lock this old was left behind by a crash (the same age as its makers use).
const FOREIGN_STALE: Duration = Duration::from_secs(10);

/// What the user set, and defaults for the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `defaultProvider`: provider of new sessions.
    pub default_provider: Option<String>,
    /// `defaultModel`: model id of new sessions.
    pub default_model: Option<String>,
    /// `defaultThinkingLevel`: thinking level of new sessions.
    pub default_thinking_level: Option<ThinkingLevel>,
    /// `enabledModels`: patterns of the models to choose from; none is all.
    pub enabled_models: Option<Vec<String>>,
    /// `steeringMode`.
    pub steering_mode: QueueMode,
    /// `followUpMode`.
    pub follow_up_mode: QueueMode,
    /// `shellPath`: shell of the bash tool and of `bash`.
    pub shell_path: Option<String>,
    /// `shellCommandPrefix`: put before each command line.
    pub shell_command_prefix: Option<String>,
    /// `defaultTools`: tools active in new sessions, in place of the built-in list; an empty list is none.
    pub default_tools: Option<Vec<String>>,
    /// `sessionDir`: where session files are; `~` and relative paths are the reader's to resolve.
    pub session_dir: Option<String>,
    /// `images.blockImages`: no image is sent to a model.
    pub block_images: bool,
    /// `images.autoResize`: large images are made smaller before they are sent.
    pub image_auto_resize: bool,
    /// `thinkingBudgets`: tokens for a thinking level, where they differ from the default.
    pub thinking_budgets: BTreeMap<ThinkingLevel, u64>,
    /// `httpProxy`: proxy of model requests.
    pub http_proxy: Option<String>,
    /// `streamDeadlineMs`: longest silence of a model's answer, in milliseconds; none is the default, 0 is no limit.
    pub stream_deadline_ms: Option<u64>,
    /// `retry`.
    pub retry: RetrySettings,
    /// `compaction`.
    pub compaction: CompactionSettings,
    /// `daemon`.
    pub daemon: DaemonSettings,
}

/// `retry`: what happens when a model call fails in passing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// `enabled`.
    pub enabled: bool,
    /// `maxRetries`: attempts after the first.
    pub max_retries: u32,
    /// `baseDelayMs`: wait before the first retry, in milliseconds; it doubles each time.
    pub base_delay_ms: u64,
}

/// `compaction`: when and how far a conversation is shortened.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionSettings {
    /// `enabled`: do it without being asked.
    pub enabled: bool,
    /// `reserveTokens`: room to keep free in the context window, in tokens.
    pub reserve_tokens: u64,
    /// `compression_ratio`: part of the lines to keep, above 0 and below 1.
    pub compression_ratio: f64,
    /// `preserve_recent`: newest messages to keep whole.
    pub preserve_recent: u64,
    /// `query`: what matters; none is found out from the conversation.
    pub query: Option<String>,
}

/// `daemon`: how atomicd lives. Read from the global file only where one daemon serves all projects (`idle_exit`,
/// `log_level`): load those without a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSettings {
    /// `idleExit`: how long the daemon stays with nothing to do; none is for ever.
    pub idle_exit: Option<Duration>,
    /// `unloadAfter`: how long an idle session without clients stays in memory; none is for ever.
    pub unload_after: Option<Duration>,
    /// `onDisconnect`.
    pub on_disconnect: OnDisconnect,
    /// `durability`.
    pub durability: Durability,
    /// `logLevel`: what `crate::logging` takes; it judges the text.
    pub log_level: Option<String>,
}

/// When a session file is forced to the disk, against power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After each turn.
    #[default]
    Turn,
    /// After each entry.
    Entry,
    /// Never; the system does it in its own time.
    None,
}

impl Durability {
    /// From the word in the settings.
    pub fn parse(word: &str) -> Option<Durability> {
        match word {
            "turn" => Some(Durability::Turn),
            "entry" => Some(Durability::Entry),
            "none" => Some(Durability::None),
            _ => None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Layers::default().settings()
    }
}

impl Settings {
    /// Reads the settings, and warnings for what could not be used.
    ///
    /// `project` is the session's directory when the user trusts it, else none: a project's settings name the shell that
    /// runs, so those of an untrusted one are not even opened.
    pub fn load(
        agent_dir: &Path,
        legacy_agent_dir: Option<&Path>,
        project: Option<&Path>,
    ) -> (Settings, Vec<String>) {
        let mut layers = Layers::default();
        for directory in legacy_agent_dir.into_iter().chain([agent_dir]) {
            layers.add(directory.join(FILE));
        }
        for directory in project.iter().flat_map(|project| PROJECT_DIRECTORIES.map(|name| project.join(name)))
        {
            layers.add(directory.join(FILE));
        }
        let settings = layers.settings();
        (settings, layers.warnings)
    }
}

/// The settings files from the weakest to the strongest, and what is wrong with them.
///
/// Instead of merging trees, each key is looked up through the files from the strongest down. That gives the same result
/// as a deep merge, and a value of the wrong type in one file leaves the other files' value in force.
#[derive(Default)]
struct Layers {
    files: Vec<(PathBuf, Map<String, Value>)>,
    warnings: Vec<String>,
}

/// A key in one file.
enum Found<'a> {
    Value(&'a Value),
    /// Absent, or null, which other programs write for it.
    Absent,
    /// Something that should be an object on the way to the key; its name.
    NoObject(&'a str),
}

impl Layers {
    fn add(&mut self, path: PathBuf) {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return;
            }
            Err(error) => {
                self.warnings
                    .push(format!("cannot read {}: {error}; its settings are not used", path.display()));
                return;
            }
        };
        let text = json::text(&bytes);
        match json::from_str::<Value>(without_bom(&text)) {
            Ok(Value::Object(object)) => self.files.push((path, object)),
            Ok(_) => {
                self.warnings.push(format!(
                    "{} holds no JSON object; its settings are not used",
                    path.display()
                ));
            }
            Err(error) => self.warnings.push(format!(
                "{}:{}:{}: not JSON ({}); its settings are not used. Comments and trailing commas are not JSON.",
                path.display(),
                error.line(),
                error.column(),
                reason(&error)
            )),
        }
    }

    /// The strongest good value of `key`; each bad one is a warning that says what was `expected`.
    fn read<T>(&mut self, key: &str, expected: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let mut strongest = None;
        for (path, object) in self.files.iter().rev() {
            let warning = match find(object, key) {
                Found::Absent => continue,
                Found::NoObject(parent) => {
                    format!("{}: {parent} must be an object; it is ignored", path.display())
                }
                Found::Value(value) => match read(value) {
                    Some(value) => {
                        strongest = strongest.or(Some(value));
                        continue;
                    }
                    None => format!("{}: {key} must be {expected}; it is ignored", path.display()),
                },
            };
            // Every key below a bad object finds the same mistake.
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        strongest
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.read(key, "a string", typed)
    }

    fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        self.read(key, "a list of strings", typed)
    }

    fn flag(&mut self, key: &str, default: bool) -> bool {
        self.read(key, "true or false", typed).unwrap_or(default)
    }

    fn count(&mut self, key: &str) -> Option<u64> {
        self.read(key, "a whole number, 0 or more", whole)
    }

    fn word<T: Default>(&mut self, key: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> T {
        self.read(key, expected, |value| parse(value.as_str()?)).unwrap_or_default()
    }

    fn queue_mode(&mut self, key: &str) -> QueueMode {
        self.read(key, "\"all\" or \"one-at-a-time\"", typed).unwrap_or_default()
    }

    /// A time; `never` is none.
    fn time(&mut self, key: &str, default: Duration) -> Option<Duration> {
        let expected = "a number of seconds, a time such as \"90s\", \"10m\" or \"2h\", or \"never\"";
        self.read(key, expected, time).unwrap_or(Some(default))
    }

    fn settings(&mut self) -> Settings {
        let level = "\"off\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"";
        Settings {
            default_provider: self.text("defaultProvider"),
            default_model: self.text("defaultModel"),
            default_thinking_level: self
                .read("defaultThinkingLevel", level, |value| ThinkingLevel::parse(value.as_str()?)),
            enabled_models: self.texts("enabledModels"),
            steering_mode: self.queue_mode("steeringMode"),
            follow_up_mode: self.queue_mode("followUpMode"),
            shell_path: self.text("shellPath"),
            shell_command_prefix: self.text("shellCommandPrefix"),
            default_tools: self.texts("defaultTools"),
            session_dir: self.text("sessionDir"),
            block_images: self.flag("images.blockImages", false),
            image_auto_resize: self.flag("images.autoResize", true),
            thinking_budgets: ThinkingLevel::ALL
                .into_iter()
                .filter_map(|level| {
                    Some((level, self.count(&format!("thinkingBudgets.{}", level.as_str()))?))
                })
                .collect(),
            http_proxy: self.text("httpProxy"),
            stream_deadline_ms: self.count("streamDeadlineMs"),
            retry: RetrySettings {
                enabled: self.flag("retry.enabled", true),
                max_retries: self
                    .read("retry.maxRetries", "a whole number, 0 or more", |value| {
                        whole(value)?.try_into().ok()
                    })
                    .unwrap_or(3),
                base_delay_ms: self.count("retry.baseDelayMs").unwrap_or(2000),
            },
            compaction: CompactionSettings {
                enabled: self.flag("compaction.enabled", true),
                reserve_tokens: self.count("compaction.reserveTokens").unwrap_or(16_384),
                compression_ratio: self
                    .read("compaction.compression_ratio", "a number above 0 and below 1", |value| {
                        value.as_f64().filter(|ratio| 0.0 < *ratio && *ratio < 1.0)
                    })
                    .unwrap_or(0.5),
                preserve_recent: self.count("compaction.preserve_recent").unwrap_or(2),
                query: self.text("compaction.query"),
            },
            daemon: DaemonSettings {
                idle_exit: self.time("daemon.idleExit", Duration::from_secs(30 * 60)),
                unload_after: self.time("daemon.unloadAfter", Duration::from_secs(10 * 60)),
                on_disconnect: self.word(
                    "daemon.onDisconnect",
                    "\"finish\", \"abort\" or \"keep\"",
                    OnDisconnect::parse,
                ),
                durability: self.word(
                    "daemon.durability",
                    "\"turn\", \"entry\" or \"none\"",
                    Durability::parse,
                ),
                log_level: self.text("daemon.logLevel"),
            },
        }
    }
}

fn find<'a>(object: &'a Map<String, Value>, key: &'a str) -> Found<'a> {
    let mut object = object;
    let mut end = 0;
    loop {
        let rest = &key[end..];
        let part = rest.split('.').next().unwrap_or(rest);
        end += part.len();
        match object.get(part) {
            None | Some(Value::Null) => return Found::Absent,
            Some(value) if end == key.len() => return Found::Value(value),
            Some(Value::Object(inner)) => object = inner,
            Some(_) => return Found::NoObject(&key[..end]),
        }
        end += 1;
    }
}

fn typed<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// A whole number, which other programs may have written as a float.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let value = value.as_f64().filter(|value| *value >= 0.0 && *value <= u64::MAX as f64)?;
        (value.fract() == 0.0).then_some(value as u64)
    })
}

fn time(value: &Value) -> Option<Option<Duration>> {
    let Some(text) = value.as_str() else {
        return value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map(Some);
    };
    let text = text.trim();
    if text == "never" {
        return Some(None);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        _ => return None,
    };
    Some(Some(Duration::from_secs(digits.trim_end().parse::<u64>().ok()?.checked_mul(unit)?)))
}

/// The reason of a JSON error without its place, which we name ourselves.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Why settings could not be written. The file is then as it was.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file could not be read, locked or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried: `read`, `lock`, `write`, `make`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is there is not JSON, so it cannot be changed without losing some of it.
    #[error(
        "{}:{line}:{column}: not JSON ({reason}); the settings were not changed. Correct the file and try again.",
        path.display()
    )]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Line of the mistake, from 1.
        line: usize,
        /// Column of the mistake, from 1.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
    /// What is there is JSON but no object, or not text.
    #[error("{} holds no JSON object; the settings were not changed. Correct the file and try again.", path.display())]
    NotAnObject {
        /// The file.
        path: PathBuf,
    },
    /// Another program has been writing the settings all the while.
    #[error(
        "another program is writing the settings: {} is there. If none is, remove that directory and try again.",
        path.display()
    )]
    Busy {
        /// The other program's lock.
        path: PathBuf,
    },
}

/// Changes the global settings: each key, a path with dots such as `compaction.enabled`, gets its value; null stands for
/// "not set".
///
/// Only these values change in the file's text. Everything else stays as the user wrote it, to the byte, keys we do not
/// know included; on the way to a key, what is no object becomes one. The file keeps its mode, and where it is a symbolic
/// link, what the link names is changed. It is replaced in one step: who reads meanwhile sees the old or the new one.
/// Writers take turns, those of other programs included.
///
/// # Errors
/// When the file is there and is not a JSON object, or cannot be read, locked or written. It is then as it was.
pub fn update(agent_dir: &Path, changes: &[(&str, Value)]) -> Result<(), SettingsError> {
    make_directory(agent_dir).map_err(io_error("make", agent_dir))?;
    let _turn = Turn::take(agent_dir)?;
    let link = agent_dir.join(FILE);
    // A link to nothing yet is replaced by a file.
    let path = link.canonicalize().unwrap_or(link);
    let before = match fs::read(&path) {
        Ok(bytes) => {
            Some(String::from_utf8(bytes).map_err(|_| SettingsError::NotAnObject { path: path.clone() })?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error("read", &path)(error)),
    };
    let before = before.as_deref().unwrap_or("{}\n");
    let object = without_bom(before);
    let mut after = object.to_owned();
    for (key, value) in changes {
        after = set(&after, key, value, 0).map_err(|error| match error {
            NotAnObject::OtherValue => SettingsError::NotAnObject { path: path.clone() },
            NotAnObject::Syntax(error) => SettingsError::NotJson {
                path: path.clone(),
                line: error.line(),
                column: error.column(),
                reason: reason(&error),
            },
        })?;
    }
    if after == object {
        return Ok(());
    }
    let bom = &before[..before.len() - object.len()];
    replace(&path, &[bom.as_bytes(), after.as_bytes()]).map_err(io_error("write", &path))
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SettingsError {
    let path = path.to_owned();
    move |source| SettingsError::Io { doing, path, source }
}

/// The text of `object` with `value` at `key`. `depth` is how deep the object lies, for the indentation of new lines.
fn set(object: &str, key: &str, value: &Value, depth: usize) -> Result<String, NotAnObject> {
    let fields = Fields::parse(object)?;
    let (name, rest) = match key.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (key, None),
    };
    let new = |old: &str| match rest {
        None => Ok(indented(value, depth + 1)),
        // What stands there is one value of a text that was read: it is an object, or else it is replaced by one.
        Some(rest) => set(old, rest, value, depth + 1).or_else(|_| set("{}", rest, value, depth + 1)),
    };
    if let Some(old) = fields.get(name) {
        let start = offset(object, old);
        return Ok([&object[..start], &new(old)?, &object[start + old.len()..]].concat());
    }
    let mut field = Vec::new();
    json::write_string(&mut field, name);
    field.extend_from_slice(b": ");
    field.extend_from_slice(new("{}")?.as_bytes());
    let field = String::from_utf8(field).expect("made from strings");
    let open = object.find('{').expect("an object was read") + 1;
    Ok(match fields.iter().last() {
        // As the user sets fields apart, so do we.
        Some((_, last)) => {
            let space = object[open..].find('"').expect("an object with a field has a key");
            let end = offset(object, last) + last.len();
            [&object[..end], ",", &object[open..open + space], &field, &object[end..]].concat()
        }
        None => {
            let close = open + object[open..].find('}').expect("an object was read");
            let [inner, outer] = [depth + 1, depth].map(|depth| format!("\n{}", INDENT.repeat(depth)));
            [&object[..open], &inner, &field, &outer, &object[close..]].concat()
        }
    })
}

/// Indentation of a level, as other programs of this family write the file.
const INDENT: &str = "  ";

/// Where `part`, a slice of `text`, begins in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// A value as text in lines, at home at `depth`.
fn indented(value: &Value, depth: usize) -> String {
    // A line feed inside a string is escaped, so each one here begins a line.
    format!("{value:#}").replace('\n', &format!("\n{}", INDENT.repeat(depth)))
}

/// Writes a new file beside `path` and puts it in its place.
fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // Writers take turns, so what has this name is left from a crash.
    let _ = fs::remove_file(&temporary);
    let written = || {
        let mut file = new_private_file(&temporary)?;
        for part in parts {
            file.write_all(part)?;
        }
        match fs::metadata(path) {
            Ok(old) => file.set_permissions(old.permissions())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, path)
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// The right to write the settings, until it is dropped.
///
/// Two locks, because two families of writers meet here. Ours is held by the system and ends with its holder. The other
/// programs' is a directory that exists while they write; we make it too, so that they wait for us.
struct Turn {
    foreign: PathBuf,
    _ours: File,
}

impl Turn {
    fn take(agent_dir: &Path) -> Result<Turn, SettingsError> {
        let path = agent_dir.join(LOCK);
        let ours = open_private_file(&path).map_err(io_error("lock", &path))?;
        ours.lock().map_err(io_error("lock", &path))?;
        let foreign = agent_dir.join(FOREIGN_LOCK);
        let until = Instant::now() + FOREIGN_WAIT;
        loop {
            match fs::create_dir(&foreign) {
                Ok(()) => return Ok(Turn { foreign, _ours: ours }),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(io_error("lock", &foreign)(error));
                }
                Err(_) if is_stale(&foreign) && fs::remove_dir(&foreign).is_ok() => {}
                Err(_) if Instant::now() >= until => return Err(SettingsError::Busy { path: foreign }),
                Err(_) => std::thread::sleep(FOREIGN_POLL),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Should this fail, the directory is stale after a while.
        let _ = fs::remove_dir(&self.foreign);
    }
}

fn is_stale(lock: &Path) -> bool {
    let changed = fs::metadata(lock).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > FOREIGN_STALE))
}

fn new_private_file(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().write(true).create_new(true)).open(path)
}

fn open_private_file(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().write(true).create(true).truncate(false)).open(path)
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

/// A user's own directories are private on Windows by inheritance.
#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(unix)]
fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

#[cfg(not(unix))]
fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tempfile::TempDir;

    /// A home with the four places of settings.
    struct Home(TempDir);

    impl Home {
        fn new(files: &[(&str, &str)]) -> Home {
            let home = Home(TempDir::new().unwrap());
            for (path, text) in files {
                let path = home.at(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            home
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn load(&self) -> (Settings, Vec<String>) {
            Settings::load(&self.at("agent"), Some(&self.at("old")), Some(&self.at("project")))
        }

        fn text(&self) -> String {
            fs::read_to_string(self.at("agent/settings.json")).unwrap()
        }
    }

    const GLOBAL: &str = "agent/settings.json";

    #[test]
    fn nothing_set_is_the_defaults() {
        let (settings, warnings) = Home::new(&[]).load();
        assert_eq!(warnings, [""; 0]);
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.steering_mode, QueueMode::OneAtATime);
        assert_eq!(settings.retry, RetrySettings { enabled: true, max_retries: 3, base_delay_ms: 2000 });
        assert_eq!((settings.compaction.enabled, settings.compaction.reserve_tokens), (true, 16_384));
        assert_eq!((settings.block_images, settings.image_auto_resize), (false, true));
        assert_eq!(settings.daemon.idle_exit, Some(Duration::from_secs(1800)));
        assert_eq!(settings.daemon.unload_after, Some(Duration::from_secs(600)));
    }

    #[test]
    fn every_key_is_read() {
        let home = Home::new(&[(
            GLOBAL,
            "\u{feff}{
              \"defaultProvider\": \"anthropic\", \"defaultModel\": \"m\", \"defaultThinkingLevel\": \"xhigh\",
              \"enabledModels\": [\"a*\"], \"steeringMode\": \"all\", \"followUpMode\": \"one-at-a-time\",
              \"shellPath\": \"/bin/zsh\", \"shellCommandPrefix\": \"set -e;\", \"defaultTools\": [],
              \"sessionDir\": \"~/s\", \"images\": {\"blockImages\": true, \"autoResize\": false},
              \"thinkingBudgets\": {\"low\": 5, \"unknown\": 6}, \"httpProxy\": \"http://p\", \"streamDeadlineMs\": 0,
              \"retry\": {\"enabled\": false, \"maxRetries\": 5.0, \"baseDelayMs\": 10},
              \"compaction\": {\"enabled\": false, \"reserveTokens\": 1, \"compression_ratio\": 0.25,
                             \"preserve_recent\": 0, \"query\": \"q\"},
              \"daemon\": {\"idleExit\": \"never\", \"unloadAfter\": \"2h\", \"onDisconnect\": \"keep\",
                         \"durability\": \"entry\", \"logLevel\": \"debug\"},
              \"theme\": \"dark\"
            }",
        )]);
        let expected = Settings {
            default_provider: Some("anthropic".into()),
            default_model: Some("m".into()),
            default_thinking_level: Some(ThinkingLevel::Xhigh),
            enabled_models: Some(vec!["a*".into()]),
            steering_mode: QueueMode::All,
            follow_up_mode: QueueMode::OneAtATime,
            shell_path: Some("/bin/zsh".into()),
            shell_command_prefix: Some("set -e;".into()),
            default_tools: Some(vec![]),
            session_dir: Some("~/s".into()),
            block_images: true,
            image_auto_resize: false,
            thinking_budgets: BTreeMap::from([(ThinkingLevel::Low, 5)]),
            http_proxy: Some("http://p".into()),
            stream_deadline_ms: Some(0),
            retry: RetrySettings { enabled: false, max_retries: 5, base_delay_ms: 10 },
            compaction: CompactionSettings {
                enabled: false,
                reserve_tokens: 1,
                compression_ratio: 0.25,
                preserve_recent: 0,
                query: Some("q".into()),
            },
            daemon: DaemonSettings {
                idle_exit: None,
                unload_after: Some(Duration::from_secs(7200)),
                on_disconnect: OnDisconnect::Keep,
                durability: Durability::Entry,
                log_level: Some("debug".into()),
            },
        };
        assert_eq!(home.load(), (expected, vec![]));
    }

    #[test]
    fn files_are_merged_key_by_key() {
        let home = Home::new(&[
            ("old/settings.json", r#"{"defaultModel":"1","retry":{"maxRetries":1},"shellPath":"1"}"#),
            (GLOBAL, r#"{"defaultModel":"2","retry":{"enabled":false},"defaultTools":["read","bash"]}"#),
            ("project/.pi/settings.json", r#"{"defaultModel":"3","sessionDir":"3"}"#),
            (
                "project/.atomic/settings.json",
                r#"{"defaultModel":null,"retry":{"baseDelayMs":4},"defaultTools":["ls"]}"#,
            ),
        ]);
        let (settings, warnings) = home.load();
        assert_eq!(warnings, [""; 0]);
        assert_eq!(settings.retry, RetrySettings { enabled: false, max_retries: 1, base_delay_ms: 4 });
        assert_eq!(settings.default_model.as_deref(), Some("3"), "null is not set");
        assert_eq!(settings.shell_path.as_deref(), Some("1"));
        assert_eq!(settings.session_dir.as_deref(), Some("3"));
        assert_eq!(settings.default_tools, Some(vec!["ls".into()]), "lists are replaced");
        let (settings, _) = Settings::load(&home.at("agent"), None, None);
        assert_eq!(settings.default_model.as_deref(), Some("2"), "without trust and legacy");
        assert_eq!(settings.retry, RetrySettings { enabled: false, max_retries: 3, base_delay_ms: 2000 });
    }

    #[test]
    fn a_wrong_value_is_ignored_and_named() {
        let home = Home::new(&[
            (
                GLOBAL,
                r#"{"shellPath":"/bin/sh","retry":{"maxRetries":7},"compaction":{"reserveTokens":-1},"defaultTools":"bash"}"#,
            ),
            (
                "project/.atomic/settings.json",
                r#"{"shellPath":5,"retry":7,"steeringMode":"some","compaction":{"compression_ratio":1},
                    "defaultThinkingLevel":"hard","daemon":{"idleExit":"soon","unloadAfter":-1,"durability":"all"}}"#,
            ),
        ]);
        let (settings, warnings) = home.load();
        assert_eq!(settings.shell_path.as_deref(), Some("/bin/sh"), "the weaker file's good value holds");
        assert_eq!(settings.retry.max_retries, 7);
        let mut named: Vec<&str> = warnings
            .iter()
            .map(|warning| {
                let (path, rest) = warning.split_once("settings.json: ").expect("names the file");
                assert!(Path::new(path).is_absolute(), "{path}");
                rest.split(' ').next().unwrap()
            })
            .collect();
        named.sort_unstable();
        assert_eq!(
            named,
            [
                "compaction.compression_ratio",
                "compaction.reserveTokens",
                "daemon.durability",
                "daemon.idleExit",
                "daemon.unloadAfter",
                "defaultThinkingLevel",
                "defaultTools",
                "retry",
                "shellPath",
                "steeringMode",
            ]
        );
        let defaults = Settings::default();
        assert_eq!((settings.compaction, settings.daemon), (defaults.compaction, defaults.daemon));
    }

    #[test]
    fn times() {
        let seconds = |n| Some(Some(Duration::from_secs(n)));
        for (value, expected) in [
            (json!(90), seconds(90)),
            (json!(1.5), Some(Some(Duration::from_millis(1500)))),
            (json!("90s"), seconds(90)),
            (json!(" 10 m"), seconds(600)),
            (json!("2h"), seconds(7200)),
            (json!("never"), Some(None)),
            (json!("10"), None),
            (json!("ten m"), None),
            (json!("-1m"), None),
            (json!("99999999999999999999h"), None),
            (json!("18446744073709551615h"), None),
            (json!(-1), None),
            (json!(true), None),
        ] {
            assert_eq!(time(&value), expected, "{value}");
        }
    }

    #[test]
    fn a_file_that_is_not_json_is_named_with_the_place_and_never_overwritten() {
        for (text, place) in
            [("{\n  \"a\": 1,\n}", ":3:1: "), ("// c\n{}", ":1:1: "), ("", ":1:0: "), ("[1]", " holds no")]
        {
            let home = Home::new(&[(GLOBAL, text), ("old/settings.json", r#"{"shellPath":"x"}"#)]);
            let (settings, warnings) = home.load();
            assert_eq!(settings.shell_path.as_deref(), Some("x"), "the other files count");
            assert!(
                warnings.len() == 1 && warnings[0].contains(&format!("settings.json{place}")),
                "{warnings:?}"
            );
            let error = update(&home.at("agent"), &[("a", json!(2))]).unwrap_err().to_string();
            assert!(error.contains(&format!("settings.json{place}")), "{error}");
            assert_eq!(home.text(), text);
        }
        let home = Home::new(&[(GLOBAL, "")]);
        fs::write(home.at(GLOBAL), b"{\"shellPath\":\"a\xff\"}").unwrap();
        assert_eq!(home.load().0.shell_path.as_deref(), Some("a\u{fffd}"), "read with the bad byte replaced");
        assert!(matches!(
            update(&home.at("agent"), &[("a", json!(2))]),
            Err(SettingsError::NotAnObject { .. })
        ));
    }

    #[test]
    fn only_what_changes_is_written() {
        for (before, changes, after) in [
            (None, vec![("steeringMode", json!("all"))], "{\n  \"steeringMode\": \"all\"\n}\n"),
            (
                None,
                vec![("retry.enabled", json!(false)), ("retry.list", json!(["a\n", 1]))],
                "{\n  \"retry\": {\n    \"enabled\": false,\n    \"list\": [\n      \"a\\n\",\n      1\n    ]\n  }\n}\n",
            ),
            (
                // Numbers no f64 holds, odd spaces, tabs, unknown and equal keys: all of it is the user's.
                Some(
                    "\u{feff}{\t\"big\": 12345678901234567890123,\n\t\"a\" :1.0 , \"x\": {\"y\":[ 1,2 ]}, \"a\": 2}",
                ),
                vec![("a", json!(true)), ("x.z", json!("n"))],
                "\u{feff}{\t\"big\": 12345678901234567890123,\n\t\"a\" :1.0 , \"x\": {\"y\":[ 1,2 ],\"z\": \"n\"}, \"a\": true}",
            ),
            (
                Some("{\n    \"a\": \"}{\"\n}"),
                vec![("b.c", json!(1))],
                "{\n    \"a\": \"}{\",\n    \"b\": {\n    \"c\": 1\n  }\n}",
            ),
            (Some("{\"a\": 5}"), vec![("a.b", json!(null))], "{\"a\": {\n    \"b\": null\n  }}"),
            (Some(" {\r\n} "), vec![("k\"ey", json!({}))], " {\n  \"k\\\"ey\": {}\n} "),
        ] {
            let home = Home::new(&[]);
            if let Some(before) = before {
                fs::create_dir_all(home.at("agent")).unwrap();
                fs::write(home.at(GLOBAL), before).unwrap();
            }
            update(&home.at("agent"), &changes).unwrap();
            assert_eq!(home.text(), after);
            let value: Value = serde_json::from_str(without_bom(after)).expect("it is JSON");
            for (key, expected) in changes {
                assert_eq!(value.pointer(&format!("/{}", key.replace('.', "/"))), Some(&expected), "{key}");
            }
            let mut left: Vec<_> =
                fs::read_dir(home.at("agent")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, ["settings.json", "settings.lock"], "nothing is left behind");
        }
    }

    #[test]
    fn writers_take_turns() {
        let home = Home::new(&[]);
        let agent_dir = home.at("agent");
        std::thread::scope(|scope| {
            for n in 0..8 {
                let agent_dir = &agent_dir;
                scope.spawn(move || {
                    for round in 0..5 {
                        update(agent_dir, &[(&format!("k{n}.r{round}"), json!(n))]).unwrap();
                    }
                });
            }
        });
        let value: Value = serde_json::from_str(&home.text()).unwrap();
        for n in 0..8 {
            assert_eq!(value[format!("k{n}")].as_object().unwrap().len(), 5, "no change is lost");
        }
    }

    #[test]
    fn a_foreign_writer_is_waited_for_and_a_dead_one_is_not() {
        let home = Home::new(&[(GLOBAL, "{}")]);
        let lock = home.at("agent").join(FOREIGN_LOCK);
        fs::create_dir(&lock).unwrap();
        let error = update(&home.at("agent"), &[("a", json!(1))]).unwrap_err();
        assert!(matches!(&error, SettingsError::Busy { path } if *path == lock), "{error}");
        assert_eq!(home.text(), "{}");
        assert!(lock.exists(), "it is not ours to remove");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| update(&home.at("agent"), &[("a", json!(1))]));
            fs::remove_dir(&lock).unwrap();
            writer.join().unwrap().unwrap();
        });
        fs::create_dir(&lock).unwrap();
        let long_ago = SystemTime::now() - FOREIGN_STALE - Duration::from_secs(1);
        match File::open(&lock).and_then(|lock| lock.set_modified(long_ago)) {
            Ok(()) => update(&home.at("agent"), &[("a", json!(2))]).unwrap(),
            // Where a directory's time cannot be set there is nothing to see.
            Err(_) => return,
        }
        assert_eq!(home.text(), "{\n  \"a\": 2\n}");
    }

    #[cfg(unix)]
    #[test]
    fn mode_and_symbolic_link_are_kept() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = Home::new(&[("dotfiles/real.json", "{}"), ("agent/x", "")]);
        let real = home.at("dotfiles/real.json");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("../dotfiles/real.json", home.at(GLOBAL)).unwrap();
        update(&home.at("agent"), &[("a", json!(1))]).unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "{\n  \"a\": 1\n}");
        assert!(fs::symlink_metadata(home.at(GLOBAL)).unwrap().is_symlink());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&real), 0o640);
        let fresh = Home::new(&[]);
        update(&fresh.at("agent"), &[("a", json!(1))]).unwrap();
        assert_eq!([mode(&fresh.at("agent")), mode(&fresh.at(GLOBAL))], [0o700, 0o600]);
    }

    #[test]
    fn a_change_that_changes_nothing_does_not_touch_the_file() {
        let home = Home::new(&[(GLOBAL, "{\"a\":   true}")]);
        let before = fs::metadata(home.at(GLOBAL)).unwrap().modified().unwrap();
        update(&home.at("agent"), &[("a", json!(true))]).unwrap();
        assert_eq!(fs::metadata(home.at(GLOBAL)).unwrap().modified().unwrap(), before);
    }
}
