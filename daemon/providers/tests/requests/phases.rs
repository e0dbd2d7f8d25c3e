//! Each phase of a request on a socket of this machine: it ends at its deadline, an abort ends it at once, and nothing is
//! asked twice.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::{Duration, Instant};

use atomic_protocol::model::ModelEvent;
use tokio_util::sync::CancellationToken;

use crate::server::{HEAD, PATIENCE, Session, failure, read_request, server};

const WORD: &str = "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// What "at once" may take on a busy machine; every deadline below it would be one of ours.
const AT_ONCE: Duration = Duration::from_secs(5);

fn local(base_url: &str) -> Session {
    Session::new(&format!("{base_url}/v1"), "openai-completions", "")
}

/// How far a request gets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The other end takes the connection and never begins TLS.
    Handshake,
    /// No head comes.
    Head,
    /// The head of a refusal comes, its body does not.
    Refusal,
    /// The head comes and nothing after it.
    Body,
    /// The answer begins and stops.
    Idle,
    /// Only comments come, for ever.
    Comments,
}

const PHASES: [Phase; 6] =
    [Phase::Handshake, Phase::Head, Phase::Refusal, Phase::Body, Phase::Idle, Phase::Comments];

/// A server that goes as far as `phase`. Says first that it is there, then whether its connection was closed.
fn stuck_in(phase: Phase) -> (Session, std_mpsc::Receiver<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (says, heard) = std_mpsc::channel();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        if phase == Phase::Handshake {
            assert!(socket.read(&mut [0; 1]).unwrap() == 1, "TLS begins");
        } else {
            read_request(&mut socket);
        }
        let text = match phase {
            Phase::Handshake | Phase::Head => String::new(),
            Phase::Refusal => "HTTP/1.1 503 Busy\r\ncontent-length: 99\r\n\r\n".to_owned(),
            Phase::Body => HEAD.to_owned(),
            Phase::Idle | Phase::Comments => format!("{HEAD}{WORD}"),
        };
        socket.write_all(text.as_bytes()).unwrap();
        says.send(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let closed = loop {
            match socket.read(&mut [0; 4096]) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if phase == Phase::Comments && socket.write_all(b": on\n\n").is_err() {
                        break true;
                    }
                }
                Err(_) => break true,
            }
        };
        let _ = says.send(closed);
    });
    let scheme = if phase == Phase::Handshake { "https" } else { "http" };
    (local(&format!("{scheme}://{address}")), heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_phase_ends_at_the_deadline_and_closes_the_connection() {
    for phase in PHASES {
        let (mut session, heard) = stuck_in(phase);
        session.deadline = Some(Duration::from_millis(300));
        let events = session.all().await;
        let message = &failure(&events).message;
        if phase == Phase::Refusal {
            // Its status alone is worth reporting.
            assert_eq!(message, "503 status code (no body)");
        } else {
            assert!(message.contains("stream deadline exceeded"), "{phase:?}: {message}");
            assert!(message.ends_with("for 0.3 s"), "{phase:?}: {message}");
        }
        assert!(heard.recv_timeout(PATIENCE).unwrap(), "{phase:?}");
        assert!(heard.recv_timeout(PATIENCE).unwrap(), "{phase:?}: the connection stays open");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_each_phase_at_once_and_closes_the_connection() {
    for phase in PHASES {
        let (session, heard) = stuck_in(phase);
        let cancel = CancellationToken::new();
        let mut asked = session.ask("local", "m", &cancel);
        let there = tokio::task::spawn_blocking(move || (heard.recv_timeout(PATIENCE).unwrap(), heard));
        let (_, heard) = there.await.unwrap();
        if matches!(phase, Phase::Idle | Phase::Comments) {
            asked.batch().await.unwrap();
        }
        let begin = Instant::now();
        cancel.cancel();
        while let Some(batch) = asked.batch().await {
            let terminal =
                |event: &ModelEvent| matches!(event, ModelEvent::Done { .. } | ModelEvent::Failed(_));
            assert!(!batch.iter().any(terminal), "{phase:?}: {batch:?}");
        }
        asked.task.await.unwrap();
        assert!(begin.elapsed() < AT_ONCE, "{phase:?}: {:?}", begin.elapsed());
        assert!(heard.recv_timeout(AT_ONCE).unwrap(), "{phase:?}: the connection stays open");
    }
}

/// A listener whose queue is full: further connections hang in their beginning, as those to a host that is not there.
#[cfg(target_os = "linux")]
fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(socket) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(socket);
    }
    (listener, waiting)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_that_never_begins_ends_at_the_deadline_and_at_an_abort() {
    let (listener, _waiting) = full_listener();
    let mut session = local(&format!("http://{}", listener.local_addr().unwrap()));
    session.deadline = Some(Duration::from_millis(300));
    let events = session.all().await;
    let message = &failure(&events).message;
    assert!(message.starts_with("stream deadline exceeded: no answer from 127.0.0.1:"), "{message}");

    session.deadline = None;
    let cancel = CancellationToken::new();
    let mut asked = session.ask("local", "m", &cancel);
    let begin = Instant::now();
    cancel.cancel();
    assert!(asked.batch().await.is_none(), "an abort says nothing");
    asked.task.await.unwrap();
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
}

/// Serves `answers` one after the other, each on the connection that its request comes on, and counts requests.
fn counting(answers: Vec<String>, keep: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            while !read_request(&mut socket).is_empty() {
                let answer =
                    answers.get(seen.fetch_add(1, Ordering::SeqCst)).map(String::as_str).unwrap_or_default();
                socket.write_all(answer.as_bytes()).unwrap();
                if !keep || answer.is_empty() {
                    break;
                }
            }
        }
    });
    (format!("http://{address}"), count)
}

#[tokio::test]
async fn nothing_is_asked_twice() {
    let busy =
        "HTTP/1.1 503 Busy\r\nretry-after-ms: 1\r\nx-should-retry: true\r\ncontent-length: 4\r\n\r\nbusy";
    let limit = "HTTP/1.1 429 Slow\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
    let short = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\n";
    for answer in [busy, limit, short, "", HEAD] {
        let (address, count) = counting(vec![answer.to_owned()], false);
        let events = local(&address).all().await;
        failure(&events);
        assert_eq!(count.load(Ordering::SeqCst), 1, "{answer}: {events:?}");
    }
}

/// HTTP clients like to send a request again when a connection that was kept open breaks under it.
#[tokio::test]
async fn a_kept_connection_that_breaks_under_a_request_is_a_failure() {
    let whole = format!("{WORD}{END}");
    let first = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{whole}",
        whole.len()
    );
    let (address, count) = counting(vec![first], true);
    let session = local(&address);
    let http = atomic_providers::Http::new();
    let events = session.ask_with(&http, "local", "m", &CancellationToken::new()).rest().await;
    assert!(matches!(events.last(), Some(ModelEvent::Done { .. })), "{events:?}");
    let events = session.ask_with(&http, "local", "m", &CancellationToken::new()).rest().await;
    assert!(failure(&events).message.starts_with("Connection error: 127.0.0.1:"), "{events:?}");
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_a_refusal_says_about_another_try_is_passed_on() {
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(40);
    let date = later.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    for (status, headers, waits, should, want) in [
        (503, "retry-after: 7", 7_000..=7_000, None, "503 no"),
        (429, "retry-after-ms: 1500\r\nretry-after: 7", 1_500..=1_500, None, "429 no"),
        (429, &format!("retry-after: {date}"), 30_000..=40_000, None, "429 no"),
        (400, "x-should-retry: true", 0..=0, Some(true), "400 no"),
        (503, "x-should-retry: false", 0..=0, Some(false), "503 no"),
        (
            429,
            "retry-after: 90.5",
            90_500..=90_500,
            None,
            "Server requested 91s retry delay (max: 60s). 429 no",
        ),
        (
            400,
            "retry-after: 90\r\nx-should-retry: true",
            90_000..=90_000,
            Some(true),
            "Server requested 90s retry delay (max: 60s). 400 no",
        ),
        // Nobody would try these again, so nobody waits.
        (401, "retry-after: 90", 90_000..=90_000, None, "401 no"),
        (503, "retry-after: 90\r\nx-should-retry: false", 90_000..=90_000, Some(false), "503 no"),
    ] {
        let answer = format!("HTTP/1.1 {status} No\r\n{headers}\r\ncontent-length: 2\r\n\r\nno");
        let address = server(move |_, mut socket| socket.write_all(answer.as_bytes()).unwrap());
        let events = local(&address).all().await;
        let failure = failure(&events);
        assert_eq!((&*failure.message, failure.status), (want, Some(status)), "{headers}");
        assert!(waits.contains(&failure.retry_after_ms.unwrap_or(0)), "{headers}: {failure:?}");
        assert_eq!(failure.should_retry, should, "{headers}");
    }
}

/// A compressed body of which only the beginning comes: the connection ends, or nothing more is said.
#[tokio::test]
async fn a_compressed_answer_that_stops_is_a_failure() {
    // The head (RFC 1952, 2.3) and the beginning of a block.
    const BEGIN: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b, 0x49];
    for (stays, want) in [(false, "Connection error: the answer of"), (true, "stream deadline exceeded")] {
        let mut session = local(&server(move |_, mut socket| {
            let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
            socket.write_all(&[head.as_bytes(), BEGIN].concat()).unwrap();
            if stays {
                // Until the client gives up.
                let _ = socket.read(&mut [0; 16]);
            }
        }));
        session.deadline = Some(if stays { Duration::from_millis(300) } else { PATIENCE });
        let events = session.all().await;
        assert!(failure(&events).message.starts_with(want), "{stays}: {events:?}");
    }
}
