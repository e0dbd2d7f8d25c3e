//! When a line of a connection may start (design "Lanes"). Pure.

use std::collections::VecDeque;

use atomic_protocol::command::Lane;

/// Parked lines of one connection; above this the socket is not read.
pub(super) const LANE_DEPTH: usize = 1024;

/// The lanes of one connection and what is parked in them.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    /// The lane of the line that runs.
    busy: Option<Lane>,
    parked: VecDeque<(Lane, T)>,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Lanes { busy: None, parked: VecDeque::new() }
    }
}

impl<T> Lanes<T> {
    /// Takes the next line. Gives it back when it may start now.
    pub(super) fn admit(&mut self, lane: Lane, line: T) -> Option<T> {
        let free = match lane {
            Lane::Control => true,
            // What stands behind a replacement is meant for the session it leads to, and so would be lost in the old one.
            Lane::Queue | Lane::Concurrent => !self.replaces(),
            // Everything parked before a read is a line that changes something, or waits behind one.
            Lane::Read => self.parked.is_empty() && self.busy != Some(Lane::Replacing),
            Lane::Ordinary | Lane::Replacing => self.busy.is_none() && self.parked.is_empty(),
        };
        if !free {
            self.parked.push_back((lane, line));
            return None;
        }
        if holds(lane) {
            self.busy = Some(lane);
        }
        Some(line)
    }

    /// The ordinary line that ran was answered. Gives the lines that may start now, in order.
    pub(super) fn free(&mut self) -> Vec<T> {
        self.busy = None;
        let parked = std::mem::take(&mut self.parked);
        parked.into_iter().filter_map(|(lane, line)| self.admit(lane, line)).collect()
    }

    /// A replacement runs or is parked.
    pub(super) fn replaces(&self) -> bool {
        self.busy == Some(Lane::Replacing) || self.parked.iter().any(|(lane, _)| *lane == Lane::Replacing)
    }

    /// No more lines should be read for now.
    pub(super) fn is_full(&self) -> bool {
        self.parked.len() >= LANE_DEPTH
    }

    /// An ordinary line runs.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }
}

/// Whether a line of this lane keeps others of its kind waiting.
fn holds(lane: Lane) -> bool {
    matches!(lane, Lane::Ordinary | Lane::Replacing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Lane::{Concurrent, Control, Ordinary, Queue, Read, Replacing};

    fn admit(lanes: &mut Lanes<&'static str>, lines: &[(Lane, &'static str)]) -> Vec<&'static str> {
        lines.iter().filter_map(|(lane, line)| lanes.admit(*lane, line)).collect()
    }

    #[test]
    fn ordinary_lines_run_one_after_the_other() {
        let mut lanes = Lanes::default();
        assert_eq!(admit(&mut lanes, &[(Ordinary, "a"), (Ordinary, "b"), (Ordinary, "c")]), ["a"]);
        assert_eq!(lanes.free(), ["b"]);
        assert_eq!(lanes.free(), ["c"]);
        assert!(lanes.free().is_empty());
        assert!(!lanes.is_busy());
    }

    #[test]
    fn control_and_concurrent_lines_wait_for_nothing() {
        let mut lanes = Lanes::default();
        let started =
            admit(&mut lanes, &[(Ordinary, "a"), (Ordinary, "b"), (Control, "stop"), (Concurrent, "bash")]);
        assert_eq!(started, ["a", "stop", "bash"]);
    }

    #[test]
    fn reads_pass_a_busy_lane_but_no_parked_change() {
        let mut lanes = Lanes::default();
        let started =
            admit(&mut lanes, &[(Ordinary, "compact"), (Read, "r1"), (Ordinary, "set"), (Read, "r2")]);
        assert_eq!(started, ["compact", "r1"]);
        assert_eq!(
            lanes.free(),
            ["set", "r2"],
            "a read starts with the change before it, which keeps its order"
        );
    }

    #[test]
    fn what_follows_a_replacement_waits_for_it() {
        let mut lanes = Lanes::default();
        let started =
            admit(&mut lanes, &[(Replacing, "new"), (Read, "r1"), (Control, "stop"), (Ordinary, "p")]);
        assert_eq!(started, ["new", "stop"]);
        assert_eq!(lanes.free(), ["r1", "p"]);
        assert!(admit(&mut lanes, &[(Replacing, "new"), (Read, "r2")]).is_empty());
        assert_eq!(lanes.free(), ["new"]);
        assert_eq!(lanes.free(), ["r2"]);
    }

    #[test]
    fn queues_and_commands_behind_a_replacement_are_those_of_the_new_session() {
        let mut lanes = Lanes::default();
        let started = admit(
            &mut lanes,
            &[(Replacing, "new"), (Queue, "pause"), (Ordinary, "p"), (Concurrent, "bash"), (Control, "stop")],
        );
        assert_eq!(started, ["new", "stop"]);
        assert_eq!(lanes.free(), ["pause", "p", "bash"]);

        let mut lanes = Lanes::default();
        let lines = [
            (Ordinary, "a"),
            (Queue, "clear"),
            (Ordinary, "b"),
            (Replacing, "new"),
            (Queue, "pause"),
            (Read, "r"),
        ];
        assert_eq!(admit(&mut lanes, &lines), ["a", "clear"]);
        assert_eq!(lanes.free(), ["b"]);
        assert_eq!(lanes.free(), ["new"]);
        assert_eq!(lanes.free(), ["pause", "r"]);
    }

    #[test]
    fn a_full_lane_says_so() {
        let mut lanes = Lanes::default();
        for _ in 0..=LANE_DEPTH {
            assert!(!lanes.is_full());
            lanes.admit(Ordinary, ());
        }
        assert!(lanes.is_full());
    }
}
