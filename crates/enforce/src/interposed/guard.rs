//! The guard: the process that sets a queue up, supervises it, and restores the device when the queue ends
//! for any reason.
//!
//! ```text
//!   serve: journal -> devices -> worker (a copy of this process without root) -> program at the device
//!     |                            | pidfd: it ended
//!     |  questions on a socket     v
//!     +--> clear, a signal, the worker's death --> detach program -> worker ends -> remove journal
//! ```
//! The locks of each process, and why a killed command has no effect afterwards:
//! [PROTOCOL.md](../../PROTOCOL.md).
//!
//! The guard stays user 0, with the few capabilities that it needs to detach the program and to end the
//! worker, and takes requests only from root. Both processes run under a filter of system calls
//! ([`super::sandbox`]). If the guard is killed, the kernel kills the worker with it, the program lets the
//! traffic pass, and the next `unisono queue` restores the device from the journal.

use super::classify::Named;
use super::connections::ControlConnections;
use super::control::{QueueReply, QueueRequest, WORKER_TIMEOUT, send};
use super::control_channel::ControlChannel;
use super::followed_device::{DeviceChange, FollowedDevice};
use super::frame_path::{AfXdp, Tun};
use super::namespace::Namespace;
use super::options::Options;
use super::queue_device::{self, FAR, QueueDevice};
use super::redirect;
use super::request_thread::RequestThread;
use super::restore::{BeforeQueue, kill_and_restore, restore, socket_path};
use super::sandbox;
use super::sender::{self, GroupTags, load, named_values};
use super::translations::Translations;
use super::urgency;
use super::worker::{Worker, WorkerParts};
use super::{FramePathName, INTERPOSED_BACKEND};
use crate::containers;
use crate::device_kind;
use crate::error::interposed::{Error, failed};
use crate::journal::{Journal, Phase, Record, RecordHeader};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use unisono_fairqueue::{Policy, TermsChange, TrafficDirection};
use unisono_linux::affinity::{CpuSet, restrict_own};
use unisono_linux::bpf::Words;
use unisono_linux::fork::{ForkedChild, fork};
use unisono_linux::interface::Interface;
use unisono_linux::netlink::filter::{self, TrafficHook};
use unisono_linux::netlink::link::{self, Index};
use unisono_linux::netlink::{NetlinkSocket, qdisc};
use unisono_linux::parent_death::{die_with_parent, outlive_starter};
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::{self, Signal, SignalFd};
use unisono_linux::undo::{Author, DirectoryLock};
use unisono_linux::xdp::DeviceQueue;
use unisono_linux::{descriptors, poll, privilege};

/// The byte that tells the worker to begin.
const BEGIN: u8 = b'!';
/// The interval of checks whether a control group was made anew, so that it has another number, and whether
/// the network namespace is still in use.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Sets a queue up and supervises it until it is told to end. Calls `ready` when the policy holds. After
/// that, the filter of system calls leaves the calling process little else to do (`sandbox.rs`), so it must
/// end when this returns. The device has been restored by then, also if the queue could not begin or its
/// worker ended by itself.
pub fn serve(text: &str, options: &Options, ready: impl FnOnce()) -> Result<(), Error> {
    let policy = Policy::parse(text).map_err(|error| Error::Unfit(error.to_string()))?;
    let named = named_values(&policy)?;
    let device = find(options)?;
    let journal = Journal::for_device(&options.device)?;
    let queue = format!("unisono{}", device.index.0);
    let options_now = Some(options.clone());
    let before =
        BeforeQueue { made_clsact: false, queue, queue_index: 0, worker: None, options: options_now };
    let mut record = Record::new(INTERPOSED_BACKEND, &options.device, device.index.0, text, before);
    // held until the policy holds (PROTOCOL.md), so that `unisono queue clear` waits for unfinished work
    let mut lock = Some(match options.lock {
        Some(number) => journal.lock_passed_on(number)?,
        None => journal.lock()?,
    });
    if let Some(there) = journal.header()?.filter(RecordHeader::is_in_force) {
        return Err(Error::Taken { device: options.device.clone(), backend: there.backend });
    }
    kill_and_restore(&journal, &options.device)?;
    journal.write(&record)?;
    // before the worker is made, so that the worker inherits the blocked signals: a signal to the process
    // group must not end it
    let signals = SignalFd::new(&[Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit])
        .map_err(failed("wait for signals"))?;
    let mut netlink = NetlinkSocket::open().map_err(failed("open a netlink socket"))?;
    let result = set_up_and_run(
        policy,
        &named,
        &device,
        options,
        &journal,
        &mut record,
        &signals,
        &mut netlink,
        &mut lock,
        ready,
    );
    // the device is restored even if the lock cannot be had because another command does not end
    let _lock = lock.or_else(|| journal.lock().ok());
    let restored = restore(&journal, &record, &mut netlink);
    result.and(restored)
}

#[expect(clippy::too_many_arguments, reason = "the parts of `serve`, which puts back what this changes")]
fn set_up_and_run(
    policy: Policy,
    named: &Named,
    device: &Interface,
    options: &Options,
    journal: &Journal,
    record: &mut Record<BeforeQueue>,
    signals: &SignalFd,
    netlink: &mut NetlinkSocket,
    lock: &mut Option<DirectoryLock>,
    ready: impl FnOnce(),
) -> Result<(), Error> {
    record.senders = containers::numbers(&policy).map_err(|error| Error::Host(error.to_string()))?;
    let groups = GroupTags::find(named, &record.senders)?;
    let alive = Words::new("unisono_alive", redirect::WORDS).map_err(failed("make a BPF array"))?;
    let plumbing = QueueDevice::make(options.way, &record.before.queue, device, netlink)?;
    let queue = plumbing.queue();
    record.before.queue_index = queue.0;
    let program = load(&alive, queue, &groups, named)?;
    let (mut master, theirs) = UnixStream::pair().map_err(failed("make a pair of sockets"))?;
    let parts = WorkerStart {
        policy: policy.clone(),
        named: named.clone(),
        options: options.clone(),
        device: *device,
        master: theirs,
        alive,
    };
    let parent = std::process::id();
    let alive = parts.alive.as_fd().try_clone_to_owned().map_err(failed("keep the BPF array"))?;
    let mut worker =
        fork(move || worker_main(parts, plumbing, parent)).map_err(failed("start the queue's process"))?;
    // when this record is written, the next holder of the lock knows both processes; until then the worker
    // keeps its copy of the lock, because it waits for BEGIN
    record.before.worker = Some(Author::for_process(worker.process().0.cast_unsigned()));
    // a clsact that the policy of incoming packets made is removed with the last of the two policies
    record.before.made_clsact =
        !queue_device::has_clsact(netlink, device.index)? || journal.other_direction_made_clsact()?;
    journal.write(record)?;
    master.write_all(&[BEGIN]).map_err(failed("tell the queue's process to begin"))?;
    let failure = |worker: &mut ForkedChild, why: String| {
        let _ = worker.kill();
        Error::Worker { device: options.device.clone(), what: why }
    };
    let mut master =
        ControlChannel::new_client(master, WORKER_TIMEOUT).map_err(failed("set a time limit"))?;
    match master.last_reply(None) {
        Ok(QueueReply::Done) => {}
        Ok(QueueReply::Refused { why }) => {
            return Err(failure(&mut worker, format!("could not begin: {why}")));
        }
        Ok(_) | Err(_) => {
            return Err(failure(&mut worker, "ended before it began".to_owned()));
        }
    }
    let connections =
        ControlConnections::listen_at(&socket_path(journal)).map_err(failed("listen for questions"))?;
    let process = worker.pin().map_err(failed("hold on to the queue's process"))?;
    let followed = FollowedDevice::start(&options.device, device)?;
    queue_device::make_clsact(netlink, device.index)?;
    containers::attach_to_all(&record.senders).map_err(|error| Error::Host(error.to_string()))?;
    sender::attach(netlink, device.index, &program)?;
    if options.lock.is_some() {
        outlive_starter().map_err(failed("stay in the background"))?;
    }
    record.phase = Phase::Holds;
    journal.write(record)?;
    *lock = None;
    sandbox::guard().map_err(failed("give privileges away"))?;
    ready();
    let mut guard = QueueGuard {
        worker,
        process,
        master,
        connections,
        followed,
        signals,
        netlink,
        device,
        name: options.device.clone(),
        alive,
        queue,
        named: named.clone(),
        groups,
        options,
        journal,
        record,
        namespace: Namespace::of_this_process().map_err(failed("look at this network namespace"))?,
        policy,
        translations: Translations::default(),
    };
    guard.run()
}

/// The state of the guard while the policy holds.
struct QueueGuard<'a> {
    worker: ForkedChild,
    /// A descriptor of the worker's process, to poll for its end.
    process: PinnedProcess,
    master: ControlChannel,
    connections: ControlConnections,
    followed: FollowedDevice,
    signals: &'a SignalFd,
    netlink: &'a mut NetlinkSocket,
    device: &'a Interface,
    /// The device's present name. The journal keeps the name from the time of `apply`; it is found by either
    /// name.
    name: String,
    alive: std::os::fd::OwnedFd,
    queue: Index,
    named: Named,
    groups: GroupTags,
    options: &'a Options,
    journal: &'a Journal,
    record: &'a mut Record<BeforeQueue>,
    namespace: Namespace,
    /// The policy in force, so that a change of one class need not read its text.
    policy: Policy,
    /// The hosts behind translated addresses that the worker knows.
    translations: Translations,
}

impl QueueGuard<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let mut next_check = Instant::now() + CHECK_INTERVAL;
        let before_it_listened = self.followed.compare(self.netlink)?;
        self.follow(before_it_listened)?;
        loop {
            let mut waited = vec![self.process.as_fd(), self.signals.as_fd(), self.followed.as_fd()];
            waited.extend(self.connections.descriptors());
            let ready = process::readable(&waited, Some(CHECK_INTERVAL))
                .map_err(failed("wait for the queue's process"))?;
            if ready[0] {
                let how = self.worker.ended().map_or_else(String::new, |how| how.to_string());
                return Err(Error::Worker {
                    device: self.options.device.clone(),
                    what: format!("{how}; traffic flows on unscheduled"),
                });
            }
            if ready[1] && self.signals.next().is_some_and(|(signal, _)| process::asks_to_end(signal)) {
                return self.stop_worker();
            }
            if ready[2] {
                let changes = self.followed.changes(self.netlink)?;
                self.follow(changes)?;
            }
            let now = Instant::now();
            for (stream, question) in self.connections.requests(now) {
                let has_lock = matches!(question, QueueRequest::Retire);
                if self.send_reply(&stream, question) {
                    let ended = self.stop_worker();
                    let _lock = (!has_lock).then(|| self.journal.lock()); // also without it, as in `serve`
                    let restored = restore(self.journal, self.record, self.netlink);
                    let answer = match ended.and(restored) {
                        Ok(()) => QueueReply::Done,
                        Err(error) => QueueReply::Refused { why: error.to_string() },
                    };
                    // fails if the process that asked is gone
                    let _ = send(&stream, &answer);
                    return Ok(());
                }
            }
            if now >= next_check {
                self.refresh_groups();
                self.refresh_translations();
                next_check = now + CHECK_INTERVAL;
                if self.namespace.is_unused_by_others(self.worker.process()) {
                    return self.stop_worker();
                }
            }
        }
    }

    /// Answers a request. Returns true, without an answer, for `End` and `Retire`: their reply follows when
    /// the device has been restored.
    fn send_reply(&mut self, stream: &UnixStream, question: QueueRequest) -> bool {
        let answer = match question {
            QueueRequest::End | QueueRequest::Retire => return true,
            QueueRequest::SetMtu { .. } => {
                Ok(QueueReply::Refused { why: "the device says how long packets are".to_owned() })
            }
            QueueRequest::Translate { .. } => {
                Ok(QueueReply::Refused { why: "the kernel says which addresses are translated".to_owned() })
            }
            QueueRequest::Live => {
                self.master.request(&question, WORKER_TIMEOUT).map(|answer| self.with_kernel_drops(answer))
            }
            QueueRequest::Change { change } => {
                Ok(self.change_class(&change).unwrap_or_else(|error| match error {
                    Error::Unfit(why) => QueueReply::Unfit { why },
                    error => QueueReply::Refused { why: error.to_string() },
                }))
            }
            QueueRequest::Apply { policy } => Ok(self
                .change(policy, || drop(send(stream, &QueueReply::Working)))
                .map_or_else(|error| QueueReply::Refused { why: error.to_string() }, |()| QueueReply::Done)),
        };
        let answer = answer.unwrap_or_else(|error| QueueReply::Refused {
            why: format!("the queue's process does not answer: {error}"),
        });
        let _ = send(stream, &answer);
        false
    }

    /// Adds the frames that the kernel dropped between the program and the worker; the worker counts all
    /// others.
    fn with_kernel_drops(&mut self, answer: QueueReply) -> QueueReply {
        let QueueReply::Live { mut live, mut counters } = answer else { return answer };
        live.device.clone_from(&self.name);
        let device = link::dropped(self.netlink, self.queue).unwrap_or_default();
        let before_it = qdisc::dropped(self.netlink, self.queue).unwrap_or_default();
        counters.overrun += device + before_it;
        QueueReply::Live { live, counters }
    }

    /// Enforces another policy: first in the worker, then in the program, so that no frame passes unscheduled
    /// meanwhile. Calls `stage_ended` after each stage. On an error, the previous policy stays in force.
    fn change(&mut self, text: String, stage_ended: impl Fn()) -> Result<(), Error> {
        let policy = Policy::parse(&text).map_err(|error| Error::Unfit(error.to_string()))?;
        let named = named_values(&policy)?;
        stage_ended();
        let _lock = self.journal.lock()?;
        let mut record = self.record.clone();
        record.senders = containers::numbers(&policy).map_err(|error| Error::Host(error.to_string()))?;
        let groups = GroupTags::find(&named, &record.senders)?;
        let program = load(&self.alive, self.queue, &groups, &named)?;
        stage_ended();
        record.replace_policy(&text);
        // first, so that a full file system is noticed before any change
        let as_wanted = self.journal.prepare(&record)?;
        stage_ended();
        self.apply_in_worker(text, &stage_ended)?;
        let attached = sender::attach(self.netlink, self.device.index, &program);
        if let Err(error) = attached.map_err(Error::from).and_then(|()| Ok(self.journal.commit(as_wanted)?)) {
            // back to the previous program, which is loaded anew: a policy that was accepted once is accepted
            // again
            let before = self.apply_in_worker(self.record.policy.clone(), &stage_ended);
            let program = load(&self.alive, self.queue, &self.groups, &self.named);
            let back = before
                .and(program)
                .and_then(|program| Ok(sender::attach(self.netlink, self.device.index, &program)?));
            return Err(back.err().unwrap_or(error));
        }
        (self.named, self.groups, self.policy) = (named, groups, policy);
        *self.record = record;
        Ok(())
    }

    /// Changes one class of the policy in force: first in the worker, then in the journal. If the guard is
    /// killed between the two, the worker ends with it, and the whole policy with both. The program at the
    /// device stays, because matches do. On an error, the previous policy stays in force.
    fn change_class(&mut self, change: &TermsChange) -> Result<QueueReply, Error> {
        let _lock = self.journal.lock()?;
        let changed = self.policy.change_terms(change);
        let terms = changed.map_err(|error| Error::Unfit(error.to_string()))?;
        if let Err(error) = self.change_and_record(change) {
            // a policy that was accepted once is accepted again
            let before = Policy::parse(&self.record.policy);
            self.policy = before.map_err(|error| Error::Host(error.to_string()))?;
            return Err(error);
        }
        Ok(QueueReply::Changed { terms })
    }

    fn change_and_record(&mut self, change: &TermsChange) -> Result<(), Error> {
        // first, so that a full file system is noticed before any change
        let as_wanted = self.journal.prepare_change(self.record, &self.policy.text, change)?;
        self.ask_worker(&QueueRequest::Change { change: change.clone() }, || {})?;
        if let Err(error) = self.journal.commit_change(as_wanted, self.record, &self.policy.text) {
            self.apply_in_worker(self.record.policy.clone(), || {})?;
            return Err(error.into());
        }
        Ok(())
    }

    fn apply_in_worker(&mut self, policy: String, stage_ended: impl Fn()) -> Result<(), Error> {
        self.ask_worker(&QueueRequest::Apply { policy }, stage_ended)
    }

    /// Has the worker execute a change. If the worker does not answer, it gets the policy of the record
    /// again.
    fn ask_worker(&mut self, question: &QueueRequest, stage_ended: impl Fn()) -> Result<(), Error> {
        let timeout = question.stage_timeout(WORKER_TIMEOUT);
        match self.master.request_in_stages(question, timeout, stage_ended) {
            Ok(QueueReply::Done) => Ok(()),
            Ok(QueueReply::Refused { why }) => {
                Err(Error::Refused { device: self.options.device.clone(), why })
            }
            Ok(
                QueueReply::Working
                | QueueReply::Live { .. }
                | QueueReply::Changed { .. }
                | QueueReply::Unfit { .. },
            ) => Err(Error::Host("the queue's process answers something else".to_owned())),
            Err(error) => {
                // a stopped worker will execute the failed request when it continues, and then this one
                let policy = self.record.policy.clone();
                let _ = self.master.send_request(&QueueRequest::Apply { policy });
                Err(failed("ask the queue's process")(error))
            }
        }
    }

    /// Reacts to changes of the device. Fails if the device is gone.
    fn follow(&mut self, changes: Vec<DeviceChange>) -> Result<(), Error> {
        for change in changes {
            match change {
                DeviceChange::Mtu(mtu) => self.set_mtu(mtu),
                DeviceChange::Name(name) => self.name = name,
                DeviceChange::Gone => return Err(Error::NoDevice { device: self.name.clone() }),
            }
        }
        Ok(())
    }

    /// Lets the queue accept packets of another length, as far as its frame path can. The program lets longer
    /// packets pass unscheduled.
    fn set_mtu(&mut self, mtu: u32) {
        let max_mtu = match self.options.way {
            FramePathName::Tun => mtu,
            FramePathName::AfXdp => mtu.min(AfXdp::max_mtu(self.device.mtu)),
        };
        // the worker first: the frames that its device brings have to fit into its memory
        let carried = self.master.request(&QueueRequest::SetMtu { mtu: max_mtu }, WORKER_TIMEOUT);
        if matches!(carried, Ok(QueueReply::Done)) {
            let _ = queue_device::set_mtu(self.netlink, self.queue, max_mtu);
        }
    }

    /// Replaces the program if control groups were removed and made anew. After a failure, the next check
    /// tries again.
    fn refresh_groups(&mut self) {
        if let Ok(groups) = GroupTags::find(&self.named, &self.record.senders)
            && groups != self.groups
            && let Ok(program) = load(&self.alive, self.queue, &groups, &self.named)
            && sender::attach(self.netlink, self.device.index, &program).is_ok()
        {
            self.groups = groups;
        }
    }

    /// Tells the worker about the hosts behind translated addresses, if they have changed. After a failure,
    /// the next check tries again.
    fn refresh_translations(&mut self) {
        if self.policy.class_of_hosts().is_none() {
            return;
        }
        let Ok(translations) = Translations::read() else { return };
        if translations == self.translations {
            return;
        }
        let request = QueueRequest::Translate { translations: translations.clone() };
        if matches!(self.master.request(&request, WORKER_TIMEOUT), Ok(QueueReply::Done)) {
            self.translations = translations;
        }
    }

    /// Detaches the program, lets the worker send the waiting frames, and ends it.
    fn stop_worker(&mut self) -> Result<(), Error> {
        filter::remove_ours(self.netlink, self.device.index, TrafficHook::Egress)?;
        // a worker that was stopped (SIGSTOP) has to continue to send the waiting frames
        let _ = self.process.send(Signal::Continue);
        // a worker that does not answer is killed below
        let _ = self.master.request(&QueueRequest::End, WORKER_TIMEOUT);
        self.worker.kill();
        Ok(())
    }
}

/// The data that the worker begins with.
struct WorkerStart {
    policy: Policy,
    named: Named,
    options: Options,
    device: Interface,
    master: UnixStream,
    alive: Words,
}

fn worker_main(mut start: WorkerStart, plumbing: QueueDevice, parent: u32) -> i32 {
    // BEGIN has arrived: the journal names this process, so its copy of the lock may be closed below
    if start.master.read_exact(&mut [0]).is_err() {
        return 1;
    }
    let Ok(master) = start.master.try_clone() else { return 1 };
    let ran = match plumbing {
        QueueDevice::Tun { tap, .. } => Tun::new(tap, start.device.index, start.device.mtu)
            .map_err(|error| format!("open a packet socket: {error}"))
            .and_then(|way| run_worker(way, start, parent)),
        QueueDevice::AfXdp { far, home, sockets, .. } => {
            let mut mtu = start.device.mtu;
            mtu = mtu.max(1500);
            let at = |device| DeviceQueue { device, queue: 0 };
            let way = AfXdp::new(mtu, at(Index(FAR)), start.device.index, || far.enter(), || home.enter())
                .and_then(|way| sockets.put(0, way.socket()).map(|()| way))
                .map_err(|error| format!("open AF_XDP sockets: {error}"));
            // from now on the socket keeps the far namespace alive
            drop((far, home, sockets));
            way.and_then(|way| run_worker(way, start, parent))
        }
    };
    match ran {
        Ok(()) => 0,
        Err(why) => {
            // fails if the guard is gone; then this process is about to be killed
            let _ = ControlChannel::new_server(master).send_reply(&QueueReply::Refused { why });
            1
        }
    }
}

/// Gives up the privileges that the worker does not need, and runs the worker until it is told to end.
fn run_worker<W: super::frame_path::FramePath>(
    way: W,
    start: WorkerStart,
    parent: u32,
) -> Result<(), String> {
    let WorkerStart { policy, named, options, device: _, master, alive } = start;
    let text = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    if let Some(processor) = options.processor {
        restrict_own(&CpuSet::single(processor)).map_err(text("stay on its processor"))?;
    }
    urgency::prepare();
    poll::punctual().map_err(text("ask for punctual timers"))?;
    std::env::set_current_dir("/").map_err(text("leave the directory"))?;
    let user = privilege::unused_user().map_err(text("find an unused user"))?;
    privilege::drop_to_user(user, user).map_err(text("become an unused user instead of root"))?;
    // the change of user has cleared the parent-death signal
    die_with_parent(Some(parent)).map_err(text("die with its parent"))?;
    let Options { choice, device, wait, .. } = options;
    let (requests, orders) =
        RequestThread::new(ControlChannel::new_server(master)).map_err(text("make an eventfd"))?;
    let mut worker = Worker::new(WorkerParts { way, policy, named, choice, device, wait, orders, alive })?;
    // close all descriptors that are the guard's: sockets, programs, its end of the connection to the worker
    let kept = [&worker.descriptors()[..], &[requests.as_fd()]].concat();
    descriptors::close_all_except(&kept).map_err(text("close what the guard opened"))?;
    let requests = requests.start().map_err(text("start a thread"))?;
    sandbox::worker().map_err(text("filter system calls"))?;
    worker.run().map_err(|error| error.to_string())?;
    // the last reply has to reach the guard before this process ends
    requests.join().map_err(|_| "the thread for questions panicked".to_owned())
}

/// Finds the device. Fails if it cannot be interposed.
pub(super) fn find(options: &Options) -> Result<Interface, Error> {
    let device = &options.device;
    if !unisono_linux::process::is_root() {
        return Err(Error::Host("interposing needs root: it attaches a program to the device".to_owned()));
    }
    let found = Interface::find(device).map_err(|_| Error::NoDevice { device: device.clone() })?;
    if found.ethernet.is_none() {
        return Err(Error::Unfit(format!(
            "{device} is no Ethernet device: its frames cannot be carried through another one"
        )));
    }
    let mut netlink = NetlinkSocket::open().map_err(failed("open a netlink socket"))?;
    let all = link::all(&mut netlink)?;
    if let Some(link) = all.iter().find(|link| link.index == found.index) {
        device_kind::check(link, &all, TrafficDirection::Out)
            .map_err(|error| Error::Unfit(error.to_string()))?;
    }
    if options.way == FramePathName::AfXdp && found.mtu > AfXdp::MAX_MTU {
        let (mtu, max_mtu) = (found.mtu, AfXdp::MAX_MTU);
        return Err(Error::Unfit(format!(
            "{device} carries packets of {mtu} bytes, and AF_XDP takes at most {max_mtu}: use --way tun"
        )));
    }
    Ok(found)
}
