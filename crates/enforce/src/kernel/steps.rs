//! The steps from the present state to a policy. A change may be interrupted after each step, and is then
//! undone.

use super::htb_classes::{self, HANDLE};
use super::ingress_redirect::{self, OnRefusal};
use super::receiving::{self, ReceivingPrograms};
use super::saved::{BeforeKernel, GsoMaxSize};
use super::site::HostDevice;
use super::{CLASSIFIER, Kernel, PlannedPolicy, own_priority, sockets};
use crate::error::Error;
use crate::group_weights::{self, GroupWeight};
use crate::journal::Phase;
use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use unisono_linux::Errno;
use unisono_linux::bpf::ClassifierProgram;
use unisono_linux::netlink::{NetlinkRequest, NetlinkSocket, Refused, htb, qdisc, traffic};

const ENOENT: i32 = Errno::NOENT.raw_os_error();
const EOPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();
/// The time limit for removed classes to become empty, because no packet ever leaves a device that is down.
const MAX_DRAIN: Duration = Duration::from_secs(3);
/// The interval of checks whether removed classes are empty. A check is a request to the kernel of some tens
/// of microseconds, so about 1 % of the time.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The most requests between two checks for an interruption: some milliseconds of work for the kernel.
const MAX_REQUESTS: usize = 256;

pub(super) enum KernelStep<'a> {
    Requests(Vec<NetlinkRequest>),
    /// Removes objects. It is no error if an object does not exist.
    Remove(Vec<NetlinkRequest>),
    /// A request that only a policy of incoming packets makes.
    IngressRedirect(OnRefusal, Box<NetlinkRequest>),
    /// Attaches the filter that redirects incoming packets: the last step of their policy.
    Redirect(&'a ClassifierProgram),
    /// Waits until classes that get no more packets are empty.
    Drain(Vec<u32>),
    /// Attaches the program that keeps sockets from choosing their class.
    OwnPriority(&'a ClassifierProgram),
    /// Limits the packets' length. The change goes on if the device refuses the limit.
    SetGsoMaxSize(GsoMaxSize),
    RestoreGsoMaxSize(GsoMaxSize),
    /// Attaches the XDP program of the first, in place of one of the second.
    Receive(ReceivingPrograms, Option<ReceivingPrograms>),
    /// Detaches the XDP program.
    StopReceiving(ReceivingPrograms),
    SetWeight(GroupWeight),
    RestoreWeight(GroupWeight),
}

impl Kernel {
    /// Executes steps until one fails or the change is interrupted.
    pub(super) fn execute(&mut self, host: &mut HostDevice, steps: Vec<KernelStep<'_>>) -> Result<(), Error> {
        for step in steps {
            self.site.check_interrupted()?;
            match step {
                KernelStep::Requests(requests) => {
                    for some in requests.chunks(MAX_REQUESTS) {
                        self.site.check_interrupted()?;
                        host.socket.run(some).map_err(htb_unsupported)?;
                    }
                }
                KernelStep::Remove(requests) => {
                    for some in requests.chunks(MAX_REQUESTS) {
                        self.site.check_interrupted()?;
                        remove(&mut host.socket, some)?;
                    }
                }
                KernelStep::IngressRedirect(on_refusal, request) => {
                    let done = host.socket.run(&[*request]).map_err(ingress_unsupported);
                    if on_refusal == OnRefusal::Stop {
                        done?;
                    }
                }
                KernelStep::Redirect(program) => {
                    ingress_redirect::redirect(host, program).map_err(ingress_unsupported)?;
                }
                KernelStep::Drain(classes) => self.drain(host, &classes)?,
                KernelStep::OwnPriority(program) => {
                    let note = own_priority::attach(program, host.link.index)?;
                    self.site.notes.extend(note);
                }
                KernelStep::SetGsoMaxSize(gso_max_size) => {
                    if let Err(refused) = host.socket.run(&[gso_max_size.set(host.queue)]) {
                        self.site.note(format!(
                            "{refused}; classes that borrow take turns of one packet, so that lending is \
                             almost equal, and packets up to {} bytes hold up the others",
                            gso_max_size.before()
                        ));
                    }
                }
                KernelStep::RestoreGsoMaxSize(gso_max_size) => {
                    host.socket.run(&[gso_max_size.restore(host.queue)])?;
                }
                KernelStep::Receive(programs, earlier) => {
                    receiving::attach(host, &programs, earlier.as_ref())?;
                }
                KernelStep::StopReceiving(programs) => {
                    let note = receiving::detach(host, &programs)?;
                    self.site.notes.extend(note);
                }
                KernelStep::SetWeight(weight) => group_weights::set(&weight)?,
                KernelStep::RestoreWeight(weight) => {
                    group_weights::restore(&weight, Phase::Holds)?;
                }
            }
        }
        self.site.check_interrupted()
    }

    /// Waits until classes that get no more packets are empty. After [`MAX_DRAIN`] the rest is dropped with
    /// the classes, and counted.
    pub(super) fn drain(&mut self, host: &mut HostDevice, classes: &[u32]) -> Result<(), Error> {
        let removed: HashSet<u32> = classes.iter().copied().collect();
        let begin = Instant::now();
        loop {
            let all = htb::statistics(&mut host.socket, host.queue)?;
            let gone = all.iter().filter(|class| removed.contains(&class.number));
            let waiting: u64 = gone.map(|class| class.waiting_packets).sum();
            if waiting == 0 {
                return Ok(());
            }
            if begin.elapsed() > MAX_DRAIN {
                self.site.note(format!(
                    "{waiting} packets still waited in classes that are gone after {} s, and were dropped with them",
                    MAX_DRAIN.as_secs()
                ));
                return Ok(());
            }
            self.site.check_interrupted()?;
            std::thread::sleep(DRAIN_POLL_INTERVAL);
        }
    }
}

/// Removes objects, of which some may be gone already.
fn remove(socket: &mut NetlinkSocket, requests: &[NetlinkRequest]) -> Result<(), Refused> {
    match socket.run(requests) {
        // the kernel tells only the first failure: one by one, the others show
        Err(refused) if refused.errno == ENOENT => match requests {
            [_] => Ok(()),
            several => several.chunks(1).try_for_each(|one| remove(socket, one)),
        },
        done => done,
    }
}

/// Converts a refusal into the error that names the missing part of the kernel, if that is HTB or the BPF
/// classifier.
fn htb_unsupported(refused: Refused) -> Error {
    if refused.errno != ENOENT {
        return Error::Refused(refused);
    }
    Error::Lacks {
        what: refused.to_string(),
        remedy: "this kernel has no HTB or no BPF classifier (CONFIG_NET_SCH_HTB, CONFIG_NET_CLS_BPF): see `unisono doctor`"
            .to_owned(),
    }
}

/// Does what [`htb_unsupported`] does, for the requests that only incoming packets need.
fn ingress_unsupported(refused: Refused) -> Error {
    if !matches!(refused.errno, ENOENT | EOPNOTSUPP) {
        return Error::Refused(refused);
    }
    Error::Lacks {
        what: format!("{refused}: this kernel cannot queue packets that come in"),
        remedy: "--direction in needs the devices ifb (CONFIG_IFB), the discipline clsact (CONFIG_NET_SCH_INGRESS) and the action \
                 mirred (CONFIG_NET_ACT_MIRRED); try: modprobe -a ifb sch_ingress act_mirred"
            .to_owned(),
    }
}

/// Returns the steps from the present state `now` to a policy whose record is `then`. `now` is `None` if the
/// present discipline is not ours.
pub(super) fn steps<'a>(
    host: &mut HostDevice,
    wanted: &'a PlannedPolicy,
    now: Option<&BeforeKernel>,
    then: &BeforeKernel,
) -> Result<Vec<KernelStep<'a>>, Error> {
    let mut gone = Vec::new();
    if now.is_some_and(|now| now.sockets.is_some()) {
        let planned: HashSet<u32> = wanted.plan.iter().map(|planned| planned.class.number).collect();
        let leaves = sockets::leaves_at(host)?.into_iter().map(|leaf| leaf.number);
        gone.extend(leaves.filter(|leaf| !planned.contains(leaf)));
    }
    let device = host.queue;
    let mut asked = Vec::new();
    if now.is_none() {
        asked.push(htb::root(device, HANDLE, wanted.default));
    }
    asked.push(qdisc::count_size(device, HANDLE, "htb", wanted.counted_size));
    asked.extend(htb_classes::changes(&wanted.plan, &wanted.in_force, device));
    asked.push(traffic::classify(device, HANDLE, wanted.classifier.as_fd(), CLASSIFIER));
    let removed = now.map(|now| htb_classes::removed_numbers(&now.numbers, &wanted.numbers));
    gone.extend(removed.into_iter().flatten().map(htb_classes::class_handle));
    let drained = (!gone.is_empty()).then(|| gone.clone());
    let removed: Vec<_> = gone.into_iter().map(|class| htb::remove_class(device, class)).collect();

    let set = then.weights.iter().map(|weight| KernelStep::SetWeight(weight.clone()));
    let dropped = now.into_iter().flat_map(|now| &now.weights);
    let dropped = dropped.filter(|weight| then.weights.iter().all(|other| other.file != weight.file));
    let restore = dropped.map(|weight| KernelStep::RestoreWeight(weight.clone()));
    let limit = match (then.gso_max_size, now.and_then(|now| now.gso_max_size)) {
        (None, now) => now.map(KernelStep::RestoreGsoMaxSize),
        (then, _) => then.map(KernelStep::SetGsoMaxSize),
    };
    let first = wanted.ingress_redirect.as_ref().filter(|_| now.is_none());
    let (make, begin) =
        first.map(|_| (ingress_redirect::make_ifb(host), ingress_redirect::attach_filter(host))).unzip();
    let redirect = |(on_refusal, request)| KernelStep::IngressRedirect(on_refusal, Box::new(request));
    let own_priority = wanted.own_priority.as_ref().map(KernelStep::OwnPriority);
    let receive = match (&then.receiving, now.and_then(|now| now.receiving.clone())) {
        (Some(programs), earlier) => Some(KernelStep::Receive(programs.clone(), earlier)),
        (None, earlier) => earlier.map(KernelStep::StopReceiving),
    };
    let steps = limit
        .into_iter()
        .chain(own_priority)
        .chain(make.into_iter().flatten().map(redirect))
        .chain([KernelStep::Requests(asked)])
        .chain(drained.map(KernelStep::Drain))
        .chain((!removed.is_empty()).then_some(KernelStep::Remove(removed)))
        .chain(set)
        .chain(restore)
        .chain(begin.into_iter().flatten().map(redirect))
        .chain(first.map(KernelStep::Redirect))
        .chain(receive);
    Ok(steps.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Blame;

    #[test]
    fn a_kernel_without_intermediate_devices_is_the_hosts_matter_and_says_what_is_missing() {
        let refused = |errno| Refused { what: "make the device ifb-u5".to_owned(), errno, explanation: None };
        let error = ingress_unsupported(refused(EOPNOTSUPP));
        assert_eq!(error.blame(), Blame::Host);
        assert!(error.to_string().contains("CONFIG_IFB"), "{error}");
        assert_eq!(ingress_unsupported(refused(16)).blame(), Blame::Work, "the device is busy");
    }
}
