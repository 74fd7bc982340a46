//! The way to a policy, step by step; after each of them it may end, and be gone back.

use super::saved::{BeforeKernel, SegmentSize};
use super::tree::{self, HANDLE};
use super::{HostDevice, Kernel, PlannedPolicy};
use crate::cpu::controller::{self, GroupWeight};
use crate::error::Error;
use crate::journal::Phase;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use unisono_linux::netlink::{NetlinkRequest, Refused, htb, qdisc, traffic};

const ENOENT: i32 = 2;
/// So long may it take until nothing waits in classes that are gone: where the device is down, nothing ever
/// leaves.
const MOST_DRAIN: Duration = Duration::from_secs(3);
const DRAIN_LOOK: Duration = Duration::from_millis(2);

/// One thing to do on the way to a policy.
pub(super) enum KernelStep {
    Ask(Box<NetlinkRequest>),
    /// What is not there need not be removed.
    Remove(Box<NetlinkRequest>),
    /// Classes to which no packets come any more are served until none waits.
    Drain(Vec<u32>),
    /// A device that hands itself what it likes is no reason to give up.
    Limit(SegmentSize),
    Unlimit(SegmentSize),
    Set(GroupWeight),
    PutBack(GroupWeight),
}

impl Kernel {
    /// Carries out steps until one fails or somebody says stop.
    pub(super) fn carry_out(&mut self, host: &mut HostDevice, steps: Vec<KernelStep>) -> Result<(), Error> {
        for step in steps {
            if let Some(by) = (self.stopped)() {
                return Err(Error::Stopped { by, device: self.device.clone() });
            }
            match step {
                KernelStep::Ask(request) => host.socket.run(&[*request]).map_err(lacking)?,
                KernelStep::Remove(request) => match host.socket.run(&[*request]) {
                    Err(refused) if refused.errno != ENOENT => return Err(refused.into()),
                    _ => {}
                },
                KernelStep::Drain(classes) => self.drain(host, &classes)?,
                KernelStep::Limit(pieces) => {
                    if let Err(refused) = host.socket.run(&[pieces.set(host.link.index)]) {
                        self.notes.push(format!(
                            "{refused}; classes that borrow take turns of one packet, so that lending is \
                             almost equal, and packets up to {} bytes hold up the others",
                            pieces.before()
                        ));
                    }
                }
                KernelStep::Unlimit(pieces) => host.socket.run(&[pieces.put_back(host.link.index)])?,
                KernelStep::Set(weight) => controller::set(&weight)?,
                KernelStep::PutBack(weight) => {
                    controller::put_back(&weight, Phase::Holds)?;
                }
            }
        }
        match (self.stopped)() {
            Some(by) => Err(Error::Stopped { by, device: self.device.clone() }),
            None => Ok(()),
        }
    }

    /// Waits until nothing waits in classes that no packets come to any more. What waits for too long is
    /// dropped with its class, and counted.
    fn drain(&mut self, host: &mut HostDevice, classes: &[u32]) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            let all = htb::statistics(&mut host.socket, host.link.index)?;
            let gone = all.iter().filter(|class| classes.contains(&class.number));
            let waiting: u64 = gone.map(|class| class.waiting_packets).sum();
            if waiting == 0 {
                return Ok(());
            }
            if begin.elapsed() > MOST_DRAIN {
                self.notes.push(format!(
                    "{waiting} packets still waited in classes that are gone after {} s, and were dropped with them",
                    MOST_DRAIN.as_secs()
                ));
                return Ok(());
            }
            if let Some(by) = (self.stopped)() {
                return Err(Error::Stopped { by, device: self.device.clone() });
            }
            std::thread::sleep(DRAIN_LOOK);
        }
    }
}

/// What is missing if the kernel does not know a kind of thing.
fn lacking(refused: Refused) -> Error {
    if refused.errno != ENOENT {
        return Error::Refused(refused);
    }
    Error::Lacks {
        what: refused.to_string(),
        remedy: "this kernel has no HTB or no BPF classifier (CONFIG_NET_SCH_HTB, CONFIG_NET_CLS_BPF): see `unisono doctor`"
            .to_owned(),
    }
}

/// From what is there (`now`; none if that is not ours) to a policy, whose record says `then`.
pub(super) fn steps(
    host: &HostDevice,
    wanted: &PlannedPolicy,
    now: Option<&BeforeKernel>,
    then: &BeforeKernel,
) -> Vec<KernelStep> {
    let device = host.link.index;
    let mut asked = Vec::new();
    if now.is_none() {
        asked.push(htb::root(device, HANDLE, wanted.default));
    }
    asked.extend(wanted.plan.iter().map(|planned| htb::class(device, &planned.class)));
    let leaves = wanted.plan.iter().filter_map(|planned| Some((planned.class.number, planned.room?)));
    asked.extend(leaves.map(|(class, room)| qdisc::fifo(device, class, room)));
    asked.push(traffic::classify(device, HANDLE, wanted.classifier.as_fd(), "unisono_queue"));
    let gone = now.map(|now| tree::gone(&now.numbers, &wanted.numbers)).unwrap_or_default();
    let drained = (!gone.is_empty()).then(|| gone.iter().map(|own| tree::whole(*own)).collect());
    let removed = gone.into_iter().map(|own| htb::remove_class(device, tree::whole(own)));

    let set = then.weights.iter().map(|weight| KernelStep::Set(weight.clone()));
    let dropped = now.into_iter().flat_map(|now| &now.weights);
    let dropped = dropped.filter(|weight| then.weights.iter().all(|other| other.file != weight.file));
    let put_back = dropped.map(|weight| KernelStep::PutBack(weight.clone()));
    let asked = asked.into_iter().map(|request| KernelStep::Ask(Box::new(request)));
    let removed = removed.map(|request| KernelStep::Remove(Box::new(request)));
    let limit = match (then.pieces, now.and_then(|now| now.pieces)) {
        (None, now) => now.map(KernelStep::Unlimit),
        (then, _) => then.map(KernelStep::Limit),
    };
    limit
        .into_iter()
        .chain(asked)
        .chain(drained.map(KernelStep::Drain))
        .chain(removed)
        .chain(set)
        .chain(put_back)
        .collect()
}
