//! Windows: named pipes, SIDs, descriptors of who may open what.
//!
//! The private directories lie in the user's profile and inherit its access list, so it is the pipe that is guarded:
//! only the owner and the system may open it, it must be the first of its name, remote callers are refused, and a
//! client asks who owns it before it says anything.

// No safe crate tells a process's SID or a pipe's owner. Every call below fills memory that this file owns, or that it
// frees right after copying.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::os::windows::io::{AsHandle as _, AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::os::windows::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use interprocess::local_socket::traits::{Listener as _, Stream as _};
use interprocess::local_socket::{
    ConnectOptions, GenericFilePath, Listener, ListenerOptions, Stream, ToFsName as _,
};
use interprocess::os::windows::ToWtf16 as _;
use interprocess::os::windows::local_socket::ListenerOptionsExt as _;
use interprocess::os::windows::security_descriptor::SecurityDescriptor;
use windows_sys::Win32::Foundation::{ERROR_PIPE_BUSY, ERROR_SUCCESS, HANDLE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, GetSecurityInfo, SE_KERNEL_OBJECT,
};
use windows_sys::Win32::Security::{
    GetTokenInformation, OWNER_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, PSID, TOKEN_QUERY, TOKEN_USER,
    TokenUser,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, DETACHED_PROCESS, GetCurrentProcess, OpenProcessToken,
};

use crate::error::LinkError;
use crate::place::Identity;

/// How often a busy pipe is tried again.
const BUSY_RETRY: Duration = Duration::from_millis(2);

/// The SID of this process's user.
pub(crate) fn user() -> io::Result<String> {
    let mut token: HANDLE = null_mut();
    // SAFETY: `token` is a place for one handle; the pseudo handle of this process is always valid.
    if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &mut token) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above gave us this handle and nobody else closes it.
    let token = unsafe { OwnedHandle::from_raw_handle(token.cast()) };
    let raw: HANDLE = token.as_raw_handle().cast();
    let mut size = 0;
    // SAFETY: with no buffer the call only writes the size it wants.
    unsafe { GetTokenInformation(raw, TokenUser, null_mut(), 0, &mut size) };
    // u64 aligns the buffer for the structure that is written to its beginning.
    let mut buffer = vec![0u64; (size as usize).div_ceil(8).max(size_of::<TOKEN_USER>().div_ceil(8))];
    // SAFETY: the buffer has at least `size` bytes.
    if unsafe { GetTokenInformation(raw, TokenUser, buffer.as_mut_ptr().cast(), size, &mut size) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the buffer begins with a TOKEN_USER whose SID lies in the same buffer.
    unsafe { sid_text((*buffer.as_ptr().cast::<TOKEN_USER>()).User.Sid) }
}

/// # Safety
/// `sid` points to a valid SID.
unsafe fn sid_text(sid: PSID) -> io::Result<String> {
    let mut text: *mut u16 = null_mut();
    // SAFETY: the caller vouches for `sid`; `text` is a place for one pointer.
    if unsafe { ConvertSidToStringSidW(sid, &mut text) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let mut length = 0;
    // SAFETY: the call succeeded, so `text` is a string that ends with 0 and that we free once, after copying it.
    unsafe {
        while *text.add(length) != 0 {
            length += 1;
        }
        let copy = String::from_utf16_lossy(std::slice::from_raw_parts(text, length));
        LocalFree(text.cast());
        Ok(copy)
    }
}

/// Pipe names mean this machine only.
pub(crate) fn host() -> String {
    String::new()
}

pub(crate) fn is_local(_: &Path) -> bool {
    true
}

pub(crate) fn socket_of(_: &Path, identity: &Identity) -> PathBuf {
    PathBuf::from(format!(r"\\.\pipe\atomic-{}", identity.hash()))
}

/// A pipe's name is short, so the directories stay.
pub(crate) fn short_dirs(_: &Identity, own: [PathBuf; 2]) -> [PathBuf; 2] {
    own
}

pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)
}

/// Checks that `dir` is a plain directory.
pub(crate) fn own(dir: &Path, _tighten: bool) -> Result<(), LinkError> {
    let meta = std::fs::symlink_metadata(dir)
        .map_err(|source| LinkError::Prepare { path: dir.to_owned(), source })?;
    if meta.is_dir() { Ok(()) } else { Err(LinkError::NotDirectory { path: dir.to_owned() }) }
}

/// Options of a file in a directory that only its owner may open.
pub(crate) fn private_file() -> OpenOptions {
    OpenOptions::new()
}

/// Connects before `deadline`, waiting while every instance of the pipe is taken.
pub(crate) fn connect(socket: &Path, deadline: Instant) -> io::Result<Stream> {
    let name = socket.as_os_str().to_fs_name::<GenericFilePath>()?;
    let options = ConnectOptions::new().name(name);
    loop {
        match options.connect_sync() {
            Err(error)
                if error.raw_os_error() == Some(ERROR_PIPE_BUSY as i32) && Instant::now() < deadline =>
            {
                std::thread::sleep(BUSY_RETRY);
            }
            other => return other,
        }
    }
}

/// Pipes know no timeouts: with a deadline the stream does not block, and the caller asks again until then.
pub(crate) fn set_deadline(stream: &Stream, deadline: Option<Instant>) -> io::Result<()> {
    stream.set_nonblocking(deadline.is_some())
}

/// Whether the pipe belongs to this user. For the daemon's end that is always so; there the access list decides.
pub(crate) fn peer_is_owner(stream: &Stream) -> io::Result<bool> {
    let Stream::NamedPipe(pipe) = stream;
    let handle: HANDLE = pipe.as_handle().as_raw_handle().cast();
    let mut owner: PSID = null_mut();
    let mut descriptor: PSECURITY_DESCRIPTOR = null_mut();
    // SAFETY: the handle is open for the call; both places take one pointer each.
    let code = unsafe {
        GetSecurityInfo(
            handle,
            SE_KERNEL_OBJECT,
            OWNER_SECURITY_INFORMATION,
            &mut owner,
            null_mut(),
            null_mut(),
            null_mut(),
            &mut descriptor,
        )
    };
    if code != ERROR_SUCCESS {
        return Err(io::Error::from_raw_os_error(code as i32));
    }
    // SAFETY: the call succeeded, so `owner` lies in `descriptor`, which we free once, after copying.
    let owner = unsafe {
        let text = sid_text(owner);
        LocalFree(descriptor.cast());
        text?
    };
    Ok(owner == user()?)
}

pub(crate) fn hang_up(_: &Stream) {}

/// Who may open the pipe of a user, in the security descriptor language: owner and system, nobody inherited. The owner
/// is spelled out because an elevated process would make the administrators' group the owner.
fn access_of(user: &str) -> String {
    format!("O:{user}D:P(A;;GA;;;SY)(A;;GA;;;{user})")
}

/// A named pipe that listens.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: Listener,
}

impl Bound {
    /// Makes the first instance of the pipe; a name that exists already is an error, whoever made it.
    pub(crate) fn bind(socket: &Path) -> Result<Bound, LinkError> {
        let listen = || {
            let access = access_of(&user()?);
            let access = OsStr::new(&access)
                .to_wtf_16()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
            ListenerOptions::new()
                .name(socket.as_os_str().to_fs_name::<GenericFilePath>()?)
                .security_descriptor(SecurityDescriptor::deserialize(&access)?)
                .create_sync()
        };
        match listen() {
            Ok(listener) => Ok(Bound { listener }),
            Err(source) => Err(LinkError::Bind { socket: socket.to_owned(), source }),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        self.listener.accept()
    }
}

/// The daemon gets no console and no Ctrl-C of its starter's.
pub(crate) fn detach(command: &mut Command) {
    command.creation_flags(DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP);
}

/// Directory in which the daemon runs: one that stays anyway while it lives.
pub(crate) fn daemon_cwd(agent_dir: &Path) -> &Path {
    agent_dir
}

/// File name of the daemon's program.
pub(crate) const DAEMON_PROGRAM: &str = "atomicd.exe";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_and_the_system_may_open_the_pipe() {
        assert_eq!(access_of("S-1-5-21-7"), "O:S-1-5-21-7D:P(A;;GA;;;SY)(A;;GA;;;S-1-5-21-7)");
        assert!(user().unwrap().starts_with("S-1-"));
    }
}

/// Whether `path` names the open `file`: an open file cannot be removed here.
pub(crate) fn same_file(_file: &std::fs::File, path: &Path) -> bool {
    path.exists()
}
