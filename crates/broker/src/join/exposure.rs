//! Exposure of a join's endpoints: a program that connects to one publishes at the brokers of all joined
//! hosts.
//!
//! Endpoints have zenoh's syntax: `PROTOCOL/ADDRESS`, with `?METADATA` and `#CONFIG` behind it.

use std::net::SocketAddr;

/// Whether other joins have to authenticate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinProof {
    /// By a certificate of an authority, or by a password.
    Asked,
    NotAsked,
}

/// An endpoint that any host can join without authentication.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{endpoint} can be reached from other hosts, and whoever reaches it may publish and subscribe here; listen with tls/ \
     and ask for certificates (transport/link/tls/enable_mtls in the file of --zenoh-config), listen at a loopback \
     address, or say --insecure"
)]
pub struct ExposedJoin {
    pub endpoint: String,
}

/// Checks the endpoints at which a join listens.
///
/// # Errors
/// The first endpoint that other hosts reach without authentication, or without encryption.
pub fn check_join_exposure<'a>(
    endpoints: impl IntoIterator<Item = &'a str>,
    proof: JoinProof,
) -> Result<(), ExposedJoin> {
    match endpoints.into_iter().find(|endpoint| is_exposed(endpoint, proof)) {
        Some(endpoint) => Err(ExposedJoin { endpoint: endpoint.to_owned() }),
        None => Ok(()),
    }
}

fn is_exposed(endpoint: &str, proof: JoinProof) -> bool {
    // zenoh refuses unreadable endpoints; this check does not treat them as safe
    let Some((protocol, rest)) = endpoint.split_once('/') else { return true };
    let address = rest.split(['?', '#']).next().unwrap_or(rest);
    match protocol {
        // a name in the file system, whose mode decides which users may connect
        "unixsock-stream" | "unixpipe" => false,
        "tls" | "quic" if proof == JoinProof::Asked => false,
        _ => !is_loopback(address),
    }
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host == "localhost"
        || address.parse::<SocketAddr>().is_ok_and(|address| address.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_beyond_loopback_needs_encryption_and_proof() {
        let refused = |endpoint: &str, proof| check_join_exposure([endpoint], proof).is_err();
        for safe in [
            "tcp/127.0.0.1:7447",
            "tcp/[::1]:7447",
            "udp/127.9.9.9:1#iface=lo",
            "tcp/localhost:7447",
            "tls/127.0.0.1:7447",
            "unixsock-stream//run/join",
        ] {
            assert!(!refused(safe, JoinProof::NotAsked), "{safe}");
        }
        for open in [
            "tcp/0.0.0.0:7447",
            "tcp/[::]:0",
            "tcp/10.0.0.1:7447",
            "udp/10.0.0.1:7447",
            "tcp/host.example:7447",
            "tcp/localhost.example:7447",
            "tls/10.0.0.1:7447",
            "vsock/2:7447",
            "nonsense",
        ] {
            assert!(refused(open, JoinProof::NotAsked), "{open}");
        }
        assert!(!refused("tls/10.0.0.1:7447", JoinProof::Asked));
        assert!(!refused("quic/10.0.0.1:7447", JoinProof::Asked));
        assert!(refused("tcp/10.0.0.1:7447", JoinProof::Asked), "a password would cross the network");
        let why = check_join_exposure(["tcp/127.0.0.1:1", "tcp/10.0.0.1:2"], JoinProof::NotAsked);
        assert!(why.is_err_and(|why| why.to_string().starts_with("tcp/10.0.0.1:2 can be reached")));
    }
}
