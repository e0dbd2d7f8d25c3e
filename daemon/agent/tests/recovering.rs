//! What the reference's own tests hold of automatic compaction (protocol 2.8, 7.1 rows 28 to 30) and no other table has.

mod support;

use std::sync::Arc;

use atomic_agent::compaction::PlanOutcome;
use atomic_agent::{AgentCommand, Wish};
use atomic_protocol::event::{CompactionEnd, CompactionReason, Event};
use atomic_protocol::json::Raw;
use atomic_protocol::message::StopReason;
use atomic_protocol::model::{Model, ModelEvent, ModelFailure};
use atomic_protocol::tool::ToolOutput;
use support::{World, calls, text, using};

/// Room of the model under test, in tokens; 1000 of them are to be kept free.
const WINDOW: u64 = 10_000;
/// Tokens that are just not too many, so that any further message is.
const NEARLY: u64 = 8_950;

const TOO_LONG: &str = "400 prompt is too long: 12000 tokens > 10000 maximum";

fn begun() -> World {
    let mut world = World::with_window(WINDOW, 500);
    let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
    world.prompt(&lines.join("\n"));
    world.answer(text("first"));
    world.prompt("go on");
    world.answer(using("second", 300, 10, StopReason::Stop));
    world.seen();
    world
}

fn failed(message: &str) -> Vec<ModelEvent> {
    vec![ModelEvent::Failed(ModelFailure::new(message))]
}

fn ends(world: &World) -> Vec<&CompactionEnd> {
    let ends = world.events.iter().filter_map(|event| match event {
        Event::CompactionEnd(end) => Some(end.as_ref()),
        _ => None,
    });
    ends.collect()
}

/// A request that failed for another reason, with a window that the last good answer and what came since nearly fill: room
/// is made, and the request is not made again by itself.
#[test]
fn a_failed_turn_goes_by_the_last_good_usage() {
    let mut world = begun();
    world.prompt("go on");
    world.answer(using("third", NEARLY, 10, StopReason::Stop));
    assert!(ends(&world).is_empty());
    world.seen();
    world.prompt(&"long ".repeat(100));
    world.answer(failed("400 invalid_request_body: messages.3 is malformed"));
    assert_eq!(world.agent.compaction_reason(), Some(CompactionReason::Threshold));
    world.planner_says("2,30");
    let end = ends(&world)[0];
    assert!(end.result.is_some() && !end.will_retry, "{end:?}");
    assert_eq!(world.seen().last().unwrap(), "agent_settled");
    world.check_order();

    // Without an answer that says, nobody knows how full it is.
    let mut world = World::with_window(WINDOW, 500);
    world.prompt(&"long ".repeat(10_000));
    world.answer(failed("400 invalid_request_body"));
    assert_eq!((world.seen().last().unwrap().as_str(), world.planned), ("agent_settled", 0));
}

/// The Responses API refuses a request with next to no room for output.
#[test]
fn no_room_for_output_is_made_room_for_once() {
    let refusal = "400 Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.";
    let mut world = begun();
    let model = r#"{"id":"m","name":"m","api":"openai-responses","provider":"p","contextWindow":10000,"maxTokens":500}"#;
    let model = Arc::new(Model::parse(Raw::parse(model).unwrap()).unwrap());
    world.ask(AgentCommand::SetModel(model));
    world.prompt("go on");
    world.answer(using("third", NEARLY, 10, StopReason::Stop));
    world.prompt(&"long ".repeat(100));
    world.answer(failed(refusal));
    world.planner_says("2,30");
    let end = ends(&world)[0];
    assert_eq!((end.reason, end.will_retry), (CompactionReason::Threshold, true));
    // The next answer says that it is full again, by a tool turn, and the one after fails in the same way.
    let mut events = calls(&[("c0", "t")], StopReason::ToolUse);
    let last = events.pop().unwrap();
    events.push(using("", NEARLY, 10, StopReason::Stop).remove(4));
    events.push(last);
    world.answer(events);
    world.ask(AgentCommand::SetAutoCompaction(false));
    world.tool_done(0, ToolOutput::text("x".repeat(400)));
    world.ask(AgentCommand::SetAutoCompaction(true));
    let planned = world.planned;
    world.answer(failed(refusal));
    let end = ends(&world)[1];
    assert_eq!(
        end.error_message.as_deref(),
        Some(
            "Output-budget recovery stopped after a compact-and-retry attempt. Try reducing context or switching to a \
             larger-context model."
        )
    );
    assert_eq!(world.planned, planned, "no further request");
    assert!(!world.agent.is_running());
    world.check_order();
}

/// What a planner was not even asked for, since the daemon failed, has the prefix of what it was for.
#[test]
fn a_failure_between_two_turns_says_so() {
    let mut world = begun();
    world.prompt("use a tool");
    let mut events = calls(&[("c0", "t")], StopReason::ToolUse);
    let last = events.pop().unwrap();
    events.push(using("", 9_500, 10, StopReason::Stop).remove(4));
    events.push(last);
    world.answer(events);
    world.tool_done(0, ToolOutput::text("result"));
    world.planned(|_, _| PlanOutcome::Broken("no thread".into()));
    let error = "Post-tool context compaction failed before the next provider request: no thread";
    assert_eq!(ends(&world)[0].error_message.as_deref(), Some(error));
    assert!(ends(&world)[0].mid_turn);
    assert!(!world.agent.is_running(), "the request is not sent");
    world.check_order();
}

/// `abort_compaction` ends every `compact` that joined.
#[test]
fn those_that_joined_are_cancelled_together() {
    let mut world = begun();
    let compact = |world: &mut World| world.ask(AgentCommand::Compact(Wish::default()));
    let requests = [compact(&mut world), compact(&mut world)];
    world.ask(AgentCommand::AbortCompaction);
    for request in requests {
        assert_eq!(world.answers[&request], Err("Compaction cancelled".into()));
    }
    assert_eq!(ends(&world).len(), 1);
    assert!(world.agent.is_idle() && world.plans.is_empty());
    world.check_order();
}

/// A client's `compact` in the middle of a recovery: the recovery is over, and its retry is not made up for.
#[test]
fn nothing_is_retried_after_a_client_took_over() {
    let mut world = begun();
    world.prompt("go on");
    world.answer(failed(TOO_LONG));
    assert_eq!(world.agent.compaction_reason(), Some(CompactionReason::Overflow));
    let calls = world.calls.len();
    let request = world.ask(AgentCommand::Compact(Wish::default()));
    assert!(
        ends(&world)[0].aborted && ends(&world)[0].manual_takeover_pending && !ends(&world)[0].will_retry
    );
    assert_eq!(world.agent.compaction_reason(), Some(CompactionReason::Manual));
    world.planner_says("2,30");
    assert!(world.answers[&request].is_ok());
    assert!(world.agent.is_idle());
    assert_eq!(world.calls.len(), calls, "the model is not asked again");
    world.check_order();
}

/// Right after a compaction the numbers of before say nothing: the next prompt starts at once.
#[test]
fn stale_usage_starts_no_second_compaction() {
    for wish in [Wish::default(), Wish::Summary(None)] {
        let mut world = begun();
        world.ask(AgentCommand::SetAutoCompaction(false));
        for _ in 0..3 {
            world.prompt(&"long ".repeat(2_000));
            world.answer(using("full", 9_500, 10, StopReason::Stop));
        }
        world.ask(AgentCommand::SetAutoCompaction(true));
        world.ask(AgentCommand::Compact(wish));
        world.planner_says("2,1000");
        assert!(ends(&world)[0].result.is_some(), "{:?}", ends(&world)[0]);
        world.seen();
        let prompt = world.prompt("next");
        assert_eq!(world.seen()[0], format!("answer {prompt}"), "no compaction first");
        assert_eq!(ends(&world).len(), 1);
        world.answer(text("done"));
        world.check_order();
    }
}
