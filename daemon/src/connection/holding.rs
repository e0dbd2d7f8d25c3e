//! Lines that are read and not admitted, for one of two reasons: another daemon takes over and nothing new shall begin
//! here, or the client does not read, so that it would not hear that a line is admitted and would send it to the next daemon
//! if this one died.
//!
//! Held lines keep their order. Control lines go ahead of them, as they go ahead of parked lines; those about the queues
//! too, unless a replacement is held or runs: then they are about the queues of the session that comes. An `abort_bash`
//! for a command that is held ends what it names of those that run, and stays behind the held one.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use atomic_protocol::command::{Command, Lane, Request};
use atomic_protocol::json::Raw;
use atomic_protocol::link::FromDaemon;

use super::lanes::LANE_DEPTH;
use super::{Connection, Line, STUCK_READER, Standing};
use crate::handover::Phase;
use crate::session::SessionMessage;
use crate::shutdown::SETTLE_DEADLINE;

/// What becomes of a line that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// It is admitted.
    Admit,
    /// It starts ahead of held ones, without being admitted: those would seem to be, too.
    Ahead,
    /// It is held.
    Hold,
}

/// A held line.
struct HeldLine {
    lane: Lane,
    id: Option<Raw>,
    bytes: usize,
    line: Line,
}

/// The held lines of one connection.
#[derive(Default)]
pub(super) struct Held(VecDeque<HeldLine>);

impl Held {
    /// What becomes of the next line; `holding`: nothing new shall begin; `replacing`: an admitted line replaces the
    /// session, or will.
    pub(super) fn pass(&self, lane: Lane, holding: bool, replacing: bool) -> Pass {
        match lane {
            Lane::Control | Lane::Queue if self.0.is_empty() => Pass::Admit,
            Lane::Control => Pass::Ahead,
            Lane::Queue if replacing || self.replaces() => Pass::Hold,
            Lane::Queue => Pass::Ahead,
            _ if !self.0.is_empty() => Pass::Hold,
            Lane::Read => Pass::Admit,
            Lane::Ordinary | Lane::Replacing | Lane::Concurrent if holding => Pass::Hold,
            Lane::Ordinary | Lane::Replacing | Lane::Concurrent => Pass::Admit,
        }
    }

    /// The line aborts a shell command that is held. It has to stay behind that one: on its own it would find nothing.
    pub(super) fn aborts_held(&self, line: &Line) -> bool {
        let Line::Request { request: Request { command: Command::AbortBash { request_id }, .. }, .. } = line
        else {
            return false;
        };
        self.0.iter().any(|held| match &held.line {
            Line::Request { request, .. } => {
                matches!(request.command, Command::Bash { .. } | Command::UserBash { .. })
                    && (request_id.is_none() || *request_id == request.id)
            }
            Line::Refused { .. } => false,
        })
    }

    fn replaces(&self) -> bool {
        self.0.iter().any(|held| held.lane == Lane::Replacing)
    }

    pub(super) fn push(&mut self, lane: Lane, id: Option<Raw>, bytes: usize, line: Line) {
        self.0.push_back(HeldLine { lane, id, bytes, line });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// No more lines should be read for now.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= LANE_DEPTH
    }
}

impl Connection {
    /// Admits what was held, as far as the client hears of it.
    pub(super) async fn release(&mut self) {
        while !self.client.outbox.is_blocked()
            && !self.lanes.is_full()
            && let Some(HeldLine { lane, id, bytes, line }) = self.held.0.pop_front()
        {
            self.admit(lane, id, bytes, line).await;
        }
    }

    /// Lets a hand-over know whether work is open.
    pub(super) fn stand(&self, holding: bool) {
        // Not every line that runs holds the lane.
        let idle = !self.lanes.is_busy() && self.moving.is_none() && !self.client.has_open_lines();
        let standing = match (holding, idle) {
            (false, _) => Standing::Free,
            (true, false) => Standing::Busy,
            (true, true) => Standing::Quiet,
        } as u8;
        if self.client.standing.swap(standing, Ordering::AcqRel) != standing {
            self.daemon.sessions.changed.notify_waiters();
        }
    }

    /// The daemon leaves. With another one to take over the client is told to go there, if its session can.
    pub(super) async fn say_goodbye(&self) {
        let handover = *self.daemon.phase.borrow() == Phase::Leaving;
        let info = self.session.info();
        // The session comes to an orderly end first, so that its last records reach the client. It may have been opened
        // when the others were told already.
        self.session.send(SessionMessage::Shutdown { handover }).await;
        let _ = tokio::time::timeout(SETTLE_DEADLINE, self.session.closed()).await;
        let outbox = &self.client.outbox;
        if !handover || info.file.is_none() {
            let text = match handover {
                true => format!(
                    "Error: session {} was in memory only and ended with `atomic restart --now`",
                    info.id
                ),
                false => "Error: atomicd was stopped".to_owned(),
            };
            outbox.link(&FromDaemon::Exit { code: 1, text: Some(text) });
            outbox.drained().await;
        } else {
            let record =
                FromDaemon::Handover { session_id: info.id.clone(), shaped_by: info.opening.argv.clone() };
            outbox.link(&record);
            // Everybody else waits for this one. To a client that does not read it is as if the daemon had died.
            let _ = tokio::time::timeout(STUCK_READER, outbox.emptied()).await;
        }
        outbox.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_control_lines_go_ahead() {
        use Lane::{Concurrent, Control, Ordinary, Queue, Read};
        let mut held = Held::default();
        for lane in [Read, Ordinary, Control, Queue, Concurrent] {
            assert_eq!(held.pass(lane, false, false), Pass::Admit, "{lane:?}");
        }
        for (lane, pass) in [
            (Read, Pass::Admit),
            (Control, Pass::Admit),
            (Queue, Pass::Admit),
            (Ordinary, Pass::Hold),
            (Concurrent, Pass::Hold),
        ] {
            assert_eq!(held.pass(lane, true, false), pass, "{lane:?}");
        }
        held.push(Ordinary, None, 0, line());
        for holding in [true, false] {
            let read = held.pass(Read, holding, false);
            assert_eq!(read, Pass::Hold, "it may read what the held line changes");
            assert_eq!(held.pass(Control, holding, false), Pass::Ahead);
            assert_eq!(held.pass(Queue, holding, false), Pass::Ahead);
            assert_eq!(held.pass(Ordinary, holding, false), Pass::Hold);
        }
    }

    #[test]
    fn a_line_about_the_queues_waits_for_a_replacement_before_it() {
        let mut held = Held::default();
        held.push(Lane::Ordinary, None, 0, line());
        assert_eq!(held.pass(Lane::Queue, true, true), Pass::Hold);
        held.push(Lane::Replacing, None, 0, line());
        assert_eq!(held.pass(Lane::Queue, true, false), Pass::Hold);
        assert_eq!(held.pass(Lane::Control, true, false), Pass::Ahead);
    }

    #[test]
    fn an_abort_of_a_held_command_comes_behind_it() {
        let mut held = Held::default();
        let request = |text: &str| Line::Request {
            number: 1,
            request: Request::parse(&bytes::Bytes::from(text.to_owned())).expect("a command"),
        };
        let (named, other, all) = (
            request(r#"{"type":"abort_bash","requestId":"x"}"#),
            request(r#"{"type":"abort_bash","requestId":"y"}"#),
            request(r#"{"type":"abort_bash"}"#),
        );
        assert!(!held.aborts_held(&all));
        held.push(Lane::Concurrent, None, 0, request(r#"{"id":"x","type":"bash","command":"sleep 9"}"#));
        assert_eq!([&named, &other, &all].map(|line| held.aborts_held(line)), [true, false, true]);
    }

    fn line() -> Line {
        Line::Refused { number: 1, answer: bytes::Bytes::new() }
    }
}
