//! A window whose records are collected while it is written to, killed and stopped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Failure;

/// Longest wait for any one fact.
pub(super) const DEADLINE: Duration = Duration::from_secs(40);

#[derive(Default)]
struct Heard {
    records: Vec<Value>,
    /// Lines that are no JSON object.
    garbage: Vec<String>,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    heard: Mutex<Heard>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running shim. Killed when dropped.
pub(super) struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
    shared: Arc<Shared>,
    stderr: Arc<Mutex<String>>,
    /// Ids of the lines that it was sent.
    pub(super) sent: Vec<String>,
    /// It was killed: nothing is owed to it.
    pub(super) killed: bool,
}

impl Peer {
    pub(super) fn open(mut command: Command) -> Result<Peer, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().ok_or("stdout is piped")?);
        let mut err = child.stderr.take().ok_or("stderr is piped")?;
        let (shared, stderr) = (Arc::<Shared>::default(), Arc::<Mutex<String>>::default());
        let (hearing, complaining) = (shared.clone(), stderr.clone());
        std::thread::spawn(move || {
            for line in stdout.split(b'\n').map_while(Result::ok) {
                let mut heard = hearing.lock();
                match serde_json::from_slice(&line) {
                    Ok(record @ Value::Object(_)) => heard.records.push(record),
                    _ => heard.garbage.push(String::from_utf8_lossy(&line).into_owned()),
                }
                hearing.changed.notify_all();
            }
            hearing.lock().ended = true;
            hearing.changed.notify_all();
        });
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            complaining.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        });
        Ok(Peer { child, stdin, shared, stderr, sent: Vec::new(), killed: false })
    }

    /// Sends a command with this id. To a shim that was killed it goes nowhere.
    pub(super) fn send(&mut self, id: &str, mut command: Value) {
        command["id"] = Value::from(id);
        self.sent.push(id.to_owned());
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(format!("{command}\n").as_bytes());
        }
    }

    /// Waits until `look` finds something in its records.
    pub(super) fn wait<T>(&self, what: &str, look: impl Fn(&[Value]) -> Option<T>) -> Result<T, Failure> {
        let end = Instant::now() + DEADLINE;
        let mut heard = self.shared.lock();
        loop {
            if let Some(found) = look(&heard.records) {
                return Ok(found);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || heard.ended {
                let how = if heard.ended { "its stdout ended" } else { "in time" };
                drop(heard);
                return Err(format!("no {what} ({how}); stderr: {}", self.stderr()).into());
            }
            heard = self.shared.changed.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The `data` of the answer to `command`, asked with this id.
    pub(super) fn ask(&mut self, id: &str, command: &str) -> Result<Value, Failure> {
        self.send(id, serde_json::json!({"type": command}));
        self.answer(id).map(|answer| answer["data"].clone())
    }

    /// The answer with this id.
    pub(super) fn answer(&self, id: &str) -> Result<Value, Failure> {
        self.wait(&format!("answer to {id}"), |records| {
            records.iter().find(|record| is_answer(record) && record["id"] == id).cloned()
        })
    }

    /// Everything it said.
    pub(super) fn records(&self) -> Vec<Value> {
        self.shared.lock().records.clone()
    }

    /// How many records it said.
    pub(super) fn heard(&self) -> usize {
        self.shared.lock().records.len()
    }

    pub(super) fn garbage(&self) -> Vec<String> {
        self.shared.lock().garbage.clone()
    }

    /// What it complained about; complete once it has ended.
    pub(super) fn stderr(&self) -> String {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub(super) fn kill(&mut self) {
        self.killed = true;
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.stdin = None;
    }

    /// Ends stdin and waits for the exit; gives its code.
    pub(super) fn close(&mut self) -> Result<Option<i32>, Failure> {
        self.stdin = None;
        match atomic_tests::within(DEADLINE, || self.child.try_wait().transpose()) {
            Some(status) => Ok(status?.code()),
            None => Err("a window does not end".into()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn is_answer(record: &Value) -> bool {
    record["type"] == "response"
}
