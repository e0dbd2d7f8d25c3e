use super::*;
use proptest::prelude::*;

fn raws(texts: &[&str]) -> Vec<Raw> {
    texts.iter().map(|text| Raw::parse(text).unwrap()).collect()
}

/// One word per message: `u:text`, `a:text|+id=name`, `r:id=text` (`r!` for an error).
fn words(messages: &[Message]) -> Vec<String> {
    let text = |blocks: &[Block]| {
        let words = blocks.iter().map(|block| match block {
            Block::Text { text, .. } => text.clone(),
            Block::Image { .. } => "<image>".into(),
            Block::Thinking { thinking, .. } => format!("~{thinking}"),
            Block::ToolCall(call) => format!("+{}={}", call.id, call.name),
            Block::Other(raw) => raw.as_str().into(),
        });
        words.collect::<Vec<_>>().join("|")
    };
    let word = |message: &Message| match message {
        Message::User(user) => format!("u:{}", text(&user.content.blocks())),
        Message::Assistant(assistant) => format!("a:{}", text(&assistant.content)),
        Message::ToolResult(result) => {
            let mark = if result.is_error { "!" } else { "" };
            format!("r{mark}:{}={}", result.tool_call_id, text(&result.content))
        }
        other => panic!("no model takes {other:?}"),
    };
    messages.iter().map(word).collect()
}

fn shown(texts: &[&str]) -> Vec<String> {
    let Ok(messages) = for_model(&raws(texts), &ContextOptions::default());
    words(&messages)
}

const USER: &str = r#"{"role":"user","content":"go","timestamp":1}"#;

fn calls(ids: &[&str], stop: &str) -> String {
    let calls: Vec<String> = ids
        .iter()
        .map(|id| format!(r#"{{"type":"toolCall","id":"{id}","name":"bash","arguments":{{}}}}"#))
        .collect();
    format!(r#"{{"role":"assistant","content":[{}],"stopReason":"{stop}","timestamp":7}}"#, calls.join(","))
}

fn result(id: &str, text: &str) -> String {
    format!(
        r#"{{"role":"toolResult","toolCallId":"{id}","toolName":"bash","content":[{{"type":"text","text":"{text}"}}],"isError":false,"timestamp":8}}"#
    )
}

#[test]
fn user_like_messages_become_user_messages() {
    for (stored, expected) in [
        (r#"{"role":"user","content":[{"type":"text","text":" "},{"type":"text","text":"b"}]}"#, Some("u:b")),
        (r#"{"role":"user","content":" \n"}"#, None),
        (r#"{"role":"user","content":[]}"#, None),
        (r#"{"role":"user","content":[{"type":"new","x":1}]}"#, Some(r#"u:{"type":"new","x":1}"#)),
        (r#"{"role":"custom","customType":"t","content":"c","display":false}"#, Some("u:c")),
        (
            r#"{"role":"custom","customType":"t","content":"c","display":true,"excludeFromContext":true}"#,
            None,
        ),
        (r#"{"role":"branchSummary","summary":"","fromId":"x"}"#, None),
        (r#"{"role":"compactionSummary","summary":"x"}"#, None),
        (r#"{"role":"system","content":"x"}"#, None),
        (r#"{"content":"no role"}"#, None),
        (r#"{"role":"user"}"#, None),
        (r#"{"role":"user","content":7}"#, None),
        (
            r#"{"role":"bashExecution","command":"ls","output":"a\nb","exitCode":0}"#,
            Some("u:Ran `ls`\n```\na\nb\n```"),
        ),
        (
            r#"{"role":"bashExecution","command":"false","output":"","exitCode":1}"#,
            Some("u:Ran `false`\n(no output)\n\nCommand exited with code 1"),
        ),
        (
            r#"{"role":"bashExecution","command":"x","output":"o","cancelled":true,"truncated":true,"fullOutputPath":"/t/o"}"#,
            Some("u:Ran `x`\n```\no\n```\n\n(command cancelled)\n\n[Output truncated. Full output: /t/o]"),
        ),
        (
            r#"{"role":"bashExecution","command":"x","output":"o","exitCode":0,"truncated":true,"fullOutputPath":null}"#,
            Some("u:Ran `x`\n```\no\n```"),
        ),
        (
            r#"{"role":"bashExecution","command":"x","output":"o","exitCode":0,"excludeFromContext":true}"#,
            None,
        ),
    ] {
        assert_eq!(shown(&[stored]).first().map(String::as_str), expected, "{stored}");
    }
    let branch = shown(&[r#"{"role":"branchSummary","summary":"tried A","fromId":"x"}"#]);
    assert!(branch[0].ends_with("<summary>\ntried A\n</summary>"), "{branch:?}");
}

#[test]
fn calls_and_results_are_paired() {
    let interrupted = |id: &str| format!("r!:{id}={INTERRUPTED}");
    let two = calls(&["c1", "c2"], "toolUse");
    let one = calls(&["c1"], "toolUse");
    let other_role = r#"{"role":"later","content":"x"}"#;
    let excluded =
        r#"{"role":"bashExecution","command":"x","output":"","exitCode":0,"excludeFromContext":true}"#;
    let cases: Vec<(&str, Vec<&str>, Vec<String>)> = vec![
        (
            "results stand in the order of the calls",
            vec![USER, &two, "r c2 b", "r c1 a"],
            vec!["u:go".into(), "a:+c1=bash|+c2=bash".into(), "r:c1=a".into(), "r:c2=b".into()],
        ),
        (
            "missing, duplicate and orphaned results",
            vec![USER, "r c1 early", &two, "r c1 a", "r c1 again", "r zz x", USER],
            vec![
                "u:go".into(),
                "a:+c1=bash|+c2=bash".into(),
                "r:c1=a".into(),
                interrupted("c2"),
                "u:go".into(),
            ],
        ),
        (
            "the last call may be without a result",
            vec![USER, &one],
            vec!["u:go".into(), "a:+c1=bash".into(), interrupted("c1")],
        ),
        (
            "messages that are left out do not part a call from its result",
            vec![USER, &one, other_role, excluded, "r c1 a"],
            vec!["u:go".into(), "a:+c1=bash".into(), "r:c1=a".into()],
        ),
        (
            "a result behind the next user message comes too late",
            vec![USER, &one, USER, "r c1 late"],
            vec!["u:go".into(), "a:+c1=bash".into(), interrupted("c1"), "u:go".into()],
        ),
        ("an answer without a question", vec![&one, "r c1 a"], vec![]),
    ];
    for (name, stored, expected) in cases {
        let made: Vec<String> = stored
            .iter()
            .map(|text| match text.split(' ').collect::<Vec<_>>()[..] {
                ["r", id, text] => result(id, text),
                _ => (*text).into(),
            })
            .collect();
        assert_eq!(shown(&made.iter().map(String::as_str).collect::<Vec<_>>()), expected, "{name}");
    }
}

#[test]
fn a_made_up_result_names_its_tool_and_has_a_stable_time() {
    let one = calls(&["c1"], "toolUse");
    let Ok(messages) = for_model(&raws(&[USER, &one]), &ContextOptions::default());
    let Some(Message::ToolResult(result)) = messages.last() else { panic!("a result") };
    assert_eq!((result.tool_name.as_str(), result.timestamp, result.is_error), ("bash", Millis(7), true));
}

#[test]
fn answers_that_failed_are_left_out_with_their_results() {
    let good = calls(&["c1"], "toolUse");
    let late = result("c1", "of the failed one");
    for stop in ["error", "aborted", "pending", "a word we do not know"] {
        let failed = calls(&["c1"], stop);
        assert_eq!(shown(&[USER, &failed, &late, USER]), ["u:go", "u:go"], "{stop}");
        // A result behind the failed answer is not the older call's, though the ids are equal.
        let lines = shown(&[USER, &good, &failed, &late]);
        assert_eq!(lines[2], format!("r!:c1={INTERRUPTED}"), "{stop}");
    }
}

#[test]
fn an_id_used_again_gets_a_number() {
    let one = calls(&["c1"], "toolUse");
    let taken = calls(&["c1-2"], "toolUse");
    let lines = shown(&[
        USER,
        &one,
        &result("c1", "a"),
        &one,
        &result("c1", "b"),
        &taken,
        &result("c1-2", "c"),
        &one,
        &result("c1", "d"),
    ]);
    assert_eq!(
        lines[1..],
        [
            "a:+c1=bash",
            "r:c1=a",
            "a:+c1-2=bash",
            "r:c1-2=b",
            "a:+c1-2-2=bash",
            "r:c1-2-2=c",
            "a:+c1-3=bash",
            "r:c1-3=d"
        ]
    );
    let twice = calls(&["c|i", "c|i", ""], "toolUse");
    let lines = shown(&[USER, &twice, &result("c|i", "a"), &result("c|i", "b"), &result("", "e")]);
    assert_eq!(lines[1..], ["a:+c|i=bash|+c-2|i-2=bash|+call=bash", "r:c|i=a", "r:c-2|i-2=b", "r:call=e"]);
}

#[test]
fn blocked_images_become_one_notice_everywhere() {
    let image = r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#;
    let stored = raws(&[
        &format!(r#"{{"role":"user","content":[{image},{image},{{"type":"text","text":"t"}},{image}]}}"#),
        &calls(&["c1"], "toolUse"),
        &format!(r#"{{"role":"toolResult","toolCallId":"c1","content":[{image}],"isError":false}}"#),
    ]);
    let Ok(open) = for_model(&stored, &ContextOptions::default());
    assert_eq!(words(&open)[0], "u:<image>|<image>|t|<image>");
    let Ok(blocked) = for_model(&stored, &ContextOptions { block_images: true });
    assert_eq!(
        words(&blocked),
        [
            format!("u:{IMAGE_BLOCKED}|t|{IMAGE_BLOCKED}"),
            "a:+c1=bash".into(),
            format!("r:c1={IMAGE_BLOCKED}")
        ]
    );
}

#[test]
fn redacted_thinking_in_a_providers_shape_is_read() {
    let stored = r#"{"role":"assistant","content":[{"type":"redacted_thinking","data":"D"},{"type":"text","text":"x"}],"stopReason":"stop"}"#;
    let Ok(messages) = for_model(&raws(&[USER, stored]), &ContextOptions::default());
    let Message::Assistant(message) = &messages[1] else { panic!("an assistant") };
    let signature = Some("D".to_owned());
    assert_eq!(message.content[0], Block::Thinking { thinking: REDACTED.into(), signature, redacted: true });
}

#[test]
fn estimates_count_what_a_model_is_shown() {
    for (stored, tokens) in [
        (r#"{"role":"user","content":"12345"}"#, 2),
        (r#"{"role":"user","content":"     "}"#, 0),
        (r#"{"role":"user","content":"😀😀"}"#, 1),
        (
            r#"{"role":"user","content":[{"type":"text","text":"1"},{"type":"image","data":"AAAA","mimeType":"image/png"}]}"#,
            1201,
        ),
        (
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"1234"},{"type":"toolCall","id":"ignored","name":"ls","arguments":{}}],"stopReason":"toolUse"}"#,
            2,
        ),
        (r#"{"role":"assistant","content":[{"type":"text","text":"1234"}],"stopReason":"aborted"}"#, 0),
        (r#"{"role":"toolResult","toolCallId":"c","content":[{"type":"text","text":"12345678"}]}"#, 2),
        (r#"{"role":"bashExecution","command":"ls","output":"12"}"#, 1),
        (r#"{"role":"bashExecution","command":"ls","output":"12","excludeFromContext":true}"#, 0),
        (r#"{"role":"custom","content":"1234","excludeFromContext":true}"#, 0),
        (r#"{"role":"custom","content":"1234"}"#, 1),
        (r#"{"role":"later","content":"1234"}"#, 0),
    ] {
        assert_eq!(estimate_tokens(&raws(&[stored])), tokens, "{stored}");
    }
}

#[test]
fn context_tokens_start_from_the_last_good_answer() {
    let answer = |stop: &str, usage: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":"1234"}}],"usage":{usage},"stopReason":"{stop}"}}"#
        )
    };
    let good = answer("stop", r#"{"input":60,"output":40,"totalTokens":100}"#);
    let bad = answer("error", r#"{"totalTokens":900}"#);
    let unsaid = answer("stop", "{}");
    let no_sum = answer("stop", r#"{"input":3,"output":4,"cacheRead":5,"cacheWrite":6}"#);
    let after = r#"{"role":"user","content":"12345"}"#;
    for (stored, tokens) in [
        (vec![], None),
        (vec![after], None),
        (vec![after, &good], Some(100)),
        (vec![after, &good, after], Some(102)),
        (vec![after, &good, after, &bad], Some(102)),
        (vec![after, &good, after, &unsaid], Some(103)),
        (vec![after, &bad], None),
        (vec![after, &no_sum], Some(18)),
    ] {
        assert_eq!(context_tokens(&raws(&stored)), tokens, "{stored:?}");
    }
}

/// Few ids, so that they collide; some texts that no message parses from.
fn stored_message() -> impl Strategy<Value = String> {
    let id = || prop::sample::select(vec!["a", "b", "a-2", "c|d", ""]);
    let stop = prop::sample::select(vec!["stop", "length", "toolUse", "error", "aborted", "pending", "new"]);
    let other = prop::sample::select(vec![
        USER,
        r#"{"role":"user","content":" "}"#,
        r#"{"role":"user","content":[{"type":"image","data":"","mimeType":"image/png"}]}"#,
        r#"{"role":"user","content":[{"type":"toolCall","id":"a","name":"x","arguments":{}}]}"#,
        r#"{"role":"custom","content":"c"}"#,
        r#"{"role":"branchSummary","summary":"s"}"#,
        r#"{"role":"bashExecution","command":"x"}"#,
        r#"{"role":"bashExecution","command":"x","excludeFromContext":true}"#,
        r#"{"role":"later"}"#,
        r#"{"role":"assistant"}"#,
        r#"{"role":"assistant","content":[],"stopReason":"stop"}"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"t"}],"stopReason":"stop"}"#,
        r#"{"role":"toolResult"}"#,
        "[1]",
    ]);
    prop_oneof![
        3 => (prop::collection::vec(id(), 1..4), stop).prop_map(|(ids, stop)| calls(&ids, stop)),
        4 => (id(), "[a-z]{1,2}").prop_map(|(id, text)| result(id, &text)),
        3 => other.prop_map(str::to_owned),
    ]
}

/// The module's promises.
fn check(messages: &[Message]) {
    assert!(matches!(messages.first(), None | Some(Message::User(_))), "begins with the user");
    let mut seen = HashSet::new();
    let mut rest = messages.iter();
    while let Some(message) = rest.next() {
        match message {
            Message::User(user) => assert!(!user.content.blocks().is_empty()),
            Message::Assistant(assistant) => {
                assert!(is_good(assistant) && !assistant.content.is_empty());
                for call in assistant.tool_calls() {
                    assert!(seen.insert(call.id.clone()), "{} is used twice", call.id);
                    let Some(Message::ToolResult(result)) = rest.next() else {
                        panic!("{} unanswered", call.id)
                    };
                    assert_eq!(result.tool_call_id, call.id);
                    assert!(!result.content.is_empty());
                }
            }
            other => panic!("out of place: {other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn any_conversation_becomes_one_a_provider_takes(stored in prop::collection::vec(stored_message(), 0..24)) {
        let stored: Vec<Raw> = stored.iter().map(|text| Raw::parse(text).unwrap()).collect();
        let Ok(messages) = for_model(&stored, &ContextOptions::default());
        check(&messages);

        // Shown again it stays as it is: the repair is complete.
        let again: Vec<Raw> = messages.iter().map(Message::to_raw).collect();
        let Ok(same) = for_model(&again, &ContextOptions::default());
        prop_assert_eq!(&same, &messages);

        // More messages never change what was sent before them, open calls apart.
        for cut in 0..stored.len() {
            let Ok(part) = for_model(&stored[..cut], &ContextOptions::default());
            let settled = part.iter().rposition(|m| !matches!(m, Message::ToolResult(_))).map_or(0, |at| at + 1);
            prop_assert_eq!(&part[..settled], &messages[..settled]);
        }
    }
}
