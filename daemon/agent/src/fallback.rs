//! Fallback models: when the model in use fails for good, others of a list take its place until the user speaks again.
//!
//! The chain is bounded. Between two user messages each candidate takes the place at most once, and each model in place has
//! its own retries; so a user message whose every call fails costs at most `(candidates + 1) × (retries + 1)` requests,
//! those of compactions apart, which [`triggers`](crate::triggers) bounds. The user's own model comes back before the next
//! user message that a turn of its own answers, and at the latest before the run settles: a session at rest, and its file,
//! are on the model the user chose. Until then the entries of a candidate name what they stand in for, so that a file whose
//! daemon was killed in between opens with the user's model as well.
//!
//! Events and their order: reference 2.7 (`auto_retry_end` says `success:true` when a fallback begins, as upstream does).

use std::sync::Arc;

use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::Event;
use atomic_protocol::model::{Model, ThinkingLevel};

use crate::effect::Effect;
use crate::run::{Run, Step};
use crate::{Agent, overflow, retry};

/// A model that may take the place of one that fails: it is known, and there is a credential for it.
#[derive(Clone, Debug, PartialEq)]
pub struct FallbackModel {
    /// The model.
    pub model: Arc<Model>,
    /// How much it thinks; `None`: as much as the model it stands in for, as far as it can.
    pub thinking: Option<ThinkingLevel>,
}

/// `finalError` when there was neither an answer nor a failure.
const CANCELLED: &str = "Fallback cancelled";

/// The candidates, and what became of them since the user's last message.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    candidates: Vec<FallbackModel>,
    /// Models and levels that were in use.
    tried: Vec<(Arc<Model>, ThinkingLevel)>,
    /// Models that failed in a way that no thinking level helps with.
    blocked: Vec<Arc<Model>>,
    /// How often the model was changed.
    changes: u32,
    place: Option<Place>,
}

/// A candidate in the place of the user's model.
#[derive(Debug)]
struct Place {
    /// The user's model and level.
    model: Arc<Model>,
    thinking: ThinkingLevel,
    /// What clients were told last.
    start: Event,
    /// The candidate's last call was answered.
    answered: bool,
    /// How it failed.
    error: Option<String>,
}

impl Chain {
    pub(crate) fn new(candidates: Vec<FallbackModel>) -> Chain {
        Chain { candidates, ..Chain::default() }
    }

    /// A user message begins a turn of its own: every candidate may be tried again. One that joins a turn which a candidate
    /// answers leaves it there.
    pub(crate) fn renew(&mut self) {
        if self.place.is_none() {
            self.tried.clear();
            self.blocked.clear();
            self.changes = 0;
        }
    }

    /// An answer ended: well, or with this error.
    pub(crate) fn answered(&mut self, error: Option<&str>) {
        if let Some(place) = &mut self.place {
            place.answered = error.is_none();
            place.error = error.map(str::to_owned);
        }
    }

    /// The user wants another thinking level: it is the one that comes back with the user's model.
    pub(crate) fn wish(&mut self, level: ThinkingLevel) {
        if let Some(place) = &mut self.place {
            place.thinking = place.model.clamp_thinking(level);
        }
    }

    /// What a joiner is told: a candidate is in place.
    pub(crate) fn joining(&self) -> Option<Event> {
        self.place.as_ref().map(|place| place.start.clone())
    }
}

impl Agent {
    /// The models that may take the place of one that fails, in order of preference.
    pub fn fallback_models(&self) -> &[FallbackModel] {
        &self.chain.candidates
    }

    /// Replaces the candidates. What was tried since the last user message stays tried.
    pub fn set_fallback_models(&mut self, candidates: Vec<FallbackModel>) {
        self.chain.candidates = candidates;
    }

    /// One of them is in the place of the user's model now.
    pub fn is_fallback(&self) -> bool {
        self.chain.place.is_some()
    }

    /// The candidate whose turn it is, with its effective level, if the run's failure is one to change the model for. All
    /// failures of a provider are (reference 4.2: also request errors, which another provider may not have), but for a
    /// conversation that is too long while it can still be shortened (`shortened`: it cannot).
    fn candidate(&self, shortened: bool) -> Option<(Arc<Model>, ThinkingLevel)> {
        let (run, current) = (self.run.as_ref()?, self.model.as_ref()?);
        let failure = run.failure.as_ref().filter(|_| !run.aborted && !run.refused)?;
        if (!shortened && overflow::says_too_long(&failure.message)) || self.manual_compaction() {
            return None;
        }
        let lasting = !retry::passes(failure);
        self.chain.candidates.iter().find_map(|candidate| {
            let model = &candidate.model;
            let level = model.clamp_thinking(candidate.thinking.unwrap_or(self.thinking));
            let in_use = is_same(model, current) && (lasting || level == self.thinking);
            let blocked = self.chain.blocked.iter().any(|blocked| is_same(blocked, model));
            let tried = self.chain.tried.iter().any(|(tried, at)| is_same(tried, model) && *at == level);
            let affordable = self.ledger.refusal(model).is_none();
            (!in_use && !blocked && !tried && affordable).then(|| (model.clone(), level))
        })
    }

    /// After this `agent_end` another model is asked.
    pub(crate) fn will_fall_back(&self) -> bool {
        self.candidate(false).is_some()
    }

    /// Gives the failed turn to the next candidate. False when there is none, or the failure is none to do that for.
    pub(crate) fn fall_back(&mut self, shortened: bool) -> bool {
        let Some((model, level)) = self.candidate(shortened) else { return false };
        let (Some(failed), Some(run)) = (self.model.clone(), &mut self.run) else { return false };
        let Some(failure) = run.failure.clone() else { return false };
        if let Some((id, _)) = run.messages.last() {
            // The failed answer leaves the conversation, not the file.
            self.context.retain(|(kept, _)| kept != id);
        }
        if !retry::passes(&failure) {
            self.chain.blocked.push(failed.clone());
        }
        self.chain.tried.extend([(failed.clone(), self.thinking), (model.clone(), level)]);
        self.chain.changes += 1;
        let start = Event::ModelFallbackStart {
            from: label(&failed),
            to: label(&model),
            reason: failure.message,
            attempt: self.chain.changes,
        };
        let (own, thinking) = match self.chain.place.take() {
            Some(place) => (place.model, place.thinking),
            None => (failed.clone(), self.thinking),
        };
        // In the file before anybody hears of it, with the model that comes back if this process does not live to see it.
        self.append(change(&model, Some(&own)));
        self.chain.place =
            Some(Place { model: own, thinking, start: start.clone(), answered: false, error: None });
        self.end_retries(None);
        self.emit(start);
        self.change_thinking_for(level, Some(thinking));
        self.put(&model, level, &failed, "fallback");
        let mut next = Run::new(None);
        next.steps.extend([Step::AgentStart, Step::TurnStart, Step::CallModel]);
        self.run = Some(next);
        true
    }

    /// The user's model and level come back, if a candidate is in their place.
    pub(crate) fn restore_model(&mut self) {
        let Some(place) = self.chain.place.take() else { return };
        self.chain.renew();
        let Some(current) = self.model.clone() else { return };
        self.append(change(&place.model, None));
        self.put(&place.model, place.thinking, &current, "restore");
        self.emit(ended(&place, &current, Some(&place.model), None));
    }

    /// The user chose a model while a candidate was in place: that choice stands, nothing comes back.
    pub(crate) fn leave_chain(&mut self, candidate: Option<&Arc<Model>>) {
        if let (Some(place), Some(candidate)) = (self.chain.place.take(), candidate) {
            self.emit(ended(&place, candidate, None, None));
        }
    }

    /// An entry could not be written: the user's model comes back without one, for clients that heard of another.
    pub(crate) fn chain_broke(&mut self, error: &str, dropped: &[Effect]) {
        let told = self.announced.in_fallback();
        if let Some(place) = self.chain.place.take() {
            self.chain.renew();
            let Some(current) = self.model.replace(place.model.clone()) else { return };
            let level_changed = std::mem::replace(&mut self.thinking, place.thinking) != place.thinking;
            if told {
                if level_changed {
                    self.emit(Event::ThinkingLevelChanged { level: place.thinking.as_str().to_owned() });
                }
                self.emit(changed(&place.model, &current, "restore"));
                self.emit(ended(&place, &current, Some(&place.model), Some(error)));
            }
        } else if told {
            // It was coming back.
            for effect in dropped {
                match effect {
                    Effect::Emit(Event::ModelChanged { source, .. }) if source != "restore" => {}
                    Effect::Emit(
                        event @ (Event::ThinkingLevelChanged { .. }
                        | Event::ModelChanged { .. }
                        | Event::ModelFallbackEnd { .. }),
                    ) => self.emit(event.clone()),
                    _ => {}
                }
            }
        }
    }

    /// Puts a model that the file names already into use.
    fn put(&mut self, model: &Arc<Model>, level: ThinkingLevel, previous: &Model, source: &str) {
        self.model = Some(model.clone());
        self.change_thinking(level);
        self.emit(changed(model, previous, source));
    }
}

fn is_same(a: &Model, b: &Model) -> bool {
    a.provider == b.provider && a.id == b.id
}

fn label(model: &Model) -> String {
    format!("{}/{}", model.provider, model.id)
}

fn change(model: &Model, in_place_of: Option<&Model>) -> EntryBody {
    EntryBody::ModelChange {
        provider: model.provider.clone(),
        model_id: model.id.clone(),
        in_place_of: in_place_of.map(|own| (own.provider.clone(), own.id.clone())),
    }
}

fn changed(model: &Model, previous: &Model, source: &str) -> Event {
    Event::ModelChanged {
        model: model.raw.clone(),
        previous_model: Some(previous.raw.clone()),
        source: source.to_owned(),
    }
}

fn ended(place: &Place, from: &Model, to: Option<&Arc<Model>>, error: Option<&str>) -> Event {
    let success = place.answered && error.is_none();
    let why = || error.or(place.error.as_deref()).unwrap_or(CANCELLED).to_owned();
    Event::ModelFallbackEnd {
        success,
        from: Some(label(from)),
        to: to.map(|model| label(model)),
        final_error: (!success).then(why),
    }
}
