//! Admission of processes to a job: mutual challenge and response, without sockets.
//!
//! Each side proves that it knows the job's key by a MAC (HMAC-SHA-256) over all earlier messages, which
//! include both ranks, both sizes and a new random number of each side. The key itself never travels.
//! `PROTOCOL.md` has the picture and the attacks that this prevents.
//!
//! Cost: three messages of fixed length and one byte a connection, once; four hashes of less than 200 bytes.
//! A process that has proved nothing yet costs the acceptor [`HELLO`] + [`PROOF`] bytes of memory. Reference:
//! RFC 2104 (HMAC); Bellare and Rogaway, CRYPTO 1993 (mutual authentication, MAP1).

use crate::model::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// First bytes of every connection; the digit is the version of the protocol.
const MAGIC: [u8; 8] = *b"unisono1";

/// A fresh random number.
pub(super) type Nonce = [u8; 32];

/// Bytes of the connector's first message: magic, its rank, the rank that it wants to reach, the job's size,
/// its nonce.
pub(super) const HELLO: usize = 8 + 4 + 4 + 4 + 32;
/// Bytes of the acceptor's answer: its rank, the job's size, its nonce, its MAC.
pub(super) const CHALLENGE: usize = 4 + 4 + 32 + 32;
/// Bytes of the connector's second message: its listening address, its MAC.
pub(super) const PROOF: usize = ADDRESS + 32;
/// Bytes of an address: family, 16 bytes, port.
pub(super) const ADDRESS: usize = 1 + 16 + 2;

const BY_ACCEPTOR: &[u8] = b"unisono tcp acceptor";
const BY_CONNECTOR: &[u8] = b"unisono tcp connector";

/// The acceptor's last message: one byte, sent only to a connector that knows the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum JoinVerdict {
    Welcome = 1,
    Taken = 2,
    /// The ranks or sizes of the two sides do not match.
    Misplaced = 3,
}

impl JoinVerdict {
    pub(super) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Welcome),
            2 => Some(Self::Taken),
            3 => Some(Self::Misplaced),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it does not speak this version of the protocol")]
    Foreign,
    #[error("it does not know the job's key")]
    Key,
    #[error("rank {rank} of {size} answers there, rank {wanted} of {wanted_size} was wanted")]
    Elsewhere { rank: u32, size: u32, wanted: u32, wanted_size: u32 },
    #[error("the address it gave makes no sense")]
    Address,
}

/// One side's own data for a handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalIdentity<'a> {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) key: &'a Key,
    pub(super) nonce: Nonce,
}

fn mac(key: &Key, parts: [&[u8]; 4]) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key.bytes())
        .expect("HMAC takes keys of every length because longer ones are hashed");
    parts.into_iter().for_each(|part| mac.update(part));
    mac
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The connector's side: its hello, kept for the MACs.
#[derive(Debug)]
pub(super) struct Connector<'a> {
    own: LocalIdentity<'a>,
    wanted: u32,
    hello: [u8; HELLO],
}

impl<'a> Connector<'a> {
    pub(super) fn new(own: LocalIdentity<'a>, wanted: u32) -> Self {
        let mut hello = [0; HELLO];
        hello[..8].copy_from_slice(&MAGIC);
        hello[8..12].copy_from_slice(&own.rank.to_le_bytes());
        hello[12..16].copy_from_slice(&wanted.to_le_bytes());
        hello[16..20].copy_from_slice(&own.size.to_le_bytes());
        hello[20..].copy_from_slice(&own.nonce);
        Self { own, wanted, hello }
    }

    pub(super) const fn hello(&self) -> &[u8; HELLO] {
        &self.hello
    }

    /// Checks the acceptor's proof; returns this side's proof.
    pub(super) fn prove(
        &self,
        challenge: &[u8; CHALLENGE],
        listens_at: SocketAddr,
    ) -> Result<[u8; PROOF], Refusal> {
        let (sender_fields, proof) = challenge.split_at(40);
        mac(self.own.key, [BY_ACCEPTOR, &self.hello, sender_fields, &[]])
            .verify_slice(proof)
            .map_err(|_| Refusal::Key)?;
        let (rank, size) = (number(sender_fields, 0), number(sender_fields, 4));
        if (rank, size) != (self.wanted, self.own.size) {
            return Err(Refusal::Elsewhere { rank, size, wanted: self.wanted, wanted_size: self.own.size });
        }
        let address = write_address(listens_at);
        let mut answer = [0; PROOF];
        answer[..ADDRESS].copy_from_slice(&address);
        let own = mac(self.own.key, [BY_CONNECTOR, &self.hello, challenge, &address]);
        answer[ADDRESS..].copy_from_slice(&own.finalize().into_bytes());
        Ok(answer)
    }
}

/// A process that has proved that it knows the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JoinRequest {
    pub(super) rank: u32,
    /// The rank that the process wanted to reach, and the size of the process's job.
    pub(super) wanted: (u32, u32),
    pub(super) listens_at: SocketAddr,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum AcceptorStep {
    Read,
    Send([u8; CHALLENGE]),
    /// The connector has proved the key: send a verdict.
    Judge(JoinRequest),
}

/// The acceptor's side: takes bytes as they arrive, in fixed memory.
#[derive(Debug)]
pub(super) struct Acceptor {
    received: [u8; HELLO + PROOF],
    filled: usize,
    challenge: [u8; CHALLENGE],
}

impl Acceptor {
    pub(super) const fn new() -> Self {
        Self { received: [0; HELLO + PROOF], filled: 0, challenge: [0; CHALLENGE] }
    }

    /// Returns the memory for the next bytes, never more than the rest of the message that is due.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let end = if self.filled < HELLO { HELLO } else { HELLO + PROOF };
        &mut self.received[self.filled..end]
    }

    /// Processes `bytes` bytes that were read into [`room`](Self::room).
    pub(super) fn took(&mut self, bytes: usize, own: &LocalIdentity<'_>) -> Result<AcceptorStep, Refusal> {
        let before = self.filled;
        self.filled += bytes;
        let (hello, proof) = self.received.split_at(HELLO);
        let known = self.filled.min(MAGIC.len());
        if hello[..known] != MAGIC[..known] {
            return Err(Refusal::Foreign);
        }
        if before < HELLO && self.filled == HELLO {
            self.challenge[..4].copy_from_slice(&own.rank.to_le_bytes());
            self.challenge[4..8].copy_from_slice(&own.size.to_le_bytes());
            self.challenge[8..40].copy_from_slice(&own.nonce);
            let proof = mac(own.key, [BY_ACCEPTOR, hello, &self.challenge[..40], &[]]);
            self.challenge[40..].copy_from_slice(&proof.finalize().into_bytes());
            return Ok(AcceptorStep::Send(self.challenge));
        }
        if self.filled < HELLO + PROOF {
            return Ok(AcceptorStep::Read);
        }
        let (address, proof) = proof.split_at(ADDRESS);
        mac(own.key, [BY_CONNECTOR, hello, &self.challenge, address])
            .verify_slice(proof)
            .map_err(|_| Refusal::Key)?;
        let listens_at = read_address(address).ok_or(Refusal::Address)?;
        let wanted = (number(hello, 12), number(hello, 16));
        Ok(AcceptorStep::Judge(JoinRequest { rank: number(hello, 8), wanted, listens_at }))
    }
}

/// Encodes an address. Scopes of link-local addresses have no meaning on other hosts and are left out.
pub(super) fn write_address(address: SocketAddr) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[1..5].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[1..17].copy_from_slice(&ip.octets());
        }
    }
    bytes[17..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

pub(super) fn read_address(bytes: &[u8]) -> Option<SocketAddr> {
    let bytes: &[u8; ADDRESS] = bytes.try_into().ok()?;
    let [family, ip @ .., low, high] = *bytes;
    let ip: [u8; 16] = ip;
    let ip = match family {
        4 if ip[4..] == [0; 12] => IpAddr::V4(Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3])),
        6 => IpAddr::V6(Ipv6Addr::from(ip)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_le_bytes([low, high])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key::from_bytes([7; 16]);

    fn own(rank: u32, key: &Key, seed: u8) -> LocalIdentity<'_> {
        LocalIdentity { rank, size: 4, key, nonce: [seed; 32] }
    }

    fn address() -> SocketAddr {
        "[fe80::1]:7000".parse().expect("an address")
    }

    fn feed(
        acceptor: &mut Acceptor,
        own: &LocalIdentity<'_>,
        bytes: &[u8],
        step: usize,
    ) -> Result<AcceptorStep, Refusal> {
        let mut next = AcceptorStep::Read;
        for piece in bytes.chunks(step) {
            acceptor.room()[..piece.len()].copy_from_slice(piece);
            next = acceptor.took(piece.len(), own)?;
        }
        Ok(next)
    }

    /// Runs a whole handshake; `meddle` may change each message on its way.
    fn shake(
        keys: [&Key; 2],
        wanted: u32,
        mut meddle: impl FnMut(usize, &mut [u8]),
    ) -> Result<JoinRequest, Refusal> {
        let (near, far) = (own(2, keys[0], 1), own(1, keys[1], 2));
        let connector = Connector::new(near, wanted);
        let mut hello = *connector.hello();
        meddle(0, &mut hello);
        let mut acceptor = Acceptor::new();
        let AcceptorStep::Send(mut challenge) = feed(&mut acceptor, &far, &hello, 7)? else {
            panic!("a hello is answered by a challenge")
        };
        meddle(1, &mut challenge);
        let mut proof = connector.prove(&challenge, address())?;
        meddle(2, &mut proof);
        match feed(&mut acceptor, &far, &proof, 13)? {
            AcceptorStep::Judge(guest) => Ok(guest),
            other => panic!("a proof is judged, not {other:?}"),
        }
    }

    #[test]
    fn two_who_know_the_key_learn_each_others_rank_and_address() {
        let guest = shake([&KEY, &KEY], 1, |_, _| ()).expect("both know the key");
        assert_eq!(guest, JoinRequest { rank: 2, wanted: (1, 4), listens_at: address() });
    }

    #[test]
    fn another_key_is_noticed_by_both_sides() {
        let other = Key::from_bytes([8; 16]);
        assert_eq!(shake([&KEY, &other], 1, |_, _| ()), Err(Refusal::Key), "the connector checks first");
        // a connector that does not check cannot prove anything either
        let far = own(1, &KEY, 2);
        let mut acceptor = Acceptor::new();
        let blind = Connector::new(own(2, &other, 1), 1);
        assert!(matches!(feed(&mut acceptor, &far, blind.hello(), HELLO), Ok(AcceptorStep::Send(_))));
        assert_eq!(feed(&mut acceptor, &far, &[0; PROOF], PROOF), Err(Refusal::Key));
    }

    #[test]
    fn the_wrong_rank_at_an_address_is_named() {
        let wrong = shake([&KEY, &KEY], 3, |_, _| ()).expect_err("rank 1 answers");
        assert_eq!(wrong, Refusal::Elsewhere { rank: 1, size: 4, wanted: 3, wanted_size: 4 });
    }

    #[test]
    fn a_replayed_handshake_fails_because_the_acceptors_number_is_new() {
        let connector = Connector::new(own(2, &KEY, 1), 1);
        let mut first = Acceptor::new();
        let then = own(1, &KEY, 2);
        let Ok(AcceptorStep::Send(challenge)) = feed(&mut first, &then, connector.hello(), HELLO) else {
            panic!("challenged")
        };
        let proof = connector.prove(&challenge, address()).expect("knows the key");
        assert!(matches!(feed(&mut first, &then, &proof, PROOF), Ok(AcceptorStep::Judge(_))));
        let (mut second, now) = (Acceptor::new(), own(1, &KEY, 3));
        assert!(matches!(feed(&mut second, &now, connector.hello(), HELLO), Ok(AcceptorStep::Send(_))));
        assert_eq!(feed(&mut second, &now, &proof, PROOF), Err(Refusal::Key));
    }

    #[test]
    fn an_acceptors_proof_sent_back_to_it_proves_nothing() {
        let far = own(1, &KEY, 2);
        let mut acceptor = Acceptor::new();
        let hello = *Connector::new(own(2, &KEY, 1), 1).hello();
        let Ok(AcceptorStep::Send(challenge)) = feed(&mut acceptor, &far, &hello, HELLO) else {
            panic!("challenged")
        };
        let mut mirrored = [0; PROOF];
        mirrored[..ADDRESS].copy_from_slice(&write_address(address()));
        mirrored[ADDRESS..].copy_from_slice(&challenge[40..]);
        assert_eq!(feed(&mut acceptor, &far, &mirrored, PROOF), Err(Refusal::Key));
    }

    proptest! {
        #[test]
        fn any_single_byte_changed_on_the_way_is_noticed(
            message in 0_usize..3,
            at in any::<prop::sample::Index>(),
            change in 1_u8..,
        ) {
            let result = shake([&KEY, &KEY], 1, |index, bytes| {
                if index == message {
                    bytes[at.index(bytes.len())] ^= change;
                }
            });
            prop_assert!(result.is_err(), "{result:?}");
        }

        #[test]
        fn addresses_survive_the_journey(v6 in any::<Option<u128>>(), v4 in any::<u32>(), port in any::<u16>()) {
            let ip = v6.map_or(IpAddr::V4(Ipv4Addr::from(v4)), |ip| IpAddr::V6(Ipv6Addr::from(ip)));
            let address = SocketAddr::new(ip, port);
            prop_assert_eq!(read_address(&write_address(address)), Some(address));
        }
    }
}
