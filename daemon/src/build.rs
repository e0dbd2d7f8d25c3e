//! Identifies this build of the program.

/// The version; development builds add the time their executable was built.
pub const ID: &str = match option_env!("ATOMIC_BUILD_ID") {
    Some(id) => id,
    None => env!("CARGO_PKG_VERSION"),
};
