//! Performs what the agent decides, strictly in order.
//!
//! An entry is in the file (write(2)) before anything after it is announced. Events are written once into one buffer and
//! the same bytes go to every client; the buffer leaves before an answer does, so that the order of records is the order
//! of effects for everyone.

use std::time::Duration;

use atomic_agent::{Conversation, Effect, HookAnswer, Input};
use atomic_protocol::event::Event;
use atomic_protocol::time::Millis;
use atomic_session_store as store;
use tokio::time::Instant;

use super::actor::Actor;
use super::compaction::Composed;
use super::work;
use crate::clock;

impl Actor {
    /// Feeds one input and everything that follows from it at once.
    pub(super) fn feed(&mut self, input: Input) {
        // An answer and the events around it are one write. The model is asked before anybody is woken.
        self.clients.iter().for_each(|client| client.outbox.hold());
        let mut inputs = std::collections::VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = clock::now();
            let effects = self.agent.handle(input, now);
            inputs.extend(self.perform(effects, now));
        }
        self.flush();
        self.clients.iter().for_each(|client| client.outbox.release());
    }

    /// Performs one batch that was decided at `now`; gives the inputs it leads to at once.
    pub(super) fn perform(&mut self, effects: Vec<Effect>, now: Millis) -> Vec<Input> {
        let mut follow = Vec::new();
        let mut effects = effects.into_iter();
        let mut appended = false;
        let mut turn_ended = false;
        while let Some(effect) = effects.next() {
            match effect {
                Effect::Append(_) | Effect::AppendComposed { .. } => {
                    if let Err(error) = self.append(&effect, &mut follow) {
                        tracing::error!(session = self.info.id, %error, "append failed");
                        let mut dropped = vec![effect];
                        dropped.extend(effects);
                        follow.push(Input::AppendFailed { error: error.to_string(), dropped });
                        return follow;
                    }
                    appended = true;
                }
                Effect::Emit(event) => {
                    turn_ended |= matches!(event, Event::TurnEnd { .. });
                    self.records.write(&event);
                }
                Effect::Answer { request, result } => {
                    self.flush();
                    if let Some(ticket) = self.tickets.remove(&request) {
                        ticket.answer(result);
                    }
                }
                Effect::CallModel(call) => self.model = Some(self.call_model(call)),
                Effect::CancelModel(call) => {
                    // Dropping the work cancels its task.
                    if self.model.as_ref().is_some_and(|work| work.call == call) {
                        self.model = None;
                    }
                }
                Effect::Plan(call) => self.plan(*call),
                Effect::CancelPlan(plan) => self.cancel_plan(plan),
                Effect::Backup { plan, label } => self.back_up(plan, label),
                Effect::Compose(compose) => self.compose(*compose),
                Effect::ReadContext(plan) => {
                    let messages = store::context(&self.store).messages;
                    follow.push(Input::Context { plan, conversation: Conversation::new(messages) });
                }
                Effect::RunTool { run, call } => {
                    // The announcement is in the outboxes before the tool's task looks at them.
                    self.flush();
                    let cancel = work::run_tool(self, run, call);
                    self.tools.insert(run, cancel);
                }
                Effect::CancelTool(run) => {
                    // Dropping the guard cancels the tool; its result is still awaited.
                    self.tools.remove(&run);
                }
                Effect::WakeAt { timer, at } => {
                    self.timer = Some((timer, due(at, now, Instant::now())));
                }
                // No extensions in this version: every hook goes on unchanged.
                Effect::Ask { hook, .. } => follow.push(Input::HookAnswer { hook, answer: HookAnswer::Go }),
            }
        }
        if appended || turn_ended {
            self.sync_after(turn_ended);
        }
        follow
    }

    /// Writes an entry: one that is given, or one that is composed.
    fn append(&mut self, effect: &Effect, follow: &mut Vec<Input>) -> Result<(), store::Error> {
        match effect {
            Effect::Append(entry) => self.store.append(entry),
            Effect::AppendComposed { plan, .. } => {
                let composed = self.composed.take_if(|composed| composed.plan == *plan);
                let Composed { entry, conversation, .. } =
                    *composed.expect("the agent appends what it was just told of, and only once");
                self.store.append_ready(entry)?;
                follow.push(Input::Context { plan: *plan, conversation });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sends the records written so far to every client.
    pub(super) fn flush(&mut self) {
        self.records.send(&self.clients);
    }
}

/// When to wake an agent that at the time `now` of day asked for the time `at`. Only their difference counts: the time of
/// day may jump at any moment, and then a wait is as long as it was meant to be.
fn due(at: Millis, now: Millis, begun: Instant) -> Instant {
    begun + Duration::from_millis(at.0.saturating_sub(now.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_difference_whatever_the_time_of_day() {
        let begun = Instant::now();
        let year_2000 = 946_684_800_000;
        for now in [0, year_2000, u64::MAX - 5_000] {
            assert_eq!(due(Millis(now + 2_000), Millis(now), begun), begun + Duration::from_secs(2));
        }
        // A time that has passed is now, and not a very long wait.
        assert_eq!(due(Millis(1), Millis(year_2000), begun), begun);
    }
}
