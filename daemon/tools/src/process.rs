//! Child processes as groups: starting one in a group of its own, telling whether it lives, ending it.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::{
    Group, LedSession, apply_umask, exit_of, is_executable, own_group, own_std_group, refuse_to_block,
    shells, system_temp_dir,
};
#[cfg(windows)]
pub(crate) use windows::{
    Group, LedSession, apply_umask, exit_of, is_executable, own_group, own_std_group, refuse_to_block,
    shells, system_temp_dir,
};

/// How a group is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It may clean up.
    Ask,
    /// It may not.
    Force,
}
