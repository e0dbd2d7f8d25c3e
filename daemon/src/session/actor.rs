//! The task that owns one session.
//!
//! One loop: select what came, let the agent decide, perform its effects. Nothing else touches this state, so there is
//! nothing to lock. When the task panics, what it owned is dropped: tickets answer with an error, models and tools are
//! cancelled, the file is closed; other sessions do not notice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use atomic_agent::{Agent, AgentCommand, FallbackModel, Input, RequestId, TimerId, ToolRunId};
use atomic_protocol::link::FromDaemon;
use atomic_protocol::model::{Model, ModelFailure};
use atomic_providers::Registry;
use atomic_session_store::Store;
use atomic_tools::ToolEnvironment;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::changes::Changes;
use super::compaction::{CompactionWork, Composed};
use super::records::{self, Records};
use super::work::{BashDone, ModelWork, ToolWork};
use super::{Attachment, INBOX, Leaving, Outcome, SessionHandle, SessionInfo, SessionMessage, Status};
use crate::clock;
use crate::connection::Client;
use crate::daemon::Daemon;
use crate::outbox::Record;
use crate::resources::Resources;
use crate::settings::{Durability, OnDisconnect, Settings};
use crate::ticket::Ticket;

/// Updates and results of tools that wait for the session's task. Tools wait when there are more.
const TOOL_INBOX: usize = 64;

/// How often a client that does not read is looked at while others do.
const READER_CHECK: Duration = Duration::from_secs(1);

/// Everything a session's task owns.
pub(super) struct Actor {
    pub(super) daemon: Arc<Daemon>,
    pub(super) info: Arc<SessionInfo>,
    pub(super) agent: Agent,
    pub(super) store: Store,
    pub(super) registry: Registry,
    pub(super) settings: Settings,
    pub(super) resources: Arc<Resources>,
    pub(super) environment: ToolEnvironment,
    pub(super) clients: Vec<Arc<Client>>,

    inbox: mpsc::Receiver<SessionMessage>,
    /// For child tasks that report back.
    pub(super) own: mpsc::Sender<SessionMessage>,
    status: watch::Sender<Status>,

    pub(super) tickets: HashMap<RequestId, Ticket>,
    last_request: u64,
    pub(super) model: Option<ModelWork>,
    pub(super) compaction: Option<CompactionWork>,
    /// A boundary that is written out, while the agent is told of it.
    pub(super) composed: Option<Box<Composed>>,
    pub(super) tools: HashMap<ToolRunId, DropGuard>,
    pub(super) tool_sender: mpsc::Sender<ToolWork>,
    pub(super) changes: Changes,
    tool_receiver: mpsc::Receiver<ToolWork>,
    /// The time the agent asked to be woken at.
    pub(super) timer: Option<(TimerId, Instant)>,
    pub(super) bash: usize,
    /// Records for all clients, not sent yet.
    pub(super) records: Records,
    /// Clients that wait for the run to settle before they leave.
    leaving: Vec<(u64, oneshot::Sender<()>)>,
    /// Who wants to know how the run comes out.
    waiting: Vec<oneshot::Sender<Outcome>>,
    ending: bool,
    /// What was told in a session without a file is written when it ends.
    write_out: bool,
    /// Entries that were there before anybody asked for something.
    begun_with: usize,
    attached_once: bool,
    /// The provider a key was found for; it is not looked for again before every prompt.
    pub(super) key_found_for: Option<String>,
    /// The models that `cycle_model` goes through, if some are named.
    pub(super) scope: Vec<Arc<Model>>,
    /// The models that `fallbackModels` names, with a credential or without.
    pub(super) fallbacks: Vec<FallbackModel>,
    /// Stays loaded without clients.
    kept: bool,
    unload_at: Option<Instant>,
    /// The clients were told that another program writes to the file.
    told_of_foreign: bool,
}

/// What an actor starts from.
pub(crate) struct Prepared {
    pub(super) daemon: Arc<Daemon>,
    pub(super) info: SessionInfo,
    pub(super) agent: Agent,
    pub(super) store: Store,
    pub(super) registry: Registry,
    pub(super) settings: Settings,
    pub(super) resources: Arc<Resources>,
    pub(super) environment: ToolEnvironment,
    /// Record the model and the thinking level in the file.
    pub(super) record: (bool, bool),
    /// `--name`.
    pub(super) name: Option<String>,
    pub(super) scope: Vec<Arc<Model>>,
    pub(super) fallbacks: Vec<FallbackModel>,
}

impl Prepared {
    /// The session's file.
    pub(crate) fn file(&self) -> Option<&std::path::Path> {
        self.info.file.as_deref()
    }
}

/// Starts the task. `over` is called when the session has ended, however it did.
pub(crate) fn start(prepared: Prepared, over: impl FnOnce(&SessionHandle) + Send + 'static) -> SessionHandle {
    let (own, inbox) = mpsc::channel(INBOX);
    let (status, status_receiver) = watch::channel(Status::default());
    let (tool_sender, tool_receiver) = mpsc::channel(TOOL_INBOX);
    let info = Arc::new(prepared.info);
    let token = CancellationToken::new();
    let handle = SessionHandle {
        inbox: own.clone(),
        info: info.clone(),
        status: status_receiver,
        over: token.clone(),
        failed: Arc::default(),
    };
    let unload_at = prepared.settings.daemon.unload_after.map(|after| Instant::now() + after);
    let actor = Actor {
        daemon: prepared.daemon,
        info,
        agent: prepared.agent,
        store: prepared.store,
        registry: prepared.registry,
        settings: prepared.settings,
        resources: prepared.resources,
        environment: prepared.environment,
        clients: Vec::new(),
        inbox,
        own,
        status,
        tickets: HashMap::new(),
        last_request: 0,
        model: None,
        compaction: None,
        composed: None,
        tools: HashMap::new(),
        tool_sender,
        changes: Changes::default(),
        tool_receiver,
        timer: None,
        bash: 0,
        records: Records::default(),
        leaving: Vec::new(),
        waiting: Vec::new(),
        ending: false,
        write_out: false,
        begun_with: 0,
        attached_once: false,
        key_found_for: None,
        scope: prepared.scope,
        fallbacks: prepared.fallbacks,
        kept: false,
        unload_at,
        told_of_foreign: false,
    };
    let (record, name) = (prepared.record, prepared.name);
    let watched = handle.clone();
    let task = tokio::spawn(async move { actor.run(record, name).await });
    tokio::spawn(async move {
        if let Err(error) = task.await {
            tracing::error!(session = watched.info.id, %error, "session failed");
            watched.failed.store(true, Ordering::Release);
        }
        over(&watched);
        token.cancel();
    });
    handle
}

impl Actor {
    async fn run(mut self, record: (bool, bool), name: Option<String>) {
        let now = clock::now();
        let effects = self.agent.begin(record.0, record.1, now);
        self.perform(effects, now);
        self.begun_with = self.store.entries().len();
        if let Some(name) = name {
            let request = self.next_request();
            self.feed(Input::Command { request, command: AgentCommand::SetName(name) });
        }
        self.daemon.clean(self.environment.env.temp_dir());
        self.ask_configured_servers();
        tracing::info!(session = self.info.id, cwd = %self.info.cwd.display(), "session loaded");
        loop {
            self.after_each();
            if self.is_over() {
                break;
            }
            let blocked = self.all_full();
            let unload = self.unload_at;
            let wake = self.timer.map(|(_, at)| at);
            tokio::select! {
                biased;
                message = self.inbox.recv() => {
                    let Some(message) = message else { break };
                    self.message(message).await;
                }
                Some(work) = self.tool_receiver.recv(), if !blocked => self.tool(work),
                events = ModelWork::next(&mut self.model), if !blocked => {
                    self.model_answered(events);
                    // A piece may be hundreds of deltas: who else waits for this thread comes first.
                    tokio::task::yield_now().await;
                }
                () = any_has_room(&self.clients), if blocked => {}
                () = tokio::time::sleep(READER_CHECK), if !blocked && self.clients.len() > 1 && self.any_full() => {
                    self.let_hopeless_go();
                }
                () = sleep_until(wake), if wake.is_some() => {
                    if let Some((timer, _)) = self.timer.take() {
                        self.feed(Input::Timer(timer));
                    }
                }
                () = sleep_until(unload), if unload.is_some() => {
                    tracing::info!(session = self.info.id, "session unloaded");
                    break;
                }
            }
        }
        self.inbox.close();
        if self.write_out
            && self.store.entries().len() > self.begun_with
            && let Err(error) = self.store.write_out()
        {
            tracing::error!(session = self.info.id, %error, "what was chosen in this session is not kept");
        }
    }

    fn any_full(&self) -> bool {
        self.clients.iter().any(|client| client.outbox.is_full())
    }

    /// A client that does not read while others do is let go; the run must not wait for it, nor memory grow.
    fn let_hopeless_go(&mut self) {
        let now = std::time::Instant::now();
        self.clients.retain(|client| match client.outbox.is_hopeless(now) {
            None => true,
            Some(reason) => {
                tracing::warn!(session = self.info.id, client = client.id, reason, "let a client go");
                client.outbox.cut(&format!(
                    "Error: atomicd let this client go: {reason} while others of the session did"
                ));
                false
            }
        });
    }

    /// Every attached client has more waiting than it should: the run waits for them.
    fn all_full(&self) -> bool {
        !self.clients.is_empty() && self.clients.iter().all(|client| client.outbox.is_full())
    }

    fn model_answered(&mut self, events: Option<Vec<atomic_protocol::model::ModelEvent>>) {
        use atomic_protocol::model::ModelEvent::{Done, Failed};
        let Some(work) = &self.model else { return };
        let call = work.call;
        let events = events.unwrap_or_else(|| {
            // The task ended without a last word: it panicked, and the log says how.
            vec![Failed(ModelFailure::new("The model adapter failed; see the log of atomicd"))]
        });
        if events.iter().any(|event| matches!(event, Done { .. } | Failed(_))) {
            self.model = None;
        }
        self.feed(Input::Model { call, events });
    }

    fn tool(&mut self, work: ToolWork) {
        match work {
            ToolWork::Update(run, output) => self.feed(Input::ToolUpdate { run, output }),
            ToolWork::Done(run, output) => {
                self.tools.remove(&run);
                self.feed(Input::ToolDone { run, output });
            }
        }
    }

    async fn message(&mut self, message: SessionMessage) {
        match message {
            SessionMessage::Command { ticket, command } => self.command(ticket, command).await,
            SessionMessage::Refused { client, line, answer } => {
                client.outbox.answer(line, Some(Record::Lines(answer)));
                client.closed(false);
            }
            SessionMessage::Bash { ticket, command, exclude_from_context, cancel } => {
                self.bash += 1;
                self.start_bash(ticket, command, exclude_from_context, cancel);
            }
            SessionMessage::BashDone(BashDone { ticket, message, data }) => {
                self.bash -= 1;
                // The result is in the file (or waits for the next point between turns) before it is answered.
                self.feed(Input::BashFinished { message });
                ticket.client().end_bash(ticket.line());
                ticket.succeed(Some(&data));
            }
            SessionMessage::Compaction(done) => self.compaction_done(done),
            SessionMessage::Models(found) => self.take_found(found).await,
            SessionMessage::Late(client) => self.compact_is_late(client),
            SessionMessage::Attach(attachment) => self.attach(attachment),
            SessionMessage::Leave { client, leaving, on_disconnect, left } => {
                self.leave(client, leaving, on_disconnect, left);
            }
            SessionMessage::Settled(reply) => self.waiting.push(reply),
            SessionMessage::Branch { at, branch } => {
                // The connection that asked may be gone.
                let _ = branch.send(self.branch(&at));
            }
            SessionMessage::Release(released) => {
                let free = self.clients.is_empty() && self.agent.is_idle() && self.bash == 0;
                self.ending |= free;
                let _ = released.send(free);
            }
            SessionMessage::Abort => {
                if !self.agent.is_idle() {
                    self.abort_for_leaver();
                }
            }
            SessionMessage::Shutdown { handover } => {
                self.ending = true;
                self.write_out |= handover;
                self.abort_compaction();
                self.abort();
            }
        }
    }

    pub(super) fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }

    pub(super) fn ask(&mut self, ticket: Ticket, command: AgentCommand) {
        let request = self.next_request();
        self.tickets.insert(request, ticket);
        self.feed(Input::Command { request, command });
    }

    fn abort(&mut self) {
        let request = self.next_request();
        self.feed(Input::Command { request, command: AgentCommand::Abort { keep_queue: false } });
    }

    fn attach(&mut self, attachment: Attachment) {
        let Attachment { client, greeting, environment, attached } = attachment;
        if !environment.is_empty() {
            let env = Arc::make_mut(&mut self.environment.env);
            for (name, value) in environment {
                env.set(name, value);
            }
        }
        client.outbox.push(greeting);
        // What somebody else wrote since is part of what a joiner reads.
        if let Err(error) = self.store.look() {
            tracing::warn!(session = self.info.id, %error, "the session file");
        }
        self.records.join(&client, &self.agent.joining());
        self.clients.push(client);
        self.attached_once = true;
        let _ = attached.send(());
    }

    fn leave(
        &mut self,
        client: u64,
        leaving: Leaving,
        on_disconnect: Option<OnDisconnect>,
        left: oneshot::Sender<()>,
    ) {
        let alone = self.clients.iter().all(|other| other.id == client);
        let in_memory = self.info.file.is_none();
        let policy = on_disconnect.unwrap_or(self.settings.daemon.on_disconnect);
        if alone {
            // The last leaver's word counts.
            self.kept = policy == OnDisconnect::Keep && !in_memory && leaving != Leaving::Replaced;
        }
        if leaving == Leaving::Drain && !self.agent.is_idle() {
            return self.leaving.push((client, left));
        }
        let unwanted = leaving == Leaving::Replaced || in_memory || policy == OnDisconnect::Abort;
        let ends_run = alone && !self.agent.is_idle() && unwanted;
        if ends_run {
            // The asker sees how the run ends before it is let go.
            self.leaving.push((client, left));
            if leaving == Leaving::Gone {
                self.clients.retain(|other| other.id != client);
            }
            return self.abort_for_leaver();
        }
        if leaving == Leaving::Replaced && self.agent.is_running() {
            // The run goes on for the others; for the asker it ends here.
            if let Some(asker) = self.clients.iter().find(|other| other.id == client) {
                records::tell(asker, &self.agent.leaving());
            }
        }
        self.clients.retain(|other| other.id != client);
        let _ = left.send(());
    }

    /// Another program has written to the file: it is none that this daemon knows, and it asks for no lock.
    fn tell_of_foreign(&mut self, entries: usize) {
        let Some(file) = &self.info.file else { return };
        tracing::warn!(session = self.info.id, file = %file.display(), entries, "another program appended to the file");
        if !std::mem::replace(&mut self.told_of_foreign, true) {
            let notice = format!(
                "Warning: another program appends to {} while the session is open here; its entries are kept, on a branch of \
                 their own",
                file.display()
            );
            for client in &self.clients {
                client.outbox.link(&FromDaemon::Notice(notice.clone()));
            }
        }
    }

    /// The only client leaves: what waits in the queues is for nobody any more.
    fn abort_for_leaver(&mut self) {
        if self.agent.queued() > 0 {
            let request = self.next_request();
            self.feed(Input::Command { request, command: AgentCommand::ClearQueue });
        }
        self.abort_compaction();
        self.abort();
    }

    /// After each thing that happened: tell watchers, let leavers go, think about unloading.
    fn after_each(&mut self) {
        if self.agent.is_idle() {
            for reply in std::mem::take(&mut self.waiting) {
                let _ = reply.send(self.outcome());
            }
            for (client, left) in self.leaving.drain(..) {
                self.clients.retain(|other| other.id != client);
                let _ = left.send(());
            }
        }
        match self.store.take_foreign() {
            0 => {}
            entries => self.tell_of_foreign(entries),
        }
        if self.clients.len() > 1 && self.any_full() {
            self.let_hopeless_go();
        }
        let running = !self.agent.is_idle() || self.bash > 0;
        let clients = self.clients.len() as u32;
        let name = self.store.name();
        let changed = self.status.send_if_modified(|status| {
            let kept = self.kept && clients == 0;
            let same = (status.running, status.clients, status.kept) == (running, clients, kept);
            if same && status.name.as_deref() == name {
                return false;
            }
            *status = Status { name: name.map(str::to_owned), clients, running, kept };
            true
        });
        if changed {
            self.daemon.sessions.changed.notify_waiters();
        }
        self.records.keep_for(&self.clients);
        self.unload_at = if running || clients > 0 || self.kept {
            None
        } else {
            self.unload_at.or_else(|| self.settings.daemon.unload_after.map(|after| Instant::now() + after))
        };
    }

    /// Nothing is left to do here, for good.
    fn is_over(&self) -> bool {
        let idle = self.agent.is_idle() && self.bash == 0;
        let abandoned = self.clients.is_empty() && self.info.file.is_none() && self.attached_once;
        idle && (self.ending || abandoned)
    }

    /// After a turn the file is forced to the disk, beside everything else (setting `daemon.durability`).
    pub(super) fn sync_after(&mut self, turn_ended: bool) {
        let wanted = match self.settings.daemon.durability {
            Durability::Turn => turn_ended,
            Durability::Entry => true,
            Durability::None => false,
        };
        if !wanted {
            return;
        }
        match self.store.sync() {
            Ok(Some(handle)) => {
                let session = self.info.id.clone();
                tokio::task::spawn_blocking(move || {
                    if let Err(error) = handle.sync() {
                        tracing::warn!(session, %error, "the session file was not forced to the disk");
                    }
                });
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(session = self.info.id, %error, "the session file cannot be synced"),
        }
    }
}

/// Waits until one of the clients, who are more than none, has room.
async fn any_has_room(clients: &[Arc<Client>]) {
    let room = clients.iter().map(|client| Box::pin(client.outbox.has_room()));
    futures_util::future::select_all(room).await;
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => tokio::time::sleep(Duration::MAX).await,
    }
}
