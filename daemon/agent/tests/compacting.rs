//! Orders around a compaction, as tables: what happens and what clients then see (reference 2.8 and 4.3).

mod support;

use atomic_agent::compaction::{PlannerAnswer, Way, Work};
use atomic_agent::{AgentCommand, Conversation, Input, PlanStage, Wish};
use atomic_protocol::command::{CompactParameters, StreamingBehavior};
use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::{CompactionEnd, CompactionReason, Event};
use atomic_protocol::json::Raw;
use atomic_protocol::message::StopReason;
use atomic_protocol::model::{ModelEvent, ModelFailure};
use atomic_protocol::tool::ToolOutput;
use support::{World, calls, text, using};

/// Room of the model under test, in tokens; 1000 of them are to be kept free.
const WINDOW: u64 = 10_000;
/// Tokens that are more than what may be used.
const FULL: u64 = 9_500;
const MAX_TOKENS: u64 = 500;

/// A conversation with more than enough lines.
fn begun() -> World {
    let mut world = World::with_window(WINDOW, MAX_TOKENS);
    let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
    world.prompt(&lines.join("\n"));
    world.answer(text("first"));
    turn(&mut world, using("second", 300, 10, StopReason::Stop));
    world.seen();
    world
}

fn failed(message: &str) -> Vec<ModelEvent> {
    vec![ModelEvent::Failed(ModelFailure::new(message))]
}

const TOO_LONG: &str = "400 prompt is too long: 12000 tokens > 10000 maximum";

/// The last `compaction_end`.
fn end(world: &World) -> CompactionEnd {
    let ends = world.events.iter().rev().find_map(|event| match event {
        Event::CompactionEnd(end) => Some(end.as_ref().clone()),
        _ => None,
    });
    ends.expect("a compaction_end")
}

fn compact(world: &mut World) -> u64 {
    world.ask(AgentCommand::Compact(Wish::default()))
}

fn error_of(world: &World, request: u64) -> &str {
    world.answers[&request].as_ref().expect_err("refused")
}

fn compactions(world: &World) -> usize {
    world.file.iter().filter(|entry| matches!(entry.body, EntryBody::Compaction { .. })).count()
}

/// A prompt, answered by events.
fn turn(world: &mut World, events: Vec<ModelEvent>) {
    world.prompt("go on");
    world.answer(events);
}

#[test]
fn asked_for() {
    let mut world = begun();
    let request = compact(&mut world);
    assert_eq!(world.seen(), ["compaction_start"]);
    assert_eq!(world.agent.compaction_reason(), Some(CompactionReason::Manual));
    assert!(!world.agent.is_running() && !world.agent.is_idle());
    world.planner_says("2,30\n5,6\n");
    assert_eq!(world.seen(), ["compaction_end", "answer 3"]);
    let end = end(&world);
    assert_eq!(
        end,
        CompactionEnd { result: end.result.clone(), ..CompactionEnd::new(CompactionReason::Manual) }
    );
    let result = end.result.unwrap();
    assert_eq!(world.answers[&request], Ok(Some(result.clone())), "the same object");
    assert!(result.as_str().contains(r#""compactedText":"[User]: line 0\n(filtered 29 lines)\nline 30\n"#));
    assert!(result.as_str().ends_with(r#""promptVersion":3,"rung":"planned","backupPath":"/s.bak"}"#));
    let EntryBody::Compaction { first_kept, tokens_before, details, .. } = &world.file.last().unwrap().body
    else {
        panic!("a compaction entry")
    };
    assert_eq!(first_kept.as_ref(), Some(&world.file[2].id), "the two newest messages stay");
    assert!(*tokens_before > 100 && details.as_str().contains(r#""backupPath":"/s.bak""#));
    assert_eq!(world.backups, ["compact"]);
    assert_eq!(world.agent.messages().len(), 1, "one message stands for everything before");
    assert_eq!(world.agent.context_tokens(), None, "nobody knows until an answer says");
    turn(&mut world, using("third", 50, 5, StopReason::Stop));
    assert_eq!(world.agent.context_tokens(), Some(55));
    assert_eq!(world.calls.last().unwrap().context.len(), 2);
    // Again: the text of the last one is shortened once more.
    compact(&mut world);
    world.planner_says("1,3");
    let EntryBody::Compaction { summary, .. } = &world.file.last().unwrap().body else { panic!() };
    assert!(summary.starts_with("(filtered 31 lines)\n"), "{summary}");
    world.check_order();
}

#[test]
fn what_is_asked_for_goes_before_the_settings() {
    let mut world = begun();
    let parameters = CompactParameters {
        compression_ratio: Some(0.25),
        preserve_recent: Some(0),
        query: Some("names".into()),
    };
    let request = world.ask(AgentCommand::Compact(Wish::Settings(parameters)));
    let PlanStage::Begin(begin) = &world.plans[0].stage else { panic!("it begins") };
    let Way::Lines(parameters) = &begin.way else { panic!("line by line") };
    assert_eq!((parameters.compression_ratio, parameters.preserve_recent), (0.25, 0));
    world.planner_says("2,30");
    let result = world.answers[&request].clone().unwrap().unwrap();
    let expected = r#""parameters":{"compression_ratio":0.25,"preserve_recent":0,"query":"names"}"#;
    assert!(result.as_str().contains(expected), "{}", result.as_str());
    assert!(result.as_str().contains(r#""firstKeptEntryId":null"#), "nothing is kept whole");
    // For this time only.
    turn(&mut world, using("third", 300, 10, StopReason::Stop));
    compact(&mut world);
    let PlanStage::Begin(begin) = &world.plans[0].stage else { panic!("it begins") };
    let Way::Lines(parameters) = &begin.way else { panic!("line by line") };
    assert_eq!((parameters.compression_ratio, parameters.preserve_recent), (0.5, 2));
}

#[test]
fn concurrent_ones_join_and_prompts_wait() {
    let mut world = begun();
    let (first, second) = (compact(&mut world), compact(&mut world));
    let prompt = world.prompt("meanwhile");
    let steer = world.ask(AgentCommand::Steer { text: "and this".into(), images: vec![] });
    assert!(world.answers.contains_key(&steer) && !world.answers.contains_key(&prompt));
    world.ask(AgentCommand::Abort { keep_queue: false });
    assert!(!world.answers.contains_key(&first), "abort is not abort_compaction");
    world.seen();
    world.planner_says("2,30");
    let seen = world.seen();
    assert_eq!(seen[..3], ["compaction_end", "answer 3", "answer 4"]);
    assert_eq!(seen[3..6], ["answer 5", "agent_start", "turn_start"]);
    assert_eq!(world.answers[&first], world.answers[&second]);
    assert!(world.answers[&first].is_ok());
    world.answer(text("done"));
    assert_eq!(compactions(&world), 1);
    assert!(world.delivered.contains(&"and this".to_owned()));
    world.check_order();
}

#[test]
fn an_active_run_is_aborted_first_and_its_queue_runs_behind() {
    let mut world = begun();
    world.prompt("long work");
    world.ask(AgentCommand::FollowUp { text: "then this".into(), images: vec![] });
    world.answer(text("piece")[..3].to_vec());
    world.seen();
    let request = compact(&mut world);
    let order = ["message_end assistant", "turn_end", "agent_end", "agent_settled", "compaction_start"];
    assert_eq!(world.seen(), order);
    let prompt = world.ask(AgentCommand::Prompt {
        text: "parked".into(),
        images: vec![],
        behavior: Some(StreamingBehavior::Steer),
    });
    assert!(!world.answers.contains_key(&prompt));
    world.ask(AgentCommand::AbortCompaction);
    let seen = world.seen();
    assert_eq!(seen[..3], ["answer 7".to_owned(), "compaction_end".into(), format!("answer {request}")]);
    assert!(end(&world).aborted && !end(&world).will_retry);
    assert_eq!(error_of(&world, request), "Compaction cancelled");
    world.answer(text("parked is answered"));
    world.answer(text("and the follow-up"));
    assert!(world.delivered.contains(&"then this".to_owned()));
    world.check_order();

    let mut world = begun();
    world.prompt("long work");
    world.ask(AgentCommand::FollowUp { text: "then this".into(), images: vec![] });
    compact(&mut world);
    world.planner_says("2,30");
    assert_eq!(
        world.seen().last().unwrap(),
        "message_end user",
        "the queue of the run that was ended goes on"
    );
    world.answer(text("done"));
    world.check_order();
}

#[test]
fn abort_compaction_is_harmless_when_late() {
    let mut world = begun();
    for _ in 0..2 {
        let request = world.ask(AgentCommand::AbortCompaction);
        assert_eq!(world.answers[&request], Ok(None));
    }
    let request = compact(&mut world);
    world.planned(|world, _| {
        let _ = world;
        atomic_agent::compaction::PlanOutcome::Broken("the daemon's fault".into())
    });
    assert_eq!(error_of(&world, request), "the daemon's fault");
    world.check_order();
}

#[test]
fn failures_of_one_that_was_asked_for() {
    for (answer, error) in [
        ("I think 1,2", "The planning model's answer was not a list of line ranges"),
        ("0,0", "Context compaction produced no usable deleted ranges"),
    ] {
        let mut world = begun();
        let request = compact(&mut world);
        world.planner_says(answer);
        assert_eq!(error_of(&world, request), error);
        let end = end(&world);
        assert_eq!(end.error_message.as_deref(), Some(format!("Compaction failed: {error}").as_str()));
        assert!(end.result.is_none() && !end.aborted);
        assert_eq!((compactions(&world), world.backups.len()), (0, 0));
        world.check_order();
    }
    let mut world = World::with_window(WINDOW, MAX_TOKENS);
    turn(&mut world, text("short"));
    let request = compact(&mut world);
    world.planner_says("1,2");
    assert_eq!(error_of(&world, request), "Nothing to compact (session too small)");

    let mut world = begun();
    world.backup_error = Some("cannot copy the session file to /s.bak: disk full".into());
    let request = compact(&mut world);
    world.planner_says("2,30");
    assert!(error_of(&world, request).contains("disk full"));
    assert_eq!(compactions(&world), 0);
    world.full = true;
    let request = compact(&mut world);
    let parked = world.prompt("parked");
    world.planner_says("2,30");
    for request in [request, parked] {
        assert!(error_of(&world, request).contains("disk full"), "{request}");
    }
    assert!(end(&world).error_message.unwrap().starts_with("Compaction failed: "));
    assert_eq!(world.agent.messages().len(), 4, "nothing changed in memory");
    world.full = false;
    turn(&mut world, text("works again"));
    world.check_order();
}

#[test]
fn a_planner_that_fails_in_passing_is_asked_again() {
    let mut world = begun();
    compact(&mut world);
    world.planner(PlannerAnswer::broken("503 overloaded"));
    assert_eq!(world.seen(), ["compaction_start", "summarization_retry_scheduled"]);
    let bash = r#"{"role":"bashExecution","command":"ls","output":"","cancelled":false,"truncated":false,"timestamp":1}"#;
    world.feed(Input::BashFinished { message: Raw::parse(bash).unwrap() });
    assert_eq!(world.file.len(), 4, "not into the part that is being shortened");
    world.ring();
    assert_eq!(world.seen(), ["summarization_retry_attempt_start"]);
    world.planner_says("2,30");
    assert_eq!(world.seen(), ["summarization_retry_finished", "compaction_end", "answer 3"]);
    assert_eq!(world.file.len(), 6);
    assert!(matches!(&world.file[5].body, EntryBody::Message(message) if message.as_str() == bash));

    compact(&mut world);
    for _ in 0..3 {
        world.planner(PlannerAnswer::broken("503 overloaded"));
        world.ring();
    }
    world.planner(PlannerAnswer::broken("503 overloaded"));
    let seen = world.seen();
    assert_eq!(seen.iter().filter(|record| *record == "summarization_retry_scheduled").count(), 3);
    assert_eq!(seen[seen.len() - 3..], ["summarization_retry_finished", "compaction_end", "answer 4"]);

    compact(&mut world);
    world.planner(PlannerAnswer::broken("503 overloaded"));
    world.seen();
    world.ask(AgentCommand::AbortCompaction);
    let order = ["answer 6", "summarization_retry_finished", "compaction_end", "answer 5"];
    assert_eq!(world.seen(), order);
    world.check_order();
}

#[test]
fn a_planner_with_less_room_is_shown_less() {
    let mut world = begun();
    let request = compact(&mut world);
    let mut shown = Vec::new();
    while !world.answers.contains_key(&request) {
        if let PlanStage::Ask(Work::Lines(plan)) = &world.plans[0].stage {
            shown.push(plan.lines());
        }
        world.planner(PlannerAnswer::broken(TOO_LONG));
        assert!(world.planned <= 10, "a few tries");
    }
    assert_eq!(shown, [51, 26, 13, 7, 4, 2, 1]);
    assert!(error_of(&world, request).contains("does not fit"));
    world.check_order();
}

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

/// A turn with one tool whose answer fills the window; the tool has ended.
fn between_turns() -> World {
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

#[test]
fn a_joiner_is_told_of_it() {
    let mut world = begun();
    compact(&mut world);
    assert!(matches!(
        world.agent.joining()[..],
        [Event::CompactionStart { reason: CompactionReason::Manual, mid_turn: false }]
    ));
    let world = between_turns();
    assert!(matches!(
        world.agent.joining()[..],
        [Event::AgentStart, Event::CompactionStart { reason: CompactionReason::Threshold, mid_turn: true }]
    ));
}

#[test]
fn late_outcomes_change_nothing() {
    let mut world = begun();
    compact(&mut world);
    let plan = world.plans[0].plan;
    world.ask(AgentCommand::AbortCompaction);
    world.seen();
    let outcome = atomic_agent::compaction::PlanOutcome::Nothing;
    world.feed(Input::Planned { plan, outcome, diagnostic: None });
    world.feed(Input::BackedUp { plan, backup: Ok(None) });
    world.feed(Input::Context { plan, conversation: Conversation::default() });
    assert!(world.seen().is_empty());
    assert_eq!(world.agent.messages().len(), 4);
}

/// A `compact` whose boundary is being written out.
fn composing() -> (World, u64) {
    let mut world = begun();
    world.instant_composing = false;
    let request = compact(&mut world);
    world.planner_says("2,30");
    assert_eq!(world.composed.len(), 1);
    (world, request)
}

#[test]
fn a_boundary_follows_what_was_written_while_it_was_written_out() {
    let (mut world, request) = composing();
    world.ask(AgentCommand::SetName("renamed".into()));
    let first = world.composed.remove(0);
    let (plan, result) = (first.plan, Ok(first.result()));
    world.feed(Input::Composed { plan, result });
    // It is written out once more, behind the name; the first one comes to nothing.
    assert!(!world.answers.contains_key(&request));
    assert_eq!((world.composed.len(), world.composed[0].id == first.id), (1, true));
    world.compose();
    assert!(world.answers[&request].is_ok());
    let kinds: Vec<&str> = world.file.iter().rev().take(2).map(|entry| entry.body.kind()).collect();
    assert_eq!(kinds, ["compaction", "session_info"]);
    assert_eq!(world.file.last().unwrap().parent_id, Some(world.file[world.file.len() - 2].id.clone()));
    world.check_order();
}

#[test]
fn a_boundary_that_is_given_up_or_fails_while_it_is_written_out_changes_nothing() {
    let (mut world, request) = composing();
    let (file, messages) = (world.file.len(), world.agent.messages().len());
    world.ask(AgentCommand::AbortCompaction);
    assert_eq!(world.answers[&request], Err("Compaction cancelled".to_owned()));
    assert!(world.composed.is_empty());

    let (mut world, request) = composing();
    let plan = world.composed[0].plan;
    world.feed(Input::Composed { plan, result: Err("broken".to_owned()) });
    assert_eq!(world.answers[&request], Err("broken".to_owned()));
    assert_eq!((world.file.len(), world.agent.messages().len()), (file, messages));

    let (mut world, request) = composing();
    let leaf = world.file.last().unwrap().id.clone();
    world.full = true;
    world.compose();
    assert!(world.answers[&request].is_err());
    assert_eq!((world.file.len(), world.agent.messages().len()), (file, messages));
    world.full = false;
    world.prompt("on");
    assert_eq!(world.file.last().unwrap().parent_id, Some(leaf), "what comes next follows what is there");
    world.check_order();
}

#[test]
fn an_error_names_where_it_is_told_why_a_planner_was_given_up() {
    let mut world = begun();
    world.diagnostic = Some("/s.jsonl.x.json".to_owned());
    let request = compact(&mut world);
    world.planner_says("I would rather not");
    let error = world.answers[&request].clone().unwrap_err();
    assert!(error.ends_with(" (diagnostic: /s.jsonl.x.json)"), "{error}");
    let request = compact(&mut world);
    world.diagnostic = None;
    world.planner_says("I would rather not");
    let error = world.answers[&request].clone().unwrap_err();
    assert!(!error.contains("diagnostic"), "{error}");
}
