//! What a session reads from files, read again.

use std::sync::Arc;

use atomic_protocol::command::QueueMode;
use atomic_protocol::model::Model;

use crate::prompt::PromptParts;
use crate::{Agent, CompactionPolicy, FallbackModel, Limits, RetryPolicy};

/// The part of [`crate::Config`] that files decide and that may change while a session lives.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// What the system prompt is made of; model, thinking level, tools and date in it stay the agent's.
    pub prompt: PromptParts,
    /// What the catalog now says of the model in use. Ignored when it is another model.
    pub model: Option<Arc<Model>>,
    /// How steering is delivered.
    pub steering_mode: QueueMode,
    /// How follow-ups are delivered.
    pub follow_up_mode: QueueMode,
    /// What happens when a model call fails in passing.
    pub retry: RetryPolicy,
    /// When the conversation is shortened.
    pub compaction: CompactionPolicy,
    /// Who takes the place of a model that fails.
    pub fallback_models: Vec<FallbackModel>,
    /// What may be used.
    pub limits: Limits,
}

impl Agent {
    /// Takes over what files say now. An active run goes on; its next model call is made with this.
    pub fn reload(&mut self, reloaded: Reloaded) {
        let date = std::mem::take(&mut self.prompt.date);
        self.prompt = PromptParts { date, ..reloaded.prompt };
        if let (Some(current), Some(model)) = (&mut self.model, reloaded.model)
            && (current.provider == model.provider && current.id == model.id)
        {
            *current = model;
        }
        self.queues.steering_mode = reloaded.steering_mode;
        self.queues.follow_up_mode = reloaded.follow_up_mode;
        self.retry = reloaded.retry;
        self.compaction_policy = reloaded.compaction;
        self.set_fallback_models(reloaded.fallback_models);
        self.ledger.limit(reloaded.limits);
    }

    /// What the system prompt is made of now.
    pub fn prompt_parts(&self) -> &PromptParts {
        &self.prompt
    }
}
