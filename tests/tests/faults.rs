//! A short course of what `atomic-bench faults` does for as long as one likes.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::process::Command;

use atomic_tests::binaries;

#[test]
fn nothing_announced_is_missing_or_twice_after_faults_under_load() {
    let programs = binaries();
    let run = Command::new(env!("CARGO_BIN_EXE_atomic-bench"))
        .args(["faults", "--seed", "20", "--rounds", "30"])
        .env("ATOMIC_BIN", &programs.atomic)
        .env("ATOMICD_BIN", &programs.atomicd)
        .output()
        .expect("it runs");
    let (said, complained) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}\n{complained}");
    assert!(said.contains("30 faults with three windows"), "{said}");
}
