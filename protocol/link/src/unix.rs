//! Unix: sockets in the file system, uids, modes.
//!
//! Descriptors that the caller leaked without close-on-exec reach the daemon, because nothing can close a bare
//! descriptor number safely; the daemon closes them first thing in its own start.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use interprocess::local_socket::Stream;
use interprocess::local_socket::traits::{Stream as _, StreamCommon as _};
use interprocess::os::unix::uds_local_socket;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::error::LinkError;
use crate::place::Identity;

pub(crate) fn user() -> io::Result<String> {
    Ok(rustix::process::geteuid().as_raw().to_string())
}

/// Machine id and host name: containers of one machine share the first, cloned machines may share either, and a
/// container with its own name and file system needs its own daemon. macOS renames itself with the network, so there
/// the name does not count; a shared home is a remote file system there and has its socket below `/tmp` anyway.
pub(crate) fn host() -> String {
    if cfg!(target_os = "macos") {
        return String::new();
    }
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let name = rustix::system::uname();
    format!("{}\n{}", machine.trim(), name.nodename().to_string_lossy())
}

/// Whether sockets and locks work and mean this host only. What cannot be asked counts as local: binding will tell.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn is_local(path: &Path) -> bool {
    /// File systems of other hosts, and those whose server decides about sockets and locks (statfs(2), magic.h).
    const REMOTE: [u32; 17] = [
        0x6969,      // nfs
        0x517B,      // smb
        0xFF53_4D42, // cifs
        0xFE53_4D42, // smb2
        0x6573_5546, // fuse: sshfs and the like
        0x0102_1997, // 9p: WSL's Windows drives, shares of virtual machines
        0x5346_414F, // afs
        0x6B41_4653, // kafs
        0x7375_7245, // coda
        0x00C3_6400, // ceph
        0x4750_4653, // gpfs
        0x0BD0_0BD0, // lustre
        0x7461_636F, // ocfs2
        0x0116_1970, // gfs2
        0x1983_0326, // beegfs
        0xAAD7_AAEA, // panfs
        0x786F_4256, // vboxsf
    ];
    rustix::fs::statfs(path).map_or(true, |stat| !REMOTE.contains(&(stat.f_type as u32)))
}

#[cfg(target_vendor = "apple")]
pub(crate) fn is_local(path: &Path) -> bool {
    /// `MNT_LOCAL` of mount(2).
    const LOCAL: u32 = 0x1000;
    rustix::fs::statfs(path).map_or(true, |stat| stat.f_flags & LOCAL != 0)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub(crate) fn is_local(_: &Path) -> bool {
    true
}

pub(crate) fn socket_of(dir: &Path, _: &Identity) -> PathBuf {
    dir.join("d.sock")
}

/// Where the socket goes when the agent directory's path is too long or remote. `/tmp`, not `TMPDIR`: everybody who
/// looks for the daemon must come to the same answer.
pub(crate) fn short_dirs(identity: &Identity, _: [PathBuf; 2]) -> [PathBuf; 2] {
    let base = PathBuf::from(format!("/tmp/atomic-{}", identity.user));
    let own = base.join(identity.hash());
    [base, own]
}

pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Checks that `dir` is a plain directory of this user; takes away other people's rights if `tighten`.
pub(crate) fn own(dir: &Path, tighten: bool) -> Result<(), LinkError> {
    let failed = |source| LinkError::Prepare { path: dir.to_owned(), source };
    let meta = std::fs::symlink_metadata(dir).map_err(failed)?;
    if !meta.is_dir() {
        return Err(LinkError::NotDirectory { path: dir.to_owned() });
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(LinkError::Foreign { path: dir.to_owned(), owner: meta.uid() });
    }
    if tighten && meta.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Options of a file that only its owner may open.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    options
}

/// Connects before `deadline`. The send timeout bounds connect(2) on a listener whose queue is full.
pub(crate) fn connect(socket: &Path, deadline: Instant) -> io::Result<Stream> {
    let address = SocketAddrUnix::new(socket)?;
    let fd = stream_socket()?;
    let left = deadline.saturating_duration_since(Instant::now()).max(std::time::Duration::from_millis(1));
    set_socket_timeout(&fd, Timeout::Send, Some(left))?;
    rustix::net::connect(&fd, &address)?;
    Ok(Stream::from(uds_local_socket::Stream::from(fd)))
}

#[cfg(not(target_vendor = "apple"))]
fn stream_socket() -> io::Result<OwnedFd> {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

#[cfg(target_vendor = "apple")]
fn stream_socket() -> io::Result<OwnedFd> {
    let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Lets reads and writes fail with `WouldBlock` or `TimedOut` after `deadline`; `None` lets them wait for ever.
pub(crate) fn set_deadline(stream: &Stream, deadline: Option<Instant>) -> io::Result<()> {
    let left = deadline.map(|deadline| {
        // Zero would mean "for ever".
        deadline.saturating_duration_since(Instant::now()).max(std::time::Duration::from_millis(1))
    });
    stream.set_recv_timeout(left)?;
    stream.set_send_timeout(left)
}

pub(crate) fn peer_is_owner(stream: &Stream) -> io::Result<bool> {
    let Stream::UdSocket(stream) = stream;
    Ok(stream.peer_creds()?.euid() == Some(rustix::process::geteuid().as_raw()))
}

pub(crate) fn hang_up(stream: &Stream) {
    let Stream::UdSocket(stream) = stream;
    // One that has ended already is what we want.
    let _ = rustix::net::shutdown(stream.as_fd(), rustix::net::Shutdown::Both);
}

/// A bound socket that listens.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: UnixListener,
    /// Device and inode of the socket's file.
    file: (u64, u64),
}

impl Bound {
    /// Binds; the caller holds the daemon's lock, so a socket that is there is nobody's.
    pub(crate) fn bind(socket: &Path) -> Result<Bound, LinkError> {
        let failed = |source| LinkError::Bind { socket: socket.to_owned(), source };
        match std::fs::symlink_metadata(socket) {
            Ok(meta) if meta.file_type().is_socket() => std::fs::remove_file(socket).map_err(failed)?,
            Ok(_) => return Err(LinkError::InTheWay { socket: socket.to_owned() }),
            Err(_) => {}
        }
        let listener = UnixListener::bind(socket).map_err(failed)?;
        // Until here the directory's mode keeps others out; umask(2) would change the whole process.
        std::fs::set_permissions(socket, Permissions::from_mode(0o600)).map_err(failed)?;
        let meta = std::fs::symlink_metadata(socket).map_err(failed)?;
        Ok(Bound { listener, file: (meta.dev(), meta.ino()) })
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        let (stream, _) = self.listener.accept()?;
        Ok(Stream::from(uds_local_socket::Stream::from(stream)))
    }

    pub(crate) fn file(&self) -> (u64, u64) {
        self.file
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.listener.into()
    }
}

/// Whether the file at `socket` is the one that was bound.
pub(crate) fn is_file(socket: &Path, file: (u64, u64)) -> bool {
    std::fs::symlink_metadata(socket).is_ok_and(|meta| (meta.dev(), meta.ino()) == file)
}

/// Nothing to do: the daemon makes its own session, because a child cannot be put into one without unsafe code.
pub(crate) fn detach(_: &mut Command) {}

/// Directory in which the daemon runs: it keeps no file system busy.
pub(crate) fn daemon_cwd(_agent_dir: &Path) -> &Path {
    Path::new("/")
}

/// File name of the daemon's program.
pub(crate) const DAEMON_PROGRAM: &str = "atomicd";

/// Whether `path` names the open `file`.
pub(crate) fn same_file(file: &std::fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}
