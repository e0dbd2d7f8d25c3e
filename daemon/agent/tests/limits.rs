//! Limits of money, turns and tokens, as tables: when nothing more is asked, and what clients then see.

mod support;

use atomic_agent::compaction::PlannerAnswer;
use atomic_agent::{AgentCommand, Budget, Input, Limits, Wish};
use atomic_protocol::event::Event;
use atomic_protocol::message::{StopReason, Usage};
use atomic_protocol::model::{Model, ModelEvent, ModelFailure};
use atomic_protocol::tool::ToolOutput;
use support::{World, calls, done, fallbacks, reloaded, text};

fn world(limits: Limits) -> World {
    let mut world = World::new();
    let reloaded = atomic_agent::Reloaded { limits, ..reloaded(&world) };
    world.agent.reload(reloaded);
    world
}

fn per_run(run: Budget) -> Limits {
    Limits { run, ..Limits::default() }
}

fn per_session(session: Budget) -> Limits {
    Limits { session, ..Limits::default() }
}

/// An answer that cost a quarter of a dollar and took 100 tokens.
fn dear(mut events: Vec<ModelEvent>) -> Vec<ModelEvent> {
    let mut usage = Usage { input: 60, output: 40, total_tokens: 100, ..Usage::default() };
    usage.cost.total = 0.25;
    events.insert(events.len() - 1, ModelEvent::Usage(usage));
    events
}

/// Answers with tool calls until nothing more is asked; gives the number of requests of this run.
fn until_stopped(world: &mut World) -> usize {
    let before = world.calls.len() - world.open_calls.len();
    for number in 0..50 {
        if world.open_calls.is_empty() {
            return world.calls.len() - before;
        }
        world.answer(dear(calls(&[(&format!("c{number}"), "t")], StopReason::ToolUse)));
        world.tool_done(0, ToolOutput::text("r"));
    }
    panic!("nothing stops the run")
}

/// The error of the last message.
fn error(world: &World) -> String {
    let Some(Event::MessageEnd { message }) =
        world.events.iter().rfind(|event| matches!(event, Event::MessageEnd { .. }))
    else {
        panic!("a message")
    };
    let value: serde_json::Value = message.read().unwrap();
    assert_eq!(value["stopReason"], "error");
    value["errorMessage"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_ends_at_its_limit_and_says_which() {
    for (budget, requests, expected) in [
        (
            Budget { max_turns: Some(3), ..Budget::default() },
            3,
            "This run has made 3 turns, and limits.maxTurns is 3.",
        ),
        (
            Budget { max_cost: Some(0.6), ..Budget::default() },
            3,
            "This run has cost $0.75, and limits.maxCost is $0.60.",
        ),
        (
            Budget { max_tokens: Some(200), ..Budget::default() },
            2,
            "This run has used 200 tokens, and limits.maxTokens is 200.",
        ),
    ] {
        let mut world = world(per_run(budget));
        world.prompt("work");
        assert_eq!(until_stopped(&mut world), requests, "{expected}");
        let why = error(&world);
        assert_eq!(
            why,
            format!(
                "{expected} Prompt again for another run, or raise the limit in settings.json and reload."
            )
        );
        let seen = world.seen();
        assert_eq!(
            seen[seen.len() - 6..],
            [
                "turn_start",
                "message_start assistant",
                "message_end assistant",
                "turn_end",
                "agent_end",
                "agent_settled"
            ]
        );
        // Another run has all of it again.
        world.prompt("go on");
        assert_eq!(until_stopped(&mut world), requests);
        world.check_order();
    }
}

#[test]
fn a_session_that_used_up_its_limit_takes_no_prompt() {
    let mut world = world(per_session(Budget { max_cost: Some(0.5), ..Budget::default() }));
    world.prompt("work");
    assert_eq!(until_stopped(&mut world), 2);
    let why = "This session has cost $0.50, and limits.session.maxCost is $0.50. Raise the limit in settings.json and reload, \
               or go on in a new session.";
    assert_eq!(error(&world), why);
    world.seen();
    let prompt = world.prompt("more");
    assert_eq!(world.answers[&prompt], Err(why.to_owned()));
    let compact = world.ask(AgentCommand::Compact(Wish::default()));
    assert_eq!(world.answers[&compact], Err(why.to_owned()), "a planner costs as well");
    assert_eq!(world.seen(), ["answer 2", "answer 3"], "nothing begins");
    assert!(world.agent.is_idle());
    let used = world.agent.used();
    assert_eq!((used.cost, used.tokens), (0.5, 200));
    // A raised limit counts at once.
    let reloaded = atomic_agent::Reloaded {
        limits: per_session(Budget { max_cost: Some(0.75), ..Budget::default() }),
        ..reloaded(&world)
    };
    world.agent.reload(reloaded);
    world.prompt("more");
    assert_eq!(until_stopped(&mut world), 1);
    world.check_order();
}

#[test]
fn retries_and_other_models_count() {
    let mut world = world(per_run(Budget { max_turns: Some(2), ..Budget::default() }));
    world.agent.set_fallback_models(fallbacks(&["f"]));
    world.prompt("work");
    let failed = || vec![ModelEvent::Failed(ModelFailure::new("503 busy"))];
    world.answer(failed());
    world.ring();
    world.answer(failed());
    world.ring();
    assert_eq!(world.calls.len(), 2, "the second retry is refused");
    assert!(error(&world).starts_with("This run has made 2 turns"));
    assert!(!world.agent.is_running(), "a refusal is neither retried nor given to another model");
    assert!(!world.events.iter().any(|event| matches!(event, Event::ModelFallbackStart { .. })));
    world.check_order();
}

#[test]
fn planners_count() {
    let mut world = world(per_session(Budget { max_cost: Some(0.5), ..Budget::default() }));
    let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
    world.prompt(&lines.join("\n"));
    world.answer(text("first"));
    world.prompt("second");
    world.answer(dear(text("second")));
    let compact = world.ask(AgentCommand::Compact(Wish::default()));
    let mut usage = Usage::default();
    usage.cost.total = 0.3;
    world.feed(Input::Spent { usage });
    // The planner was paid, and is not asked again.
    world.planner(PlannerAnswer::broken("prompt is too long"));
    assert!(world.plans.is_empty());
    assert!(
        world.answers[&compact].as_ref().is_err_and(|why| why.starts_with("This session has cost $0.55"))
    );
    let prompt = world.prompt("third");
    assert!(world.answers[&prompt].is_err());
    world.check_order();
}

#[test]
fn what_costs_nobody_knows_how_much_is_refused() {
    fn only_cheap(model: &Model) -> bool {
        model.id == "m"
    }
    for (run, session, name) in
        [(Some(1.0), None, "limits.maxCost"), (None, Some(1.0), "limits.session.maxCost")]
    {
        let budget = |max_cost| Budget { max_cost, ..Budget::default() };
        let limits = Limits { run: budget(run), session: budget(session), priced: only_cheap };
        let mut world = world(limits);
        world.agent.set_fallback_models(fallbacks(&["unknown"]));
        world.prompt("hi");
        world.answer(vec![ModelEvent::Failed(ModelFailure::new("401 no"))]);
        assert_eq!(world.calls.len(), 1, "no candidate either");
        world.ask(AgentCommand::SetModel(support::model("other", false)));
        let prompt = world.prompt("hi");
        let why = format!(
            "The price of p/other is unknown, so {name} cannot be held. Set \"cost\" of the model in models.json, or remove {name}."
        );
        assert_eq!(world.answers[&prompt], Err(why.clone()));
        // In the middle of a run.
        world.ask(AgentCommand::SetModel(support::model("m", false)));
        world.prompt("hi");
        world.ask(AgentCommand::SetModel(support::model("other", false)));
        world.answer(calls(&[("c", "t")], StopReason::ToolUse));
        world.tool_done(0, ToolOutput::text("r"));
        assert_eq!(error(&world), why);
        world.check_order();
    }
    // Other limits need no price.
    let turns = Budget { max_turns: Some(1), ..Budget::default() };
    let mut world = world(Limits { run: turns, session: Budget::default(), priced: |_| false });
    world.prompt("hi");
    world.answer(text("fine"));
    assert_eq!(world.calls.len(), 1);
}

#[test]
fn what_is_queued_stays_queued() {
    let mut world = world(per_run(Budget { max_turns: Some(1), ..Budget::default() }));
    world.prompt("hi");
    world.ask(AgentCommand::FollowUp { text: "then this".into(), images: vec![] });
    world.ask(AgentCommand::FollowUp { text: "and this".into(), images: vec![] });
    world.answer(text("one"));
    assert!(!world.agent.is_running());
    assert!(error(&world).starts_with("This run has made 1 turn,"));
    assert_eq!((world.agent.queued(), world.calls.len()), (1, 1));
    world.check_order();
}

#[test]
fn an_aborted_answer_is_paid_for() {
    let mut world = World::new();
    world.prompt("hi");
    let mut events = dear(text("piece"));
    events.pop();
    world.answer(events);
    world.ask(AgentCommand::Abort { keep_queue: false });
    assert_eq!(world.agent.used().cost, 0.25);
    world.prompt("again");
    world.answer(vec![ModelEvent::Usage(Usage { input: 5, ..Usage::default() }), done(StopReason::Stop)]);
    assert_eq!((world.agent.used().turns, world.agent.used().tokens), (2, 105));
}
