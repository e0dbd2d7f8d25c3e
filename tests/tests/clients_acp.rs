//! pi-acp, unchanged, between an editor's SDK and our binaries. `tests/clients/acp.mjs` is the editor; here the model is
//! played.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::path::PathBuf;

use atomic_tests::anthropic;
use atomic_tests::{Driver, MODEL, ModelServer, Sandbox, atomic_path, node};
use serde_json::json;

struct Stage {
    server: ModelServer,
    sandbox: Sandbox,
    driver: Driver,
}

/// Starts an editor that plays one scenario.
fn plays(scenario: &str) -> Stage {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    // pi-acp reads session files itself; the variable tells both where they are.
    let place = sandbox.agent_dir();
    let environment = [("PI_CODING_AGENT_DIR", place.as_os_str())];
    let driver = Driver::start(&sandbox, &node(), "acp.mjs", &[atomic_path(), scenario], &environment);
    Stage { server, sandbox, driver }
}

impl Stage {
    /// Waits for the end of the driver; says what it measured.
    #[track_caller]
    fn finish(self) {
        let facts = self.driver.finish();
        for fact in facts.iter().filter(|fact| fact["ms"].is_number()) {
            eprintln!("{}: {} ms", fact["fact"], fact["ms"]);
        }
        drop(self.sandbox);
    }
}

#[test]
fn a_new_session_a_turn_and_its_usage() {
    let stage = plays("asking");
    stage.server.prepare(anthropic::thinking("Hm.", "sig", "Hello there"));
    stage.finish();
}

#[test]
fn tool_calls_and_diffs() {
    let stage = plays("tools");
    let edit = json!({"path": "poem.txt", "edits": [{"oldText": "red", "newText": "blue"}]});
    let calls = [
        ("c1", "bash", json!({"command": "echo wc says 1"})),
        ("c2", "edit", edit),
        ("c3", "write", json!({"path": "new.txt", "content": "Violets\n"})),
        ("c4", "read", json!({"path": "new.txt"})),
    ];
    for (id, name, arguments) in calls {
        stage.server.prepare(anthropic::tool_call(id, name, arguments));
    }
    stage.server.prepare(anthropic::text("Better."));
    stage.finish();
}

#[test]
fn a_turn_is_cancelled_and_the_session_goes_on() {
    /// Events that stay out: the end of the block and of the message.
    const END: usize = 3;
    let stage = plays("cancelling");
    let mut exchange = stage.server.next_request();
    exchange.begin(&anthropic::text("one"), END);
    exchange.wait_for_hang_up();
    stage.server.prepare(anthropic::text("Bye."));
    stage.finish();
}

#[test]
fn a_failed_turn_ends() {
    let stage = plays("failing");
    stage
        .server
        .next_request()
        .reply(400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#);
    stage.server.prepare(anthropic::text("Fine."));
    stage.finish();
}

#[test]
fn models_and_levels_are_switched() {
    let stage = plays("switching");
    stage.server.prepare(anthropic::text("The first."));
    let Stage { server, sandbox, driver } = stage;
    driver.finish();
    assert_eq!(server.last_request().body["model"], MODEL);
    drop(sandbox);
}

#[test]
fn a_session_is_listed_loaded_and_deleted() {
    let stage = plays("loading");
    stage.server.prepare(anthropic::tool_call("c1", "bash", json!({"command": "echo tea > memory"})));
    for text in ["Tea it is.", "Tea.", "Here."] {
        stage.server.prepare(anthropic::text(text));
    }
    stage.finish();
}

#[test]
fn a_session_is_exported() {
    let mut stage = plays("exporting");
    stage.server.prepare(anthropic::text("A fine text."));
    let path = PathBuf::from(stage.driver.fact("exported")["path"].as_str().expect("a path"));
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(page.contains("</html>"), "{page}");
    stage.finish();
}

/// What long conversations and extensions need; a test that waits for a part that is not built says so.
mod later {
    use super::*;

    #[test]
    fn a_session_is_compacted() {
        /// More lines than are too few to compact.
        const LINES: usize = 60;
        let stage = plays("compacting");
        let lines: Vec<String> = (1..=LINES).map(|line| format!("Line {line} of a long story.")).collect();
        stage.server.prepare(anthropic::text(&lines.join("\n")));
        stage.server.prepare(anthropic::text("Now you know."));
        // The planner's answer: ranges of lines that go.
        stage.server.prepare(anthropic::text("10,45"));
        stage.finish();
    }

    /// An extension's question becomes a permission that the editor asks for; its notice becomes a message.
    #[test]
    #[ignore = "needs extensions"]
    fn an_extensions_question_reaches_the_editor() {
        let stage = plays("dialogs");
        stage.sandbox.dir("home/.atomic/agent/extensions");
        stage.sandbox.write(
            "home/.atomic/agent/extensions/ask.ts",
            r#"export default function (pi) {
    pi.on("before_agent_start", async (event, ctx) => {
        const yes = await ctx.ui.confirm("Go on?", "This asks the model.");
        ctx.ui.notify(yes ? "Going on." : "Not going on.");
    });
}
"#,
        );
        stage.server.prepare(anthropic::text("Hello."));
        stage.finish();
    }
}
