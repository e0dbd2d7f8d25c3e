//! Soak: sessions come and go for a long time, and the daemon is to stay as it was.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::arguments::SoakOptions;
use crate::home::{Home, Programs};
use crate::model::{self, Model};
use crate::proc;

/// Windows open at once.
const WORKERS: usize = 8;

/// Deltas of each run.
const DELTAS: usize = 50;

/// How often a line is printed.
const PRINT_EVERY: Duration = Duration::from_secs(30);

/// How long an idle session stays in memory here: all of a round are gone before the daemon is looked at.
const UNLOAD_AFTER: &str = "1s";

/// Longest wait for that.
const UNLOAD_DEADLINE: Duration = Duration::from_secs(30);

/// Threads of a daemon whose pool is empty: main, two workers, the log's writer.
const BARE_THREADS: usize = 4;

/// Longest wait for that before a size is judged: threads of a pool that have nothing to do leave after ten seconds.
const POOL_DEADLINE: Duration = Duration::from_secs(60);

/// Rounds before the first that counts: allocator, thread pool and HTTP client have reached their size by then.
const WARM_UP_ROUNDS: usize = 2;

/// Growth of resident memory that still counts as flat: an eighth, and 4 MiB for what an allocator keeps.
const RSS_PART: u64 = 8;
const RSS_SLACK_KIB: u64 = 4 * 1024;

/// The same for descriptors and threads: kept connections and a pool may differ by a few.
const COUNT_SLACK: usize = 12;

/// The daemon with no session in memory.
#[derive(Clone, Copy)]
struct Size {
    rss_kib: u64,
    descriptors: usize,
    threads: usize,
}

impl Size {
    fn of(pid: u32) -> Size {
        Size { rss_kib: proc::rss_kib(pid), descriptors: proc::descriptors(pid), threads: proc::threads(pid) }
    }

    /// Which bounds `self` breaks, as a later size than `first`.
    fn growth(self, first: Size) -> Vec<String> {
        let mut out = Vec::new();
        let limit = first.rss_kib + first.rss_kib / RSS_PART + RSS_SLACK_KIB;
        if self.rss_kib > limit {
            out.push(format!("RSS {} KiB is above {limit} KiB", self.rss_kib));
        }
        for (name, now, then) in
            [("descriptors", self.descriptors, first.descriptors), ("threads", self.threads, first.threads)]
        {
            if now > then + COUNT_SLACK {
                out.push(format!("{now} {name} are more than {}", then + COUNT_SLACK));
            }
        }
        out
    }
}

/// Runs it. `Ok(false)`: the daemon grew.
pub(crate) fn run(options: &SoakOptions) -> Result<bool, Failure> {
    let programs = Programs::find()?;
    let server = Model::start()?;
    let home = Home::with_model(&programs, server.url())?;
    let settings = serde_json::json!({"daemon": {"unloadAfter": UNLOAD_AFTER}});
    std::fs::write(home.agent_dir().join("settings.json"), settings.to_string())?;
    // One window stays: the daemon must not leave between rounds.
    let (watcher, _) = home.window(&["--no-session"])?.ready()?;
    let daemon = home.daemon()?;
    say("seconds  round  sessions  live  RSS KiB  descriptors  threads  CPU s")?;
    let (begun, mut printed, mut round, mut served) = (Instant::now(), None::<Instant>, 0, 0);
    let mut first: Option<Size> = None;
    while begun.elapsed() < options.time || round <= WARM_UP_ROUNDS {
        // Half way into a round many sessions are live: that is printed, and not judged.
        let busy = serve_round(&home, options.sessions)?;
        round += 1;
        served += options.sessions;
        for _ in 0..2 * options.sessions {
            server.next_served()?;
        }
        let live = wait_until_unloaded(&home)?;
        if round == WARM_UP_ROUNDS {
            wait_for_the_pool(daemon)?;
            first = Some(Size::of(daemon));
        }
        let now = Size::of(daemon);
        if round <= WARM_UP_ROUNDS || printed.is_none_or(|then| then.elapsed() >= PRINT_EVERY) {
            printed = Some(Instant::now());
            line(begun, round, served, busy.0, busy.1, daemon)?;
            line(begun, round, served, live, now, daemon)?;
        }
        remove_sessions(&home)?;
    }
    wait_for_the_pool(daemon)?;
    let last = Size::of(daemon);
    line(begun, round, served, live(&home)?, last, daemon)?;
    watcher.close()?;
    let first = first.ok_or("no round was run")?;
    let growth = last.growth(first);
    say(&format!(
        "after {WARM_UP_ROUNDS} rounds: {} KiB, {} descriptors, {} threads; after {round}: {} KiB, {}, {}",
        first.rss_kib, first.descriptors, first.threads, last.rss_kib, last.descriptors, last.threads
    ))?;
    if growth.is_empty() {
        say("flat")?;
    } else {
        say(&format!("NOT flat: {}", growth.join("; ")))?;
    }
    Ok(growth.is_empty())
}

fn say(text: &str) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn line(
    begun: Instant,
    round: usize,
    served: usize,
    live: usize,
    size: Size,
    daemon: u32,
) -> Result<(), Failure> {
    say(&format!(
        "{:7.0}  {round:5}  {served:8}  {live:4}  {:7}  {:11}  {:7}  {:5.1}",
        begun.elapsed().as_secs_f64(),
        size.rss_kib,
        size.descriptors,
        size.threads,
        proc::cpu(daemon).as_secs_f64()
    ))
}

/// Opens every session of a round, prompts, closes it; then each file once more. Gives what is live after the last.
fn serve_round(home: &Home, sessions: usize) -> Result<(usize, Size), Failure> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < sessions {
                    if let Err(error) = serve(home) {
                        next.store(sessions, Ordering::Relaxed);
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(format!("{error}\n{}", home.log()).into()),
        None => Ok((live(home)?, Size::of(home.daemon()?))),
    }
}

/// The life of a session: a window, a run, closed; another window on its file, a run, closed.
fn serve(home: &Home) -> Result<(), Failure> {
    let (mut window, _) = home.window(&[])?.ready()?;
    window.prompt(&model::prompt(DELTAS, Duration::ZERO, 0))?;
    window.settle()?;
    let file = window.session_file()?;
    window.close()?;
    let (mut window, _) = home.join(&file)?.ready()?;
    window.prompt(&model::prompt(DELTAS, Duration::ZERO, 0))?;
    window.settle()?;
    window.close()
}

fn live(home: &Home) -> Result<usize, Failure> {
    Ok(home.report()?["sessions"].as_array().map_or(0, Vec::len))
}

/// Only the watcher's session is left.
fn wait_until_unloaded(home: &Home) -> Result<usize, Failure> {
    let few = || match live(home) {
        Ok(live) if live > 1 => None,
        other => Some(other),
    };
    atomic_tests::within(UNLOAD_DEADLINE, few).unwrap_or_else(|| {
        let seconds = UNLOAD_DEADLINE.as_secs();
        Err(format!("{} sessions are still in memory after {seconds} s", live(home)?).into())
    })
}

/// The pool's idle threads have left.
fn wait_for_the_pool(daemon: u32) -> Result<(), Failure> {
    let left = || (proc::threads(daemon) <= BARE_THREADS).then_some(());
    atomic_tests::within(POOL_DEADLINE, left).ok_or_else(|| "the pool's idle threads do not leave".into())
}

/// Listing a directory of thousands of files is not what is measured here.
fn remove_sessions(home: &Home) -> Result<(), Failure> {
    let dirs: Vec<PathBuf> = match std::fs::read_dir(home.agent_dir().join("sessions")) {
        Ok(dirs) => dirs.flatten().map(|dir| dir.path()).collect(),
        Err(_) => return Ok(()),
    };
    for dir in dirs {
        for file in std::fs::read_dir(dir)?.flatten() {
            std::fs::remove_file(file.path())?;
        }
    }
    Ok(())
}
