//! Clients as the protocol's own page shows them, in our words, in the two languages it uses. Those that others wrote are
//! in `clients_pi.rs` and `clients_acp.rs`.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::path::PathBuf;

use atomic_tests::{
    ModelServer, Running, Sandbox, Signal, anthropic, clients_dir, node, require_program, signal,
};

/// Starts one of them; it finds `atomic` on its PATH.
fn run(sandbox: &Sandbox, interpreter: PathBuf, script: &str) -> Running {
    let mut command = sandbox.command(interpreter);
    command.arg(clients_dir().join(script)).env("PYTHONDONTWRITEBYTECODE", "1");
    Running::spawn(command)
}

#[test]
fn the_basic_client_in_python() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::texts(&["Hello", " there"]));
    let client = run(&sandbox, require_program("python3"), "basic_client.py");
    let finished = client.wait().expect("the client ends by itself").expect_code(0);
    assert_eq!(finished.stdout, "Hello there\n", "{}", finished.stderr);
    assert_eq!(server.last_request().conversation(), ["user: Hello!"]);
    assert_eq!(sandbox.session_files(), Vec::<PathBuf>::new());
}

/// Ctrl+C reaches the whole foreground group: the client, which sends an abort, and the shim, which must live to carry it.
#[test]
fn the_interactive_client_in_node_and_its_ctrl_c() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut client = run(&sandbox, node(), "interactive_client.js");
    let mut exchange = server.next_request();
    assert_eq!(exchange.request.conversation(), ["user: Hello"]);
    // A separator of JavaScript's own that is no end of a line here.
    exchange.begin(&anthropic::texts(&["line\u{2028}separator\n", " and more"]), 4);
    client.wait_for_stdout("line\u{2028}separator\n");
    let shims = sandbox.processes().into_iter().filter(|process| process.program() == "atomic");
    let group: Vec<u32> = shims.map(|shim| shim.pid).chain([client.pid()]).collect();
    assert_eq!(group.len(), 2, "{:#?}", sandbox.processes());
    group.into_iter().for_each(|pid| signal(pid, Signal::Interrupt));
    exchange.wait_for_hang_up();
    client.wait_for_stdout("(abort: true)\n");
    client.close_stdin();
    let finished = client.wait().expect("the client ends after its input").expect_code(0);
    assert_eq!(
        finished.stdout, "(prompt: true)\nline\u{2028}separator\n\n(aborted)\n(abort: true)\n",
        "{}",
        finished.stderr
    );
}
