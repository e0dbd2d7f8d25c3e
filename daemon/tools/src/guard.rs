//! `atomic-guard`: ends children when the daemon is gone, however it went.
//!
//! It reads lines from a pipe: `=<pid>` of the daemon, `+<group> <start>` when a child started (`-` for an unknown start time), `-<group>` when
//! the group has ended. The end of the pipe is the end of the daemon: the kernel closes it even after `kill -9`.

use std::collections::HashMap;
use std::io::BufRead;

use crate::children::end_groups;
use crate::process::{Group, LedSession};

/// The line that announces a group.
pub(crate) fn started(group: Group) -> String {
    match group.start {
        Some(start) => format!("+{} {start}\n", group.id),
        None => format!("+{} -\n", group.id),
    }
}

/// The line that says who holds the other end.
pub(crate) fn held_by(daemon: u32) -> String {
    format!("={daemon}\n")
}

/// The line that takes a group back.
pub(crate) fn ended(group: Group) -> String {
    format!("-{}\n", group.id)
}

/// The guard's whole life: reads until the pipe ends, then asks the groups that are left to end and after
/// [`crate::KILL_GRACE`] forces them. So it does, where `/proc` has it, with what the daemon started and had not told yet:
/// it is in the daemon's own session. A group whose leader's start time does not match any more is left alone. The caller
/// exits when this returns.
pub fn guard_main(input: impl BufRead) {
    let Watched { leader, mut groups } = watch(input);
    for orphan in leader.and_then(LedSession::of).map(LedSession::orphans).unwrap_or_default() {
        groups.entry(orphan.id).or_insert(orphan);
    }
    end_groups(&groups.into_values().collect::<Vec<_>>());
}

/// What the guard knows at the end.
#[derive(Default)]
struct Watched {
    /// The daemon.
    leader: Option<u32>,
    groups: HashMap<u32, Group>,
}

fn watch(mut input: impl BufRead) -> Watched {
    let mut watched = Watched::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            // A line without its end was cut by the daemon's death; its number may be cut as well.
            Ok(read) if read > 0 && line.ends_with(b"\n") => take(&line, &mut watched),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return watched,
        }
    }
}

fn take(line: &[u8], Watched { leader, groups }: &mut Watched) {
    let Ok(line) = std::str::from_utf8(line) else { return };
    if let Some(rest) = line.strip_prefix('-') {
        if let Ok(id) = rest.trim_end().parse::<u32>() {
            groups.remove(&id);
        }
    } else if let Some(rest) = line.strip_prefix('=') {
        *leader = rest.trim_end().parse().ok();
    } else if let Some((id, start)) = line.strip_prefix('+').and_then(|rest| rest.trim_end().split_once(' '))
        && let Ok(id) = id.parse::<u32>()
        // Group 0 and 1 would mean our own group and init's.
        && id > 1
    {
        groups.insert(id, Group { id, start: start.parse().ok() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_broken_ones_ignored() {
        let text = b"=77\n+10 5\n+11 -\n+12 7\n-11\n+0 1\n+1 1\n+x 1\nnoise\n\xff\n+13 8";
        let watched = watch(&text[..]);
        assert_eq!(watched.leader, Some(77));
        let mut left: Vec<Group> = watched.groups.into_values().collect();
        left.sort_by_key(|group| group.id);
        assert_eq!(left, [Group { id: 10, start: Some(5) }, Group { id: 12, start: Some(7) }]);
        let group = Group { id: 10, start: Some(5) };
        assert_eq!(watch(started(group).as_bytes()).groups[&10], group);
        assert!(watch(format!("{}{}", started(group), ended(group)).as_bytes()).groups.is_empty());
    }
}
