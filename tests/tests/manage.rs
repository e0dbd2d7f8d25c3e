//! Sessions as objects: `atomic sessions`, `atomic attach`, `list_sessions` and `attach_session`.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Sandbox, SessionFile, Shim, anthropic, eventually};
use serde_json::{Value, json};

/// A session in this directory of the sandbox in which this was said; it goes on being live.
fn talked(server: &ModelServer, sandbox: &Sandbox, dir: &str, said: &str) -> (Shim, SessionFile, String) {
    let mut shim = sandbox.shim().directory(sandbox.dir(dir)).start();
    server.prepare(anthropic::text(&format!("about {said}")));
    shim.prompt("1", said);
    shim.until_settled();
    let file = shim.session_file();
    let id = shim.get("get_state")["sessionId"].as_str().expect("an id").to_owned();
    (shim, file, id)
}

fn listed(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    let finished = sandbox.atomic(&[&["sessions", "--json"], arguments].concat()).expect_code(0);
    assert_eq!(finished.stderr, "", "{arguments:?}");
    let answer: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    answer["sessions"].as_array().expect("a list").clone()
}

fn ids(sessions: &[Value]) -> Vec<&str> {
    sessions.iter().map(|session| session["id"].as_str().expect("an id")).collect()
}

#[test]
fn sessions_are_listed_searched_and_shown_live_and_stored() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    assert_eq!(listed(&sandbox, &[]), Vec::<Value>::new());
    assert_eq!(sandbox.processes(), Vec::new(), "no daemon is started");
    let empty = sandbox.atomic(&["sessions"]).expect_code(0);
    assert_eq!(empty.stdout, "No sessions here; --all lists those of all directories\n");

    let (mut first, file, beans) = talked(&server, &sandbox, "project", "the Beans");
    first.finish().expect_code(0);
    let (mut second, _, peas) = talked(&server, &sandbox, "project", "the peas");
    let (mut third, _, other) = talked(&server, &sandbox, "other", "beans elsewhere");
    third.finish().expect_code(0);
    let mut fresh = sandbox.rpc();
    let unwritten = fresh.get("get_state")["sessionId"].clone();

    // The order is that of speaking; one in which nothing was said began last.
    let here = listed(&sandbox, &[]);
    assert_eq!(ids(&here), [unwritten.as_str().expect("an id"), &peas, &beans]);
    assert_eq!((&here[0]["messageCount"], &here[0]["firstMessage"]), (&json!(0), &json!("(no messages)")));
    assert_eq!(here[1]["live"], json!({"clients": 1, "running": false}));
    let row = &here[2];
    assert_eq!((&row["path"], &row["cwd"]), (&json!(file.path()), &json!(sandbox.project())));
    assert_eq!((&row["messageCount"], &row["firstMessage"]), (&json!(2), &json!("the Beans")));
    assert_eq!(row["size"], json!(file.path().metadata().expect("the file").len()));
    assert_eq!(listed(&sandbox, &["--all"]).len(), 4);
    assert_eq!(ids(&listed(&sandbox, &["list", "-a", "beans", "about"])), [other.as_str(), &beans]);
    assert_eq!(ids(&listed(&sandbox, &["ABOUT", "the"])), [peas.as_str(), &beans], "what the model said");
    let lines = sandbox.atomic(&["sessions", "beans"]).expect_code(0).stdout;
    assert!(lines.starts_with(&beans) && lines.ends_with("\n    the Beans\n"), "{lines}");

    // The same for a program that is connected.
    let answer = second.ask(json!({"type": "list_sessions"}));
    assert_eq!(json!(here), answer.data()["sessions"]);
    let answer = second.ask(json!({"type": "list_sessions", "all": true, "query": "elsewhere"}));
    assert_eq!(ids(answer.data()["sessions"].as_array().expect("a list")), [other]);

    let shown = sandbox.atomic(&["sessions", "show", &beans]).expect_code(0).stdout;
    for line in ["messages     2 (1 of the user, 1 of models, 0 tool results)\n", "begins with  the Beans\n"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    let shown = sandbox.atomic(&["sessions", "show", file.arg(), "--json"]).expect_code(0).stdout;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((&shown["id"], &shown["stats"]["userMessages"]), (&json!(beans), &json!(1)));
    let unknown = sandbox.atomic(&["sessions", "show", "zzz"]).expect_code(1);
    assert!(unknown.stderr.starts_with("Error: no session found matching 'zzz'"), "{}", unknown.stderr);

    let page = sandbox.atomic(&["sessions", "export", &beans, "page.html"]).expect_code(0).stdout;
    assert_eq!(page, format!("{}\n", sandbox.project().join("page.html").display()));
    assert!(sandbox.project().join("page.html").is_file());
    second.finish().expect_code(0);
    fresh.finish().expect_code(0);
}

#[test]
fn a_session_is_renamed_by_its_owner_whoever_that_is() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, file, id) = talked(&server, &sandbox, "project", "hi");
    // Live: the daemon does it, and its clients hear of it.
    let finished = sandbox.atomic(&["sessions", "rename", &id[..30], " red", "beans"]).expect_code(0);
    assert_eq!(finished.stdout, format!("Renamed {} to \"red beans\"\n", file.path().display()));
    let event = shim.wait_for("the news", |record| record.kind() == "session_info_changed");
    assert_eq!(event["name"], "red beans");
    assert_eq!(shim.get("get_state")["sessionName"], "red beans");
    shim.finish().expect_code(0);
    sandbox.kill_daemon();
    // Stored: nobody has it.
    let before = file.lines();
    sandbox.atomic(&["sessions", "rename", file.arg(), "peas"]).expect_code(0);
    assert_eq!(sandbox.daemons(), Vec::<u32>::new(), "no daemon is started");
    let after = file.lines();
    assert_eq!(after[..before.len()], before[..]);
    let entry = &after[before.len()];
    assert_eq!((&entry["type"], &entry["name"]), (&json!("session_info"), &json!("peas")));
    assert_eq!(entry["parentId"], before[before.len() - 1]["id"]);
    assert_eq!(listed(&sandbox, &["peas"])[0]["name"], "peas");
    let nothing = sandbox.atomic(&["sessions", "rename", &id, " "]).expect_code(1);
    assert!(nothing.stderr.starts_with("Error: Wrong number of arguments\n"), "{}", nothing.stderr);
}

#[test]
fn only_what_nobody_uses_is_deleted_and_only_when_it_is_confirmed() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, file, id) = talked(&server, &sandbox, "project", "hi");
    let before = file.lines();
    let refused = sandbox.atomic(&["sessions", "delete", &id, "--yes"]).expect_code(1);
    assert_eq!(
        refused.stderr,
        format!(
            "Error: session {id} is in use: 1 client is attached.\nHint: close its clients (and let its turn end, or abort \
             it) first; `atomic status` shows them.\n"
        )
    );
    shim.finish().expect_code(0);
    let unasked = sandbox.atomic(&["sessions", "delete", &id]).expect_code(1);
    assert!(unasked.stderr.contains("needs a confirmation"), "{}", unasked.stderr);
    // Another process has the lock: neither the daemon nor we.
    assert_eq!(file.lines(), before);
    // It is still in memory, and nobody's: the daemon lets it go.
    let deleted = sandbox.atomic(&["sessions", "delete", &id, "-y"]).expect_code(0);
    assert_eq!(deleted.stdout, format!("Deleted {}\n", file.path().display()));
    assert!(!file.exists());
    let status = sandbox.atomic(&["status", "--json"]).expect_code(0).stdout;
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["sessions"], json!([]));
    assert_eq!(listed(&sandbox, &["--all"]), Vec::<Value>::new());
    sandbox.kill_daemon();
    let mut shim = sandbox.shim().args(["-c"]).start();
    assert_eq!(shim.get("get_state")["messageCount"], 0, "it stays gone");
    shim.finish().expect_code(0);
    let foreign = sandbox.write("project/notes.jsonl", "my notes\n");
    let refused = sandbox.atomic(&["sessions", "delete", "notes.jsonl", "-y"]).expect_code(1);
    assert!(refused.stderr.contains("not a valid atomic session"), "{}", refused.stderr);
    assert!(foreign.exists());
}

/// On a terminal it is asked, and what is not clearly a yes is a no.
#[test]
fn on_a_terminal_deleting_is_asked_for() {
    const SPAWN: &str = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    atomic_tests::require_program("python3");
    let sandbox = Sandbox::new();
    let line = "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"cwd\":\"/\"}\n";
    let path = sandbox.write("project/s.jsonl", line);
    for (typed, code, said) in
        [("\n", 1, "nothing was deleted"), ("no\n", 1, "nothing was deleted"), ("Y\n", 0, "Deleted ")]
    {
        let mut command = sandbox.command("python3");
        command.args(["-c", SPAWN]).arg(&atomic_tests::binaries().atomic);
        command.args(["sessions", "delete", "s.jsonl"]);
        let mut running = atomic_tests::Running::spawn(command);
        // The terminal keeps it until it is read.
        running.write(typed.as_bytes());
        let finished = running.wait().expect("it ends").expect_code(code);
        for said in ["s.jsonl for good? [y/N] ", said] {
            assert!(finished.stdout.contains(said), "{typed:?}: {}", finished.stdout);
        }
        assert_eq!(path.exists(), code != 0);
    }
}

#[test]
fn a_beginning_that_fits_several_changes_none_of_them() {
    let sandbox = Sandbox::new();
    for id in ["ab1", "ab2", "ab"] {
        let line = format!("{{\"type\":\"session\",\"version\":3,\"id\":\"{id}\",\"cwd\":\"/\"}}\n");
        let dir = sandbox.agent_dir().join("sessions/--x--");
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join(format!("{id}.jsonl")), line).expect("a file");
    }
    let refused = sandbox.atomic(&["sessions", "delete", "a", "-y"]).expect_code(1);
    assert!(refused.stderr.starts_with("Error: 'a' fits 3 sessions:\n"), "{}", refused.stderr);
    let deleted = sandbox.atomic(&["sessions", "delete", "ab", "-y"]).expect_code(0);
    assert!(deleted.stdout.ends_with("/ab.jsonl\n"), "{}", deleted.stdout);
    assert_eq!(sandbox.session_files().len(), 2);
}

#[test]
fn attach_joins_what_exists_and_creates_nothing() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    for wish in ["no-such-id", "none.jsonl"] {
        let refused = sandbox.atomic(&["attach", wish]).expect_code(1);
        assert_eq!(refused.stderr, format!("No session found matching '{wish}'\n"));
    }
    assert!(!sandbox.project().join("none.jsonl").exists());
    // Live and not written yet, by the beginning of its id.
    let mut first = sandbox.rpc();
    let state = first.get("get_state");
    let id = state["sessionId"].as_str().expect("an id");
    let mut second = sandbox.attach(&id[..id.len() - 1]);
    assert_eq!(second.get("get_state")["sessionId"], state["sessionId"]);
    // Stored, when its daemon is gone.
    server.prepare(anthropic::text("yes"));
    second.prompt("1", "there?");
    second.until_settled();
    first.kill();
    second.kill();
    sandbox.kill_daemon();
    let mut third = sandbox.attach(id);
    assert_eq!(third.get("get_state")["messageCount"], 2);
    third.finish().expect_code(0);
}

#[test]
fn attach_session_moves_the_connection_by_id() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut stored, file, beans) = talked(&server, &sandbox, "other", "beans");
    stored.finish().expect_code(0);
    sandbox.kill_daemon();
    let (mut live, _, peas) = talked(&server, &sandbox, "project", "peas");
    let mut shim = sandbox.rpc();
    let answer = shim.ask(json!({"type": "attach_session", "sessionId": beans}));
    assert_eq!(answer.data(), &json!({"cancelled": false, "sessionId": beans, "sessionFile": file.path()}));
    assert_eq!(shim.get("get_last_assistant_text")["text"], "about beans");
    shim.ask(json!({"type": "attach_session", "sessionId": peas})).data();
    assert_eq!(shim.get("get_last_assistant_text")["text"], "about peas");
    let answer = shim.ask(json!({"type": "attach_session", "sessionId": "zzz"}));
    assert_eq!(answer["error"], "No session found matching 'zzz'");
    assert_eq!(shim.get("get_state")["sessionId"], json!(peas), "it stays where it is");
    let answer = shim.ask(json!({"type": "attach_session", "sessionId": " "}));
    assert_eq!(
        answer["error"],
        "Invalid attach_session command: sessionId must be a string that is not empty"
    );
    shim.finish().expect_code(0);
    live.finish().expect_code(0);
}

/// A program that knows no lock (upstream's agent) writes to a live session.
#[test]
fn appends_of_another_program_are_kept_and_told() {
    use std::io::Write as _;

    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, file, _) = talked(&server, &sandbox, "project", "one");
    let leaf = file.lines().last().expect("a line")["id"].clone();
    let line = json!({"type": "message", "id": "f0f0f0f0", "parentId": leaf, "timestamp": "2026-01-01T00:00:00.000Z",
        "message": {"role": "user", "content": "from elsewhere", "timestamp": 1}});
    let mut other = std::fs::OpenOptions::new().append(true).open(file.path()).expect("the file");
    writeln!(other, "{line}").expect("it is appended");
    let before = std::fs::read(file.path()).expect("the file");
    server.prepare(anthropic::text("two"));
    shim.prompt("2", "two?");
    shim.until_settled();
    let after = std::fs::read(file.path()).expect("the file");
    assert!(after.starts_with(&before), "nothing of it is touched");
    let entries = shim.get("get_entries");
    let found: Vec<&Value> =
        entries["entries"].as_array().expect("entries").iter().map(|entry| &entry["id"]).collect();
    let stored = file.lines();
    let stored: Vec<&Value> = stored[1..].iter().map(|entry| &entry["id"]).collect();
    assert_eq!(found, stored, "what is answered is what the file holds");
    let first_of_ours =
        &file.lines()[found.iter().position(|id| **id == "f0f0f0f0").expect("it is there") + 2];
    assert_eq!(first_of_ours["parentId"], leaf, "its entries are a branch of their own");
    eventually("the warning", || shim.stderr().contains("Warning: another program appends to").then_some(()));
    shim.finish().expect_code(0);
}

#[test]
fn an_old_file_is_kept_before_it_is_rewritten_and_the_caller_is_told() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let cwd = serde_json::to_string(&sandbox.project()).expect("a path");
    let old = format!(
        "{{\"type\":\"session\",\"id\":\"old\",\"timestamp\":\"2024-01-01T00:00:00.000Z\",\"cwd\":{cwd}}}\n\
         {{\"type\":\"message\",\"timestamp\":\"2024-01-01T00:00:00.000Z\",\"message\":{{\"role\":\"user\",\"content\":\"hi\",\"timestamp\":1}}}}\n"
    );
    let path = sandbox.write("project/old.jsonl", &old);
    let mut shim = sandbox.attach("old.jsonl");
    assert_eq!(shim.get("get_state")["messageCount"], 1);
    let backup = sandbox.project().join("old.jsonl.v1.bak");
    assert_eq!(std::fs::read_to_string(&backup).expect("the copy"), old);
    assert!(std::fs::read_to_string(&path).expect("the file").contains("\"version\":3"));
    eventually("the note", || shim.stderr().contains(&backup.display().to_string()).then_some(()));
    shim.finish().expect_code(0);
}

/// Whatever a path leads to, it is answered, and nothing there is touched.
#[test]
fn what_is_no_session_is_refused_and_left_as_it_is() {
    use std::os::unix::fs::symlink;

    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let dir = sandbox.project();
    let fifo = dir.join("pipe.jsonl");
    let made = sandbox.command("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success());
    let loops = dir.join("loop.jsonl");
    symlink(&loops, &loops).expect("a link");
    std::fs::create_dir(dir.join("folder.jsonl")).expect("a directory");
    let foreign = [
        ("README.jsonl", "# Read me\n\ntext\n"),
        ("data.jsonl", "{\n  \"a\": 1\n}\n"),
        ("other.jsonl", "{\"type\":\"message\",\"id\":\"a\"}\n"),
        ("zeros.jsonl", "\0\0\0\0"),
        ("torn.jsonl", "{\"type\":\"session\",\"version\":3,\"id\":\"s"),
    ];
    for (name, content) in foreign {
        sandbox.write(&format!("project/{name}"), content);
    }
    let names = foreign.map(|(name, _)| name);
    for name in
        names.into_iter().chain(["pipe.jsonl", "loop.jsonl", "folder.jsonl", "/dev/full", "/dev/null"])
    {
        for arguments in [&["--mode", "rpc", "--session", name][..], &["attach", name]] {
            let refused = sandbox.atomic(arguments).expect_code(1);
            assert_eq!(refused.stdout, "", "{arguments:?}");
            assert!(refused.stderr.contains(name), "{arguments:?}: {}", refused.stderr);
        }
        let answer = shim.ask(json!({"type": "switch_session", "sessionPath": name}));
        assert!(answer.error().contains(name), "{}", answer.raw);
        for verb in ["show", "export"] {
            let refused = sandbox.atomic(&["sessions", verb, name]).expect_code(1);
            assert!(refused.stderr.contains(name), "{verb}: {}", refused.stderr);
        }
        let refused = sandbox.atomic(&["sessions", "delete", "-y", name]).expect_code(1);
        assert!(refused.stderr.contains(name), "{}", refused.stderr);
    }
    for (name, content) in foreign {
        assert_eq!(std::fs::read_to_string(dir.join(name)).expect("the file"), content, "{name}");
    }
    // An empty file is taken by whoever creates, and by nobody who does not.
    let empty = sandbox.write("project/empty.jsonl", "");
    sandbox.atomic(&["attach", "empty.jsonl"]).expect_code(1);
    sandbox.shim().args(["--session", "empty.jsonl"]).start().finish().expect_code(0);
    assert_eq!(std::fs::read(&empty).expect("the file"), b"", "nothing was said in it");
    shim.finish().expect_code(0);
}
