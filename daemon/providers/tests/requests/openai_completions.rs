//! OpenAI's dialect as local servers speak it.

use std::io::{Read as _, Write as _};
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use atomic_protocol::message::StopReason;
use atomic_protocol::model::ModelEvent;
use tokio_util::sync::CancellationToken;

use crate::server::{HEAD, Session, failure, server};

const BEGIN: &str = ": hello\n\ndata: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

fn local(base_url: &str) -> Session {
    Session::new(&format!("{base_url}/v1/"), "openai-completions", "")
}

/// A server that sends one answer and closes.
fn says(answer: impl Into<String>) -> String {
    let answer = answer.into();
    server(move |_, mut socket| socket.write_all(answer.as_bytes()).unwrap())
}

fn text(events: &[ModelEvent]) -> String {
    let deltas = events.iter().filter_map(|event| match event {
        ModelEvent::TextDelta { delta, .. } => Some(delta.as_str()),
        _ => None,
    });
    deltas.collect()
}

#[tokio::test]
async fn an_answer_arrives_piece_by_piece() {
    let (seen, request) = std_mpsc::channel();
    let (release, gate) = std_mpsc::channel::<()>();
    let address = server(move |text, mut socket| {
        seen.send(text).unwrap();
        socket.write_all(format!("{HEAD}{BEGIN}").as_bytes()).unwrap();
        gate.recv().unwrap();
        socket.write_all(END.as_bytes()).unwrap();
    });
    let session = Session::new(
        &format!("{address}/v1"),
        "openai-completions",
        r#","samplingParams":{"temperature":0.5}"#,
    );
    let mut answer = session.ask("local", "m", &CancellationToken::new());
    let mut events = Vec::new();
    while events.len() < 3 {
        events.extend(answer.batch().await.unwrap());
    }
    assert!(matches!(&events[2], ModelEvent::TextDelta { index: 0, delta } if delta == "Hel"), "{events:?}");
    release.send(()).unwrap();
    events.extend(answer.rest().await);
    assert!(matches!(events.last(), Some(ModelEvent::Done { reason: StopReason::Stop, .. })), "{events:?}");
    assert_eq!(text(&events), "Hello");

    let request = request.recv().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
    assert!(head.lines().any(|line| line == "authorization: bearer very-secret-key"), "{head}");
    assert_eq!(
        body,
        r#"{"model":"m","messages":[{"role":"system","content":"system"},{"role":"user","content":"hello"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":16384,"temperature":0.5}"#
    );
}

#[tokio::test]
async fn an_answer_may_end_without_its_mark() {
    let end = END.replace("data: [DONE]\n\n", "");
    for end in [&end[..], end.trim_end()] {
        let events = local(&says(format!("{HEAD}{BEGIN}{end}"))).all().await;
        assert_eq!(text(&events), "Hello");
        assert!(matches!(events.last(), Some(ModelEvent::Done { .. })), "{events:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_stream_is_read_too() {
    let whole = "{\n  \"id\": \"c1\",\r\n  \"choices\": [{\"message\": {\"content\": \"Hello\\n\",\n \"tool_calls\": [{\"id\":\"t\",\"function\":{\"name\":\"n\",\"arguments\":\"{}\"}}]}, \"finish_reason\": \"tool_calls\"}],\n \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 2}\n}\n";
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nconnection: close\r\n\r\n";
    let events = local(&says(format!("{head}{whole}"))).all().await;
    assert_eq!(text(&events), "Hello\n");
    assert!(events.iter().any(|event| matches!(event, ModelEvent::Usage(usage) if usage.input == 3)));
    assert!(
        matches!(events.last(), Some(ModelEvent::Done { reason: StopReason::ToolUse, .. })),
        "{events:?}"
    );

    let events =
        local(&says(format!("{head}{{\n\"error\":{{\"code\":429,\"message\":\"slow down\"}}}}"))).all().await;
    assert_eq!(failure(&events).message, r#"429 {"code":429,"message":"slow down"}"#);
    assert_eq!((failure(&events).status, events.len()), (Some(429), 1));
}

#[tokio::test]
async fn what_breaks_is_a_failure_after_what_came() {
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n";
    let error = "data: {\"error\":{\"code\":503,\"message\":\"key very-secret-key is unknown\"}}\n\n";
    let refused = "HTTP/1.1 503 Service Unavailable\r\nretry-after-ms: 250\r\ncontent-length: 4\r\n\r\nbusy";
    for (answer, came, status, wait, want) in [
        (
            format!("{HEAD}{BEGIN}{error}"),
            3,
            Some(503),
            None,
            r#"503 {"code":503,"message":"key [hidden] is unknown"}"#,
        ),
        (format!("{HEAD}{BEGIN}"), 3, None, None, "Stream ended without finish_reason"),
        (format!("{HEAD}{BEGIN}data: [DONE]\n\n"), 3, None, None, "Stream ended without finish_reason"),
        (format!("{short}{BEGIN}"), 3, None, None, "Connection error: the answer of 127.0.0.1:"),
        (HEAD.to_owned(), 0, None, None, "Stream ended without finish_reason"),
        (refused.to_owned(), 0, Some(503), Some(250), "503 busy"),
    ] {
        let events = local(&says(answer.clone())).all().await;
        let failure = failure(&events);
        assert!(failure.message.starts_with(want), "{answer}: {events:?}");
        assert_eq!(
            (events.len() - 1, failure.status, failure.retry_after_ms),
            (came, status, wait),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn silence_and_comments_end_at_the_deadline() {
    let half = "data: {\"choices\":[{\"del";
    for answer in
        [String::new(), HEAD.to_owned(), format!("{HEAD}{BEGIN}{half}"), format!("{HEAD}{BEGIN}: on\n\n")]
    {
        let text = answer.clone();
        let mut session = local(&server(move |_, mut socket| {
            socket.write_all(text.as_bytes()).unwrap();
            // Comments until the client gives up.
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            while text.ends_with(": on\n\n")
                && !matches!(socket.read(&mut [0; 16]), Ok(0))
                && socket.write_all(b": on\n\n").is_ok()
            {}
            socket.set_read_timeout(None).unwrap();
            let _ = socket.read(&mut [0; 16]);
        }));
        session.deadline = Some(Duration::from_millis(300));
        let events = session.all().await;
        assert!(failure(&events).message.contains("stream deadline exceeded"), "{answer}: {events:?}");
    }
}
