//! The congestion control of TCP connections: which one this user can have.

use super::NoResult;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::net::{Ipv4Addr, TcpListener};

/// Whether connections of this user can have a congestion control.
pub(super) fn choose(name: &str) -> Result<(), NoResult> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .map_err(|error| NoResult::Failed(format!("no socket: {error}")))?;
    sockopt::set_tcp_congestion(&socket, name).map_err(|error| refused(name, error))
}

fn refused(name: &str, error: Errno) -> NoResult {
    match error {
        Errno::PERM => NoResult::Skipped(format!(
            "only root may choose the congestion control {name} here; run it as root, or add {name} to \
             /proc/sys/net/ipv4/tcp_allowed_congestion_control"
        )),
        Errno::NOENT => NoResult::Skipped(format!(
            "this kernel has no congestion control {name}; load it: modprobe tcp_{name}"
        )),
        _ => NoResult::Failed(format!("congestion control {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_that_this_user_cannot_have_skips_a_run() {
        for (error, remedy) in [(Errno::PERM, "run it as root"), (Errno::NOENT, "modprobe tcp_cubic")] {
            match refused("cubic", error) {
                NoResult::Skipped(said) => assert!(said.contains(remedy), "{said}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(refused("cubic", Errno::INVAL), NoResult::Failed(_)));
        assert!(matches!(choose("no-such-control"), Err(NoResult::Skipped(_))));
    }
}
