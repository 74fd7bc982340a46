//! The client's end of the daemon's socket: one request, one reply.

use super::request::{GangRefusal, GangRefusalKind, GangTarget, ServiceReply, ServiceRequest};
use crate::error::{Error, GangHint, Result, system};
use crate::journal;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use unisono_linux::affinity::Tid;

/// Timeout of a request. A daemon answers within milliseconds; moving thousands of processes takes seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of a reply: a list of the maximum number of gangs takes a tenth of this.
const MAX_ANSWER: u64 = 4 << 20;

/// Makes a target of the process that has this number now.
pub fn process(number: u32) -> Result<GangTarget> {
    let started = i32::try_from(number).ok().and_then(|number| journal::start_time(Tid(number)));
    let started =
        started.ok_or_else(|| Error::Input(format!("there is no process {number}; list them: ps -e")))?;
    Ok(GangTarget::Process { number, started })
}

/// Sends a request to the daemon that listens at this path.
pub fn ask(socket: &Path, request: &ServiceRequest) -> Result<ServiceReply> {
    let place = socket.display();
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            Error::Host(format!("no gang daemon answers at {place}")).hinting(GangHint::StartDaemon)
        }
        ErrorKind::PermissionDenied => {
            Error::Host(format!("this user may not connect to {place}")).hinting(GangHint::OpenDaemon)
        }
        _ => Error::Host(format!("cannot connect to {place}: {error}")),
    })?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(system("wait for the daemon"))?;
    let mut line = serde_json::to_vec(request).map_err(|error| system("write the request")(error.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(system("write to the daemon"))?;
    let mut answer = Vec::new();
    let mut reader = BufReader::new(stream.take(MAX_ANSWER));
    reader.read_until(b'\n', &mut answer).map_err(system("read the daemon's answer"))?;
    match serde_json::from_slice(&answer) {
        Ok(ServiceReply::Refused(refusal)) => Err(refused(refusal)),
        Ok(reply) => Ok(reply),
        Err(_) => {
            Err(Error::Host(format!("the daemon at {place} ended, or is no gang daemon of this version")))
        }
    }
}

fn refused(refusal: GangRefusal) -> Error {
    match refusal.kind {
        GangRefusalKind::Host | GangRefusalKind::NotAllowed => Error::Host(refusal.message),
        GangRefusalKind::Unknown => Error::Input(refusal.message).hinting(GangHint::ListGangs),
        _ => Error::Input(refusal.message),
    }
}
