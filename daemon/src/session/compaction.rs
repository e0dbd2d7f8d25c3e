//! Performs what a compaction or the summary of a branch needs: the model's call and the work around it, the backup, the conversation built anew.
//!
//! What grows with the transcript (writing it down, numbering, putting it back together, copying the file) runs where it
//! may block; the session's task only hands over shared bytes.

use std::path::{Path, PathBuf};

use atomic_agent::compaction::{
    BROKE_OFF, Begun, Diagnosis, LeftBehind, PlanOutcome, PlannerAnswer, Source, Work,
};
use atomic_agent::{AgentCommand, Compose, Conversation, Input, PlanCall, PlanId, PlanStage, RequestId};
use atomic_protocol::message::{Content, Message, Usage, UserMessage};
use atomic_protocol::model::ModelRequest;
use atomic_protocol::time::Millis;
use atomic_providers::Registry;
use atomic_session_store as store;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::SessionMessage;
use super::actor::Actor;
use crate::clock;
use crate::daemon::Daemon;

/// Pieces of a planner's answer that wait to be put together.
const PIECES: usize = 16;

/// A step that broke inside the daemon; the log says how.
const BROKEN: &str = "Shortening or summing up failed inside atomicd; see its log";

/// What a step begins from, as the session store gives it.
enum Material {
    Conversation(Source),
    Branch(Vec<LeftBehind>),
    None,
}

/// A step of a compaction under way. Dropping it cancels the step.
pub(super) struct CompactionWork {
    plan: PlanId,
    _cancel: DropGuard,
}

/// A step of a compaction is done.
#[derive(Debug)]
pub struct CompactionDone {
    input: Input,
    composed: Option<Box<Composed>>,
}

/// A boundary that is written out and not in the file yet.
#[derive(Debug)]
pub(super) struct Composed {
    pub(super) plan: PlanId,
    pub(super) entry: store::ReadyEntry,
    /// The conversation that it leaves.
    pub(super) conversation: Conversation,
}

impl Actor {
    /// Starts a step of planning.
    pub(super) fn plan(&mut self, call: PlanCall) {
        let material = match &call.stage {
            PlanStage::Begin(_) => Material::Conversation(self.source()),
            PlanStage::BeginBranch(_, target) => {
                let left = store::left_behind(&self.store, target).into_iter();
                let left = left.map(|store::Left { message, summary }| LeftBehind { message, summary });
                Material::Branch(left.collect())
            }
            PlanStage::Ask(_) | PlanStage::Fresh(_) => Material::None,
        };
        let (daemon, registry, own) = (self.daemon.clone(), self.registry.clone(), self.own.clone());
        let file = self.info.file.clone();
        let cancel = CancellationToken::new();
        let (plan, token) = (call.plan, cancel.clone());
        tracing::debug!(session = self.info.id, model = call.model.id, "compaction");
        tokio::spawn(async move {
            let mut usage = Usage::default();
            let outcome = tokio::select! {
                outcome = step(&daemon, &registry, call, material, file, token.clone(), &mut usage) => Some(outcome),
                () = token.cancelled() => None,
            };
            if usage != Usage::default() {
                // It is paid for, whatever came of it.
                let spent = Input::Spent { usage };
                tell(&own, spent).await;
            }
            let Some((outcome, diagnostic)) = outcome else { return };
            tell(&own, Input::Planned { plan, outcome, diagnostic }).await;
        });
        self.compaction = Some(CompactionWork { plan, _cancel: cancel.drop_guard() });
    }

    /// Ends a step whose outcome is not wanted any more.
    pub(super) fn cancel_plan(&mut self, plan: PlanId) {
        if self.compaction.as_ref().is_some_and(|work| work.plan == plan) {
            self.compaction = None;
        }
    }

    fn source(&self) -> Source {
        let store::Shortenable { previous, messages } = store::shortenable(&self.store);
        Source { previous, messages }
    }

    /// Copies the session's file, if there is one.
    pub(super) fn back_up(&self, plan: PlanId, label: &'static str) {
        let (file, own) = (self.info.file.clone(), self.own.clone());
        tokio::spawn(async move {
            let copy = move || match file {
                Some(file) => store::backup(&file, clock::now(), label),
                None => Ok(None),
            };
            let backup = match tokio::task::spawn_blocking(copy).await {
                Ok(Ok(path)) => Ok(path.map(|path| path.to_string_lossy().into_owned())),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => {
                    tracing::error!(%error, "backup failed");
                    Err(BROKEN.to_owned())
                }
            };
            tell(&own, Input::BackedUp { plan, backup }).await;
        });
    }

    /// Has a boundary written out: its entry, its result, and the conversation that it leaves.
    pub(super) fn compose(&self, compose: Compose) {
        let own = self.own.clone();
        let kept = store::kept(&self.store, compose.boundary.first_kept());
        tokio::spawn(async move {
            let plan = compose.plan;
            let composed = blocking(move || {
                let entry = store::ReadyEntry::new(&compose.entry())?;
                let conversation = Conversation::new(entry.conversation(&kept));
                Ok::<_, store::Error>((compose.result(), Composed { plan, entry, conversation }))
            });
            let (result, composed) = match composed.await {
                Ok(Ok((result, composed))) => (Ok(result), Some(Box::new(composed))),
                Ok(Err(error)) => (Err(error.to_string()), None),
                Err(error) => {
                    tracing::error!(%error, "a compaction was not written out");
                    (Err(BROKEN.to_owned()), None)
                }
            };
            let done = CompactionDone { input: Input::Composed { plan, result }, composed };
            let _ = own.send(SessionMessage::Compaction(done)).await;
        });
    }

    /// A step is done.
    pub(super) fn compaction_done(&mut self, done: CompactionDone) {
        self.composed = done.composed;
        self.feed(done.input);
        // What was not wanted any more.
        self.composed = None;
    }

    /// `abort_compaction` on nobody's behalf.
    pub(super) fn abort_compaction(&mut self) {
        let request = self.next_request();
        self.feed(Input::Command { request, command: AgentCommand::AbortCompaction });
    }

    /// A client with no more to ask has waited long enough for its `compact`, or for the summary of a branch.
    pub(super) fn compact_is_late(&mut self, client: u64) {
        let waiting = self.agent.compaction_requests();
        let own = |request: &RequestId| {
            self.tickets.get(request).is_some_and(|ticket| ticket.client().id == client)
        };
        let (late, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(own);
        if late.is_empty() {
            return;
        }
        if others.is_empty() {
            return self.abort_compaction();
        }
        for request in late {
            if let Some(ticket) = self.tickets.remove(&request) {
                ticket.fail("Compaction cancelled");
            }
        }
    }
}

/// Tells the session what came of a step; one that is over does not want to know.
async fn tell(own: &mpsc::Sender<SessionMessage>, input: Input) {
    let _ = own.send(SessionMessage::Compaction(CompactionDone { input, composed: None })).await;
}

/// Does one step. Gives what came of it, and where it is told why the planner is given up.
async fn step(
    daemon: &Daemon,
    registry: &Registry,
    call: PlanCall,
    material: Material,
    file: Option<PathBuf>,
    token: CancellationToken,
    usage: &mut Usage,
) -> (PlanOutcome, Option<String>) {
    let (window, asked) = (call.window, call.asked());
    let begun = blocking(move || match (call.stage, material) {
        (PlanStage::Begin(begin), Material::Conversation(source)) => begin.begin(source, window),
        (PlanStage::BeginBranch(begin, _), Material::Branch(left)) => begin.begin(left, window),
        (PlanStage::Ask(work), _) => Begun::Ask(work),
        (PlanStage::Fresh(plan), _) => Begun::Over(plan.fresh(window).into()),
        // Each beginning was given its material right above.
        (PlanStage::Begin(_) | PlanStage::BeginBranch(..), _) => Begun::Over(PlanOutcome::Nothing),
    });
    let work = match begun.await {
        Ok(Begun::Ask(work)) => work,
        Ok(Begun::Over(outcome)) => return (outcome, None),
        Err(error) => return (broken(error), None),
    };
    let (shown, system) = (work.clone(), work.system());
    let request = match blocking(move || request(&shown)).await {
        Ok(messages) => ModelRequest {
            model: call.model,
            thinking: call.thinking,
            system: system.into(),
            messages,
            tools: [].into(),
            // Not the session's own: the provider's cache for that must not be pushed out.
            session_id: store::new_session_id(),
        },
        Err(error) => return (broken(error), None),
    };
    let (sender, mut pieces) = mpsc::channel(PIECES);
    let mut answer = PlannerAnswer::default();
    let collect = async {
        while let Some(events) = pieces.recv().await {
            for event in events {
                let last = answer.take(event);
                usage.clone_from(answer.usage());
                if last {
                    return true;
                }
            }
        }
        false
    };
    let stream = atomic_providers::stream(&daemon.http, registry, request, sender, token);
    let ((), whole) = tokio::join!(stream, collect);
    if !whole {
        answer = PlannerAnswer::broken(BROKE_OFF);
    }
    let judged = blocking(move || {
        let outcome = work.outcome(answer.clone(), window);
        let now = clock::now();
        let diagnosis = file.zip(asked.diagnosis(&answer, &outcome, now));
        let path = diagnosis.and_then(|(file, diagnosis)| keep(&file, now, &diagnosis));
        (outcome, path)
    });
    judged.await.unwrap_or_else(|error| (broken(error), None))
}

/// Keeps what is worth knowing of a planner's answer beside the session's file. The path, if that is where a failure is
/// told. One that cannot be kept is a line in the log: the compaction must not fail for it.
fn keep(file: &Path, now: Millis, diagnosis: &Diagnosis) -> Option<String> {
    match store::keep_beside(file, now, diagnosis.label, diagnosis.record.bytes()) {
        Ok(path) => path.filter(|_| diagnosis.failed).map(|path| path.to_string_lossy().into_owned()),
        Err(error) => {
            tracing::warn!(%error, "what a planning model answered is not kept");
            None
        }
    }
}

fn request(work: &Work) -> Vec<Message> {
    vec![Message::User(UserMessage { content: Content::Text(work.request()), timestamp: clock::now() })]
}

fn broken(error: tokio::task::JoinError) -> PlanOutcome {
    tracing::error!(%error, "compaction failed");
    PlanOutcome::Broken(BROKEN.to_owned())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    tokio::task::spawn_blocking(work).await
}
