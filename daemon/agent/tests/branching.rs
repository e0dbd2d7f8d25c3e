//! Going to another entry with a summary of what is left behind (reference compaction 12).

mod support;

use atomic_agent::compaction::{Begun, BranchBegin, Instructions, LeftBehind, PlanOutcome, PlannerAnswer};
use atomic_agent::{AgentCommand, Conversation, Departure, Input, PlanStage, Wish};
use atomic_protocol::entry::EntryBody;
use atomic_protocol::event::Event;
use atomic_protocol::json::Raw;
use atomic_protocol::message::StopReason;
use atomic_protocol::model::ModelEvent;
use support::{World, done, text, using};

/// Two turns; the second one is what will be left behind.
fn talked() -> World {
    let mut world = World::with_window(10_000, 500);
    for (prompt, answer) in [("first", "one"), ("second", "two")] {
        world.prompt(prompt);
        world.answer(text(answer));
    }
    world.seen();
    world
}

/// Back to the second prompt: the session goes on after the first answer.
fn depart(world: &mut World, label: Option<&str>) -> u64 {
    let (leaf, target) = (world.file[1].id.clone(), world.file[2].id.clone());
    world.ask(AgentCommand::Depart(Departure {
        target,
        leaf: Some(leaf),
        instructions: Instructions::new(Some(" the tests ".into()), false),
        label: label.map(str::to_owned),
        answer: Raw::parse(r#"{"cancelled":false,"editorText":"second"}"#).unwrap(),
    }))
}

fn cancelled() -> Result<Option<Raw>, String> {
    Ok(Some(Raw::parse(r#"{"cancelled":true}"#).unwrap()))
}

#[test]
fn the_summary_follows_the_entry_that_is_gone_to() {
    let mut world = talked();
    let request = depart(&mut world, Some("old way"));
    assert!(world.agent.is_leaving_branch() && !world.agent.is_idle() && !world.agent.is_running());
    assert!(matches!(&world.plans[0].stage, PlanStage::BeginBranch(..)));
    let mut answer = PlannerAnswer::default();
    answer.take(ModelEvent::TextDelta { index: 0, delta: "## Goal\n".into() });
    answer.take(ModelEvent::TextDelta { index: 1, delta: "Be second.\n".into() });
    answer.take(using("", 30, 7, StopReason::Stop).remove(4));
    answer.take(done(StopReason::Stop));
    world.planner(answer);
    let asked = &world.requests[0].1;
    assert!(asked.starts_with("<conversation>\n[Assistant]: two\n</conversation>\n\n"), "{asked}");
    assert!(asked.ends_with("\n\nPay attention above all to: the tests"), "{asked}");
    let leaf = world.file[1].id.clone();
    let entry = &world.file[4];
    assert_eq!(entry.parent_id.as_ref(), Some(&leaf));
    let EntryBody::BranchSummary { summary, details, usage } = &entry.body else { panic!("{entry:?}") };
    assert!(summary.ends_with("\n\n## Goal\nBe second."), "{summary}");
    assert_eq!(details.as_str(), r#"{"readFiles":[],"modifiedFiles":[]}"#);
    assert_eq!(usage.as_ref().map(|usage| (usage.input, usage.output)), Some((30, 7)));
    let EntryBody::Label { target, label } = &world.file[5].body else { panic!("a label") };
    assert_eq!((target, label.as_deref()), (&entry.id, Some("old way")));
    assert_eq!(
        world.answers[&request].as_ref().unwrap().as_ref().unwrap().as_str(),
        r#"{"cancelled":false,"editorText":"second"}"#
    );
    assert_eq!(world.seen(), ["answer 3"], "no event of its own");
    assert_eq!(world.agent.messages().len(), 3);
    assert!(world.agent.is_idle());
    world.prompt("another second");
    assert_eq!(world.calls.last().unwrap().context.len(), 4);
    assert_eq!(world.file[6].parent_id, Some(world.file[5].id.clone()));
    world.answer(text("better"));
    world.check_order();
}

#[test]
fn it_is_tried_again_by_the_rules_for_answers() {
    let mut world = talked();
    let request = depart(&mut world, None);
    for attempt in 1..=3 {
        world.planner(PlannerAnswer::broken("503 overloaded"));
        assert_eq!(world.seen(), ["summarization_retry_scheduled"]);
        world.ring();
        assert_eq!(world.seen(), ["summarization_retry_attempt_start"], "{attempt}");
        let Some(Event::SummarizationRetryAttemptStart { reason: None }) = world.events.last() else {
            panic!("the source is a branch's summary")
        };
    }
    world.planner(PlannerAnswer::broken("503 overloaded"));
    assert_eq!(world.seen(), ["summarization_retry_finished", "answer 3"]);
    assert_eq!(world.answers[&request], Err("503 overloaded".into()));
    assert_eq!((world.file.len(), world.agent.messages().len()), (4, 4), "the session is where it was");
    world.prompt("go on");
    assert_eq!(world.file[4].parent_id, Some(world.file[3].id.clone()));
    world.answer(text("on"));

    let mut world = talked();
    let request = depart(&mut world, None);
    world.planner_says(" \n");
    assert_eq!(world.answers[&request], Err("The model that sums up gave no summary".into()));
    let request = depart(&mut world, None);
    world.planner(PlannerAnswer::broken("prompt is too long"));
    assert!(world.answers[&request].as_ref().unwrap_err().contains("does not fit"));
    let request = depart(&mut world, None);
    world.planned(|_, _| PlanOutcome::Broken("the daemon's fault".into()));
    assert_eq!(world.answers[&request], Err("the daemon's fault".into()));
}

#[test]
fn it_is_given_up() {
    for waiting in [false, true] {
        for command in [AgentCommand::AbortCompaction, AgentCommand::Abort { keep_queue: false }] {
            let mut world = talked();
            let request = depart(&mut world, None);
            if waiting {
                world.planner(PlannerAnswer::broken("503 overloaded"));
            }
            world.seen();
            let is_compaction = matches!(command, AgentCommand::AbortCompaction);
            world.ask(command);
            let mut order = vec!["summarization_retry_finished", "answer 3"];
            order.insert(if is_compaction { 0 } else { 2 }, "answer 4");
            order.retain(|record| waiting || record.starts_with("answer"));
            assert_eq!(world.seen(), order);
            assert_eq!(world.answers[&request], cancelled());
            assert!(world.agent.is_idle() && world.plans.is_empty());
            assert_eq!(world.file.len(), 4);
        }
    }
    // What comes too late changes nothing.
    let mut world = talked();
    depart(&mut world, None);
    let plan = world.plans[0].plan;
    world.ask(AgentCommand::AbortCompaction);
    world.feed(Input::Planned { plan, outcome: PlanOutcome::Nothing, diagnostic: None });
    world.feed(Input::Context { plan, conversation: Conversation::default() });
    assert_eq!((world.file.len(), world.agent.messages().len()), (4, 4));
}

#[test]
fn prompts_compactions_and_shell_results_wait_for_it() {
    let mut world = talked();
    depart(&mut world, None);
    let prompt = world.prompt("meanwhile");
    let compact = world.ask(AgentCommand::Compact(Wish::default()));
    let bash = r#"{"role":"bashExecution","command":"ls","output":"","cancelled":false,"truncated":false,"timestamp":1}"#;
    world.feed(Input::BashFinished { message: Raw::parse(bash).unwrap() });
    assert!(!world.answers.contains_key(&prompt) && !world.answers.contains_key(&compact));
    assert_eq!(world.file.len(), 4);
    assert!(world.agent.compaction_requests().len() == 2, "both wait for a model");
    world.planner_says("notes");
    assert_eq!(world.file[4].body.kind(), "branch_summary");
    assert!(matches!(&world.file[5].body, EntryBody::Message(message) if message.as_str() == bash));
    assert!(matches!(&world.plans[0].stage, PlanStage::Begin(_)), "then the compaction has its turn");
    world.planner_says("1,1");
    assert!(world.answers.contains_key(&compact) && world.answers[&prompt].is_ok());
    world.answer(text("done"));
    assert!(world.agent.is_idle());
    world.check_order();
}

#[test]
fn nobody_leaves_while_something_is_going_on() {
    let mut world = talked();
    depart(&mut world, None);
    let second = depart(&mut world, None);
    assert_eq!(world.answers[&second], Err(atomic_agent::BUSY.into()));
    world.planner_says("notes");
    world.prompt("run");
    let third = depart(&mut world, None);
    assert_eq!(world.answers[&third], Err(atomic_agent::BUSY.into()));
    world.answer(text("done"));
    world.check_order();
}

#[test]
fn a_full_disk_leaves_the_session_where_it_was() {
    let mut world = talked();
    let request = depart(&mut world, Some("label"));
    world.full = true;
    world.planner_says("notes");
    assert!(world.answers[&request].as_ref().unwrap_err().contains("disk full"));
    assert!(world.agent.is_idle());
    assert_eq!((world.file.len(), world.agent.messages().len()), (4, 4));
    world.full = false;
    world.prompt("go on");
    assert_eq!(world.file[4].parent_id, Some(world.file[3].id.clone()));
    world.answer(text("on"));
    world.check_order();
}

fn left(messages: &[&str]) -> Vec<LeftBehind> {
    messages.iter().map(|text| LeftBehind { message: Raw::parse(text).unwrap(), summary: None }).collect()
}

fn user(text: &str) -> String {
    format!(r#"{{"role":"user","content":"{text}"}}"#)
}

fn begin(reserve_tokens: u64) -> BranchBegin {
    BranchBegin { instructions: Instructions::default(), reserve_tokens }
}

#[test]
fn the_newest_messages_that_fit_are_shown_and_files_are_told() {
    let call = r#"{"role":"assistant","content":[{"type":"toolCall","id":"1","name":"read","arguments":{"path":"src/a.rs"}},{"type":"toolCall","id":"2","name":"edit","arguments":{"path":"src/b.rs"}}],"stopReason":"toolUse"}"#;
    let result = r#"{"role":"toolResult","toolCallId":"1","content":[{"type":"text","text":"secret"}]}"#;
    let old = user(&"o".repeat(400));
    let new = user(&"n".repeat(40));
    let summary = LeftBehind {
        message: Raw::parse(r#"{"role":"branchSummary","summary":"earlier notes","fromId":"x"}"#).unwrap(),
        summary: Raw::parse(
            r#"{"type":"branch_summary","details":{"readFiles":["src/c.rs"],"modifiedFiles":[]}}"#,
        )
        .ok(),
    };
    let mut entries = vec![summary.clone()];
    entries.extend(left(&[&old, call, result, &new]));
    let asked = |entries: Vec<LeftBehind>, window: u64| match begin(10).begin(entries, window) {
        Begun::Ask(work) => (work.request(), work),
        Begun::Over(outcome) => panic!("{outcome:?}"),
    };
    let (request, work) = asked(entries.clone(), 0);
    for part in ["earlier notes", "oooo", "read(path=\"src/a.rs\")", "nnnn"] {
        assert!(request.contains(part), "{part}");
    }
    assert!(!request.contains("secret"));
    let mut answer = PlannerAnswer::default();
    answer.take(ModelEvent::TextDelta { index: 0, delta: "notes".into() });
    answer.take(done(StopReason::Stop));
    let PlanOutcome::Summarized(done) = work.outcome(answer, 0) else { panic!("a summary") };
    assert!(done.text.ends_with(
        "notes\n\n<read-files>\nsrc/a.rs\nsrc/c.rs\n</read-files>\n\n<modified-files>\nsrc/b.rs\n</modified-files>"
    ));
    assert_eq!(
        done.details.as_str(),
        r#"{"readFiles":["src/a.rs","src/c.rs"],"modifiedFiles":["src/b.rs"]}"#
    );

    // 10 tokens, about 20 for the calls; the long one does not fit any more, and nothing older is looked at.
    let (request, _) = asked(entries.clone(), 60);
    assert!(request.contains("nnnn") && request.contains("read(") && !request.contains("oooo"), "{request}");
    assert!(!request.contains("earlier notes"));
    // A summary may go over the edge a little.
    let mut entries = vec![summary];
    entries.extend(left(&[&new]));
    let (request, _) = asked(entries, 23);
    assert!(request.contains("earlier notes"), "{request}");

    let custom =
        BranchBegin { instructions: Instructions::new(Some("Say hi.".into()), true), reserve_tokens: 1 };
    let Begun::Ask(work) = custom.begin(left(&[&new]), 0) else { panic!("asked") };
    assert!(work.request().ends_with("</conversation>\n\nSay hi."));
    for entries in [left(&[]), left(&[result])] {
        let Begun::Over(PlanOutcome::Summarized(nothing)) = begin(10).begin(entries, 0) else {
            panic!("over")
        };
        assert_eq!((nothing.text.as_str(), &nothing.usage), ("No content to summarize", &None));
    }
}

#[test]
fn a_branch_that_does_not_fit_is_shown_from_the_end() {
    let texts: Vec<String> = (0..8).map(|number| user(&format!("message {number}"))).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let Begun::Ask(mut work) = begin(10).begin(left(&texts), 0) else { panic!("asked") };
    let mut shown = vec![work.request().matches("message ").count()];
    while let Some(trimmed) = work.trimmed() {
        work = trimmed;
        shown.push(work.request().matches("[User]: message ").count());
    }
    assert_eq!(shown, [8, 4, 2, 1]);
    assert!(work.request().contains("message 7"));
}
