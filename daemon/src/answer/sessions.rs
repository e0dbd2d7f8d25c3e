//! `atomic sessions`: list, search, show, rename, export, delete. A running daemon is asked about what is live there, and does
//! itself what only the owner of a file may do; none is started.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use atomic_link::LinkError;
use atomic_link::connect::{HELLO_DEADLINE, connect};
use atomic_link::place::Place;
use atomic_protocol::cli::{SessionsAction, SessionsOptions};
use atomic_protocol::entry::{Entry, EntryBody};
use atomic_protocol::json::ObjectWriter;
use atomic_protocol::link::{Hello, Mode, NOT_LIVE, OsText, Reply, SessionReport, build_id};
use atomic_session_store::{self as store, Store, Summary};
use atomic_tools::SessionEnv;

use super::{Answer, Caller, Refusal, export};
use crate::clock;
use crate::listing::{self, Row, Wanted};
use crate::session::find;

/// Characters of a first message in a list for people.
const SHOWN_CHARS: usize = 60;

/// Sessions that a beginning that fits several names.
const NAMED_SESSIONS: usize = 5;

/// How often a session is looked for anew that began or ended between two looks.
const ROUNDS: usize = 3;

pub(super) fn answer(caller: &Caller, options: SessionsOptions) -> Result<Answer, Refusal> {
    let sessions = Sessions::of(caller, &options)?;
    match options.action {
        SessionsAction::List { all, query } => sessions.list(all, query, options.json),
        SessionsAction::Show { session } => sessions.show(&session, options.json),
        SessionsAction::Rename { session, name } => sessions.rename(&session, &name),
        SessionsAction::Export { session, output } => {
            let file = sessions.find(&session)?;
            let output = output.map(|output| caller.cwd.join(output));
            let page = export(&file, output.as_deref(), &caller.cwd)?;
            Ok(said(format!("{}\n", page.display())))
        }
        SessionsAction::Delete { session, yes } => sessions.delete(&session, yes),
    }
}

fn said(text: String) -> Answer {
    Answer { text: text.into_bytes(), ..Answer::default() }
}

fn refused(error: impl std::fmt::Display) -> Refusal {
    Refusal::Sessions(error.to_string())
}

/// What a caller sees of them.
struct Sessions<'a> {
    caller: &'a Caller,
    place: Place,
    env: SessionEnv,
    session_dir: Option<PathBuf>,
}

impl<'a> Sessions<'a> {
    fn of(caller: &'a Caller, options: &SessionsOptions) -> Result<Sessions<'a>, Refusal> {
        let place = Place::of(&caller.agent_dir).map_err(refused)?;
        let env = caller.env.iter().collect();
        Ok(Sessions { caller, place, env, session_dir: options.session_dir.clone() })
    }

    fn list(&self, all: bool, query: Option<String>, json: bool) -> Result<Answer, Refusal> {
        let Caller { agent_dir, cwd, .. } = self.caller;
        let wanted = Wanted::of_caller(agent_dir, self.session_dir.as_deref(), &self.env, cwd, all, query);
        let listed = listing::listed(&wanted, self.live()?).map_err(refused)?;
        let text = if json {
            let mut text = listed.data();
            text.push(b'\n');
            text
        } else {
            table(&listed.rows, all).into_bytes()
        };
        Ok(Answer { text, warnings: listed.warnings, code: 0 })
    }

    fn show(&self, session: &OsStr, json: bool) -> Result<Answer, Refusal> {
        let file = self.find(session)?;
        let (opened, problems) = Store::open_read_only(&file).map_err(refused)?;
        let summary = store::summary(&file).map_err(refused)?;
        let live = self.live_with(&file)?;
        let warnings =
            problems.iter().map(|problem| format!("Warning: {}: {problem}", file.display())).collect();
        let row = Row { summary, has_path: true, live };
        let text = if json { facts_json(&row, &opened) } else { facts(&row, &opened) };
        Ok(Answer { text: text.into_bytes(), warnings, code: 0 })
    }

    /// A live session is named by its owner, any other by whoever holds its file's lock: this process.
    fn rename(&self, session: &OsStr, name: &str) -> Result<Answer, Refusal> {
        let file = self.find_writable(session)?;
        let done = || Ok(said(format!("Renamed {} to \"{name}\"\n", file.display())));
        for round in 1.. {
            if self.ask_owner(Mode::Rename, &file, Some(name))? {
                return done();
            }
            match append_name(&file, name) {
                Ok(backup) => {
                    let mut answer = done()?;
                    answer.warnings.extend(backup);
                    return Ok(answer);
                }
                // It was opened just now, or by somebody else.
                Err(store::Error::Locked { .. }) if round < ROUNDS => {}
                Err(error) => return Err(refused(error)),
            }
        }
        unreachable!("the last round returns")
    }

    fn delete(&self, session: &OsStr, yes: bool) -> Result<Answer, Refusal> {
        let file = self.find_writable(session)?;
        if let Some(live) = self.live_with(&file)?
            && (live.clients > 0 || live.running)
        {
            // The daemon words it; should it have become free meanwhile, nothing is lost.
            self.ask_owner(Mode::Release, &file, None)?;
        }
        if !yes {
            let question = format!("Delete {} for good? [y/N] ", file.display());
            match self.caller.person.confirm(&question) {
                Some(true) => {}
                Some(false) => return Err(refused("nothing was deleted")),
                None => {
                    return Err(refused(format_args!(
                        "deleting {} needs a confirmation, and there is no terminal to ask on; --yes confirms it",
                        file.display()
                    )));
                }
            }
        }
        for round in 1.. {
            self.ask_owner(Mode::Release, &file, None)?;
            match store::delete(&file) {
                Ok(gone) => {
                    return Ok(said(
                        gone.iter().map(|path| format!("Deleted {}\n", path.display())).collect(),
                    ));
                }
                Err(store::Error::Locked { .. }) if round < ROUNDS => {}
                Err(error) => return Err(refused(error)),
            }
        }
        unreachable!("the last round returns")
    }

    /// The sessions that are live in the daemon, if one runs.
    fn live(&self) -> Result<Vec<SessionReport>, Refusal> {
        match self.ask(Mode::Status, Vec::new())? {
            Some(Reply::Report(report)) => Ok(report.sessions),
            Some(Reply::Refused { text, .. }) => Err(refused(plain(&text))),
            _ => Ok(Vec::new()),
        }
    }

    fn live_with(&self, file: &Path) -> Result<Option<SessionReport>, Refusal> {
        let shown = file.to_string_lossy();
        Ok(self.live()?.into_iter().find(|live| live.file.as_deref() == Some(&*shown)))
    }

    /// Has the daemon do it for the live session of `file`. `false`: nobody there has the file.
    fn ask_owner(&self, mode: Mode, file: &Path, argument: Option<&str>) -> Result<bool, Refusal> {
        let mut argv = vec![OsText::from_os(file.as_os_str())];
        argv.extend(argument.map(OsText::from));
        match self.ask(mode, argv)? {
            None => Ok(false),
            Some(Reply::Report(_)) => Ok(true),
            Some(Reply::Refused { code: NOT_LIVE, .. }) => Ok(false),
            Some(Reply::Refused { text, .. }) => Err(refused(plain(&text))),
            Some(Reply::Welcome { .. } | Reply::Clash { .. }) => {
                Err(refused("atomicd answered another question than the one asked"))
            }
        }
    }

    /// `None`: no daemon runs.
    fn ask(&self, mode: Mode, argv: Vec<OsText>) -> Result<Option<Reply>, Refusal> {
        let hello = Hello { build: build_id().to_owned(), mode, argv, ..Hello::default() };
        match connect(&self.place, &hello, HELLO_DEADLINE) {
            Ok(attached) => Ok(Some(attached.reply)),
            // One that closes without an answer is leaving: its files are free in a moment, or locked.
            Err(LinkError::NotRunning { .. } | LinkError::Closed { .. }) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// The file of a session that is to be changed: its id must mean no other.
    fn find_writable(&self, session: &OsStr) -> Result<PathBuf, Refusal> {
        let found = self.find_all(session)?;
        match &found[..] {
            [(file, _)] => Ok(file.clone()),
            [(file, id), ..] if *id == session.to_string_lossy() => Ok(file.clone()),
            several => {
                let mut text = format!("'{}' fits {} sessions:", session.to_string_lossy(), several.len());
                for (file, id) in several.iter().take(NAMED_SESSIONS) {
                    let _ = write!(text, "\n  {id}  {}", file.display());
                }
                if several.len() > NAMED_SESSIONS {
                    text.push_str("\n  …");
                }
                Err(refused(text))
            }
        }
    }

    /// The file of a session; of several that fit the last written one of this directory, else of another.
    fn find(&self, session: &OsStr) -> Result<PathBuf, Refusal> {
        Ok(self.find_all(session)?.swap_remove(0).0)
    }

    /// The files of all sessions that fit, with their ids, exact ones first: at least one.
    fn find_all(&self, session: &OsStr) -> Result<Vec<(PathBuf, String)>, Refusal> {
        let Caller { agent_dir, cwd, .. } = self.caller;
        let text = session.to_string_lossy();
        if text.contains(['/', '\\']) || text.ends_with(".jsonl") {
            let path = find::canonical(&cwd.join(find::expand_home(session, &self.env)));
            return Ok(vec![(path.map_err(|error| refused(plain(&error)))?, text.into_owned())]);
        }
        let dir = find::session_dir_of(agent_dir, self.session_dir.as_deref(), &self.env, cwd);
        let others = store::session_dirs(&agent_dir.join("sessions")).map_err(refused)?;
        let mut found = Vec::new();
        for dir in std::iter::once(&dir).chain(others.iter().filter(|other| **other != dir)) {
            let sessions = store::list(dir, None).map_err(refused)?;
            let fits = sessions.into_iter().filter(|found| found.header.header.id.starts_with(&*text));
            found.extend(fits.map(|found| (found.path, found.header.header.id)));
        }
        found.sort_by_key(|(_, id)| **id != *text);
        let files = found.into_iter().map(|(file, id)| Ok((find::canonical(&file)?, id)));
        let files: Vec<_> = files.collect::<Result<_, String>>().map_err(|error| refused(plain(&error)))?;
        match files.is_empty() || text.is_empty() {
            true => Err(refused(format_args!(
                "no session found matching '{text}'; `atomic sessions --all` lists them"
            ))),
            false => Ok(files),
        }
    }
}

/// A complete line for stderr as the text of an error.
fn plain(line: &str) -> &str {
    line.trim_end().trim_start_matches("Error: ")
}

/// Names a session that is nobody's. Gives a line about the copy that was kept if its file was an old one.
fn append_name(file: &Path, name: &str) -> Result<Option<String>, store::Error> {
    let (mut session, _) = Store::open(file)?;
    let id = store::new_entry_id(|id| session.find(id).is_some());
    let body = EntryBody::SessionInfo { name: Some(name.to_owned()) };
    let entry = Entry { id, parent_id: session.leaf().cloned(), timestamp: clock::now(), body };
    session.append(&entry)?;
    if let Some(handle) = session.sync()? {
        handle.sync()?;
    }
    let kept = |backup: &Path| {
        format!("Note: the file was brought to version 3; as it was it is {}", backup.display())
    };
    Ok(session.backup().map(kept))
}

fn table(rows: &[Row], all: bool) -> String {
    if rows.is_empty() {
        return if all {
            "No sessions\n"
        } else {
            "No sessions here; --all lists those of all directories\n"
        }
        .to_owned();
    }
    let mut out = String::new();
    for row in rows {
        let Summary { id, cwd, name, message_count, modified, .. } = &row.summary;
        // To the minute, for people; the rest is in the JSON.
        let time = modified.iso();
        let time = time.get(..16).unwrap_or(&time).replace('T', " ");
        let shown = name.as_deref().unwrap_or_else(|| row.first_message());
        let messages = if *message_count == 1 { "message" } else { "messages" };
        let _ = write!(out, "{id}  {time}  {message_count} {messages}");
        if let Some(live) = &row.live {
            let state = if live.running { "running" } else { "live" };
            let _ = write!(
                out,
                "  [{state}, {} client{}]",
                live.clients,
                if live.clients == 1 { "" } else { "s" }
            );
        }
        if all {
            let _ = write!(out, "  {cwd}");
        }
        let _ = writeln!(out, "\n    {}", one_line(shown, SHOWN_CHARS));
    }
    out
}

/// Its beginning, with nothing in it that a terminal could obey.
fn one_line(text: &str, chars: usize) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().filter(|letter| !letter.is_control()));
        if words.len() > chars * 4 {
            break;
        }
    }
    match words.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}

fn facts(row: &Row, opened: &Store) -> String {
    let found = &row.summary;
    let stats = opened.stats();
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<12} {value}");
    };
    line("id", &found.id);
    if let Some(name) = &found.name {
        line("name", &one_line(name, usize::MAX / 8));
    }
    line("file", &found.path.to_string_lossy());
    line("directory", &found.cwd);
    if let Some(parent) = &found.parent_session {
        line("forked from", parent);
    }
    line("created", &found.created.iso());
    line("modified", &found.modified.iso());
    line("size", &format!("{} bytes, {} entries", found.size, opened.entries().len()));
    line(
        "messages",
        &format!(
            "{} ({} of the user, {} of models, {} tool results)",
            found.message_count, stats.user_messages, stats.assistant_messages, stats.tool_results
        ),
    );
    line(
        "tokens",
        &format!("{} ({} in, {} out)", stats.tokens.total(), stats.tokens.input, stats.tokens.output),
    );
    line("cost", &format!("${:.4}", stats.cost));
    if let Some(live) = &row.live {
        let state = if live.running { "running" } else { "idle" };
        line("live", &format!("{state}, {} attached", live.clients));
    }
    line("begins with", &one_line(row.first_message(), Summary::FIRST_MESSAGE_CHARS));
    if let Some(summary) = &found.summary {
        line("summary", &one_line(summary, Summary::FIRST_MESSAGE_CHARS));
    }
    out
}

/// The row, with the counts of get_session_stats as `stats`.
fn facts_json(row: &Row, opened: &Store) -> String {
    let mut text = Vec::new();
    let mut object = ObjectWriter::begin(&mut text);
    row.write(&mut object);
    let mut stats = ObjectWriter::begin(object.key("stats"));
    opened.stats().write_fields(&mut stats);
    stats.end();
    object.end();
    text.push(b'\n');
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_obeys_nobody() {
        assert_eq!(one_line("a\n\tb \u{1b}[31mred", 60), "a b [31mred");
        assert_eq!(one_line(&"ä".repeat(100), 3), "äää…");
        assert_eq!(one_line("abc", 3), "abc");
    }
}
