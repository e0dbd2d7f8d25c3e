//! What a client that joins an active run is told before the live tail.

use atomic_protocol::event::{Delta, Event};

use crate::Agent;
use crate::run::{Then, Waiting};

impl Agent {
    /// The records that bring a joiner up to date: the run, the turn, the answer so far, the running tools, a compaction
    /// under way, and before them that another model is in the place of the user's. Empty when nothing of that was announced.
    pub fn joining(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self.chain.joining().into_iter().collect();
        let compaction =
            self.announced.compaction().map(|(reason, mid_turn)| Event::CompactionStart { reason, mid_turn });
        if !self.announced.in_agent() {
            events.extend(compaction);
            return events;
        }
        events.push(Event::AgentStart);
        events.extend(compaction);
        if self.announced.in_turn() {
            events.push(Event::TurnStart);
        }
        match self.run.as_ref().and_then(|run| run.waiting.as_ref()) {
            Some(Waiting::Model(_, answer)) if answer.started => {
                let (message, open) = answer.so_far();
                events.push(Event::MessageStart { message });
                for (index, delta) in open {
                    if !delta.is_empty() {
                        events.push(answer.update(Delta::ToolCallDelta { index, delta }));
                    }
                }
            }
            Some(Waiting::Hook(_, Then::Write(message) | Then::WriteAnswer(_, message)))
                if self.announced.in_message() =>
            {
                events.push(Event::MessageStart { message: message.clone() });
            }
            _ => {}
        }
        events.extend(self.tools_so_far());
        events
    }

    /// The records that end an active run for one client that leaves it, while it goes on for others. Empty when no run
    /// was announced.
    pub fn leaving(&self) -> Vec<Event> {
        match &self.run {
            Some(run) if self.announced.in_agent() => {
                let messages = run.messages.iter().map(|(_, message)| message.clone()).collect();
                vec![
                    Event::AgentEnd { messages, will_retry: false },
                    Event::AgentSettled { aborted: run.aborted },
                ]
            }
            _ => Vec::new(),
        }
    }
}
