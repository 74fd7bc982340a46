//! How processes that nobody forked together find each other's memory.
//!
//! Rank 0 makes the segment and listens on an abstract socket whose name is half of the job's key; whoever
//! connects shows the other half and is told where the segment is (`/proc/PID/fd/N` of rank 0, which the kernel
//! opens for the same user only). When everybody has come the socket is closed; it never had a name in a file
//! system. Cost: a few hundred microseconds, once. When not to use: between hosts, or between process
//! namespaces that do not see each other's numbers. Reference: unix(7), proc_pid_fd(5).

use super::{Host, create, open};
use crate::error::Error;
use crate::job::Place;
use crate::rank::Rank;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use unisono_linux::shared_memory::SharedMemory;

/// Halves of the key.
const HALF: usize = 8;

/// How long one connection may take to say who it is.
const GREETING: Duration = Duration::from_secs(2);

/// Finds the others and takes this process's place among them. `bytes`: the segment's size, which all members
/// compute alike.
pub(crate) fn meet(place: &Place, bytes: usize, patience: Duration) -> Result<Host, Error> {
    let start = Instant::now();
    let address = address(place)?;
    let region = if place.rank == Rank(0) {
        let region = create(bytes)?;
        if place.size > 1 {
            invite(place, &address, &region, patience)?;
        }
        region
    } else {
        let path = ask(place, &address, patience)?;
        let region = open(&path)?;
        if region.len() < bytes {
            let problem =
                "the job's segment has another size; start all ranks with the same version and size";
            return Err(Error::Job(problem.to_owned()));
        }
        region
    };
    Host::join(region, place.rank, place.size, patience.saturating_sub(start.elapsed()))
}

fn address(place: &Place) -> Result<SocketAddr, Error> {
    let name: String = place.key.bytes()[..HALF].iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddr::from_abstract_name(format!("unisono-{name}"))
        .map_err(Error::system("cannot name the job's socket"))
}

/// Rank 0: tells everybody who knows the key where the segment is, until all have asked.
fn invite(
    place: &Place,
    address: &SocketAddr,
    region: &SharedMemory,
    patience: Duration,
) -> Result<(), Error> {
    let failed = || Error::system("cannot listen for the other ranks (is another job using this key?)");
    let listener = UnixListener::bind_addr(address).map_err(failed())?;
    listener.set_nonblocking(true).map_err(failed())?;
    let path = region.path();
    let limit = Instant::now() + patience;
    let mut came = vec![false; place.size];
    came[0] = true;
    while let Some(missing) = came.iter().position(|came| !came) {
        match listener.accept() {
            Ok((stream, _)) => {
                // Whoever says something else, or nothing, is no member.
                if let Ok(rank) = greet(&stream, place, &path)
                    && let Some(came) = came.get_mut(rank.index())
                {
                    *came = true;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= limit {
                    let waiting_for = format!("rank {missing} of {}", place.size);
                    return Err(Error::TimedOut { call: "joining the job", waiting_for });
                }
                thread::sleep(Duration::from_micros(500));
            }
            Err(error) => return Err(failed()(error)),
        }
    }
    Ok(())
}

fn greet(mut stream: &UnixStream, place: &Place, path: &std::path::Path) -> io::Result<Rank> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(GREETING))?;
    let mut greeting = [0; HALF + 4];
    stream.read_exact(&mut greeting)?;
    let (proof, rank) = greeting.split_at(HALF);
    if proof != &place.key.bytes()[HALF..] {
        return Err(io::Error::other("it does not know the key"));
    }
    let rank = rank.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    stream.write_all(path.as_os_str().as_encoded_bytes())?;
    Ok(Rank(rank))
}

/// Everybody else: asks rank 0 where the segment is, as soon as it listens.
fn ask(place: &Place, address: &SocketAddr, patience: Duration) -> Result<PathBuf, Error> {
    let limit = Instant::now() + patience;
    loop {
        let path = UnixStream::connect_addr(address).and_then(|mut stream| {
            stream.write_all(&place.key.bytes()[HALF..])?;
            stream.write_all(&place.rank.0.to_le_bytes())?;
            stream.set_read_timeout(Some(GREETING))?;
            let mut path = String::new();
            stream.take(256).read_to_string(&mut path)?;
            if path.is_empty() { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(path) }
        });
        match path {
            Ok(path) => return Ok(PathBuf::from(path)),
            Err(_) if Instant::now() < limit => thread::sleep(Duration::from_micros(500)),
            Err(_) => {
                let waiting_for = "rank 0, which makes the job's segment".to_owned();
                return Err(Error::TimedOut { call: "joining the job", waiting_for });
            }
        }
    }
}
