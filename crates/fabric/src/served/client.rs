//! A process's connection to the helper of its host.

use super::member::SwitchMember;
use super::message::{self, HELPER_NAME, HelperAnswer, HelperOffer, HelperRequest, PREFIX};
use crate::error::Error;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;
use unisono_btin::{GroupId, NodeId};
use unisono_linux::local_socket::{peer, receive_with};
use unisono_linux::packet::PacketSocket;

/// The time limit for an answer. A helper answers for its switches after ten seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection to the helper. Dropped, it returns the registers of its group.
#[derive(Debug)]
pub struct HelperConnection {
    stream: UnixStream,
    offer: HelperOffer,
}

/// The answer to a claim.
#[derive(Debug)]
pub enum GroupClaim {
    /// The registers that this host sets up are there.
    Granted(SwitchMember),
    /// Another group has one of these registers.
    Taken,
    /// The helper could not claim the registers. The text is its reason.
    Failed(String),
}

impl HelperConnection {
    /// Connects to the helper. `None`: this network namespace has none. Fails if the helper refuses this
    /// user, and if the process there is not root's.
    pub fn open() -> Result<Option<Self>, Error> {
        let address = SocketAddr::from_abstract_name(HELPER_NAME).map_err(Error::io("name the helper"))?;
        let stream = match UnixStream::connect_addr(&address) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => return Err(Error::io("connect to the helper of the switches")(error)),
        };
        let other = peer(&stream).map_err(Error::io("learn whose process the helper is"))?;
        if other.user != 0 {
            return Err(Error::Host(format!(
                "process {} of user {} pretends to be the helper of the switches; end it",
                other.process, other.user
            )));
        }
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(Error::io("set a timer"))?;
        match receive(&stream)? {
            (HelperAnswer::Welcome(offer), _) => Ok(Some(Self { stream, offer })),
            (HelperAnswer::Refused { why }, _) => Err(Error::Host(why)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    pub fn offer(&self) -> &HelperOffer {
        &self.offer
    }

    /// Claims this host's part of the registers of a group, whose barriers begin with the episode `first`.
    /// All hosts of the group have to claim the same. Waits until the switches have answered.
    pub fn claim(&mut self, group: GroupId, first: u16, members: &[NodeId]) -> Result<GroupClaim, Error> {
        let claim = HelperRequest::Claim {
            group: group.0,
            first,
            members: members.iter().map(|node| node.0).collect(),
        };
        match self.ask(&claim)? {
            (HelperAnswer::Claimed, Some(socket)) => {
                let socket = PacketSocket::from(socket);
                Ok(GroupClaim::Granted(SwitchMember::new(socket, group, first, members.len())))
            }
            (HelperAnswer::Taken, _) => Ok(GroupClaim::Taken),
            (HelperAnswer::Failed { why }, _) => Ok(GroupClaim::Failed(why)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Returns the registers at once.
    pub fn give_back(&mut self) -> Result<(), Error> {
        match self.ask(&HelperRequest::Return)? {
            (HelperAnswer::Returned, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Leaves the group, whose barriers before this episode are over for this process. Does not wait for
    /// other members: the helper returns the registers when all members have left.
    pub fn leave(mut self, episode: u16) {
        // if it fails, the helper has ended, and with it the switches
        let _ = self.send(&HelperRequest::Leave { episode });
    }

    /// Names the nodes and links that hold up the group's barrier.
    pub fn suspects(&mut self) -> Result<Vec<String>, Error> {
        match self.ask(&HelperRequest::Suspects)? {
            (HelperAnswer::Suspects { named }, _) => Ok(named),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, request: &HelperRequest) -> Result<(HelperAnswer, Option<OwnedFd>), Error> {
        self.send(request)?;
        receive(&self.stream)
    }

    fn send(&mut self, request: &impl Serialize) -> Result<(), Error> {
        self.stream.write_all(&message::encode(request)).map_err(Error::io("ask the helper of the switches"))
    }
}

fn receive(stream: &UnixStream) -> Result<(HelperAnswer, Option<OwnedFd>), Error> {
    let read = || {
        let mut prefix = [0; PREFIX];
        let came = receive_with(stream, &mut prefix)?;
        let mut text = vec![0; message::length(prefix)?];
        receive_with(stream, &mut text)?;
        Ok((serde_json::from_slice(&text)?, came))
    };
    read().map_err(Error::io("hear from the helper of the switches"))
}

fn unexpected(answer: &HelperAnswer) -> Error {
    Error::Barrier(format!(
        "the helper of the switches answers {answer:?}; start it and the program by the same version of unisono"
    ))
}
