//! What clients ask: admission of prompts, queues, abort, model and thinking level.

use std::sync::Arc;

use atomic_protocol::command::StreamingBehavior;
use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::Event;
use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::message::{Block, Content, Message, UserMessage};
use atomic_protocol::model::{Model, ThinkingLevel};
use atomic_protocol::time::Millis;

use crate::hook::{Hook, HookAnswer, HookId};
use crate::input::{AgentCommand, RequestId};
use crate::queue::Queued;
use crate::run::{Run, Step};
use crate::{Agent, Effect};

/// A second prompt meets an active run (literal of the reference).
pub(crate) const ALREADY_PROCESSING: &str = "Agent is already processing. Specify streamingBehavior ('steer' or \
     'followUp') to queue the message.";

/// A prompt whose hooks are out.
#[derive(Debug)]
pub(crate) struct PendingPrompt {
    /// `None`: it waits for a compaction to make room.
    hook: Option<HookId>,
    request: RequestId,
    text: String,
    images: Vec<Block>,
    behavior: Option<StreamingBehavior>,
    /// The `input` hook was answered; `before_agent_start` is out.
    starting: bool,
    aborted: bool,
}

impl PendingPrompt {
    pub(crate) fn abort(&mut self) {
        self.aborted = true;
    }

    pub(crate) fn waits_for_compaction(&self) -> bool {
        self.hook.is_none()
    }

    pub(crate) fn request(&self) -> RequestId {
        self.request
    }
}

impl Agent {
    pub(crate) fn command(&mut self, request: RequestId, command: AgentCommand) {
        match command {
            AgentCommand::Prompt { text, images, behavior } => self.prompt(request, text, images, behavior),
            AgentCommand::Steer { text, images } => {
                self.queues.push_steering(Queued { text, images });
                self.queue_changed(request, Some(disposition("queued")));
            }
            AgentCommand::FollowUp { text, images } => {
                self.queues.push_follow_up(Queued { text, images });
                self.queue_changed(request, Some(disposition("queued")));
            }
            AgentCommand::ClearQueue => {
                let (steering, follow_up) = self.queues.clear();
                let mut data = Vec::new();
                let mut object = ObjectWriter::begin(&mut data);
                object.value("steering", &steering).value("followUp", &follow_up);
                object.end();
                self.queue_changed(request, Some(Raw::from_trusted(data.into())));
            }
            AgentCommand::Abort { keep_queue } => self.abort(request, keep_queue),
            AgentCommand::SetModel(model) => {
                self.change_model(model.clone(), "set");
                self.answer(request, Ok(Some(model.raw.clone())));
            }
            AgentCommand::CycleModel { model, is_scoped } => {
                self.change_model(model.clone(), "cycle");
                let mut data = Vec::new();
                let mut object = ObjectWriter::begin(&mut data);
                object.raw("model", model.raw.bytes()).str("thinkingLevel", self.thinking.as_str());
                object.bool("isScoped", is_scoped);
                object.end();
                self.answer(request, Ok(Some(Raw::from_trusted(data.into()))));
            }
            AgentCommand::SetThinking(wish) => {
                self.chain.wish(wish);
                let level = self.model.as_ref().map_or(wish, |model| model.clamp_thinking(wish));
                self.change_thinking(level);
                let mut data = Vec::new();
                let mut object = ObjectWriter::begin(&mut data);
                object.str("level", level.as_str());
                if let Some(model) = &self.model {
                    object.str("provider", &model.provider).str("modelId", &model.id);
                }
                object.end();
                self.answer(request, Ok(Some(Raw::from_trusted(data.into()))));
            }
            AgentCommand::CycleThinking => {
                let data = match self.next_thinking() {
                    None => Raw::null(),
                    Some(next) => {
                        self.chain.wish(next);
                        self.change_thinking(next);
                        let mut data = Vec::new();
                        let mut object = ObjectWriter::begin(&mut data);
                        object.str("level", next.as_str());
                        object.end();
                        Raw::from_trusted(data.into())
                    }
                };
                self.answer(request, Ok(Some(data)));
            }
            AgentCommand::PauseQueues => {
                self.queues.paused = true;
                self.answer(request, Ok(None));
            }
            AgentCommand::ResumeQueues => {
                let released = std::mem::take(&mut self.queues.paused);
                let mut data = Vec::new();
                let mut object = ObjectWriter::begin(&mut data);
                object.bool("released", released);
                object.end();
                self.answer(request, Ok(Some(Raw::from_trusted(data.into()))));
            }
            AgentCommand::Navigate { leaf, context, label, answer } => {
                (self.leaf, self.context) = (leaf, context);
                self.weights.clear();
                if let Some((target, label)) = label {
                    self.append(EntryBody::Label { target, label: Some(label) });
                }
                self.answer(request, Ok(Some(answer)));
            }
            AgentCommand::Depart(departure) => self.depart(request, departure),
            AgentCommand::SetLabel { target, label } => {
                self.append(EntryBody::Label { target, label });
                self.answer(request, Ok(None));
            }
            AgentCommand::SetSteeringMode(mode) => {
                self.queues.steering_mode = mode;
                self.answer(request, Ok(None));
            }
            AgentCommand::SetFollowUpMode(mode) => {
                self.queues.follow_up_mode = mode;
                self.answer(request, Ok(None));
            }
            AgentCommand::SetAutoRetry(enabled) => {
                self.retry.enabled = enabled;
                self.answer(request, Ok(None));
            }
            AgentCommand::AbortRetry => {
                self.abort_retry();
                self.answer(request, Ok(None));
            }
            AgentCommand::Compact(wish) => self.compact(request, wish),
            AgentCommand::AbortCompaction => {
                self.answer(request, Ok(None));
                self.abort_compaction();
            }
            AgentCommand::SetAutoCompaction(enabled) => {
                self.compaction_policy.enabled = enabled;
                self.answer(request, Ok(None));
            }
            AgentCommand::SetName(name) => {
                self.append(EntryBody::SessionInfo { name: Some(name.clone()) });
                self.emit(Event::SessionInfoChanged { name: Some(name) });
                self.answer(request, Ok(None));
            }
        }
    }

    fn enqueue(&mut self, queued: Queued, behavior: Option<StreamingBehavior>) {
        match behavior {
            Some(StreamingBehavior::FollowUp) => self.queues.push_follow_up(queued),
            _ => self.queues.push_steering(queued),
        }
    }

    /// The thinking level after the current one, the first after the last; `None` when the model has no other.
    pub fn next_thinking(&self) -> Option<ThinkingLevel> {
        let levels = self.model.as_ref()?.thinking_levels();
        let at = levels.iter().position(|level| *level == self.thinking);
        let next = *levels.get(at.map_or(0, |at| (at + 1) % levels.len()))?;
        (levels.len() > 1).then_some(next)
    }

    fn queue_changed(&mut self, request: RequestId, data: Option<Raw>) {
        self.emit(self.queues.update());
        self.answer(request, Ok(data));
    }

    fn change_model(&mut self, model: Arc<Model>, source: &str) {
        let level = model.clamp_thinking(self.thinking);
        let previous = self.model.replace(model.clone());
        let same = previous.as_ref().is_some_and(|old| old.provider == model.provider && old.id == model.id);
        if !same {
            let (provider, model_id) = (model.provider.clone(), model.id.clone());
            self.append(EntryBody::ModelChange { provider, model_id, in_place_of: None });
        }
        self.change_thinking(level);
        if !same {
            self.emit(Event::ModelChanged {
                model: model.raw.clone(),
                previous_model: previous.as_ref().map(|old| old.raw.clone()),
                source: source.to_owned(),
            });
        }
        self.leave_chain(previous.as_ref());
    }

    pub(crate) fn change_thinking(&mut self, level: ThinkingLevel) {
        self.change_thinking_for(level, None);
    }

    /// `own`: the user's level, when this one comes with a model that takes the place of the user's.
    pub(crate) fn change_thinking_for(&mut self, level: ThinkingLevel, own: Option<ThinkingLevel>) {
        if level != self.thinking {
            self.thinking = level;
            let in_place_of = own.map(|own| own.as_str().to_owned());
            self.append(EntryBody::ThinkingLevelChange { level: level.as_str().to_owned(), in_place_of });
            self.emit(Event::ThinkingLevelChanged { level: level.as_str().to_owned() });
        }
    }

    /// Admission: decided before preflight, so that two prompts in one write cannot both start a run.
    fn prompt(
        &mut self,
        request: RequestId,
        text: String,
        images: Vec<Block>,
        behavior: Option<StreamingBehavior>,
    ) {
        if self.queues.paused {
            // Kept as it is: what is queued while paused meets neither hooks nor the check for an active run.
            self.enqueue(Queued { text, images }, behavior);
            return self.queue_changed(request, Some(disposition("queued")));
        }
        let Some(AgentCommand::Prompt { text, images, behavior }) =
            self.park(request, AgentCommand::Prompt { text, images, behavior })
        else {
            return;
        };
        let busy = self.run.is_some() || self.preflight.is_some();
        if busy && behavior.is_none() {
            return self.answer(request, Err(ALREADY_PROCESSING.to_owned()));
        }
        let ask =
            Hook::Input { text: text.clone(), images: images.clone(), behavior: behavior.filter(|_| busy) };
        let hook = self.ask(ask);
        let pending = PendingPrompt {
            hook: Some(hook),
            request,
            text,
            images,
            behavior,
            starting: false,
            aborted: false,
        };
        if busy {
            self.queueing.push(pending);
        } else {
            self.preflight = Some(pending);
        }
    }

    /// Takes the answer of a prompt's hook. Gives it back when the hook is not one of ours.
    pub(crate) fn prompt_hook_answered(&mut self, hook: HookId, answer: HookAnswer) -> Option<HookAnswer> {
        if let Some(at) = self.queueing.iter().position(|pending| pending.hook == Some(hook)) {
            let pending = self.queueing.remove(at);
            self.input_answered(pending, answer);
            return None;
        }
        match self.preflight.take_if(|pending| pending.hook == Some(hook)) {
            None => return Some(answer),
            Some(pending) if pending.aborted => self.refuse_aborted(&pending),
            Some(pending) if pending.starting => {
                let (messages, system) = match answer {
                    HookAnswer::Start { messages, system } => (messages, system),
                    _ => (Vec::new(), None),
                };
                self.start_run(pending, messages, system);
            }
            Some(pending) => self.input_answered(pending, answer),
        }
        None
    }

    /// An entry could not be written: prompts whose hook was not asked for that are refused.
    pub(crate) fn prompts_broke(&mut self, error: &str, asked: impl Fn(HookId) -> bool) {
        let lost = |pending: &PendingPrompt| pending.hook.is_some_and(|hook| !asked(hook));
        let mut refused: Vec<PendingPrompt> =
            self.preflight.take_if(|pending| lost(pending)).into_iter().collect();
        refused.extend(self.queueing.extract_if(.., |pending| lost(pending)));
        for pending in refused {
            self.answer(pending.request, Err(error.to_owned()));
        }
        if self.preflight.is_none() && self.run.is_none() {
            self.answer_aborts();
        }
    }

    fn refuse_aborted(&mut self, pending: &PendingPrompt) {
        self.answer(pending.request, Err("The prompt was aborted before it started".to_owned()));
        self.answer_aborts();
    }

    fn input_answered(&mut self, mut pending: PendingPrompt, answer: HookAnswer) {
        match answer {
            HookAnswer::Handled => return self.answer(pending.request, Ok(Some(disposition("handled")))),
            HookAnswer::Transform { text, images } => (pending.text, pending.images) = (text, images),
            _ => {}
        }
        let wanted = self.manual_compaction();
        if wanted {
            self.resume_after_manual();
        }
        if self.run.is_some() || self.preflight.is_some() || wanted {
            self.enqueue(Queued { text: pending.text, images: pending.images }, pending.behavior);
            return self.queue_changed(pending.request, Some(disposition("queued")));
        }
        if self.model.is_none() {
            return self.answer(pending.request, Err(NO_MODEL.to_owned()));
        }
        self.ledger.next_run();
        if let Some(why) = self.session_refusal() {
            return self.answer(pending.request, Err(why));
        }
        if self.make_room() {
            pending.hook = None;
            self.preflight = Some(pending);
        } else {
            self.before_start(pending);
        }
    }

    /// The compaction that a prompt waited for is over, however it ended.
    pub(crate) fn prompt_compacted(&mut self, pending: PendingPrompt) {
        if pending.aborted { self.refuse_aborted(&pending) } else { self.before_start(pending) }
    }

    fn before_start(&mut self, mut pending: PendingPrompt) {
        let ask = Hook::BeforeAgentStart { text: pending.text.clone(), images: pending.images.clone() };
        pending.hook = Some(self.ask(ask));
        pending.starting = true;
        self.preflight = Some(pending);
    }

    fn start_run(&mut self, pending: PendingPrompt, extra: Vec<Raw>, system: Option<String>) {
        let user = user_message(&pending.text, &pending.images, self.now);
        let mut run = Run::new(system);
        if self.broken {
            // The file failed before: the message must be in it before the prompt is accepted, else it is refused.
            self.broken = false;
            self.recovery.renew();
            self.chain.renew();
            let id = self.append_message(user.clone());
            run.messages.push((id.clone(), user.clone()));
            run.steps.push_back(Step::Announced(user));
        } else {
            run.steps.push_back(Step::Message(user));
        }
        run.steps.extend(extra.into_iter().map(Step::Message));
        run.steps.push_back(Step::DeliverSteering);
        run.steps.push_back(Step::CallModel);
        run.steps.push_front(Step::TurnStart);
        run.steps.push_front(Step::AgentStart);
        self.answer(pending.request, Ok(Some(disposition("started"))));
        self.run = Some(run);
    }

    fn abort(&mut self, request: RequestId, keep_queue: bool) {
        self.aborts.push(request);
        self.cancel_branching();
        if let Some(pending) = &mut self.preflight {
            pending.aborted = true;
            if pending.waits_for_compaction() {
                self.cancel_compaction();
            }
            return;
        }
        if self.run.is_none() {
            return self.answer_aborts();
        }
        self.active().keep_queue |= keep_queue;
        self.abort_run();
    }

    pub(crate) fn answer_aborts(&mut self) {
        for request in std::mem::take(&mut self.aborts) {
            self.answer(request, Ok(None));
        }
    }

    /// The requests whose answer is still to come, for a run that ends without performing its effects.
    pub(crate) fn dropped_answers(&mut self, dropped: &[Effect], error: &str) {
        for effect in dropped {
            if let Effect::Answer { request, .. } = effect {
                self.answer(*request, Err(error.to_owned()));
            }
        }
    }
}

/// A prompt without a model (the phrase "No model selected." is the reference's).
pub(crate) const NO_MODEL: &str = "No model selected.\n\nNo provider has an API key. Store one with 'atomic auth login PROVIDER', put it \
     into models.json of the agent directory or into the environment (for example ANTHROPIC_API_KEY), or start with --provider \
     demo.\nThen choose a model with set_model.";

/// What became of a message: `started`, `queued` or `handled`. Pi's own client (1.6.0) does not take an answer to
/// `prompt`, `steer` or `follow_up` without it, and `handled` alone says that no run follows.
fn disposition(what: &str) -> Raw {
    let mut data = Vec::new();
    let mut object = ObjectWriter::begin(&mut data);
    object.str("disposition", what);
    object.end();
    Raw::from_trusted(data.into())
}

/// A user message as the wire has it: always blocks, the text first.
pub(crate) fn user_message(text: &str, images: &[Block], now: Millis) -> Raw {
    let mut blocks = vec![Block::text(text)];
    blocks.extend_from_slice(images);
    Message::User(UserMessage { content: Content::Blocks(blocks), timestamp: now }).to_raw()
}
