//! The built-in provider that needs neither key nor network.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{Sandbox, kinds};
use serde_json::json;

#[test]
fn it_runs_a_real_tool_and_talks_about_it() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--provider", "demo"]).start();
    assert_eq!(shim.get("get_state")["model"]["provider"], "demo");
    shim.rest();
    shim.prompt("1", "Show me what you can do.");
    let records = shim.until_settled();
    assert!(records[0].succeeded(), "{}", records[0].raw);
    let ends: Vec<_> = records.iter().filter(|record| record.kind() == "tool_execution_end").collect();
    assert!(!ends.is_empty(), "{:#?}", kinds(&records));
    assert!(ends.iter().all(|end| end["isError"] == false), "{:#?}", ends);
    assert!(records.iter().any(|record| record.delta_kind() == "text_delta"), "{:#?}", kinds(&records));
    let last =
        records.iter().rfind(|record| record.is_message("message_end", "assistant")).expect("an answer");
    assert_eq!(last["message"]["stopReason"], "stop", "{}", last.raw);
    assert!(shim.get("get_last_assistant_text")["text"].as_str().is_some_and(|text| !text.is_empty()));
    let roles: Vec<_> =
        shim.session_file().messages().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles.iter().filter(|role| *role == "toolResult").count(), ends.len(), "{roles:?}");
}

#[test]
fn it_is_never_chosen_silently() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    assert!(shim.get("get_state")["model"].is_null());
    assert_eq!(shim.get("get_available_models")["models"], json!([]));
    shim.prompt("1", "hi");
    shim.response("1").error();
}
