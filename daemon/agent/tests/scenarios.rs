//! Orders of a run, as tables: what happens and what clients then see (reference 2.4-2.6).

mod support;

use atomic_agent::{AgentCommand, HookAnswer, Input};
use atomic_protocol::command::{QueueMode, StreamingBehavior};
use atomic_protocol::event::Event;
use atomic_protocol::json::Raw;
use atomic_protocol::message::StopReason;
use atomic_protocol::model::{ModelEvent, ModelFailure, ThinkingLevel};
use atomic_protocol::tool::ToolOutput;
use support::{World, calls, done, model, text, using};

#[test]
fn a_plain_answer() {
    let mut world = World::new();
    world.prompt("hi");
    assert_eq!(
        world.seen(),
        ["answer 1", "agent_start", "turn_start", "message_start user", "message_end user"]
    );
    world.answer(text("hello"));
    assert_eq!(
        world.seen(),
        [
            "message_start assistant",
            "message_update",
            "message_update",
            "message_update",
            "message_end assistant",
            "turn_end",
            "agent_end",
            "agent_settled"
        ]
    );
    world.check_order();
    assert!(world.agent.is_idle());
    let Some(Event::AgentEnd { messages, .. }) = world.events.iter().rev().nth(1) else {
        panic!("agent_end")
    };
    assert_eq!(messages.len(), 2);
}

#[test]
fn tools_run_together_end_in_any_order_and_are_told_in_the_order_of_the_calls() {
    let mut world = World::new();
    world.prompt("hi");
    world.answer(calls(&[("c0", "t"), ("c1", "u"), ("c2", "nope")], StopReason::ToolUse));
    world.seen();
    assert_eq!(world.tools.len(), 2);
    let run = world.tools[1].0;
    world.feed(Input::ToolUpdate { run, output: ToolOutput::text("half") });
    world.tool_done(1, ToolOutput::text("one"));
    world.tool_done(0, ToolOutput::text("zero"));
    assert_eq!(
        world.seen(),
        [
            "tool_execution_update",
            "tool_execution_end c1",
            "tool_execution_end c0",
            "message_start toolResult",
            "message_end toolResult",
            "message_start toolResult",
            "message_end toolResult",
            "message_start toolResult",
            "message_end toolResult",
            "turn_end",
            "turn_start"
        ]
    );
    let last = world.calls.last().unwrap();
    let context: Vec<&str> = last.context.iter().map(Raw::as_str).collect();
    assert!(
        context[2].contains("zero")
            && context[3].contains("one")
            && context[4].contains("Tool nope not found")
    );
    world.answer(text("done"));
    world.check_order();
}

#[test]
fn a_call_that_fails_at_once_ends_before_later_calls_start() {
    let mut world = World::new();
    world.prompt("hi");
    world.seen();
    world.answer(calls(&[("c0", "nope"), ("c1", "t")], StopReason::ToolUse));
    let seen = world.seen();
    let at = |record: &str| seen.iter().position(|seen| seen == record).unwrap();
    assert!(at("tool_execution_end c0") < at("tool_execution_start c1"));
}

#[test]
fn one_sequential_tool_makes_the_batch_sequential() {
    let mut world = World::new();
    world.prompt("hi");
    world.answer(calls(&[("c0", "t"), ("c1", "s")], StopReason::ToolUse));
    world.seen();
    assert_eq!(world.tools.len(), 1);
    world.tool_done(0, ToolOutput::text("zero"));
    assert_eq!(
        world.seen(),
        [
            "tool_execution_end c0",
            "message_start toolResult",
            "message_end toolResult",
            "tool_execution_start c1"
        ]
    );
    world.tool_done(0, ToolOutput::text("one"));
    world.answer(text("done"));
    world.check_order();
}

#[test]
fn an_answer_cut_by_the_output_limit_runs_no_tool() {
    let mut world = World::new();
    world.prompt("hi");
    world.answer(calls(&[("c0", "t")], StopReason::Length));
    assert!(world.tools.is_empty());
    assert!(world.calls.last().unwrap().context[2].as_str().contains("hit the output token limit"));
    world.answer(text("done"));
    world.check_order();
}

#[test]
fn all_results_that_terminate_end_the_run_and_one_that_does_not_keeps_it() {
    for (second, runs_on) in [(true, false), (false, true)] {
        let mut world = World::new();
        world.prompt("hi");
        world.answer(calls(&[("c0", "t"), ("c1", "t")], StopReason::ToolUse));
        world.tool_done(0, ToolOutput { terminate: true, ..ToolOutput::text("a") });
        world.tool_done(0, ToolOutput { terminate: second, ..ToolOutput::text("b") });
        assert_eq!(world.agent.is_running(), runs_on);
        world.check_order();
    }
}

#[test]
fn steering_waits_for_the_turn_and_follow_ups_for_the_end() {
    let mut world = World::new();
    world.prompt("first");
    world.answer(calls(&[("c0", "t")], StopReason::ToolUse));
    world.ask(AgentCommand::FollowUp { text: "later".into(), images: vec![] });
    world.ask(AgentCommand::Prompt {
        text: "now".into(),
        images: vec![],
        behavior: Some(StreamingBehavior::Steer),
    });
    world.seen();
    world.tool_done(0, ToolOutput::text("r"));
    assert_eq!(
        world.seen()[3..],
        ["turn_end", "turn_start", "queue_update", "message_start user", "message_end user"]
    );
    world.answer(text("a"));
    assert!(world.agent.is_running());
    world.answer(text("b"));
    assert_eq!(world.delivered, ["first", "now", "later"]);
    world.check_order();
    let ends = world.events.iter().filter(|event| matches!(event, Event::AgentEnd { .. })).count();
    assert_eq!(ends, 1, "one agent_end covers the run");
}

#[test]
fn modes_decide_how_many_are_delivered_at_once() {
    for (mode, first) in [(QueueMode::All, 3), (QueueMode::OneAtATime, 2)] {
        let mut world = World::new();
        world.ask(AgentCommand::SetSteeringMode(mode));
        world.ask(AgentCommand::Steer { text: "a".into(), images: vec![] });
        world.ask(AgentCommand::Steer { text: "b".into(), images: vec![] });
        assert!(world.calls.is_empty(), "a queue starts nothing");
        world.prompt("p");
        assert_eq!(world.delivered.len(), first);
        while world.agent.is_running() {
            world.answer(text("x"));
        }
        assert_eq!(world.delivered, ["p", "a", "b"]);
        world.check_order();
    }
}

#[test]
fn a_second_prompt_is_refused_also_during_preflight() {
    let mut world = World::new();
    world.instant = false;
    let first = world.prompt("one");
    let second = world.prompt("two");
    assert!(world.answers[&second].as_ref().unwrap_err().starts_with("Agent is already processing."));
    assert!(!world.answers.contains_key(&first));
    let (hook, _) = world.hooks.remove(0);
    world.instant = true;
    world.feed(Input::HookAnswer { hook, answer: HookAnswer::Go });
    assert!(world.answers[&first].is_ok());
    world.answer(text("x"));
    assert_eq!(world.delivered, ["one"]);
}

#[test]
fn clear_queue_gives_the_texts_back() {
    let mut world = World::new();
    world.ask(AgentCommand::Steer { text: "s".into(), images: vec![] });
    world.ask(AgentCommand::FollowUp { text: "f".into(), images: vec![] });
    let cleared = world.ask(AgentCommand::ClearQueue);
    let data = world.answers[&cleared].clone().unwrap().unwrap();
    assert_eq!(data.as_str(), r#"{"steering":["s"],"followUp":["f"]}"#);
    assert_eq!(world.agent.queued(), 0);
}

#[test]
fn an_abort_before_the_first_event_and_one_in_the_middle() {
    for (events, words, updates) in
        [(vec![], "Request aborted", 0), (text("partial")[..3].to_vec(), "Request was aborted", 2)]
    {
        let mut world = World::new();
        world.prompt("hi");
        world.seen();
        if !events.is_empty() {
            world.answer(events);
        }
        world.ask(AgentCommand::Abort { keep_queue: false });
        let seen = world.seen();
        assert_eq!(seen.iter().filter(|record| *record == "message_update").count(), updates);
        assert_eq!(
            seen[seen.len() - 5..],
            ["message_end assistant", "turn_end", "agent_end", "agent_settled", "answer 2"]
        );
        let last = world.agent.messages().last().unwrap().as_str();
        assert!(last.contains(words) && last.contains(r#""stopReason":"aborted""#), "{last}");
        assert_eq!(last.contains("partial"), updates > 0);
        world.check_order();
    }
}

#[test]
fn late_events_of_a_cancelled_call_are_ignored() {
    let mut world = World::new();
    world.prompt("hi");
    let call = world.open_calls[0];
    world.ask(AgentCommand::Abort { keep_queue: false });
    world.seen();
    world.feed(Input::Model { call, events: text("late") });
    assert!(world.seen().is_empty());
}

#[test]
fn an_abort_during_tools_waits_for_them_and_closes_with_an_empty_answer() {
    let mut world = World::new();
    world.prompt("hi");
    world.answer(calls(&[("c0", "t"), ("c1", "t")], StopReason::ToolUse));
    world.tool_done(1, ToolOutput::text("one"));
    world.ask(AgentCommand::Abort { keep_queue: false });
    assert_eq!(world.cancelled.len(), 1);
    world.seen();
    world.tool_done(0, ToolOutput::error("Command aborted"));
    let seen = world.seen();
    assert_eq!(
        seen[seen.len() - 8..],
        [
            "turn_end",
            "turn_start",
            "message_start assistant",
            "message_end assistant",
            "turn_end",
            "agent_end",
            "agent_settled",
            "answer 2"
        ]
    );
    world.check_order();
}

#[test]
fn an_abort_leaves_the_queue_to_a_run_of_its_own() {
    let mut world = World::new();
    world.prompt("hi");
    world.ask(AgentCommand::Steer { text: "next".into(), images: vec![] });
    world.seen();
    world.ask(AgentCommand::Abort { keep_queue: false });
    assert_eq!(
        world.seen(),
        [
            "message_start assistant",
            "message_end assistant",
            "turn_end",
            "agent_end",
            "answer 3",
            "agent_start",
            "turn_start",
            "queue_update",
            "message_start user",
            "message_end user"
        ]
    );
    world.answer(text("x"));
    world.check_order();
    assert_eq!(world.delivered, ["hi", "next"]);
    let settled = world.events.iter().filter(|event| matches!(event, Event::AgentSettled { .. })).count();
    assert_eq!(settled, 1);
}

#[test]
fn an_abort_while_idle_is_answered_and_starts_nothing() {
    let mut world = World::new();
    world.ask(AgentCommand::Steer { text: "waits".into(), images: vec![] });
    world.seen();
    world.ask(AgentCommand::Abort { keep_queue: false });
    assert_eq!(world.seen(), ["answer 2"]);
    assert!(world.agent.is_idle());
}

#[test]
fn a_failed_call_ends_the_run_with_its_text_and_keeps_the_queue() {
    let mut world = World::new();
    world.prompt("hi");
    world.ask(AgentCommand::FollowUp { text: "waits".into(), images: vec![] });
    world.seen();
    world.answer(failed("401 no"));
    assert_eq!(
        world.seen(),
        ["message_start assistant", "message_end assistant", "turn_end", "agent_end", "agent_settled"]
    );
    assert!(world.agent.messages().last().unwrap().as_str().contains(r#""errorMessage":"401 no""#));
    assert_eq!(world.agent.queued(), 1);
    world.check_order();
}

fn failed(text: &str) -> Vec<ModelEvent> {
    vec![ModelEvent::Failed(ModelFailure::new(text))]
}

#[test]
fn a_failure_that_passes_is_tried_again_without_the_user_message() {
    let mut world = World::new();
    world.prompt("hi");
    world.seen();
    world.answer(failed("529 overloaded_error"));
    assert_eq!(
        world.seen(),
        ["message_start assistant", "message_end assistant", "turn_end", "agent_end", "auto_retry_start"]
    );
    assert!(world.agent.is_running(), "a run is active until it settles");
    let refused = world.prompt("now?");
    assert!(world.answers[&refused].is_err());
    world.seen();
    world.ring();
    assert_eq!(world.seen(), ["agent_start", "turn_start"]);
    assert_eq!(world.calls.last().unwrap().context.len(), 1, "the failed answer is not sent again");
    world.answer(text("ok"));
    assert_eq!(
        world.seen()[3..],
        [
            "message_update",
            "message_end assistant",
            "auto_retry_end",
            "turn_end",
            "agent_end",
            "agent_settled"
        ]
    );
    assert_eq!(world.file.len(), 3, "the failed answer stays in the file");
    world.check_order();
}

#[test]
fn retries_are_exhausted_after_their_number() {
    let mut world = World::new();
    world.prompt("hi");
    for retry in 1..=3 {
        world.answer(failed("503"));
        let last = world.events.last();
        assert!(matches!(last, Some(Event::AutoRetryStart { attempt, .. }) if *attempt == retry), "{last:?}");
        world.ring();
    }
    world.seen();
    world.answer(failed("503 at last"));
    assert_eq!(world.seen()[3..], ["agent_end", "auto_retry_end", "agent_settled"]);
    let Some(Event::AutoRetryEnd { success, attempt, final_error }) = world.events.iter().rev().nth(1) else {
        panic!("auto_retry_end")
    };
    assert_eq!((*success, *attempt, final_error.as_deref()), (false, 3, Some("503 at last")));
    world.check_order();
}

#[test]
fn a_wait_can_be_given_up() {
    for command in [AgentCommand::AbortRetry, AgentCommand::Abort { keep_queue: false }] {
        let mut world = World::new();
        world.prompt("hi");
        world.answer(failed("503"));
        world.seen();
        let expected = match command {
            AgentCommand::Abort { .. } => ["auto_retry_end", "agent_settled", "answer 2"],
            _ => ["auto_retry_end", "answer 2", "agent_settled"],
        };
        world.ask(command);
        assert_eq!(world.seen(), expected);
        assert!(world.agent.is_idle());
        world.ring();
        assert!(world.seen().is_empty(), "a late timer does nothing");
        world.check_order();
    }
}

#[test]
fn nothing_is_retried_when_it_is_switched_off() {
    let mut world = World::new();
    world.ask(AgentCommand::SetAutoRetry(false));
    world.prompt("hi");
    world.answer(failed("503"));
    assert!(world.agent.is_idle());
}

#[test]
fn a_reused_call_id_gets_another() {
    let mut world = World::new();
    world.prompt("hi");
    for _ in 0..2 {
        world.answer(calls(&[("call_0", "t")], StopReason::ToolUse));
        world.tool_done(0, ToolOutput::text("r"));
    }
    let context = &world.calls.last().unwrap().context;
    assert!(context[3].as_str().contains(r#""id":"call_0-2""#), "{:?}", context[3]);
    assert!(context[4].as_str().contains(r#""toolCallId":"call_0-2""#));
}

#[test]
fn a_shell_result_that_comes_during_a_run_is_kept_between_turns() {
    let mut world = World::new();
    world.prompt("hi");
    world.answer(calls(&[("c0", "t")], StopReason::ToolUse));
    let bash = r#"{"role":"bashExecution","command":"ls","output":"o","exitCode":0,"cancelled":false,"truncated":false,"timestamp":1}"#;
    world.feed(Input::BashFinished { message: Raw::parse(bash).unwrap() });
    assert_eq!(world.file.len(), 2);
    world.tool_done(0, ToolOutput::text("r"));
    let roles: Vec<String> =
        world.agent.messages().map(|message| atomic_protocol::message::role(message).unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "toolResult", "bashExecution"]);
}

#[test]
fn a_model_that_cannot_think_clamps_the_level_first() {
    let mut world = World::new();
    world.ask(AgentCommand::SetModel(model("dull", false)));
    assert_eq!(world.seen(), ["thinking_level_changed", "model_changed", "answer 1"]);
    world.ask(AgentCommand::SetModel(model("dull", false)));
    assert_eq!(world.seen(), ["answer 2"]);
    let asked = world.ask(AgentCommand::SetThinking(ThinkingLevel::High));
    assert_eq!(world.seen(), ["answer 3"]);
    let data = world.answers[&asked].clone().unwrap().unwrap();
    assert_eq!(data.as_str(), r#"{"level":"off","provider":"p","modelId":"dull"}"#);
}

#[test]
fn a_full_disk_ends_the_run_with_an_error_that_names_the_file() {
    let mut world = World::new();
    world.prompt("hi");
    world.full = true;
    world.seen();
    world.answer(text("lost"));
    let seen = world.seen();
    assert_eq!(seen[seen.len() - 4..], ["message_end assistant", "turn_end", "agent_end", "agent_settled"]);
    assert!(
        matches!(world.events.iter().rev().nth(3), Some(Event::MessageEnd { message }) if message.as_str().contains("/s.jsonl"))
    );
    world.check_order();
    assert_eq!(world.agent.messages().count(), 1, "what is not in the file is not in the conversation");

    let refused = world.prompt("again");
    assert!(world.answers[&refused].as_ref().unwrap_err().contains("/s.jsonl"), "prompts are refused");
    assert_eq!(world.seen(), [format!("answer {refused}")]);

    world.full = false;
    let accepted = world.prompt("once more");
    assert!(world.answers[&accepted].is_ok());
    world.answer(text("ok"));
    world.check_order();
    assert_eq!(world.agent.messages().count(), 3);
}

#[test]
fn hooks_can_replace_block_and_add() {
    let mut world = World::new();
    world.instant = false;
    world.prompt("hi");
    let answer = |world: &mut World, answer: HookAnswer| {
        let (hook, _) = world.hooks.remove(0);
        world.feed(Input::HookAnswer { hook, answer });
    };
    answer(&mut world, HookAnswer::Transform { text: "changed".into(), images: vec![] });
    let custom =
        Raw::parse(r#"{"role":"custom","customType":"x","content":"note","display":true,"timestamp":1}"#)
            .unwrap();
    answer(&mut world, HookAnswer::Start { messages: vec![custom], system: Some("mine".into()) });
    for _ in 0..4 {
        answer(&mut world, HookAnswer::Go); // agent_start, turn_start, both messages
    }
    answer(&mut world, HookAnswer::Go); // context
    assert_eq!(world.delivered, ["changed"]);
    assert_eq!((&*world.calls[0].system, world.calls[0].context.len()), ("mine", 2));
    world.answer(calls(&[("c0", "t")], StopReason::ToolUse));
    answer(&mut world, HookAnswer::Go); // message_end
    answer(&mut world, HookAnswer::Block { reason: Some("no".into()), terminate: true });
    assert!(world.tools.is_empty());
    while !world.hooks.is_empty() {
        answer(&mut world, HookAnswer::Go);
    }
    assert!(!world.agent.is_running());
    world.check_order();
}

#[test]
fn a_joiner_is_told_the_run_so_far() {
    let mut world = World::new();
    assert!(world.agent.joining().is_empty());
    world.prompt("hi");
    let mut events = text("so far")[..3].to_vec();
    events.push(ModelEvent::ToolCallStart { index: 1, id: "c".into(), name: "t".into() });
    events.push(ModelEvent::ToolCallDelta { index: 1, delta: "{\"a\":".into() });
    world.answer(events);
    let names: Vec<&str> = world.agent.joining().iter().map(Event::name).collect();
    assert_eq!(names, ["agent_start", "turn_start", "message_start", "message_update"]);
    assert!(
        matches!(&world.agent.joining()[2], Event::MessageStart { message } if message.as_str().contains("so far"))
    );
    world.answer(vec![
        ModelEvent::ToolCallEnd { index: 1, arguments: Raw::empty_object(), thought_signature: None },
        done(StopReason::ToolUse),
    ]);
    let names: Vec<&str> = world.agent.joining().iter().map(Event::name).collect();
    assert_eq!(names, ["agent_start", "turn_start", "tool_execution_start"]);
}

/// An answer with nothing in it.
fn nothing() -> Vec<ModelEvent> {
    vec![ModelEvent::Start { response_id: None, response_model: None }, done(StopReason::Stop)]
}

#[test]
fn an_answer_that_says_nothing_is_tried_again() {
    for (answer, why) in [
        (nothing(), "Provider returned an empty completion"),
        (using("I can't help.", 10, 0, StopReason::Stop), "Provider returned a canned safety refusal"),
    ] {
        let mut world = World::new();
        world.prompt("hi");
        world.answer(answer);
        assert!(
            matches!(world.events.last(), Some(Event::AutoRetryStart { error_message, .. }) if error_message == why),
            "{:?}",
            world.events.last()
        );
        world.ring();
        assert_eq!(world.calls[1].context.len(), 1, "it is not sent");
        world.answer(text("there"));
        assert_eq!(world.seen().last().unwrap(), "agent_settled");
        assert_eq!(world.file.len(), 3, "it stays in the file");
        world.check_order();
    }
}

#[test]
fn an_answer_that_says_nothing_to_the_end_stands() {
    let mut world = World::new();
    world.prompt("hi");
    world.ask(AgentCommand::FollowUp { text: "and".into(), images: vec![] });
    for _ in 0..3 {
        world.answer(nothing());
        world.ring();
    }
    world.answer(nothing());
    assert!(world.events.iter().any(|event| matches!(
        event,
        Event::AutoRetryEnd { success: false, attempt: 3, final_error: Some(error) }
            if error == "Provider returned an empty completion"
    )));
    assert_eq!(world.delivered, ["hi", "and"], "what waits is no part of it");
    world.answer(text("there"));
    assert!(world.agent.is_idle());
    world.check_order();

    // Nobody wants retries: it is an answer like any other.
    let mut world = World::new();
    world.ask(AgentCommand::SetAutoRetry(false));
    world.prompt("hi");
    world.answer(nothing());
    assert!(world.agent.is_idle() && world.timer.is_none());
    world.check_order();
}

#[test]
fn an_answer_that_says_nothing_goes_to_another_model_at_last() {
    let mut world = World::new();
    world.agent.set_fallback_models(support::fallbacks(&["f1"]));
    world.prompt("hi");
    for _ in 0..3 {
        world.answer(nothing());
        world.ring();
    }
    world.answer(nothing());
    assert_eq!(world.calls.last().unwrap().model.id, "f1");
    world.answer(text("there"));
    assert!(world.agent.is_idle() && !world.agent.is_fallback());
    world.check_order();
}
