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
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub mod credentials;
mod save;

use atomic_agent::{Budget, Strategy};
pub use atomic_protocol::cli::OnDisconnect;
use atomic_protocol::command::QueueMode;
use atomic_protocol::json;
use atomic_protocol::model::ThinkingLevel;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::resources::trust::DefaultTrust;

pub use save::{Change, SettingsError, edit, update};

/// Name of the file in each of its directories.
const FILE: &str = "settings.json";

/// The global settings file of an agent directory.
pub fn file(agent_dir: &Path) -> PathBuf {
    agent_dir.join(FILE)
}

/// Directories of a project that may hold a settings file; the later one wins.
const PROJECT_DIRECTORIES: [&str; 2] = [".pi", ".atomic"];

/// What the user set, and defaults for the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `defaultProvider`: provider of new sessions.
    pub default_provider: Option<String>,
    /// `defaultModel`: model id of new sessions.
    pub default_model: Option<String>,
    /// `defaultThinkingLevel`: thinking level of new sessions.
    pub default_thinking_level: Option<ThinkingLevel>,
    /// `modelThinkingLevels`: for a model, named `provider/id`, another one.
    pub model_thinking_levels: BTreeMap<String, ThinkingLevel>,
    /// `enabledModels`: patterns of the models to choose from; none is all.
    pub enabled_models: Option<Vec<String>>,
    /// `fallbackModels`: who takes the place of a model that fails, as `provider/id` or `provider/id:level`, in order.
    pub fallback_models: Vec<String>,
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
    /// `prompts`: where prompt templates are, as each file that has the key says, the strongest first.
    pub prompts: Vec<PathList>,
    /// `skills`: where skills are, likewise.
    pub skills: Vec<PathList>,
    /// `enableSkillCommands`: users name skills by `/skill:NAME`.
    pub enable_skill_commands: bool,
    /// `defaultProjectTrust`: what holds for a project nobody has decided on. It counts only from files that need no trust
    /// themselves.
    pub default_project_trust: DefaultTrust,
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
    /// `limits`.
    pub limits: LimitSettings,
    /// `daemon`.
    pub daemon: DaemonSettings,
}

/// A list of paths in one settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathList {
    /// The file's directory: relative paths start there.
    pub directory: PathBuf,
    /// The entries as they stand there.
    pub entries: Vec<String>,
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
    /// `strategy`: `verbatim-lines` or `summary`.
    pub strategy: Strategy,
    /// `keepRecentTokens`: newest messages that a summary leaves as they are, in tokens.
    pub keep_recent_tokens: u64,
    /// `compression_ratio`: part of the lines to keep, above 0 and below 1.
    pub compression_ratio: f64,
    /// `preserve_recent`: newest messages to keep whole.
    pub preserve_recent: u64,
    /// `query`: what matters; none is found out from the conversation.
    pub query: Option<String>,
}

/// `limits`: what a run and a session may use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LimitSettings {
    /// `maxCost` (US dollars), `maxTurns`, `maxTokens`: each run.
    pub run: Budget,
    /// The same below `session`: all of the session.
    pub session: Budget,
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
        let mut layers = Layers::read_files(agent_dir, legacy_agent_dir, project);
        let settings = layers.settings();
        (settings, layers.warnings)
    }

    /// Reads the settings again. None when one of the files cannot be read: to go on as if it said nothing would change
    /// what the user did not change.
    pub fn reload(
        agent_dir: &Path,
        legacy_agent_dir: Option<&Path>,
        project: Option<&Path>,
    ) -> (Option<Settings>, Vec<String>) {
        let mut layers = Layers::read_files(agent_dir, legacy_agent_dir, project);
        if layers.unreadable {
            return (None, layers.warnings);
        }
        let settings = layers.settings();
        (Some(settings), layers.warnings)
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
    /// One of the files could not be read at all.
    unreadable: bool,
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
    fn read_files(agent_dir: &Path, legacy_agent_dir: Option<&Path>, project: Option<&Path>) -> Layers {
        let mut layers = Layers::default();
        for directory in legacy_agent_dir.into_iter().chain([agent_dir]) {
            layers.add(directory.join(FILE));
        }
        for directory in project.iter().flat_map(|project| PROJECT_DIRECTORIES.map(|name| project.join(name)))
        {
            layers.add(directory.join(FILE));
        }
        layers
    }

    fn add(&mut self, path: PathBuf) {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return;
            }
            Err(error) => {
                self.warnings
                    .push(format!("cannot read {}: {error}; its settings are not used", path.display()));
                self.unreadable = true;
                return;
            }
        };
        let text = json::text(&bytes);
        match json::from_str::<Value>(without_bom(&text)) {
            Ok(Value::Object(object)) => return self.files.push((path, object)),
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
        self.unreadable = true;
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

    /// The good values of a list of paths in each file, the strongest first.
    fn paths(&mut self, key: &str) -> Vec<PathList> {
        // For the warnings.
        self.texts(key);
        let of_file = |(path, object): &(PathBuf, Map<String, Value>)| match find(object, key) {
            Found::Value(value) => {
                Some(PathList { directory: path.parent()?.to_owned(), entries: typed(value)? })
            }
            _ => None,
        };
        self.files.iter().rev().filter_map(of_file).collect()
    }

    fn flag(&mut self, key: &str, default: bool) -> bool {
        self.read(key, "true or false", typed).unwrap_or(default)
    }

    fn count(&mut self, key: &str) -> Option<u64> {
        self.read(key, "a whole number, 0 or more", whole)
    }

    fn budget(&mut self, key: &str) -> Budget {
        let mut whole_number = |name: &str| {
            self.read(&format!("{key}.{name}"), "a whole number above 0", |value| {
                whole(value).filter(|number| *number > 0)
            })
        };
        let (max_turns, max_tokens) = (whole_number("maxTurns"), whole_number("maxTokens"));
        let max_cost = self.read(&format!("{key}.maxCost"), "a number of US dollars above 0", |value| {
            value.as_f64().filter(|cost| *cost > 0.0 && cost.is_finite())
        });
        Budget { max_cost, max_turns, max_tokens }
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
            model_thinking_levels: self
                .read("modelThinkingLevels", "an object of levels by provider/model", |value| {
                    let levels = value.as_object()?.iter();
                    levels
                        .map(|(name, level)| Some((name.clone(), ThinkingLevel::parse(level.as_str()?)?)))
                        .collect()
                })
                .unwrap_or_default(),
            enabled_models: self.texts("enabledModels"),
            fallback_models: self.texts("fallbackModels").unwrap_or_default(),
            steering_mode: self.queue_mode("steeringMode"),
            follow_up_mode: self.queue_mode("followUpMode"),
            shell_path: self.text("shellPath"),
            shell_command_prefix: self.text("shellCommandPrefix"),
            default_tools: self.texts("defaultTools"),
            session_dir: self.text("sessionDir"),
            prompts: self.paths("prompts"),
            skills: self.paths("skills"),
            enable_skill_commands: self.flag("enableSkillCommands", true),
            default_project_trust: self.word(
                "defaultProjectTrust",
                "\"ask\", \"always\" or \"never\"",
                DefaultTrust::parse,
            ),
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
                strategy: self.word("compaction.strategy", "\"verbatim-lines\" or \"summary\"", |word| {
                    match word {
                        "verbatim-lines" => Some(Strategy::VerbatimLines),
                        "summary" => Some(Strategy::Summary),
                        _ => None,
                    }
                }),
                keep_recent_tokens: self.count("compaction.keepRecentTokens").unwrap_or(20_000),
                compression_ratio: self
                    .read("compaction.compression_ratio", "a number above 0 and below 1", |value| {
                        value.as_f64().filter(|ratio| 0.0 < *ratio && *ratio < 1.0)
                    })
                    .unwrap_or(0.5),
                preserve_recent: self.count("compaction.preserve_recent").unwrap_or(2),
                query: self.text("compaction.query"),
            },
            limits: LimitSettings { run: self.budget("limits"), session: self.budget("limits.session") },
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

#[cfg(test)]
mod tests;
