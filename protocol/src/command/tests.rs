use bytes::Bytes;

use super::*;

fn parse(line: &str) -> Result<Request, String> {
    Request::parse(&Bytes::copy_from_slice(line.as_bytes()))
        .map_err(|answer| String::from_utf8(answer).unwrap().trim_end().to_owned())
}

/// Bytes → value → bytes, one line for each command.
#[test]
fn each_command_round_trips_to_the_byte() {
    let corpus = [
        r#"{"id":"req-1","type":"prompt","message":"Hello, world!"}"#,
        r#"{"type":"prompt","message":"What's in this image?","images":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
        r#"{"type":"prompt","message":"New instruction","streamingBehavior":"steer"}"#,
        r#"{"type":"prompt","message":"x","streamingBehavior":"followUp"}"#,
        r#"{"type":"steer","message":"Stop and do this instead"}"#,
        r#"{"type":"follow_up","message":"After you're done, also do this"}"#,
        r#"{"type":"abort"}"#,
        r#"{"type":"clear_queue"}"#,
        r#"{"type":"new_session"}"#,
        r#"{"type":"new_session","parentSession":"/path/to/parent-session.jsonl"}"#,
        r#"{"type":"get_state"}"#,
        r#"{"type":"get_messages"}"#,
        r#"{"type":"get_last_assistant_text"}"#,
        r#"{"type":"set_model","provider":"anthropic","modelId":"claude-sonnet-4-20250514"}"#,
        r#"{"type":"set_model","provider":"anthropic","modelId":"m","persist":true}"#,
        r#"{"type":"cycle_model"}"#,
        r#"{"type":"cycle_model","direction":"backward","persist":true}"#,
        r#"{"type":"get_available_models"}"#,
        r#"{"type":"refresh_models"}"#,
        r#"{"type":"login_provider","provider":"anthropic"}"#,
        r#"{"type":"login_provider","provider":"anthropic","authType":"api_key"}"#,
        r#"{"type":"save_provider_credential","provider":"groq","credential":{"type":"api_key","key":"k"}}"#,
        r#"{"type":"cancel_login_provider","provider":"x"}"#,
        r#"{"type":"logout_provider","provider":"anything at all"}"#,
        r#"{"type":"cycle_thinking_level"}"#,
        r#"{"type":"get_available_thinking_levels"}"#,
        r#"{"type":"pause_queued_messages"}"#,
        r#"{"type":"resume_queued_messages"}"#,
        r#"{"type":"compact"}"#,
        r#"{"type":"compact","customInstructions":"keep names"}"#,
        r#"{"type":"compact","compression_ratio":0.25,"preserve_recent":0,"query":"names"}"#,
        r#"{"type":"set_auto_compaction","enabled":false}"#,
        r#"{"type":"abort_compaction"}"#,
        r#"{"type":"user_bash","command":"ls"}"#,
        r#"{"type":"get_tree"}"#,
        r#"{"type":"navigate_tree","targetId":"e"}"#,
        r#"{"type":"navigate_tree","targetId":"e","options":{"summarize":true,"label":"l"}}"#,
        r#"{"type":"navigate_tree","targetId":"e","options":{"summarize":true,"customInstructions":"c","replaceInstructions":true}}"#,
        r#"{"type":"set_label","entryId":"e","label":"l"}"#,
        r#"{"type":"set_label","entryId":"e"}"#,
        r#"{"type":"get_fork_messages"}"#,
        r#"{"type":"fork","entryId":"e"}"#,
        r#"{"type":"clone"}"#,
        r#"{"type":"switch_session","sessionPath":"/s.jsonl"}"#,
        r#"{"type":"import_session","inputPath":"/s.jsonl","cwdOverride":"/w"}"#,
        r#"{"type":"list_sessions"}"#,
        r#"{"type":"list_sessions","all":true,"query":"beans"}"#,
        r#"{"type":"attach_session","sessionId":"0198"}"#,
        r#"{"type":"export_html"}"#,
        r#"{"type":"export_html","outputPath":"/o.html"}"#,
        r#"{"type":"get_shortcuts"}"#,
        r#"{"type":"get_commands"}"#,
        r#"{"type":"get_command_completions","commandName":"review","argumentPrefix":"src/"}"#,
        r#"{"type":"reload"}"#,
        r#"{"type":"invoke_shortcut","key":"ctrl+x"}"#,
        r#"{"type":"set_thinking_level","level":"high"}"#,
        r#"{"type":"set_thinking_level","level":"off","persist":true}"#,
        r#"{"type":"set_steering_mode","mode":"all"}"#,
        r#"{"type":"set_follow_up_mode","mode":"one-at-a-time"}"#,
        r#"{"id":7,"type":"bash","command":"ls -la"}"#,
        r#"{"id":null,"type":"bash","command":"ls","excludeFromContext":true}"#,
        r#"{"id":"cancel-1","type":"abort_bash","requestId":"req-1"}"#,
        r#"{"type":"abort_bash"}"#,
        r#"{"type":"set_auto_retry","enabled":true}"#,
        r#"{"type":"abort_retry"}"#,
        r#"{"type":"get_session_stats"}"#,
        r#"{"type":"set_session_name","name":"my-feature-work"}"#,
        r#"{"type":"get_entries"}"#,
        r#"{"type":"get_entries","since":"abc123"}"#,
        r#"{"type":"extension_ui_response","id":"u","value":"x"}"#,
    ];
    let mut names = std::collections::BTreeSet::new();
    for line in corpus {
        let request = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        names.insert(request.command.name());
        assert_eq!(String::from_utf8(request.to_line()).unwrap().trim_end(), line);
    }
    assert_eq!(names.len(), 52, "a command without a line in the corpus");
}

#[test]
fn every_line_has_an_answer_that_echoes_the_raw_id() {
    let answers = [
        (
            "",
            r#"{"type":"response","command":"parse","success":false,"error":"Failed to parse command: Unexpected end of JSON input"}"#,
        ),
        (
            " \t",
            r#"{"type":"response","command":"parse","success":false,"error":"Failed to parse command: Unexpected end of JSON input"}"#,
        ),
        (
            "null",
            r#"{"type":"response","command":"unknown","success":false,"error":"Invalid command: a command is a JSON object"}"#,
        ),
        ("{}", r#"{"type":"response","success":false,"error":"Unknown command: undefined"}"#),
        (
            r#"{"id":"x0"}"#,
            r#"{"id":"x0","type":"response","success":false,"error":"Unknown command: undefined"}"#,
        ),
        (r#"{"type":5}"#, r#"{"type":"response","command":5,"success":false,"error":"Unknown command: 5"}"#),
        (
            r#"{"id":{"b": [1.0]},"type":"context_compact"}"#,
            r#"{"id":{"b": [1.0]},"type":"response","command":"context_compact","success":false,"error":"Unknown command: context_compact"}"#,
        ),
        (
            r#"{"id":null,"type":"fork"}"#,
            r#"{"id":null,"type":"response","command":"fork","success":false,"error":"Invalid fork command: entryId must be a string"}"#,
        ),
        (
            r#"{"id":"\ud800","type":"prompt"}"#,
            r#"{"id":"\ud800","type":"response","command":"prompt","success":false,"error":"Invalid prompt command: message must be a string"}"#,
        ),
        (
            r#"{"type":"compact","compression_ratio":1}"#,
            r#"{"type":"response","command":"compact","success":false,"error":"Invalid compact command: compression_ratio must be a number above 0 and below 1"}"#,
        ),
        (
            r#"{"type":"compact","preserve_recent":1.5}"#,
            r#"{"type":"response","command":"compact","success":false,"error":"Invalid compact command: preserve_recent must be a whole number, 0 or more"}"#,
        ),
        (
            r#"{"type":"set_steering_mode","mode":"x"}"#,
            r#"{"type":"response","command":"set_steering_mode","success":false,"error":"Invalid set_steering_mode command: mode must be \"all\" or \"one-at-a-time\""}"#,
        ),
        (
            r#"{"type":"set_session_name","name":"  "}"#,
            r#"{"type":"response","command":"set_session_name","success":false,"error":"Session name cannot be empty"}"#,
        ),
        (
            r#"{"type":"prompt","message":"m","images":[{"type":"image","data":"%%","mimeType":"image/png"}]}"#,
            r#"{"type":"response","command":"prompt","success":false,"error":"Invalid image data: images[].data must be base64"}"#,
        ),
    ];
    for (line, answer) in answers {
        assert_eq!(parse(line).unwrap_err(), answer, "{line}");
    }
}

#[test]
fn text_is_read_as_javascript_reads_it() {
    let request =
        parse(r#"{"type":"steer","message":"first","message":"a\ud83d\ude00\udc00","future":[[[1]]]}"#)
            .unwrap();
    assert_eq!(request.command, Command::Steer { message: "a😀\u{fffd}".into(), images: vec![] });
    let bytes = Bytes::from_static(b"{\"id\":\"\xff\",\"type\":\"steer\",\"message\":\"\xff\"}");
    let request = Request::parse(&bytes).unwrap();
    assert_eq!(request.id.unwrap().as_str(), "\"\u{fffd}\"");
    assert_eq!(request.command, Command::Steer { message: "\u{fffd}".into(), images: vec![] });
}
