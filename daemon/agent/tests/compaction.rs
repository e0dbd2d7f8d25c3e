//! Compaction of any transcript by any answer: what survives is what was there.

use std::time::Instant;

use atomic_agent::compaction::{
    Deletions, Parameters, Plan, PlannerAnswer, Region, Source, Verdict, parse_cut, prepare,
};
use atomic_protocol::entry::EntryId;
use atomic_protocol::json::Raw;
use atomic_protocol::message::StopReason;
use atomic_protocol::model::{ModelEvent, ModelFailure};
use proptest::prelude::*;

fn source(messages: &[(u8, String)]) -> Source {
    let message = |(at, (role, text)): (usize, &(u8, String))| {
        let text = serde_json::to_string(text).unwrap();
        let line = match role % 3 {
            0 => format!(r#"{{"role":"user","content":{text},"timestamp":1}}"#),
            1 => format!(
                r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":{text}}},{{"type":"text","text":{text}}},{{"type":"toolCall","id":"c","name":"t","arguments":{{"a":{text}}}}}],"stopReason":"toolUse"}}"#
            ),
            _ => format!(
                r#"{{"role":"toolResult","toolCallId":"c","toolName":"t","content":[{{"type":"text","text":{text}}}],"isError":false}}"#
            ),
        };
        (EntryId(format!("e{at}").into()), Raw::parse(&line).unwrap())
    };
    Source { previous: None, messages: messages.iter().enumerate().map(message).collect() }
}

fn answered(text: &str, reason: StopReason) -> PlannerAnswer {
    let mut answer = PlannerAnswer::default();
    answer.take(ModelEvent::TextDelta { index: 0, delta: text.to_owned() });
    answer.take(ModelEvent::Done { reason, raw_reason: None, end_turn: None });
    answer
}

/// Lines that are dangerous: what the compactor itself writes and looks for.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z ]{0,12}",
        1 => Just("<keepContext>".to_owned()),
        1 => Just(" </KEEPCONTEXT>\t".to_owned()),
        1 => (0u32..50).prop_map(|n| format!("(filtered {n} lines)")),
        1 => prop_oneof![Just("[User]: x"), Just("[Tool result]: <keepContext>"), Just("[Assistant]: ")].prop_map(str::to_owned),
        1 => Just("1,5\r".to_owned()),
        1 => any::<String>().prop_map(|text| text.replace('\n', "\u{2028}")),
    ]
}

fn messages() -> impl Strategy<Value = Vec<(u8, String)>> {
    let text = prop::collection::vec(line(), 0..30).prop_map(|lines| lines.join("\n"));
    prop::collection::vec((any::<u8>(), text), 1..12)
}

fn answer() -> impl Strategy<Value = String> {
    let record = (0u64..400, 0u64..400).prop_map(|(a, b)| format!("{a},{b}"));
    let records = prop::collection::vec(record, 0..20).prop_map(|records| records.join("\n"));
    prop_oneof![
        6 => records.clone(),
        2 => (records, 0usize..200).prop_map(|(text, cut)| text.chars().take(cut).collect()),
        1 => any::<String>(),
        1 => "[0-9,\n]{0,40}",
    ]
}

/// How many lines of a conversation a line stands for.
fn weight(line: &str) -> u64 {
    let number = line.strip_prefix("(filtered ").and_then(|rest| rest.strip_suffix(" lines)"));
    number.and_then(|number| number.parse().ok()).unwrap_or(1)
}

fn is_marker(line: &str) -> bool {
    let number = line.strip_prefix("(filtered ").and_then(|rest| rest.strip_suffix(" lines)"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// All of `part` stands in `whole`, in this order.
fn in_order<'a>(part: impl Iterator<Item = &'a str>, whole: &str) -> bool {
    let mut whole = whole.split('\n');
    part.into_iter().all(|line| whole.any(|other| other == line))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_survives_is_what_was_there(
        messages in messages(), answer in answer(), cut in any::<bool>(), keep in 0u64..4, trims in 0usize..4,
    ) {
        let parameters = Parameters { preserve_recent: keep, ..Parameters::default() };
        let Some(prepared) = prepare(source(&messages), parameters, 1000, true) else { return Ok(()) };
        let region = prepared.region.clone();
        let mut plan = Plan::new(prepared, 0);
        for _ in 0..trims {
            if let Some(trimmed) = plan.trimmed() {
                plan = trimmed;
            }
        }
        let request = plan.request();
        let first = region.line(region.lines() - plan.lines());
        let numbered = format!("<conversation>\n1→{first}\n");
        let numbered_last = format!("<conversation>\n1→{first}\n</conversation>");
        prop_assert!(request.starts_with(&numbered) || request.starts_with(&numbered_last));
        let reason = if cut { StopReason::Length } else { StopReason::Stop };
        let done = match plan.judge(answered(&answer, reason), 0) {
            Verdict::Done(done) => *done,
            Verdict::Unusable(_) => plan.fresh(0),
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        let lines = || (0..region.lines()).map(|number| region.line(number));
        // Each line that is no marker was there, in this order; lines that went are counted by the markers.
        let kept = done.text.split('\n').filter(|line| !is_marker(line));
        prop_assert!(in_order(kept, region.from(0)));
        prop_assert_eq!(done.text.split('\n').map(weight).sum::<u64>(), lines().map(weight).sum::<u64>());
        // Protected lines are there (a marker among them may have grown).
        let protected = region.protected().iter().cloned().flatten().map(|number| region.line(number));
        prop_assert!(in_order(protected.filter(|line| !is_marker(line)), &done.text));
        prop_assert_eq!(done.stats.lines_deleted + done.stats.lines_kept, region.lines());
        // Twice is stable: the same answer leads to the same, nothing moves when nothing more is deleted, and a second
        // compaction of what the first one left keeps all of this.
        if let Verdict::Done(same) = plan.judge(answered(&answer, reason), 0) {
            prop_assert_eq!(&same.text, &done.text);
        }
        let again = Region::new(done.text.clone());
        prop_assert_eq!(again.rebuild(&Deletions::default()).text, done.text.as_str());
        let records = parse_cut(&format!("{answer}\n")).unwrap_or_default();
        let deletions = Deletions::validate(&records, again.lines(), again.protected());
        let ranges: Vec<(u64, u64)> =
            deletions.ranges().iter().map(|range| (range.start as u64 + 1, range.end as u64)).collect();
        prop_assert_eq!(&Deletions::validate(&ranges, again.lines(), again.protected()), &deletions);
        let second = again.rebuild(&deletions).text;
        prop_assert!(in_order(second.split('\n').filter(|line| !is_marker(line)), &done.text));
        prop_assert_eq!(second.split('\n').map(weight).sum::<u64>(), lines().map(weight).sum::<u64>());
    }

    #[test]
    fn trimming_ends(messages in messages(), window in 0u64..3000) {
        let parameters = Parameters { preserve_recent: 0, ..Parameters::default() };
        let Some(prepared) = prepare(source(&messages), parameters, 1000, true) else { return Ok(()) };
        let lines = prepared.region.lines();
        let mut plan = Plan::new(prepared, window);
        prop_assert!(plan.lines() >= 1);
        let mut count = 0;
        while let Some(trimmed) = plan.trimmed() {
            prop_assert!(trimmed.lines() < plan.lines());
            plan = trimmed;
            count += 1;
        }
        prop_assert!(count <= lines.ilog2() + 1);
    }
}

#[test]
fn a_planner_that_is_shown_less_loses_what_it_was_not_shown() {
    let text: Vec<String> = (0..40).map(|number| format!("line {number}")).collect();
    let parameters = Parameters { preserve_recent: 0, ..Parameters::default() };
    let prepared = prepare(source(&[(0, text.join("\n"))]), parameters, 200, false).unwrap();
    let plan = Plan::new(prepared, 0);
    let long = PlannerAnswer::broken("prompt is too long: 9 tokens > 8 maximum");
    assert!(matches!(plan.judge(long, 0), Verdict::TooLong));
    let plan = plan.trimmed().unwrap();
    assert_eq!(plan.lines(), 20);
    let Verdict::Done(done) = plan.judge(answered("1,2\n20,20", StopReason::Stop), 0) else { panic!("done") };
    let kept: Vec<&str> = done.text.split('\n').collect();
    assert_eq!((kept[0], kept[1], kept[18]), ("(filtered 22 lines)", "line 22", "(filtered 1 lines)"));
    assert_eq!((done.stats.lines_deleted, done.stats.range_count), (23, 2));
}

#[test]
fn the_window_of_the_planner_bounds_what_it_is_shown() {
    let text: Vec<String> = (0..4000).map(|number| format!("line number {number} of a long text")).collect();
    let prepared = |window| {
        let parameters = Parameters { preserve_recent: 0, ..Parameters::default() };
        Plan::new(prepare(source(&[(0, text.join("\n"))]), parameters, 200, false).unwrap(), window)
    };
    assert_eq!(prepared(0).lines(), 4000);
    assert_eq!(prepared(1_000_000).lines(), 4000);
    let plan = prepared(10_000);
    assert!((500..1500).contains(&plan.lines()), "{}", plan.lines());
    assert!(plan.request().len() / 4 <= 10_000);
    assert!(plan.request().len() / 4 >= 8_500, "{}", plan.request().len() / 4);
    assert_eq!(prepared(10).lines(), 1);
}

#[test]
fn answers_that_are_none() {
    let text: Vec<String> = (0..40).map(|number| format!("line {number}")).collect();
    let parameters = Parameters { preserve_recent: 0, ..Parameters::default() };
    let plan = Plan::new(prepare(source(&[(0, text.join("\n"))]), parameters, 200, false).unwrap(), 0);
    for (answer, reason, malformed) in [
        ("I would delete lines 1 to 5.", StopReason::Stop, true),
        ("", StopReason::Stop, true),
        ("0,0", StopReason::Stop, false),
        ("1,5", StopReason::Length, false),
        ("one\n1,5", StopReason::Length, true),
    ] {
        let Verdict::Unusable(why) = plan.judge(answered(answer, reason), 0) else { panic!("{answer}") };
        assert_eq!(why.contains("not a list"), malformed, "{answer}: {why}");
    }
    let failed = PlannerAnswer::broken("503 overloaded");
    assert!(
        matches!(plan.judge(failed, 0), Verdict::Failed(ModelFailure { message, .. }) if message == "503 overloaded")
    );
}

/// The result and the details, key by key (reference 2.8, compaction 9), with the numbers of the golden vector.
#[test]
fn results_have_the_reference_key_order() {
    let mut lines: Vec<String> = (0..20).map(|number| format!("l{number}")).collect();
    lines[19] = "<keepContext>".into();
    let parameters = Parameters { preserve_recent: 1, ..Parameters::default() };
    let source = source(&[(0, lines.join("\n")), (0, "last".into())]);
    let plan = Plan::new(prepare(source, parameters, 20, false).unwrap(), 0);
    let Verdict::Done(done) = plan.judge(answered("2,20", StopReason::Stop), 0) else { panic!("done") };
    assert_eq!(
        done.result(Some("/s.bak")).as_str(),
        r#"{"compactedText":"[User]: l0\n(filtered 18 lines)\n<keepContext>","firstKeptEntryId":"e1","tokensBefore":20,"stats":{"linesBefore":20,"linesDeleted":18,"linesKept":2,"rangeCount":1,"tokensBefore":20,"tokensAfter":12,"percentReduction":40},"parameters":{"compression_ratio":0.5,"preserve_recent":1,"query":"last"},"promptVersion":3,"rung":"planned","backupPath":"/s.bak"}"#
    );
    assert_eq!(
        done.details(None).as_str(),
        r#"{"strategy":"verbatim-lines","promptVersion":3,"parameters":{"compression_ratio":0.5,"preserve_recent":1,"query":"last"},"stats":{"linesBefore":20,"linesDeleted":18,"linesKept":2,"rangeCount":1,"tokensBefore":20,"tokensAfter":12,"percentReduction":40},"rung":"planned"}"#
    );
    let fresh = plan.fresh(0);
    assert_eq!(fresh.text, "(filtered 19 lines)\n<keepContext>");
    assert!(fresh.result(None).as_str().contains(r#""rung":"fresh""#));
    let source = self::source(&[(0, lines.join("\n")), (0, "x".repeat(100))]);
    let parameters = Parameters { preserve_recent: 1, ..Parameters::default() };
    let too_long = Plan::new(prepare(source, parameters, 20, false).unwrap(), 0).fresh(24);
    assert!(too_long.result(None).as_str().contains(r#""firstKeptEntryId":null"#));
}

#[test]
fn reductions_round_as_the_reference_does() {
    use atomic_agent::compaction::CompactionStats;
    let percent = |before, after| CompactionStats::default().with_tokens(before, after).percent_reduction;
    assert_eq!(percent(20, 26), -30.0);
    assert_eq!(percent(150_000, 72_000), 52.0);
    assert_eq!(percent(3, 2), 33.3);
    assert_eq!(percent(0, 5), 0.0);
    assert_eq!(percent(2000, 2001), 0.0, "half of a tenth is rounded up, also below zero");
}

/// `cargo test --release -p atomic-agent --test compaction -- --ignored --nocapture`
#[test]
#[ignore = "measures; run in a release build"]
#[expect(clippy::print_stdout, reason = "the numbers are what it is run for")]
fn a_large_transcript_is_prepared_fast() {
    let log = "   Compiling some-crate v1.2.3 (registry)\n\twarning: \"unused\" é variable `x`\n".repeat(150);
    let messages: Vec<(u8, String)> = (0..6000).map(|at| (at as u8, log.clone())).collect();
    let source = source(&messages);
    let bytes: usize = source.messages.iter().map(|(_, raw)| raw.bytes().len()).sum();
    let rate = |started: Instant, bytes: usize| bytes as f64 / 1e6 / started.elapsed().as_secs_f64();
    let started = Instant::now();
    let prepared = prepare(source, Parameters::default(), 1000, false).unwrap();
    println!("prepare: {} MB of entries, {:.0} MB/s", bytes / 1_000_000, rate(started, bytes));
    let (size, lines) = (prepared.region.from(0).len(), prepared.region.lines());
    let started = Instant::now();
    let plan = Plan::new(prepared, 1_000_000_000);
    println!("plan: {lines} lines, {:.0} MB/s", rate(started, size));
    let started = Instant::now();
    let request = plan.request();
    println!("request: {} MB, {:.0} MB/s", request.len() / 1_000_000, rate(started, size));
    let answer: Vec<String> = (0..lines / 10).map(|at| format!("{},{}", at * 10 + 1, at * 10 + 5)).collect();
    let started = Instant::now();
    let verdict = plan.judge(answered(&answer.join("\n"), StopReason::Stop), 0);
    println!("judge and rebuild: {} records, {:.0} MB/s", answer.len(), rate(started, size));
    assert!(matches!(verdict, Verdict::Done(_)));
}
