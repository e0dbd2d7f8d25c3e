//! The sessions there are: those in files, and those that are live, written or not.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atomic_protocol::Raw;
use atomic_protocol::json::ObjectWriter;
use atomic_protocol::link::SessionReport;
use atomic_protocol::time::Millis;
use atomic_session_store::{self as store, Summary};
use atomic_tools::SessionEnv;

use crate::session::find;

/// The index of stored sessions, below the agent directory. A cache: it may be deleted at any time.
const INDEX: [&str; 2] = ["cache", "sessions-index.jsonl"];

/// What a session without a message of a user shows instead (literal of the reference, section 10).
const NO_MESSAGES: &str = "(no messages)";

/// Which sessions are asked for.
#[derive(Debug)]
pub struct Wanted {
    dirs: Vec<PathBuf>,
    /// Only those of this directory; none: of all.
    cwd: Option<String>,
    /// Files are looked at for it too: their directory may hold those of several.
    filter: bool,
    query: Option<String>,
    index: PathBuf,
}

impl Wanted {
    /// The sessions that a caller in `cwd` sees, or with `all` those of every directory. `named` is `--session-dir`: with a
    /// directory of one's own there is no other. Blocking.
    pub fn of_caller(
        agent_dir: &Path,
        named: Option<&Path>,
        env: &SessionEnv,
        cwd: &Path,
        all: bool,
        query: Option<String>,
    ) -> Wanted {
        let dir = find::session_dir_of(agent_dir, named, env, cwd);
        let cwd = cwd.to_string_lossy().into_owned();
        let own = dir != store::default_session_dir(agent_dir, &cwd);
        let dirs = match all && !own {
            // What cannot be read is told when it is listed.
            true => store::session_dirs(&agent_dir.join("sessions")).unwrap_or_else(|_| vec![dir]),
            false => vec![dir],
        };
        let index = INDEX.iter().fold(agent_dir.to_owned(), |path, part| path.join(part));
        Wanted { dirs, cwd: (!all).then_some(cwd), filter: own, query, index }
    }
}

/// A session, stored or live or both.
#[derive(Clone, Debug)]
pub struct Row {
    /// What its file says. Of one that has none yet, what its daemon says.
    pub summary: Summary,
    /// It has a file, or a path that is kept for one.
    pub has_path: bool,
    /// How it is in the daemon.
    pub live: Option<SessionReport>,
}

/// What there is.
#[derive(Debug, Default)]
pub struct Listed {
    /// The last spoken in first.
    pub rows: Vec<Row>,
    /// Lines for a person's stderr.
    pub warnings: Vec<String>,
}

/// Finds them. `live` are the sessions of the running daemon, if there is one. Blocking: reads what the index does not know.
///
/// # Errors
/// When a directory cannot be read.
pub fn listed(wanted: &Wanted, mut live: Vec<SessionReport>) -> Result<Listed, store::Error> {
    let cwd = wanted.cwd.as_deref();
    let filter = cwd.filter(|_| wanted.filter);
    let found = store::listing(&wanted.dirs, filter, Some(&wanted.index), SystemTime::now())?;
    let warnings = found.unreadable.iter().chain(&found.not_kept).map(|error| format!("Warning: {error}"));
    let warnings = warnings.collect();
    let stored = match &wanted.query {
        Some(query) => store::search(found.sessions, query),
        None => found.sessions,
    };
    let mut rows: Vec<Row> = Vec::with_capacity(stored.len() + live.len());
    for summary in stored {
        let path = summary.path.to_string_lossy();
        let at = live.iter().position(|live| live.file.as_deref() == Some(&*path));
        let live = at.map(|at| live.swap_remove(at));
        rows.push(Row { live, has_path: true, summary });
    }
    // What is left is not written yet, lies elsewhere, or is not asked for.
    live.retain(|live| cwd.is_none_or(|cwd| cwd == live.cwd));
    let rest: Vec<Summary> = live.iter().map(unwritten).collect();
    let rest = match &wanted.query {
        Some(query) => store::search(rest, query),
        None => rest,
    };
    for summary in rest {
        let at = live.iter().position(|live| live.id == summary.id);
        let live = at.map(|at| live.swap_remove(at));
        let has_path = live.as_ref().is_some_and(|live| live.file.is_some());
        rows.push(Row { live, has_path, summary });
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.summary.modified));
    Ok(Listed { rows, warnings })
}

fn unwritten(live: &SessionReport) -> Summary {
    let path = PathBuf::from(live.file.clone().unwrap_or_default());
    let created = Millis::from_iso(&live.created).unwrap_or_default();
    Summary {
        size: 0,
        id: live.id.clone(),
        cwd: live.cwd.clone(),
        name: live.name.clone(),
        has_name: live.name.is_some(),
        parent_session: None,
        created,
        modified: created,
        message_count: 0,
        first_message: String::new(),
        summary: None,
        path,
    }
}

impl Row {
    /// As JSON.
    pub fn json(&self) -> Raw {
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        self.write(&mut object);
        object.end();
        Raw::from_trusted(data.into())
    }

    /// The fields of the reference's SessionInfo (section 10), `size` in bytes, and `live` if it is.
    pub fn write(&self, object: &mut ObjectWriter<'_>) {
        let found = &self.summary;
        if self.has_path {
            object.str("path", &found.path.to_string_lossy());
        }
        object.str("id", &found.id).str("cwd", &found.cwd);
        if let Some(name) = &found.name {
            object.str("name", name);
        }
        object.bool("hasName", found.has_name);
        if let Some(parent) = &found.parent_session {
            object.str("parentSessionPath", parent);
        }
        object.str("created", &found.created.iso()).str("modified", &found.modified.iso());
        object.count("messageCount", found.message_count);
        object.str("firstMessage", self.first_message());
        if let Some(summary) = &found.summary {
            object.str("summary", summary);
        }
        object.count("size", found.size);
        if let Some(live) = &self.live {
            let mut how = ObjectWriter::begin(object.key("live"));
            how.count("clients", u64::from(live.clients)).bool("running", live.running);
            how.end();
        }
    }

    /// What it began with.
    pub fn first_message(&self) -> &str {
        match self.summary.first_message.as_str() {
            "" => NO_MESSAGES,
            text => text,
        }
    }
}

impl Listed {
    /// `{"sessions":[…]}`.
    pub fn data(&self) -> Vec<u8> {
        let rows: Vec<Raw> = self.rows.iter().map(Row::json).collect();
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        object.raws("sessions", &rows);
        object.end();
        data
    }
}
