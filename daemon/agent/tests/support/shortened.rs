//! Conversations that are shortened: a model with little room, and what is asked of the world then.

use atomic_agent::{AgentCommand, Wish};
use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::{CompactionEnd, Event};
use atomic_protocol::message::StopReason;
use atomic_protocol::model::{ModelEvent, ModelFailure};
use atomic_protocol::tool::ToolOutput;

use super::{World, calls, text, using};

/// Room of the model under test, in tokens; 1000 of them are to be kept free.
pub(crate) const WINDOW: u64 = 10_000;
/// Tokens that are more than what may be used.
pub(crate) const FULL: u64 = 9_500;
pub(crate) const MAX_TOKENS: u64 = 500;

/// A conversation with more than enough lines.
pub(crate) fn begun() -> World {
    let mut world = World::with_window(WINDOW, MAX_TOKENS);
    let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
    world.prompt(&lines.join("\n"));
    world.answer(text("first"));
    turn(&mut world, using("second", 300, 10, StopReason::Stop));
    world.seen();
    world
}

pub(crate) fn failed(message: &str) -> Vec<ModelEvent> {
    vec![ModelEvent::Failed(ModelFailure::new(message))]
}

pub(crate) const TOO_LONG: &str = "400 prompt is too long: 12000 tokens > 10000 maximum";

/// The last `compaction_end`.
pub(crate) fn end(world: &World) -> CompactionEnd {
    let ends = world.events.iter().rev().find_map(|event| match event {
        Event::CompactionEnd(end) => Some(end.as_ref().clone()),
        _ => None,
    });
    ends.expect("a compaction_end")
}

pub(crate) fn compact(world: &mut World) -> u64 {
    world.ask(AgentCommand::Compact(Wish::default()))
}

pub(crate) fn error_of(world: &World, request: u64) -> &str {
    world.answers[&request].as_ref().expect_err("refused")
}

pub(crate) fn compactions(world: &World) -> usize {
    world.file.iter().filter(|entry| matches!(entry.body, EntryBody::Compaction { .. })).count()
}

/// A prompt, answered by events.
pub(crate) fn turn(world: &mut World, events: Vec<ModelEvent>) {
    world.prompt("go on");
    world.answer(events);
}

/// A turn with one tool whose answer fills the window; the tool has ended.
pub(crate) fn between_turns() -> World {
    let mut world = begun();
    world.prompt("use a tool");
    let mut events = calls(&[("c0", "t")], StopReason::ToolUse);
    let last = events.pop().unwrap();
    events.push(using("", FULL, 10, StopReason::Stop).remove(4));
    events.push(last);
    world.answer(events);
    world.seen();
    world.tool_done(0, ToolOutput::text("result"));
    let seen = world.seen();
    assert_eq!(seen[seen.len() - 2..], ["turn_end", "compaction_start"]);
    assert!(matches!(world.events.last(), Some(Event::CompactionStart { mid_turn: true, .. })));
    world
}
