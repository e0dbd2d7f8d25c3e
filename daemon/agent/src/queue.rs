//! Messages that wait for a point between turns.

use std::collections::VecDeque;

use atomic_protocol::command::QueueMode;
use atomic_protocol::event::Event;
use atomic_protocol::message::Block;

/// A message that waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queued {
    pub(crate) text: String,
    pub(crate) images: Vec<Block>,
}

/// The two queues. They live in memory only: a crash loses what was not delivered, and the docs say so.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    steering: VecDeque<Queued>,
    follow_up: VecDeque<Queued>,
    pub(crate) steering_mode: QueueMode,
    pub(crate) follow_up_mode: QueueMode,
    /// Nothing is delivered for now.
    pub(crate) paused: bool,
}

impl Queues {
    pub(crate) fn new(steering_mode: QueueMode, follow_up_mode: QueueMode) -> Queues {
        Queues { steering_mode, follow_up_mode, ..Queues::default() }
    }

    pub(crate) fn push_steering(&mut self, message: Queued) {
        self.steering.push_back(message);
    }

    pub(crate) fn push_follow_up(&mut self, message: Queued) {
        self.follow_up.push_back(message);
    }

    /// What the steering mode delivers now.
    pub(crate) fn take_steering(&mut self) -> Vec<Queued> {
        if self.paused { Vec::new() } else { take(&mut self.steering, self.steering_mode) }
    }

    /// What the follow-up mode delivers now.
    pub(crate) fn take_follow_up(&mut self) -> Vec<Queued> {
        if self.paused { Vec::new() } else { take(&mut self.follow_up, self.follow_up_mode) }
    }

    /// Empties both queues and gives their texts, steering first.
    pub(crate) fn clear(&mut self) -> (Vec<String>, Vec<String>) {
        let texts = self.texts();
        self.steering.clear();
        self.follow_up.clear();
        texts
    }

    pub(crate) fn len(&self) -> usize {
        self.steering.len() + self.follow_up.len()
    }

    /// Something waits that may be delivered.
    pub(crate) fn has_due(&self) -> bool {
        !self.paused && self.len() > 0
    }

    pub(crate) fn update(&self) -> Event {
        let (steering, follow_up) = self.texts();
        Event::QueueUpdate { steering, follow_up }
    }

    fn texts(&self) -> (Vec<String>, Vec<String>) {
        let texts = |queue: &VecDeque<Queued>| queue.iter().map(|queued| queued.text.clone()).collect();
        (texts(&self.steering), texts(&self.follow_up))
    }
}

fn take(queue: &mut VecDeque<Queued>, mode: QueueMode) -> Vec<Queued> {
    match mode {
        QueueMode::All => queue.drain(..).collect(),
        QueueMode::OneAtATime => queue.pop_front().into_iter().collect(),
    }
}
