//! Identifies this build of the program.

/// The version, unless whoever built it named the build in `ATOMIC_BUILD_ID`.
pub const ID: &str = match option_env!("ATOMIC_BUILD_ID") {
    Some(id) => id,
    None => env!("CARGO_PKG_VERSION"),
};
