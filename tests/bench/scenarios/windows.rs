//! Windows: how long until one answers, and what an idle one costs.

use std::process::Command;
use std::time::{Duration, Instant};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::proc::{self, Load};
use crate::table::{Goal, Samples};
use crate::window::Window;

/// Idle windows at once.
const WINDOWS: usize = 20;

/// Longest that windows may take to come to rest before their memory is looked at.
const REST_DEADLINE: Duration = Duration::from_secs(10);

/// How long idle processes are watched.
const IDLE: Duration = Duration::from_secs(1);

fn rest(pids: &[u32]) -> Result<(), Failure> {
    match proc::at_rest(pids, REST_DEADLINE) {
        true => Ok(()),
        false => Err("idle windows do not come to rest".into()),
    }
}

const KIB: f64 = 1024.0;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let load = Load::begin();
    let mut cold = Vec::new();
    for _ in 0..bench.options.pick(20, 3) {
        let home = Home::new(bench.programs)?;
        let (window, took) = home.demo()?.ready()?;
        cold.push(took);
        window.close()?;
    }
    let goal = Goal::AtMost(12.0);
    bench.table.add(
        "windows",
        "no daemon: start → get_state",
        "ms",
        &Samples::millis(&cold),
        goal,
        load.cores(),
    );

    let load = Load::begin();
    let home = Home::new(bench.programs)?;
    let (first, _) = home.demo()?.ready()?;
    let daemon = home.daemon()?;
    rest(&[daemon, first.pid()])?;
    let alone = pss_mib(&[daemon, first.pid()]);
    let (mut warm, mut floor) = (Vec::new(), Vec::new());
    let mut open: Vec<Window> = vec![first];
    fill(&home, &mut open, &mut warm, &mut floor)?;
    let shims: Vec<u32> = open.iter().map(Window::pid).collect();
    let all: Vec<u32> = shims.iter().copied().chain([daemon]).collect();
    rest(&all)?;
    let (of_daemon, of_shims) = (pss_mib(&[daemon]), pss_mib(&shims));
    let before = proc::cpu_of(&all);
    proc::until(Instant::now() + IDLE);
    let idle = (proc::cpu_of(&all) - before).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    for _ in 1..bench.options.pick(10, 2) {
        for window in open.drain(1..) {
            window.close()?;
        }
        fill(&home, &mut open, &mut warm, &mut floor)?;
    }
    let cores = load.cores();
    let closed = warm.len() + 1 - WINDOWS;
    let (warm, floor) = (Samples::millis(&warm), Samples::millis(&floor));
    let mut add = |measure: &str, unit, samples: Samples, goal| {
        bench.table.add("windows", measure, unit, &samples, goal, cores);
    };
    let one = |value| Samples::new([value]);
    add("further window: start → get_state", "ms", warm, Goal::AtMost(2.0));
    add("/bin/true: start → exit", "ms", floor, Goal::None);
    add("PSS, 1 window and daemon", "MiB", one(alone), Goal::None);
    add("PSS, 20 windows and daemon", "MiB", one(of_daemon + of_shims), Goal::None);
    add("PSS of the daemon in that", "MiB", one(of_daemon), Goal::None);
    add("PSS of a shim in that", "MiB", one(of_shims / WINDOWS as f64), Goal::None);
    let further = (of_daemon + of_shims - alone) / (WINDOWS - 1) as f64;
    add("PSS, a further window", "MiB", one(further), Goal::AtMost(0.4));
    rest(&[daemon])?;
    let left = (pss_mib(&[daemon]) - of_daemon) * KIB / closed as f64;
    add("PSS that a closed window left in the daemon", "KiB", one(left), Goal::None);
    add("processor while idle", "%", one(idle), Goal::None);
    for window in open {
        window.close()?;
    }
    Ok(())
}

/// Opens windows until there are [`WINDOWS`], noting what each took, and what a program takes that does nothing.
fn fill(
    home: &Home,
    open: &mut Vec<Window>,
    warm: &mut Vec<Duration>,
    floor: &mut Vec<Duration>,
) -> Result<(), Failure> {
    while open.len() < WINDOWS {
        let (window, took) = home.demo()?.ready()?;
        warm.push(took);
        open.push(window);
        let begun = Instant::now();
        Command::new("/bin/true").env_clear().status()?;
        floor.push(begun.elapsed());
    }
    Ok(())
}

fn pss_mib(pids: &[u32]) -> f64 {
    pids.iter().map(|pid| proc::pss_kib(*pid)).sum::<u64>() as f64 / KIB
}
