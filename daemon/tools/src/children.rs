//! All groups that tools started, so that they end with the daemon.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::guard;
use crate::process::{Ending, Group, own_std_group};
use crate::shell::KILL_GRACE;

/// Between two looks at whether groups are gone.
const GONE_POLL: Duration = Duration::from_millis(20);

/// The register of child groups; one per daemon, cloned into each session's environment.
///
/// With the first child it starts `atomic-guard`: the daemon's own program run with `--guard`, which holds a pipe, is told
/// each group, and at the end of the pipe, however the daemon ended, ends what is left. A daemon killed in the microseconds
/// between starting a child and telling the guard leaves that child behind only where there is no `/proc`.
#[derive(Clone, Debug)]
pub struct Children(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None`: no guard is wanted.
    guard_program: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    guard: Guard,
    groups: HashMap<u32, Registered>,
}

#[derive(Debug)]
struct Registered {
    group: Group,
    /// The leader has ended and left something running in the background.
    left_behind: bool,
}

#[derive(Debug, Default)]
enum Guard {
    #[default]
    NotStarted,
    Running {
        process: Child,
        pipe: ChildStdin,
    },
    /// It could not be started; we said so once.
    Unavailable,
}

impl Children {
    /// A register whose guard is `program --guard`, started with the first child.
    pub fn new(program: PathBuf) -> Children {
        Children(Arc::new(Inner { guard_program: Some(program), state: Mutex::default() }))
    }

    /// A register without a guard: children are known, but nobody ends them when this process is killed. For tests and
    /// one-shot programs.
    pub fn without_guard() -> Children {
        Children(Arc::new(Inner { guard_program: None, state: Mutex::default() }))
    }

    /// Starts the guard if none runs yet. Called before a child is started, so that only a short write lies between the
    /// child's start and the guard's knowing of it. Blocking.
    pub(crate) fn prepare(&self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Guard::NotStarted, Some(program)) = (&state.guard, &self.0.guard_program) {
            state.start_guard(program);
        }
    }

    /// Registers the group of a child that was just started. Blocking.
    pub(crate) fn register(&self, id: u32) -> ChildGroup {
        let group = Group::of_child(id);
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<u32> = state
            .groups
            .values()
            .filter(|r| r.left_behind && !r.group.is_alive())
            .map(|r| r.group.id)
            .collect();
        for id in gone {
            state.forget(id);
        }
        state.groups.insert(id, Registered { group, left_behind: false });
        state.tell(&guard::started(group), self.0.guard_program.as_deref());
        ChildGroup { children: self.clone(), group, leader_ended: false }
    }

    /// How many groups are registered: running commands, and what commands left in the background. Groups left behind
    /// that have ended since are counted until the next child starts.
    pub fn len(&self) -> usize {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).groups.len()
    }

    /// No group is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends every group: asks, waits [`KILL_GRACE`] at most, forces. For the daemon's orderly end.
    pub async fn end_all(&self) {
        let groups: Vec<Group> = {
            let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.groups.values().map(|registered| registered.group).collect()
        };
        if groups.is_empty() {
            return;
        }
        let ended = tokio::task::spawn_blocking(move || end_groups(&groups)).await;
        if let Err(error) = ended {
            tracing::error!(%error, "ending the children failed");
        }
    }
}

/// Asks all groups to end, waits until they are gone or the grace is over, forces the rest.
pub(crate) fn end_groups(groups: &[Group]) {
    for group in groups {
        group.end(Ending::Ask);
    }
    let deadline = std::time::Instant::now() + KILL_GRACE;
    while groups.iter().any(|group| group.is_alive()) {
        if std::time::Instant::now() >= deadline {
            for group in groups {
                group.end(Ending::Force);
            }
            return;
        }
        std::thread::sleep(GONE_POLL);
    }
}

impl State {
    fn start_guard(&mut self, program: &Path) {
        let mut command = Command::new(program);
        // Nothing of a session reaches it, and a signal to the daemon's group does not either.
        command.arg("--guard").env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        if cfg!(unix) {
            command.current_dir("/");
        }
        own_std_group(&mut command);
        self.guard = match command.spawn() {
            Ok(mut process) => match process.stdin.take() {
                Some(pipe) => Guard::Running { process, pipe },
                None => Guard::Unavailable,
            },
            Err(error) => {
                let program = program.display();
                tracing::warn!(%program, %error, "cannot start the guard; children outlive a killed daemon");
                Guard::Unavailable
            }
        };
        let mut lines = guard::held_by(std::process::id());
        lines.extend(self.groups.values().map(|registered| guard::started(registered.group)));
        self.tell(&lines, None);
    }

    /// Tells the guard. When it is gone, starts another one (`again` is its program), which is told all groups.
    fn tell(&mut self, line: &str, again: Option<&Path>) {
        let Guard::Running { process, pipe } = &mut self.guard else { return };
        // Lines are some thirty bytes and the guard does nothing but read, so the pipe never fills.
        let Err(error) = pipe.write_all(line.as_bytes()) else { return };
        tracing::warn!(%error, "the guard is gone");
        // Its pipe is broken, so it has ended or is about to; collecting it cannot wait long.
        drop(process.wait());
        self.guard = Guard::Unavailable;
        if let Some(program) = again {
            self.start_guard(program);
        }
    }

    fn forget(&mut self, id: u32) {
        if let Some(registered) = self.groups.remove(&id) {
            self.tell(&guard::ended(registered.group), None);
        }
    }
}

/// A running group, registered. Dropped before [`ChildGroup::leader_ended`], it is ended by force: nobody is left to wait
/// for it.
#[derive(Debug)]
pub(crate) struct ChildGroup {
    children: Children,
    group: Group,
    leader_ended: bool,
}

impl ChildGroup {
    pub(crate) fn group(&self) -> Group {
        self.group
    }

    /// The leader was waited for. What it left in the background stays registered and ends with the daemon. Blocking.
    pub(crate) fn leader_ended(mut self) {
        self.leader_ended = true;
        let alive = self.group.is_alive();
        let mut state = self.children.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !alive {
            state.forget(self.group.id);
        } else if let Some(registered) = state.groups.get_mut(&self.group.id) {
            registered.left_behind = true;
        }
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        if !self.leader_ended {
            self.group.end(Ending::Force);
            self.children.0.state.lock().unwrap_or_else(PoisonError::into_inner).forget(self.group.id);
        }
    }
}
