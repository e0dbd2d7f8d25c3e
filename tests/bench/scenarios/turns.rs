//! Turns: thousands of them, each with calls that end in any order, before a client that reads slowly. None may get stuck.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::model::{self, Model};
use crate::proc::Load;
use crate::table::{Goal, Samples};

/// Turns of one session: what each request carries grows with them.
const TURNS: usize = 100;

/// Calls of each turn.
const CALLS: usize = 3;

/// The client rests for so long after so many records.
const REST: Duration = Duration::from_millis(5);
const RECORDS: usize = 100;

/// A turn that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(60);

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let sessions = bench.options.pick(50, 2);
    let server = Model::start()?;
    let home = Home::with_model(bench.programs, server.url())?;
    let ended = Arc::new(AtomicUsize::new(0));
    watch(Arc::downgrade(&ended));
    let load = Load::begin();
    let mut took = Vec::new();
    for session in 0..sessions {
        let (mut window, _) = home.window(&[])?.ready()?;
        window.prompt(&model::turns(TURNS, CALLS))?;
        let (mut turns, mut calls, mut records, mut last) = (0, 0, 0, Instant::now());
        loop {
            let record = window.next()?;
            let head = String::from_utf8_lossy(&record[..record.len().min(60)]);
            if head.contains("\"tool_execution_end\"") {
                calls += 1;
            } else if head.contains("\"turn_end\"") {
                turns += 1;
                took.push(last.elapsed());
                last = Instant::now();
                ended.fetch_add(1, Ordering::Relaxed);
            } else if head.contains("\"agent_settled\"") {
                break;
            }
            records += 1;
            if records % RECORDS == 0 {
                std::thread::sleep(REST);
            }
        }
        if (turns, calls) != (TURNS + 1, TURNS * CALLS) {
            return Err(format!("session {session}: {turns} turns and {calls} calls ended").into());
        }
        window.close()?;
    }
    let cores = load.cores();
    let measure = format!("{} turns of {CALLS} calls: each", sessions * TURNS);
    bench.table.add("turns", &measure, "ms", &Samples::millis(&took), Goal::None, cores);
    Ok(())
}

/// Ends the program when no turn ends for [`STUCK`], as long as somebody counts them.
fn watch(ended: Weak<AtomicUsize>) {
    std::thread::spawn(move || {
        let mut before = usize::MAX;
        while let Some(now) = ended.upgrade().map(|ended| ended.load(Ordering::Relaxed)) {
            if now == before {
                eprintln!("turns: stuck after {now} turns: none has ended for {} s", STUCK.as_secs());
                std::process::exit(1);
            }
            before = now;
            std::thread::sleep(STUCK);
        }
    });
}
