//! Elsewhere: what a window notices of another session that has much to do.

use std::time::{Duration, Instant};

use super::{Bench, big};
use crate::Failure;
use crate::home::Home;
use crate::model::{self, Model};
use crate::proc::Load;
use crate::table::{Goal, Samples};
use crate::window::Window;

/// Entries of about 600 bytes that make 100 MB.
const ENTRIES: usize = 165_000;

/// Pause between two questions: a person's editor asks more seldom.
const PAUSE: Duration = Duration::from_millis(1);

/// What the slowest of a hundred questions may take.
const P99_MS: f64 = 20.0;

/// Deltas for somebody who does not read: together more than an outbox and the pipes behind it.
const UNREAD_DELTAS: usize = 900_000;

/// A line as long as a client may ever send: nothing limits it.
const LINE_BYTES: usize = 50 << 20;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let server = Model::start()?;
    let home = Home::with_model(bench.programs, server.url())?;
    let seconds = bench.options.pick(8, 2);
    add_slow_provider(&home, server.url(), seconds)?;
    let (mut window, _) = home.window(&[])?.ready()?;
    for _ in 0..200 {
        window.get_state()?;
    }
    let (load, quiet) = (Load::begin(), asked(&mut window, |elapsed| elapsed > Duration::from_secs(2))?);
    add(bench, "nothing happens", &quiet, load.cores());

    let entries = bench.options.pick(ENTRIES, ENTRIES / 10);
    let file = big::session_file(&home, 0, entries)?;
    let megabytes = std::fs::metadata(&file)?.len() / 1_000_000;
    let path = file.to_str().ok_or("a temporary path is UTF-8")?.to_owned();
    let load = Load::begin();
    let loading = while_another(&mut window, || {
        let (mut other, _) = home.join(&path)?.ready()?;
        other.send(b"{\"id\":\"m\",\"type\":\"get_messages\"}\n")?;
        other.next()?;
        other.close()
    })?;
    add(bench, &format!("a file of {megabytes} MB is opened and sent"), &loading, load.cores());

    let mut stuck = home.window(&[])?;
    stuck.prompt(&model::prompt(UNREAD_DELTAS, Duration::ZERO, 0))?;
    let load = Load::begin();
    let unread = asked(&mut window, |elapsed| elapsed > Duration::from_secs(seconds))?;
    add(bench, "another streams to nobody", &unread, load.cores());
    drop(stuck);

    let line = format!("{{\"id\":\"l\",\"pad\":\"{}\",\"type\":\"get_state\"}}\n", "x".repeat(LINE_BYTES));
    let load = Load::begin();
    let (mut other, _) = home.window(&[])?.ready()?;
    let long = while_another(&mut window, || {
        for _ in 0..3 {
            other.send(line.as_bytes())?;
            other.next()?;
        }
        other.close()
    })?;
    add(bench, &format!("another sends lines of {} MB", LINE_BYTES >> 20), &long, load.cores());

    let load = Load::begin();
    let slow = while_another(&mut window, || {
        let slow = home.command(&["--mode", "rpc", "--provider", "slow", "--model", "slow-model"]);
        let (mut other, _) = Window::open(slow)?.ready()?;
        other.prompt(&model::prompt(1, Duration::ZERO, 0))?;
        other.settle()?;
        other.close()
    })?;
    add(bench, &format!("another's key comes from a command of {seconds} s"), &slow, load.cores());
    window.close()
}

/// Adds a provider whose key a command prints after a while, as a password manager's may.
fn add_slow_provider(home: &Home, url: &str, seconds: u64) -> Result<(), Failure> {
    let path = home.agent_dir().join("models.json");
    let mut models: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let mut slow = models["providers"]["bench"].clone();
    slow["baseUrl"] = url.into();
    slow["apiKey"] = format!("!sleep {seconds}; echo bench-key").into();
    slow["models"][0]["id"] = "slow-model".into();
    models["providers"]["slow"] = slow;
    Ok(std::fs::write(&path, models.to_string())?)
}

/// What the window's questions take while `work` is done in another.
fn while_another(
    window: &mut Window,
    work: impl FnOnce() -> Result<(), Failure> + Send,
) -> Result<Samples, Failure> {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        let samples = asked(window, |_| working.is_finished())?;
        working.join().map_err(|_| "the other window panicked")??;
        Ok(samples)
    })
}

fn add(bench: &mut Bench<'_>, what: &str, samples: &Samples, cores: f64) {
    bench.table.add("elsewhere", &format!("get_state while {what}"), "ms", samples, Goal::None, cores);
    let p99 = Samples::new([samples.at(0.99)]);
    bench.table.add("elsewhere", "of that p99", "ms", &p99, Goal::AtMost(P99_MS), cores);
}

/// Asks again and again until told to stop.
fn asked(window: &mut Window, stop: impl Fn(Duration) -> bool) -> Result<Samples, Failure> {
    let begun = Instant::now();
    let mut took = Vec::new();
    while !stop(begun.elapsed()) {
        let asked = Instant::now();
        window.get_state()?;
        took.push(asked.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(Samples::millis(&took))
}
