//! Big: a session of many entries.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::model::{self, Model};
use crate::proc::{self, Load};
use crate::table::{Goal, Samples};

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let entries = bench.options.pick(50_000, 5_000);
    let server = Model::start()?;
    let home = Home::with_model(bench.programs, server.url())?;
    let (other, _) = home.window(&[])?.ready()?;
    let daemon = home.daemon()?;
    let load = Load::begin();
    let (mut opened, mut listed, mut bytes, mut cpu, mut asked) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 0..bench.options.pick(5, 2) {
        // Each time another file: a session stays in memory for a while after its last client left.
        let file = session_file(&home, number, entries)?;
        let path = file.to_str().ok_or("a temporary path is UTF-8")?;
        let before = proc::cpu(daemon);
        let (mut window, took) = home.join(path)?.ready()?;
        opened.push(took);
        cpu.push((proc::cpu(daemon) - before).as_secs_f64());
        let begun = Instant::now();
        window.send(b"{\"id\":\"m\",\"type\":\"get_messages\"}\n")?;
        let record = window.next()?;
        bytes.push(record.len() as f64 / 1e6);
        listed.push(begun.elapsed());
        let begun = Instant::now();
        window.get_state()?;
        asked.push(begun.elapsed());
        window.close()?;
    }
    let cores = load.cores();
    let mut add = |measure: String, unit, samples, goal| {
        bench.table.add("big", &measure, unit, &samples, goal, cores);
    };
    add(format!("{entries} entries: start → get_state"), "ms", Samples::millis(&opened), Goal::None);
    add("processor of the daemon for that".to_owned(), "s", Samples::new(cpu), Goal::None);
    add("get_messages".to_owned(), "ms", Samples::millis(&listed), Goal::None);
    add("its answer".to_owned(), "MB", Samples::new(bytes), Goal::None);
    add("get_state afterwards".to_owned(), "ms", Samples::millis(&asked), Goal::None);

    // With a conversation as long as a model takes: what a prompt costs before the model hears of it.
    let file = session_file(&home, 99, 2_000)?;
    let (mut window, _) = home.join(file.to_str().ok_or("a temporary path is UTF-8")?)?.ready()?;
    let mut up = Vec::new();
    for _ in 0..bench.options.pick(10, 3) {
        let begun = Instant::now();
        window.prompt(&model::prompt(1, Duration::ZERO, 0))?;
        window.settle()?;
        up.push(server.next_served()?.request.duration_since(begun));
    }
    bench.table.add(
        "big",
        "2000 entries: prompt → request at the model",
        "ms",
        &Samples::millis(&up),
        Goal::None,
        cores,
    );
    window.close()?;
    other.close()
}

/// A session file of questions and answers, about 600 bytes each.
pub(super) fn session_file(home: &Home, number: usize, entries: usize) -> Result<PathBuf, Failure> {
    const ANSWER: &str = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut \
        labore et dolore magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut \
        aliquip ex ea commodo consequat. ";
    let cwd = serde_json::to_string(&home.project())?;
    let mut text = format!(
        r#"{{"type":"session","version":3,"id":"bench-{number}","timestamp":"2026-01-01T00:00:00.000Z","cwd":{cwd}}}"#
    );
    text.push('\n');
    for entry in 0..entries {
        let parent = if entry == 0 { "null".to_owned() } else { format!("\"{:08x}\"", entry - 1) };
        let message = if entry % 2 == 0 {
            format!(r#"{{"role":"user","content":"Question {entry}: {ANSWER}","timestamp":1767225600000}}"#)
        } else {
            format!(
                r#"{{"role":"assistant","content":[{{"type":"text","text":"Answer {entry}: {ANSWER}"}}],"api":"anthropic-messages","provider":"bench","model":"bench-model","usage":{{"input":10,"output":5,"cacheRead":0,"cacheWrite":0,"totalTokens":15,"cost":{{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}}},"stopReason":"stop","timestamp":1767225600000}}"#
            )
        };
        writeln!(
            text,
            r#"{{"type":"message","id":"{entry:08x}","parentId":{parent},"timestamp":"2026-01-01T00:00:00.000Z","message":{message}}}"#
        )?;
    }
    let path = home.project().join(format!("big-{number}.jsonl"));
    std::fs::write(&path, text)?;
    Ok(path)
}
