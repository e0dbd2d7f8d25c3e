//! Faults: daemons and shims are killed, stopped and replaced at random points under load, and nothing that a client
//! was told may be missing, twice or out of order. One seed is one course of events, up to what the machine does to it.

mod check;
mod peer;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use atomic_tests::within;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use self::check::Told;
use self::peer::{DEADLINE, Peer, is_answer};
use crate::Failure;
use crate::arguments::FaultOptions;
use crate::home::{Home, Programs};
use crate::model::{self, Model};

/// How long an idle session stays in memory in the part that attaches around that moment.
const UNLOAD_AFTER: Duration = Duration::from_millis(40);

/// Reloads of a window beside another.
const RELOADS: usize = 50;

/// A fault is injected this long after the load began, at most.
const LATEST_MS: u64 = 90;

/// What happens to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillDaemon,
    KillShim,
    StopShim,
    Restart,
    RestartNow,
}

const FAULTS: [(Fault, &str, usize); 5] = [
    (Fault::KillDaemon, "daemon killed", 50),
    (Fault::KillShim, "shim killed", 15),
    (Fault::StopShim, "shim stopped", 10),
    (Fault::Restart, "restart", 17),
    (Fault::RestartNow, "restart --now", 8),
];

/// Runs all parts. `Ok(false)`: something was wrong; it is printed with the round's number.
pub(crate) fn run(options: &FaultOptions) -> Result<bool, Failure> {
    let programs = Programs::find()?;
    let server = Model::start()?;
    let wrong = rounds(&programs, &server, options)?
        + reloads(&programs, &server, options)?
        + attaches(&programs, &server, options)?;
    say(if wrong == 0 { "nothing was missing, twice or out of order" } else { "NOT all is well" })?;
    Ok(wrong == 0)
}

fn say(text: &str) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// A HOME, and a file to which the sessions' shell commands write.
struct Stage {
    home: Home,
    ran: PathBuf,
}

fn stage(programs: &Programs, server: &Model, settings: &Value) -> Result<Stage, Failure> {
    let home = Home::with_model(programs, server.url())?;
    std::fs::write(home.agent_dir().join("settings.json"), settings.to_string())?;
    let ran = home.project().join("ran");
    Ok(Stage { home, ran })
}

fn rounds(programs: &Programs, server: &Model, options: &FaultOptions) -> Result<usize, Failure> {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let stage = stage(programs, server, &json!({}))?;
    let mut counts = [0; FAULTS.len()];
    let (mut wrong, mut lines, mut records) = (0, 0, 0);
    let begun = Instant::now();
    for number in 0..options.rounds {
        // Each round can be told from its number and the seed.
        let mut of_round = random.fork();
        let fault = pick(&mut of_round);
        let index = FAULTS.iter().position(|(known, ..)| *known == fault).unwrap_or(0);
        counts[index] += 1;
        let outcome = round(&stage, number, fault, &mut of_round)
            .map_err(|error| format!("round {number} ({fault:?}): {error}\n{}", stage.home.log()))?;
        lines += outcome.lines;
        records += outcome.records;
        for what in &outcome.told.wrong {
            say(&format!("round {number} ({fault:?}): {what}"))?;
        }
        wrong += outcome.told.wrong.len();
        if !outcome.told.wrong.is_empty() {
            say(&format!("the file is kept: {}", keep(&outcome.file)?.display()))?;
        }
    }
    let kinds: Vec<String> =
        FAULTS.iter().zip(counts).map(|((_, name, _), count)| format!("{count} {name}")).collect();
    say(&format!(
        "{} faults with three windows in {:.0} s: {}; {lines} lines sent, {records} records heard",
        options.rounds,
        begun.elapsed().as_secs_f64(),
        kinds.join(", ")
    ))?;
    Ok(wrong)
}

/// For whoever looks into a failure: the HOME goes with the process.
fn keep(file: &Path) -> Result<PathBuf, Failure> {
    let to = std::env::temp_dir().join(file.file_name().ok_or("a session file has a name")?);
    std::fs::copy(file, &to)?;
    Ok(to)
}

fn pick(random: &mut fastrand::Rng) -> Fault {
    let all: usize = FAULTS.iter().map(|(.., weight)| weight).sum();
    let mut at = random.usize(..all);
    for (fault, _, weight) in FAULTS {
        if at < weight {
            return fault;
        }
        at -= weight;
    }
    Fault::KillDaemon
}

struct Outcome {
    told: Told,
    file: PathBuf,
    lines: usize,
    records: usize,
}

/// One session, three windows on it, a load, a fault in the middle of it.
fn round(stage: &Stage, number: usize, fault: Fault, random: &mut fastrand::Rng) -> Result<Outcome, Failure> {
    let home = &stage.home;
    let mut first =
        Peer::open(home.command(&["--mode", "rpc", "--provider", "bench", "--model", "bench-model"]))?;
    first.send("begin", json!({"type": "prompt", "message": format!("{number}-begin {}", model::prompt(1, Duration::ZERO, 0))}));
    first.wait("settled", |records| {
        records.iter().any(|record| record["type"] == "agent_settled").then_some(())
    })?;
    let state = first.ask("file", "get_state")?;
    let file = PathBuf::from(state["sessionFile"].as_str().ok_or("the session has a file")?);
    let join = || Peer::open(home.command(&["--mode", "rpc", "--session", &file.to_string_lossy()]));
    let mut windows = [first, join()?, join()?];
    for (index, window) in windows.iter_mut().enumerate().skip(1) {
        window.ask(&format!("here-{index}"), "get_state")?;
    }
    let daemon = home.daemon()?;
    // A command that would outlive its daemon if nobody ended it.
    let sleeper = format!("sleep 7{number:06}");
    let sleeping = format!("{number}-sleeper");
    let command = format!("echo {sleeping} >> {}; exec {sleeper}", stage.ran.display());
    windows[2].send(&sleeping, json!({"type": "bash", "command": command}));

    let due = Instant::now() + Duration::from_micros(random.u64(..LATEST_MS * 1000));
    let mut commands = 0;
    while Instant::now() < due || commands == 0 {
        load(&mut windows, stage, number, commands, random);
        commands += 1;
        pause(random.u64(500..12_000));
    }
    let restart = inject(fault, home, daemon, &mut windows, random)?;
    // The load goes on through the fault.
    for _ in 0..random.usize(..6) {
        load(&mut windows, stage, number, commands, random);
        commands += 1;
        pause(random.u64(..4_000));
    }
    windows[2].send("no-sleep", json!({"type": "abort_bash", "requestId": sleeping}));
    if fault == Fault::StopShim {
        windows[1].signal(Signal::CONT);
    }
    if let Some(mut restart) = restart {
        let Some(status) = within(DEADLINE, || restart.try_wait().transpose()) else {
            let _ = restart.kill();
            return Err("the restart does not end".into());
        };
        let status = status?;
        if !status.success() {
            return Err(format!("the restart ended with {status}").into());
        }
    }
    settle(&mut windows)?;

    let mut told = Told::default();
    for (index, window) in windows.iter_mut().enumerate() {
        if !window.killed {
            let code = window.close()?;
            if code != Some(0) {
                told.wrong.push(format!("window {index} ended with {code:?}: {}", window.stderr()));
            }
        }
        told.hear(&format!("window {index}"), window);
    }
    told.read(&file);
    if matches!(fault, Fault::Restart | Fault::StopShim | Fault::RestartNow) {
        let failed = windows.iter().flat_map(Peer::records).filter(|record| {
            is_answer(record)
                && record["error"].as_str().is_some_and(|error| error.starts_with("daemon lost"))
        });
        told.wrong.extend(failed.map(|record| format!("nothing was lost, and yet: {record}")));
    }
    commands_ran(stage, number, &windows, &mut told)?;
    children_gone(&sleeper, &mut told);
    let lines = windows.iter().map(|window| window.sent.len()).sum();
    let records = windows.iter().map(Peer::heard).sum();
    Ok(Outcome { told, file, lines, records })
}

/// Faults and load come at times that the dice say: nothing is waited for here.
fn pause(micros: u64) {
    crate::proc::until(Instant::now() + Duration::from_micros(micros));
}

/// One command of one of the windows: the first streams, the second types ahead, the third is mostly idle.
fn load(windows: &mut [Peer; 3], stage: &Stage, number: usize, at: usize, random: &mut fastrand::Rng) {
    let window = [0, 0, 1, 1, 1, 2][random.usize(..6)];
    let id = format!("{number}-{at}");
    let prompt = |random: &mut fastrand::Rng| {
        format!("{id} {}", model::prompt(random.usize(1..30), Duration::from_micros(random.u64(..1_500)), 0))
    };
    let command = match random.u32(..20) {
        0..8 => json!({"type": "prompt", "message": prompt(random), "streamingBehavior": "followUp"}),
        8..11 => json!({"type": "prompt", "message": prompt(random), "streamingBehavior": "steer"}),
        11..14 => {
            // Some are under way for a while, so that a fault finds them so.
            let then = ["", "; sleep 0.03"][random.usize(..2)];
            json!({"type": "bash", "command": format!("echo {id} >> {}{then}", stage.ran.display())})
        }
        14..16 => json!({"type": "set_session_name", "name": id}),
        16..17 => json!({"type": "abort"}),
        17..18 => json!({"type": "get_messages"}),
        _ => json!({"type": "get_state"}),
    };
    if !windows[window].killed {
        windows[window].send(&id, command);
    }
}

fn inject(
    fault: Fault,
    home: &Home,
    daemon: u32,
    windows: &mut [Peer; 3],
    random: &mut fastrand::Rng,
) -> Result<Option<std::process::Child>, Failure> {
    let restart = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command.spawn().map(Some)
    };
    Ok(match fault {
        Fault::KillDaemon => {
            let pid = i32::try_from(daemon).ok().and_then(Pid::from_raw).ok_or("a process id")?;
            kill_process(pid, Signal::KILL)?;
            None
        }
        Fault::KillShim => {
            windows[random.usize(..3)].kill();
            None
        }
        Fault::StopShim => {
            windows[1].signal(Signal::STOP);
            None
        }
        Fault::Restart => restart(&["restart"])?,
        Fault::RestartNow => restart(&["restart", "--now"])?,
    })
}

/// Waits until every line is answered and no run is active.
fn settle(windows: &mut [Peer; 3]) -> Result<(), Failure> {
    let end = Instant::now() + DEADLINE;
    let mut asked = 0;
    loop {
        let mut idle = true;
        for window in windows.iter_mut().filter(|window| !window.killed) {
            for id in &window.sent.clone() {
                window.answer(id)?;
            }
            asked += 1;
            let state = window.ask(&format!("settle-{asked}"), "get_state")?;
            idle &= state["isStreaming"] == false && state["pendingMessageCount"] == 0;
        }
        if idle {
            return Ok(());
        }
        if Instant::now() > end {
            return Err("the session does not settle".into());
        }
    }
}

/// A command that succeeded ran once; one whose outcome is unknown at most once; any other not at all.
fn commands_ran(stage: &Stage, number: usize, windows: &[Peer; 3], told: &mut Told) -> Result<(), Failure> {
    let ran = std::fs::read_to_string(&stage.ran).unwrap_or_default();
    let prefix = format!("{number}-");
    for (index, window) in windows.iter().enumerate() {
        let records = window.records();
        for id in window.sent.iter().filter(|id| id.starts_with(&prefix)) {
            let times = ran.lines().filter(|line| line == id).count();
            let answer = records.iter().find(|record| is_answer(record) && record["id"] == **id);
            let Some(answer) = answer else { continue };
            let right = match (answer["command"] == "bash", answer["success"] == true) {
                (true, true) if answer["data"]["cancelled"] == true => times <= 1,
                (true, true) => times == 1,
                (true, false) if answer["error"] == "daemon lost; outcome unknown" => times <= 1,
                _ => times == 0,
            };
            if !right {
                told.wrong.push(format!("window {index}: {id} ran {times} times and was answered {answer}"));
            }
        }
    }
    Ok(())
}

/// No command outlives the daemon that ran it.
fn children_gone(command: &str, told: &mut Told) {
    let started = command.replace(' ', "\0");
    let runs = || {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.any(|line| {
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches('\0');
            line.ends_with(&started) || line.ends_with(command)
        })
    };
    if within(Duration::from_secs(10), || (!runs()).then_some(())).is_none() {
        told.wrong.push(format!("{command} is still running"));
    }
}

/// One window is reloaded again and again (its shim ends or is killed, another one joins) beside one that goes on.
fn reloads(programs: &Programs, server: &Model, options: &FaultOptions) -> Result<usize, Failure> {
    let mut random = fastrand::Rng::with_seed(options.seed ^ 1);
    let stage = stage(programs, server, &json!({}))?;
    let home = &stage.home;
    let count = options.rounds.min(RELOADS);
    let rpc = ["--mode", "rpc", "--provider", "bench", "--model", "bench-model"];
    let (mut steady, mut reloaded) = (Peer::open(home.command(&rpc))?, Peer::open(home.command(&rpc))?);
    let begin =
        json!({"type": "prompt", "message": format!("begin {}", model::prompt(1, Duration::ZERO, 0))});
    reloaded.send("begin", begin);
    reloaded.wait("settled", |records| {
        records.iter().any(|record| record["type"] == "agent_settled").then_some(())
    })?;
    let file = reloaded.ask("file", "get_state")?["sessionFile"].as_str().ok_or("a file")?.to_owned();
    let mut told = Told::default();
    let begun = Instant::now();
    for number in 0..count {
        let prompt = |name: &str| {
            json!({"type": "prompt", "streamingBehavior": "followUp",
            "message": format!("{name} {number} {}", model::prompt(20, Duration::from_micros(500), 0))})
        };
        steady.send(&format!("s{number}"), prompt("steady"));
        reloaded.send(&format!("r{number}"), prompt("reloaded"));
        pause(random.u64(..15_000));
        if random.bool() {
            reloaded.kill();
        } else {
            reloaded.close()?;
        }
        reloaded.killed = true;
        told.hear(&format!("reload {number}"), &reloaded);
        reloaded = Peer::open(home.command(&["--mode", "rpc", "--session", &file]))?;
        let state = reloaded.ask("state", "get_state")?;
        if state["sessionFile"] != file.as_str() {
            told.wrong.push(format!("reload {number} came to another session: {state}"));
        }
    }
    let mut windows = [steady, reloaded];
    for window in &mut windows {
        let end = Instant::now() + DEADLINE;
        for asked in 0.. {
            let state = window.ask(&format!("end-{asked}"), "get_state")?;
            if state["isStreaming"] == false && state["pendingMessageCount"] == 0 {
                break;
            }
            if Instant::now() > end {
                return Err("a session does not settle".into());
            }
        }
    }
    told.read(Path::new(&file));
    // The steady window's session is another one: its own texts, its own file.
    let mut own = Told::default();
    own.hear("the steady window", &windows[0]);
    if own.users.len() != count || own.answers != count {
        own.wrong.push(format!(
            "the steady window heard {} prompts and {} answers of {count}",
            own.users.len(),
            own.answers
        ));
    }
    for what in told.wrong.iter().chain(&own.wrong) {
        say(&format!("reloads: {what}"))?;
    }
    say(&format!("{count} reloads of one window beside another in {:.1} s", begun.elapsed().as_secs_f64()))?;
    Ok(told.wrong.len() + own.wrong.len())
}

/// Windows that come about when a session is unloaded: each is in the session, with all that was said.
fn attaches(programs: &Programs, server: &Model, options: &FaultOptions) -> Result<usize, Failure> {
    let mut random = fastrand::Rng::with_seed(options.seed ^ 2);
    let settings = json!({"daemon": {"unloadAfter": UNLOAD_AFTER.as_secs_f64()}});
    let stage = stage(programs, server, &settings)?;
    let home = &stage.home;
    let mut first =
        Peer::open(home.command(&["--mode", "rpc", "--provider", "bench", "--model", "bench-model"]))?;
    first.send(
        "begin",
        json!({"type": "prompt", "message": format!("begin {}", model::prompt(1, Duration::ZERO, 0))}),
    );
    first.wait("settled", |records| {
        records.iter().any(|record| record["type"] == "agent_settled").then_some(())
    })?;
    let file = first.ask("file", "get_state")?["sessionFile"].as_str().ok_or("a file")?.to_owned();
    first.close()?;
    let (mut wrong, mut messages) = (0, 2);
    let begun = Instant::now();
    for number in 0..options.rounds {
        // The process takes a few milliseconds to get there.
        let around = UNLOAD_AFTER.as_micros() as u64;
        pause(random.u64(around.saturating_sub(12_000)..around + 4_000));
        let mut window = Peer::open(home.command(&["--mode", "rpc", "--session", &file]))?;
        let state = window.ask("state", "get_state")?;
        if state["messageCount"] != messages || state["sessionFile"] != file.as_str() {
            wrong += 1;
            say(&format!("attach {number}: not the session of {messages} messages: {state}"))?;
        }
        if number % 10 == 0 {
            let message = format!("{number} {}", model::prompt(1, Duration::ZERO, 0));
            window.send("p", json!({"type": "prompt", "message": message}));
            window.wait("settled", |records| {
                records.iter().any(|record| record["type"] == "agent_settled").then_some(())
            })?;
            messages += 2;
        }
        let code = window.close()?;
        if code != Some(0) || !window.stderr().is_empty() {
            wrong += 1;
            say(&format!("attach {number}: ended with {code:?}: {}", window.stderr()))?;
        }
    }
    let mut told = Told::default();
    told.read(Path::new(&file));
    for what in &told.wrong {
        say(&format!("attaches: {what}"))?;
    }
    let unloaded = std::fs::read_dir(home.agent_dir().join("logs"))?
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .map(|text| text.matches("session unloaded").count())
        .sum::<usize>();
    say(&format!(
        "{} attaches around the moment of unloading in {:.0} s; the session was unloaded {unloaded} times",
        options.rounds,
        begun.elapsed().as_secs_f64()
    ))?;
    if unloaded == 0 && options.rounds >= 20 {
        say("attaches: the session was never unloaded, so this has proved nothing")?;
        wrong += 1;
    }
    Ok(wrong + told.wrong.len())
}
