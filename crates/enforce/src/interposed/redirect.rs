//! Writes the two BPF programs of a queue, of a few dozen instructions each.
//!
//! *At the device's egress*: if the queue is alive and its own device exists, the program writes a VLAN tag
//! that encodes the sender's control group, priority and mark as far as the policy names them
//! ([`super::classify`]), and redirects the frame to that device. Otherwise it lets the frame pass. So the
//! traffic continues, unscheduled, when the queue's process dies or hangs. The queue shows that it is alive
//! by writing, into a shared word, the time until which it counts as alive. Frames longer than the maximum of
//! the queue's device also pass, because they would be lost there; another shared word counts them.
//!
//! *At the ingress of the queue's device* (`AF_XDP` only): the program redirects the frame to the socket of
//! its receive queue, or drops it if there is none.
//!
//! Reference: bpf-helpers(7); include/uapi/linux/bpf.h.

use super::classify::{Named, TAG_TYPE};
use crate::containers::TC_INDEX;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use unisono_linux::bpf::Table;
use unisono_linux::bpf::assembler::{
    AluOperation, Assembler, BpfRegister, JumpWhen, LoadSize, R0, R1, R2, R3, R4, R5, STACK,
};
use unisono_linux::netlink::link::Index;

const MAP_LOOKUP: i32 = 1;
const KTIME_GET_NS: i32 = 5;
const SKB_VLAN_PUSH: i32 = 18;
const REDIRECT: i32 = 23;
const REDIRECT_MAP: i32 = 51;
const SKB_ANCESTOR_CGROUP_ID: i32 = 83;
const CHECK_MTU: i32 = 163;
/// `BPF_MTU_CHK_SEGS`: check the frames that a large segment will be cut into, not the segment.
const EACH_SEGMENT: i32 = 1;
/// `TC_ACT_UNSPEC`: leave the decision to the next program; after the last one the device gets the packet.
const PASS: i32 = -1;
const DROP: i32 = 1;
/// Offsets in `struct __sk_buff` and `struct xdp_md`.
const MARK: i16 = 8;
const PRIORITY: i16 = 32;
const QUEUE: i16 = 16;

const CONTEXT: BpfRegister = BpfRegister(6);
const LIMIT: BpfRegister = BpfRegister(7);
const NUMBER: BpfRegister = BpfRegister(8);

/// Shared word: the time until which the queue counts as alive.
pub(super) const ALIVE: usize = 0;
/// Shared word: the number of frames that were longer than the queue's maximum (a segment that is to be cut
/// counts once). The count is not atomic: of two processors that count at the same moment, one may be lost.
pub(super) const TOO_LONG: usize = 1;
/// Shared word: the number of frames that passed unscheduled because the queue was not alive, for example
/// because its worker got no processor for long.
pub(super) const UNATTENDED: usize = 2;
/// Number of shared words.
pub(super) const WORDS: u32 = 3;
const BYTES: i16 = 8;

/// A control group as the program compares it: by the kernel's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GroupTag {
    /// The depth of the group; the root has depth 0.
    pub(super) level: u32,
    pub(super) id: u64,
    /// The group's summand in the tag's number.
    pub(super) number: u16,
    /// The value of `tc_index` in packets from containers in this group.
    pub(super) sender: Option<u16>,
}

/// The priorities and marks that a policy names, with their summands in the tag's number.
pub(super) struct NamedNumbers {
    table: Table,
    has_priorities: bool,
    has_marks: bool,
}

impl NamedNumbers {
    /// Makes the table, or returns `None` if the policy names neither priorities nor marks.
    pub(super) fn new(named: &Named) -> io::Result<Option<Self>> {
        let (priorities, marks): (Vec<_>, Vec<_>) = (named.priorities().collect(), named.marks().collect());
        let all = (priorities.len() + marks.len()) as u32;
        if all == 0 {
            return Ok(None);
        }
        let table = Table::new("unisono_named", 8, 4, all)?;
        for (place, values) in [(PRIORITY, &priorities), (MARK, &marks)] {
            for (value, number) in values {
                let key = [place as u32, *value].map(u32::to_ne_bytes).concat();
                table.insert(&key, &u32::from(*number).to_ne_bytes())?;
            }
        }
        Ok(Some(Self { table, has_priorities: !priorities.is_empty(), has_marks: !marks.is_empty() }))
    }

    /// Emits code that adds the summands of the packet's priority and mark to the tag's number.
    fn add(&self, program: &mut Assembler) {
        for (place, is_named) in [(PRIORITY, self.has_priorities), (MARK, self.has_marks)] {
            if !is_named {
                continue;
            }
            let next = program.label();
            program.store_number(STACK, -8, place.into()).load(LoadSize::Four, R1, CONTEXT, place);
            program.store_four(STACK, -4, R1).map(R1, self.table.as_fd());
            program.copy(R2, STACK).number(AluOperation::Add, R2, -8).call(MAP_LOOKUP);
            program.jump_if(JumpWhen::Equal, R0, 0, next);
            program.load(LoadSize::Four, R1, R0, 0).add(NUMBER, R1).here(next);
        }
    }
}

/// Returns the program at the device's egress, or `None` if the groups are too many for a program. `alive` is
/// the array of shared words; `groups` come with the deepest first. The table of `named` must live until the
/// program is loaded.
pub(super) fn egress_redirect(
    alive: BorrowedFd<'_>,
    queue: Index,
    groups: &[GroupTag],
    named: Option<&NamedNumbers>,
) -> Option<Vec<u64>> {
    let mut program = Assembler::default();
    let (pass, too_long, unattended) = (program.label(), program.label(), program.label());
    let device = queue.0 as i32;

    program.copy(CONTEXT, R1).array(R1, alive).load(LoadSize::Eight, LIMIT, R1, ALIVE as i16 * BYTES);
    program.call(KTIME_GET_NS).jump_if_registers(JumpWhen::Above, R0, LIMIT, unattended);
    // this call also fails as soon as the queue's device is gone, as after the end of its process
    program.store_number(STACK, -4, 0).copy(R1, CONTEXT).set(R2, device);
    program.copy(R3, STACK).number(AluOperation::Add, R3, -4).set(R4, 0);
    program.set(R5, EACH_SEGMENT).call(CHECK_MTU);
    program.jump_if(JumpWhen::SignedBelow, R0, 0, pass).jump_if(JumpWhen::Not, R0, 0, too_long);

    program.set(NUMBER, 0);
    let priority = program.label();
    let mut asked = None;
    for group in groups {
        if asked.replace(group.level) != Some(group.level) {
            program.copy(R1, CONTEXT).set(R2, group.level as i32).call(SKB_ANCESTOR_CGROUP_ID);
        }
        let next = program.label();
        program.set_long(R1, group.id).jump_if_registers(JumpWhen::Not, R0, R1, next);
        program.set(NUMBER, group.number.into()).jump(priority).here(next);
    }
    let senders = groups.iter().filter_map(|group| Some((group.sender?, group.number)));
    for (at, (sender, number)) in senders.enumerate() {
        if at == 0 {
            program.load(LoadSize::Four, R0, CONTEXT, TC_INDEX);
        }
        let next = program.label();
        program.jump_if(JumpWhen::Not, R0, sender.into(), next);
        program.set(NUMBER, number.into()).jump(priority).here(next);
    }
    program.here(priority);
    if let Some(named) = named {
        named.add(&mut program);
    }

    program.copy(R1, CONTEXT).set(R2, TAG_TYPE.to_be().into()).copy(R3, NUMBER);
    program.call(SKB_VLAN_PUSH).jump_if(JumpWhen::SignedBelow, R0, 0, pass);
    program.set(R1, device).set(R2, 0).call(REDIRECT).exit();
    program.here(unattended);
    count(&mut program, alive, UNATTENDED);
    program.jump(pass).here(too_long);
    count(&mut program, alive, TOO_LONG);
    program.here(pass).set(R0, PASS).exit();
    program.finish()
}

/// Emits code that adds one to a shared word.
fn count(program: &mut Assembler, alive: BorrowedFd<'_>, word: usize) {
    let place = word as i16 * BYTES;
    program.array(R1, alive).load(LoadSize::Eight, R2, R1, place);
    program.number(AluOperation::Add, R2, 1).store(R1, place, R2);
}

/// Returns the program at the ingress of the queue's device.
pub(super) fn xdp_redirect(sockets: BorrowedFd<'_>) -> Vec<u64> {
    let mut program = Assembler::default();
    program.load(LoadSize::Four, R2, R1, QUEUE).map(R1, sockets).set(R3, DROP).call(REDIRECT_MAP).exit();
    program.finish().expect("short because it is six instructions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use unisono_fairqueue::Policy;
    use unisono_linux::bpf::{ClassifierProgram, Redirector, SocketMap, Words};
    use unisono_linux::process::is_root;

    /// Makes the shared words of a program, or says why they cannot be made here.
    fn shared_words() -> Option<Words> {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return None;
        }
        Words::new("unisono_test", WORDS)
            .inspect_err(|error| eprintln!("skipped: no BPF maps here: {error}"))
            .ok()
    }

    #[test]
    fn the_verifier_takes_both_programs_and_a_queue_that_is_not_alive_is_passed_by() {
        let Some(words) = shared_words() else { return };
        let rules: String = (0..30)
            .map(|at| {
                format!("{{ cgroup = \"/{at}/a\" }}, {{ priority = {} }}, {{ mark = {at} }},", u32::MAX - at)
            })
            .collect();
        let policy =
            Policy::parse(&format!("rate = \"1mbit\"\n[class.a]\nmatch = [{rules}]")).expect("sound");
        let named = Named::from_policy(&policy).expect("a few");
        let groups: Vec<GroupTag> = named
            .cgroups()
            .zip(0..)
            .map(|((_, number), at)| GroupTag { level: 2, id: 1 << 40 | at, number, sender: Some(number) })
            .collect();
        let numbers = NamedNumbers::new(&named).expect("there is room").expect("there are some");
        let of = |queue| egress_redirect(words.as_fd(), queue, &groups, Some(&numbers)).expect("few groups");
        let program = of(Index(1 << 20));
        let program = ClassifierProgram::load("unisono_test", &program).expect("the verifier takes it");
        let frame = [0; 64];
        assert_eq!(program.test(&frame).expect("a frame"), PASS as u32, "not alive");
        words.all()[ALIVE].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(program.test(&frame).expect("a frame"), PASS as u32, "no such device");
        let here = ClassifierProgram::load("unisono_test", &of(Index::LOOPBACK));
        let here = here.expect("the verifier takes it");
        assert_eq!(here.test(&frame).expect("a frame"), 7, "handed over");
        assert_eq!(words.all()[TOO_LONG].load(Ordering::Relaxed), 0);
        assert_eq!(words.all()[UNATTENDED].load(Ordering::Relaxed), 1, "while it was not alive");

        let sockets = SocketMap::new("unisono_test", 1).expect("AF_XDP is here");
        Redirector::load("unisono_test", &xdp_redirect(sockets.as_fd())).expect("the verifier takes it");
    }

    #[test]
    fn the_marks_of_fifty_thousand_subscribers_make_a_program() {
        let Some(words) = shared_words() else { return };
        let rules: String = (1..=50_000).map(|mark| format!("{{ mark = {mark} }},")).collect();
        let policy =
            Policy::parse(&format!("rate = \"1mbit\"\n[class.a]\nmatch = [{rules}]")).expect("sound");
        let named = Named::from_policy(&policy).expect("fewer than 65,536");
        let numbers = NamedNumbers::new(&named).expect("there is room").expect("there are some");
        let program = egress_redirect(words.as_fd(), Index::LOOPBACK, &[], Some(&numbers));
        ClassifierProgram::load("unisono_test", &program.expect("no groups")).expect("the verifier takes it");
        let many: Vec<GroupTag> =
            (0..20_000).map(|id| GroupTag { level: 2, id, number: 1, sender: None }).collect();
        assert!(egress_redirect(words.as_fd(), Index::LOOPBACK, &many, None).is_none());
    }
}
