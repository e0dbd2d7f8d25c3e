//! The conformance corpus: for each command and each event the bytes in and the bytes out.
//!
//! A file of `conformance/` is one test. It holds scenarios, each played by a shim, a daemon and a model server of its own:
//!
//! | line | what it is |
//! |---|---|
//! | `== name \| arguments \| NAME=value …` | a new scenario; what the shim is started with |
//! | `@settings {…}`, `@file PATH text` | files that are there before: the settings, or one in the sandbox (`\n` is a line end) |
//! | `@answer text` (`\n` is a line end), `@call id tool {…}`, `@think thought; text`, `@overloaded` | what the model answers next |
//! | `@hold text`, `@release` | the model has said so much of its answer; it says the rest |
//! | `> …` | a line of the client, without its LF |
//! | `< …` | the next line of the daemon, all of it, in this order; between scenarios nothing may be left |
//! | `// …` | a remark |
//!
//! What differs from run to run is masked here and nowhere else ([`Mask`]): `$ROOT` is the sandbox, `$URL` the model server,
//! `$E1`, `$E2` … entry ids and `$S1` … session ids in the order they were first seen, `$T` a time, `$MS` a duration. A client's line may
//! name them; then it says what they stand for.
//!
//! `ATOMIC_RECORD=1 cargo test -p atomic-tests --test conformance NAME` writes the `<` lines anew and fails; the difference is
//! to be read against the documents before it is kept.
#![forbid(unsafe_code)]
#![cfg(unix)]

#[path = "conformance/mask.rs"]
mod mask;

use std::path::{Path, PathBuf};

use atomic_protocol::command::Command;
use atomic_protocol::event::Event;
use atomic_tests::{Exchange, ModelServer, Sandbox, Shim, anthropic};
use mask::Mask;
use serde_json::{Value, json};

/// One line of a corpus file.
#[derive(Debug)]
enum Step<'a> {
    Scenario(&'a str),
    Stage(&'a str),
    Send(&'a str),
    Expect(&'a str),
    Remark,
}

fn step(line: &str) -> Step<'_> {
    let rest = |mark: &str| line.strip_prefix(mark).map(|rest| rest.strip_prefix(' ').unwrap_or(rest));
    if let Some(scenario) = rest("==") {
        Step::Scenario(scenario)
    } else if let Some(sent) = rest(">") {
        Step::Send(sent)
    } else if let Some(expected) = rest("<") {
        Step::Expect(expected)
    } else if let Some(direction) = line.strip_prefix('@') {
        Step::Stage(direction)
    } else {
        assert!(line.is_empty() || line.starts_with("//"), "no line of a corpus: {line}");
        Step::Remark
    }
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// One scenario under way.
struct Play {
    name: String,
    launch: Vec<String>,
    server: ModelServer,
    sandbox: Sandbox,
    shim: Option<Shim>,
    held: Option<(Exchange, anthropic::Answer)>,
    mask: Mask,
}

impl Play {
    fn new(heading: &str) -> Play {
        let mut parts = heading.split('|').map(str::trim);
        let name = parts.next().unwrap_or_default().to_owned();
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let mask = Mask::new(&sandbox, &server);
        Play {
            name,
            launch: parts.map(str::to_owned).collect(),
            server,
            sandbox,
            shim: None,
            held: None,
            mask,
        }
    }

    /// The shim, started when it is first needed: after the files that are there before.
    fn shim(&mut self) -> &mut Shim {
        let Play { shim, sandbox, launch, mask, .. } = self;
        shim.get_or_insert_with(|| {
            let words = |at: usize| launch.get(at).map(|part| mask.filled(part)).unwrap_or_default();
            let (arguments, variables) = (words(0), words(1));
            let start = sandbox.shim().args(arguments.split_whitespace());
            let variables = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
            variables.fold(start, |start, (name, value)| start.env(name, value)).start()
        })
    }

    fn stage(&mut self, direction: &str) {
        let (word, rest) = direction.split_once(' ').unwrap_or((direction, ""));
        match word {
            "settings" => self.sandbox.write_settings(&parsed(rest)),
            "file" => {
                let (name, text) = rest.split_once(' ').expect("a path and a text");
                let text = self.mask.filled(&text.replace("\\n", "\n"));
                if let Some((dir, _)) = name.rsplit_once('/') {
                    self.sandbox.dir(dir);
                }
                self.sandbox.write(name, text);
            }
            "answer" => self.server.prepare(anthropic::text(&rest.replace("\\n", "\n"))),
            "think" => {
                let (thought, text) = rest.split_once("; ").expect("a thought and a text");
                self.server.prepare(anthropic::thinking(thought, "sig", text));
            }
            "call" => {
                let mut parts = rest.splitn(3, ' ');
                let mut next = || parts.next().expect("id, tool and arguments");
                self.server.prepare(anthropic::tool_call(next(), next(), parsed(next())));
            }
            "overloaded" => {
                let events =
                    vec![anthropic::message_start(), anthropic::error("overloaded_error", "Overloaded")];
                self.server.prepare(anthropic::Answer { events });
            }
            "hold" => {
                /// Events that are held back: the end of the block and of the message.
                const END: usize = 3;
                let answer = anthropic::text(rest);
                let mut exchange = self.server.next_request();
                exchange.begin(&answer, END);
                self.held = Some((exchange, answer));
            }
            "release" => {
                let (mut exchange, answer) = self.held.take().expect("an answer is held");
                answer.events[answer.events.len() - 3..].iter().for_each(|event| exchange.event(event));
                exchange.finish();
            }
            other => panic!("no direction: @{other}"),
        }
    }

    /// Nothing is left to say, and it leaves in good order.
    fn end(mut self) {
        if self.held.is_none() {
            self.shim().assert_quiet();
        }
        self.shim().finish().expect_code(0);
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Plays a file of the corpus and compares every line.
#[track_caller]
fn plays(file: &str) {
    let path = corpus().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if std::env::var_os("ATOMIC_RECORD").is_some() {
        std::fs::write(&path, recorded(&text)).expect("the corpus can be written");
        panic!("{} is recorded anew; read the difference", path.display());
    }
    let mut play: Option<Play> = None;
    for (number, line) in text.lines().enumerate() {
        let current = |play: &mut Option<Play>| play.take().expect("a file begins with a scenario");
        match step(line) {
            Step::Scenario(heading) => {
                play.take().into_iter().for_each(Play::end);
                play = Some(Play::new(heading));
            }
            Step::Remark => {}
            Step::Stage(direction) => {
                let mut now = current(&mut play);
                now.stage(direction);
                play = Some(now);
            }
            Step::Send(sent) => {
                let mut now = current(&mut play);
                let filled = now.mask.filled(sent);
                now.shim().send_raw(format!("{filled}\n").as_bytes());
                play = Some(now);
            }
            Step::Expect(expected) => {
                let mut now = current(&mut play);
                let record = now.shim().wait_for(&format!("line {}: {expected}", number + 1), |_| true);
                let came = now.mask.masked(&record.raw);
                assert_eq!(came, expected, "{file}:{}, scenario \"{}\"", number + 1, now.name);
                play = Some(now);
            }
        }
    }
    play.expect("a file holds a scenario").end();
}

/// The same file with what the programs say now.
fn recorded(text: &str) -> String {
    /// How long nothing has to come until an answer counts as complete. Only a recording waits for time.
    const SILENCE: std::time::Duration = std::time::Duration::from_millis(600);
    let mut out: Vec<String> = Vec::new();
    let mut play: Option<Play> = None;
    let flush = |play: &mut Option<Play>, out: &mut Vec<String>| {
        let Some(now) = play.as_mut().filter(|now| now.shim.is_some()) else { return };
        loop {
            std::thread::park_timeout(SILENCE);
            let records = now.shim().rest();
            if records.is_empty() {
                return;
            }
            out.extend(records.iter().map(|record| format!("< {}", now.mask.masked(&record.raw))));
        }
    };
    for line in text.lines() {
        let next = step(line);
        if matches!(next, Step::Expect(_)) {
            continue;
        }
        out.push(line.to_owned());
        match next {
            Step::Scenario(heading) => play = Some(Play::new(heading)),
            Step::Stage(direction) => play.as_mut().expect("a scenario").stage(direction),
            Step::Send(sent) => {
                let now = play.as_mut().expect("a scenario");
                let filled = now.mask.filled(sent);
                now.shim().send_raw(format!("{filled}\n").as_bytes());
            }
            Step::Expect(_) | Step::Remark => {}
        }
        flush(&mut play, &mut out);
    }
    out.join("\n") + "\n"
}

macro_rules! corpus {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            plays(concat!(stringify!($name), ".txt"));
        })*

        #[test]
        fn every_file_of_the_corpus_is_played() {
            let mut names: Vec<String> = std::fs::read_dir(corpus())
                .expect("the corpus")
                .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
                .filter(|name| name.ends_with(".txt"))
                .collect();
            names.sort();
            let mut played = vec![$(concat!(stringify!($name), ".txt")),*];
            played.sort_unstable();
            assert_eq!(names, played);
        }
    };
}

corpus! {
    prompting, state, models, thinking, queues, compaction, retry, fallback, bash, session, branches, commands, errors,
}

/// All lines of the corpus that the client sends, or that it gets.
fn lines(of: fn(Step<'_>) -> Option<&str>) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(corpus()).expect("the corpus") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a corpus file");
        let text = text.replace(":$T", ":0").replace(":$MS", ":0");
        // What is broken on purpose is no command.
        found.extend(text.lines().filter_map(|line| serde_json::from_str::<Value>(of(step(line))?).ok()));
    }
    found
}

#[test]
fn every_command_is_sent_and_succeeds() {
    // Their success needs somebody at a page, an extension, or has no answer at all.
    const NEVER: [&str; 3] = ["login_provider", "invoke_shortcut", "extension_ui_response"];
    let sent = lines(|step| match step {
        Step::Send(line) => Some(line),
        _ => None,
    });
    let answers = lines(|step| match step {
        Step::Expect(line) => Some(line),
        _ => None,
    });
    // No description has these two: `manage.rs` has their shapes.
    const OURS: [&str; 2] = ["list_sessions", "attach_session"];
    for name in Command::NAMES.iter().filter(|name| !OURS.contains(name)) {
        assert!(sent.iter().any(|line| line["type"] == *name), "no scenario sends {name}");
        let success =
            |line: &Value| line["type"] == "response" && line["command"] == *name && line["success"] == true;
        if !NEVER.contains(name) {
            assert!(answers.iter().any(success), "no scenario shows {name} succeed");
        }
    }
}

#[test]
fn every_event_is_shown() {
    let answers = lines(|step| match step {
        Step::Expect(line) => Some(line),
        _ => None,
    });
    for name in Event::NAMES {
        assert!(answers.iter().any(|line| line["type"] == json!(name)), "no scenario shows {name}");
    }
}
