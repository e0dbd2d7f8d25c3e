//! The manifest is the architecture: who may use whom, and what the pure crates may not touch.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// For each crate of the workspace: the crates of the workspace that it may use.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("atomic-protocol", &[]),
    ("atomic-link", &["atomic-protocol"]),
    ("atomic-session-store", &["atomic-protocol"]),
    ("atomic-shim", &["atomic-link", "atomic-protocol"]),
    ("atomic-agent", &["atomic-protocol"]),
    ("atomic-images", &["atomic-protocol"]),
    ("atomic-providers", &["atomic-images", "atomic-protocol"]),
    ("atomic-tools", &["atomic-images", "atomic-protocol"]),
    ("atomic-html-export", &["atomic-protocol"]),
    (
        "atomic-daemon",
        &[
            "atomic-agent",
            "atomic-html-export",
            "atomic-link",
            "atomic-protocol",
            "atomic-providers",
            "atomic-session-store",
            "atomic-tools",
        ],
    ),
    ("atomic-tests", &["atomic-link", "atomic-protocol"]),
];

/// What makes a program big and slow to start: nothing of it may be in the shim or below it.
const NOT_IN_THE_SHIM: [&str; 12] = [
    "tokio",
    "tokio-util",
    "mio",
    "async-std",
    "async-io",
    "smol",
    "futures-executor",
    "hyper",
    "reqwest",
    "rustls",
    "ring",
    "tracing-subscriber",
];

/// What a crate without input and output may not say.
const NOT_PURE: [&str; 8] = [
    "std::fs",
    "std::env::",
    "std::net",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "tokio",
];

/// The folders of the crates without input and output.
const PURE: [&str; 3] = ["protocol/src", "daemon/agent/src", "daemon/html-export/src"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the workspace").to_owned()
}

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().expect("cargo starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

#[test]
fn crates_use_only_what_the_design_allows() {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1", "--offline"]))
            .expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let found: BTreeMap<&str, Vec<&str>> = packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            // A path names a crate of the workspace, of whatever kind the dependency is.
            let ours = dependencies.filter(|dependency| dependency["path"].is_string());
            let names = ours.filter_map(|dependency| dependency["name"].as_str()).collect();
            (package["name"].as_str().expect("a name"), names)
        })
        .collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    let known = |names: Vec<&str>| names.join(" ");
    assert_eq!(
        known(found.keys().copied().collect()),
        known(allowed.keys().copied().collect()),
        "every crate has its row in this table"
    );
    for (name, used) in found {
        for other in used {
            assert!(allowed[name].contains(&other), "{name} may not use {other}");
        }
    }
}

#[test]
fn the_shim_has_no_async_stack() {
    let tree =
        cargo(&["tree", "-p", "atomic-shim", "-e", "normal", "--prefix", "none", "--offline", "--locked"]);
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"atomic-link"), "the tree is the shim's: {names:?}");
    for name in NOT_IN_THE_SHIM {
        assert!(!names.contains(&name), "{name} in {names:?}");
    }
}

#[test]
fn pure_crates_touch_nothing() {
    for folder in PURE {
        let files = sources(&root().join(folder));
        assert!(!files.is_empty(), "{folder} has sources");
        for file in files {
            let text =
                std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let found = impurities(&text);
            assert!(found.is_empty(), "{}: {found:#?}", file.display());
        }
    }
}

#[test]
fn an_impurity_is_seen_in_code_and_not_in_a_comment() {
    assert_eq!(
        impurities("// no tokio here\n/// std::fs neither\nlet x = 1; // SystemTime\n"),
        Vec::<String>::new()
    );
    assert_eq!(
        impurities("fn now() {\n    std::time::Instant::now()\n}\n"),
        ["2: std::time::Instant::now()"]
    );
}

/// Lines of code that say what a pure crate may not, with their numbers.
fn impurities(text: &str) -> Vec<String> {
    let code = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.split("//").next().unwrap_or(line).trim()));
    code.filter(|(_, line)| NOT_PURE.iter().any(|word| line.contains(word)))
        .map(|(number, line)| format!("{number}: {line}"))
        .collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
