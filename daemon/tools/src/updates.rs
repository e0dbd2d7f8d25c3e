//! Progress of a running tool: each update is the whole result so far, so only the latest counts.

use tokio::sync::watch;

use crate::ToolOutput;

/// Where a running tool puts its result so far. Holds one value: a new one replaces one that nobody has read yet, so a
/// slow reader costs neither memory nor time of the tool.
#[derive(Debug)]
pub struct UpdateSink(watch::Sender<Option<ToolOutput>>);

/// Where updates are read.
#[derive(Debug)]
pub struct UpdateSource(watch::Receiver<Option<ToolOutput>>);

impl UpdateSink {
    /// Both ends.
    pub fn channel() -> (UpdateSink, UpdateSource) {
        let (sender, receiver) = watch::channel(None);
        (UpdateSink(sender), UpdateSource(receiver))
    }

    /// A sink nobody reads.
    pub fn discard() -> UpdateSink {
        UpdateSink::channel().0
    }

    /// Replaces the update that waits.
    pub fn send(&self, update: ToolOutput) {
        self.0.send_replace(Some(update));
    }

    /// Nobody will read any more, so making an update is wasted.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl UpdateSource {
    /// The latest update that was not given out yet; waits for one. `None` when the tool has ended and all was read.
    /// Safe to drop half-way in a `select!`.
    pub async fn next(&mut self) -> Option<ToolOutput> {
        self.0.changed().await.ok()?;
        self.0.borrow_and_update().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_latest_update_wins_and_the_end_is_seen() {
        let (sink, mut source) = UpdateSink::channel();
        sink.send(ToolOutput::text("a"));
        sink.send(ToolOutput::text("b"));
        assert_eq!(source.next().await, Some(ToolOutput::text("b")));
        sink.send(ToolOutput::text("c"));
        drop(sink);
        assert_eq!(source.next().await, Some(ToolOutput::text("c")));
        assert_eq!(source.next().await, None);
    }
}
