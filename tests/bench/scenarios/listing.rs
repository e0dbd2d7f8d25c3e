//! Listing: very many stored sessions, with and without the index.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use super::Bench;
use crate::Failure;
use crate::home::Home;
use crate::proc::Load;
use crate::table::{Goal, Samples};
use crate::window::Window;

/// Working directories that the sessions are spread over.
const DIRECTORIES: usize = 20;

/// A word that only one session has.
const WORD: &str = "zebra";

/// A listing with its index has to be done within this, in milliseconds.
const WARM_LIMIT: f64 = 1_000.0;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let (count, bytes) = (bench.options.pick(2_000, 200), bench.options.pick(525_000, 50_000));
    let repeats = bench.options.pick(10, 3);
    let home = Home::new(bench.programs)?;
    let files = write_sessions(&home, count, bytes)?;
    let index = home.agent_dir().join("cache").join("sessions-index.jsonl");
    let load = Load::begin();
    let mut rows: Vec<(String, Samples, Goal)> = Vec::new();
    let total: u64 = files.iter().filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum();
    let what = format!("{count} files, {} MB", total / 1_000_000);

    let mut cold = Vec::new();
    for _ in 0..bench.options.pick(2, 1) {
        forget(&index)?;
        files.iter().try_for_each(|file| evict(file))?;
        cold.push(list(&home, &[], count)?);
    }
    rows.push((format!("{what}: no index, nothing in the page cache"), Samples::millis(&cold), Goal::None));
    let mut unindexed = Vec::new();
    for _ in 0..bench.options.pick(3, 2) {
        forget(&index)?;
        unindexed.push(list(&home, &[], count)?);
    }
    rows.push(("no index".to_owned(), Samples::millis(&unindexed), Goal::None));
    let warm = (0..repeats).map(|_| list(&home, &[], count)).collect::<Result<Vec<_>, _>>()?;
    rows.push(("with the index".to_owned(), Samples::millis(&warm), Goal::AtMost(WARM_LIMIT)));
    let mut grown = Vec::new();
    for file in files.iter().take(repeats) {
        let mut file = OpenOptions::new().append(true).open(file)?;
        file.write_all(b"{\"type\":\"session_info\",\"id\":\"n\",\"parentId\":null,\"name\":\"named\"}\n")?;
        grown.push(list(&home, &[], count)?);
    }
    rows.push(("one file has grown".to_owned(), Samples::millis(&grown), Goal::AtMost(WARM_LIMIT)));
    let searched =
        (0..bench.options.pick(3, 2)).map(|_| list(&home, &[WORD], 1)).collect::<Result<Vec<_>, _>>()?;
    rows.push(("a word that one session has".to_owned(), Samples::millis(&searched), Goal::None));

    let (mut asking, mut other) = (home.demo()?.ready()?.0, home.demo()?.ready()?.0);
    let mut asked = Vec::new();
    for _ in 0..repeats {
        let begun = Instant::now();
        ask(&mut asking)?;
        asking.until("\"command\":\"list_sessions\"")?;
        asked.push(begun.elapsed());
    }
    rows.push(("list_sessions".to_owned(), Samples::millis(&asked), Goal::AtMost(WARM_LIMIT)));
    forget(&index)?;
    ask(&mut asking)?;
    let listing = std::thread::spawn(move || -> Result<Window, String> {
        asking.until("\"command\":\"list_sessions\"").map_err(|error| error.to_string())?;
        Ok(asking)
    });
    let mut meanwhile = Vec::new();
    while !listing.is_finished() {
        let begun = Instant::now();
        other.get_state()?;
        meanwhile.push(begun.elapsed());
    }
    let asking = listing.join().map_err(|_| "the thread that waits for the listing failed")??;
    let longest: Option<Duration> = meanwhile.iter().max().copied();
    let measure = format!("longest of {} get_state of another window meanwhile", meanwhile.len());
    rows.push((measure, Samples::millis(&longest), Goal::None));
    let cores = load.cores();
    for (measure, samples, goal) in rows {
        bench.table.add("listing", &measure, "ms", &samples, goal, cores);
    }
    asking.close()?;
    other.close()
}

fn ask(window: &mut Window) -> Result<(), Failure> {
    window.send(b"{\"id\":\"l\",\"type\":\"list_sessions\",\"all\":true}\n")
}

/// `atomic sessions --all --json`, start to exit; it has to list this many.
fn list(home: &Home, words: &[&str], count: usize) -> Result<Duration, Failure> {
    let arguments = [&["sessions", "list", "--all", "--json"], words].concat();
    let begun = Instant::now();
    let output = home.command(&arguments).stdin(Stdio::null()).output()?;
    let took = begun.elapsed();
    if !output.status.success() {
        return Err(format!("atomic sessions: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    match answer["sessions"].as_array().map(Vec::len) {
        Some(listed) if listed == count => Ok(took),
        listed => Err(format!("{listed:?} sessions are listed and not {count}").into()),
    }
}

fn forget(index: &Path) -> Result<(), Failure> {
    match fs::remove_file(index) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Out of the page cache, as far as the file system heeds that.
fn evict(file: &Path) -> Result<(), Failure> {
    let file = File::open(file)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Sessions as they come to be: questions, answers, and long outputs of tools.
fn write_sessions(home: &Home, count: usize, bytes: usize) -> Result<Vec<PathBuf>, Failure> {
    const ANSWER: &str = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut \
        labore et dolore magna aliqua. ";
    let output = "drwxr-xr-x  2 user group   4096 Jan  1 00:00 some_directory_name\\n".repeat(60);
    let mut files = Vec::with_capacity(count);
    for number in 0..count {
        let cwd = format!("/bench/project-{}", number % DIRECTORIES);
        let dir = home.agent_dir().join("sessions").join(format!("--{}--", cwd[1..].replace('/', "-")));
        fs::create_dir_all(&dir)?;
        let time = 1_767_225_600_000 + number as u64 * 60_000;
        let mut text = format!(
            "{{\"type\":\"session\",\"version\":3,\"id\":\"bench-{number:06}\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"{cwd}\"}}\n"
        );
        let mut entry = 0;
        while text.len() < bytes {
            let parent = if entry == 0 { "null".to_owned() } else { format!("\"{:08x}\"", entry - 1) };
            let message = match entry % 3 {
                0 => {
                    format!(r#"{{"role":"user","content":"Question {entry}: {ANSWER}","timestamp":{time}}}"#)
                }
                1 => format!(
                    r#"{{"role":"assistant","content":[{{"type":"text","text":"Answer {entry}: {ANSWER}{ANSWER}"}},{{"type":"toolCall","id":"c{entry}","name":"bash","arguments":{{"command":"ls -l"}}}}],"api":"anthropic-messages","provider":"bench","model":"bench-model","usage":{{"input":10,"output":5,"cacheRead":0,"cacheWrite":0,"totalTokens":15,"cost":{{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}}},"stopReason":"toolUse","timestamp":{time}}}"#
                ),
                _ => format!(
                    r#"{{"role":"toolResult","toolCallId":"c{}","toolName":"bash","content":[{{"type":"text","text":"{output}"}}],"isError":false,"timestamp":{time}}}"#,
                    entry - 1
                ),
            };
            writeln!(
                text,
                r#"{{"type":"message","id":"{entry:08x}","parentId":{parent},"timestamp":"2026-01-01T00:00:00.000Z","message":{message}}}"#
            )?;
            entry += 1;
        }
        if number == 0 {
            writeln!(
                text,
                r#"{{"type":"message","id":"last","parentId":null,"message":{{"role":"user","content":"a {WORD}","timestamp":{time}}}}}"#
            )?;
        }
        let file = dir.join(format!("2026-01-01T00-00-00-000Z_bench-{number:06}.jsonl"));
        fs::write(&file, text)?;
        files.push(file);
    }
    Ok(files)
}
