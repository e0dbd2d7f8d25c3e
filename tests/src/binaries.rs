//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The programs under test.
#[derive(Debug)]
pub struct Binaries {
    /// What editors start.
    pub atomic: PathBuf,
    /// The daemon.
    pub atomicd: PathBuf,
}

impl Binaries {
    /// The daemon lies beside the shim, where the shim looks first.
    pub fn side_by_side(&self) -> bool {
        self.atomic.parent() == self.atomicd.parent()
    }
}

/// The programs that `ATOMIC_BIN` and `ATOMICD_BIN` name (relative to the workspace), else the ones of this workspace. The latter are built once per
/// test process, because a stale program would prove nothing; cargo's own lock keeps two test processes apart.
///
/// # Panics
/// When they cannot be built or are missing.
pub fn binaries() -> &'static Binaries {
    // A failure is kept too: what does not build for one test does not build for the next.
    static FOUND: OnceLock<Result<Binaries, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = match std::env::var_os("ATOMIC_BIN") {
            Some(atomic) => named(PathBuf::from(atomic)),
            None => built()?,
        };
        for path in [&found.atomic, &found.atomicd] {
            if !path.is_file() {
                return Err(format!("no program at {}", path.display()));
            }
        }
        Ok(found)
    });
    found.as_ref().unwrap_or_else(|error| panic!("{error}"))
}

fn program(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

fn named(atomic: PathBuf) -> Binaries {
    // Tests run in their package's directory, which is not where a person types a path.
    let workspace =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the workspace");
    let atomic = workspace.join(atomic);
    let atomicd = match std::env::var_os("ATOMICD_BIN") {
        Some(path) => workspace.join(path),
        None => atomic.with_file_name(program("atomicd")),
    };
    Binaries { atomic, atomicd }
}

fn built() -> Result<Binaries, String> {
    let profile = build(&["-p", "atomic-shim", "-p", "atomic-daemon"])?;
    Ok(Binaries { atomic: profile.join(program("atomic")), atomicd: profile.join(program("atomicd")) })
}

/// An example of a package of this workspace, built.
///
/// # Panics
/// When it does not build.
pub fn example(package: &str, name: &str) -> PathBuf {
    let profile = build(&["-p", package, "--example", name]).unwrap_or_else(|error| panic!("{error}"));
    profile.join("examples").join(program(name))
}

/// Builds parts of this workspace as this test was built; gives the directory of the profile.
fn build(what: &[&str]) -> Result<PathBuf, String> {
    let exe = std::env::current_exe().expect("a test knows its own path");
    // <target>[/<triple>]/<profile>/deps/<this test>
    let profile = exe.parent().and_then(Path::parent).expect("cargo puts tests into deps/ of a profile");
    let above = profile.parent().expect("a profile lies in the target directory");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--locked"]).args(what);
    // What cargo says of this test's package to this test: build scripts of dependencies ask for the same names, and with
    // other values than those of a build by hand half of the workspace is built anew.
    for (name, _) in std::env::vars_os() {
        let of_package = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
        if name.to_str().is_some_and(|name| of_package.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    let target_dir = if above.join("CACHEDIR.TAG").exists() {
        above
    } else {
        command.arg("--target").arg(above.file_name().expect("a triple"));
        above.parent().expect("a triple lies in the target directory")
    };
    match profile.file_name().and_then(|name| name.to_str()).expect("a profile's name is UTF-8") {
        "debug" => {}
        name => {
            command.args(["--profile", name]);
        }
    }
    command.arg("--target-dir").arg(target_dir).current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = command.status().expect("cargo starts");
    if !status.success() {
        return Err(format!("{what:?} does not build: {status}"));
    }
    Ok(profile.to_owned())
}
