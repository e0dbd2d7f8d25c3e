//! Providers: what a delta costs and how soon the first one is there, by each API.

use std::time::{Duration, Instant};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::model::{self, Model};
use crate::proc::{self, Load};
use crate::table::{Goal, Samples};
use crate::window::Window;
use crate::wire::APIS;

/// Between prompts, so that each finds everybody asleep as a person's prompt does.
const APART: Duration = Duration::from_millis(20);

/// From the first delta to the second and last one: the answer must not be over, and stored, before the first is read.
const INTERVAL: Duration = Duration::from_millis(5);

/// Most microseconds for a delta of any API, daemon and shim.
const PER_DELTA: f64 = 5.0;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let server = Model::start()?;
    let home = Home::with_model(bench.programs, server.url())?;
    let (deltas, turns) = bench.options.pick((20_000, 7), (2_000, 2));
    for (api, ..) in APIS {
        let (mut window, _) = home.window_by(api)?.ready()?;
        // The first request builds the HTTP client and connects.
        turn(&home, &mut window, &server, 10).map_err(|error| format!("{api}: {error}"))?;
        let load = Load::begin();
        let mut each = Vec::new();
        for _ in 0..turns {
            each.push(turn(&home, &mut window, &server, deltas)?.as_secs_f64() * 1e6 / deltas as f64);
        }
        let cores = load.cores();
        let measure = format!("{api}: processor for a delta");
        bench.table.add("providers", &measure, "µs", &Samples::new(each), Goal::AtMost(PER_DELTA), cores);

        let (mut window, _) = home.window_by(api)?.ready()?;
        turn(&home, &mut window, &server, 10)?;
        let load = Load::begin();
        let mut first = Vec::new();
        for _ in 0..bench.options.pick(40, 5) {
            proc::until(Instant::now() + APART);
            window.prompt(&model::prompt(2, INTERVAL, 0))?;
            window.until("\"text_delta\"")?;
            let seen = Instant::now();
            window.settle()?;
            let written = server.next_served()?.deltas.first().copied().ok_or("no delta was written")?;
            first.push(seen.duration_since(written));
        }
        let measure = format!("{api}: first byte of the answer → first delta");
        bench.table.add(
            "providers",
            &measure,
            "ms",
            &Samples::millis(&first),
            Goal::AtMost(1.0),
            load.cores(),
        );
        window.close()?;
    }
    Ok(())
}

/// Processor time of daemon and shim for a turn of `count` deltas.
fn turn(home: &Home, window: &mut Window, server: &Model, count: usize) -> Result<Duration, Failure> {
    let pids = [home.daemon()?, window.pid()];
    let before = proc::cpu_of(&pids);
    window.prompt(&model::prompt(count, Duration::ZERO, 0))?;
    let seen = window.settle().map_err(|error| format!("{error}\n{}", home.log()))?;
    let took = proc::cpu_of(&pids) - before;
    server.next_served()?;
    if seen != count {
        return Err(format!("{count} deltas were sent and {seen} arrived").into());
    }
    Ok(took)
}
