//! Unix sockets: identifying the peer, and passing descriptors: unix(7), cmsg(3).
//!
//! A name in the abstract namespace (`std::os::linux::net::SocketAddrExt`) belongs to its socket and
//! disappears with it, so nothing is left behind after kill -9. The name is visible within its network
//! namespace, and any process there may connect to it: check [`peer`] before trusting the connection.
//!
//! Cost: a system call each. A descriptor is sent with at least one byte; bytes sent before it are received
//! before it.

use crate::socket::get_option;
use rustix::cmsg_space;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, chmod, chownat, fstat, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg,
    socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The number of connections that the kernel keeps at a listening socket until they are accepted.
pub const BACKLOG: i32 = 128;

/// Listens at a path that does not exist yet. The socket file has this mode (less the process's umask) from
/// the beginning: if the mode were set after binding, any user could connect in between. Fails with
/// `EADDRINUSE` if the path exists, and with `ENAMETOOLONG` for a path of 108 bytes or more.
pub fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // bind makes the file with the mode of the socket (since Linux 2.6)
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Removes the socket file of a server that was killed: a socket without a listener. Any other file stays.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = path.symlink_metadata().is_ok_and(|facts| facts.file_type().is_socket());
    let is_left = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).as_ref().is_err_and(is_left) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// The name of a listening socket in the file system, for the server that removes it at its end.
///
/// By then the name may be another server's, for example because a user removed the file and started a
/// server. So the name is removed only if it still names the same file. While the server has its socket open,
/// the kernel gives the file's number to no other one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketName {
    path: PathBuf,
    /// The device and the number of the file; `None`: the file was gone already.
    file: Option<(u64, u64)>,
}

impl SocketName {
    /// Returns the name of the socket that is bound to this path now.
    pub fn from_path(path: &Path) -> Self {
        Self { path: path.to_owned(), file: file_at(path) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the name, unless another file has it by now.
    pub fn remove(&self) -> io::Result<()> {
        match self.file {
            Some(file) if file_at(&self.path) == Some(file) => std::fs::remove_file(&self.path),
            _ => Ok(()),
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    let facts = path.symlink_metadata().ok()?;
    Some((facts.dev(), facts.ino()))
}

/// Gives a socket in the file system exactly this mode, whatever the umask was when it was bound. Fails with
/// `ENOTSOCK` if something else is there by now, such as a link that another user has put there: chmod(2)
/// would follow the link, and a server of root would open the link's target to all users.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let held = hold(path)?;
    // chmod(2) through the link in /proc changes the file that is held open; fchmod(2) refuses an O_PATH
    // descriptor
    Ok(chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::from_raw_mode(mode))?)
}

/// Gives a socket in the file system to a user and a group. Fails with `ENOTSOCK` as [`set_mode`] does:
/// lchown(2) by the path would give the user any file that has the socket's name by now.
pub fn set_owner(path: &Path, user: u32, group: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    Ok(chownat(hold(path)?, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?)
}

/// Opens the file of a socket of this user without following a link. Fails with `ENOTSOCK` if it is no
/// socket, another user's, or has a second name.
fn hold(path: &Path) -> io::Result<OwnedFd> {
    let held = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let facts = fstat(&held)?;
    let is_ours = facts.st_uid == own_user() && facts.st_nlink == 1;
    if FileType::from_raw_mode(facts.st_mode).is_socket() && is_ours {
        Ok(held)
    } else {
        Err(Errno::NOTSOCK.into())
    }
}

/// The process at the other end of a connection, as the kernel recorded it when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process's number in this process's namespace; 0 if the process is not visible here.
    pub process: u32,
    pub user: u32,
}

/// Identifies the peer of a connection.
pub fn peer(stream: &impl AsFd) -> io::Result<Peer> {
    let none = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: any bytes are three numbers.
    let credentials = unsafe { get_option(stream, libc::SOL_SOCKET, libc::SO_PEERCRED, none) }?;
    Ok(Peer { process: u32::try_from(credentials.pid).unwrap_or(0), user: credentials.uid })
}

pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Sends bytes with a descriptor. Sends all bytes or fails: messages are shorter than a socket's buffer.
/// Fails with `EPIPE` if the other end is closed, and with `WriteZero` if the kernel did not take all bytes.
pub fn send_with(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let (mut control, descriptors) = (SendAncillaryBuffer::new(&mut room), [descriptor]);
    let has_room = control.push(SendAncillaryMessage::ScmRights(&descriptors));
    assert!(has_room, "there is room for one descriptor");
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives exactly `bytes.len()` bytes, and the descriptor that came with them, if any. Obeys the stream's
/// read timeout. Fails with `UnexpectedEof` if the other end has closed.
pub fn receive_with(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<Option<OwnedFd>> {
    let (mut at, mut came) = (0, None);
    while at < bytes.len() {
        let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut rest = [IoSliceMut::new(&mut bytes[at..])];
        match recvmsg(stream, &mut rest, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(message) if message.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(message) => at += message.bytes,
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                came = descriptors.next().or(came);
            }
        }
    }
    Ok(came)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_listening_socket_has_its_mode_without_anybody_changing_it_later() {
        use crate::seccomp::{CallRule, Filter, SystemCall};
        let path = std::env::temp_dir().join(format!("unisono-test-{}", std::process::id()));
        let at = path.clone();
        let made = std::thread::spawn(move || {
            let by_path = [
                CallRule(SystemCall::FCHMODAT, &[]),
                #[cfg(target_arch = "x86_64")]
                CallRule(SystemCall::CHMOD, &[]),
            ];
            Filter::refusing(&by_path, libc::EXDEV).install()?;
            listen(&at, 0o600)
        });
        match made.join().expect("it does not panic") {
            Ok(_listener) => {
                let mode = std::fs::metadata(&path).expect("it is there").mode();
                UnixStream::connect(&path).expect("it listens");
                std::fs::remove_file(&path).expect("it is ours");
                assert_eq!(mode & 0o777, 0o600);
            }
            Err(error) => eprintln!("skipped: no filters here: {error}"),
        }
    }

    #[test]
    fn a_server_removes_its_own_name_and_not_that_of_another_one() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("socket");
        let _first = listen(&path, 0o600).expect("room");
        let name = SocketName::from_path(&path);
        std::fs::remove_file(&path).expect("it is ours");
        let _second = listen(&path, 0o600).expect("room");
        name.remove().expect("it is no longer its own");
        UnixStream::connect(&path).expect("the second one listens");
        SocketName::from_path(&path).remove().expect("it is ours");
        assert!(!path.exists());
        name.remove().expect("there is none");
    }

    #[test]
    fn a_socket_gets_its_mode_and_what_a_link_in_its_place_leads_to_does_not() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").mode() & 0o777;
        let (socket, file) = (directory.path().join("socket"), directory.path().join("file"));
        let _listener = listen(&socket, 0o600).expect("room");
        set_mode(&socket, 0o666).expect("it is ours");
        assert_eq!(mode(&socket), 0o666);
        std::fs::write(&file, b"secret").expect("room");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("ours");
        std::fs::remove_file(&socket).expect("it is ours");
        std::os::unix::fs::symlink(&file, &socket).expect("room");
        set_mode(&socket, 0o666).expect_err("it is a link");
        std::fs::remove_file(&socket).expect("it is ours");
        std::fs::hard_link(&file, &socket).expect("one file system");
        set_mode(&socket, 0o666).expect_err("it is no socket");
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn a_socket_gets_its_owner_and_what_has_its_name_instead_does_not() {
        use std::os::unix::fs::{MetadataExt, symlink};
        if own_user() != 0 {
            eprintln!("skipped: it needs root");
            return;
        }
        let directory = tempfile::tempdir().expect("a scratch directory");
        let owner = |path: &Path| std::fs::metadata(path).expect("it is there").uid();
        let (theirs, victims) = (directory.path().join("theirs"), directory.path().join("victims"));
        std::fs::create_dir(&theirs).expect("room");
        std::fs::create_dir_all(victims.join("name")).expect("room");
        let path = theirs.join("name");
        let _listener = listen(&path, 0o600).expect("room");
        set_owner(&path, crate::privilege::NOBODY, crate::privilege::NOBODY).expect("root may");
        assert_eq!(owner(&path), crate::privilege::NOBODY);
        // the owner of the directory puts a link in its place
        std::fs::rename(&theirs, directory.path().join("moved")).expect("ours");
        symlink(&victims, &theirs).expect("room");
        set_owner(&path, crate::privilege::NOBODY, crate::privilege::NOBODY).expect_err("it is a directory");
        assert_eq!(owner(&path), 0);
    }

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let peer = peer(&one).expect("connected");
        assert_eq!((peer.process, peer.user), (std::process::id(), own_user()));
    }

    #[test]
    fn a_descriptor_that_was_sent_leads_to_the_same_file() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (mut far, near) = UnixStream::pair().expect("a pair");
        send_with(&one, b"hello", near.as_fd()).expect("room for five bytes");
        drop(near);
        let mut bytes = [0; 5];
        let came = receive_with(&other, &mut bytes).expect("it was sent").expect("with a descriptor");
        assert_eq!(&bytes, b"hello");
        UnixStream::from(came).write_all(b"x").expect("the far end is open");
        assert_eq!(far.read(&mut [0; 1]).expect("a byte"), 1);
    }

    #[test]
    fn bytes_without_a_descriptor_bring_none_and_a_closed_end_is_told() {
        let (mut one, other) = UnixStream::pair().expect("a pair");
        one.write_all(b"ab").expect("room");
        assert!(receive_with(&other, &mut [0; 2]).expect("two bytes").is_none());
        drop(one);
        let closed = receive_with(&other, &mut [0; 1]).expect_err("closed");
        assert_eq!(closed.kind(), io::ErrorKind::UnexpectedEof);
    }
}
