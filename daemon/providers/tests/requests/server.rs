//! A server that does what a test says, and a session that talks to it.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use atomic_protocol::Raw;
use atomic_protocol::message::Message;
use atomic_protocol::model::{ModelEvent, ModelFailure, ModelRequest, ThinkingLevel};
use atomic_providers::{Env, Http, Registry, RequestOptions, SINK_CAPACITY, Setup, stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Only a hang reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Before the events of an answer.
pub(crate) const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// Serves one connection with `serve`, which gets the request's text.
pub(crate) fn server(serve: impl FnOnce(String, TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let request = read_request(&mut socket);
        serve(request, socket);
    });
    format!("http://{address}")
}

/// The next request's text, as far as it came before the other end closed.
pub(crate) fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        // A client that gives up may reset the connection.
        let count = socket.read(&mut piece).unwrap_or(0);
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length:")
                    .map(|value| value.trim().parse::<usize>().unwrap())
            });
            if count == 0 || body.len() >= length.unwrap_or(0) {
                return text;
            }
        } else if count == 0 {
            return text;
        }
    }
}

pub(crate) struct Session {
    dir: tempfile::TempDir,
    pub(crate) env: Vec<(&'static str, String)>,
    pub(crate) deadline: Option<Duration>,
}

impl Session {
    /// A session whose provider `local` with the model `m` is at `base_url` and speaks `api`. `more` are further keys of
    /// the model.
    pub(crate) fn new(base_url: &str, api: &str, more: &str) -> Session {
        let dir = tempfile::tempdir().unwrap();
        let models = format!(
            r#"{{"providers":{{"local":{{"baseUrl":"{base_url}","api":"{api}","apiKey":"$LOCAL_KEY","models":[{{"id":"m"{more}}}]}}}}}}"#
        );
        std::fs::write(dir.path().join("models.json"), models).unwrap();
        Session { dir, env: vec![("LOCAL_KEY", "very-secret-key".into())], deadline: None }
    }

    pub(crate) fn registry(&self) -> Registry {
        let registry = Registry::load(Setup {
            agent_dir: self.dir.path().to_owned(),
            env: self.env.iter().cloned().collect::<Env>(),
            options: RequestOptions { deadline: self.deadline, ..RequestOptions::default() },
            ..Setup::default()
        });
        assert!(registry.warnings().is_empty(), "{:?}", registry.warnings());
        registry
    }

    pub(crate) fn ask(&self, provider: &str, model: &str, cancel: &CancellationToken) -> Answer {
        self.ask_with(&Http::new(), provider, model, cancel)
    }

    /// With the connections that `http` keeps.
    pub(crate) fn ask_with(
        &self,
        http: &Http,
        provider: &str,
        model: &str,
        cancel: &CancellationToken,
    ) -> Answer {
        let registry = self.registry();
        let message = Raw::parse(r#"{"role":"user","content":"hello","timestamp":1}"#).unwrap();
        let request = ModelRequest {
            model: registry.find(provider, model).unwrap(),
            thinking: ThinkingLevel::Off,
            system: Arc::from("system"),
            messages: vec![Message::parse(&message).unwrap()],
            tools: Arc::from([]),
            session_id: "s".into(),
        };
        let (sink, batches) = mpsc::channel(SINK_CAPACITY);
        let (http, cancel) = (http.clone(), cancel.clone());
        let task = tokio::spawn(async move { stream(&http, &registry, request, sink, cancel).await });
        Answer { batches, task }
    }

    pub(crate) async fn all(&self) -> Vec<ModelEvent> {
        self.ask("local", "m", &CancellationToken::new()).rest().await
    }
}

pub(crate) struct Answer {
    pub(crate) batches: mpsc::Receiver<Vec<ModelEvent>>,
    pub(crate) task: tokio::task::JoinHandle<()>,
}

impl Answer {
    pub(crate) async fn batch(&mut self) -> Option<Vec<ModelEvent>> {
        tokio::time::timeout(PATIENCE, self.batches.recv()).await.expect("a batch or the end")
    }

    /// All that comes, checked: the terminal event is the last and the only one.
    pub(crate) async fn rest(mut self) -> Vec<ModelEvent> {
        let mut events = Vec::new();
        while let Some(batch) = self.batch().await {
            events.extend(batch);
        }
        self.task.await.unwrap();
        let terminal = |event: &ModelEvent| matches!(event, ModelEvent::Done { .. } | ModelEvent::Failed(_));
        assert_eq!(events.iter().position(terminal), Some(events.len() - 1), "{events:?}");
        events
    }
}

/// The failure an answer ends with.
pub(crate) fn failure(events: &[ModelEvent]) -> &ModelFailure {
    match events.last() {
        Some(ModelEvent::Failed(failure)) => failure,
        other => panic!("a failure, not {other:?}"),
    }
}
