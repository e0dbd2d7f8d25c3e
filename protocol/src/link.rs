//! What shim and daemon say to each other around the protocol of the seeds.
//!
//! A connection is JSON Lines. The client's first line is a [`Hello`], the daemon's first line a [`Reply`]. After
//! that every line is an RPC record, unchanged both ways, except *link records*: lines that begin with the byte
//! [`MARK`]. A client without a shim needs none of them and gets none unless its hello asks (`records`).
//!
//! Unknown fields are ignored and missing ones have defaults, so that programs of different versions with the same
//! [`LINK_VERSION`] understand each other.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::{Fields, ObjectWriter, Raw};

/// Version of this page. Raised when an older program could misread a newer one.
pub const LINK_VERSION: u32 = 1;

/// First byte of a link record: ASCII "record separator", which no JSON text begins with.
pub const MARK: u8 = 0x1E;

/// Version of the program, for people.
pub const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Bytes of [`BUILD`]: the mark, an id, zeros.
const BUILD_BYTES: usize = 96;

/// Stands before the build's id in the program's file.
const BUILD_MARK: &str = "atomic build: ";

/// Identifies the build. In the program's file it can be found by its mark, so `strings` tells which build a file is.
static BUILD: [u8; BUILD_BYTES] = marked(match option_env!("ATOMIC_BUILD_ID") {
    Some(id) => id,
    None => PROGRAM_VERSION,
});

const fn marked(id: &str) -> [u8; BUILD_BYTES] {
    let mut out = [0; BUILD_BYTES];
    let (mark, id) = (BUILD_MARK.as_bytes(), id.as_bytes());
    let mut at = 0;
    while at < mark.len() + id.len() {
        out[at] = if at < mark.len() { mark[at] } else { id[at - mark.len()] };
        at += 1;
    }
    out
}

/// Identifies this build of the programs: the version, unless whoever built them named the build in `ATOMIC_BUILD_ID`
/// (at most 82 bytes).
pub fn build_id() -> &'static str {
    // Read from where it lies and not compiled in as a constant: what the file says is what the program says.
    let bytes = &std::hint::black_box(&BUILD)[BUILD_MARK.len()..];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or(PROGRAM_VERSION)
}

/// The client's first line.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, tag = "type", rename = "hello")]
pub struct Hello {
    /// [`LINK_VERSION`] of the client.
    pub link: u32,
    /// Program version, for messages.
    pub version: String,
    /// Identifies one build of the program.
    pub build: String,
    /// What the connection is for.
    pub mode: Mode,
    /// The caller's working directory.
    pub cwd: OsText,
    /// The caller's arguments as given, without the program's name.
    pub argv: Vec<OsText>,
    /// The caller's environment. Secrets live here: `Debug` shows names only.
    pub env: Vec<(OsText, OsText)>,
    /// Session to join, by file, when the client re-attaches.
    pub session: Option<String>,
    /// The id of that session: its file may not be written yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The arguments that shaped that session, as [`FromDaemon::Handover`] told them: it is shaped by them again,
    /// whichever of its clients comes back first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shaped_by: Option<Vec<OsText>>,
    /// Serve this client whatever its build: it has been told [`Reply::Clash`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub any_build: bool,
    /// The caller's umask: what its tools and files get, since the daemon's own is strict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Send link records.
    pub records: bool,
}

impl Default for Hello {
    fn default() -> Self {
        Hello {
            link: LINK_VERSION,
            version: PROGRAM_VERSION.to_owned(),
            build: String::new(),
            mode: Mode::Rpc,
            cwd: OsText::default(),
            argv: Vec::new(),
            env: Vec::new(),
            session: None,
            session_id: None,
            shaped_by: None,
            any_build: false,
            umask: None,
            records: false,
        }
    }
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&OsText> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Hello")
            .field("link", &self.link)
            .field("version", &self.version)
            .field("build", &self.build)
            .field("mode", &self.mode)
            .field("cwd", &self.cwd)
            .field("argv", &format_args!("{} arguments", self.argv.len()))
            .field("env", &names)
            .field("session", &self.session)
            .field("session_id", &self.session_id)
            .field("shaped_by", &self.shaped_by.as_ref().map(|_| "…"))
            .field("any_build", &self.any_build)
            .field("umask", &self.umask)
            .field("records", &self.records)
            .finish()
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Commands in, events out.
    #[default]
    Rpc,
    /// `--mode json`: `prompt` lines up to the record [`FromShim::Eof`] are run one after the other. The session's header
    /// and its events out, no answers; the record [`FromDaemon::Exit`] ends it.
    Json,
    /// `-p`: the same, but only the last answer's text out.
    Print,
    /// Ask how the daemon is; answered by [`Reply::Report`].
    Status,
    /// Ask the daemon to leave (`argv`: `--force`, `--wait`); answered by a report when it has, or refused.
    Stop,
    /// Change the log level to `argv[0]`; answered by a report.
    LogLevel,
    /// Name the live session whose file is `argv[0]`: `argv[1]`. Answered by a report, or refused; with the code
    /// [`NOT_LIVE`] when no live session has this file.
    Rename,
    /// Close the live session whose file is `argv[0]`, if it has no client and nothing runs in it. Answered by a report once
    /// its file is free, or refused as above.
    Release,
    /// Ask the daemon to hand its sessions over to the next one (`argv`: `--now`, `--if-idle`). Answered at once by a
    /// report or refused; then come [`FromDaemon::Notice`] records for as long as it waits for sessions, and the end of
    /// the connection when it leaves. Whoever hangs up before calls it off. To be asked with the start lock held: the
    /// asker starts the next daemon.
    Restart,
}

/// The code of a refusal that means: no live session has this file.
pub const NOT_LIVE: u8 = 3;

/// The daemon's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum Reply {
    /// The connection is attached to a session.
    #[serde(rename_all = "camelCase")]
    Welcome {
        /// [`LINK_VERSION`] of the daemon.
        link: u32,
        /// Program version, for messages.
        version: String,
        /// Identifies one build of the program.
        build: String,
        /// The daemon's process id.
        pid: u32,
        /// The session's id.
        session_id: String,
        /// The session's file, when it has one (it may not exist yet).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_file: Option<String>,
    },
    /// The connection is refused.
    Refused {
        /// For the caller's stderr, complete lines.
        text: String,
        /// The caller's exit code.
        code: u8,
    },
    /// The daemon is another build and has nothing to do: the client may replace it ([`Mode::Restart`], `--if-idle`) and
    /// say hello to the next one, or say hello again with `any_build`.
    Clash {
        /// The daemon's program version.
        version: String,
        /// The daemon's build.
        build: String,
    },
    /// The answer to an administrative mode.
    Report(Report),
}

/// How a daemon is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// [`LINK_VERSION`] of the daemon.
    pub link: u32,
    /// Program version.
    pub version: String,
    /// Identifies one build of the program.
    pub build: String,
    /// The daemon's process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// The agent directory it serves.
    pub agent_dir: String,
    /// Its socket, or the name of its pipe: where a program connects that uses no shim.
    pub socket: String,
    /// Its log file.
    pub log_file: String,
    /// Its log level.
    pub log_level: String,
    /// Connections attached to sessions.
    pub clients: u32,
    /// Live sessions.
    pub sessions: Vec<SessionReport>,
}

/// How a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionReport {
    /// Session id.
    pub id: String,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its directory.
    pub cwd: String,
    /// When it was begun, ISO 8601.
    pub created: String,
    /// Attached connections.
    pub clients: u32,
    /// A run is active.
    pub running: bool,
}

/// A link record that a shim sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromShim {
    /// The caller's stdin ended; every line before this record counts.
    Eof,
    /// The shim got this signal and will exit.
    Signal(i32),
}

impl FromShim {
    /// The record with [`MARK`] and LF.
    pub fn to_line(self) -> Vec<u8> {
        let mut out = vec![MARK];
        let mut object = ObjectWriter::begin(&mut out);
        match self {
            FromShim::Eof => object.bool("eof", true),
            FromShim::Signal(number) => object.int("signal", i64::from(number)),
        };
        object.end();
        out.push(b'\n');
        out
    }

    /// Reads a record without its mark and LF. `None`: a record of a newer version, to be ignored.
    pub fn parse(text: &str) -> Option<FromShim> {
        let fields = Fields::parse(text).ok()?;
        if let Some(number) = fields.get("signal") {
            return number.parse().ok().map(FromShim::Signal);
        }
        fields.get("eof").map(|_| FromShim::Eof)
    }
}

/// A link record that a daemon sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromDaemon {
    /// Which of the client's lines (numbered from 1) were admitted and which are answered by the records before this
    /// one in the same write.
    Progress {
        /// All lines up to this one are admitted.
        admitted: Option<u64>,
        /// These lines are answered.
        answered: Vec<u64>,
        /// Raw ids of admitted lines over [`KEEP_LINE_BYTES`], so that the shim need not keep the line.
        ids: BTreeMap<u64, Raw>,
    },
    /// The client is in another session now (after `new_session`): its file, if it has one.
    Session(Option<String>),
    /// A text for stderr.
    Notice(String),
    /// The daemon leaves and another one takes over: attach again, and send there what was not admitted.
    Handover {
        /// The id of the client's session, for [`Hello::session_id`].
        session_id: String,
        /// The arguments that shaped it, for [`Hello::shaped_by`].
        shaped_by: Vec<OsText>,
    },
    /// The connection ends and the caller exits.
    Exit {
        /// With this code.
        code: u8,
        /// After this text on stderr.
        text: Option<String>,
    },
}

/// A shim keeps the raw bytes of an unanswered line up to this size once it is admitted, of a longer one only the id.
pub const KEEP_LINE_BYTES: usize = 8 * 1024;

impl FromDaemon {
    /// Appends the record with [`MARK`] and LF.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        out.push(MARK);
        let mut object = ObjectWriter::begin(out);
        match self {
            FromDaemon::Progress { admitted, answered, ids } => {
                if let Some(admitted) = admitted {
                    object.count("admitted", *admitted);
                }
                if !ids.is_empty() {
                    object.value("ids", ids);
                }
                if !answered.is_empty() {
                    object.value("answered", answered);
                }
            }
            FromDaemon::Session(file) => {
                object.value("session", file);
            }
            FromDaemon::Notice(text) => {
                object.str("notice", text);
            }
            FromDaemon::Handover { session_id, shaped_by } => {
                object.str("handover", session_id).value("shapedBy", shaped_by);
            }
            FromDaemon::Exit { code, text } => {
                object.int("exit", i64::from(*code));
                if let Some(text) = text {
                    object.str("text", text);
                }
            }
        }
        object.end();
        out.push(b'\n');
    }

    /// Reads a record without its mark and LF. `None`: a record of a newer version, to be ignored.
    pub fn parse(text: &str) -> Option<FromDaemon> {
        let fields = Fields::parse(text).ok()?;
        if let Some(code) = fields.get("exit") {
            let text = fields.str("text").map(|text| text.into_owned());
            return Some(FromDaemon::Exit { code: code.parse().ok()?, text });
        }
        if let Some(file) = fields.get("session") {
            return Some(FromDaemon::Session(crate::json::string(file).map(|file| file.into_owned())));
        }
        if let Some(session_id) = fields.str("handover") {
            let shaped_by = fields.get("shapedBy").map(serde_json::from_str).transpose().ok()?;
            return Some(FromDaemon::Handover {
                session_id: session_id.into_owned(),
                shaped_by: shaped_by.unwrap_or_default(),
            });
        }
        if let Some(text) = fields.str("notice") {
            return Some(FromDaemon::Notice(text.into_owned()));
        }
        let admitted = fields.get("admitted").map(str::parse).transpose().ok()?;
        let answered = fields.get("answered").map(serde_json::from_str).transpose().ok()?;
        let ids = fields.get("ids").map(serde_json::from_str).transpose().ok()?;
        if admitted.is_none() && answered.is_none() {
            return None;
        }
        Some(FromDaemon::Progress {
            admitted,
            answered: answered.unwrap_or_default(),
            ids: ids.unwrap_or_default(),
        })
    }
}

/// A string of the operating system: JSON string when it is UTF-8, else `{"b64": …}`.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OsText(pub Vec<u8>);

impl OsText {
    /// The text, if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The text with bad sequences replaced by U+FFFD.
    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// From what the operating system gave. On Windows unpaired surrogates are replaced.
    #[cfg(unix)]
    pub fn from_os(text: &std::ffi::OsStr) -> OsText {
        use std::os::unix::ffi::OsStrExt as _;
        OsText(text.as_bytes().to_vec())
    }

    /// From what the operating system gave. On Windows unpaired surrogates are replaced.
    #[cfg(not(unix))]
    pub fn from_os(text: &std::ffi::OsStr) -> OsText {
        OsText(text.to_string_lossy().into_owned().into_bytes())
    }

    /// To what the operating system takes.
    #[cfg(unix)]
    pub fn to_os(&self) -> std::ffi::OsString {
        use std::os::unix::ffi::OsStringExt as _;
        std::ffi::OsString::from_vec(self.0.clone())
    }

    /// To what the operating system takes.
    #[cfg(not(unix))]
    pub fn to_os(&self) -> std::ffi::OsString {
        self.lossy().into()
    }
}

impl From<&str> for OsText {
    fn from(text: &str) -> Self {
        OsText(text.as_bytes().to_vec())
    }
}

impl fmt::Debug for OsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for OsText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Encoded {
            b64: String,
        }
        match self.as_str() {
            Some(text) => serializer.serialize_str(text),
            None => Encoded { b64: base64::prelude::BASE64_STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OsText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Encoded { b64: String },
        }
        match Either::deserialize(deserializer)? {
            Either::Text(text) => Ok(OsText(text.into_bytes())),
            Either::Encoded { b64 } => {
                base64::prelude::BASE64_STANDARD.decode(b64).map(OsText).map_err(serde::de::Error::custom)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_round_trips_and_never_shows_values() {
        let hello = Hello {
            cwd: OsText(b"/tmp/\xff".to_vec()),
            argv: vec!["--mode".into(), "rpc".into()],
            env: vec![("KEY".into(), "secret".into())],
            records: true,
            ..Hello::default()
        };
        let text = serde_json::to_string(&hello).unwrap();
        assert!(text.starts_with(r#"{"type":"hello","link":1,"#), "{text}");
        assert!(text.contains(r#""cwd":{"b64":"L3RtcC//"}"#), "{text}");
        let back: Hello = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (back.cwd, back.argv, back.env),
            (hello.cwd.clone(), hello.argv.clone(), hello.env.clone())
        );
        assert!(!format!("{hello:?}").contains("secret"));
        let sparse: Hello =
            serde_json::from_str(r#"{"type":"hello","link":1,"cwd":"/","future":1}"#).unwrap();
        assert_eq!(sparse.mode, Mode::Rpc);
    }

    #[test]
    fn a_build_is_known_by_its_id() {
        assert_eq!(build_id(), option_env!("ATOMIC_BUILD_ID").unwrap_or(PROGRAM_VERSION));
    }

    #[test]
    fn link_records_round_trip() {
        for record in [FromShim::Eof, FromShim::Signal(15)] {
            let line = record.to_line();
            assert_eq!((line[0], line[line.len() - 1]), (MARK, b'\n'));
            let text = std::str::from_utf8(&line[1..line.len() - 1]).unwrap();
            assert_eq!(FromShim::parse(text), Some(record));
        }
        let ids = BTreeMap::from([(7, Raw::parse(r#"{"x":1}"#).unwrap())]);
        for record in [
            FromDaemon::Progress { admitted: Some(9), answered: vec![3, 7], ids },
            FromDaemon::Progress { admitted: None, answered: vec![1], ids: BTreeMap::new() },
            FromDaemon::Session(Some("/s.jsonl".into())),
            FromDaemon::Session(None),
            FromDaemon::Notice("a\nb".into()),
            FromDaemon::Handover {
                session_id: "s".into(),
                shaped_by: vec!["--tools".into(), OsText(b"\xff".to_vec())],
            },
            FromDaemon::Exit { code: 1, text: Some("why".into()) },
            FromDaemon::Exit { code: 0, text: None },
        ] {
            let mut line = Vec::new();
            record.write_line(&mut line);
            let text = std::str::from_utf8(&line[1..line.len() - 1]).unwrap();
            assert_eq!(FromDaemon::parse(text), Some(record));
        }
        assert_eq!(FromDaemon::parse(r#"{"future":true}"#), None);
        assert_eq!(FromShim::parse("garbage"), None);
    }

    #[test]
    fn replies_round_trip() {
        for reply in [
            Reply::Welcome {
                link: 1,
                version: "0".into(),
                build: "b".into(),
                pid: 5,
                session_id: "s".into(),
                session_file: None,
            },
            Reply::Refused { text: "Error: no".into(), code: 1 },
            Reply::Clash { version: "1.0".into(), build: "b".into() },
            Reply::Report(Report { pid: 3, sessions: vec![SessionReport::default()], ..Report::default() }),
        ] {
            let text = serde_json::to_string(&reply).unwrap();
            assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply, "{text}");
        }
    }
}
