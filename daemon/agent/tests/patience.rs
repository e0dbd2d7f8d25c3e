//! Nothing wedges and nothing is given up for its length: many turns whose calls end in any order, tools, aborts and
//! compactions that take minutes, and aborts of what is no run.

mod support;

use atomic_agent::{AgentCommand, Input, Wish};
use atomic_protocol::event::Event;
use atomic_protocol::message::StopReason;
use atomic_protocol::tool::ToolOutput;
use support::{World, calls, text};

/// A seeded order.
struct Order(u64);

impl Order {
    fn next(&mut self, among: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % among
    }
}

/// Turns of all runs together.
const TURNS: usize = 5_000;

#[test]
fn five_thousand_turns_with_calls_that_end_in_any_order() {
    let mut order = Order(85);
    // Runs of a hundred turns: what a run of thousands costs is the conversation that each request carries.
    for run in 0..TURNS / 100 {
        let mut world = World::new();
        let request = world.prompt("go");
        for turn in 0..100 {
            let ids: Vec<String> = (0..3).map(|call| format!("{turn}-{call}")).collect();
            let asked: Vec<(&str, &str)> =
                ids.iter().enumerate().map(|(call, id)| (&id[..], ["t", "u", "t"][call])).collect();
            world.answer(calls(&asked, StopReason::ToolUse));
            while !world.tools.is_empty() {
                let at = order.next(world.tools.len());
                if order.next(3) == 0 {
                    let run = world.tools[at].0;
                    world.feed(Input::ToolUpdate { run, output: ToolOutput::text("half") });
                }
                world.tool_done(at, ToolOutput::text("r"));
            }
            assert_eq!(world.open_calls.len(), 1, "run {run}: turn {turn} goes on once its tools are done");
            assert_eq!(world.calls.last().unwrap().context.len(), 1 + (turn + 1) * 4);
        }
        world.answer(text("done"));
        assert!(world.agent.is_idle() && world.answers[&request].is_ok());
        world.check_order();
    }
}

/// Lets so much time go by; there must be nothing that waits for it.
fn wait(world: &mut World, seconds: u64) {
    assert!(world.timer.is_none(), "no deadline was asked for");
    world.now = world.now.plus(seconds * 1_000);
    assert!(world.seen().is_empty());
}

#[test]
fn however_long_it_takes_it_is_answered_when_it_is_done() {
    let mut world = World::new();
    let lines: Vec<String> = (0..60).map(|line| line.to_string()).collect();
    world.prompt(&lines.join("\n"));
    // A tool of three minutes.
    world.answer(calls(&[("a", "t")], StopReason::ToolUse));
    world.seen();
    wait(&mut world, 180);
    world.tool_done(0, ToolOutput::text("r"));
    assert_eq!(world.calls.len(), 2);

    // One that takes forty seconds to end when it is aborted.
    world.answer(calls(&[("b", "t")], StopReason::ToolUse));
    let abort = world.ask(AgentCommand::Abort { keep_queue: false });
    world.seen();
    wait(&mut world, 40);
    assert!(!world.answers.contains_key(&abort), "its end is awaited");
    world.tool_done(0, ToolOutput::text("r"));
    assert!(world.answers[&abort].is_ok() && world.agent.is_idle());

    // A compaction of a minute and a half, in each of its stages.
    world.instant_composing = false;
    let compact = world.ask(AgentCommand::Compact(Wish::default()));
    world.seen();
    wait(&mut world, 90);
    world.planner_says("2,50");
    world.seen();
    wait(&mut world, 90);
    assert!(!world.answers.contains_key(&compact));
    world.compose();
    assert!(world.answers[&compact].is_ok() && world.agent.is_idle());
    world.check_order();
}

#[test]
fn an_abort_leaves_what_is_no_run_to_the_command_that_ends_it() {
    let mut world = World::new();
    let lines: Vec<String> = (0..60).map(|line| line.to_string()).collect();
    world.prompt(&lines.join("\n"));
    world.answer(text("one"));
    world.prompt("and");
    world.answer(text("two"));
    let compact = world.ask(AgentCommand::Compact(Wish::default()));
    let events = world.events.len();
    let abort = world.ask(AgentCommand::Abort { keep_queue: false });
    assert!(world.answers[&abort].is_ok(), "there is no run to wait for");
    assert_eq!((world.events.len(), world.plans.len()), (events, 1), "and nothing was ended");
    let end = world.ask(AgentCommand::AbortCompaction);
    assert!(world.answers[&end].is_ok() && world.answers[&compact].is_err() && world.plans.is_empty());
    assert!(matches!(world.events.last(), Some(Event::CompactionEnd(end)) if end.aborted));
    assert!(world.agent.is_idle());
    world.check_order();
}
