//! A share of a link for one socket: asks the guard of this host's queues, from a program without privilege.
//!
//! ```text
//!   program --- class, weight, the socket's descriptor --> guard (root) --> a leaf of the socket's own below
//!           <-- done, or an error ------------------------                  the class, for its packets
//! ```
//! [`share_socket`] is the whole client; [`message`] has the format of the request and the answer. The guard
//! knows the program's user from the kernel (`SO_PEERCRED`), and keeps no copy of the descriptor, so that the
//! share ends when the program closes the socket. The crate does *not* contain the guard.
//!
//! Cost: one connection to a Unix socket, about a millisecond. When not to use it: if port, address or
//! control group distinguish a program's packets; then matches in the policy suffice, and the program needs
//! no change. Reference: Goyal, Vin and Cheng, start-time fair queuing; the interface follows QLinux, in
//! which a program "associate\[s\] its sockets to a different application class and assign\[s\] them an
//! appropriate weight".
#![forbid(unsafe_code)]

pub mod message;

use message::{MAX_ANSWER_BYTES, ShareAnswer, ShareRequest};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_linux::{Errno, local_socket};

/// The socket of the host's guard.
pub const GUARD_SOCKET: &str = "/run/unisono/queue-guard";
/// The environment variable that names another socket.
pub const GUARD_VARIABLE: &str = "UNISONO_QUEUE_GUARD";
/// The guard waits up to 10 s for another command that changes a queue.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason that a socket has no share of its own. Its packets stay in the class that the policy gives them
/// without such a share.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is not a valid class name, or the number is not a valid weight.
    #[error("{0}")]
    Invalid(String),
    #[error("no guard answers at {}: {source}; root starts it: unisono queue guard", path.display())]
    NoGuard { path: PathBuf, source: io::Error },
    /// The guard refuses, with a number of errno(3).
    #[error("{text}")]
    Refused { errno: i32, text: String },
}

impl Error {
    /// Returns the closest error number of errno(3). `ENOENT`: the policy has no class of the name; `EPERM`:
    /// the policy does not permit this user to use the class; `ERANGE`: the policy does not permit the
    /// weight; `EDQUOT`: the user already has as many sockets as the policy permits; `ECONNREFUSED`: no guard
    /// answers.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Invalid(_) => Errno::INVAL.raw_os_error(),
            Self::NoGuard { .. } => Errno::CONNREFUSED.raw_os_error(),
            Self::Refused { errno, .. } => *errno,
        }
    }
}

/// Gives a socket a share of its own in a class of the policy in force. The socket's fraction of the class is
/// its weight divided by the sum of the weights of the class's sockets. Sharing a socket again changes its
/// class and weight. Waits for the guard's answer.
pub fn share_socket(socket: impl AsFd, class: &str, weight: f64) -> Result<(), Error> {
    let named = std::env::var_os(GUARD_VARIABLE).filter(|path| !path.is_empty());
    share_socket_at(named.map_or_else(|| PathBuf::from(GUARD_SOCKET), PathBuf::from), socket, class, weight)
}

/// Does the same as [`share_socket`], but asks the guard at `path`.
pub fn share_socket_at(
    path: impl AsRef<Path>,
    socket: impl AsFd,
    class: &str,
    weight: f64,
) -> Result<(), Error> {
    let request = ShareRequest::new(class, weight).map_err(|error| Error::Invalid(error.to_string()))?;
    let unreachable = |source| Error::NoGuard { path: path.as_ref().to_owned(), source };
    let answer = || -> io::Result<Vec<u8>> {
        let stream = UnixStream::connect(path.as_ref())?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        match local_socket::send_with(&stream, &request.encode(), socket.as_fd()) {
            // the guard refuses some users without reading the request; its answer, read below, has the
            // reason
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            sent => sent?,
        }
        let mut answer = Vec::new();
        match stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer) {
            // for the same reason: after the answer, the kernel reports the unread request as a reset
            // connection
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !answer.is_empty() => {}
            read => drop(read?),
        }
        Ok(answer)
    };
    match ShareAnswer::parse(&answer().map_err(unreachable)?) {
        Some(ShareAnswer::Done) => Ok(()),
        Some(ShareAnswer::Refused { errno, text }) => Err(Error::Refused { errno, text }),
        None => Err(unreachable(io::Error::new(io::ErrorKind::InvalidData, "its answer is not understood"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::thread;

    #[test]
    fn a_request_travels_with_the_descriptor_and_the_answer_comes_back() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("guard");
        let listener = local_socket::listen(&path, 0o600).expect("the path is free");
        let guard = thread::spawn(move || {
            for answer in [ShareAnswer::Done, ShareAnswer::Refused { errno: 1, text: "not here".to_owned() }]
            {
                let (stream, _) = listener.accept().expect("a client comes");
                let mut bytes = [0; message::REQUEST_BYTES];
                let came = local_socket::receive_with(&stream, &mut bytes).expect("it was sent");
                let request = ShareRequest::parse(&bytes).expect("it is well formed");
                assert_eq!((request.class.as_str(), request.weight), ("video", 2.5));
                assert!(
                    came.is_some_and(|socket| unisono_linux::socket::is_internet(&socket).expect("a socket"))
                );
                io::Write::write_all(&mut &stream, &answer.encode()).expect("the client reads");
            }
        });
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        share_socket_at(&path, &socket, "video", 2.5).expect("it was granted");
        let refused = share_socket_at(&path, &socket, "video", 2.5).expect_err("the second time");
        assert_eq!((refused.errno(), refused.to_string().as_str()), (1, "not here"));
        guard.join().expect("no panic");
        let gone = share_socket_at(directory.path().join("none"), &socket, "video", 1.0).expect_err("none");
        assert!(gone.to_string().contains("unisono queue guard"), "{gone}");
        let wrong = share_socket_at(&path, &socket, "a b", 1.0).expect_err("a space");
        assert_eq!(wrong.errno(), Errno::INVAL.raw_os_error());
    }
}
