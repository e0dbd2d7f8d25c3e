//! Process groups of Unix, told apart by start time where `/proc` has it.

use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::Ending;
use crate::environment::SessionEnv;
use crate::shell::Exit;

/// A process group that we started: the id of its leader, and when the leader started so that a recycled id is never
/// signalled. Without `/proc` (macOS) there is no start time and the id alone is the identity; it cannot be recycled
/// while the group has members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) id: u32,
    pub(crate) start: Option<u64>,
}

/// What is known of a group's members.
enum Members {
    /// At least one lives and the group is the one we started.
    Ours,
    /// Nobody lives, or the id belongs to somebody else by now.
    NotOurs,
    /// There is no `/proc` to look into.
    Unknown,
}

impl Group {
    /// The group whose leader `id` was just started and not yet waited for.
    pub(crate) fn of_child(id: u32) -> Group {
        Group { id, start: stat(id).map(|stat| stat.start) }
    }

    fn pid(self) -> Option<Pid> {
        i32::try_from(self.id).ok().and_then(Pid::from_raw)
    }

    /// Whether a member lives. Blocking: may read all of `/proc`.
    pub(crate) fn is_alive(self) -> bool {
        let Some(pid) = self.pid() else { return false };
        // EPERM means that a member exists which we may not signal, for example one behind sudo.
        if test_kill_process_group(pid) == Err(Errno::SRCH) {
            return false;
        }
        !matches!(members(self), Members::NotOurs)
    }

    /// Signals the group if it is still the one we started. Blocking as [`Group::is_alive`] unless the leader lives.
    pub(crate) fn end(self, how: Ending) {
        let Some(pid) = self.pid() else { return };
        let leader_is_ours = match stat(self.id) {
            Some(leader) => self.start.is_none_or(|start| start == leader.start),
            None => self.is_alive(),
        };
        if leader_is_ours {
            let signal = match how {
                Ending::Ask => Signal::TERM,
                Ending::Force => Signal::KILL,
            };
            if let Err(error) = kill_process_group(pid, signal)
                && error != Errno::SRCH
            {
                tracing::debug!(group = self.id, %error, "cannot signal a process group");
            }
        }
    }
}

/// The session of this process, led by a process that started it. All that the leader starts is in it, unless it makes a
/// session of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedSession(u32);

/// Longest wait for a leader to be gone whose pipe has ended already: the kernel closes descriptors first.
const LEADER_PATIENCE: Duration = Duration::from_secs(1);

/// Pause between two looks.
const LEADER_POLL: Duration = Duration::from_millis(1);

impl LedSession {
    /// The session, if `leader` leads it.
    pub(crate) fn of(leader: u32) -> Option<LedSession> {
        stat(std::process::id()).filter(|own| own.session == leader).map(|own| LedSession(own.session))
    }

    /// The groups that the leader left in the session, once it is gone; none while it lives: a person's shell leads a
    /// session, too. Blocking.
    pub(crate) fn orphans(self) -> Vec<Group> {
        let deadline = Instant::now() + LEADER_PATIENCE;
        while stat(self.0).is_some_and(|leader| !matches!(leader.state, b'Z' | b'X')) {
            if Instant::now() >= deadline {
                return Vec::new();
            }
            std::thread::sleep(LEADER_POLL);
        }
        let own = std::process::id();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut ids: Vec<u32> = pids
            .filter_map(stat)
            .filter(|stat| stat.session == self.0 && stat.pid != own && stat.group > 1)
            .filter(|stat| !matches!(stat.state, b'Z' | b'X'))
            .map(|stat| stat.group)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(Group::of_child).collect()
    }
}

struct Stat {
    pid: u32,
    state: u8,
    group: u32,
    session: u32,
    start: u64,
}

/// `/proc/<pid>/stat` (proc_pid_stat(5)); the name in parentheses may hold anything, so fields count from the last `)`.
fn stat(pid: u32) -> Option<Stat> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        pid,
        state: *fields.first()?.as_bytes().first()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

/// Looks for living members of `group`. With the leader gone the session tells whether the group is ours: children share
/// the daemon's session (they get a group, not a session), and so does the guard.
fn members(group: Group) -> Members {
    if !cfg!(target_os = "linux") {
        return Members::Unknown;
    }
    let Ok(entries) = std::fs::read_dir("/proc") else { return Members::Unknown };
    // Read as the members' are: it is 0 where the session's leader lives outside our process id namespace (a container
    // entered from without), and then it is 0 for the children too.
    let session = stat(std::process::id()).map(|own| own.session);
    let mut leader_is_ours = None;
    let mut living = false;
    let mut of_our_session = false;
    let ids =
        entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()));
    for member in ids.filter_map(stat).filter(|stat| stat.group == group.id) {
        if member.pid == group.id {
            leader_is_ours = Some(group.start.is_none_or(|start| start == member.start));
        }
        // A zombie waits for somebody to ask how it ended; nothing is left to end.
        if !matches!(member.state, b'Z' | b'X') {
            living = true;
            of_our_session |= Some(member.session) == session;
        }
    }
    if living && leader_is_ours.unwrap_or(of_our_session) { Members::Ours } else { Members::NotOurs }
}

/// Makes the child leader of a group of its own.
pub(crate) fn own_group(command: &mut tokio::process::Command) {
    command.process_group(0);
}

/// [`own_group`] for a child that outlives the runtime.
pub(crate) fn own_std_group(command: &mut std::process::Command) {
    command.process_group(0);
}

/// How the child ended.
pub(crate) fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Exited(code),
        (None, Some(signal)) => Exit::Signalled(signal),
        (None, None) => Exit::Exited(-1),
    }
}

/// Where temporary files go when the session does not say.
pub(crate) fn system_temp_dir() -> PathBuf {
    PathBuf::from("/tmp")
}

/// Opening a FIFO or a device must not wait for its other end.
pub(crate) fn refuse_to_block(options: &mut OpenOptions) {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    options.custom_flags(flags.bits().cast_signed());
}

/// Gives something just made the mode that a process with `umask` would have made it with.
pub(crate) fn apply_umask(path: &Path, mode: u32, umask: Option<u32>) {
    if let Some(umask) = umask {
        // The content is what was asked for; a file system without modes keeps its own.
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & !umask));
    }
}

/// A regular file with an execute bit.
pub(crate) fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Shells to try in order: bash where it usually is, bash and sh on the session's PATH, sh where POSIX has it.
pub(crate) fn shells(env: &SessionEnv) -> Vec<PathBuf> {
    let on_path = |name: &'static str| {
        let path = env.get_set("PATH").unwrap_or_default().to_owned();
        let dirs: Vec<PathBuf> = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
        dirs.into_iter().map(move |dir| dir.join(name))
    };
    let mut shells = vec![PathBuf::from("/bin/bash")];
    shells.extend(on_path("bash"));
    shells.extend(on_path("sh"));
    shells.push(PathBuf::from("/bin/sh"));
    shells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_group_with_another_start_time_is_not_ours() {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", "read x"]).stdin(std::process::Stdio::piped());
        own_std_group(&mut command);
        let mut child = command.spawn().unwrap();
        let group = Group::of_child(child.id());
        let recycled = Group { start: group.start.map(|start| start + 1), ..group };
        assert!(group.is_alive());
        assert!(!recycled.is_alive());
        recycled.end(Ending::Force);
        drop(child.stdin.take());
        // `read` fails at the end of its input: exit 1, not a signal.
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert!(!group.is_alive());
    }
}
