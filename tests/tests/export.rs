//! A session as a page.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Sandbox, Shim, anthropic};
use serde_json::{Value, json};

#[test]
fn a_session_is_written_as_a_page() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let export = |shim: &mut Shim, fields: Value| {
        let mut command = json!({"type": "export_html"});
        command.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        shim.ask(command)
    };
    assert_eq!(export(&mut shim, json!({})).error(), "Nothing to export yet - start a conversation first");
    server.prepare(anthropic::text("A fine text."));
    shim.prompt("1", "Write one.");
    shim.until_settled();
    let stem = shim.session_file().path().file_stem().expect("a name").to_string_lossy().into_owned();
    let by_default = sandbox.project().join(format!("atomic-session-{stem}.html"));
    let named = sandbox.project().join("page.html");
    let absolute = sandbox.dir("pages").join("p.html");
    for (fields, expected) in [
        (json!({}), by_default),
        (json!({"outputPath": "page.html"}), named),
        (json!({"outputPath": absolute}), absolute),
    ] {
        let answer = export(&mut shim, fields);
        assert_eq!(answer.data(), &json!({"path": expected}));
        let page = std::fs::read_to_string(&expected).expect("the page");
        assert!(page.contains("A fine text.") && page.contains("</html>"));
    }
    let refused = export(&mut shim, json!({"outputPath": "page.html/p.html"}));
    assert!(refused.error().contains("page.html/p.html"), "{}", refused.raw);

    let mut memory = sandbox.shim().args(["--no-session"]).start();
    server.prepare(anthropic::text("Hello."));
    memory.prompt("1", "hi");
    memory.until_settled();
    assert_eq!(export(&mut memory, json!({})).error(), "Cannot export in-memory session to HTML");
}

/// The path comes from a client: what it leads to by mistake stays as it is.
#[test]
fn nothing_but_a_page_is_overwritten() {
    use std::os::unix::fs::symlink;

    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    server.prepare(anthropic::text("A fine text."));
    shim.prompt("1", "Write one.");
    shim.until_settled();
    let file = shim.session_file();
    let before = file.bytes();
    let project = sandbox.project();
    sandbox.write("project/notes.txt", "my notes");
    std::fs::create_dir(project.join("folder.html")).expect("a directory");
    symlink("loop.html", project.join("loop.html")).expect("a link");
    symlink("notes.txt", project.join("link.html")).expect("a link");
    let made = sandbox.command("mkfifo").arg(project.join("pipe.html")).status().expect("mkfifo");
    assert!(made.success());
    let paths = [file.arg(), "notes.txt", "folder.html", "loop.html", "link.html", "pipe.html", "/dev/full"];
    for path in paths {
        let refused = shim.ask(json!({"type": "export_html", "outputPath": path}));
        assert!(refused.error().contains(path), "{}", refused.raw);
        let refused = sandbox.atomic(&["sessions", "export", file.arg(), path]).expect_code(1);
        assert!(refused.stderr.contains(path), "{}", refused.stderr);
    }
    assert_eq!(file.bytes(), before);
    assert_eq!(std::fs::read_to_string(project.join("notes.txt")).expect("the notes"), "my notes");
    assert!(project.join("link.html").is_symlink() && project.join("loop.html").is_symlink());
    // A page is made anew, and an empty file is there to be filled.
    sandbox.write("project/empty.html", "");
    for path in ["page.html", "page.html", "empty.html"] {
        shim.ask(json!({"type": "export_html", "outputPath": path})).data();
        assert!(std::fs::read_to_string(project.join(path)).expect("the page").contains("A fine text."));
    }
}
