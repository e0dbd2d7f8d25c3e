//! Clients that others wrote, unchanged.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::path::Path;

use atomic_tests::{ModelServer, Running, Sandbox, anthropic};

/// The "Basic Client" of the protocol's own page, which finds `atomic` on the PATH.
#[test]
fn the_python_example_of_the_protocols_page() {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/basic_client.py");
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    if !sandbox.command("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no python3 on the PATH, the example client was not run");
        return;
    }
    server.prepare(anthropic::texts(&["Hello", " there"]));
    let mut command = sandbox.command("python3");
    command.arg("-B").arg(&client);
    let finished = Running::spawn(command).wait().expect("the client ends by itself").expect_code(0);
    assert_eq!(finished.stdout, "Hello there\n", "{}", finished.stderr);
    assert_eq!(server.last_request().conversation(), ["user: Hello!"]);
    assert_eq!(sandbox.session_files(), Vec::<std::path::PathBuf>::new());
}
