//! Orders around a `compact` that a client asks for, as tables: what happens and what clients then see (reference 2.8 and 4.3).

mod support;

use atomic_agent::compaction::{PlannerAnswer, Way, Work};
use atomic_agent::{AgentCommand, Conversation, Input, PlanStage, Wish};
use atomic_protocol::command::{CompactParameters, StreamingBehavior};
use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::{CompactionEnd, CompactionReason, Event};
use atomic_protocol::json::Raw;
use atomic_protocol::message::StopReason;
use support::shortened::{
    MAX_TOKENS, TOO_LONG, WINDOW, begun, between_turns, compact, compactions, end, error_of, turn,
};
use support::{World, text, using};

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
