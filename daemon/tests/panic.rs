//! A bug in one session is that session's: others go on, its clients are told, its file opens again with all that was
//! announced.
//!
//! The bug comes with the source of entry ids, which is the daemon's to choose.
#![cfg(unix)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atomic_agent::IdSource;
use atomic_daemon::daemon::Daemon;
use atomic_daemon::transport::Listener;
use atomic_daemon::{claim, handshake, logging};
use atomic_link::client::Client;
use atomic_link::place::Place;
use atomic_protocol::entry::EntryId;
use atomic_protocol::link::{Hello, MARK, Reply};
use atomic_tools::Children;
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(30);

/// Whoever wants the next id meets the bug.
static BUG: AtomicBool = AtomicBool::new(false);

struct Ids(HashSet<EntryId>);

impl IdSource for Ids {
    fn entry(&mut self) -> EntryId {
        assert!(!BUG.swap(false, Ordering::SeqCst), "a bug in one session");
        let id = atomic_session_store::new_entry_id(|id| self.0.contains(&EntryId::from(id)));
        self.0.insert(id.clone());
        id
    }
}

fn ids(taken: HashSet<EntryId>) -> Box<dyn IdSource> {
    Box::new(Ids(taken))
}

/// A daemon in this process.
struct Stage {
    place: Place,
    directory: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

fn stage() -> Stage {
    let directory = tempfile::Builder::new().prefix("ad-").tempdir().unwrap();
    let agent_dir = directory.path().join("agent");
    std::fs::create_dir(&agent_dir).unwrap();
    let (place, lock) = claim(&agent_dir).unwrap();
    let logging = logging::init(&place.logs(), "info").unwrap();
    let mut daemon = Daemon::new(place.agent_dir().to_owned(), Children::without_guard(), logging);
    daemon.new_ids = ids;
    let daemon = Arc::new(daemon);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bound = atomic_link::listen::bind(&place, &lock).unwrap();
    runtime.spawn(async move {
        let _lock = lock;
        let listener = Listener::new(bound).unwrap();
        loop {
            let accepted = listener.accept().await.unwrap();
            tokio::spawn(handshake::serve(daemon.clone(), accepted));
        }
    });
    Stage { place, directory, _runtime: runtime }
}

/// A client and where its session's file is.
struct Peer {
    client: Client,
    file: String,
}

impl Peer {
    fn join(stage: &Stage, session: Option<&str>) -> Peer {
        let home = stage.directory.path().to_str().unwrap();
        let hello = Hello {
            cwd: home.into(),
            argv: ["--mode", "rpc", "--provider", "demo"].map(Into::into).to_vec(),
            env: vec![("HOME".into(), home.into()), ("PATH".into(), "/usr/bin:/bin".into())],
            session: session.map(str::to_owned),
            records: true,
            ..Hello::default()
        };
        let client = Client::connect(&stage.place, &hello, DEADLINE).unwrap();
        let Reply::Welcome { session_file, .. } = client.reply() else { panic!("{:?}", client.reply()) };
        let file = session_file.clone().unwrap();
        Peer { client, file }
    }

    fn send(&mut self, command: &Value) {
        self.client.send_line(command.to_string().as_bytes()).unwrap();
    }

    /// The next record or link record; none at the end.
    fn next(&mut self) -> Option<String> {
        let record = self.client.next_record().unwrap()?;
        Some(String::from_utf8(record.to_vec()).unwrap())
    }

    fn until(&mut self, text: &str) -> String {
        loop {
            let record = self.next().unwrap_or_else(|| panic!("it ended before {text}"));
            if record.contains(text) {
                return record;
            }
        }
    }

    fn talk(&mut self) {
        self.send(&json!({"id": "p", "type": "prompt", "message": "hello"}));
        self.until("\"agent_settled\"");
    }

    fn messages(&mut self) -> Vec<Value> {
        self.send(&json!({"id": "m", "type": "get_messages"}));
        let answer: Value = serde_json::from_str(&self.until("\"command\":\"get_messages\"")).unwrap();
        answer["data"]["messages"].as_array().unwrap().clone()
    }
}

#[test]
fn a_bug_in_one_session_ends_that_session_only() {
    let stage = stage();
    let (mut first, mut other) = (Peer::join(&stage, None), Peer::join(&stage, None));
    first.talk();
    other.talk();
    let file = first.file.clone();
    let mut second = Peer::join(&stage, Some(&file));
    let before = first.messages();
    assert_eq!(second.messages(), before);

    BUG.store(true, Ordering::SeqCst);
    first.send(&json!({"id": "bug", "type": "prompt", "message": "now"}));
    for (peer, answers) in [(&mut first, 1), (&mut second, 0)] {
        let heard: Vec<String> = std::iter::from_fn(|| peer.next()).collect();
        assert_eq!(
            heard.iter().filter(|record| record.contains("\"id\":\"bug\"")).count(),
            answers,
            "{heard:#?}"
        );
        // The last thing they hear is a line for stderr, and no goodbye: their shims come again.
        let last = heard.last().unwrap();
        assert_eq!(last.as_bytes().first(), Some(&MARK), "{last}");
        assert!(last.contains("failed inside atomicd") && !last.contains("exit"), "{last}");
    }
    assert!(!BUG.load(Ordering::SeqCst), "it was met");

    let known = other.messages().len();
    other.talk();
    assert!(other.messages().len() > known);
    let mut again = Peer::join(&stage, Some(&file));
    assert_eq!(again.file, file);
    assert_eq!(again.messages(), before);
    again.talk();
    let after = again.messages();
    assert_eq!(after[..before.len()], before[..]);
    assert!(after.len() > before.len());
}
