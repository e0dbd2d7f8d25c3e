//! Round trips: `get_state` against a daemon that only echoes, behind the same shim, in turns.

use std::time::{Duration, Instant};

use super::Bench;
use crate::home::Home;
use crate::proc::Load;
use crate::table::{Goal, Samples};
use crate::window::{GET_STATE, Window};
use crate::{Failure, echo};

/// Round trips before the other one has its turn: drift of the machine hits both alike.
const TURN: usize = 250;

/// Round trips before any counts.
const WARM_UP: usize = 200;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let count = bench.options.pick(5000, 500);
    let ours = Home::new(bench.programs)?;
    let (mut window, _) = ours.demo()?.ready()?;
    let theirs = Home::new(bench.programs)?;
    echo::start(&theirs)?;
    let mut echoed = theirs.demo()?;
    for _ in 0..WARM_UP {
        round_trip(&mut window)?;
        round_trip(&mut echoed)?;
    }
    let load = Load::begin();
    let (mut real, mut bare) = (Vec::new(), Vec::new());
    while real.len() < count {
        for _ in 0..TURN {
            real.push(round_trip(&mut window)?);
        }
        for _ in 0..TURN {
            bare.push(round_trip(&mut echoed)?);
        }
    }
    let (real, bare) = (Samples::millis(&real), Samples::millis(&bare));
    let cores = load.cores();
    bench.table.add("round-trips", "get_state", "ms", &real, Goal::None, cores);
    bench.table.add("round-trips", "bare echo behind the same shim", "ms", &bare, Goal::None, cores);
    let ratio = Samples::new([real.median() / bare.median()]);
    bench.table.add("round-trips", "get_state / echo, medians", "x", &ratio, Goal::AtMost(1.5), cores);

    let load = Load::begin();
    let begun = Instant::now();
    let many = GET_STATE.repeat(count);
    // More than the pipes hold: somebody has to read while somebody writes.
    let answers = window.send_and_count(many, "\"command\":\"get_state\"", count)?;
    let each = begun.elapsed().as_secs_f64() * 1e6 / answers as f64;
    bench.table.add(
        "round-trips",
        "get_state, all sent at once",
        "µs",
        &Samples::new([each]),
        Goal::None,
        load.cores(),
    );
    window.close()?;
    echoed.close()
}

fn round_trip(window: &mut Window) -> Result<Duration, Failure> {
    let begun = Instant::now();
    window.send(GET_STATE)?;
    window.next()?;
    Ok(begun.elapsed())
}
