//! Forks, clones, the tree of entries, labels, and going on from another entry.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Record, Sandbox, Shim, anthropic, keys, kinds};
use serde_json::{Value, json};

const UNSAVED: &str = "This session has not been saved yet. Wait for the first assistant response before cloning or forking it.";

/// One question and its answer.
#[track_caller]
fn talk(server: &ModelServer, shim: &mut Shim, question: &str, answer: &str) -> Vec<Record> {
    server.prepare(anthropic::text(answer));
    shim.rest();
    shim.ask(json!({"type": "prompt", "message": question})).data();
    shim.until_settled()
}

/// The id of the user message with this text.
#[track_caller]
fn message_id(shim: &mut Shim, text: &str) -> String {
    let entries = shim.get("get_entries");
    let found =
        entries["entries"].as_array().into_iter().flatten().find(|entry| {
            entry["message"]["role"] == "user" && entry["message"]["content"][0]["text"] == text
        });
    found.and_then(|entry| entry["id"].as_str()).unwrap_or_else(|| panic!("no {text}: {entries}")).to_owned()
}

fn texts(messages: &Value) -> Vec<&str> {
    let messages = messages["messages"].as_array().expect("messages").iter();
    messages.filter_map(|message| message["content"][0]["text"].as_str()).collect()
}

#[track_caller]
fn fork(shim: &mut Shim, id: &str) -> Record {
    shim.ask(json!({"type": "fork", "entryId": id}))
}

#[track_caller]
fn navigate(shim: &mut Shim, id: &str, options: Value) -> Record {
    shim.ask(json!({"type": "navigate_tree", "targetId": id, "options": options}))
}

#[test]
fn a_fork_holds_what_came_before_and_gives_the_text_back() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    talk(&server, &mut shim, "two?", "two");
    let (old, state) = (shim.session_file(), shim.get("get_state"));
    let bytes = old.bytes();
    let id = message_id(&mut shim, "two?");

    assert_eq!(fork(&mut shim, &id).data(), &json!({"text": "two?", "cancelled": false}));
    let forked = shim.get("get_state");
    assert_ne!(forked["sessionId"], state["sessionId"]);
    assert_eq!((&forked["messageCount"], &forked["model"]["id"]), (&json!(2), &state["model"]["id"]));
    let file = shim.session_file();
    assert_eq!(file.path().parent(), old.path().parent());
    let lines = file.lines();
    assert_eq!(lines[0]["parentSession"], json!(old.path()));
    assert_eq!(lines[0]["cwd"], json!(sandbox.project()));
    assert_eq!(json!(lines[1..]), json!(old.lines()[1..5]), "the entries before, ids included");
    talk(&server, &mut shim, "two, better?", "better");
    assert_eq!(server.last_request().conversation(), ["user: one?", "assistant: one", "user: two, better?"]);
    assert_eq!(old.bytes(), bytes, "the old file is untouched");
}

#[test]
fn a_fork_at_the_first_message_begins_with_nothing() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let old = shim.session_file();
    let id = message_id(&mut shim, "one?");
    assert_eq!(fork(&mut shim, &id).data()["text"], "one?");
    let state = shim.get("get_state");
    assert_eq!((&state["messageCount"], &state["thinkingLevel"]), (&json!(0), &json!("medium")));
    assert!(!shim.session_file().exists(), "there is no message yet");
    talk(&server, &mut shim, "one again?", "again");
    assert_eq!(server.last_request().conversation(), ["user: one again?"]);
    assert_eq!(shim.session_file().lines()[0]["parentSession"], json!(old.path()));
}

#[test]
fn a_fork_may_start_on_a_branch_that_was_left() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    talk(&server, &mut shim, "left?", "left");
    talk(&server, &mut shim, "far?", "far");
    let (left, far) = (message_id(&mut shim, "left?"), message_id(&mut shim, "far?"));
    navigate(&mut shim, &left, json!({})).data();
    talk(&server, &mut shim, "right?", "right");
    assert_eq!(fork(&mut shim, &far).data()["text"], "far?");
    assert_eq!(texts(&shim.get("get_messages")), ["one?", "one", "left?", "left"]);
}

#[test]
fn what_cannot_be_forked_says_so_and_changes_nothing() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let id = shim.get("get_state")["sessionId"].clone();
    assert_eq!(fork(&mut shim, "nope").error(), UNSAVED);
    assert_eq!(shim.ask(json!({"type": "clone"})).error(), UNSAVED);
    talk(&server, &mut shim, "one?", "one");
    let entries = shim.get("get_entries");
    for entry in entries["entries"].as_array().expect("entries") {
        if entry["message"]["role"] != "user" {
            let answer = fork(&mut shim, entry["id"].as_str().expect("an id"));
            assert_eq!(answer.error(), "Invalid entry ID for forking", "{entry}");
        }
    }
    assert_eq!(fork(&mut shim, "nope").error(), "Invalid entry ID for forking");
    assert_eq!(shim.get("get_state")["sessionId"], id);
    talk(&server, &mut shim, "two?", "two");
}

#[test]
fn a_clone_holds_the_whole_branch_and_goes_its_own_way() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let (old, bytes) = (shim.session_file(), shim.session_file().bytes());
    assert_eq!(shim.ask(json!({"type": "clone"})).data(), &json!({"cancelled": false}));
    let file = shim.session_file();
    assert_ne!(file.path(), old.path());
    assert_eq!(json!(file.entries()), json!(old.entries()));
    assert_eq!(file.lines()[0]["parentSession"], json!(old.path()));
    talk(&server, &mut shim, "two?", "two");
    assert_eq!(server.last_request().conversation(), ["user: one?", "assistant: one", "user: two?"]);
    assert_eq!(old.bytes(), bytes);
}

#[test]
fn sessions_in_memory_branch_as_well() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    talk(&server, &mut shim, "one?", "one");
    talk(&server, &mut shim, "two?", "two");
    let id = message_id(&mut shim, "two?");
    shim.ask(json!({"type": "clone"})).data();
    assert_eq!(texts(&shim.get("get_messages")), ["one?", "one", "two?", "two"]);
    assert_eq!(fork(&mut shim, &id).data()["text"], "two?");
    assert_eq!(texts(&shim.get("get_messages")), ["one?", "one"]);
    let state = shim.get("get_state");
    assert!(state.get("sessionFile").is_none(), "{state}");
    assert!(sandbox.session_files().is_empty());
}

#[test]
fn fork_messages_are_those_of_all_branches_with_a_text() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    assert_eq!(shim.get("get_fork_messages"), json!({"messages": []}));
    talk(&server, &mut shim, "one?", "one");
    talk(&server, &mut shim, "", "empty");
    let first = message_id(&mut shim, "one?");
    navigate(&mut shim, &first, json!({})).data();
    talk(&server, &mut shim, "other?", "other");
    let other = message_id(&mut shim, "other?");
    assert_eq!(
        shim.get("get_fork_messages"),
        json!({"messages": [{"entryId": first, "text": "one?"}, {"entryId": other, "text": "other?"}]})
    );
}

#[test]
fn the_tree_has_each_entry_under_the_one_it_follows() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    talk(&server, &mut shim, "left?", "left");
    let left = message_id(&mut shim, "left?");
    navigate(&mut shim, &left, json!({})).data();
    talk(&server, &mut shim, "right?", "right");
    shim.ask(json!({"type": "set_label", "entryId": left, "label": "old way"})).data();
    let tree = shim.get("get_tree");
    assert_eq!(keys(&tree), ["tree", "leafId"]);
    assert_eq!(tree["leafId"], shim.get("get_entries")["leafId"]);
    // model, level, one?, one: from there two branches.
    let mut node = &tree["tree"][0];
    for _ in 0..3 {
        assert_eq!(keys(node), ["entry", "children"]);
        assert_eq!(node["children"].as_array().map(Vec::len), Some(1), "{node}");
        node = &node["children"][0];
    }
    let branches = node["children"].as_array().expect("children");
    let said = |node: &Value| node["entry"]["message"]["content"][0]["text"].clone();
    assert_eq!(branches.iter().map(said).collect::<Vec<_>>(), [json!("left?"), json!("right?")]);
    assert_eq!(keys(&branches[0]), ["entry", "children", "label", "labelTimestamp"]);
    assert_eq!(branches[0]["label"], "old way");
    assert!(branches[0]["labelTimestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
}

#[test]
fn an_orphan_is_a_root_too() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let user = |id: &str, parent: Value| {
        json!({"type": "message", "id": id, "parentId": parent, "timestamp": "2026-01-01T00:00:01.000Z",
            "message": {"role": "user", "content": [{"type": "text", "text": id}], "timestamp": 1}})
    };
    let header = json!({"type": "session", "version": 3, "id": "orphans", "timestamp": "2026-01-01T00:00:00.000Z",
        "cwd": sandbox.project()});
    let lines = [header, user("aaaaaaaa", Value::Null), user("bbbbbbbb", json!("00000000"))];
    let file = sandbox.write("orphans.jsonl", lines.map(|line| format!("{line}\n")).concat());
    let mut shim = sandbox.shim().args(["--session".as_ref(), file.as_os_str()]).start();
    let tree = shim.get("get_tree");
    let roots: Vec<&Value> =
        tree["tree"].as_array().expect("a tree").iter().map(|node| &node["entry"]["id"]).collect();
    assert_eq!(roots, ["aaaaaaaa", "bbbbbbbb"]);
    drop(server);
}

#[test]
fn going_to_a_user_message_gives_its_text_back_and_goes_on_before_it() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    talk(&server, &mut shim, "two?", "two");
    let (first, second) = (message_id(&mut shim, "one?"), message_id(&mut shim, "two?"));
    let data = navigate(&mut shim, &second, json!({"label": "back"}));
    assert_eq!(data.data(), &json!({"cancelled": false, "editorText": "two?"}));
    assert_eq!(texts(&shim.get("get_messages")), ["one?", "one"]);
    talk(&server, &mut shim, "two, better?", "better");
    assert_eq!(server.last_request().conversation(), ["user: one?", "assistant: one", "user: two, better?"]);
    let label = shim.session_file().entries().into_iter().find(|entry| entry["type"] == "label");
    let label = label.expect("a label");
    assert_eq!((&label["targetId"], &label["label"]), (&json!(second), &json!("back")));

    // The very first one: nothing is left of the conversation.
    assert_eq!(navigate(&mut shim, &first, json!({})).data()["editorText"], "one?");
    assert_eq!(shim.get("get_messages"), json!({"messages": []}));
    talk(&server, &mut shim, "zero?", "zero");
    assert_eq!(server.last_request().conversation(), ["user: zero?"]);
    assert_eq!(shim.get("get_session_stats")["userMessages"], 4, "nothing is lost");
}

#[test]
fn going_to_another_entry_goes_on_after_it() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let answer = shim.get("get_entries")["leafId"].as_str().expect("a leaf").to_owned();
    talk(&server, &mut shim, "two?", "two");
    let leaf = shim.get("get_entries")["leafId"].clone();
    assert_eq!(
        navigate(&mut shim, leaf.as_str().expect("a leaf"), json!({})).data(),
        &json!({"cancelled": false})
    );
    assert_eq!(shim.get("get_entries")["leafId"], leaf, "to the leaf itself changes nothing");
    assert_eq!(navigate(&mut shim, &answer, json!(null)).data(), &json!({"cancelled": false}));
    assert_eq!(shim.get("get_entries")["leafId"], json!(answer));
    assert_eq!(texts(&shim.get("get_messages")), ["one?", "one"]);
    talk(&server, &mut shim, "another two?", "two");
    let conversation = server.last_request().conversation();
    assert_eq!(conversation, ["user: one?", "assistant: one", "user: another two?"]);
    assert_eq!(navigate(&mut shim, "nope", json!({})).error(), "Entry nope not found");
}

#[test]
fn nobody_goes_elsewhere_during_a_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let exchange = server.next_request();
    let id = message_id(&mut shim, "hi");
    assert_eq!(
        navigate(&mut shim, &id, json!({})).error(),
        "Wait for the current response to finish before navigating the session tree."
    );
    exchange.answer(&anthropic::text("hello"));
    shim.until_settled();
    navigate(&mut shim, &id, json!({})).data();
}

/// Without a model nobody can summarize what is left behind; and from where one is there is nothing to summarize.
#[test]
fn a_summary_needs_a_model() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let (id, file) = (message_id(&mut shim, "one?"), shim.session_file());
    let leaf = shim.get("get_entries")["leafId"].as_str().expect("a leaf").to_owned();
    navigate(&mut shim, &leaf, json!({"summarize": true})).data();
    shim.kill();
    sandbox.kill_daemon();
    sandbox.write_models(&json!({"providers": {}}));
    let mut shim = sandbox.shim().args(["--session", file.arg()]).start();
    assert_eq!(shim.get("get_state")["model"], Value::Null);
    let refused = navigate(&mut shim, &id, json!({"summarize": true}));
    assert_eq!(refused.error(), "No model available for summarization");
    assert_eq!(navigate(&mut shim, &id, json!({"summarize": false})).data()["editorText"], "one?");
}

#[test]
fn labels_are_entries_and_can_be_taken_away() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let id = message_id(&mut shim, "one?");
    shim.rest();
    shim.ask(json!({"type": "set_label", "entryId": id, "label": "here"})).data();
    assert_eq!(kinds(&shim.rest()), ["response set_label"], "no event");
    let entry = shim.session_file().entries().pop().expect("an entry");
    assert_eq!(keys(&entry), ["type", "id", "parentId", "timestamp", "targetId", "label"]);
    let has_label = |tree: &Value| tree.to_string().contains("labelTimestamp");
    assert!(has_label(&shim.get("get_tree")));
    for none in [json!({}), json!({"label": null}), json!({"label": ""})] {
        shim.ask(json!({"type": "set_label", "entryId": id, "label": "again"})).data();
        let mut command = json!({"type": "set_label", "entryId": id});
        command.as_object_mut().expect("an object").extend(none.as_object().expect("an object").clone());
        shim.ask(command).data();
        assert!(!has_label(&shim.get("get_tree")), "{none}");
    }
    let unknown = shim.ask(json!({"type": "set_label", "entryId": "nope", "label": "x"}));
    assert_eq!(unknown.error(), "Entry nope not found");
    // The model does not see any of it.
    talk(&server, &mut shim, "two?", "two");
    assert_eq!(server.last_request().conversation(), ["user: one?", "assistant: one", "user: two?"]);
}
