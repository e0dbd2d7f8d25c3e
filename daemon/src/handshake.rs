//! From an accepted socket to an attached client: read the hello, decide, welcome or refuse.

use std::sync::Arc;
use std::time::Duration;

use atomic_protocol::cli::{self, Dialect, Invocation};
use atomic_protocol::frame::LineSplitter;
use atomic_protocol::link::{FromDaemon, Hello, LINK_VERSION, Mode, PROGRAM_VERSION, Reply, build_id};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::connection::messages::Messages;
use crate::connection::{Client, Connection};
use crate::daemon::Daemon;
use crate::handover::Phase;
use crate::outbox::Outbox;
use crate::session::commands::UNSUPPORTED_DEFAULT;
use crate::session::open::{self, Opened};
use crate::session::{Attachment, SessionMessage};
use crate::transport::{Accepted, ReadHalf};
use crate::{admin, handover};

/// A client that has said no hello by then is let go.
pub const HELLO_DEADLINE: Duration = Duration::from_secs(10);

/// The same for one that took a descriptor which the sessions that are there may need.
const CROWDED_HELLO_DEADLINE: Duration = Duration::from_secs(1);

/// How often a session that ends while it is being joined is opened anew.
const OPENING_ROUNDS: usize = 3;

/// Serves one accepted connection to its end.
pub async fn serve(daemon: Arc<Daemon>, accepted: Accepted) {
    let Accepted { mut read, write, crowded } = accepted;
    let mut lines = LineSplitter::new();
    let deadline = if crowded.is_some() { CROWDED_HELLO_DEADLINE } else { HELLO_DEADLINE };
    let hello = tokio::time::timeout(deadline, first_line(&mut read, &mut lines)).await;
    let line = match hello {
        Ok(Some(line)) => line,
        // A bare connect-and-close is somebody looking whether we listen.
        Ok(None) => return,
        Err(_) => return tracing::info!("let a connection go that said no hello"),
    };
    let hello = match std::str::from_utf8(&line)
        .map_err(|_| None)
        .and_then(|text| serde_json::from_str::<Hello>(text).map_err(Some))
    {
        Ok(hello) => hello,
        Err(error) => {
            let reason = error.map_or("it is not UTF-8".to_owned(), |error| error.to_string());
            let text = format!("Error: atomicd {PROGRAM_VERSION} does not understand this hello: {reason}");
            return refuse(Outbox::new(write, false), text, 1).await;
        }
    };
    tracing::debug!(mode = ?hello.mode, version = hello.version, "hello");
    let client = Arc::new(Client::new(Outbox::new(write, hello.records)));
    // What is asked about the daemon itself has the same shape in every version.
    let session = matches!(hello.mode, Mode::Rpc | Mode::Json | Mode::Print);
    if session && hello.link != LINK_VERSION {
        let text = format!(
            "Error: atomic {} speaks link version {}, the running atomicd {PROGRAM_VERSION} speaks {LINK_VERSION}.\n\
             Hint: `atomic restart` replaces the running daemon by the one beside atomic.",
            hello.version, hello.link
        );
        return refuse_client(&client, text, 1).await;
    }
    if let Some(limit) = crowded.filter(|_| session) {
        let text = format!(
            "Error: atomicd may have {limit} open files, and nearly all of them are in use.\n\
             Hint: close windows, or raise the limit (`ulimit -n`) for the next daemon and run `atomic restart`."
        );
        return refuse_client(&client, text, 1).await;
    }
    let writer = client.clone();
    let writing = tokio::spawn(async move { writer.outbox.write().await });
    match hello.mode {
        Mode::Rpc | Mode::Json | Mode::Print => attach(&daemon, &client, read, lines, hello).await,
        Mode::Restart => handover::serve(&daemon, &client, read, &hello).await,
        mode => admin::serve(&daemon, &client, mode, &hello).await,
    }
    client.outbox.close();
    let _ = writing.await;
}

async fn first_line(read: &mut ReadHalf, lines: &mut LineSplitter) -> Option<Bytes> {
    loop {
        if let Some(line) = lines.next_line() {
            return Some(line);
        }
        lines.buffer().reserve(4096);
        if !matches!(read.read(lines.buffer()).await, Ok(1..)) {
            return None;
        }
    }
}

async fn attach(
    daemon: &Arc<Daemon>,
    client: &Arc<Client>,
    read: ReadHalf,
    lines: LineSplitter,
    hello: Hello,
) {
    let argv: Vec<_> = hello.argv.iter().map(|argument| argument.to_os()).collect();
    let options = match cli::parse(&argv) {
        Ok(Invocation::Session(options)) => *options,
        Ok(_) => return refuse_client(client, "Error: these arguments start no session".to_owned(), 1).await,
        Err(error) => return refuse_client(client, error.text, error.code).await,
    };
    let variable = hello.env.iter().find(|(name, _)| name.as_str() == Some(Dialect::VARIABLE));
    match options.dialect(variable.and_then(|(_, value)| value.as_str())) {
        Ok(dialect) => client.speak(dialect, options.ascii_separators),
        Err(error) => return refuse_client(client, error.text, error.code).await,
    }
    if handover::clashes(daemon, &hello) {
        tracing::info!(version = hello.version, build = hello.build, "another build may take over");
        let clash = Reply::Clash { version: PROGRAM_VERSION.to_owned(), build: build_id().to_owned() };
        client.outbox.push(greeting(&clash, &[], false).into());
        return;
    }
    let presence = daemon.attached(client, hello.mode);
    // While another daemon takes over, nothing begins here that could not move. Without an answer a shim asks the next.
    if *daemon.phase.borrow() != Phase::Serving
        && (hello.mode != Mode::Rpc || options.no_session)
        && !handover::released(&mut daemon.phase.subscribe()).await
        || daemon.shutdown.is_cancelled()
    {
        return;
    }
    let opening = open::opening(&hello, options);
    // A session that ends in the very moment it was found is found anew.
    for _ in 0..OPENING_ROUNDS {
        let Opened { session, notices, joined } = match open::open(daemon, &hello, &opening).await {
            Ok(opened) => opened,
            Err(text) => return refuse_client(client, text, 1).await,
        };
        let info = session.info();
        if hello.mode != Mode::Rpc && info.unsupported_default {
            // No message can be run: nothing begins, not even the header.
            return refuse_client(client, format!("Error: {UNSUPPORTED_DEFAULT}"), 1).await;
        }
        let welcome = Reply::Welcome {
            link: LINK_VERSION,
            version: PROGRAM_VERSION.to_owned(),
            build: build_id().to_owned(),
            pid: std::process::id(),
            session_id: info.id.clone(),
            session_file: info.file.as_ref().map(|path| path.to_string_lossy().into_owned()),
        };
        let mut greeting = greeting(&welcome, &notices, hello.records);
        let mut first = Bytes::new();
        match hello.mode {
            Mode::Json => {
                greeting.extend(info.header.to_line());
                greeting.push(b'\n');
            }
            // The greeting is all that it hears of its beginning.
            Mode::Print => {
                client.outbox.mute();
                first = std::mem::take(&mut greeting).into();
            }
            _ => {}
        }
        // The session sends the greeting itself, just before what a joiner has to know.
        let (attached, is_attached) = oneshot::channel();
        let environment = if joined { open::joiner_variables(&opening.env) } else { Vec::new() };
        let greeting = greeting.into();
        let attachment = Attachment { client: client.clone(), greeting, environment, attached };
        session.send(SessionMessage::Attach(attachment)).await;
        if is_attached.await.is_err() {
            session.closed().await;
            continue;
        }
        tracing::info!(session = info.id, client = client.id, "attached");
        client.outbox.say(first);
        if hello.mode != Mode::Rpc {
            let (daemon, client) = (daemon.clone(), client.clone());
            let (mode, on_disconnect) = (hello.mode, opening.options.on_disconnect);
            Messages { daemon, client, read, lines, session, mode, on_disconnect }.run().await;
            return drop(presence);
        }
        Connection::new(daemon.clone(), client.clone(), read, lines, session, opening).run().await;
        tracing::info!(client = client.id, "left");
        return drop(presence);
    }
    refuse_client(client, "Error: the session failed to start; `atomic logs` says why".to_owned(), 1).await;
}

/// The daemon's first lines: the welcome, and notices for stderr.
fn greeting(welcome: &Reply, notices: &[String], records: bool) -> Vec<u8> {
    let mut lines = serde_json::to_vec(welcome).expect("a welcome serialises");
    lines.push(b'\n');
    if records {
        for notice in notices {
            FromDaemon::Notice(notice.clone()).write_line(&mut lines);
        }
    }
    lines
}

async fn refuse_client(client: &Client, text: String, code: u8) {
    tracing::info!(text, "refused");
    send(&client.outbox, text, code).await;
}

async fn refuse(outbox: Outbox, text: String, code: u8) {
    send(&outbox, text, code).await;
}

async fn send(outbox: &Outbox, text: String, code: u8) {
    let mut line = serde_json::to_vec(&Reply::Refused { text, code }).expect("a refusal serialises");
    line.push(b'\n');
    outbox.push(line.into());
}
