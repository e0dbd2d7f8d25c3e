//! Durability: what the levels of `daemon.durability` cost a turn.

use std::io::Write as _;
use std::time::{Duration, Instant};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::model::{self, Model};
use crate::proc::{Load, cpu};
use crate::table::{Goal, Samples};

/// The levels, the one without any promise first.
const LEVELS: [&str; 3] = ["none", "turn", "entry"];

/// Turns before any counts.
const WARM_UP: usize = 20;

/// Bytes of an entry in the measure of the disk itself.
const ENTRY_BYTES: usize = 600;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let turns = bench.options.pick(500, 50);
    let server = Model::start()?;
    for level in LEVELS {
        let home = Home::with_model(bench.programs, server.url())?;
        let settings = serde_json::json!({"daemon": {"durability": level}});
        std::fs::write(home.agent_dir().join("settings.json"), settings.to_string())?;
        let (mut window, _) = home.window(&[])?.ready()?;
        let daemon = home.daemon()?;
        let mut turn = || -> Result<Duration, Failure> {
            let begun = Instant::now();
            window.prompt(&model::prompt(1, Duration::ZERO, 0))?;
            window.settle()?;
            Ok(begun.elapsed())
        };
        for _ in 0..WARM_UP {
            turn()?;
        }
        let (load, before) = (Load::begin(), cpu(daemon));
        let took = (0..turns).map(|_| turn()).collect::<Result<Vec<_>, _>>()?;
        let spent = (cpu(daemon).saturating_sub(before)).as_secs_f64() * 1e3 / turns as f64;
        let cores = load.cores();
        let took = Samples::millis(&took);
        bench.table.add("durability", &format!("a turn, durability {level}"), "ms", &took, Goal::None, cores);
        let spent = Samples::new([spent]);
        bench.table.add("durability", "of that processor of the daemon", "ms", &spent, Goal::None, cores);
        window.close()?;
    }
    // What the disk itself takes, which a turn does not wait for.
    let home = Home::new(bench.programs)?;
    let mut file = std::fs::File::create(home.project().join("entries"))?;
    let load = Load::begin();
    let mut took = Vec::new();
    for _ in 0..turns {
        file.write_all(&[b'x'; ENTRY_BYTES])?;
        let begun = Instant::now();
        file.sync_data()?;
        took.push(begun.elapsed());
    }
    let took = Samples::millis(&took);
    bench.table.add("durability", "fdatasync of one entry, alone", "ms", &took, Goal::None, load.cores());
    Ok(())
}
