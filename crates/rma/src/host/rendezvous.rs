//! Rendezvous: how processes of one host with the same key find each other's memory.
//!
//! They need no common parent, no file and no port. Rank 0 makes the segment and listens at a name in the
//! abstract socket namespace that can be computed only from the key ([`super::name`]). Each other rank
//! connects, shows the key, and gets the segment's descriptor.
//!
//! ```text
//!   rank 0                                    rank r
//!   makes the segment, listens at the name    connects, again and again until rank 0 listens
//!                                             checks the socket's user; sends key, rank, size, process
//!   checks the user, compares all of it
//!   answers, with the descriptor        --->  maps the segment, takes its line there
//! ```
//! Everything here disappears with its processes: no file is left in a file system. Rank 0 refuses a process
//! of another user before it reads any byte of it, and no rank shows the key to another user's socket. Cost:
//! two messages for each rank, once. When not to use: between hosts, network namespaces or process
//! namespaces; TCP serves these. Reference: unix(7).

use super::name::socket_name;
use super::{HostMembers, create};
use crate::model::{Error, JobMembership, Key, Rank};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use unisono_linux::clock::{Duration, Instant, now};
use unisono_linux::local_socket::{own_user, peer, receive_with, send_with};
use unisono_linux::shared_memory::SharedMemory;
use unisono_text::counted;

const CALL: &str = "joining the job";
/// "unisono", and the version of this exchange.
const GREETING: [u8; 8] = *b"unisono2";
const HELLO: usize = 40;
const REPLY: usize = 8;
/// The pause between two attempts to connect, and between two checks for connections. Ranks start within
/// milliseconds of one another, and a check takes some microseconds: half a millisecond is about the time
/// that the start of a process takes, so the last rank is noticed at once. Chosen, not measured.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
/// The longest time from a process's connection to its greeting. A member sends its greeting in the call that
/// connects, so only a stranger or a stopped process takes longer; a member on a very busy host may lose its
/// processor for some slices of 20 ms.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq)]
enum RendezvousAnswer {
    Welcome = 1,
    WrongSize = 2,
    OtherNamespace = 3,
}

struct Hello {
    key: Key,
    rank: u32,
    size: u32,
    process: u32,
}

impl Hello {
    fn own(place: &JobMembership) -> Self {
        let size = u32::try_from(place.size).unwrap_or(u32::MAX);
        Self { key: place.key, rank: place.rank.0, size, process: std::process::id() }
    }

    fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&GREETING);
        bytes[8..24].copy_from_slice(self.key.bytes());
        bytes[24..28].copy_from_slice(&self.rank.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.size.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.process.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        (bytes[..8] == GREETING).then(|| Self {
            key: Key::from_bytes(std::array::from_fn(|index| bytes[8 + index])),
            rank: short(24),
            size: short(28),
            process: short(32),
        })
    }
}

/// Finds the other members and takes this process's line in the segment. `bytes` is the segment's size; all
/// members compute the same.
pub(crate) fn join(place: &JobMembership, bytes: usize, timeout: Duration) -> Result<HostMembers, Error> {
    let start = now();
    let limit = start + timeout;
    let address = SocketAddr::from_abstract_name(socket_name(&place.key))
        .map_err(Error::system("cannot name the job's meeting place"))?;
    let (region, missing) = if place.rank == Rank(0) {
        let region = create(bytes)?;
        let missing = serve_segment(place, &address, &region, limit)?;
        (region, missing)
    } else {
        (fetch_segment(place, &address, limit)?, None)
    };
    if region.len() < bytes {
        let problem = "the job's segment has another size; start all ranks with the same version and size";
        return Err(Error::Job(problem.to_owned()));
    }
    HostMembers::join(region, place.rank, place.size, if missing.is_some() { start } else { limit })
}

/// The time limit has passed; the segment's lines show which ranks are missing.
struct RanksMissing;

/// Sends the segment, as rank 0, to every process with the key, until all ranks have asked or the time limit
/// has passed.
fn serve_segment(
    place: &JobMembership,
    address: &SocketAddr,
    region: &SharedMemory,
    limit: Instant,
) -> Result<Option<RanksMissing>, Error> {
    let mut came = vec![false; place.size];
    came[0] = true;
    if place.size == 1 {
        return Ok(None);
    }
    let failed = || Error::system("cannot listen for the other ranks");
    let listener = UnixListener::bind_addr(address).map_err(|source| match source.kind() {
        ErrorKind::AddrInUse => {
            Error::Job("rank 0 is taken; give every process a rank of its own, and every job a key".into())
        }
        _ => failed()(source),
    })?;
    listener.set_nonblocking(true).map_err(failed())?;
    while came.contains(&false) {
        match listener.accept() {
            Ok((stream, _)) => {
                // A process that violates the protocol is no member. The caller names missing members.
                if let Ok(Some(rank)) = answer_hello(&stream, place, region) {
                    came[rank.index()] = true;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if now() >= limit {
                    return Ok(Some(RanksMissing));
                }
                thread::sleep(POLL_INTERVAL.into());
            }
            Err(error) => return Err(failed()(error)),
        }
    }
    Ok(None)
}

/// Answers a process that has connected. Returns its rank, if it is a member.
fn answer_hello(
    stream: &UnixStream,
    place: &JobMembership,
    region: &SharedMemory,
) -> io::Result<Option<Rank>> {
    let who = peer(stream)?;
    if who.user != own_user() {
        return Ok(None);
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(HELLO_TIMEOUT.into()))?;
    let mut bytes = [0; HELLO];
    (&*stream).read_exact(&mut bytes)?;
    // A process without the whole key gets no answer.
    let Some(hello) = Hello::decode(&bytes).filter(|hello| hello.key == place.key) else { return Ok(None) };
    let size = u32::try_from(place.size).unwrap_or(u32::MAX);
    let answer = if hello.size != size || hello.rank >= size {
        RendezvousAnswer::WrongSize
    } else if hello.process != who.process {
        RendezvousAnswer::OtherNamespace
    } else {
        RendezvousAnswer::Welcome
    };
    let mut reply = [0; REPLY];
    reply[0] = answer as u8;
    reply[4..].copy_from_slice(&size.to_le_bytes());
    if answer != RendezvousAnswer::Welcome {
        (&*stream).write_all(&reply)?;
        return Ok(None);
    }
    send_with(stream, &reply, region.as_fd())?;
    Ok(Some(Rank(hello.rank)))
}

/// Fetches the segment from rank 0 as soon as rank 0 listens. All ranks but rank 0 call this.
fn fetch_segment(place: &JobMembership, address: &SocketAddr, limit: Instant) -> Result<SharedMemory, Error> {
    let failed = || Error::system("cannot reach rank 0");
    let timed_out =
        || Error::TimedOut { call: CALL, waiting_for: "rank 0, which makes the job's segment".to_owned() };
    loop {
        match UnixStream::connect_addr(address) {
            Ok(stream) => {
                let who = peer(&stream).map_err(failed())?;
                if who.user != own_user() {
                    let user = who.user;
                    let problem = format!("user {user} sits at this job's meeting place; take another key");
                    return Err(Error::Job(problem));
                }
                match request_segment(&stream, place, limit) {
                    // The process that listened has ended meanwhile; rank 0 may still start to listen.
                    Err(Error::System { source, .. }) if is_transient(source.kind()) => {}
                    answer => return answer,
                }
            }
            Err(error) if is_transient(error.kind()) => {}
            Err(error) => return Err(failed()(error)),
        }
        if now() >= limit {
            return Err(timed_out());
        }
        thread::sleep(POLL_INTERVAL.into());
    }
}

/// Whether another attempt may succeed.
fn is_transient(kind: ErrorKind) -> bool {
    use ErrorKind as K;
    matches!(
        kind,
        K::ConnectionRefused
            | K::WouldBlock
            | K::TimedOut
            | K::UnexpectedEof
            | K::BrokenPipe
            | K::ConnectionReset
    )
}

fn request_segment(
    mut stream: &UnixStream,
    place: &JobMembership,
    limit: Instant,
) -> Result<SharedMemory, Error> {
    let failed = || Error::system("rank 0 does not answer");
    // A timeout of zero would mean no timeout.
    let left = (limit - now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left.into())).map_err(failed())?;
    stream.write_all(&Hello::own(place).encode()).map_err(failed())?;
    let mut reply = [0; REPLY];
    let descriptor = receive_with(stream, &mut reply).map_err(failed())?;
    let size = u32::from_le_bytes([reply[4], reply[5], reply[6], reply[7]]);
    let rank = place.rank;
    let problem = match (reply[0], descriptor) {
        (code, Some(descriptor)) if code == RendezvousAnswer::Welcome as u8 => {
            return SharedMemory::from_descriptor(descriptor)
                .map_err(Error::system("cannot map the job's segment"));
        }
        (code, _) if code == RendezvousAnswer::WrongSize as u8 => {
            format!("rank {rank} says that the job has {}, rank 0 says {size}", counted(place.size, "rank"))
        }
        (code, _) if code == RendezvousAnswer::OtherNamespace as u8 => {
            "this process and rank 0 are in different process namespaces; use the TCP transport".to_owned()
        }
        (code, _) => format!("rank 0 answered {code}; start all ranks with the same version"),
    };
    Err(Error::Job(problem))
}
