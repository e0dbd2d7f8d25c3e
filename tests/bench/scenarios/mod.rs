//! The scenarios: each measures one promise and adds its rows to the table.

mod big;
mod deltas;
mod durability;
mod elsewhere;
mod first_delta;
mod listing;
mod paced;
mod planning;
mod providers;
mod round_trips;
mod turns;
mod windows;

use std::io::Write as _;

use crate::Failure;
use crate::arguments::Options;
use crate::home::Programs;
use crate::table::Table;

/// What a scenario is given.
struct Bench<'a> {
    programs: &'a Programs,
    options: &'a Options,
    table: Table,
}

/// Runs what was asked for and prints the table. `Ok(false)`: a goal was missed.
pub(crate) fn run(options: &Options) -> Result<bool, Failure> {
    let programs = Programs::find()?;
    let mut bench = Bench { programs: &programs, options, table: Table::default() };
    for name in &options.scenarios {
        let _ = writeln!(std::io::stderr(), "{name}");
        let outcome = match name.as_str() {
            "windows" => windows::run(&mut bench),
            "round-trips" => round_trips::run(&mut bench),
            "deltas" => deltas::run(&mut bench),
            "paced" => paced::run(&mut bench),
            "big" => big::run(&mut bench),
            "listing" => listing::run(&mut bench),
            "elsewhere" => elsewhere::run(&mut bench),
            "planning" => planning::run(&mut bench),
            "durability" => durability::run(&mut bench),
            "turns" => turns::run(&mut bench),
            "providers" => providers::run(&mut bench),
            _ => first_delta::run(&mut bench),
        };
        outcome.map_err(|error| format!("{name}: {error}"))?;
    }
    bench.table.print()?;
    Ok(bench.table.all_met())
}
