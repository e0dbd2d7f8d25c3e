//! A model server on the loopback address, as fast or as slow as the prompt asks. It answers in the form that the
//! request's path asks for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::wire::{self, Wire};

/// Longest request that is read: far above any here.
const MAX_REQUEST_BYTES: usize = 256 << 20;

/// Bytes of events sent in one write when nothing slows them down, as a busy network delivers them.
const BURST_BYTES: usize = 64 * 1024;

/// Longest wait for the server's own note of what it served.
const DEADLINE: Duration = Duration::from_secs(10);

/// A prompt that asks for `count` deltas, `interval` apart (zero: as fast as they are read). `tag` comes back in
/// [`Served`].
pub(crate) fn prompt(count: usize, interval: Duration, tag: usize) -> String {
    format!("bench[{count},{},{tag}]", interval.as_micros())
}

/// A prompt that asks for so many turns of so many calls each.
pub(crate) fn turns(turns: usize, calls: usize) -> String {
    format!("turns[{turns},{calls}]")
}

/// When a request came and when its deltas were written.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) tag: usize,
    pub(crate) request: Instant,
    /// One for each write: of a burst only the first.
    pub(crate) deltas: Vec<Instant>,
}

/// The server. Its threads end with the process.
pub(crate) struct Model {
    url: String,
    served: Receiver<Served>,
}

impl Model {
    /// Starts to listen.
    pub(crate) fn start() -> Result<Model, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let (log, served) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = log.clone();
                // A client that hangs up has what it wanted.
                std::thread::spawn(move || drop(serve(stream, &log)));
            }
        });
        Ok(Model { url, served })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The next answer that is complete.
    pub(crate) fn next_served(&self) -> Result<Served, Failure> {
        Ok(self.served.recv_timeout(DEADLINE)?)
    }
}

fn serve(stream: TcpStream, log: &Sender<Served>) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    // One connection carries one request after the other.
    while let Some((path, body)) = request(&mut input)? {
        let request = Instant::now();
        let wire = Wire::of(&path);
        if planner(&body) {
            let mut answer = Answer { wire, out: &mut out, chunk: Vec::new(), begun: false };
            answer.begin();
            answer.text(DELETIONS);
            answer.end(1)?;
            log.send(Served { tag: 0, request, deltas: Vec::new() })?;
            continue;
        }
        if let Some(calls) = due_calls(&body) {
            let mut answer = Answer { wire, out: &mut out, chunk: Vec::new(), begun: false };
            answer.begin();
            calls.iter().enumerate().for_each(|(at, (id, command))| answer.call(at + 1, id, command));
            answer.end_with(if calls.is_empty() { "end_turn" } else { "tool_use" }, 1)?;
            continue;
        }
        let (count, interval, tag) = script(&body).ok_or("a prompt that is not ours")?;
        let mut served = Served { tag, request, deltas: Vec::new() };
        let mut answer = Answer { wire, out: &mut out, chunk: Vec::new(), begun: false };
        answer.begin();
        for number in 0..count {
            if !interval.is_zero() {
                let due = request + interval * number as u32;
                crate::proc::until(due);
            }
            answer.delta(number);
            if !interval.is_zero() || number == 0 || answer.chunk.len() >= BURST_BYTES {
                served.deltas.push(Instant::now());
                answer.flush()?;
            }
        }
        answer.end(count)?;
        log.send(served)?;
    }
    Ok(())
}

/// Path and body of the next request; `None` when the connection ends.
fn request(input: &mut BufReader<TcpStream>) -> Result<Option<(String, Vec<u8>)>, Failure> {
    let mut length = 0;
    let mut path = String::new();
    let mut line = String::new();
    let mut first = true;
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim_end().is_empty() && !first {
            break;
        }
        if std::mem::take(&mut first) {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    if length > MAX_REQUEST_BYTES {
        return Err("a request that is far too long".into());
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some((path, body)))
}

/// What a planner of a compaction answers.
const DELETIONS: &str = "2,150000\n";

/// The request is one for the planner of a compaction.
fn planner(body: &[u8]) -> bool {
    /// The system prompt stands within the first or the last bytes, beside a conversation of any length.
    const EDGE: usize = 16 * 1024;
    let edges = [&body[..body.len().min(EDGE)], &body[body.len().saturating_sub(EDGE)..]];
    edges.iter().any(|edge| edge.windows(16).any(|bytes| bytes == b"deletion records"))
}

/// The calls, as id and command, that a prompt of [`turns`] asks for next, which end in another order each time; none after
/// the last turn.
fn due_calls(body: &[u8]) -> Option<Vec<(String, String)>> {
    let (_, rest) = std::str::from_utf8(body).ok()?.rsplit_once("turns[")?;
    let (numbers, conversation) = rest.split_once(']')?;
    let (turns, calls) = numbers.split_once(',')?;
    let (turns, calls): (usize, usize) = (turns.parse().ok()?, calls.parse().ok()?);
    let turn = conversation.matches("\"tool_result\"").count() / calls.max(1);
    let due = if turn < turns { calls } else { 0 };
    let rest = |call: usize| (turn * 7 + call * 2) % 3 * 4;
    Some(
        (0..due)
            .map(|call| (format!("c{turn}-{call}"), format!("sleep 0.00{}; echo {turn}", rest(call))))
            .collect(),
    )
}

/// What the last prompt of a conversation asks for: deltas, interval, tag.
fn script(body: &[u8]) -> Option<(usize, Duration, usize)> {
    let (_, rest) = std::str::from_utf8(body).ok()?.rsplit_once("bench[")?;
    let mut numbers = rest.split_once(']')?.0.split(',').map(|number| number.parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    Some((next()? as usize, Duration::from_micros(next()?.into()), next()? as usize))
}

/// An answer on its way: events collect in a chunk until they are flushed.
struct Answer<'a> {
    wire: Wire,
    out: &'a mut TcpStream,
    chunk: Vec<u8>,
    /// The head is out.
    begun: bool,
}

impl Answer<'_> {
    fn begin(&mut self) {
        self.wire.begin(&mut self.chunk);
    }

    fn text(&mut self, text: &str) {
        self.wire.text(&mut self.chunk, &serde_json::Value::from(text).to_string());
    }

    /// Twelve bytes of text, each time other ones.
    fn delta(&mut self, number: usize) {
        self.wire.text(&mut self.chunk, &format!(r#""word {number:06} ""#));
    }

    /// A call of bash, behind the text.
    fn call(&mut self, index: usize, id: &str, command: &str) {
        self.event(
            "content_block_start",
            format_args!(
                r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"{id}","name":"bash","input":{{}}}}}}"#
            ),
        );
        self.event(
            "content_block_delta",
            format_args!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{{\"command\":\"{command}\"}}"}}}}"#
            ),
        );
        self.event("content_block_stop", format_args!(r#"{{"type":"content_block_stop","index":{index}}}"#));
    }

    /// An event of Anthropic's.
    fn event(&mut self, name: &str, data: std::fmt::Arguments<'_>) {
        wire::named(&mut self.chunk, name, data);
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(self.chunk.len() + 256);
        if !std::mem::replace(&mut self.begun, true) {
            bytes.extend(self.wire.head().bytes());
        }
        write!(bytes, "{:x}\r\n", self.chunk.len())?;
        bytes.append(&mut self.chunk);
        bytes.extend_from_slice(b"\r\n");
        self.out.write_all(&bytes)
    }

    fn end(mut self, count: usize) -> std::io::Result<()> {
        self.wire.end(&mut self.chunk, count);
        self.finish()
    }

    /// The end of an answer of Anthropic's with another reason.
    fn end_with(mut self, stop: &str, count: usize) -> std::io::Result<()> {
        self.event("content_block_stop", format_args!(r#"{{"type":"content_block_stop","index":0}}"#));
        self.event(
            "message_delta",
            format_args!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}","stop_sequence":null}},"usage":{{"output_tokens":{count}}}}}"#
            ),
        );
        self.event("message_stop", format_args!(r#"{{"type":"message_stop"}}"#));
        self.finish()
    }

    fn finish(mut self) -> std::io::Result<()> {
        self.flush()?;
        self.out.write_all(b"0\r\n\r\n")
    }
}
