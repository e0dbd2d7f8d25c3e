//! First delta: what we add to the time that the model takes.

use std::time::{Duration, Instant};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::model::{self, Model};
use crate::proc::Load;
use crate::table::{Goal, Samples};

/// Between prompts, so that each finds everybody asleep as a person's prompt does.
const APART: Duration = Duration::from_millis(100);

/// From the first delta to the second and last one: the answer must not be over, and stored, before the first is read.
const INTERVAL: Duration = Duration::from_millis(5);

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let server = Model::start()?;
    let home = Home::with_model(bench.programs, server.url())?;
    let (mut window, _) = home.window(&[])?.ready()?;
    // The first request builds the HTTP client and connects.
    window.prompt(&model::prompt(1, Duration::ZERO, 0))?;
    window.settle()?;
    server.next_served()?;

    for (name, apart) in [("prompts apart", APART), ("back to back", Duration::ZERO)] {
        let load = Load::begin();
        let (mut up, mut down, mut both) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..bench.options.pick(40, 5) {
            crate::proc::until(Instant::now() + apart);
            let begun = Instant::now();
            window.prompt(&model::prompt(2, INTERVAL, 0))?;
            window.until("\"text_delta\"")?;
            let seen = Instant::now();
            window.settle()?;
            let served = server.next_served()?;
            let written = served.deltas.first().copied().ok_or("no delta was written")?;
            up.push(served.request.duration_since(begun));
            // The note is taken just before the write.
            down.push(seen.duration_since(written));
            both.push(seen.duration_since(begun).saturating_sub(written.duration_since(served.request)));
        }
        let cores = load.cores();
        let mut add = |measure: &str, times: &[Duration], goal| {
            let measure = format!("{name}: {measure}");
            bench.table.add("first-delta", &measure, "ms", &Samples::millis(times), goal, cores);
        };
        add("prompt → first delta, without the model's time", &both, Goal::AtMost(1.0));
        add("prompt → request", &up, Goal::None);
        add("delta written → delta read", &down, Goal::None);
    }
    window.close()
}
