use std::fs::File;
use std::time::SystemTime;

use super::save::{FOREIGN_LOCK, FOREIGN_STALE, edit};
use super::*;
use serde_json::json;
use tempfile::TempDir;

/// A home with the four places of settings.
struct Home(TempDir);

impl Home {
    fn new(files: &[(&str, &str)]) -> Home {
        let home = Home(TempDir::new().unwrap());
        for (path, text) in files {
            let path = home.at(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        home
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn load(&self) -> (Settings, Vec<String>) {
        Settings::load(&self.at("agent"), Some(&self.at("old")), Some(&self.at("project")))
    }

    fn text(&self) -> String {
        fs::read_to_string(self.at("agent/settings.json")).unwrap()
    }
}

const GLOBAL: &str = "agent/settings.json";

#[test]
fn nothing_set_is_the_defaults() {
    let (settings, warnings) = Home::new(&[]).load();
    assert_eq!(warnings, [""; 0]);
    assert_eq!(settings, Settings::default());
    assert_eq!(settings.steering_mode, QueueMode::OneAtATime);
    assert_eq!(settings.retry, RetrySettings { enabled: true, max_retries: 3, base_delay_ms: 2000 });
    assert_eq!((settings.compaction.enabled, settings.compaction.reserve_tokens), (true, 16_384));
    assert_eq!((settings.block_images, settings.image_auto_resize), (false, true));
    assert_eq!(settings.daemon.idle_exit, Some(Duration::from_secs(1800)));
    assert_eq!(settings.daemon.unload_after, Some(Duration::from_secs(600)));
}

#[test]
fn every_key_is_read() {
    let home = Home::new(&[(
        GLOBAL,
        "\u{feff}{
          \"defaultProvider\": \"anthropic\", \"defaultModel\": \"m\", \"defaultThinkingLevel\": \"xhigh\",
          \"modelThinkingLevels\": {\"anthropic/m.1\": \"low\"},
          \"enabledModels\": [\"a*\"], \"steeringMode\": \"all\", \"followUpMode\": \"one-at-a-time\",
          \"fallbackModels\": [\"a/b:low\", \"c/d\"],
          \"shellPath\": \"/bin/zsh\", \"shellCommandPrefix\": \"set -e;\", \"defaultTools\": [],
          \"prompts\": [\"p\", \"!q\"], \"skills\": [\"~/k\"], \"enableSkillCommands\": false,
          \"defaultProjectTrust\": \"always\",
          \"sessionDir\": \"~/s\", \"images\": {\"blockImages\": true, \"autoResize\": false},
          \"thinkingBudgets\": {\"low\": 5, \"unknown\": 6}, \"httpProxy\": \"http://p\", \"streamDeadlineMs\": 0,
          \"retry\": {\"enabled\": false, \"maxRetries\": 5.0, \"baseDelayMs\": 10},
          \"compaction\": {\"enabled\": false, \"reserveTokens\": 1, \"compression_ratio\": 0.25,
                         \"strategy\": \"summary\", \"keepRecentTokens\": 9,
                         \"preserve_recent\": 0, \"query\": \"q\"},
          \"limits\": {\"maxCost\": 1.5, \"maxTurns\": 20, \"session\": {\"maxTokens\": 1e6, \"maxCost\": 9}},
          \"daemon\": {\"idleExit\": \"never\", \"unloadAfter\": \"2h\", \"onDisconnect\": \"keep\",
                     \"durability\": \"entry\", \"logLevel\": \"debug\"},
          \"theme\": \"dark\"
        }",
    )]);
    let expected = Settings {
        default_provider: Some("anthropic".into()),
        default_model: Some("m".into()),
        model_thinking_levels: BTreeMap::from([("anthropic/m.1".to_owned(), ThinkingLevel::Low)]),
        default_thinking_level: Some(ThinkingLevel::Xhigh),
        enabled_models: Some(vec!["a*".into()]),
        fallback_models: vec!["a/b:low".into(), "c/d".into()],
        steering_mode: QueueMode::All,
        follow_up_mode: QueueMode::OneAtATime,
        shell_path: Some("/bin/zsh".into()),
        shell_command_prefix: Some("set -e;".into()),
        default_tools: Some(vec![]),
        session_dir: Some("~/s".into()),
        prompts: vec![PathList { directory: home.at("agent"), entries: vec!["p".into(), "!q".into()] }],
        skills: vec![PathList { directory: home.at("agent"), entries: vec!["~/k".into()] }],
        enable_skill_commands: false,
        default_project_trust: DefaultTrust::Always,
        block_images: true,
        image_auto_resize: false,
        thinking_budgets: BTreeMap::from([(ThinkingLevel::Low, 5)]),
        http_proxy: Some("http://p".into()),
        stream_deadline_ms: Some(0),
        retry: RetrySettings { enabled: false, max_retries: 5, base_delay_ms: 10 },
        compaction: CompactionSettings {
            enabled: false,
            reserve_tokens: 1,
            strategy: Strategy::Summary,
            keep_recent_tokens: 9,
            compression_ratio: 0.25,
            preserve_recent: 0,
            query: Some("q".into()),
        },
        limits: LimitSettings {
            run: Budget { max_cost: Some(1.5), max_turns: Some(20), max_tokens: None },
            session: Budget { max_cost: Some(9.0), max_turns: None, max_tokens: Some(1_000_000) },
        },
        daemon: DaemonSettings {
            idle_exit: None,
            unload_after: Some(Duration::from_secs(7200)),
            on_disconnect: OnDisconnect::Keep,
            durability: Durability::Entry,
            log_level: Some("debug".into()),
        },
    };
    assert_eq!(home.load(), (expected, vec![]));
}

#[test]
fn files_are_merged_key_by_key() {
    let home = Home::new(&[
        ("old/settings.json", r#"{"defaultModel":"1","retry":{"maxRetries":1},"shellPath":"1"}"#),
        (GLOBAL, r#"{"defaultModel":"2","retry":{"enabled":false},"defaultTools":["read","bash"]}"#),
        ("project/.pi/settings.json", r#"{"defaultModel":"3","sessionDir":"3"}"#),
        (
            "project/.atomic/settings.json",
            r#"{"defaultModel":null,"retry":{"baseDelayMs":4},"defaultTools":["ls"]}"#,
        ),
    ]);
    let (settings, warnings) = home.load();
    assert_eq!(warnings, [""; 0]);
    assert_eq!(settings.retry, RetrySettings { enabled: false, max_retries: 1, base_delay_ms: 4 });
    assert_eq!(settings.default_model.as_deref(), Some("3"), "null is not set");
    assert_eq!(settings.shell_path.as_deref(), Some("1"));
    assert_eq!(settings.session_dir.as_deref(), Some("3"));
    assert_eq!(settings.default_tools, Some(vec!["ls".into()]), "lists are replaced");
    let (settings, _) = Settings::load(&home.at("agent"), None, None);
    assert_eq!(settings.default_model.as_deref(), Some("2"), "without trust and legacy");
    assert_eq!(settings.retry, RetrySettings { enabled: false, max_retries: 3, base_delay_ms: 2000 });
}

#[test]
fn lists_of_paths_keep_their_directories() {
    let home = Home::new(&[
        ("old/settings.json", r#"{"skills":["1"]}"#),
        (GLOBAL, r#"{"prompts":["2"],"skills":"wrong"}"#),
        ("project/.atomic/settings.json", r#"{"prompts":[],"skills":["3"]}"#),
    ]);
    let (settings, warnings) = home.load();
    let list = |directory: &str, entries: &[&str]| PathList {
        directory: home.at(directory),
        entries: entries.iter().map(|entry| (*entry).to_owned()).collect(),
    };
    assert_eq!(settings.skills, [list("project/.atomic", &["3"]), list("old", &["1"])]);
    assert_eq!(settings.prompts, [list("project/.atomic", &[]), list("agent", &["2"])]);
    assert!(warnings.len() == 1 && warnings[0].contains("skills must be a list of strings"), "{warnings:?}");
}

#[test]
fn a_reload_gives_nothing_when_a_file_cannot_be_read() {
    let home = Home::new(&[(GLOBAL, r#"{"shellPath":"/bin/sh"}"#)]);
    let reload = || Settings::reload(&home.at("agent"), Some(&home.at("old")), Some(&home.at("project")));
    assert_eq!(reload().0, Some(home.load().0));
    for text in ["{", "[]", "3"] {
        fs::write(home.at(GLOBAL), text).unwrap();
        let (settings, warnings) = reload();
        assert!(
            settings.is_none() && warnings.len() == 1 && warnings[0].contains("settings.json"),
            "{warnings:?}"
        );
    }
    fs::remove_file(home.at(GLOBAL)).unwrap();
    assert_eq!(reload(), (Some(Settings::default()), vec![]), "a file that is gone says nothing");
}

#[test]
fn a_wrong_value_is_ignored_and_named() {
    let home = Home::new(&[
        (
            GLOBAL,
            r#"{"shellPath":"/bin/sh","retry":{"maxRetries":7},"compaction":{"reserveTokens":-1},"defaultTools":"bash"}"#,
        ),
        (
            "project/.atomic/settings.json",
            r#"{"shellPath":5,"retry":7,"steeringMode":"some","compaction":{"compression_ratio":1},
                "defaultThinkingLevel":"hard","daemon":{"idleExit":"soon","unloadAfter":-1,"durability":"all"}}"#,
        ),
    ]);
    let (settings, warnings) = home.load();
    assert_eq!(settings.shell_path.as_deref(), Some("/bin/sh"), "the weaker file's good value holds");
    assert_eq!(settings.retry.max_retries, 7);
    let mut named: Vec<&str> = warnings
        .iter()
        .map(|warning| {
            let (path, rest) = warning.split_once("settings.json: ").expect("names the file");
            assert!(Path::new(path).is_absolute(), "{path}");
            rest.split(' ').next().unwrap()
        })
        .collect();
    named.sort_unstable();
    assert_eq!(
        named,
        [
            "compaction.compression_ratio",
            "compaction.reserveTokens",
            "daemon.durability",
            "daemon.idleExit",
            "daemon.unloadAfter",
            "defaultThinkingLevel",
            "defaultTools",
            "retry",
            "shellPath",
            "steeringMode",
        ]
    );
    let defaults = Settings::default();
    assert_eq!((settings.compaction, settings.daemon), (defaults.compaction, defaults.daemon));
}

#[test]
fn times() {
    let seconds = |n| Some(Some(Duration::from_secs(n)));
    for (value, expected) in [
        (json!(90), seconds(90)),
        (json!(1.5), Some(Some(Duration::from_millis(1500)))),
        (json!("90s"), seconds(90)),
        (json!(" 10 m"), seconds(600)),
        (json!("2h"), seconds(7200)),
        (json!("never"), Some(None)),
        (json!("10"), None),
        (json!("ten m"), None),
        (json!("-1m"), None),
        (json!("99999999999999999999h"), None),
        (json!("18446744073709551615h"), None),
        (json!(-1), None),
        (json!(true), None),
    ] {
        assert_eq!(time(&value), expected, "{value}");
    }
}

#[test]
fn a_file_that_is_not_json_is_named_with_the_place_and_never_overwritten() {
    for (text, place) in
        [("{\n  \"a\": 1,\n}", ":3:1: "), ("// c\n{}", ":1:1: "), ("", ":1:0: "), ("[1]", " holds no")]
    {
        let home = Home::new(&[(GLOBAL, text), ("old/settings.json", r#"{"shellPath":"x"}"#)]);
        let (settings, warnings) = home.load();
        assert_eq!(settings.shell_path.as_deref(), Some("x"), "the other files count");
        assert!(
            warnings.len() == 1 && warnings[0].contains(&format!("settings.json{place}")),
            "{warnings:?}"
        );
        let error = update(&home.at("agent"), &[("a", json!(2))]).unwrap_err().to_string();
        assert!(error.contains(&format!("settings.json{place}")), "{error}");
        assert_eq!(home.text(), text);
    }
    let home = Home::new(&[(GLOBAL, "")]);
    fs::write(home.at(GLOBAL), b"{\"shellPath\":\"a\xff\"}").unwrap();
    assert_eq!(home.load().0.shell_path.as_deref(), Some("a\u{fffd}"), "read with the bad byte replaced");
    assert!(matches!(update(&home.at("agent"), &[("a", json!(2))]), Err(SettingsError::NotAnObject { .. })));
}

#[test]
fn only_what_changes_is_written() {
    for (before, changes, after) in [
        (None, vec![("steeringMode", json!("all"))], "{\n  \"steeringMode\": \"all\"\n}\n"),
        (
            None,
            vec![("retry.enabled", json!(false)), ("retry.list", json!(["a\n", 1]))],
            "{\n  \"retry\": {\n    \"enabled\": false,\n    \"list\": [\n      \"a\\n\",\n      1\n    ]\n  }\n}\n",
        ),
        (
            // Numbers no f64 holds, odd spaces, tabs, unknown and equal keys: all of it is the user's.
            Some(
                "\u{feff}{\t\"big\": 12345678901234567890123,\n\t\"a\" :1.0 , \"x\": {\"y\":[ 1,2 ]}, \"a\": 2}",
            ),
            vec![("a", json!(true)), ("x.z", json!("n"))],
            "\u{feff}{\t\"big\": 12345678901234567890123,\n\t\"a\" :1.0 , \"x\": {\"y\":[ 1,2 ],\"z\": \"n\"}, \"a\": true}",
        ),
        (
            Some("{\n    \"a\": \"}{\"\n}"),
            vec![("b.c", json!(1))],
            "{\n    \"a\": \"}{\",\n    \"b\": {\n    \"c\": 1\n  }\n}",
        ),
        (Some("{\"a\": 5}"), vec![("a.b", json!(null))], "{\"a\": {\n    \"b\": null\n  }}"),
        (Some(" {\r\n} "), vec![("k\"ey", json!({}))], " {\n  \"k\\\"ey\": {}\n} "),
    ] {
        let home = Home::new(&[]);
        if let Some(before) = before {
            fs::create_dir_all(home.at("agent")).unwrap();
            fs::write(home.at(GLOBAL), before).unwrap();
        }
        update(&home.at("agent"), &changes).unwrap();
        assert_eq!(home.text(), after);
        let value: Value = serde_json::from_str(without_bom(after)).expect("it is JSON");
        for (key, expected) in changes {
            assert_eq!(value.pointer(&format!("/{}", key.replace('.', "/"))), Some(&expected), "{key}");
        }
        let mut left: Vec<_> =
            fs::read_dir(home.at("agent")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["settings.json", "settings.lock"], "nothing is left behind");
    }
}

#[test]
fn writers_take_turns() {
    let home = Home::new(&[]);
    let agent_dir = home.at("agent");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let agent_dir = &agent_dir;
            scope.spawn(move || {
                for round in 0..5 {
                    update(agent_dir, &[(&format!("k{n}.r{round}"), json!(n))]).unwrap();
                }
            });
        }
    });
    let value: Value = serde_json::from_str(&home.text()).unwrap();
    for n in 0..8 {
        assert_eq!(value[format!("k{n}")].as_object().unwrap().len(), 5, "no change is lost");
    }
}

#[test]
fn a_foreign_writer_is_waited_for_and_a_dead_one_is_not() {
    let home = Home::new(&[(GLOBAL, "{}")]);
    let lock = home.at("agent").join(format!("{FILE}{FOREIGN_LOCK}"));
    fs::create_dir(&lock).unwrap();
    let error = update(&home.at("agent"), &[("a", json!(1))]).unwrap_err();
    assert!(matches!(&error, SettingsError::Busy { path } if *path == lock), "{error}");
    assert_eq!(home.text(), "{}");
    assert!(lock.exists(), "it is not ours to remove");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| update(&home.at("agent"), &[("a", json!(1))]));
        fs::remove_dir(&lock).unwrap();
        writer.join().unwrap().unwrap();
    });
    fs::create_dir(&lock).unwrap();
    let long_ago = SystemTime::now() - FOREIGN_STALE - Duration::from_secs(1);
    match File::open(&lock).and_then(|lock| lock.set_modified(long_ago)) {
        Ok(()) => update(&home.at("agent"), &[("a", json!(2))]).unwrap(),
        // Where a directory's time cannot be set there is nothing to see.
        Err(_) => return,
    }
    assert_eq!(home.text(), "{\n  \"a\": 2\n}");
}

#[cfg(unix)]
#[test]
fn mode_and_symbolic_link_are_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new(&[("dotfiles/real.json", "{}"), ("agent/x", "")]);
    let real = home.at("dotfiles/real.json");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("../dotfiles/real.json", home.at(GLOBAL)).unwrap();
    update(&home.at("agent"), &[("a", json!(1))]).unwrap();
    assert_eq!(fs::read_to_string(&real).unwrap(), "{\n  \"a\": 1\n}");
    assert!(fs::symlink_metadata(home.at(GLOBAL)).unwrap().is_symlink());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&real), 0o640);
    let fresh = Home::new(&[]);
    update(&fresh.at("agent"), &[("a", json!(1))]).unwrap();
    assert_eq!([mode(&fresh.at("agent")), mode(&fresh.at(GLOBAL))], [0o700, 0o600]);
}

#[test]
fn a_change_that_changes_nothing_does_not_touch_the_file() {
    let home = Home::new(&[(GLOBAL, "{\"a\":   true}")]);
    let before = fs::metadata(home.at(GLOBAL)).unwrap().modified().unwrap();
    update(&home.at("agent"), &[("a", json!(true))]).unwrap();
    assert_eq!(fs::metadata(home.at(GLOBAL)).unwrap().modified().unwrap(), before);
}

#[test]
fn a_key_is_taken_away_and_the_others_keep_their_text() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("auth.json");
    edit(&file, &[(&["a.b"], Some(json!({"type": "api_key"})))]).unwrap();
    edit(&file, &[(&["c"], Some(json!(1.5)))]).unwrap();
    edit(&file, &[(&["nobody"], None)]).unwrap();
    let before = fs::read_to_string(&file).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&before).unwrap(),
        json!({"a.b": {"type": "api_key"}, "c": 1.5}),
        "a dot in a name is no path"
    );
    edit(&file, &[(&["a.b"], None)]).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\n  \"c\": 1.5\n}\n");
    edit(&file, &[(&["c"], None)]).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "{}\n");
    #[cfg(unix)]
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions()) & 0o777,
        0o600
    );
}
