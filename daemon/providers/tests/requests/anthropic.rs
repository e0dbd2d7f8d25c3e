//! Anthropic's dialect, and what no dialect decides: proxies, deadlines, cancelling, broken connections.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use atomic_protocol::message::StopReason;
use atomic_protocol::model::ModelEvent;
use tokio_util::sync::CancellationToken;

use crate::server::{HEAD, PATIENCE, Session, failure, server};

const BEGIN: &str = "event: message_start\ndata: {\"message\":{\"id\":\"msg\",\"usage\":{\"input_tokens\":3}}}\n\nevent: content_block_start\ndata: {\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Hel\"}}\n\n";
const END: &str = "event: content_block_stop\ndata: {\"index\":0}\n\nevent: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\nevent: message_stop\ndata: {}\n\n";

fn anthropic(base_url: &str) -> Session {
    Session::new(base_url, "anthropic-messages", "")
}

#[tokio::test]
async fn an_answer_arrives_piece_by_piece() {
    let (seen, request) = std_mpsc::channel();
    let (release, gate) = std_mpsc::channel::<()>();
    let session = anthropic(&server(move |text, mut socket| {
        seen.send(text).unwrap();
        socket.write_all(format!("{HEAD}{BEGIN}").as_bytes()).unwrap();
        gate.recv().unwrap();
        socket.write_all(END.as_bytes()).unwrap();
    }));
    let mut answer = session.ask("local", "m", &CancellationToken::new());
    let mut events = Vec::new();
    while events.len() < 4 {
        events.extend(answer.batch().await.unwrap());
    }
    assert!(matches!(&events[3], ModelEvent::TextDelta { index: 0, delta } if delta == "Hel"), "{events:?}");
    release.send(()).unwrap();
    events.extend(answer.rest().await);
    assert!(matches!(events.last(), Some(ModelEvent::Done { reason: StopReason::Stop, .. })), "{events:?}");

    let text = request.recv().unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(head.starts_with("post /v1/messages http/1.1\r\n"), "{head}");
    for line in [
        "x-api-key: very-secret-key",
        "anthropic-version: 2023-06-01",
        concat!("user-agent: atomic/", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(head.lines().any(|found| found == line), "{line} in {head}");
    }
    assert!(!head.contains("dangerous"), "{head}");
    assert!(body.starts_with(
        r#"{"model":"m","max_tokens":16384,"stream":true,"system":[{"type":"text","text":"system""#
    ));
}

#[tokio::test]
async fn refusals_keep_status_body_and_waiting_time_but_no_key() {
    let body =
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"key very-secret-key is too fast"}}"#;
    let session = anthropic(&server(move |_, mut socket| {
        let head = format!(
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(format!("{head}{body}").as_bytes()).unwrap();
    }));
    let events = session.all().await;
    let failure = failure(&events);
    assert_eq!(events.len(), 1);
    assert_eq!((failure.status, failure.retry_after_ms), (Some(429), Some(7000)));
    assert_eq!(failure.message, format!("429 {}", body.replace("very-secret-key", "[hidden]")));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let session = anthropic(&server(|_, mut socket| {
        let answer =
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        socket.write_all(answer.as_bytes()).unwrap();
    }));
    let events = session.all().await;
    assert_eq!(failure(&events).message, "307 status code (no body)");
}

#[tokio::test]
async fn what_breaks_is_a_failure_after_what_came() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let gzip = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\nthis is no gzip";
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n";
    for (answer, came, want) in [
        (format!("{HEAD}{BEGIN}event: error\ndata: {error}\n\n"), 4, error),
        (format!("{HEAD}{BEGIN}"), 4, "Anthropic stream ended before message_stop"),
        (format!("{short}{BEGIN}"), 4, "Connection error: the answer of 127.0.0.1:"),
        (gzip.to_owned(), 0, "Connection error: the answer of 127.0.0.1:"),
        (HEAD.to_owned(), 0, "Anthropic stream ended before message_stop"),
        (String::new(), 0, "Connection error: 127.0.0.1"),
    ] {
        let text = answer.clone();
        let session = anthropic(&server(move |_, mut socket| socket.write_all(text.as_bytes()).unwrap()));
        let events = session.all().await;
        assert!(failure(&events).message.starts_with(want), "{answer}: {events:?}");
        assert_eq!(events.len() - 1, came, "{answer}: {events:?}");
    }
}

#[tokio::test]
async fn nobody_there_is_a_failure_that_names_the_host() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let events = anthropic(&format!("http://{address}")).all().await;
    let message = &failure(&events).message;
    assert!(message.starts_with("Connection error: 127.0.0.1:"), "{message}");
}

#[tokio::test]
async fn silence_ends_at_the_deadline_before_and_inside_an_answer() {
    for answer in [String::new(), HEAD.to_owned(), format!("{HEAD}{BEGIN}")] {
        let text = answer.clone();
        let mut session = anthropic(&server(move |_, mut socket| {
            socket.write_all(text.as_bytes()).unwrap();
            // Until the client gives up.
            let _ = socket.read(&mut [0; 16]);
        }));
        session.deadline = Some(Duration::from_millis(300));
        let events = session.all().await;
        assert!(failure(&events).message.contains("stream deadline exceeded"), "{answer}: {events:?}");
    }
}

#[tokio::test]
async fn cancelling_closes_the_connection_and_says_nothing() {
    for answer in [String::new(), format!("{HEAD}{BEGIN}")] {
        let (closed, at_end) = tokio::sync::oneshot::channel();
        let (arrived, ready) = tokio::sync::oneshot::channel();
        let text = answer.clone();
        let session = anthropic(&server(move |_, mut socket| {
            socket.write_all(text.as_bytes()).unwrap();
            arrived.send(()).unwrap();
            let rest = socket.read(&mut [0; 16]);
            closed.send(matches!(rest, Ok(0) | Err(_))).unwrap();
        }));
        let cancel = CancellationToken::new();
        let mut asked = session.ask("local", "m", &cancel);
        ready.await.unwrap();
        if !answer.is_empty() {
            asked.batch().await.unwrap();
        }
        cancel.cancel();
        let mut rest = Vec::new();
        while let Some(batch) = asked.batch().await {
            rest.extend(batch);
        }
        assert!(!rest.iter().any(|event| matches!(event, ModelEvent::Done { .. } | ModelEvent::Failed(_))));
        assert!(tokio::time::timeout(PATIENCE, at_end).await.unwrap().unwrap(), "the connection is closed");
    }
}

#[tokio::test]
async fn a_dropped_receiver_closes_the_connection() {
    let (closed, at_end) = tokio::sync::oneshot::channel();
    let session = anthropic(&server(move |_, mut socket| {
        // Until the client is gone; the sink holds a bounded number of pieces, so it must notice.
        let ended = (0..1_000_000).any(|_| {
            socket.write_all(HEAD.as_bytes()).and_then(|()| socket.write_all(BEGIN.as_bytes())).is_err()
        });
        closed.send(ended).unwrap();
    }));
    let asked = session.ask("local", "m", &CancellationToken::new());
    drop(asked.batches);
    tokio::time::timeout(PATIENCE, asked.task).await.unwrap().unwrap();
    assert!(tokio::time::timeout(PATIENCE, at_end).await.unwrap().unwrap());
}

#[tokio::test]
async fn proxies_come_from_the_sessions_environment() {
    let (seen, request) = std_mpsc::channel();
    let proxy = server(move |text, mut socket| {
        seen.send(text).unwrap();
        socket.write_all(format!("{HEAD}{BEGIN}{END}").as_bytes()).unwrap();
    });
    // An address for documentation (RFC 5737): nobody is there.
    let mut session = anthropic("http://192.0.2.7");
    session.deadline = Some(Duration::from_millis(300));
    session.env.push(("http_proxy", proxy.clone()));
    let events = session.all().await;
    assert!(matches!(events.last(), Some(ModelEvent::Done { .. })), "{events:?}");
    assert!(request.recv().unwrap().starts_with("POST http://192.0.2.7/v1/messages "));

    session.env.push(("NO_PROXY", "192.0.2.7".into()));
    let events = session.all().await;
    assert!(failure(&events).message.contains("192.0.2.7"), "{events:?}");

    // For this machine's own addresses no proxy is asked either.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut session = anthropic(&format!("http://{closed}"));
    session.env.push(("http_proxy", proxy));
    let events = session.all().await;
    assert!(failure(&events).message.starts_with("Connection error: 127.0.0.1"), "{events:?}");
}

#[tokio::test]
async fn a_missing_key_and_an_unspoken_dialect_are_failures() {
    let mut session = anthropic("http://127.0.0.1:1");
    session.env.clear();
    let asked = session.ask("anthropic", "claude-opus-5", &CancellationToken::new()).rest().await;
    let message = &failure(&asked).message;
    assert!(
        message.starts_with("No API key found for anthropic.") && message.contains("ANTHROPIC_API_KEY"),
        "{message}"
    );
    assert!(message.contains(&Path::new("auth.json").display().to_string()), "{message}");
    let strange = Session::new("http://127.0.0.1:1", "strange-dialect", "").all().await;
    let message = &failure(&strange).message;
    assert!(message.starts_with("Model local/m speaks \"strange-dialect\", which"), "{message}");
}

#[tokio::test]
async fn the_demo_needs_nothing() {
    let mut session = anthropic("http://127.0.0.1:1");
    session.env = vec![("ATOMIC_DEMO_DELAY_MS", "0".into())];
    let events = session.ask("demo", "demo", &CancellationToken::new()).rest().await;
    assert!(matches!(events.last(), Some(ModelEvent::Done { reason: StopReason::Stop, .. })), "{events:?}");
}
