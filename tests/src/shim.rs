//! A shim and everything it said.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::process::{Finished, Running};
use crate::processes::Signal;
use crate::record::{Record, kinds};
use crate::sandbox::{Sandbox, daemon_log};
use crate::{DEADLINE, SessionFile, binaries};

/// Longest part of a record that a failure shows.
const SHOWN_BYTES: usize = 2_000;

/// A shim to be started: `atomic --mode rpc`, in the sandbox's project directory with the sandbox's environment, unless
/// told otherwise.
#[derive(Debug)]
pub struct Launch<'a> {
    sandbox: &'a Sandbox,
    arguments: Vec<OsString>,
    directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
    program: PathBuf,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox) -> Launch<'a> {
        Launch {
            sandbox,
            arguments: vec!["--mode".into(), "rpc".into()],
            directory: sandbox.project(),
            environment: Vec::new(),
            program: binaries().atomic.clone(),
        }
    }

    /// The same without any argument.
    pub(crate) fn bare(sandbox: &'a Sandbox) -> Launch<'a> {
        Launch { arguments: Vec::new(), ..Launch::new(sandbox) }
    }

    /// Another program.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Launch<'a> {
        self.program = program.into();
        self
    }

    /// More arguments.
    pub fn args<T: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = T>) -> Launch<'a> {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Another directory.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Launch<'a> {
        self.directory = directory.into();
        self
    }

    /// One more variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Launch<'a> {
        self.environment.push((name.into(), value.into()));
        self
    }

    fn command(&self) -> Command {
        let mut command = self.sandbox.command(&self.program);
        command.args(&self.arguments).current_dir(&self.directory).envs(self.environment.iter().cloned());
        command
    }

    /// Starts it.
    ///
    /// # Panics
    /// When the program does not start.
    pub fn start(self) -> Shim {
        Shim::over(Running::spawn(self.command()), self.sandbox)
    }

    /// Starts it with a stdout that nobody reads any more.
    ///
    /// # Panics
    /// When the program does not start.
    pub fn start_with_closed_stdout(self) -> Shim {
        Shim::over(Running::spawn_with_closed_stdout(self.command()), self.sandbox)
    }
}

/// A running shim. What it says is kept in order; a cursor marks how far the test has read.
#[derive(Debug)]
pub struct Shim {
    running: Running,
    agent_dir: PathBuf,
    records: Vec<Record>,
    cursor: usize,
    taken: HashSet<usize>,
    asked: u32,
}

impl Shim {
    fn over(running: Running, sandbox: &Sandbox) -> Shim {
        Shim {
            running,
            agent_dir: sandbox.agent_dir(),
            records: Vec::new(),
            cursor: 0,
            taken: HashSet::new(),
            asked: 0,
        }
    }

    /// The process.
    pub fn process(&self) -> &Running {
        &self.running
    }

    /// Sends one command.
    pub fn send(&mut self, command: Value) {
        self.send_raw(format!("{command}\n").as_bytes());
    }

    /// Sends commands in one write.
    pub fn send_together(&mut self, commands: &[Value]) {
        let text: String = commands.iter().map(|command| format!("{command}\n")).collect();
        self.send_raw(text.as_bytes());
    }

    /// Sends bytes in one write.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.running.write(bytes);
    }

    /// Sends a prompt with this id.
    pub fn prompt(&mut self, id: &str, message: &str) {
        self.send(json!({"id": id, "type": "prompt", "message": message}));
    }

    /// Ends its stdin.
    pub fn close_stdin(&mut self) {
        self.running.close_stdin();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Every record so far.
    pub fn records(&mut self) -> &[Record] {
        self.read_more(|_| Some(()));
        &self.records
    }

    /// The records since the cursor, which moves to the end.
    pub fn rest(&mut self) -> Vec<Record> {
        self.read_more(|_| Some(()));
        let rest = self.records[self.cursor..].to_vec();
        self.cursor = self.records.len();
        rest
    }

    /// Waits for the next record, from the cursor on, that `is_it`; the cursor moves behind it.
    ///
    /// # Panics
    /// When none comes within [`DEADLINE`] or before the shim's stdout ends; the text holds the whole transcript, stderr
    /// and the daemon's log. So do the other waiting methods.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, is_it: impl Fn(&Record) -> bool) -> Record {
        let from = self.cursor;
        let found = self.read_more(|records| records[from..].iter().position(&is_it));
        let Some(offset) = found else { self.fail(&format!("no {what}")) };
        self.cursor = from + offset + 1;
        self.records[from + offset].clone()
    }

    /// Waits for the next record of this `type`.
    #[track_caller]
    pub fn wait_for_kind(&mut self, kind: &str) -> Record {
        self.wait_for(kind, |record| record.kind() == kind)
    }

    /// Waits for the next text delta that says this.
    #[track_caller]
    pub fn wait_for_delta(&mut self, text: &str) -> Record {
        self.wait_for(&format!("delta {text:?}"), |record| {
            record.delta_kind() == "text_delta" && record["assistantMessageEvent"]["delta"] == text
        })
    }

    /// Waits for the response with this id, wherever the cursor is, and leaves the cursor. Asked again for the same id it
    /// waits for the next one.
    #[track_caller]
    pub fn response(&mut self, id: impl Into<Value>) -> Record {
        let id = id.into();
        let taken = std::mem::take(&mut self.taken);
        let is_it = |(index, record): (usize, &Record)| {
            record.is_response() && record.get("id") == Some(&id) && !taken.contains(&index)
        };
        let found = self.read_more(|records| records.iter().enumerate().position(is_it));
        self.taken = taken;
        let Some(index) = found else { self.fail(&format!("no response {id}")) };
        self.taken.insert(index);
        self.records[index].clone()
    }

    /// Sends the command with an id of its own and waits for the response.
    #[track_caller]
    pub fn ask(&mut self, mut command: Value) -> Record {
        self.asked += 1;
        let id = format!("ask-{}", self.asked);
        command["id"] = Value::from(id.as_str());
        self.send(command);
        self.response(id)
    }

    /// The `data` of the response to a command without fields.
    #[track_caller]
    pub fn get(&mut self, command: &str) -> Value {
        self.ask(json!({"type": command})).data().clone()
    }

    /// Waits for `agent_settled`; gives the records from the cursor to it.
    #[track_caller]
    pub fn until_settled(&mut self) -> Vec<Record> {
        let from = self.cursor;
        self.wait_for_kind("agent_settled");
        self.records[from..self.cursor].to_vec()
    }

    /// Waits for the record that `is_it`; gives the records from the cursor to it.
    #[track_caller]
    pub fn until(&mut self, what: &str, is_it: impl Fn(&Record) -> bool) -> Vec<Record> {
        let from = self.cursor;
        self.wait_for(what, is_it);
        self.records[from..self.cursor].to_vec()
    }

    /// Asserts that nothing followed what was read, apart from the answer to a question asked now: the daemon answers in
    /// order, so a record that it had sent by now would come before.
    #[track_caller]
    pub fn assert_quiet(&mut self) {
        let from = self.cursor;
        self.get("get_state");
        let since = kinds(&self.records[from..]);
        assert_eq!(since, ["response get_state"], "records after what was read");
        self.cursor = self.records.len();
    }

    /// The file that get_state announces.
    #[track_caller]
    pub fn session_file(&mut self) -> SessionFile {
        let state = self.get("get_state");
        let path = state["sessionFile"].as_str().unwrap_or_else(|| panic!("no sessionFile: {state}"));
        SessionFile::at(Path::new(path))
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        self.running.stderr()
    }

    /// Ends its stdin and waits for its end. The cursor stays: [`Self::rest`] gives what it said since.
    #[track_caller]
    pub fn finish(&mut self) -> Finished {
        self.running.close_stdin();
        self.wait_for_exit()
    }

    /// Waits for its end without ending its stdin.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> Finished {
        match self.running.wait() {
            Some(finished) => {
                self.read_more(|_| Some(()));
                finished
            }
            None => self.fail("no exit"),
        }
    }

    /// Kills it as a window's crash would, and waits for its end.
    #[track_caller]
    pub fn kill(&mut self) {
        self.signal(Signal::Kill);
        self.wait_for_exit();
    }

    /// Takes over new lines until `look` finds something. `None`: the deadline passed or stdout ended.
    fn read_more<T>(&mut self, look: impl Fn(&[Record]) -> Option<T>) -> Option<T> {
        self.take_lines(false);
        loop {
            if let Some(found) = look(&self.records) {
                return Some(found);
            }
            if self.take_lines(true) == 0 {
                return None;
            }
        }
    }

    /// Parses what has come since. When told to wait, waits for at least one line; 0: there will be none.
    fn take_lines(&mut self, wait: bool) -> usize {
        let known = self.records.len();
        let lines = self.running.wait_until(|seen| {
            let new = &seen.lines[known..];
            (!wait || !new.is_empty() || seen.stdout_ended).then(|| new.to_vec())
        });
        let Some(lines) = lines else { return 0 };
        for line in &lines {
            let parsed = std::str::from_utf8(line).ok().and_then(|text| text.strip_suffix('\n'));
            let record = parsed.and_then(|raw| Some((raw, serde_json::from_str(raw).ok()?)));
            match record {
                Some((raw, json)) => self.records.push(Record { raw: raw.to_owned(), json }),
                None => {
                    let text = String::from_utf8_lossy(line).into_owned();
                    self.fail(&format!("a line of stdout is no record: {text:?}"));
                }
            }
        }
        lines.len()
    }

    /// Fails the test with everything there is to know.
    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        let mut transcript = String::new();
        for (index, record) in self.records.iter().enumerate() {
            let mark = if index == self.cursor { ">" } else { " " };
            let mut end = record.raw.len().min(SHOWN_BYTES);
            while !record.raw.is_char_boundary(end) {
                end -= 1;
            }
            transcript.push_str(&format!("{mark} {}\n", &record.raw[..end]));
        }
        let ended = if self.running.is_running() { "still runs" } else { "has ended" };
        panic!(
            "{why} (within {DEADLINE:?}; the shim {ended})\n--- transcript, `>` is the cursor\n{transcript}--- stderr\n{}\n{}",
            self.running.stderr(),
            daemon_log(&self.agent_dir)
        );
    }
}
