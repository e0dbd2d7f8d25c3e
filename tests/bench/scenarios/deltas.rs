//! Deltas: one turn of many, as fast as they go through.

use std::time::{Duration, Instant};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::model::{self, Model};
use crate::proc::{self, Load};
use crate::table::{Goal, Samples};

/// What one turn took.
struct Turn {
    wall: Duration,
    cpu: Duration,
    bytes: u64,
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let (small, large) = bench.options.pick((5_000, 20_000), (1_000, 4_000));
    let server = Model::start()?;
    let home = Home::with_model(bench.programs, server.url())?;
    // The first run builds the HTTP client.
    turn(&home, &server, 10)?;
    let load = Load::begin();
    let (mut smalls, mut larges) = (Vec::new(), Vec::new());
    for _ in 0..bench.options.pick(7, 2) {
        smalls.push(turn(&home, &server, small)?);
        larges.push(turn(&home, &server, large)?);
    }
    let cores = load.cores();
    let wall = |turns: &[Turn]| Samples::new(turns.iter().map(|turn| turn.wall.as_secs_f64() * 1e3));
    let cpu = |turns: &[Turn]| Samples::new(turns.iter().map(|turn| turn.cpu.as_secs_f64()));
    let mut add = |measure: String, unit, samples: Samples, goal| {
        bench.table.add("deltas", &measure, unit, &samples, goal, cores);
    };
    add(format!("{large} deltas: prompt → settled"), "ms", wall(&larges), Goal::None);
    add(
        format!("{large} deltas: processor, daemon and shim"),
        "s",
        cpu(&larges),
        Goal::AtMost(0.07 * large as f64 / 20_000.0),
    );
    let bytes = Samples::new(larges.iter().map(|turn| turn.bytes as f64 / large as f64));
    add("bytes on stdout for each".to_owned(), "B", bytes, Goal::None);
    let per_delta = |samples: Samples, count: usize| samples.median() / count as f64;
    let linear = |of: fn(&[Turn]) -> Samples| per_delta(of(&larges), large) / per_delta(of(&smalls), small);
    let growth = linear(|turns| Samples::new(turns.iter().map(|turn| turn.cpu.as_secs_f64())));
    add(format!("processor per delta, {large} / {small}"), "x", Samples::new([growth]), Goal::AtMost(1.3));
    let growth = linear(|turns| Samples::new(turns.iter().map(|turn| turn.wall.as_secs_f64())));
    add(format!("time per delta, {large} / {small}"), "x", Samples::new([growth]), Goal::None);
    Ok(())
}

/// A turn of a fresh session.
fn turn(home: &Home, server: &Model, count: usize) -> Result<Turn, Failure> {
    let (mut window, _) = home.window(&[])?.ready()?;
    let pids = [home.daemon()?, window.pid()];
    let (bytes, cpu, begun) = (window.received, proc::cpu_of(&pids), Instant::now());
    window.prompt(&model::prompt(count, Duration::ZERO, 0))?;
    let seen = window.settle().map_err(|error| format!("{error}\n{}", home.log()))?;
    let turn = Turn { wall: begun.elapsed(), cpu: proc::cpu_of(&pids) - cpu, bytes: window.received - bytes };
    server.next_served()?;
    if seen != count {
        return Err(format!("{count} deltas were sent and {seen} arrived").into());
    }
    window.close()?;
    Ok(turn)
}
