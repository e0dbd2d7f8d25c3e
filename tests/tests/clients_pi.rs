//! The RpcClient class of two Pi packages, unchanged, against our binaries. `tests/clients/pi_rpc_client.mjs` holds what
//! the class has to see; here the model is played.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::path::PathBuf;

use atomic_tests::anthropic::{self, Answer};
use atomic_tests::{Driver, Exchange, ModelServer, Sandbox, atomic_path, node, node_24};
use serde_json::json;

/// How long the class gives an agent to end before it kills it, in milliseconds.
const STOP_MS: f64 = 1_000.0;

/// A version of the class.
struct Class {
    package: &'static str,
    node: fn() -> PathBuf,
}

/// Needs no more than Node 20; knows neither queues that can be cleared nor entries.
const PI_0_73_1: Class = Class { package: "@mariozechner/pi-coding-agent", node };
/// Needs Node 24.
const PI_1_6_0: Class = Class { package: "@earendil-works/pi-coding-agent", node: node_24 };

struct Stage {
    server: ModelServer,
    sandbox: Sandbox,
    driver: Driver,
}

impl Class {
    fn plays(&self, scenarios: &[&str]) -> Stage {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let mut arguments = vec![self.package, atomic_path()];
        arguments.extend(scenarios);
        let driver = Driver::start(&sandbox, &(self.node)(), "pi_rpc_client.mjs", &arguments, &[]);
        Stage { server, sandbox, driver }
    }
}

impl Stage {
    /// Waits until the scenario is through.
    #[track_caller]
    fn done(&mut self, scenario: &str) {
        assert_eq!(self.driver.fact("done")["scenario"], scenario);
    }

    /// Waits for the end of the driver; nothing is left open.
    #[track_caller]
    fn finish(self) {
        let facts = self.driver.finish();
        let time = |name: &str| {
            let fact = facts.iter().find(|fact| fact["fact"] == name).expect("stated by every driver");
            fact["ms"].as_f64().expect("a number")
        };
        eprintln!("first answer {} ms, stop {} ms", time("first answer"), time("stopped"));
        assert!(time("stopped") < STOP_MS, "stop took {} ms", time("stopped"));
        drop(self.sandbox);
    }
}

/// Waits for a request that ends with this text, and begins the answer but for its end.
#[track_caller]
fn begin(server: &ModelServer, last: &str, answer: &Answer) -> Exchange {
    let mut exchange = server.next_request();
    assert_eq!(exchange.request.conversation().last().map(String::as_str), Some(last));
    exchange.begin(answer, END);
    exchange
}

/// Events at the end of a text answer: the block's, the message's reason, the message's.
const END: usize = 3;

#[track_caller]
fn end(mut exchange: Exchange, answer: &Answer) {
    answer.events[answer.events.len() - END..].iter().for_each(|event| exchange.event(event));
    exchange.finish();
}

fn the_core(class: &Class) {
    let scenarios = ["asking", "tools", "steering", "aborting", "bash", "models", "entries", "sessions"];
    let mut stage = class.plays(&scenarios);

    // Prepared together, before the driver asks: the last is taken by the call that follows the tool.
    stage.server.prepare(anthropic::texts(&["Hello", " there"]));
    stage.server.prepare(anthropic::tool_call("c1", "bash", json!({"command": "echo seen"})));
    stage.server.prepare(anthropic::text("Seen."));
    stage.done("asking");
    stage.done("tools");

    let roses = anthropic::texts(&["Roses", "."]);
    let mut exchange = stage.server.next_request();
    assert_eq!(exchange.request.conversation().last().map(String::as_str), Some("user: Write a poem."));
    exchange.begin(&roses, END + 1);
    stage.driver.fact("queued");
    exchange.event(&roses.events[roses.events.len() - END - 1]);
    end(exchange, &roses);
    for (asked, said) in [("user: Make it short.", "Short."), ("user: Now translate it.", "Kurz.")] {
        let answer = anthropic::text(said);
        end(begin(&stage.server, asked, &answer), &answer);
    }
    stage.done("steering");

    begin(&stage.server, "user: Count to a million.", &anthropic::text("one")).wait_for_hang_up();
    for scenario in ["aborting", "bash", "models", "entries", "sessions"] {
        stage.done(scenario);
    }
    stage.finish();
}

fn levels(class: &Class) {
    let mut stage = class.plays(&["levels"]);
    stage.done("levels");
    stage.finish();
}

fn branches(class: &Class) {
    let mut stage = class.plays(&["branches"]);
    stage.server.prepare(anthropic::text("One."));
    stage.server.prepare(anthropic::text("Two."));
    stage.done("branches");
    stage.finish();
}

fn compacting(class: &Class) {
    /// More lines than are too few to compact.
    const LINES: usize = 60;
    let mut stage = class.plays(&["compacting"]);
    let lines: Vec<String> = (1..=LINES).map(|line| format!("Line {line} of a long story.")).collect();
    stage.server.prepare(anthropic::text(&lines.join("\n")));
    stage.server.prepare(anthropic::text("Now you know."));
    // The planner's answer: ranges of lines that go.
    stage.server.prepare(anthropic::text("10,45"));
    stage.done("compacting");
    stage.finish();
}

fn exporting(class: &Class) {
    let mut stage = class.plays(&["exporting"]);
    stage.server.prepare(anthropic::text("A fine text."));
    // It may come back as it was given: from the project's directory.
    let path = stage.sandbox.project().join(stage.driver.fact("exported")["path"].as_str().expect("a path"));
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(page.contains("</html>"), "{page}");
    stage.done("exporting");
    stage.finish();
}

#[test]
fn pi_0_73_1_asks_steers_aborts_and_stops() {
    the_core(&PI_0_73_1);
}

#[test]
fn pi_1_6_0_asks_steers_aborts_and_stops() {
    the_core(&PI_1_6_0);
}

#[test]
fn pi_0_73_1_cycles_models_and_levels() {
    levels(&PI_0_73_1);
}

#[test]
fn pi_1_6_0_cycles_models_and_levels() {
    levels(&PI_1_6_0);
}

#[test]
fn pi_0_73_1_forks_clones_and_switches() {
    branches(&PI_0_73_1);
}

#[test]
fn pi_1_6_0_forks_clones_and_switches() {
    branches(&PI_1_6_0);
}

#[test]
fn pi_0_73_1_exports() {
    exporting(&PI_0_73_1);
}

#[test]
fn pi_1_6_0_exports() {
    exporting(&PI_1_6_0);
}

#[test]
fn pi_0_73_1_compacts() {
    compacting(&PI_0_73_1);
}

#[test]
fn pi_1_6_0_compacts() {
    compacting(&PI_1_6_0);
}
