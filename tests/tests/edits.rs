//! Calls that change files.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Sandbox, anthropic};
use serde_json::json;

/// Each of them finds only what the one before it left.
#[test]
fn edits_of_one_file_in_one_message_are_made_in_their_order() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let file = sandbox.write("project/counter", "0");
    let edit = |from: usize| {
        let edits = json!([{"oldText": from.to_string(), "newText": (from + 1).to_string()}]);
        json!({"path": "counter", "edits": edits})
    };
    let calls: Vec<_> = ["c0", "c1", "c2", "c3", "c4", "c5"].into_iter().enumerate().collect();
    let calls: Vec<_> = calls.into_iter().map(|(from, id)| (id, "edit", edit(from))).collect();
    server.prepare(anthropic::tool_calls(&calls));
    server.prepare(anthropic::text("Six."));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "Count.");
    let records = shim.until_settled();
    let failed: Vec<_> = records
        .iter()
        .filter(|record| record.kind() == "tool_execution_end" && record["isError"] == true)
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(std::fs::read_to_string(file).expect("the file"), "6");
}
