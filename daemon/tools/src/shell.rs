//! Runs a command line in a shell: for the bash tool and for the client's `bash` command.
//!
//! One owner of the outcome: [`run_shell`]'s loop decides whether a command ended by itself, was cancelled or ran out of
//! time; what happens first counts, and what a cancelled command makes of the signal does not change it.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::children::ChildGroup;
use crate::environment::{ToolEnvironment, ToolVariables};
use crate::error::ToolError;
use crate::process::{self, Ending};
use crate::truncate::{MAX_BYTES, MAX_LINES, Truncation};

mod output;
mod pipes;
mod tail;
mod text;

#[cfg(all(test, unix))]
mod tests;

use output::Output;
use pipes::{Piece, Pipes};

/// How long a group may take to end after it was asked to.
pub const KILL_GRACE: Duration = Duration::from_secs(2);
/// After that it was forced; a process that still exists then hangs in the kernel, and nobody waits for it.
const FORCED_GRACE: Duration = Duration::from_secs(1);
/// Between two looks at whether a group that was asked to end is gone.
const GONE_POLL: Duration = Duration::from_millis(20);
/// After the shell has ended, output of what it left in the background is read until it is silent for this long...
const DRAIN_IDLE: Duration = Duration::from_millis(100);
/// ...but no longer than this.
const DRAIN_CAP: Duration = Duration::from_secs(2);
/// The same cap after a cancelled group is gone: only a process that left the group can still hold the pipe.
const CANCELLED_DRAIN_CAP: Duration = Duration::from_millis(500);
/// Snapshots of a running tool's output come no closer than this.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);

/// Good capacity for the channel of [`Delta`]s: each holds up to 64 KiB, so a slow client costs 1 MiB per command and
/// then slows the command itself, as a full pipe does.
pub const DELTA_CHANNEL: usize = 16;

/// Which stream of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Standard output.
    Stdout = 0,
    /// Standard error.
    Stderr = 1,
}

impl Channel {
    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Channel::Stdout => "stdout",
            Channel::Stderr => "stderr",
        }
    }
}

/// New text of one channel. All deltas in order are the output before it is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Where it was printed.
    pub channel: Channel,
    /// The text, never empty.
    pub text: String,
}

/// What is made of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputText {
    /// Decoded and otherwise as printed: for the bash tool.
    Raw,
    /// Without escape sequences, carriage returns and other control characters: for the client's `bash` command.
    Plain,
}

/// A command line to run.
#[derive(Clone, Debug)]
pub struct ShellCommand {
    /// For the shell's `-c`.
    pub command: String,
    /// Ends the command; there is no default.
    pub timeout: Option<Duration>,
    /// What is made of the output.
    pub text: OutputText,
    /// Told to the child.
    pub variables: ToolVariables,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal that was not ours.
    Signalled(i32),
    /// It was cancelled.
    Cancelled,
    /// It ran out of time.
    TimedOut,
}

impl Exit {
    /// The exit code as a shell would report it: 128+N after signal N; `None` when we ended the command.
    pub fn code(self) -> Option<i32> {
        match self {
            Exit::Exited(code) => Some(code),
            Exit::Signalled(signal) => Some(128 + signal),
            Exit::Cancelled | Exit::TimedOut => None,
        }
    }
}

/// What became of a command.
#[derive(Clone, Debug)]
pub struct ShellOutcome {
    /// The end of what it printed, both channels in order of arrival.
    pub output: Truncation,
    /// Bytes of the last line as printed, of which `output` may hold the end only.
    pub last_line_bytes: u64,
    /// How it ended.
    pub exit: Exit,
    /// Where all of it is, as the bytes that were printed. `None`: it was short, there is no file. `Some(None)`: the file
    /// was refused.
    pub full_output_path: Option<Option<PathBuf>>,
    /// From start to end.
    pub wall: Duration,
}

impl ShellOutcome {
    fn never_started() -> ShellOutcome {
        ShellOutcome {
            output: crate::truncate::tail("", MAX_LINES, MAX_BYTES),
            last_line_bytes: 0,
            exit: Exit::Cancelled,
            full_output_path: None,
            wall: Duration::ZERO,
        }
    }
}

/// Who follows the output of a running command.
pub(crate) enum Follower<'a> {
    /// Nobody.
    Nobody,
    /// Every piece in order. While the channel is full the child is not read.
    Deltas(mpsc::Sender<Delta>),
    /// The end so far, now and then.
    Snapshots(&'a (dyn Fn(Snapshot) + Send + Sync)),
}

/// The output of a running command so far.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) output: Truncation,
    pub(crate) full_output_path: Option<Option<PathBuf>>,
}

/// Runs a command in the session's shell, directory and environment, with nothing to read on stdin and in a process
/// group of its own. Every piece of output goes to `deltas` in order; while that channel is full the child is not read
/// (make it with [`DELTA_CHANNEL`]); a closed one is ignored.
///
/// `cancel` ends the whole group: asks, waits [`KILL_GRACE`], forces; the outcome comes when the group is gone. When the
/// shell ends by itself, what it left in the background keeps running, registered with `environment.children`, and its
/// output is waited for shortly (two seconds at most).
///
/// # Errors
/// When the directory or the shell does not exist or the shell does not start.
pub async fn run_shell(
    command: ShellCommand,
    environment: &ToolEnvironment,
    cancel: CancellationToken,
    deltas: Option<mpsc::Sender<Delta>>,
) -> Result<ShellOutcome, ToolError> {
    let follower = deltas.map_or(Follower::Nobody, Follower::Deltas);
    follow_shell(command, environment, &cancel, follower).await
}

/// [`run_shell`] for any follower.
pub(crate) async fn follow_shell(
    command: ShellCommand,
    environment: &ToolEnvironment,
    cancel: &CancellationToken,
    follower: Follower<'_>,
) -> Result<ShellOutcome, ToolError> {
    let started = Instant::now();
    if cancel.is_cancelled() {
        return Ok(ShellOutcome::never_started());
    }
    let (mut child, group) = start(&command, environment).await?;
    let pipes = Pipes::new(child.stdout.take(), child.stderr.take());
    let output = Output::new(command.text, environment.env.temp_dir(), &environment.session_id);
    let mut run = Run {
        child,
        group,
        pipes,
        output,
        follower,
        unsent: None,
        status: None,
        stopping: None,
        drain: None,
        snapshot_due: None,
        last_snapshot: started,
    };
    let timeout = command.timeout.and_then(|timeout| started.checked_add(timeout));
    let exit = run.until_over(cancel, timeout).await;
    for channel in [Channel::Stdout, Channel::Stderr] {
        let rest = run.output.end(channel);
        run.follow(channel, rest);
        run.deliver_rest(cancel).await;
    }
    let group = run.group;
    if run.status.is_some() {
        let ended = tokio::task::spawn_blocking(move || group.leader_ended()).await;
        ended.map_err(|error| internal(&error))?;
    }
    let full_output_path = run.output.finish().await;
    let last_line_bytes = run.output.last_line_bytes();
    let output = run.output.snapshot();
    Ok(ShellOutcome { output, last_line_bytes, exit, full_output_path, wall: started.elapsed() })
}

fn internal(error: &tokio::task::JoinError) -> ToolError {
    ToolError::Internal { tool: "bash".to_owned(), what: error.to_string() }
}

/// Starts the child and registers its group.
async fn start(
    command: &ShellCommand,
    environment: &ToolEnvironment,
) -> Result<(Child, ChildGroup), ToolError> {
    let mut line = match &environment.shell_command_prefix {
        Some(prefix) if !prefix.is_empty() => format!("{prefix}\n{}", command.command),
        _ => command.command.clone(),
    };
    if let Some(umask) = environment.umask {
        // On the first line, so that the numbers in the shell's complaints stay those of the command.
        line = format!("umask {umask:04o}; {line}");
    }
    let environment = environment.clone();
    let env = environment.child_env(&command.variables);
    // Looking for the shell, starting it and telling the guard all block.
    let started = tokio::task::spawn_blocking(move || {
        let cwd = &environment.cwd;
        match cwd.metadata() {
            Ok(meta) if !meta.is_dir() => {
                return Err(ToolError::refused(format!(
                    "Working directory is not a directory: {}",
                    cwd.display()
                )));
            }
            Ok(_) => {}
            Err(_) => return Err(ToolError::NoWorkingDirectory(cwd.clone())),
        }
        let shell = find_shell(&environment)?;
        let mut command = Command::new(&shell);
        command.arg("-c").arg(line).current_dir(cwd).env_clear().envs(env.iter());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        process::own_group(&mut command);
        environment.children.prepare();
        let child = command.spawn().map_err(|source| ToolError::Spawn { shell, source })?;
        let id = child.id().expect("a child that nobody waited for has an id");
        Ok((child, environment.children.register(id)))
    });
    started.await.map_err(|error| internal(&error))?
}

fn find_shell(environment: &ToolEnvironment) -> Result<PathBuf, ToolError> {
    if let Some(custom) = &environment.shell_path {
        let path = crate::paths::resolve(&custom.to_string_lossy(), environment);
        return if path.exists() { Ok(path) } else { Err(ToolError::NoCustomShell(custom.clone())) };
    }
    let found = process::shells(&environment.env).into_iter().find(|shell| process::is_executable(shell));
    found.ok_or_else(|| {
        ToolError::refused("no shell found: install bash or name one in the shellPath setting")
    })
}

/// A command between its start and its outcome.
struct Run<'a> {
    child: Child,
    group: ChildGroup,
    pipes: Pipes,
    output: Output,
    follower: Follower<'a>,
    /// A delta that waits for room, and since when. While there is one, the child is not read.
    unsent: Option<(Delta, Instant)>,
    status: Option<ExitStatus>,
    stopping: Option<Stopping>,
    /// The shell has ended (or the group is gone) and only the rest of the output is waited for.
    drain: Option<Drain>,
    snapshot_due: Option<Instant>,
    last_snapshot: Instant,
}

struct Stopping {
    why: Exit,
    force_at: Instant,
    forced: bool,
    look_at: Instant,
}

struct Drain {
    idle: Instant,
    cap: Instant,
}

impl Run<'_> {
    /// Select, then decide, then act: each arm takes one fact.
    async fn until_over(&mut self, cancel: &CancellationToken, timeout: Option<Instant>) -> Exit {
        loop {
            if let Some(exit) = self.outcome() {
                return exit;
            }
            let stoppable = self.stopping.is_none() && self.status.is_none();
            let never = Instant::now() + Duration::from_secs(3600);
            let reading = self.unsent.is_none() && self.pipes.is_open();
            // A slow follower stretches the wait for the rest of the output, but not that of a command it cancelled.
            let patient = self.unsent.is_some() && self.stopping.is_none();
            let drain_cap = self.drain.as_ref().map(|drain| drain.cap).filter(|_| !patient);
            let drain_idle = self.drain.as_ref().map(|drain| drain.idle).filter(|_| self.unsent.is_none());
            let look_at =
                self.stopping.as_ref().filter(|_| self.drain.is_none()).map(|stopping| stopping.look_at);
            // Reading stands before the idle timer: output that is there is taken before silence is declared.
            tokio::select! {
                biased;
                () = cancel.cancelled(), if stoppable => self.stop(Exit::Cancelled).await,
                () = cancel.cancelled(), if self.drain.is_some() && self.stopping.is_none() => {
                    // The command has ended by itself; the caller does not want to wait for its background.
                    return self.own_exit();
                }
                () = sleep_until(timeout.unwrap_or(never)), if stoppable && timeout.is_some() => {
                    self.stop(Exit::TimedOut).await;
                }
                () = sleep_until(look_at.unwrap_or(never)), if look_at.is_some() => self.look().await,
                () = sleep_until(drain_cap.unwrap_or(never)), if drain_cap.is_some() => return self.own_exit(),
                () = sleep_until(self.snapshot_due.unwrap_or(never)), if self.snapshot_due.is_some() => self.show(),
                status = self.child.wait(), if self.status.is_none() => self.ended(status),
                sent = reserve(&self.follower), if self.unsent.is_some() => self.sent(sent),
                piece = self.pipes.next(), if reading => self.take(piece).await,
                () = sleep_until(drain_idle.unwrap_or(never)), if drain_idle.is_some() => return self.own_exit(),
            }
        }
    }

    /// The outcome, once nothing is left to wait for.
    fn outcome(&self) -> Option<Exit> {
        (self.drain.is_some() && self.unsent.is_none() && !self.pipes.is_open()).then(|| self.own_exit())
    }

    /// What the outcome is if nothing more is waited for.
    fn own_exit(&self) -> Exit {
        match (&self.stopping, self.status) {
            (Some(stopping), _) => stopping.why,
            (None, Some(status)) => process::exit_of(status),
            (None, None) => Exit::Cancelled,
        }
    }

    fn ended(&mut self, status: std::io::Result<ExitStatus>) {
        match status {
            Ok(status) => self.status = Some(status),
            Err(error) => {
                // Somebody else waited for our child; what it did is unknown, so it is not a success.
                tracing::error!(%error, "cannot wait for a command");
                self.status = Some(ExitStatus::default());
                self.stopping.get_or_insert(Stopping::new(Exit::Exited(-1)));
            }
        }
        if self.stopping.is_none() {
            let now = Instant::now();
            self.drain = Some(Drain { idle: now + DRAIN_IDLE, cap: now + DRAIN_CAP });
        }
    }

    async fn stop(&mut self, why: Exit) {
        self.stopping = Some(Stopping::new(why));
        self.signal(Ending::Ask).await;
    }

    async fn signal(&mut self, how: Ending) {
        let group = self.group.group();
        if let Err(error) = tokio::task::spawn_blocking(move || group.end(how)).await {
            tracing::error!(%error, "signalling a command failed");
        }
    }

    /// Looks whether the group that was asked to end is gone; forces it when its time is over.
    async fn look(&mut self) {
        let group = self.group.group();
        let shell_ended = self.status.is_some();
        let gone =
            shell_ended && !tokio::task::spawn_blocking(move || group.is_alive()).await.unwrap_or(false);
        let Some(stopping) = &mut self.stopping else { return };
        let now = Instant::now();
        stopping.look_at = now + GONE_POLL;
        if gone || (stopping.forced && now >= stopping.force_at + FORCED_GRACE) {
            self.drain = Some(Drain { idle: now + DRAIN_IDLE, cap: now + CANCELLED_DRAIN_CAP });
        } else if !stopping.forced && now >= stopping.force_at {
            stopping.forced = true;
            self.signal(Ending::Force).await;
        }
    }

    async fn take(&mut self, piece: Piece) {
        let (channel, text) = match piece {
            Piece::Bytes(channel, length) => {
                (channel, self.output.push(channel, self.pipes.bytes(length)).await)
            }
            Piece::End(channel) => (channel, self.output.end(channel)),
        };
        let now = Instant::now();
        if let Some(drain) = &mut self.drain {
            drain.idle = now + DRAIN_IDLE;
        }
        self.follow(channel, text);
    }

    fn follow(&mut self, channel: Channel, text: String) {
        if text.is_empty() {
            return;
        }
        let now = Instant::now();
        match &self.follower {
            Follower::Nobody => {}
            Follower::Deltas(sender) => match sender.try_send(Delta { channel, text }) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(delta)) => self.unsent = Some((delta, now)),
                Err(mpsc::error::TrySendError::Closed(_)) => self.follower = Follower::Nobody,
            },
            Follower::Snapshots(_) => {
                self.snapshot_due.get_or_insert(now.max(self.last_snapshot + SNAPSHOT_INTERVAL));
            }
        }
    }

    /// There is room for the delta that waits, or nobody takes deltas any more.
    fn sent(&mut self, open: bool) {
        let Some((delta, since)) = self.unsent.take() else { return };
        if open {
            self.follow(delta.channel, delta.text);
            if let Some((_, again)) = &mut self.unsent {
                *again = since;
                return;
            }
        } else {
            self.follower = Follower::Nobody;
        }
        // While the follower was slow nothing was read, so the time does not count as silence of the child.
        if let Some(drain) = &mut self.drain {
            let now = Instant::now();
            drain.idle = now + DRAIN_IDLE;
            drain.cap += now - since;
        }
    }

    /// Gives the last delta to a follower that still takes it. A cancelled command waits for nobody.
    async fn deliver_rest(&mut self, cancel: &CancellationToken) {
        let Some((delta, _)) = self.unsent.take() else { return };
        if let Follower::Deltas(sender) = &self.follower {
            if cancel.is_cancelled() {
                let _ = tokio::time::timeout(FORCED_GRACE, sender.send(delta)).await;
            } else {
                let _ = sender.send(delta).await;
            }
        }
    }

    fn show(&mut self) {
        self.snapshot_due = None;
        self.last_snapshot = Instant::now();
        if let Follower::Snapshots(show) = &self.follower {
            show(Snapshot { output: self.output.snapshot(), full_output_path: self.output.full_path() });
        }
    }
}

impl Stopping {
    fn new(why: Exit) -> Stopping {
        let now = Instant::now();
        Stopping { why, force_at: now + KILL_GRACE, forced: false, look_at: now + GONE_POLL }
    }
}

/// Waits for room; false when nobody takes deltas any more.
async fn reserve(follower: &Follower<'_>) -> bool {
    match follower {
        Follower::Deltas(sender) => sender.reserve().await.is_ok(),
        Follower::Nobody | Follower::Snapshots(_) => false,
    }
}
