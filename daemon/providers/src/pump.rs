//! From the bytes of an answer to batches of events: one batch for each piece that arrives, so a busy stream costs one
//! wake-up per piece and not one per delta.

use std::time::Duration;

use atomic_protocol::model::{ModelEvent, ModelFailure};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::http::silence;
use crate::sse::{self, Decoder, TooLarge};

/// Longest we read on after an answer's end so that its connection can be used again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether an answer goes on after an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    More,
    /// The terminal event is out.
    Ended,
}

/// What a dialect makes of server-sent events.
pub(crate) trait Mapper {
    /// One event. What it appends to `out` is sent even when it fails.
    fn event(&mut self, event: &sse::Event<'_>, out: &mut Vec<ModelEvent>) -> Result<Flow, ModelFailure>;

    /// The bytes ended without [`Flow::Ended`]: either that was the answer's end, and the terminal event goes to `out`,
    /// or it is a failure.
    fn at_end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure>;

    /// Whether nothing but an end mark is missing: then a connection that breaks or falls silent does no harm.
    fn is_whole(&self) -> bool {
        false
    }
}

/// Why an answer stops before its terminal event.
#[derive(Debug, PartialEq)]
pub(crate) enum Stop {
    /// To be reported.
    Failed(ModelFailure),
    /// Nobody listens any more.
    SinkClosed,
}

impl From<ModelFailure> for Stop {
    fn from(failure: ModelFailure) -> Stop {
        Stop::Failed(failure)
    }
}

/// Sends one batch.
pub(crate) async fn send(sink: &mpsc::Sender<Vec<ModelEvent>>, batch: Vec<ModelEvent>) -> Result<(), Stop> {
    sink.send(batch).await.map_err(|_| Stop::SinkClosed)
}

/// So many deadlines without a word end an answer that is only kept alive: providers send events for that too, and a
/// model may well think in silence for longer than one.
const SILENT_DEADLINES: u32 = 4;

/// Reads `pieces` to the terminal event. `deadline` is the longest time without progress; keep-alive comments are none,
/// events that say nothing are one for [`SILENT_DEADLINES`] at most, and it does not run while the sink is full.
pub(crate) async fn pump<S>(
    mut pieces: S,
    mapper: &mut impl Mapper,
    deadline: Option<Duration>,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop>
where
    S: Stream<Item = Result<Bytes, ModelFailure>> + Send + Unpin + 'static,
{
    let mut decoder = Decoder::default();
    let mut last_progress = Instant::now();
    let mut last_word = last_progress;
    loop {
        let piece = match deadline {
            Some(deadline) => {
                let end = (last_progress + deadline).min(last_word + deadline * SILENT_DEADLINES);
                timeout_at(end, pieces.next()).await.unwrap_or_else(|_| {
                    Some(Err(ModelFailure::new(silence("the answer made no progress", deadline))))
                })
            }
            None => pieces.next().await,
        };
        let whole = mapper.is_whole();
        let mut batch = Vec::new();
        let mut outcome = Ok(Flow::More);
        let each = |event: sse::Event<'_>| {
            outcome = mapper.event(&event, &mut batch);
            outcome == Ok(Flow::More)
        };
        let ended = match piece {
            Some(Ok(piece)) => decoder.push(&piece, each).map(|()| false),
            // Half an event that a broken connection left says nothing.
            Some(Err(_)) if whole => Ok(true),
            Some(Err(failure)) => return Err(failure.into()),
            None => decoder.finish(each).map(|()| true),
        };
        if outcome == Ok(Flow::More) && ended == Ok(true) {
            outcome = mapper.at_end(&mut batch).map(|()| Flow::Ended);
        }
        if !batch.is_empty() {
            send(sink, batch).await?;
            last_word = Instant::now();
        }
        match (outcome?, ended) {
            (Flow::Ended, ended) => {
                if !matches!(ended, Ok(true)) {
                    tokio::spawn(drain(pieces));
                }
                return Ok(());
            }
            (Flow::More, Err(TooLarge)) => {
                return Err(ModelFailure::new("The provider sent an event that never ends.").into());
            }
            (Flow::More, Ok(_)) => {}
        }
        if decoder.take_progress() {
            last_progress = Instant::now();
        }
    }
}

async fn drain(mut pieces: impl Stream<Item = Result<Bytes, ModelFailure>> + Unpin) {
    let rest = async { while let Some(Ok(_)) = pieces.next().await {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
}
