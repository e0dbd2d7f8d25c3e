//! Planning: a long conversation is shortened, and the session answers meanwhile.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::model::Model;
use crate::proc::Load;
use crate::table::{Goal, Samples};
use crate::window::{GET_STATE, Window};

/// Lines of each message.
const LINES: usize = 200;

/// Answers to `get_state`: when it was asked, and how long it took.
type Answers = Vec<(Instant, Duration)>;

/// How long the answer took that came behind `compaction_end`, which is megabytes long and goes the same way.
type Behind = Duration;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let messages = bench.options.pick(1_000, 100);
    let server = Model::start()?;
    let home = Home::with_model(bench.programs, server.url())?;
    let load = Load::begin();
    let (mut prepared, mut rates, mut applied) = (Vec::new(), Vec::new(), Vec::new());
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let (mut longest_before, mut longest_after, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..bench.options.pick(5, 2) {
        let (file, bytes) = session_file(&home, number, messages)?;
        let path = file.to_str().ok_or("a temporary path is UTF-8")?;
        let (mut asker, _) = home.join(path)?.ready()?;
        let (mut other, _) = home.join(path)?.ready()?;
        let begun = Instant::now();
        asker.send(b"{\"id\":\"c\",\"type\":\"compact\"}\n")?;
        other.until("\"compaction_start\"")?;
        let (answers, last) = ask_until_end(&mut other)?;
        behind.push(last);
        let ended = Instant::now();
        let request = server.next_served()?.request;
        asker.until("\"command\":\"compact\"")?;
        prepared.push(request.duration_since(begun));
        rates.push(bytes as f64 / 1e6 / request.duration_since(begun).as_secs_f64());
        applied.push(ended.duration_since(request));
        let (early, late): (Answers, Answers) =
            answers.into_iter().partition(|(asked, took)| *asked + *took <= request);
        let took = |answers: Answers| answers.into_iter().map(|(_, took)| took).collect::<Vec<_>>();
        let (early, late) = (took(early), took(late));
        longest_before.extend(early.iter().max().copied());
        longest_after.extend(late.iter().max().copied());
        before.extend(early);
        after.extend(late);
        asker.close()?;
        other.close()?;
    }
    let cores = load.cores();
    let lines = messages * LINES;
    let mut add = |measure: String, unit, samples: Samples, goal| {
        bench.table.add("planning", &measure, unit, &samples, goal, cores);
    };
    add(
        format!("{lines} lines: compact → request at the model"),
        "ms",
        Samples::millis(&prepared),
        Goal::None,
    );
    add("of that, each second".to_owned(), "MB", Samples::new(rates), Goal::None);
    add("get_state meanwhile".to_owned(), "ms", Samples::millis(&before), Goal::AtMost(1.0));
    let longest = Samples::millis(&longest_before);
    add("the longest of each time".to_owned(), "ms", longest, Goal::None);
    add("request → compaction_end".to_owned(), "ms", Samples::millis(&applied), Goal::None);
    add("get_state then".to_owned(), "ms", Samples::millis(&after), Goal::AtMost(1.0));
    add("the longest of each time then".to_owned(), "ms", Samples::millis(&longest_after), Goal::None);
    add("the one behind compaction_end itself".to_owned(), "ms", Samples::millis(&behind), Goal::None);
    Ok(())
}

/// Asks for the state, one question after the other, until the compaction has ended.
fn ask_until_end(window: &mut Window) -> Result<(Answers, Behind), Failure> {
    let mut answers = Vec::new();
    let mut ended = false;
    loop {
        let asked = Instant::now();
        window.send(GET_STATE)?;
        loop {
            let record = window.next()?;
            // Kinds stand in front; the records themselves may be megabytes long.
            let head = String::from_utf8_lossy(&record[..record.len().min(200)]);
            if head.contains("\"compaction_end\"") {
                ended = true;
            } else if head.contains("\"command\":\"get_state\"") {
                break;
            }
        }
        let took = asked.elapsed();
        if ended {
            return Ok((answers, took));
        }
        answers.push((asked, took));
    }
}

/// A session file of `messages` messages of [`LINES`] lines each, and the size of their text.
fn session_file(home: &Home, number: usize, messages: usize) -> Result<(PathBuf, usize), Failure> {
    let cwd = serde_json::to_string(&home.project())?;
    let mut text = format!(
        r#"{{"type":"session","version":3,"id":"planning-{number}","timestamp":"2026-01-01T00:00:00.000Z","cwd":{cwd}}}"#
    );
    text.push('\n');
    let mut bytes = 0;
    for entry in 0..messages {
        let parent = if entry == 0 { "null".to_owned() } else { format!("\"{:08x}\"", entry - 1) };
        let lines: Vec<String> = (0..LINES)
            .map(|line| format!("   {entry}:{line} warning: unused variable `x` in some/long/path.rs"))
            .collect();
        let said = lines.join("\n");
        bytes += said.len();
        let said = serde_json::to_string(&said)?;
        let message = if entry % 2 == 0 {
            format!(r#"{{"role":"user","content":{said},"timestamp":1767225600000}}"#)
        } else {
            format!(
                r#"{{"role":"assistant","content":[{{"type":"text","text":{said}}}],"api":"anthropic-messages","provider":"bench","model":"bench-model","usage":{{"input":10,"output":5,"cacheRead":0,"cacheWrite":0,"totalTokens":15,"cost":{{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}}},"stopReason":"stop","timestamp":1767225600000}}"#
            )
        };
        writeln!(
            text,
            r#"{{"type":"message","id":"{entry:08x}","parentId":{parent},"timestamp":"2026-01-01T00:00:00.000Z","message":{message}}}"#
        )?;
    }
    let path = home.project().join(format!("planning-{number}.jsonl"));
    std::fs::write(&path, text)?;
    Ok((path, bytes))
}
