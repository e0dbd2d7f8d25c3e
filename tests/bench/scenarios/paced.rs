//! Paced: several sessions that stream at the speed of a model.

use std::time::{Duration, Instant};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::model::{self, Model};
use crate::proc::{self, Load};
use crate::table::{Goal, Samples};
use crate::window::Window;

const SESSIONS: usize = 10;

/// 50 deltas a second.
const INTERVAL: Duration = Duration::from_millis(20);

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let count = bench.options.pick(150, 50);
    let server = Model::start()?;
    let home = Home::with_model(bench.programs, server.url())?;
    let mut windows = Vec::new();
    for _ in 0..SESSIONS {
        windows.push(home.window(&[])?.ready()?.0);
    }
    let mut pids: Vec<u32> = windows.iter().map(Window::pid).collect();
    pids.push(home.daemon()?);
    // The first request builds the HTTP client.
    windows[0].prompt(&model::prompt(1, Duration::ZERO, 0))?;
    windows[0].settle()?;
    server.next_served()?;

    let load = Load::begin();
    let (cpu, begun) = (proc::cpu_of(&pids), Instant::now());
    let readers: Vec<_> = windows
        .into_iter()
        .enumerate()
        .map(|(tag, window)| {
            // Apart, as people are.
            proc::until(Instant::now() + INTERVAL / SESSIONS as u32);
            std::thread::spawn(move || arrivals(window, count, tag))
        })
        .collect();
    let mut arrived = Vec::new();
    let mut open = Vec::new();
    for reader in readers {
        let (window, times) = reader.join().map_err(|_| "a reader panicked")??;
        arrived.push(times);
        open.push(window);
    }
    let (cpu, wall) = (proc::cpu_of(&pids) - cpu, begun.elapsed());
    let cores = load.cores();
    let mut delays = Vec::new();
    for _ in 0..SESSIONS {
        let served = server.next_served()?;
        let times = &arrived[served.tag];
        if times.len() != served.deltas.len() {
            return Err(
                format!("{} deltas were sent and {} arrived", served.deltas.len(), times.len()).into()
            );
        }
        delays.extend(times.iter().zip(&served.deltas).map(|(read, sent)| read.duration_since(*sent)));
    }
    let mut add = |measure: &str, unit, samples, goal| {
        bench.table.add("paced", measure, unit, &samples, goal, cores);
    };
    add("delta: model server → client", "ms", Samples::millis(&delays), Goal::None);
    let each = cpu.as_secs_f64() * 1e6 / delays.len() as f64;
    add("processor per delta, daemon and shims", "µs", Samples::new([each]), Goal::None);
    let per_ten = cpu.as_secs_f64() / wall.as_secs_f64() * 10.0;
    add("processor in 10 s of 10 × 50 deltas/s", "s", Samples::new([per_ten]), Goal::AtMost(1.0));
    for window in open {
        window.close()?;
    }
    Ok(())
}

/// When each delta of a run came.
fn arrivals(mut window: Window, count: usize, tag: usize) -> Result<(Window, Vec<Instant>), Failure> {
    window.prompt(&model::prompt(count, INTERVAL, tag))?;
    let mut times = Vec::with_capacity(count);
    loop {
        let line = std::str::from_utf8(window.next()?)?;
        if line.contains("\"text_delta\"") {
            times.push(Instant::now());
        } else if line.contains("\"agent_settled\"") {
            return Ok((window, times));
        }
    }
}
