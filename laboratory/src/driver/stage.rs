//! Two network namespaces with a cable between them, removed with the run.
//!
//! The thread that creates them belongs to one run and ends with it. Programs that it starts are in its
//! current namespace. Without root, all of this happens inside the user namespace that the study created at
//! its start.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use unisono_linux::netlink::link::{self, Device, Index, LinkState};
use unisono_linux::netlink::{NetlinkSocket, address, token_bucket};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_study::driver::NoResult;

/// The name of the device at both ends of the cable.
pub(super) const CABLE: &str = "cable";
const INDEX: Index = Index(2);
pub(super) const SENDER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
pub(super) const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);

pub(super) struct LinkStage {
    senders: NetworkNamespace,
    receiver: NetworkNamespace,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cable {
    /// The cable has no rate of its own; another component limits the rate.
    Free,
    /// The rate in bits per second, first in first out. The queue is as long as a network card's queue.
    Link(u64),
    /// A link of the same rate in the other direction as well.
    Duplex(u64),
}

impl Cable {
    const fn bits_per_s(self) -> Option<u64> {
        match self {
            Self::Free => None,
            Self::Link(rate) | Self::Duplex(rate) => Some(rate),
        }
    }
}

impl LinkStage {
    /// Creates both namespaces. Afterwards, the calling thread is in the senders' namespace.
    pub(super) fn set(cable: Cable) -> Result<Self, NoResult> {
        let host = |error: std::io::Error| {
            NoResult::Skipped(match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "it makes network namespaces and a link between them, \
                     which needs root, or a user namespace, which this host does not allow; run it as root"
                        .to_owned()
                }
                _ => format!("no network namespaces here: {error}"),
            })
        };
        let receiver = NetworkNamespace::create().map_err(host)?;
        let senders = NetworkNamespace::create().map_err(host)?;
        let stage = Self { senders, receiver };
        stage.wire(cable)?;
        Ok(stage)
    }

    fn wire(&self, cable: Cable) -> Result<(), NoResult> {
        let failed = |error: std::io::Error| NoResult::Failed(format!("no netlink socket: {error}"));
        let refused = |error: unisono_linux::netlink::Refused| NoResult::Failed(error.to_string());
        let end = |namespace: &'_ NetworkNamespace, last| (namespace.as_fd().try_clone_to_owned(), last);
        let (near, far) = (end(&self.senders, 1), end(&self.receiver, 2));
        let (near_fd, far_fd) = (near.0.map_err(failed)?, far.0.map_err(failed)?);
        let device = |namespace, last| Device {
            namespace,
            name: CABLE.to_owned(),
            index: Some(INDEX),
            address: [2, 0, 0, 98, 0, last],
        };
        let mut here = NetlinkSocket::open().map_err(failed)?;
        let pair = link::veth(&device(near_fd.as_fd(), near.1), &device(far_fd.as_fd(), far.1));
        here.run(&[pair]).map_err(refused)?;
        let up = |own: Ipv4Addr| {
            [
                link::resolving(INDEX),
                address::add(INDEX, own, 24),
                link::set(INDEX, LinkState::Up),
                link::set(Index::LOOPBACK, LinkState::Up),
            ]
        };
        here.run(&up(SENDER)).map_err(refused)?;
        if let Some(bits_per_s) = cable.bits_per_s() {
            limit_rate(&mut here, bits_per_s)?;
        }
        self.at_the_receiver(|| {
            let mut there = NetlinkSocket::open().map_err(failed)?;
            there.run(&up(RECEIVER)).map_err(refused)?;
            match cable {
                Cable::Duplex(bits_per_s) => limit_rate(&mut there, bits_per_s),
                Cable::Free | Cable::Link(_) => Ok(()),
            }
        })
    }

    /// Returns files that name the namespaces, the senders' first, as long as this value lives. Another
    /// process of the user can enter the namespaces by them.
    pub(super) fn files(&self) -> [PathBuf; 2] {
        let file = |namespace: &NetworkNamespace| {
            // this process's own number: it lives as long as the file has to
            let own = Path::new("/proc").join(std::process::id().to_string());
            own.join("fd").join(namespace.as_fd().as_raw_fd().to_string())
        };
        [file(&self.senders), file(&self.receiver)]
    }

    /// Calls `act` in the receiver's namespace.
    pub(super) fn at_the_receiver<T>(
        &self,
        act: impl FnOnce() -> Result<T, NoResult>,
    ) -> Result<T, NoResult> {
        let moved = |error: std::io::Error| NoResult::Failed(format!("cannot change the namespace: {error}"));
        self.receiver.enter().map_err(moved)?;
        let done = act();
        self.senders.enter().map_err(moved)?;
        done
    }
}

/// Limits the cable's end in this namespace to a rate.
fn limit_rate(end: &mut NetlinkSocket, bits_per_s: u64) -> Result<(), NoResult> {
    const PACKETS: u32 = 1000;
    let link = token_bucket::TokenBucket { bits_per_s, burst: 6 * 1514, limit: PACKETS * 1514 };
    end.run(&[token_bucket::set(INDEX, link)]).map_err(|error| {
        NoResult::Skipped(format!("no link of a rate here: {error}; the kernel needs sch_tbf"))
    })
}
