//! What /proc says about a process. A process that has gone counts as nothing.

use std::fs;
use std::time::Duration;

/// Proportional set size in KiB: shared pages are divided among those that share them.
pub(crate) fn pss_kib(pid: u32) -> u64 {
    field_kib(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Resident set size in KiB.
pub(crate) fn rss_kib(pid: u32) -> u64 {
    field_kib(&format!("/proc/{pid}/status"), "VmRSS:")
}

fn field_kib(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Open file descriptors.
pub(crate) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Threads.
pub(crate) fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Processor time of all threads that live, to the nanosecond; where the kernel does not say that, user and system time
/// of the process in hundredths of a second.
pub(crate) fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let on_cpu = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    match on_cpu.sum() {
        0 => ticks(pid).unwrap_or_default(),
        nanoseconds => Duration::from_nanos(nanoseconds),
    }
}

fn ticks(pid: u32) -> Option<Duration> {
    /// USER_HZ, the same on all common machines.
    const PER_SECOND: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything, utime and stime are the 12th and 13th fields.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Duration::from_millis((user + system) * 1000 / PER_SECOND))
}

/// Processor time of several processes together.
pub(crate) fn cpu_of(pids: &[u32]) -> Duration {
    pids.iter().map(|pid| cpu(*pid)).sum()
}

/// Processor time of the whole machine that was not idle, in seconds since boot.
fn busy_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal
    let idle = numbers.get(3).unwrap_or(&0.0) + numbers.get(4).unwrap_or(&0.0);
    (numbers.iter().take(8).sum::<f64>() - idle) / 100.0
}

/// How busy the machine was over a stretch of time, in cores: what one measurement is worth on a shared machine.
pub(crate) struct Load {
    busy: f64,
    since: std::time::Instant,
}

impl Load {
    pub(crate) fn begin() -> Load {
        Load { busy: busy_seconds(), since: std::time::Instant::now() }
    }

    pub(crate) fn cores(&self) -> f64 {
        (busy_seconds() - self.busy) / self.since.elapsed().as_secs_f64().max(0.01)
    }
}

/// Waits until `due`: the schedule of a load, or the length of a measurement. What waits for something to have happened
/// waits for that instead ([`atomic_tests::within`]).
pub(crate) fn until(due: std::time::Instant) {
    while let Some(left) =
        due.checked_duration_since(std::time::Instant::now()).filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

/// Waits until these processes have used no processor time for fifty looks in a row: what runs after an answer has run.
/// False when they do not come to rest.
pub(crate) fn at_rest(pids: &[u32], deadline: Duration) -> bool {
    let (mut last, mut quiet) = (cpu_of(pids), 0);
    let look = || {
        let now = cpu_of(pids);
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        (quiet >= 50).then_some(())
    };
    atomic_tests::within(deadline, look).is_some()
}
