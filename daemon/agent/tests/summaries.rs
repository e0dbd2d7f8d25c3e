//! Compaction by a summary: where a conversation is cut, what is asked, and what comes of it (seed 003, `compact`).

mod support;

use atomic_agent::compaction::{
    Begin, Begun, Boundary, Instructions, PlanOutcome, PlannerAnswer, Source, Summary, SummaryParameters,
    Way, Work,
};
use atomic_agent::{AgentCommand, PlanStage, Wish};
use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::{CompactionReason, Event};
use atomic_protocol::json::Raw;
use atomic_protocol::message::StopReason;
use atomic_protocol::model::ModelEvent;
use proptest::prelude::*;
use support::{World, done, text, using};

fn user(size: usize) -> String {
    format!(r#"{{"role":"user","content":"{}"}}"#, "u".repeat(size * 4))
}

fn assistant(size: usize) -> String {
    let text = "a".repeat(size * 4);
    format!(r#"{{"role":"assistant","content":[{{"type":"text","text":"{text}"}}],"stopReason":"stop"}}"#)
}

fn result(size: usize) -> String {
    let text = "r".repeat(size * 4);
    format!(r#"{{"role":"toolResult","toolCallId":"1","content":[{{"type":"text","text":"{text}"}}]}}"#)
}

fn source(messages: &[String], previous: Option<&str>) -> Source {
    let entry = |(at, text): (usize, &String)| (format!("e{at}").as_str().into(), Raw::parse(text).unwrap());
    Source {
        previous: previous.map(|line| Raw::parse(line).unwrap()),
        messages: messages.iter().enumerate().map(entry).collect(),
    }
}

fn begin(messages: &[String], previous: Option<&str>, keep: u64) -> Begun {
    let way = Way::Summary(SummaryParameters {
        keep_recent_tokens: keep,
        reserve_tokens: 100,
        instructions: Instructions::default(),
    });
    Begin { way, tokens_before: 77, load_bearing: false, small: false }.begin(source(messages, previous), 0)
}

fn said(text: &str) -> PlannerAnswer {
    let mut answer = PlannerAnswer::default();
    answer.take(ModelEvent::TextDelta { index: 0, delta: text.to_owned() });
    answer.take(using("", 10, 3, StopReason::Stop).remove(4));
    answer.take(done(StopReason::Stop));
    answer
}

/// Answers whatever is asked with `notes 1`, `notes 2`; gives the requests and what comes of them.
fn summed_up(begun: Begun) -> (Vec<String>, Option<Summary>) {
    let (mut requests, mut begun) = (Vec::new(), begun);
    loop {
        match begun {
            Begun::Over(PlanOutcome::Nothing) => return (requests, None),
            Begun::Over(PlanOutcome::Done(boundary)) => match *boundary {
                Boundary::Summary(summary) => return (requests, Some(summary)),
                Boundary::Lines(lines) => panic!("{lines:?}"),
            },
            Begun::Over(PlanOutcome::Further(work)) | Begun::Ask(work) => {
                requests.push(work.request());
                let number = requests.len();
                begun = Begun::Over(work.outcome(said(&format!("notes {number}")), 0));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn first_kept(messages: &[String], keep: u64) -> Option<(String, usize)> {
    let (requests, summary) = summed_up(begin(messages, None, keep));
    summary.map(|summary| (summary.first_kept.to_string(), requests.len()))
}

/// Which message is the first to stay, and how many times a model is asked (twice where a turn is cut).
#[test]
fn where_a_conversation_is_cut() {
    let turns = [user(10), assistant(10), user(10), assistant(10)];
    let tools = [user(10), assistant(10), result(10), assistant(10), result(10), assistant(10)];
    for (messages, keep, expected) in [
        (&turns[..], 20, Some(("e2", 1))),
        // The budget is reached inside the second turn: its first message goes, and gets notes of its own.
        (&turns[..], 5, Some(("e3", 2))),
        (&turns[..], 15, Some(("e2", 1))),
        (&turns[..], 25, Some(("e1", 1))),
        (&turns[..], 41, None),
        (&turns[..], 1_000, None),
        // Never at a tool's result: at the next message behind it.
        (&tools[..], 15, Some(("e5", 1))),
        (&tools[..], 25, Some(("e3", 1))),
        // Nothing behind it can be cut at: at the call.
        (&[user(10), assistant(10), result(90)][..], 50, Some(("e1", 1))),
        (&[result(10), result(10)][..], 5, None),
        (&[][..], 5, None),
    ] {
        let expected = expected.map(|(id, requests)| (id.to_owned(), requests));
        assert_eq!(first_kept(messages, keep), expected, "{} messages, {keep}", messages.len());
    }
}

#[test]
fn a_turn_that_is_cut_has_notes_of_its_own() {
    let messages = [user(10), assistant(10), user(11), assistant(10), assistant(30)];
    let (requests, summary) = summed_up(begin(&messages, None, 30));
    assert_eq!(requests.len(), 2);
    assert!(requests[0].contains(&"u".repeat(40)) && !requests[0].contains(&"u".repeat(44)));
    assert!(requests[0].contains("## Critical Context") && !requests[0].contains("previous-notes"));
    assert!(requests[1].contains(&"u".repeat(44)) && requests[1].contains("## For What Follows"));
    let summary = summary.unwrap();
    assert_eq!(summary.text, "notes 1\n\n---\n\n**The turn that was cut, its beginning:**\n\nnotes 2");
    assert_eq!(summary.usage.map(|usage| (usage.input, usage.output)), Some((20, 6)));

    // The only turn there is.
    let messages = [user(10), assistant(10), assistant(30)];
    let (requests, summary) = summed_up(begin(&messages, None, 30));
    assert_eq!(requests.len(), 1);
    assert!(summary.unwrap().text.starts_with("Nothing was said before this turn.\n\n---\n\n"));
}

#[test]
fn earlier_notes_are_brought_up_to_date() {
    let messages = [user(10), assistant(10), user(10), assistant(10)];
    let ours = r#"{"type":"compaction","summary":"old notes","details":{"strategy":"summary","readFiles":["a"],"modifiedFiles":["b"]}}"#;
    let pis =
        r#"{"type":"compaction","summary":"old notes","details":{"readFiles":["a"],"modifiedFiles":["b"]}}"#;
    for previous in [ours, pis] {
        let (requests, summary) = summed_up(begin(&messages, Some(previous), 20));
        assert!(requests[0].contains("<previous-notes>\nold notes\n</previous-notes>"), "{}", requests[0]);
        assert_eq!(
            summary.unwrap().text,
            "notes 1\n\n<read-files>\na\n</read-files>\n\n<modified-files>\nb\n</modified-files>"
        );
    }
    // Lines are no notes: they are part of what is summed up.
    let lines = r#"{"type":"compaction","summary":"[User]: old","details":{"strategy":"verbatim-lines"}}"#;
    let (requests, _) = summed_up(begin(&messages, Some(lines), 20));
    assert!(requests[0].starts_with("<conversation>\n[User]: old\n\n[User]: uuu"), "{}", requests[0]);
    assert!(!requests[0].contains("previous-notes"));
    // Nothing came between the notes and the turn that is cut: they stay as they are.
    let (requests, summary) = summed_up(begin(&[user(10), assistant(30)], Some(ours), 30));
    assert_eq!(requests.len(), 1);
    assert!(summary.unwrap().text.starts_with("old notes\n\n---\n\n"));
}

#[test]
fn a_request_that_does_not_fit_is_shortened_from_the_front() {
    let messages: Vec<String> = (0..9).flat_map(|_| [user(10), assistant(10)]).collect();
    let Begun::Ask(mut work) = begin(&messages, None, 20) else { panic!("asked") };
    let mut shown = Vec::new();
    loop {
        shown.push(work.request().matches("]: ").count());
        let PlanOutcome::TooLong(same) =
            work.outcome(PlannerAnswer::broken("prompt is too long: 5 tokens > 4 maximum"), 0)
        else {
            panic!("too long")
        };
        match same.trimmed() {
            Some(trimmed) => work = trimmed,
            None => break,
        }
    }
    assert_eq!(shown, [16, 8, 4, 2, 1]);
    // A window that is known is not tried to be filled beyond it.
    let way = Way::Summary(SummaryParameters {
        keep_recent_tokens: 20,
        reserve_tokens: 0,
        instructions: Instructions::default(),
    });
    let begin = Begin { way, tokens_before: 1, load_bearing: false, small: false };
    let Begun::Ask(Work::Summary(plan)) = begin.begin(source(&messages, None), 60) else { panic!("asked") };
    let shown = Work::Summary(plan).request().matches("]: ").count();
    assert!((1..6).contains(&shown), "{shown}");
}

proptest! {
    /// What stays never begins with a tool's result; everything before it is shown to the model once, nothing behind it ever.
    #[test]
    fn each_message_is_summed_up_or_stays(
        roles in prop::collection::vec((0u8..4, 1usize..40), 0..30), keep in 0u64..400,
    ) {
        let messages: Vec<String> = roles
            .iter()
            .enumerate()
            .map(|(at, (role, size))| {
                let mark = format!("<{at}>{}", "x".repeat(size * 4));
                match role {
                    0 => format!(r#"{{"role":"user","content":"{mark}"}}"#),
                    1 => format!(r#"{{"role":"bashExecution","command":"{mark}","output":""}}"#),
                    2 => format!(r#"{{"role":"assistant","content":[{{"type":"text","text":"{mark}"}}],"stopReason":"stop"}}"#),
                    _ => format!(r#"{{"role":"toolResult","toolCallId":"1","content":[{{"type":"text","text":"{mark}"}}]}}"#),
                }
            })
            .collect();
        let (requests, summary) = summed_up(begin(&messages, None, keep));
        let Some(summary) = summary else {
            prop_assert!(requests.is_empty());
            return Ok(());
        };
        let kept: usize = summary.first_kept.as_str()[1..].parse().unwrap();
        prop_assert!(kept > 0 && roles[kept].0 != 3, "{kept}");
        for at in 0..messages.len() {
            let shown: usize = requests.iter().map(|request| request.matches(&format!("<{at}>")).count()).sum();
            prop_assert_eq!(shown, usize::from(at < kept), "message {}", at);
        }
    }
}

/// A conversation with more to sum up than the tail that stays.
fn begun() -> World {
    let mut world = World::with_window(10_000, 500);
    for number in 0..4 {
        world.prompt(&format!("question {number} {}", "q".repeat(8_000)));
        world.answer(using("answer", 300, 10, StopReason::Stop));
    }
    world.seen();
    world
}

#[test]
fn a_client_asks_for_one() {
    let mut world = begun();
    let request = world.ask(AgentCommand::Compact(Wish::Summary(Some("keep the names".into()))));
    assert_eq!(world.seen(), ["compaction_start"]);
    world.planner(PlannerAnswer::broken("503 overloaded"));
    world.ring();
    assert!(matches!(
        world.events.last(),
        Some(Event::SummarizationRetryAttemptStart { reason: Some(CompactionReason::Manual) })
    ));
    world.planner(said("the gist"));
    let asked = &world.requests.last().unwrap().1;
    assert!(asked.ends_with("Pay attention above all to: keep the names"), "{asked}");
    let data = world.answers[&request].clone().unwrap().unwrap();
    let Some(Event::CompactionEnd(end)) = world.events.last() else { panic!("the end") };
    assert_eq!(end.result.as_ref(), Some(&data), "one result for the event and for the answer");
    let first_kept = world.file[2].id.clone();
    let value: serde_json::Value = data.read().unwrap();
    assert_eq!(
        value.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["summary", "firstKeptEntryId", "tokensBefore", "estimatedTokensAfter", "usage", "details"]
    );
    assert_eq!(
        (&value["summary"], &value["firstKeptEntryId"]),
        (&"the gist".into(), &first_kept.as_str().into())
    );
    assert_eq!(value["details"]["strategy"], "summary");
    let EntryBody::Compaction { summary, first_kept: kept, usage, .. } = &world.file.last().unwrap().body
    else {
        panic!("a compaction entry")
    };
    assert_eq!((summary.as_str(), kept.as_ref(), usage.is_some()), ("the gist", Some(&first_kept), true));
    world.check_order();

    // Too little: the tail that stays is all there is.
    let mut world = World::with_window(10_000, 500);
    world.prompt("short");
    world.answer(text("short"));
    let request = world.ask(AgentCommand::Compact(Wish::Summary(None)));
    world.planner_says("never asked");
    assert_eq!(world.answers[&request], Err("Nothing to compact (session too small)".into()));
    assert!(world.requests.is_empty());
}

#[test]
fn what_the_settings_say_holds_for_compactions_nobody_asked_for() {
    let mut world = begun();
    world.set_strategy(atomic_agent::Strategy::Summary);
    world.prompt("go on");
    world.answer(using("full", 9_500, 10, StopReason::Stop));
    assert_eq!(world.agent.compaction_reason(), Some(CompactionReason::Threshold));
    world.planner(said("the gist"));
    assert!(matches!(&world.file.last().unwrap().body, EntryBody::Compaction { details, .. }
        if details.as_str().starts_with(r#"{"strategy":"summary""#)));
    assert_eq!(world.agent.context_tokens(), None, "what stayed was counted before");
    assert!(!world.agent.is_running());
    world.check_order();

    // There is no last resort: a conversation that overflows stays as it is when nobody sums it up.
    let mut world = begun();
    world.set_strategy(atomic_agent::Strategy::Summary);
    world.prompt("go on");
    world.answer(vec![ModelEvent::Failed(atomic_protocol::model::ModelFailure::new("prompt is too long"))]);
    assert!(matches!(&world.plans[0].stage, PlanStage::Begin(_)));
    world.planner(PlannerAnswer::broken("no such model"));
    let Some(Event::CompactionEnd(end)) =
        world.events.iter().rev().find(|event| matches!(event, Event::CompactionEnd(_)))
    else {
        panic!("the end")
    };
    assert_eq!(end.error_message.as_deref(), Some("Context overflow recovery failed: no such model"));
    assert!(!world.agent.is_running());
    world.check_order();
}
