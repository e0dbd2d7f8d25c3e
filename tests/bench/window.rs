//! What an editor does: starts `atomic`, writes lines, reads lines.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Failure;

/// Longest wait for any one record. Nothing here takes a tenth of it; what does is broken.
const DEADLINE: Duration = Duration::from_secs(60);

/// Bytes read at once: as much as the pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// The question that is asked most.
pub(crate) const GET_STATE: &[u8] = b"{\"id\":\"1\",\"type\":\"get_state\"}\n";

/// A running shim. Killed when dropped.
pub(crate) struct Window {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// When it was started.
    pub(crate) started: Instant,
    buffer: Vec<u8>,
    /// Of `buffer`: consumed up to here, searched for LF up to there.
    taken: usize,
    scanned: usize,
    /// Bytes that came from stdout.
    pub(crate) received: u64,
}

impl Window {
    /// Starts the command.
    pub(crate) fn open(mut command: Command) -> Result<Window, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let started = Instant::now();
        let mut child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("stdout is piped")?;
        Ok(Window {
            child,
            stdin,
            stdout,
            started,
            buffer: Vec::with_capacity(2 * READ_BYTES),
            taken: 0,
            scanned: 0,
            received: 0,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line with its LF.
    pub(crate) fn send(&mut self, line: &[u8]) -> Result<(), Failure> {
        let stdin = self.stdin.as_mut().ok_or("stdin is closed")?;
        Ok(stdin.write_all(line)?)
    }

    /// The next record without its LF.
    pub(crate) fn next(&mut self) -> Result<&[u8], Failure> {
        loop {
            if let Some(length) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let end = self.scanned + length;
                let line = self.taken..end;
                self.taken = end + 1;
                self.scanned = self.taken;
                return Ok(&self.buffer[line]);
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            self.scanned = self.buffer.len();
            self.read()?;
        }
    }

    fn read(&mut self) -> Result<(), Failure> {
        let limit = Timespec { tv_sec: DEADLINE.as_secs() as i64, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.stdout, PollFlags::IN)], Some(&limit))?;
        if ready == 0 {
            return Err(format!("no record within {} seconds", DEADLINE.as_secs()).into());
        }
        let old = self.buffer.len();
        self.buffer.resize(old + READ_BYTES, 0);
        let read = self.stdout.read(&mut self.buffer[old..])?;
        self.buffer.truncate(old + read);
        self.received += read as u64;
        if read == 0 {
            return Err(format!("atomic (process {}) has ended", self.child.id()).into());
        }
        Ok(())
    }

    /// Reads records until one contains `text`; tells how many came before.
    pub(crate) fn until(&mut self, text: &str) -> Result<usize, Failure> {
        let mut before = 0;
        loop {
            let line = std::str::from_utf8(self.next()?)?;
            if line.contains(text) {
                return Ok(before);
            }
            if line.contains("\"success\":false") {
                return Err(format!("refused: {line}").into());
            }
            before += 1;
        }
    }

    /// Asks for the state and waits for the answer.
    pub(crate) fn get_state(&mut self) -> Result<(), Failure> {
        self.send(GET_STATE)?;
        self.until("\"command\":\"get_state\"").map(drop)
    }

    /// Opens, asks for the state: the time from the start of the process to the answer.
    pub(crate) fn ready(mut self) -> Result<(Window, Duration), Failure> {
        self.get_state()?;
        let took = self.started.elapsed();
        Ok((self, took))
    }

    /// Writes `bytes` while reading records until `count` contain `text`; gives `count`.
    pub(crate) fn send_and_count(
        &mut self,
        bytes: Vec<u8>,
        text: &str,
        count: usize,
    ) -> Result<usize, Failure> {
        let mut stdin = self.stdin.take().ok_or("stdin is closed")?;
        let writer = std::thread::spawn(move || stdin.write_all(&bytes).map(|()| stdin));
        for _ in 0..count {
            self.until(text)?;
        }
        self.stdin = Some(writer.join().map_err(|_| "the writer panicked")??);
        Ok(count)
    }

    /// The session's file, as get_state tells it.
    pub(crate) fn session_file(&mut self) -> Result<String, Failure> {
        self.send(GET_STATE)?;
        let answer: serde_json::Value = serde_json::from_slice(self.next()?)?;
        let file = answer["data"]["sessionFile"].as_str();
        file.map(str::to_owned).ok_or_else(|| format!("no session file in {answer}").into())
    }

    /// Starts a run with this prompt.
    pub(crate) fn prompt(&mut self, text: &str) -> Result<(), Failure> {
        let line = serde_json::json!({"id": "p", "type": "prompt", "message": text});
        self.send(format!("{line}\n").as_bytes())
    }

    /// Reads the records of a run to its end; tells how many text deltas it had.
    pub(crate) fn settle(&mut self) -> Result<usize, Failure> {
        let mut deltas = 0;
        loop {
            let line = std::str::from_utf8(self.next()?)?;
            if line.contains("\"text_delta\"") {
                deltas += 1;
            } else if line.contains("\"agent_settled\"") {
                return Ok(deltas);
            } else if line.contains("\"success\":false") || line.contains("\"errorMessage\"") {
                return Err(format!("the run failed: {line}").into());
            }
        }
    }

    /// Ends stdin and waits for the exit.
    pub(crate) fn close(mut self) -> Result<(), Failure> {
        self.stdin = None;
        // The end of stdout is the end of the process, but for the blink of an eye that `wait` takes.
        loop {
            match self.read() {
                Ok(()) => self.buffer.clear(),
                Err(_) if self.child.wait()?.success() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
