//! Conversations that are shortened by themselves, as tables: when, and what goes on behind it (reference 2.8 and 4.3).

mod support;

use atomic_agent::compaction::PlannerAnswer;
use atomic_agent::{AgentCommand, PlanStage};
use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::{CompactionEnd, CompactionReason};
use atomic_protocol::message::StopReason;
use atomic_protocol::tool::ToolOutput;
use support::shortened::{
    FULL, MAX_TOKENS, TOO_LONG, WINDOW, begun, between_turns, compact, end, error_of, failed, turn,
};
use support::{World, calls, text, using};

#[test]
fn the_window_is_nearly_full_after_a_run() {
    let mut world = begun();
    world.prompt("go on");
    world.ask(AgentCommand::FollowUp { text: "then this".into(), images: vec![] });
    world.answer(using("done", FULL, 10, StopReason::Stop));
    world.answer(using("done", FULL, 10, StopReason::Stop));
    let seen = world.seen();
    assert_eq!(seen[seen.len() - 2..], ["agent_end", "compaction_start"]);
    assert!(world.agent.is_running(), "a run is active until it settles");
    let refused = world.prompt("too early");
    assert!(error_of(&world, refused).contains("already processing"));
    world.ask(AgentCommand::FollowUp { text: "last".into(), images: vec![] });
    world.seen();
    world.planner_says("2,30");
    assert_eq!(world.seen()[..3], ["compaction_end", "agent_start", "turn_start"], "the queue goes on");
    assert!(!end(&world).will_retry);
    assert_eq!(end(&world).reason, CompactionReason::Threshold);
    assert_eq!(world.backups, ["auto-compact"]);
    world.answer(using("done", 50, 10, StopReason::Stop));
    assert_eq!(world.seen().last().unwrap(), "agent_settled");
    world.check_order();
}

#[test]
fn a_failure_to_make_room_is_told_and_changes_nothing() {
    for (stop, error) in [(false, Some("Auto-compaction failed: no such model")), (true, None)] {
        let mut world = begun();
        turn(&mut world, using("done", FULL, 10, StopReason::Stop));
        if stop {
            world.ask(AgentCommand::AbortCompaction);
        } else {
            world.planner(PlannerAnswer::broken("no such model"));
        }
        let end = end(&world);
        assert_eq!((end.error_message.as_deref(), end.aborted), (error, stop));
        assert_eq!(world.seen().last().unwrap(), "agent_settled");
        assert_eq!(world.planned, 1);
        world.check_order();
    }
    let mut world = begun();
    turn(&mut world, using("done", FULL, 10, StopReason::Stop));
    let abort = world.ask(AgentCommand::Abort { keep_queue: false });
    assert!(end(&world).aborted);
    let seen = world.seen();
    assert_eq!(
        seen[seen.len() - 3..],
        ["compaction_end".to_owned(), "agent_settled".into(), format!("answer {abort}")]
    );
    world.check_order();
}

#[test]
fn too_little_to_shorten_is_no_error_and_not_tried_twice() {
    let mut world = World::with_window(WINDOW, MAX_TOKENS);
    turn(&mut world, using("short", FULL, 10, StopReason::Stop));
    world.planner_says("1,2");
    let end = end(&world);
    assert_eq!(end, CompactionEnd::new(CompactionReason::Threshold));
    let planned = world.planned;
    world.seen();
    world.prompt("more");
    assert_eq!(world.seen()[0], "answer 2", "before the prompt it would come to nothing again");
    assert_eq!(world.planned, planned);
    world.check_order();
}

#[test]
fn the_window_is_nearly_full_before_a_prompt() {
    for abort in [false, true] {
        let mut world = begun();
        world.ask(AgentCommand::SetAutoCompaction(false));
        turn(&mut world, using("done", FULL, 10, StopReason::Stop));
        assert_eq!(world.seen().last().unwrap(), "agent_settled");
        world.ask(AgentCommand::SetAutoCompaction(true));
        world.seen();
        let prompt = world.prompt("next");
        assert_eq!(world.seen(), ["compaction_start"]);
        let second = world.prompt("too early");
        assert!(error_of(&world, second).contains("already processing"));
        if abort {
            world.ask(AgentCommand::Abort { keep_queue: false });
            assert!(error_of(&world, prompt).contains("aborted"));
            assert!(world.agent.is_idle());
        } else {
            world.seen();
            world.planner_says("2,30");
            let answer = format!("answer {prompt}");
            assert_eq!(world.seen()[..3], ["compaction_end", answer.as_str(), "agent_start"]);
            assert_eq!(world.calls.last().unwrap().context.len(), 2);
            world.answer(text("done"));
        }
        world.check_order();
    }
}

#[test]
fn the_window_is_nearly_full_between_two_turns() {
    let mut world = between_turns();
    world.ask(AgentCommand::Steer { text: "by the way".into(), images: vec![] });
    world.seen();
    world.planner_says("2,30");
    let order = ["compaction_end", "turn_start", "queue_update", "message_start user", "message_end user"];
    assert_eq!(world.seen(), order);
    assert!(end(&world).mid_turn && end(&world).error_message.is_none());
    assert_eq!(world.calls.last().unwrap().context.len(), 2);
    assert_eq!(world.backups, ["overflow-auto-compact"]);
    world.answer(text("done"));
    world.check_order();

    // No planner helps: everything old goes.
    let mut world = between_turns();
    world.planner(PlannerAnswer::broken("no such model"));
    assert!(matches!(world.plans[0].stage, PlanStage::Fresh(_)));
    world.planner_says("");
    assert!(end(&world).result.unwrap().as_str().contains(r#""rung":"fresh""#));
    world.answer(text("done"));
    world.check_order();
}

#[test]
fn between_two_turns_it_is_stopped() {
    let mut world = between_turns();
    world.ask(AgentCommand::AbortCompaction);
    let order = [
        "answer 4",
        "compaction_end",
        "turn_start",
        "message_start assistant",
        "message_end assistant",
        "turn_end",
        "agent_end",
        "agent_settled",
    ];
    assert_eq!(world.seen(), order);
    assert!(world.file.last().unwrap().body.kind() == "message");
    let EntryBody::Message(message) = &world.file.last().unwrap().body else { panic!() };
    let error = "Post-tool context compaction was cancelled before the next provider request.";
    assert!(message.as_str().contains(error), "{message:?}");
    world.check_order();

    let mut world = between_turns();
    let calls = world.calls.len();
    world.ask(AgentCommand::Abort { keep_queue: false });
    let seen = world.seen();
    assert_eq!(seen[..3], ["compaction_end", "turn_start", "message_start assistant"]);
    assert_eq!(seen[seen.len() - 2..], ["agent_settled", "answer 4"]);
    assert_eq!(world.calls.len(), calls);
    world.check_order();

    let mut world = between_turns();
    compact(&mut world);
    assert!(end(&world).manual_takeover_pending && end(&world).aborted);
    assert_eq!(world.agent.compaction_reason(), Some(CompactionReason::Manual));
    world.planner_says("2,30");
    assert!(world.agent.is_idle());
    world.check_order();
}

#[test]
fn what_still_does_not_fit_is_not_sent() {
    let mut world = begun();
    world.prompt("use a tool");
    world.answer(calls(&[("c0", "t")], StopReason::ToolUse));
    world.tool_done(0, ToolOutput::text("x".repeat(60_000)));
    let calls = world.calls.len();
    world.planner_says("2,30");
    let end = end(&world);
    assert!(end.result.is_some(), "the boundary is in the file");
    let error = end.error_message.unwrap();
    assert!(
        error.starts_with("Post-tool context remains over the provider hard input limit after compaction (")
    );
    assert!(error.ends_with(" > 10000 tokens); the next provider request was not sent."), "{error}");
    assert_eq!(world.calls.len(), calls);
    assert!(!world.agent.is_running());
    world.check_order();
}

#[test]
fn an_overflow_is_recovered_from_once() {
    let mut world = begun();
    turn(&mut world, failed(TOO_LONG));
    let seen = world.seen();
    assert_eq!(seen[seen.len() - 2..], ["agent_end", "compaction_start"]);
    world.planner_says("2,30");
    assert_eq!(world.seen(), ["compaction_end", "agent_start", "turn_start"], "without a user message");
    assert!(end(&world).will_retry);
    assert_eq!(end(&world).reason, CompactionReason::Overflow);
    assert_eq!(world.backups, ["overflow-auto-compact"]);
    let (planned, calls) = (world.planned, world.calls.len());
    world.answer(failed(TOO_LONG));
    let seen = world.seen();
    assert_eq!(seen[seen.len() - 3..], ["agent_end", "compaction_end", "agent_settled"]);
    let end = end(&world);
    assert!(end.unresolved_overflow && !end.will_retry && end.result.is_none() && !end.aborted);
    let error = "Context overflow recovery failed after one compact-and-retry attempt. Try reducing context or switching to a \
                 larger-context model.";
    assert_eq!(end.error_message.as_deref(), Some(error));
    assert_eq!((world.planned, world.calls.len()), (planned, calls), "no further requests");
    world.prompt("next");
    assert_eq!(world.seen()[0], "answer 4", "nothing stray before the next prompt");
    world.answer(text("fine"));
    world.check_order();
}

#[test]
fn a_small_conversation_that_overflows_starts_fresh() {
    let mut world = World::with_window(WINDOW, MAX_TOKENS);
    turn(&mut world, text("a"));
    turn(&mut world, failed(TOO_LONG));
    world.planner_says("never asked");
    assert!(end(&world).result.unwrap().as_str().contains(r#""rung":"fresh""#));
    world.answer(text("fits now"));
    assert!(!world.agent.is_running());

    let mut world = World::with_window(WINDOW, MAX_TOKENS);
    turn(&mut world, failed(TOO_LONG));
    world.planner_says("never asked");
    let error = "Context overflow recovery failed: Context compaction found no compactable transcript entries; nothing more was \
                 safely deletable";
    assert_eq!(end(&world).error_message.as_deref(), Some(error));
    assert!(!world.agent.is_running());
    world.check_order();
}

#[test]
fn an_overflow_that_was_answered_is_not_tried_again() {
    let mut world = begun();
    turn(&mut world, using("done all the same", WINDOW + 1, 10, StopReason::Stop));
    world.planner_says("2,30");
    assert!(!end(&world).will_retry);
    assert_eq!(world.seen().last().unwrap(), "agent_settled");
    world.check_order();
}

#[test]
fn an_answer_cut_off_for_lack_of_room_is_made_again_once() {
    let mut world = begun();
    turn(&mut world, using("half", 400, 20, StopReason::Length));
    assert_eq!(world.seen().last().unwrap(), "compaction_start");
    assert_eq!(world.agent.compaction_reason(), Some(CompactionReason::Overflow));
    world.planner_says("2,30");
    assert!(end(&world).will_retry && !end(&world).unresolved_overflow);
    assert_eq!(world.backups, ["auto-compact"]);
    world.answer(using("half", 400, 20, StopReason::Length));
    assert_eq!(
        end(&world).error_message.as_deref(),
        Some("Response truncation recovery stopped after one retry.")
    );
    assert!(!end(&world).unresolved_overflow);
    assert!(!world.agent.is_running());
    world.check_order();

    let mut world = begun();
    turn(&mut world, using("half", 400, 20, StopReason::Length));
    world.planner(PlannerAnswer::broken("no such model"));
    assert_eq!(
        end(&world).error_message.as_deref(),
        Some("Response truncation recovery failed: no such model")
    );
    assert!(!world.agent.is_running());

    // Too little to shorten: once more as it is.
    let mut world = World::with_window(WINDOW, MAX_TOKENS);
    turn(&mut world, using("half", 400, 20, StopReason::Length));
    world.planner_says("never asked");
    assert_eq!(world.calls.last().unwrap().context.len(), 1, "without the half answer");
    world.answer(text("whole"));
    assert!(!world.agent.is_running());
    world.check_order();
}

#[test]
fn an_answer_at_the_output_limit_goes_on_three_times() {
    let mut world = begun();
    world.prompt("write a book");
    for _ in 0..3 {
        world.answer(using("chapter", 400, MAX_TOKENS, StopReason::Length));
        assert_eq!(
            world.seen()[..].iter().rev().take(3).collect::<Vec<_>>(),
            ["turn_start", "agent_start", "agent_end"]
        );
    }
    world.answer(using("chapter", 400, MAX_TOKENS, StopReason::Length));
    assert_eq!(world.seen().last().unwrap(), "agent_settled");
    assert_eq!(world.planned, 0);
    // With a window that is nearly full as well, room is made first.
    turn(&mut world, using("chapter", FULL, MAX_TOKENS, StopReason::Length));
    world.planner_says("2,30");
    assert!(end(&world).will_retry);
    world.answer(text("the end"));
    world.check_order();
}

#[test]
fn nothing_happens_by_itself_when_it_is_turned_off() {
    let mut world = begun();
    world.ask(AgentCommand::SetAutoCompaction(false));
    for events in [
        using("x", FULL, 1, StopReason::Stop),
        failed(TOO_LONG),
        using("x", 400, 20, StopReason::Length),
        using("x", 400, MAX_TOKENS, StopReason::Length),
    ] {
        turn(&mut world, events);
        assert_eq!(world.seen().last().unwrap(), "agent_settled");
    }
    assert_eq!(world.planned, 0);
    world.check_order();
}

#[test]
fn another_models_overflow_says_nothing() {
    let mut world = begun();
    world.prompt("go on");
    world.ask(AgentCommand::SetModel(support::sized_model("other", WINDOW, MAX_TOKENS)));
    world.answer(failed(TOO_LONG));
    assert_eq!(world.seen().last().unwrap(), "agent_settled");
    assert_eq!(world.planned, 0);
}

#[test]
fn a_window_smaller_than_the_catalog_says_is_learned() {
    let mut world = World::with_window(1_000_000, MAX_TOKENS);
    let lines: Vec<String> = (0..40).map(|number| format!("line {number}")).collect();
    world.prompt(&lines.join("\n"));
    world.answer(text("first"));
    turn(&mut world, failed("400 prompt is too long: 210000 tokens > 200000 maximum"));
    assert_eq!(world.plans[0].window, 200_000);
    world.planner_says("2,30");
    world.answer(using("fine", 199_500, 10, StopReason::Stop));
    assert_eq!(world.agent.compaction_reason(), Some(CompactionReason::Threshold), "it holds from then on");
    world.ask(AgentCommand::Abort { keep_queue: false });
    world.check_order();
}
