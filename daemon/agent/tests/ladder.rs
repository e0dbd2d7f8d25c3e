//! Planners that are borrowed when the session's own model does not help (reference compaction 8).

mod support;

use atomic_agent::compaction::{PlannerAnswer, Work};
use atomic_agent::{AgentCommand, FallbackModel, PlanStage, Wish};
use atomic_protocol::model::ThinkingLevel;
use support::{World, model, sized_model, text, using};

fn begun() -> World {
    let mut world = World::with_window(10_000, 500);
    let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
    world.prompt(&lines.join("\n"));
    world.answer(text("first"));
    world.prompt("go on");
    world.answer(using("second", 300, 10, atomic_protocol::message::StopReason::Stop));
    let candidate = |model, thinking| FallbackModel { model, thinking: Some(thinking) };
    world.agent.set_fallback_models(vec![
        candidate(sized_model("m", 10_000, 500), ThinkingLevel::High),
        candidate(model("a", false), ThinkingLevel::High),
        candidate(model("a", false), ThinkingLevel::Off),
        candidate(sized_model("small", 200, 100), ThinkingLevel::Off),
        candidate(model("b", true), ThinkingLevel::High),
    ]);
    world.seen();
    world
}

fn compact(world: &mut World) -> u64 {
    world.ask(AgentCommand::Compact(Wish::default()))
}

/// Each is asked once: the session's own model and `a` stand there twice, at the level they can do.
#[test]
fn each_is_asked_once_in_order() {
    let mut world = begun();
    let request = compact(&mut world);
    let mut asked = Vec::new();
    while !world.answers.contains_key(&request) {
        asked.push((world.plans[0].model.id.clone(), world.plans[0].thinking));
        world.planner(PlannerAnswer::broken("401 no key"));
        assert!(asked.len() < 10);
    }
    let expected = [
        ("m", ThinkingLevel::Off),
        ("a", ThinkingLevel::Off),
        ("small", ThinkingLevel::Off),
        ("b", ThinkingLevel::High),
    ];
    assert_eq!(asked, expected.map(|(id, level)| (id.to_owned(), level)));
    assert_eq!(world.answers[&request], Err("401 no key".into()));
    assert_eq!(world.agent.model().unwrap().id, "m", "the session keeps its own");
    assert_eq!(world.seen(), ["compaction_start", "compaction_end", "answer 3"], "nothing is told of it");
    world.check_order();
}

#[test]
fn the_result_says_whom_it_came_from() {
    let mut world = begun();
    let request = compact(&mut world);
    world.planner(PlannerAnswer::broken("503 overloaded"));
    for _ in 0..3 {
        world.ring();
        world.planner(PlannerAnswer::broken("503 overloaded"));
    }
    assert_eq!(world.seen().last().unwrap(), "summarization_retry_finished", "before the next one is asked");
    world.planner_says("nonsense");
    world.planner(PlannerAnswer::broken("503 overloaded"));
    assert_eq!(world.seen(), ["summarization_retry_scheduled"], "it has retries of its own");
    world.ring();
    // The small one is shown as much as fits into its own window.
    let PlanStage::Ask(Work::Lines(plan)) = &world.plans[0].stage else { panic!("lines are asked for") };
    assert!(plan.lines() < 60 && world.plans[0].window == 200, "{}", plan.lines());
    world.planner(PlannerAnswer::broken("no such model"));
    let PlanStage::Ask(Work::Lines(plan)) = &world.plans[0].stage else { panic!("lines are asked for") };
    assert!(plan.lines() > 100, "the next one sees all of it again: {}", plan.lines());
    world.planner_says("2,30");
    let data = world.answers[&request].clone().unwrap().unwrap();
    assert!(
        data.as_str().contains(
            r#""rung":"planned","plannerModel":{"provider":"p","id":"b","thinkingLevel":"high"},"backupPath""#
        ),
        "{data:?}"
    );
    world.check_order();

    // The session's own model is not named.
    let mut world = begun();
    let request = compact(&mut world);
    world.planner_says("2,30");
    assert!(!world.answers[&request].clone().unwrap().unwrap().as_str().contains("plannerModel"));
}
