//! The command line.

use std::time::Duration;

use crate::Failure;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
atomic-bench [--quick] [SCENARIO...]
    windows round-trips deltas paced big elsewhere first-delta listing planning durability turns providers
                                                 (all when none is named)
    --quick   fewer repeats and smaller sizes: to see that it runs, not to quote
atomic-bench soak [--sessions N] [--minutes M]
    cycles N sessions (200) for M minutes (10); exit 1 when the daemon grows
atomic-bench faults [--seed N] [--rounds R]
    R faults (100) under load, up to 50 reloads, R attaches; exit 1 when anything is missing or twice

ATOMIC_BIN and ATOMICD_BIN name the programs; else those in target/release.
";

/// Names of the scenarios, in the order in which they run.
pub(crate) const SCENARIOS: [&str; 12] = [
    "windows",
    "round-trips",
    "deltas",
    "paced",
    "big",
    "elsewhere",
    "first-delta",
    "listing",
    "planning",
    "durability",
    "turns",
    "providers",
];

/// What is to be done.
pub(crate) enum Asked {
    Table(Options),
    Soak(SoakOptions),
    Faults(FaultOptions),
    Help,
}

/// For the table.
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) scenarios: Vec<String>,
}

impl Options {
    /// One of two sizes.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// For the soak.
pub(crate) struct SoakOptions {
    pub(crate) sessions: usize,
    pub(crate) time: Duration,
}

/// For the faults.
pub(crate) struct FaultOptions {
    pub(crate) seed: u64,
    pub(crate) rounds: usize,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Asked, Failure> {
    let mut arguments = arguments.peekable();
    if arguments.next_if(|first| first == "soak").is_some() {
        return soak(arguments);
    }
    if arguments.next_if(|first| first == "faults").is_some() {
        return faults(arguments);
    }
    let mut options = Options { quick: false, scenarios: Vec::new() };
    for argument in arguments {
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--help" | "-h" => return Ok(Asked::Help),
            name if SCENARIOS.contains(&name) => options.scenarios.push(argument),
            other => return Err(format!("unknown argument {other:?}\n{HELP}").into()),
        }
    }
    if options.scenarios.is_empty() {
        options.scenarios = SCENARIOS.map(str::to_owned).to_vec();
    }
    Ok(Asked::Table(options))
}

fn faults(mut arguments: impl Iterator<Item = String>) -> Result<Asked, Failure> {
    let mut options = FaultOptions { seed: 1, rounds: 100 };
    while let Some(argument) = arguments.next() {
        let mut value = || -> Result<u64, Failure> {
            let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
            text.parse().map_err(|_| format!("{argument} needs a whole number, not {text:?}").into())
        };
        match argument.as_str() {
            "--seed" => options.seed = value()?,
            "--rounds" => options.rounds = usize::try_from(value()?)?,
            other => return Err(format!("unknown argument {other:?}\n{HELP}").into()),
        }
    }
    Ok(Asked::Faults(options))
}

fn soak(mut arguments: impl Iterator<Item = String>) -> Result<Asked, Failure> {
    let mut options = SoakOptions { sessions: 200, time: Duration::from_secs(600) };
    while let Some(argument) = arguments.next() {
        let mut value = || -> Result<f64, Failure> {
            let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
            match text.parse::<f64>() {
                Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
                _ => Err(format!("{argument} needs a number above 0, not {text:?}").into()),
            }
        };
        match argument.as_str() {
            "--sessions" => options.sessions = (value()? as usize).max(1),
            "--minutes" => options.time = Duration::from_secs_f64((value()? * 60.0).min(86_400.0)),
            other => return Err(format!("unknown argument {other:?}\n{HELP}").into()),
        }
    }
    Ok(Asked::Soak(options))
}
