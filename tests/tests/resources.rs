//! Prompt templates, skills, system prompts in files, and whether a project's own are trusted.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::path::PathBuf;

use atomic_tests::{Exchange, ModelServer, Sandbox, Shim, anthropic};
use serde_json::{Value, json};

/// Writes a file below the sandbox's root and the directories it lies in.
fn write(sandbox: &Sandbox, path: &str, text: &str) -> PathBuf {
    if let Some((directory, _)) = path.rsplit_once('/') {
        sandbox.dir(directory);
    }
    sandbox.write(path, text)
}

/// Prompts, answers, and gives the user's texts and the system prompt that the model got.
#[track_caller]
fn run(server: &ModelServer, shim: &mut Shim, message: &str) -> (Vec<String>, String) {
    server.prepare(anthropic::text("done"));
    shim.ask(json!({"type": "prompt", "message": message})).data();
    shim.until_settled();
    let request = server.last_request();
    let users =
        request.conversation().into_iter().filter_map(|line| Some(line.strip_prefix("user: ")?.to_owned()));
    (users.collect(), request.body["system"].to_string())
}

fn streaming(server: &ModelServer, sandbox: &Sandbox) -> (Shim, Exchange) {
    let mut shim = sandbox.rpc();
    shim.prompt("1", "start");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::text("first"), 3);
    shim.wait_for_delta("first");
    (shim, exchange)
}

fn release(mut exchange: Exchange) {
    for event in [anthropic::block_stop(0), anthropic::message_delta("end_turn"), anthropic::message_stop()] {
        exchange.event(&event);
    }
    exchange.finish();
}

fn names(commands: &Value) -> Vec<&str> {
    commands["commands"].as_array().expect("commands").iter().filter_map(|c| c["name"].as_str()).collect()
}

const SKILL: &str = "---\nname: pdf\ndescription: Reads PDF files\n---\n\nUse the script.\n";

#[test]
fn a_template_is_what_the_model_reads() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    write(
        &sandbox,
        "home/.atomic/agent/prompts/review.md",
        "---\ndescription: R\n---\nReview $1: $ARGUMENTS",
    );
    let mut shim = sandbox.rpc();
    let (users, _) = run(&server, &mut shim, "/review a.rs 'b c'");
    assert_eq!(users, ["Review a.rs: a.rs b c"]);
    let entries = shim.get("get_messages");
    assert_eq!(entries["messages"][0]["content"][0]["text"], "Review a.rs: a.rs b c");
    let (users, _) = run(&server, &mut shim, "/unknown a");
    assert_eq!(users[1..], ["/unknown a"]);
}

#[test]
fn what_is_queued_is_expanded_already() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    write(&sandbox, "home/.atomic/agent/prompts/t.md", "Now $1");
    write(&sandbox, "home/.atomic/agent/skills/pdf/SKILL.md", SKILL);
    let (mut shim, exchange) = streaming(&server, &sandbox);
    for (command, queue, text) in [
        (json!({"type": "steer", "message": "/t one"}), "steering", "Now one"),
        (json!({"type": "follow_up", "message": "/t two"}), "followUp", "Now two"),
        (
            json!({"type": "prompt", "message": "/t three", "streamingBehavior": "followUp"}),
            "followUp",
            "Now three",
        ),
        (json!({"type": "steer", "message": "/none"}), "steering", "/none"),
    ] {
        shim.ask(command).data();
        let update = shim.wait_for_kind("queue_update");
        assert_eq!(update[queue].as_array().and_then(|queue| queue.last()), Some(&json!(text)));
    }
    shim.ask(json!({"type": "steer", "message": "/skill:pdf x"})).data();
    let update = shim.wait_for_kind("queue_update");
    let last = update["steering"][2].as_str().expect("a text");
    assert!(last.starts_with("<skill name=\"pdf\"") && last.ends_with("</skill>\n\nx"), "{last}");
    shim.ask(json!({"type": "clear_queue"})).data();
    release(exchange);
    shim.until_settled();
}

#[test]
fn a_skill_is_named_to_the_model_and_put_in_for_the_user() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let file = write(&sandbox, "home/.atomic/agent/skills/pdf/SKILL.md", SKILL);
    let mut shim = sandbox.rpc();
    let (users, system) = run(&server, &mut shim, "/skill:pdf  page 3 ");
    assert!(system.contains("<name>pdf</name>") && system.contains("Reads PDF files"), "{system}");
    assert!(system.contains(&format!("<location>{}</location>", file.display())), "{system}");
    let directory = file.parent().expect("a directory");
    let expected = format!(
        ">\nReferences are relative to {}.\n\nUse the script.\n</skill>\n\npage 3",
        directory.display()
    );
    let head = format!("<skill name=\"pdf\" location=\"{}\" candidate=\"skill_", file.display());
    assert!(users[0].starts_with(&head) && users[0].ends_with(&expected), "{}", users[0]);
    let mut without = sandbox.shim().args(["--no-session", "--tools", "bash"]).start();
    assert!(!run(&server, &mut without, "x").1.contains("available_skills"), "it cannot be read");
}

#[test]
fn a_skill_that_cannot_be_chosen_is_an_event_and_the_line_stays() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    write(&sandbox, "home/.atomic/agent/skills/pdf/SKILL.md", SKILL);
    write(&sandbox, "home/.agents/skills/pdf/SKILL.md", SKILL);
    let mut shim = sandbox.rpc();
    server.prepare(anthropic::text("done"));
    shim.ask(json!({"type": "prompt", "message": "/skill:pdf@user x"})).data();
    let records = shim.until_settled();
    let error = records.iter().find(|record| record.kind() == "extension_error").expect("an event");
    assert_eq!(
        (&error["extensionPath"], &error["event"]),
        (&json!("skill:pdf@user"), &json!("skill_expansion"))
    );
    assert!(error["error"].as_str().is_some_and(|text| text.contains("/skill:pdf@agents")), "{}", error.raw);
    assert_eq!(server.last_request().conversation(), ["user: /skill:pdf@user x"]);
}

#[test]
fn commands_are_prompts_then_skills() {
    let sandbox = Sandbox::new();
    let template = write(&sandbox, "home/.atomic/agent/prompts/fix.md", "---\ndescription: Fix it\n---\nx");
    let skill = write(&sandbox, "home/.atomic/agent/skills/pdf/SKILL.md", SKILL);
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    let info = |path: &PathBuf| json!({"path": path, "source": "auto", "scope": "user", "origin": "top-level", "baseDir": sandbox.agent_dir()});
    assert_eq!(
        shim.get("get_commands"),
        json!({"commands": [
            {"name": "fix", "description": "Fix it", "source": "prompt", "location": "user", "path": template,
             "sourceInfo": info(&template)},
            {"name": "skill:pdf", "description": "Reads PDF files", "source": "skill", "location": "user",
             "path": skill, "sourceInfo": info(&skill)},
        ]})
    );
    for name in ["fix", "unknown"] {
        let ask = json!({"type": "get_command_completions", "commandName": name, "argumentPrefix": ""});
        assert_eq!(*shim.ask(ask).data(), json!({"completions": null}));
    }
    let wrong = shim.ask(json!({"type": "get_command_completions", "commandName": "x"}));
    assert_eq!(wrong.error(), "Invalid get_command_completions command: argumentPrefix must be a string");
}

#[test]
fn flags_add_and_leave_out() {
    let sandbox = Sandbox::new();
    write(&sandbox, "home/.atomic/agent/prompts/a.md", "x");
    write(&sandbox, "home/.atomic/agent/skills/b/SKILL.md", SKILL);
    write(&sandbox, "project/mine/c.md", "x");
    write(&sandbox, "project/own/SKILL.md", "---\nname: d\ndescription: D\n---\n");
    for (arguments, expected) in [
        (&["-np", "-ns"][..], vec![]),
        (&["--no-prompt-templates"], vec!["skill:pdf"]),
        (&["--prompt-template", "mine", "--skill", "own"], vec!["a", "c", "skill:pdf", "skill:d"]),
        (&["-ns", "-np", "--skill", "own/SKILL.md"], vec!["skill:d"]),
    ] {
        let mut shim = sandbox.shim().args(["--no-session"]).args(arguments).start();
        assert_eq!(names(&shim.get("get_commands")), expected, "{arguments:?}");
        assert_eq!(shim.finish().stderr, "", "{arguments:?}");
    }
    let mut shim = sandbox.shim().args(["--no-session", "--skill", "nowhere"]).start();
    shim.get("get_state");
    let stderr = shim.finish().stderr;
    assert!(stderr.starts_with("Warning: cannot read ") && stderr.contains("project/nowhere"), "{stderr}");
}

/// A project that brings everything along.
fn project(sandbox: &Sandbox) {
    write(sandbox, "project/AGENTS.md", "Project says tabs.");
    write(sandbox, "project/.atomic/APPEND_SYSTEM.md", "Project appends.");
    write(sandbox, "project/.atomic/settings.json", r#"{"steeringMode":"all","skills":["more"]}"#);
    write(sandbox, "project/.atomic/prompts/p.md", "x");
    write(sandbox, "project/.atomic/more/pdf/SKILL.md", SKILL);
}

#[test]
fn a_project_is_loaded_only_when_it_is_trusted() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    project(&sandbox);
    let key = sandbox.project().to_str().expect("UTF-8").to_owned();
    for (arguments, decisions, setting, trusted, noted) in [
        (&[][..], None, None, false, true),
        (&[], None, Some("never"), false, false),
        (&["--approve"], None, None, true, false),
        (&["-na"], None, Some("always"), false, false),
        (&[], None, Some("always"), true, false),
        (&[], Some(json!({key.as_str(): true})), None, true, false),
        (&[], Some(json!({"/": true, key.as_str(): false})), Some("always"), false, false),
        (&["-a"], Some(json!({key.as_str(): false})), None, true, false),
    ] {
        let shown = format!("{arguments:?} {decisions:?} {setting:?}");
        write(&sandbox, "home/.atomic/agent/trust.json", &decisions.unwrap_or_else(|| json!({})).to_string());
        sandbox.write_settings(&json!({"defaultProjectTrust": setting}));
        let mut shim = sandbox.shim().args(["--no-session"]).args(arguments).start();
        let system = run(&server, &mut shim, "x").1;
        let found =
            ["Project says tabs.", "Project appends.", "<name>pdf</name>"].map(|text| system.contains(text));
        assert_eq!(found, [trusted; 3], "{shown}: {system}");
        let expected = if trusted { vec!["p", "skill:pdf"] } else { vec![] };
        assert_eq!(names(&shim.get("get_commands")), expected, "{shown}");
        let mode = if trusted { "all" } else { "one-at-a-time" };
        assert_eq!(shim.get("get_state")["steeringMode"], mode, "{shown}");
        let stderr = shim.finish().stderr;
        let notes: Vec<&str> = stderr.lines().filter(|line| line.starts_with("Note: ")).collect();
        assert_eq!(notes.len(), usize::from(noted), "{shown}: {stderr}");
        assert!(notes.iter().all(|note| note.contains("--approve")), "{stderr}");
        assert_eq!(stderr.lines().count(), notes.len(), "{shown}: {stderr}");
    }
}

#[test]
fn the_verb_remembers_and_forgets() {
    let sandbox = Sandbox::new();
    project(&sandbox);
    let commands = |sandbox: &Sandbox| {
        let mut shim = sandbox.shim().args(["--no-session"]).start();
        let commands = names(&shim.get("get_commands")).len();
        shim.finish();
        commands
    };
    let project = sandbox.project();
    let shown = project.display().to_string();
    let verb = |arguments: &[&str]| sandbox.atomic(&[&["trust"], arguments].concat());
    assert_eq!(commands(&sandbox), 0);
    let said = verb(&[&shown]).expect_code(0).stdout;
    assert!(said.starts_with(&format!("{shown} is trusted")), "{said}");
    assert_eq!(commands(&sandbox), 2);
    let file = sandbox.agent_dir().join("trust.json");
    let text = std::fs::read_to_string(&file).expect("it was written");
    assert_eq!(text, format!("{{\n  \"{shown}\": true\n}}\n"));
    assert_eq!(verb(&[&shown, "--revoke"]).expect_code(0).stdout, format!("{shown} is not trusted\n"));
    assert_eq!(commands(&sandbox), 0);
    let around = project.parent().expect("a directory around it").display().to_string();
    verb(&[&around]).expect_code(0);
    let said = verb(&[&shown, "--revoke"]).expect_code(0).stdout;
    assert_eq!(said, format!("{shown} is still trusted, because {around} is\n"));
    assert_eq!(commands(&sandbox), 2);
    assert!(verb(&["nowhere"]).expect_code(1).stderr.starts_with("Error: cannot resolve nowhere: "));
    std::fs::write(&file, "{").expect("ours");
    let refused = verb(&[&shown]).expect_code(1).stderr;
    assert!(refused.contains("trust.json: it is not a JSON object"), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "{", "left as it was");
    assert_eq!(commands(&sandbox), 0, "what cannot be read trusts nothing");
    assert!(!sandbox.agent_dir().join("trust.json.lock").exists());
}

#[test]
fn approval_does_not_reach_into_another_directory() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    project(&sandbox);
    let mut first = sandbox.shim().args(["--approve"]).start();
    run(&server, &mut first, "x");
    let file = first.get("get_state")["sessionFile"].as_str().expect("a file").to_owned();
    first.finish();
    sandbox.kill_daemon();
    let elsewhere = sandbox.dir("elsewhere");
    let mut shim = sandbox.shim().directory(elsewhere).args(["--approve", "--session", &file]).start();
    assert_eq!(names(&shim.get("get_commands")), [""; 0]);
    let stderr = shim.finish().stderr;
    assert!(stderr.contains("--approve"), "{stderr}");
}

#[test]
fn who_joins_is_told_what_was_not_applied() {
    let sandbox = Sandbox::new();
    let mut first = sandbox.rpc();
    let file = first.get("get_state")["sessionFile"].as_str().expect("a file").to_owned();
    let mut second = sandbox.shim().args(["--session", &file, "-a", "--skill", "x", "-np"]).start();
    second.get("get_state");
    let stderr = second.finish().stderr;
    assert!(stderr.contains("--no-prompt-templates, --skill, --approve not applied"), "{stderr}");
}

#[test]
fn a_reload_takes_over_what_changed() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    write(&sandbox, "home/.atomic/agent/prompts/t.md", "old");
    write(&sandbox, "home/.atomic/agent/AGENTS.md", "Old rule.");
    let mut shim = sandbox.rpc();
    let (users, system) = run(&server, &mut shim, "/t");
    assert!(users == ["old"] && system.contains("Old rule."), "{users:?} {system}");
    write(&sandbox, "home/.atomic/agent/prompts/t.md", "new");
    write(&sandbox, "home/.atomic/agent/prompts/u.md", "another");
    write(&sandbox, "home/.atomic/agent/AGENTS.md", "New rule.");
    write(&sandbox, "home/.atomic/agent/SYSTEM.md", "You are terse.");
    sandbox.write_settings(&json!({"followUpMode": "all", "shellCommandPrefix": "echo before;"}));
    let mut models = json!({"providers": {"mock": {"models": []}}});
    models["providers"]["mock"] = json!({
        "baseUrl": server.url(), "api": "anthropic-messages", "apiKey": "mock-key",
        "models": [{"id": "mock-model", "name": "Renamed", "contextWindow": 1000, "maxTokens": 100},
                   {"id": "added", "contextWindow": 1000, "maxTokens": 100}],
    });
    sandbox.write_models(&models);
    // Nothing changes before it is asked for.
    assert_eq!(run(&server, &mut shim, "/t").0[1..], ["old"]);
    let answer = shim.ask(json!({"type": "reload"}));
    assert!(answer.raw.ends_with(r#""command":"reload","success":true}"#), "{}", answer.raw);
    let (users, system) = run(&server, &mut shim, "/t");
    assert_eq!(users[2..], ["new"]);
    for (text, there) in
        [("Old rule.", false), ("New rule.", true), ("You are terse.", true), ("Model: Renamed", true)]
    {
        assert_eq!(system.contains(text), there, "{text}: {system}");
    }
    assert_eq!(names(&shim.get("get_commands")), ["t", "u"]);
    let state = shim.get("get_state");
    assert_eq!((&state["followUpMode"], &state["model"]["name"]), (&json!("all"), &json!("Renamed")));
    let models = shim.get("get_available_models");
    assert!(
        models["models"].as_array().expect("models").iter().any(|model| model["id"] == "added"),
        "{models}"
    );
    let output = shim.ask(json!({"type": "bash", "command": "echo x"})).data()["output"].clone();
    assert_eq!(output, "before\nx\n");
    assert_eq!(shim.finish().stderr, "");
}

#[test]
fn a_reload_keeps_what_it_cannot_read() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    write(&sandbox, "home/.atomic/agent/prompts/t.md", "good");
    sandbox.write_settings(&json!({"followUpMode": "all"}));
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    write(&sandbox, "home/.atomic/agent/prompts/t.md", "---\nwords\n---\nbad");
    write(&sandbox, "home/.atomic/agent/settings.json", "{");
    write(&sandbox, "home/.atomic/agent/models.json", "{");
    shim.ask(json!({"type": "reload"})).data();
    assert_eq!(run(&server, &mut shim, "/t").0, ["good"]);
    assert_eq!(shim.get("get_state")["followUpMode"], "all");
    let stderr = shim.finish().stderr;
    for file in ["settings.json", "prompts/t.md", "models.json"] {
        assert!(
            stderr.lines().any(|line| line.starts_with("Warning: ") && line.contains(file)),
            "{file}: {stderr}"
        );
    }
}

#[test]
fn a_reload_meets_a_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox);
    write(&sandbox, "home/.atomic/agent/AGENTS.md", "New rule.");
    shim.ask(json!({"type": "reload"})).data();
    shim.ask(json!({"type": "steer", "message": "go on"})).data();
    server.prepare(anthropic::text("second"));
    release(exchange);
    shim.until_settled();
    assert!(server.last_request().body["system"].to_string().contains("New rule."));
}
