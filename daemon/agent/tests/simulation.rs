//! A seeded simulation: random inputs in random order, the invariants of the crate after each.
//!
//! `ATOMIC_SIMULATIONS` sets how many seeds are played (default 400, about a second in a debug build); a failure names
//! its seed.

mod support;

use atomic_agent::compaction::{Instructions, PlanOutcome, PlannerAnswer};
use atomic_agent::{AgentCommand, Budget, Departure, HookAnswer, Input, Limits, Reloaded, Strategy, Wish};
use atomic_protocol::command::{QueueMode, StreamingBehavior};
use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::Event;
use atomic_protocol::json::Raw;
use atomic_protocol::message::{StopReason, role};
use atomic_protocol::model::{ModelEvent, ModelFailure};
use atomic_protocol::tool::ToolOutput;
use support::{World, calls, done, fallbacks, text, using};

/// SplitMix64: small, seeded, good enough to pick cases.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

/// Room of the model, in tokens.
const WINDOW: u64 = 10_000;

/// Steps of planning that one compaction or summary may take: for each of two planners or two parts the first, retries,
/// trimming down to a line; and the last resort.
const STEPS: usize = 2 * (1 + 3 + 12) + 1;

/// Recoveries that one user message may bring: overflow, truncation, and three continuations at the output limit.
const RECOVERIES: usize = 5;

/// Retries of a failed call.
const RETRIES: usize = 3;

/// Models that may take the place of one that fails.
const FALLBACKS: [&str; 2] = ["f1", "f2"];

/// What a provider says instead of a model.
const REFUSED: &str = "no, thank you";

/// An assistant message that is neither a failure nor aborted, and says something.
fn is_answer(message: &Raw) -> bool {
    let text = message.as_str();
    let hollow = text.contains(r#""content":[]"#) || text.contains(REFUSED);
    !hollow
        && text.contains(r#""role":"assistant""#)
        && !text.contains(r#""stopReason":"error""#)
        && !text.contains(r#""stopReason":"aborted""#)
}

fn play(seed: u64) {
    let mut dice = Dice(seed);
    let mut world = World::with_window(WINDOW, 500);
    let mut admitted: Vec<(u64, String)> = Vec::new();
    let mut cleared: Vec<String> = Vec::new();
    let mut departures = 0;
    let failing = dice.roll(4) == 0;
    let candidates = dice.roll(FALLBACKS.len() + 1);
    world.agent.set_fallback_models(fallbacks(&FALLBACKS[..candidates]));
    // Some runs may make only so many turns.
    let most_turns = [None, None, Some(3)][dice.roll(3)];
    let run = Budget { max_turns: most_turns, ..Budget::default() };
    let mut limited = Reloaded { limits: Limits { run, ..Limits::default() }, ..support::reloaded(&world) };
    if dice.roll(3) == 0 {
        limited.compaction.strategy = Strategy::Summary;
    }
    world.agent.reload(limited);
    // The model that the user chose last.
    let mut chosen = "m";
    for step in 0..60 {
        world.instant = dice.roll(3) > 0;
        world.instant_composing = dice.roll(3) > 0;
        let name = format!("m{step}");
        match dice.roll(19) {
            0 | 1 => {
                let behavior =
                    [None, Some(StreamingBehavior::Steer), Some(StreamingBehavior::FollowUp)][dice.roll(3)];
                let request =
                    world.ask(AgentCommand::Prompt { text: name.clone(), images: vec![], behavior });
                admitted.push((request, name));
            }
            2 => {
                let request = world.ask(AgentCommand::Steer { text: name.clone(), images: vec![] });
                admitted.push((request, name));
            }
            3 => {
                let request = world.ask(AgentCommand::FollowUp { text: name.clone(), images: vec![] });
                admitted.push((request, name));
            }
            4 => {
                world.ask(AgentCommand::Abort { keep_queue: false });
            }
            5 if dice.roll(4) == 0 => {
                let request = world.ask(AgentCommand::ClearQueue);
                if let Some(Ok(Some(data))) = world.answers.get(&request) {
                    let data: serde_json::Value = data.read().unwrap();
                    for list in ["steering", "followUp"] {
                        cleared.extend(
                            data[list].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned()),
                        );
                    }
                }
            }
            6 => {
                let mode = [QueueMode::All, QueueMode::OneAtATime][dice.roll(2)];
                world.ask(if dice.roll(2) == 0 {
                    AgentCommand::SetSteeringMode(mode)
                } else {
                    AgentCommand::SetFollowUpMode(mode)
                });
            }
            16 => {
                world.ask(match dice.roll(6) {
                    0 => AgentCommand::AbortCompaction,
                    1 => AgentCommand::SetAutoCompaction(dice.roll(3) > 0),
                    2 => AgentCommand::Compact(Wish::Summary(None)),
                    _ => AgentCommand::Compact(Wish::default()),
                });
            }
            17 if dice.roll(3) == 0 => departures += usize::from(depart(&mut world, &mut dice)),
            7 if failing => world.full = dice.roll(3) == 0,
            8 if dice.roll(2) == 0 => {
                world.ask(match dice.roll(4) {
                    0 => AgentCommand::SetName(name),
                    1 => AgentCommand::AbortRetry,
                    2 => AgentCommand::SetAutoRetry(dice.roll(3) > 0),
                    _ => {
                        chosen = ["other", FALLBACKS[0]][dice.roll(2)];
                        AgentCommand::SetModel(support::model(chosen, dice.roll(2) == 0))
                    }
                });
            }
            8 => {
                let bash = r#"{"role":"bashExecution","command":"ls","output":"","cancelled":false,"truncated":false,"timestamp":1}"#;
                world.feed(Input::BashFinished { message: Raw::parse(bash).unwrap() });
            }
            _ => advance(&mut world, &mut dice, &name),
        }
        world.check_order();
    }
    // Let everything come to its end.
    world.full = false;
    (world.instant, world.instant_composing) = (true, true);
    for _ in 0..10_000 {
        if world.timer.is_some()
            && world.hooks.is_empty()
            && world.tools.is_empty()
            && world.open_calls.is_empty()
            && world.plans.is_empty()
            && world.composed.is_empty()
        {
            world.ring();
            continue;
        }
        if world.agent.is_idle() && world.hooks.is_empty() && world.tools.is_empty() {
            break;
        }
        if let Some((hook, _)) = world.hooks.pop() {
            world.feed(Input::HookAnswer { hook, answer: HookAnswer::Go });
        } else if !world.composed.is_empty() {
            world.compose();
        } else if !world.plans.is_empty() {
            world.planner_says("1,3");
        } else if !world.tools.is_empty() {
            world.tool_done(0, ToolOutput::text("r"));
        } else {
            world.answer(text("end"));
        }
    }
    world.check_order();
    assert!(world.agent.is_idle(), "the run comes to an end");
    assert!(world.open_calls.is_empty() || failing, "no call is left open");
    for asked in &world.asked {
        assert!(world.answers.contains_key(asked), "request {asked} was never answered");
    }
    // Compactions are paid for by what happened: each kind of recovery once for a user message, and a planner is asked a
    // bounded number of times for each.
    let count = |kind: fn(&Event) -> bool| world.events.iter().filter(|event| kind(event)).count();
    let begun = count(|event| matches!(event, Event::CompactionStart { .. }));
    let begun = begun + departures;
    assert!(world.planned <= begun * STEPS, "{} steps for {begun} compactions", world.planned);
    let retried = count(|event| matches!(event, Event::CompactionEnd(end) if end.will_retry));
    let users = world.delivered.len();
    assert!(retried <= users * RECOVERIES, "{retried} retries for {users} user messages");
    if let Some(most) = most_turns {
        let runs = world.events.split(|event| matches!(event, Event::AgentSettled { .. }));
        let turns = runs.map(|run| run.iter().filter(|event| matches!(event, Event::TurnStart)).count());
        // One more says that it was the last, and one says that the run was aborted.
        let turns = turns.max().unwrap_or_default() as u64;
        assert!(turns <= most + 2, "{turns} turns in a run that may have {most}");
    }
    // So are other models: each once for a user message; and whoever is in place has its retries.
    let fallen = count(|event| matches!(event, Event::ModelFallbackStart { .. }));
    assert!(
        fallen <= users * candidates,
        "{fallen} fallbacks to {candidates} models for {users} user messages"
    );
    let answered = count(|event| matches!(event, Event::MessageEnd { message } if is_answer(message)));
    let most = (answered + fallen + users) * (RETRIES + 1) + users * RECOVERIES;
    assert!(world.calls.len() <= most, "{} requests, {most} at most", world.calls.len());
    assert_eq!(world.agent.model().unwrap().id, chosen, "at rest the model is the one the user chose");
    if !failing {
        let written = world.file.iter().rev().find_map(|entry| match &entry.body {
            EntryBody::ModelChange { model_id, .. } => Some(model_id.as_str()),
            _ => None,
        });
        assert_eq!(written.unwrap_or("m"), chosen, "and so it is in the file");
    }
    let starts = world.events.iter().filter(|event| matches!(event, Event::AgentStart)).count();
    let ends = world.events.iter().filter(|event| matches!(event, Event::AgentEnd { .. })).count();
    assert_eq!(starts, ends);
    // No admitted message is lost or delivered twice. A failed file may cost messages that were being delivered: their
    // run ended with the error that says so.
    let waiting = world.ask(AgentCommand::ClearQueue);
    let waiting = world.answers[&waiting].clone().unwrap().unwrap();
    for (request, name) in admitted.iter().filter(|(request, _)| world.answers[request].is_ok()) {
        let delivered = world.delivered.iter().filter(|text| *text == name).count();
        let queued = waiting.as_str().matches(&format!("\"{name}\"")).count();
        let given_back = cleared.iter().filter(|text| *text == name).count();
        let total = delivered + queued + given_back;
        assert!(
            total == 1 || (failing && total == 0),
            "request {request} {name}: {delivered}+{queued}+{given_back}"
        );
    }
    // Every call of a finished answer has a result.
    if !failing {
        let messages = atomic_agent::context::for_model(
            &world.agent.messages().cloned().collect::<Vec<_>>(),
            &atomic_agent::context::ContextOptions::default(),
        )
        .unwrap();
        let text = format!("{messages:?}");
        assert!(!text.contains("interrupted"), "a call without a result was repaired");
    }
}

/// Goes back to some user message with a summary, if nothing else is going on.
fn depart(world: &mut World, dice: &mut Dice) -> bool {
    let users: Vec<usize> = (0..world.file.len())
        .filter(|at| matches!(&world.file[*at].body, EntryBody::Message(message) if role(message).as_deref() == Some("user")))
        .collect();
    if users.is_empty() || !world.agent.is_idle() {
        return false;
    }
    let entry = &world.file[users[dice.roll(users.len())]];
    let (target, leaf) = (entry.id.clone(), entry.parent_id.clone());
    world.ask(AgentCommand::Depart(Departure {
        target,
        leaf,
        instructions: Instructions::default(),
        label: (dice.roll(2) == 0).then(|| "label".to_owned()),
        answer: Raw::parse(r#"{"cancelled":false}"#).unwrap(),
    }));
    true
}

/// What a planner answers, from the best to the worst.
fn plan(world: &mut World, dice: &mut Dice) {
    match dice.roll(6) {
        0 => world.planner(PlannerAnswer::broken("503 overloaded")),
        1 => world.planner(PlannerAnswer::broken("prompt is too long")),
        2 => world.planner(PlannerAnswer::broken("no such model")),
        3 => world.planner_says("I would rather not"),
        4 => world.planned(|_, _| PlanOutcome::Broken("broken".into())),
        _ => world.planner_says("1,2\n9,4\n900,3000"),
    }
}

/// Something the outside world does: the model, a tool or a hook goes on.
fn advance(world: &mut World, dice: &mut Dice, name: &str) {
    match dice.roll(5) {
        4 if !world.composed.is_empty() => world.compose(),
        4 if !world.plans.is_empty() => {
            if dice.roll(8) == 0 {
                world.backup_error = Some("no room for a copy".into());
            }
            plan(world, dice);
        }
        3 if world.timer.is_some() => world.ring(),
        0 if !world.hooks.is_empty() => {
            let at = dice.roll(world.hooks.len());
            let (hook, _) = world.hooks.remove(at);
            world.feed(Input::HookAnswer { hook, answer: HookAnswer::Go });
        }
        1 if !world.tools.is_empty() => {
            let at = dice.roll(world.tools.len());
            if dice.roll(4) == 0 {
                let run = world.tools[at].0;
                world.feed(Input::ToolUpdate { run, output: ToolOutput::text("half") });
            } else {
                world.tool_done(at, ToolOutput::text("r"));
            }
        }
        _ if !world.open_calls.is_empty() => match dice.roll(14) {
            12 => world.answer(vec![done(StopReason::Stop)]),
            13 => world.answer(using(REFUSED, 500, 0, StopReason::Stop)),
            6 => world.answer(vec![ModelEvent::Failed(ModelFailure::new("prompt is too long"))]),
            7 => world.answer(using("full", 9_800, 10, StopReason::Stop)),
            8 => world.answer(using("over", WINDOW + 1, 10, StopReason::Stop)),
            9 => world.answer(using("cut", 500, 20, StopReason::Length)),
            10 => world.answer(using("capped", 500, 500, StopReason::Length)),
            11 => {
                let mut events = calls(&[(name, "t")], StopReason::ToolUse);
                let usage = using("", 9_800, 10, StopReason::Stop).remove(4);
                events.insert(1, usage);
                world.answer(events);
            }
            0 => {
                let failure = ["500", "401 bad key"][dice.roll(2)];
                world.answer(vec![ModelEvent::Failed(ModelFailure::new(failure))]);
            }
            1 => world.answer(text("piece")[..3].to_vec()),
            2 => world.answer(calls(&[(name, "t"), ("same", "u")], StopReason::ToolUse)),
            3 => world.answer(calls(&[("same", "s"), ("same", "nope")], StopReason::ToolUse)),
            4 => world.answer(vec![done(StopReason::Length)]),
            _ => world.answer(text("all")),
        },
        _ => {}
    }
}

#[test]
fn any_order_of_inputs_keeps_the_invariants() {
    let seeds = std::env::var("ATOMIC_SIMULATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    for seed in 0..seeds {
        let played = std::panic::catch_unwind(|| play(seed));
        assert!(played.is_ok(), "seed {seed} broke an invariant");
    }
}
