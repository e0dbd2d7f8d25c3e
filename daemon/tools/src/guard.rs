//! `atomic-guard`: ends children when the daemon is gone, however it went.
//!
//! It reads lines from a pipe: `+<group> <start>` when a child started (`-` for an unknown start time), `-<group>` when
//! the group has ended. The end of the pipe is the end of the daemon: the kernel closes it even after `kill -9`.

use std::collections::HashMap;
use std::io::BufRead;

use crate::children::end_groups;
use crate::process::Group;

/// The line that announces a group.
pub(crate) fn started(group: Group) -> String {
    match group.start {
        Some(start) => format!("+{} {start}\n", group.id),
        None => format!("+{} -\n", group.id),
    }
}

/// The line that takes a group back.
pub(crate) fn ended(group: Group) -> String {
    format!("-{}\n", group.id)
}

/// The guard's whole life: reads until the pipe ends, then asks the groups that are left to end and after
/// [`crate::KILL_GRACE`] forces them. A group whose leader's start time does not match any more is left alone. The caller
/// exits when this returns.
pub fn guard_main(input: impl BufRead) {
    let groups: Vec<Group> = watch(input).into_values().collect();
    end_groups(&groups);
}

fn watch(mut input: impl BufRead) -> HashMap<u32, Group> {
    let mut groups = HashMap::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            // A line without its end was cut by the daemon's death; its number may be cut as well.
            Ok(read) if read > 0 && line.ends_with(b"\n") => take(&line, &mut groups),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return groups,
        }
    }
}

fn take(line: &[u8], groups: &mut HashMap<u32, Group>) {
    let Ok(line) = std::str::from_utf8(line) else { return };
    if let Some(rest) = line.strip_prefix('-') {
        if let Ok(id) = rest.trim_end().parse::<u32>() {
            groups.remove(&id);
        }
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
        let text = b"+10 5\n+11 -\n+12 7\n-11\n+0 1\n+1 1\n+x 1\nnoise\n\xff\n+13 8";
        let mut left: Vec<Group> = watch(&text[..]).into_values().collect();
        left.sort_by_key(|group| group.id);
        assert_eq!(left, [Group { id: 10, start: Some(5) }, Group { id: 12, start: Some(7) }]);
        let group = Group { id: 10, start: Some(5) };
        assert_eq!(watch(started(group).as_bytes())[&10], group);
        assert!(watch(format!("{}{}", started(group), ended(group)).as_bytes()).is_empty());
    }
}
