//! One daemon takes over from another: no client sees more than a pause.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use atomic_link::client::Client;
use atomic_link::place::Place;
use atomic_protocol::link::{Hello, LINK_VERSION, Mode, OsText, Reply, build_id};
use atomic_tests::{
    Exchange, ModelServer, Record, Running, Sandbox, Shim, Signal, anthropic, binaries, eventually,
};
use serde_json::{Value, json};

/// Longest wait for a reply to a hello.
const WITHIN: Duration = Duration::from_secs(10);

/// Waits until another daemon than `old` is the only one.
fn next_daemon(sandbox: &Sandbox, old: u32) -> u32 {
    eventually("another daemon serves alone", || match sandbox.daemons()[..] {
        [only] if only != old => Some(only),
        _ => None,
    })
}

/// A restart on its way.
fn restart(sandbox: &Sandbox, arguments: &[&str]) -> Running {
    let mut command = sandbox.command(&binaries().atomic);
    command.arg("restart").args(arguments);
    let mut running = Running::spawn(command);
    running.close_stdin();
    running
}

fn succeeds(restart: Running) -> String {
    restart.wait().expect("it ends").expect_code(0).stdout
}

/// A run that waits in the middle of its answer.
fn streaming(server: &ModelServer, shim: &mut Shim, id: &str) -> Exchange {
    shim.prompt(id, "start");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    shim.wait_for_delta("one ");
    exchange
}

fn release(mut exchange: Exchange) {
    let answer = anthropic::texts(&["one ", "two"]);
    for event in &answer.events[answer.events.len() - 4..] {
        exchange.event(event);
    }
    exchange.finish();
}

/// The ids of all responses to lines that the test wrote, in the order in which they came.
fn answered(shim: &mut Shim) -> Vec<String> {
    let ids = shim.records().iter().filter(|record| record.is_response()).map(|record| &record["id"]);
    ids.filter_map(Value::as_str).filter(|id| !id.starts_with("ask-")).map(str::to_owned).collect()
}

/// The `data` of the response with this id, which has come.
fn data_of(shim: &mut Shim, id: &str) -> Value {
    let found = shim.records().iter().find(|record| record.is_response() && record["id"] == id);
    found.expect("it has come").data().clone()
}

/// The texts of the users' messages in the session's file.
fn user_texts(shim: &mut Shim) -> Vec<String> {
    let messages = shim.session_file().messages();
    let users = messages.iter().filter(|message| message["role"] == "user");
    users.map(|message| message["content"][0]["text"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn idle_windows_go_on_and_hear_nothing_of_it() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("one"));
    let mut said = sandbox.shim().args(["--tools", "read"]).start();
    said.prompt("1", "one?");
    said.until_settled();
    let file = said.session_file();
    let joined = sandbox.shim().args(["--session", file.arg()]).start();
    let untouched = sandbox.shim().args(["--thinking", "high"]).start();
    let mut chosen = sandbox.rpc();
    chosen.ask(json!({"type": "set_thinking_level", "level": "low"})).data();
    let mut shims = [said, joined, untouched, chosen];
    let states = |shims: &mut [Shim; 4]| shims.each_mut().map(|shim| shim.get("get_state"));
    let before = states(&mut shims);
    shims.iter_mut().for_each(|shim| drop(shim.rest()));
    let old = sandbox.daemon();
    let told = succeeds(restart(&sandbox, &[]));
    assert!(told.contains("hands over\n") && told.ends_with("has taken over\n"), "{told}");
    next_daemon(&sandbox, old);
    shims.iter_mut().for_each(Shim::assert_quiet);
    assert_eq!(states(&mut shims), before);
    server.prepare(anthropic::text("two"));
    shims[1].prompt("2", "two?");
    shims[0].until_settled();
    let request = server.last_request();
    assert_eq!(request.conversation(), ["user: one?", "assistant: one", "user: two?"]);
    assert_eq!(
        request.body["tools"].as_array().map(Vec::len),
        Some(1),
        "shaped as it was, whoever came first"
    );
    for mut shim in shims {
        let finished = shim.finish().expect_code(0);
        assert_eq!(finished.stderr, "");
    }
}

#[test]
fn a_command_that_is_held_can_be_aborted() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut runs = sandbox.rpc();
    let exchange = streaming(&server, &mut runs, "run");
    let mut types = sandbox.shim().args(["--session", runs.session_file().arg()]).start();
    types.get("get_state");
    let restarting = restart(&sandbox, &[]);
    restarting.wait_for_stdout("(running)\n");
    for id in ["x", "y"] {
        types.send(json!({"id": id, "type": "bash", "command": "sleep 1000"}));
    }
    types.send(json!({"id": "a", "type": "abort_bash", "requestId": "x"}));
    types.send(json!({"id": "b", "type": "abort_bash"}));
    release(exchange);
    succeeds(restarting);
    while answered(&mut types).len() < 4 {
        types.wait_for("an answer", Record::is_response);
    }
    assert_eq!(["x", "y"].map(|id| data_of(&mut types, id)["cancelled"].clone()), [true, true]);
}

#[test]
fn a_run_settles_first_and_lines_typed_meanwhile_go_to_the_next_daemon() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut runs = sandbox.rpc();
    let exchange = streaming(&server, &mut runs, "run");
    let mut types = sandbox.shim().args(["--session", runs.session_file().arg()]).start();
    let mut idle = sandbox.rpc();
    idle.get("get_state");
    let old = sandbox.daemon();
    let restarting = restart(&sandbox, &[]);
    restarting.wait_for_stdout("(running)\n");

    // New work is held, reads are answered, and what follows held work keeps its place.
    assert_eq!(types.get("get_state")["isStreaming"], true);
    let ahead: Vec<Value> = (0..20)
        .map(|n| match n % 3 {
            0 => json!({"id": format!("h{n}"), "type": "set_session_name", "name": format!("name {n}")}),
            1 => json!({"id": format!("h{n}"), "type": "get_state"}),
            _ => json!({"id": format!("h{n}"), "type": "bash", "command": format!("echo {n} >> order")}),
        })
        .collect();
    types.send_together(&ahead);
    types.send_raw(b"{\"id\":\"open\",\"type\":\"get_");
    idle.prompt("late", "from the idle one");
    let newcomer = sandbox.rpc().get("get_state");
    assert_eq!(newcomer["isStreaming"], false, "windows open meanwhile");
    assert_eq!(sandbox.daemon(), old);
    assert_eq!((answered(&mut types), answered(&mut idle)), (vec![], vec![]));

    server.prepare(anthropic::text("late answer"));
    release(exchange);
    let told = succeeds(restarting);
    assert!(told.contains("waiting for session ") && told.contains("(running)"), "{told}");
    next_daemon(&sandbox, old);
    types.send_raw(b"state\"}\n");
    types.response("open");
    for n in 0..20 {
        assert_eq!(types.response(format!("h{n}"))["success"], true);
    }
    let mut order = answered(&mut types);
    order.sort();
    order.dedup();
    assert_eq!(order.len(), 21, "each answered once: {order:?}");
    let names: Vec<Value> =
        (1..20).step_by(3).map(|n| data_of(&mut types, &format!("h{n}"))["sessionName"].clone()).collect();
    let wanted: Vec<Value> = (0..19).step_by(3).map(|n| json!(format!("name {n}"))).collect();
    assert_eq!(names, wanted, "a read sees the change before it");
    let ran = std::fs::read_to_string(sandbox.project().join("order")).expect("commands ran");
    let mut ran: Vec<u32> = ran.lines().map(|line| line.parse().expect("a number")).collect();
    ran.sort_unstable();
    assert_eq!(ran, [2, 5, 8, 11, 14, 17], "each once");

    let ends = |records: &[Record]| records.iter().filter(|record| record.kind() == "agent_settled").count();
    idle.until_settled();
    assert_eq!(user_texts(&mut idle), ["from the idle one"]);
    assert_eq!((ends(runs.records()), ends(types.records()), ends(idle.records())), (1, 1, 1));
    assert_eq!(user_texts(&mut runs), ["start"]);
    for shim in [&mut runs, &mut types, &mut idle] {
        assert_eq!(shim.stderr(), "");
    }
}

#[test]
fn with_now_a_run_is_aborted_and_the_window_stays() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let exchange = streaming(&server, &mut shim, "run");
    shim.ask(json!({"type": "follow_up", "message": "later"})).data();
    shim.send(json!({"id": "b", "type": "bash", "command": "echo up; sleep 661"}));
    shim.wait_for_kind("bash_execution_update");
    let mut memory = sandbox.shim().args(["--no-session"]).start();
    let id = memory.get("get_state")["sessionId"].as_str().expect("an id").to_owned();
    let old = sandbox.daemon();
    succeeds(restart(&sandbox, &["--now"]));
    exchange.wait_for_hang_up();
    let records = shim.until_settled();
    let end = records.iter().find(|record| record.kind() == "message_end").expect("the message ends");
    assert_eq!(end["message"]["stopReason"], "aborted");
    assert_eq!(shim.response("b").data()["cancelled"], true);
    next_daemon(&sandbox, old);
    assert_eq!(shim.get("get_state")["isStreaming"], false);
    let ended = memory.wait_for_exit().expect_code(1);
    assert_eq!(
        ended.stderr,
        format!("Error: session {id} was in memory only and ended with `atomic restart --now`\n")
    );
    server.prepare(anthropic::text("here"));
    shim.prompt("2", "still there?");
    shim.until_settled();
    assert_eq!(user_texts(&mut shim), ["start", "still there?"]);
    assert_eq!(shim.stderr(), "");
}

#[test]
fn a_session_in_memory_is_waited_for_and_keeps_nobody_from_working() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut memory = sandbox.shim().args(["--no-session"]).start();
    let mut other = sandbox.rpc();
    memory.get("get_state");
    let old = sandbox.daemon();
    let restarting = restart(&sandbox, &[]);
    restarting.wait_for_stdout("(in memory only)\n");
    server.prepare(anthropic::text("one"));
    other.prompt("1", "one?");
    other.until_settled();
    let second = sandbox.atomic(&["restart"]).expect_code(1);
    assert!(second.stderr.contains("restarting atomicd; try again"), "{}", second.stderr);
    memory.finish().expect_code(0);
    succeeds(restarting);
    next_daemon(&sandbox, old);
    assert_eq!(other.get("get_state")["messageCount"], 2);
}

#[test]
fn who_hangs_up_calls_it_off_and_held_lines_are_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let exchange = streaming(&server, &mut shim, "run");
    let mut leaves = sandbox.shim().args(["--session", shim.session_file().arg()]).start();
    leaves.get("get_state");
    let old = sandbox.daemon();
    let restarting = restart(&sandbox, &[]);
    restarting.wait_for_stdout("(running)\n");
    leaves.send(json!({"id": "last", "type": "set_session_name", "name": "left"}));
    leaves.close_stdin();
    shim.send(json!({"id": "n", "type": "bash", "command": "echo ran"}));
    assert!(answered(&mut shim).iter().all(|id| id != "n"));
    restarting.signal(Signal::Interrupt);
    restarting.wait().expect("it ends");
    assert_eq!(shim.response("n").data()["output"], "ran\n");
    leaves.wait_for_exit().expect_code(0);
    assert_eq!(leaves.response("last")["success"], true);
    release(exchange);
    shim.until_settled();
    assert_eq!(sandbox.daemon(), old);
}

#[test]
fn a_held_last_word_goes_to_the_next_daemon_too() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let exchange = streaming(&server, &mut shim, "run");
    let file = shim.session_file();
    let restarting = restart(&sandbox, &[]);
    restarting.wait_for_stdout("(running)\n");
    shim.send(json!({"id": "last", "type": "set_session_name", "name": "left"}));
    shim.close_stdin();
    release(exchange);
    succeeds(restarting);
    shim.wait_for_exit().expect_code(0);
    assert_eq!(shim.response("last")["success"], true);
    assert!(file.entries().iter().any(|entry| entry["name"] == "left"));
}

#[test]
fn control_lines_are_served_while_others_are_held() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let exchange = streaming(&server, &mut shim, "run");
    let old = sandbox.daemon();
    let restarting = restart(&sandbox, &[]);
    restarting.wait_for_stdout("(running)\n");
    shim.send_together(&[
        json!({"id": "held", "type": "set_session_name", "name": "after"}),
        json!({"id": "abort", "type": "abort"}),
    ]);
    shim.until_settled();
    exchange.wait_for_hang_up();
    succeeds(restarting);
    next_daemon(&sandbox, old);
    shim.response("held");
    assert_eq!(answered(&mut shim), ["run", "abort", "held"], "each once");
}

#[test]
fn a_restart_without_a_daemon_says_so() {
    let sandbox = Sandbox::new();
    let said = sandbox.atomic(&["restart"]).expect_code(0);
    assert!(said.stdout.starts_with("atomicd is not running"), "{}", said.stdout);
    assert!(sandbox.daemons().is_empty());
}

/// The build of [`upgraded`]: as long as the version, whose place it takes.
const OTHER_BUILD: &str = "0.1.x";

/// Copies of the programs that are another build.
fn upgraded(sandbox: &Sandbox) -> PathBuf {
    let dir = sandbox.dir("upgraded");
    for program in [&binaries().atomic, &binaries().atomicd] {
        let mark = b"atomic build: ";
        let mut bytes = std::fs::read(program).expect("a program");
        let marked: Vec<usize> = memchr::memmem::find_iter(&bytes, mark).map(|at| at + mark.len()).collect();
        let mut found = 0;
        for at in marked {
            if bytes[at..].starts_with(build_id().as_bytes()) {
                bytes[at..at + OTHER_BUILD.len()].copy_from_slice(OTHER_BUILD.as_bytes());
                found += 1;
            }
        }
        assert!(found > 0, "{} does not say which build it is", program.display());
        let to = dir.join(program.file_name().expect("a name"));
        write_program(&to, &bytes);
    }
    dir
}

/// By another process: a descriptor of ours that is open for writing would be inherited by whatever another test starts
/// just then, and a program that somebody has open for writing cannot be run.
fn write_program(to: &Path, bytes: &[u8]) {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let script = "cat > \"$1\" && chmod 755 \"$1\"";
    let mut child = Command::new("/bin/sh")
        .args(["-c", script, "sh"])
        .arg(to)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("it reads");
    assert!(child.wait().expect("it ends").success());
}

fn build_of_daemon(sandbox: &Sandbox) -> Value {
    let status = sandbox.atomic(&["status", "--json"]).expect_code(0);
    serde_json::from_str::<Value>(&status.stdout).expect("JSON")["build"].clone()
}

#[test]
fn another_build_replaces_an_idle_daemon_and_is_served_by_a_busy_one() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let dir = upgraded(&sandbox);
    let mut old_window = sandbox.rpc();
    let exchange = streaming(&server, &mut old_window, "run");
    let old = sandbox.daemon();
    // Busy: served.
    let mut new_window = sandbox.shim().program(dir.join("atomic")).start();
    new_window.get("get_state");
    assert_eq!(sandbox.daemon(), old);
    assert_eq!(build_of_daemon(&sandbox), build_id());
    release(exchange);
    old_window.until_settled();
    let before = [old_window.get("get_state"), new_window.get("get_state")];
    // Idle: the next window brings its own daemon, and the others go along.
    let mut next_window = sandbox.shim().program(dir.join("atomic")).start();
    next_window.get("get_state");
    let new = next_daemon(&sandbox, old);
    assert_eq!(build_of_daemon(&sandbox), OTHER_BUILD);
    assert_eq!([old_window.get("get_state"), new_window.get("get_state")], before);
    // A window of the same version and another build replaces it again; those that were there are only served.
    let mut print = sandbox.shim().program(dir.join("atomic")).start();
    print.get("get_state");
    assert_eq!(sandbox.daemon(), new);
    for shim in [&mut old_window, &mut new_window, &mut next_window] {
        assert_eq!(shim.stderr(), "");
    }
}

#[test]
fn an_upgraded_program_takes_over_by_restart() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let dir = upgraded(&sandbox);
    let mut shims = [sandbox.rpc(), sandbox.rpc(), sandbox.rpc()];
    let before = shims.each_mut().map(|shim| shim.get("get_state"));
    let old = sandbox.daemon();
    let mut command = sandbox.command(dir.join("atomic"));
    command.arg("restart");
    let mut running = Running::spawn(command);
    running.close_stdin();
    succeeds(running);
    next_daemon(&sandbox, old);
    assert_eq!(build_of_daemon(&sandbox), OTHER_BUILD, "however quick the windows of the old one were");
    assert_eq!(shims.each_mut().map(|shim| shim.get("get_state")), before);
}

#[test]
fn messages_survive_a_clash_of_builds() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let dir = upgraded(&sandbox);
    let mut window = sandbox.rpc();
    let before = window.get("get_state");
    let old = sandbox.daemon();
    server.prepare(anthropic::text("said"));
    let mut command = sandbox.command(dir.join("atomic"));
    command.args(["-p", "say it"]);
    let mut running = Running::spawn(command);
    running.close_stdin();
    assert_eq!(succeeds(running), "said\n");
    next_daemon(&sandbox, old);
    assert_eq!(window.get("get_state"), before);
}

#[test]
fn another_link_version_is_refused_with_what_helps_and_can_still_restart() {
    let sandbox = Sandbox::new();
    sandbox.rpc().get("get_state");
    let place = Place::of(&sandbox.agent_dir()).expect("a place");
    let other = |mode| Hello {
        link: LINK_VERSION + 1,
        version: "9.9.9".into(),
        cwd: OsText::from_os(sandbox.project().as_os_str()),
        argv: vec!["--mode".into(), "rpc".into()],
        mode,
        ..Hello::default()
    };
    let refused = Client::connect(&place, &other(Mode::Rpc), WITHIN).expect("an answer");
    let Reply::Refused { text, code: 1 } = refused.reply() else { panic!("{:?}", refused.reply()) };
    for part in ["9.9.9", env!("CARGO_PKG_VERSION"), "atomic restart"] {
        assert!(text.contains(part), "{text}");
    }
    let report = Client::connect(&place, &other(Mode::Status), WITHIN).expect("an answer");
    assert!(matches!(report.reply(), Reply::Report(_)), "{:?}", report.reply());
}
