//! A model server on the loopback address that answers what a test tells it, when the test tells it.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::DEADLINE;
use crate::anthropic::{Answer, Event};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// For example `POST`.
    pub method: String,
    /// For example `/v1/messages`.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; null when there was none.
    pub body: Value,
}

impl Request {
    /// The header of that lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The conversation it carries, as `role: text` per block: text as it is, a tool call as `[name]`, a tool result as
    /// `[result] text`, an image as `[image]`, anything else by its type.
    pub fn conversation(&self) -> Vec<String> {
        let mut out = Vec::new();
        for message in self.body["messages"].as_array().into_iter().flatten() {
            let role = message["role"].as_str().unwrap_or("?");
            match &message["content"] {
                Value::String(text) => out.push(format!("{role}: {text}")),
                content => {
                    let blocks = content.as_array().into_iter().flatten();
                    out.extend(blocks.map(|block| format!("{role}: {}", block_text(block))));
                }
            }
        }
        out
    }
}

fn block_text(block: &Value) -> String {
    match block["type"].as_str().unwrap_or("?") {
        "text" => block["text"].as_str().unwrap_or_default().to_owned(),
        "tool_use" => format!("[{}]", block["name"].as_str().unwrap_or_default()),
        "tool_result" => {
            let text = match &block["content"] {
                Value::String(text) => text.clone(),
                content => {
                    content.as_array().into_iter().flatten().map(block_text).collect::<Vec<_>>().join("")
                }
            };
            format!("[result] {text}")
        }
        kind => format!("[{kind}]"),
    }
}

/// What answers requests that are no prompts.
type Records = Arc<dyn Fn(&Request) -> Option<(u16, String)> + Send + Sync>;

#[derive(Default)]
struct State {
    records: Option<Records>,
    /// Every request so far.
    requests: Vec<Request>,
    /// Requests that wait for the test.
    waiting: VecDeque<Exchange>,
    /// Answers given without the test.
    prepared: VecDeque<Answer>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stopped: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server. It stops when dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl ModelServer {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// When the loopback address cannot be bound.
    pub fn start() -> ModelServer {
        ModelServer::start_at(([127, 0, 0, 1], 0).into())
    }

    /// Starts one at this address.
    ///
    /// # Panics
    /// When it cannot be bound.
    pub fn start_at(address: SocketAddr) -> ModelServer {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared::default());
        let for_accept = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if for_accept.stopped.load(Ordering::Acquire) {
                    return;
                }
                let shared = for_accept.clone();
                thread::spawn(move || serve(stream, &shared));
            }
        });
        ModelServer { address, shared }
    }

    /// What goes into a model's `baseUrl`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers requests that are no prompts for as long as the server lives: `answer` gives status and body, or `None` for a
    /// request that waits as any other.
    pub fn serve_records(&self, answer: impl Fn(&Request) -> Option<(u16, String)> + Send + Sync + 'static) {
        self.shared.lock().records = Some(Arc::new(answer));
    }

    /// Prepares the answer to the next request that has none, be it here already; such a request never reaches
    /// [`Self::next_request`].
    pub fn prepare(&self, answer: Answer) {
        let mut state = self.shared.lock();
        match state.waiting.pop_front() {
            None => state.prepared.push_back(answer),
            Some(exchange) => {
                drop(state);
                exchange.answer(&answer);
            }
        }
    }

    /// The next request that no prepared answer took.
    ///
    /// # Panics
    /// When none comes within [`DEADLINE`].
    #[track_caller]
    pub fn next_request(&self) -> Exchange {
        let end = Instant::now() + DEADLINE;
        let mut state = self.shared.lock();
        loop {
            if let Some(exchange) = state.waiting.pop_front() {
                return exchange;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no request within {DEADLINE:?}; so far: {:#?}",
                conversations(&state.requests)
            );
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.clone()
    }

    /// The newest request.
    ///
    /// # Panics
    /// When there was none.
    #[track_caller]
    pub fn last_request(&self) -> Request {
        self.shared.lock().requests.last().cloned().expect("a request came")
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // The accepting thread sees the flag at the next connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn conversations(requests: &[Request]) -> Vec<Vec<String>> {
    requests.iter().map(Request::conversation).collect()
}

/// Reads one request of a connection; every response closes it.
fn serve(stream: TcpStream, shared: &Shared) {
    let Some(request) = read_request(&stream) else { return };
    let mut exchange = Exchange { request: request.clone(), stream };
    let mut state = shared.lock();
    state.requests.push(request.clone());
    let record = state.records.clone().and_then(|records| records(&request));
    if let Some((status, body)) = record {
        drop(state);
        let _ = exchange.try_reply(status, &body);
        return;
    }
    if let Some(answer) = state.prepared.pop_front() {
        drop(state);
        // The other end may hang up at any point: that is for the test to see elsewhere.
        let _ = exchange.try_answer(&answer);
        return;
    }
    state.waiting.push_back(exchange);
    drop(state);
    shared.changed.notify_all();
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body: serde_json::from_slice(&body).unwrap_or_default() })
}

/// A request that waits for its answer. Dropped unfinished, it is a connection that broke.
#[derive(Debug)]
pub struct Exchange {
    /// What was asked.
    pub request: Request,
    stream: TcpStream,
}

impl Exchange {
    /// Sends status and headers of a streamed answer.
    ///
    /// # Panics
    /// When the other end has hung up. So do the other methods that send.
    #[track_caller]
    pub fn head(&mut self, status: u16) {
        self.try_head(status).expect("the client is there");
    }

    /// Sends bytes of the answer, as one chunk in one write.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the client is there");
    }

    /// Sends one event.
    #[track_caller]
    pub fn event(&mut self, event: &Event) {
        self.send(&event.bytes());
    }

    /// Sends the head and all events but the last `but`.
    #[track_caller]
    pub fn begin(&mut self, answer: &Answer, but: usize) {
        self.head(200);
        for event in &answer.events[..answer.events.len() - but] {
            self.event(event);
        }
    }

    /// Sends the whole answer.
    #[track_caller]
    pub fn answer(mut self, answer: &Answer) {
        self.try_answer(answer).expect("the client is there");
    }

    /// Ends the answer properly.
    #[track_caller]
    pub fn finish(mut self) {
        self.try_finish().expect("the client is there");
    }

    /// Sends a whole answer that is no stream.
    #[track_caller]
    pub fn reply(mut self, status: u16, body: &str) {
        self.try_reply(status, body).expect("the client is there");
    }

    fn try_reply(&mut self, status: u16, body: &str) -> std::io::Result<()> {
        let head = format!(
            "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(head.as_bytes())
    }

    /// Breaks the connection in the middle of the answer.
    pub fn drop_connection(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Waits until the other end hangs up.
    ///
    /// # Panics
    /// When it does not within [`DEADLINE`].
    #[track_caller]
    pub fn wait_for_hang_up(mut self) {
        self.stream.set_read_timeout(Some(DEADLINE)).expect("a timeout that is not zero");
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("the client did not hang up: {other:?}"),
        }
    }

    fn try_head(&mut self, status: u16) -> std::io::Result<()> {
        let head = format!(
            "HTTP/1.1 {status} Scripted\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\
             connection: close\r\n\r\n"
        );
        self.stream.set_nodelay(true)?;
        self.stream.write_all(head.as_bytes())
    }

    fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.stream.write_all(&chunk)
    }

    fn try_finish(&mut self) -> std::io::Result<()> {
        self.stream.write_all(b"0\r\n\r\n")
    }

    fn try_answer(&mut self, answer: &Answer) -> std::io::Result<()> {
        self.try_head(200)?;
        for event in &answer.events {
            self.try_send(&event.bytes())?;
        }
        self.try_finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anthropic;

    fn ask(server: &ModelServer, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(server.address).expect("the server");
        let length = body.len();
        let head = format!("POST /v1/messages HTTP/1.1\r\nX-Api-Key: k\r\ncontent-length: {length}\r\n\r\n");
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()))
            .expect("a request");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout that is not zero");
        BufReader::new(stream)
    }

    fn read_until(stream: &mut BufReader<TcpStream>, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            assert_ne!(stream.read_line(&mut text).expect("more"), 0, "ended before {end:?}: {text}");
        }
        text
    }

    #[test]
    fn nothing_is_sent_before_it_is_released() {
        let server = ModelServer::start();
        let mut stream = ask(&server, r#"{"messages":[{"role":"user","content":"hi"}]}"#);
        let mut exchange = server.next_request();
        assert_eq!(exchange.request.header("x-api-key"), Some("k"));
        assert_eq!(exchange.request.conversation(), ["user: hi"]);
        exchange.head(200);
        let head = read_until(&mut stream, "\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream.get_ref().set_nonblocking(true).expect("a mode");
        let early = stream.fill_buf().map(<[u8]>::to_vec).expect_err("nothing was released");
        assert_eq!(early.kind(), ErrorKind::WouldBlock);
        stream.get_ref().set_nonblocking(false).expect("a mode");
        let event = anthropic::text_delta(0, "x");
        exchange.event(&event);
        let text = String::from_utf8(event.bytes()).expect("UTF-8");
        assert_eq!(read_until(&mut stream, "\n\r\n"), format!("{:x}\r\n{text}\r\n", text.len()));
        exchange.finish();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("the end");
        assert_eq!(rest, "0\r\n\r\n");
    }

    #[test]
    fn a_prepared_answer_is_sent_without_the_test_and_a_hang_up_is_seen() {
        let server = ModelServer::start();
        server.prepare(anthropic::text("Hello"));
        let mut answer = String::new();
        ask(&server, "{}").read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("\"Hello\"") && answer.ends_with("0\r\n\r\n"), "{answer}");
        drop(ask(&server, "{}"));
        server.next_request().wait_for_hang_up();
        assert_eq!(server.requests().len(), 2);
    }
}
