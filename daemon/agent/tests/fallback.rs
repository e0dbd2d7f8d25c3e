//! Fallback models, as tables: which failures change the model, in which order, and what clients then see (reference 2.7).

mod support;

use atomic_agent::{AgentCommand, FallbackModel, HookAnswer, Input};
use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::Event;
use atomic_protocol::message::StopReason;
use atomic_protocol::model::{ModelEvent, ModelFailure, ThinkingLevel};
use atomic_protocol::tool::ToolOutput;
use support::{World, calls, fallbacks, model, sized_model, text, using};

fn failed(status: Option<u16>, message: &str) -> Vec<ModelEvent> {
    vec![ModelEvent::Failed(ModelFailure { status, ..ModelFailure::new(message) })]
}

/// A failure that does not pass.
fn unauthorized() -> Vec<ModelEvent> {
    failed(Some(401), "401 bad key")
}

fn world(ids: &[&str]) -> World {
    let mut world = World::new();
    world.agent.set_fallback_models(fallbacks(ids));
    world
}

/// The records of the chain, as the wire has them.
fn chain(world: &World) -> Vec<String> {
    let wanted = [
        "auto_retry_end",
        "model_fallback_start",
        "thinking_level_changed",
        "model_changed",
        "model_fallback_end",
    ];
    let lines = world.events.iter().filter(|event| wanted.contains(&event.name())).map(|event| {
        let mut line = Vec::new();
        event.write_line(&mut line);
        // Of the models only the ids matter here.
        let line = String::from_utf8(line).unwrap().trim_end().to_owned();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        match value["type"].as_str() {
            Some("model_changed") => format!(
                "{} -> {} ({})",
                value["previousModel"]["id"].as_str().unwrap(),
                value["model"]["id"].as_str().unwrap(),
                value["source"].as_str().unwrap()
            ),
            _ => line,
        }
    });
    lines.collect()
}

/// The model and level entries of the file.
fn entries(world: &World) -> Vec<String> {
    let entries = world.file.iter().filter_map(|entry| match &entry.body {
        EntryBody::ModelChange { model_id, in_place_of: None, .. } => Some(model_id.clone()),
        EntryBody::ModelChange { model_id, in_place_of: Some((_, own)), .. } => {
            Some(format!("{model_id} for {own}"))
        }
        EntryBody::ThinkingLevelChange { level, in_place_of: None } => Some(format!(":{level}")),
        EntryBody::ThinkingLevelChange { level, in_place_of: Some(own) } => {
            Some(format!(":{level} for {own}"))
        }
        _ => None,
    });
    entries.collect()
}

fn asked(world: &World) -> Vec<&str> {
    world.calls.iter().map(|call| call.model.id.as_str()).collect()
}

#[test]
fn after_its_retries_a_model_gives_way_until_the_run_settles() {
    let mut world = World::new();
    world.agent.set_fallback_models(vec![FallbackModel {
        model: model("f", true),
        thinking: Some(ThinkingLevel::Low),
    }]);
    world.prompt("hi");
    world.seen();
    for _ in 0..3 {
        world.answer(failed(Some(503), "503 busy"));
        world.ring();
    }
    world.seen();
    world.answer(failed(Some(503), "503 busy"));
    let seen = world.seen();
    assert_eq!(
        seen[3..],
        [
            "agent_end",
            "auto_retry_end",
            "model_fallback_start",
            "thinking_level_changed",
            "model_changed",
            "agent_start",
            "turn_start"
        ],
        "{seen:?}"
    );
    assert!(matches!(&world.events[world.events.len() - 7], Event::AgentEnd { will_retry: true, .. }));
    assert_eq!(world.agent.model().unwrap().id, "f", "it is the model of get_state");
    assert_eq!(world.agent.thinking(), ThinkingLevel::Low);
    let call = world.calls.last().unwrap();
    assert_eq!((call.model.id.as_str(), call.thinking), ("f", ThinkingLevel::Low));
    assert_eq!(call.context.len(), 1, "without the failed answers");
    world.answer(text("here"));
    let seen = world.seen();
    assert_eq!(
        seen,
        [
            "message_start assistant",
            "message_update",
            "message_update",
            "message_update",
            "message_end assistant",
            "turn_end",
            "agent_end",
            "thinking_level_changed",
            "model_changed",
            "model_fallback_end",
            "agent_settled"
        ]
    );
    assert_eq!(
        chain(&world),
        [
            r#"{"type":"auto_retry_end","success":true,"attempt":3}"#,
            r#"{"type":"model_fallback_start","from":"p/m","to":"p/f","reason":"503 busy","attempt":1}"#,
            r#"{"type":"thinking_level_changed","level":"low"}"#,
            "m -> f (fallback)",
            r#"{"type":"thinking_level_changed","level":"medium"}"#,
            "f -> m (restore)",
            r#"{"type":"model_fallback_end","success":true,"from":"p/f","to":"p/m"}"#,
        ]
    );
    assert_eq!(
        entries(&world),
        ["f for m", ":low for medium", "m", ":medium"],
        "the file ends on the user's model"
    );
    assert_eq!(world.agent.model().unwrap().id, "m");
    world.check_order();
}

#[test]
fn each_candidate_once_and_then_the_last_error() {
    let mut world = world(&["a", "b", "a", "m"]);
    world.prompt("hi");
    for _ in 0..3 {
        world.answer(unauthorized());
    }
    assert!(!world.agent.is_running(), "nobody is left");
    assert_eq!(asked(&world), ["m", "a", "b"]);
    assert_eq!(
        chain(&world),
        [
            r#"{"type":"model_fallback_start","from":"p/m","to":"p/a","reason":"401 bad key","attempt":1}"#,
            r#"{"type":"thinking_level_changed","level":"off"}"#,
            "m -> a (fallback)",
            r#"{"type":"model_fallback_start","from":"p/a","to":"p/b","reason":"401 bad key","attempt":2}"#,
            "a -> b (fallback)",
            r#"{"type":"thinking_level_changed","level":"medium"}"#,
            "b -> m (restore)",
            r#"{"type":"model_fallback_end","success":false,"from":"p/b","to":"p/m","finalError":"401 bad key"}"#,
        ]
    );
    // Another user message, another chain.
    world.prompt("again");
    world.answer(unauthorized());
    assert_eq!(asked(&world)[3..], ["m", "a"]);
    world.answer(text("there"));
    assert_eq!(world.agent.model().unwrap().id, "m");
    world.check_order();
}

#[test]
fn which_failures_change_the_model() {
    for (status, message, changes) in [
        (Some(401), "401 invalid x-api-key", true),
        (Some(403), "403 forbidden", true),
        (Some(404), "404 model_not_found", true),
        (Some(429), "429 insufficient_quota", true),
        (Some(402), "402 billing", true),
        (Some(400), "400 unsupported parameter", true),
        (None, "No API key found for p. Set one.", true),
        (None, "refusal: the model refused to complete the request", true),
        (Some(400), "400 prompt is too long: 12000 tokens > 10000 maximum", false),
    ] {
        let mut world = world(&["f"]);
        world.prompt("hi");
        world.answer(failed(status, message));
        assert_eq!(world.calls.len() == 2, changes, "{message}");
    }
    // Those that pass have their retries first, also when the provider asks for more time than is waited for.
    let mut world = world(&["f"]);
    world.prompt("hi");
    let failure = ModelFailure {
        status: Some(429),
        retry_after_ms: Some(100_000),
        ..ModelFailure::new("429 slow down")
    };
    world.answer(vec![ModelEvent::Failed(failure)]);
    assert_eq!(asked(&world), ["m", "f"]);
}

#[test]
fn levels_of_one_model_are_candidates_only_for_failures_that_pass() {
    let levels = [ThinkingLevel::Medium, ThinkingLevel::Low]
        .map(|level| FallbackModel { model: model("m", true), thinking: Some(level) });
    for (failure, calls) in [(failed(Some(401), "401"), 1), (failed(Some(503), "503"), 2)] {
        let mut world = World::new();
        world.agent.set_fallback_models(levels.to_vec());
        world.ask(AgentCommand::SetAutoRetry(false));
        world.prompt("hi");
        world.answer(failure.clone());
        assert_eq!(world.calls.len(), calls, "{failure:?}");
        if calls == 2 {
            assert_eq!(world.calls[1].thinking, ThinkingLevel::Low, "what failed is not a candidate");
            world.answer(failure);
            assert!(!world.agent.is_running());
        }
        world.check_order();
    }
}

#[test]
fn what_is_too_long_is_shortened_first_and_then_another_models() {
    let mut world = World::with_window(10_000, 500);
    world
        .agent
        .set_fallback_models(vec![FallbackModel { model: sized_model("big", 100_000, 500), thinking: None }]);
    let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
    world.prompt(&lines.join("\n"));
    world.answer(text("first"));
    world.prompt("go on");
    world.seen();
    let too_long = || failed(Some(400), "400 prompt is too long: 12000 tokens > 10000 maximum");
    world.answer(too_long());
    assert_eq!(world.seen().last().unwrap(), "compaction_start");
    world.planner_says("2,30");
    world.answer(too_long());
    let seen = world.seen();
    let at = seen.iter().position(|name| name == "model_fallback_start").expect("the chain advances");
    assert_eq!(seen[at - 1], "compaction_end");
    let unresolved = world
        .events
        .iter()
        .any(|event| matches!(event, Event::CompactionEnd(end) if end.unresolved_overflow));
    assert!(unresolved && world.agent.model().unwrap().id == "big");
    world.answer(text("fits"));
    assert_eq!(world.agent.model().unwrap().id, "m");
    world.check_order();
    // Nobody shortens: at once.
    let mut world = World::with_window(10_000, 500);
    world.agent.set_fallback_models(fallbacks(&["big"]));
    world.ask(AgentCommand::SetAutoCompaction(false));
    world.prompt("hi");
    world.answer(too_long());
    assert_eq!(asked(&world), ["m", "big"]);
}

#[test]
fn a_candidate_answers_the_whole_turn_and_no_follow_up() {
    let mut world = world(&["f"]);
    world.prompt("hi");
    world.answer(unauthorized());
    world.ask(AgentCommand::Steer { text: "and this".into(), images: vec![] });
    world.ask(AgentCommand::FollowUp { text: "then this".into(), images: vec![] });
    world.answer(calls(&[("c", "t")], StopReason::ToolUse));
    world.tool_done(0, ToolOutput::text("r"));
    assert_eq!(asked(&world), ["m", "f", "f"], "steering joins the turn");
    world.seen();
    world.answer(text("done"));
    let seen = world.seen();
    let at = seen.iter().position(|name| name == "model_changed").expect("restored");
    assert_eq!(seen[at + 1..at + 4], ["model_fallback_end", "turn_start", "queue_update"]);
    assert_eq!(asked(&world), ["m", "f", "f", "m"], "a follow-up is the user's next turn");
    world.answer(text("and that"));
    world.check_order();
}

#[test]
fn a_second_failure_after_an_answer_goes_on_in_the_list() {
    let mut world = world(&["a", "b"]);
    world.prompt("hi");
    world.answer(unauthorized());
    world.answer(calls(&[("c", "t")], StopReason::ToolUse));
    world.tool_done(0, ToolOutput::text("r"));
    world.answer(unauthorized());
    assert_eq!(asked(&world), ["m", "a", "a", "b"]);
    assert_eq!(world.calls[3].context.len(), 3, "the answer of the other model and its result stay");
    world.answer(text("done"));
    world.check_order();
}

#[test]
fn an_abort_ends_the_chain() {
    // While the candidate answers.
    let mut world = world(&["a", "b"]);
    world.prompt("hi");
    world.answer(unauthorized());
    world.answer(text("piece")[..3].to_vec());
    world.seen();
    let abort = world.ask(AgentCommand::Abort { keep_queue: false });
    let seen = world.seen();
    assert_eq!(
        seen[seen.len() - 5..],
        ["thinking_level_changed", "model_changed", "model_fallback_end", "agent_settled", "answer 2"]
    );
    assert_eq!(
        chain(&world).last().unwrap(),
        r#"{"type":"model_fallback_end","success":false,"from":"p/a","to":"p/m","finalError":"Fallback cancelled"}"#
    );
    assert!(world.answers[&abort].is_ok());
    assert_eq!(asked(&world), ["m", "a"]);
    world.check_order();
    // While it waits for its retry.
    for command in [AgentCommand::Abort { keep_queue: false }, AgentCommand::AbortRetry] {
        let mut world = self::world(&["a", "b"]);
        world.prompt("hi");
        world.answer(unauthorized());
        world.answer(failed(Some(503), "503 busy"));
        world.ask(command);
        assert!(!world.agent.is_running());
        assert_eq!(asked(&world), ["m", "a"]);
        assert!(chain(&world).last().unwrap().ends_with(r#""to":"p/m","finalError":"503 busy"}"#));
        world.check_order();
    }
}

#[test]
fn the_users_choice_stands() {
    let mut world = world(&["a", "b"]);
    world.prompt("hi");
    world.answer(unauthorized());
    world.answer(text("piece")[..3].to_vec());
    world.seen();
    world.ask(AgentCommand::SetModel(model("mine", false)));
    assert_eq!(world.seen(), ["model_changed", "model_fallback_end", "answer 2"]);
    world.answer(text("piece")[3..].to_vec());
    assert!(!world.agent.is_running());
    assert_eq!(world.agent.model().unwrap().id, "mine", "nothing comes back");
    assert_eq!(
        chain(&world)[3..],
        [
            "a -> mine (set)",
            r#"{"type":"model_fallback_end","success":false,"from":"p/a","finalError":"Fallback cancelled"}"#
        ]
    );
    world.check_order();
    // The same model as the one in place: no change, but a choice.
    let mut world = self::world(&["a"]);
    world.prompt("hi");
    world.answer(unauthorized());
    world.ask(AgentCommand::SetModel(sized_model("a", 0, 0)));
    world.answer(text("done"));
    assert_eq!(world.agent.model().unwrap().id, "a");
    world.check_order();
    // Should the choice fail as well, only those are left that were not tried in this turn.
    let mut world = self::world(&["a", "b"]);
    world.prompt("hi");
    world.answer(unauthorized());
    world.ask(AgentCommand::SetModel(model("mine", true)));
    world.answer(unauthorized());
    assert_eq!(asked(&world), ["m", "a", "b"]);
    world.answer(text("done"));
    assert_eq!(world.agent.model().unwrap().id, "mine");
    world.check_order();
    // A level is a choice about the user's own model.
    let mut world = self::world(&["a"]);
    world.prompt("hi");
    world.answer(unauthorized());
    world.ask(AgentCommand::SetThinking(ThinkingLevel::High));
    world.answer(text("done"));
    assert_eq!(
        (world.agent.model().unwrap().id.as_str(), world.agent.thinking()),
        ("m", ThinkingLevel::High)
    );
    world.check_order();
}

#[test]
fn a_joiner_hears_of_the_chain_before_the_run() {
    let mut world = world(&["a"]);
    world.prompt("hi");
    world.answer(unauthorized());
    world.answer(text("piece")[..3].to_vec());
    let names: Vec<&str> = world.agent.joining().iter().map(Event::name).collect();
    assert_eq!(names, ["model_fallback_start", "agent_start", "turn_start", "message_start"]);
    world.answer(text("piece")[3..].to_vec());
    assert!(world.agent.joining().is_empty());
}

#[test]
fn a_file_that_fails_leaves_the_users_model() {
    // The change itself cannot be written: nobody hears of it.
    let mut broken = world(&["a"]);
    broken.prompt("hi");
    broken.instant = false;
    broken.answer(unauthorized());
    while let Some((hook, _)) = broken.hooks.pop() {
        // The disk fills up after the last entry of the failed answer.
        broken.full = broken.events.iter().any(|event| matches!(event, Event::TurnEnd { .. }));
        broken.feed(Input::HookAnswer { hook, answer: HookAnswer::Go });
    }
    assert!(!broken.agent.is_running() && !broken.agent.is_fallback());
    assert_eq!(broken.agent.model().unwrap().id, "m");
    assert!(chain(&broken).is_empty(), "{:?}", chain(&broken));
    broken.check_order();
    // The candidate's answer cannot be written: the user's model comes back without an entry.
    let mut broken = world(&["a"]);
    broken.prompt("hi");
    broken.answer(unauthorized());
    broken.full = true;
    broken.answer(text("lost"));
    assert_eq!(broken.agent.model().unwrap().id, "m");
    let last = chain(&broken);
    assert_eq!(last[last.len() - 2], "a -> m (restore)");
    assert!(
        last[last.len() - 1].contains(r#""success":false"#) && last[last.len() - 1].contains("disk full")
    );
    broken.check_order();
    // The way back cannot be written.
    let mut broken = world(&["a"]);
    broken.prompt("hi");
    broken.answer(unauthorized());
    broken.instant = false;
    broken.answer(text("kept"));
    while let Some((hook, _)) = broken.hooks.pop() {
        broken.full = broken.events.iter().filter(|e| matches!(e, Event::AgentEnd { .. })).count() == 2;
        broken.feed(Input::HookAnswer { hook, answer: HookAnswer::Go });
    }
    assert_eq!(broken.agent.model().unwrap().id, "m");
    let last = chain(&broken);
    assert_eq!(last[last.len() - 2], "a -> m (restore)");
    assert!(last[last.len() - 1].starts_with(r#"{"type":"model_fallback_end","success":true"#));
    assert_eq!(broken.events.last().unwrap().name(), "agent_settled");
    broken.check_order();
}

#[test]
fn however_often_models_fail_the_requests_are_counted() {
    for candidates in 0..4usize {
        for retries in 0..3u32 {
            for message in ["503 busy", "401 no", "prompt is too long"] {
                let ids = ["a", "b", "c"];
                let mut world = world(&ids[..candidates]);
                let mut reloaded = support::reloaded(&world);
                reloaded.retry.max_retries = retries;
                world.agent.reload(reloaded);
                world.prompt("hi");
                for _ in 0..1000 {
                    if !world.plans.is_empty() {
                        world.planner(atomic_agent::compaction::PlannerAnswer::broken(message));
                    } else if !world.open_calls.is_empty() {
                        world.answer(failed(None, message));
                    } else if world.timer.is_some() && world.agent.is_running() {
                        world.ring();
                    } else {
                        break;
                    }
                }
                assert!(world.agent.is_idle());
                let each = if message.starts_with("503") { retries as usize + 1 } else { 1 };
                // One more for the request that follows a compaction.
                let most = (candidates + 1) * each + 1;
                assert!(world.calls.len() <= most, "{candidates} {retries} {message}: {}", world.calls.len());
                assert!(world.calls.len() >= (candidates + 1) * each);
                world.check_order();
            }
        }
    }
}

#[test]
fn an_answer_that_says_what_it_used_is_of_the_model_in_place() {
    let mut world = World::with_window(10_000, 500);
    world.agent.set_fallback_models(fallbacks(&["f"]));
    world.prompt("hi");
    world.answer(unauthorized());
    world.answer(using("done", 9_900, 10, StopReason::Stop));
    // Full for the user's model, which the next prompt is for.
    world.prompt("more");
    assert_eq!(world.events.last().unwrap().name(), "compaction_start");
    world.check_order();
}
