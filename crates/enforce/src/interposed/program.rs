//! The two programs in the kernel, a few dozen instructions each.
//!
//! *Where the device sends*: if the queue is alive and its own device is there, write into a VLAN tag which control group
//! and priority of the policy the sender has ([`super::classify`]), and hand the frame over to that device; else let it pass.
//! This is what happens when the queue's process dies, stops or is killed: the traffic flows on, unscheduled. The queue
//! says that it is alive by a time in a shared word, until when it is to be believed.
//!
//! *Where the queue's device receives* (`AF_XDP` alone): put the frame into the socket of its receive queue, or drop it.
//!
//! Reference: bpf-helpers(7); include/uapi/linux/bpf.h.

use super::classify::{Named, TAG_TYPE};
use std::os::fd::BorrowedFd;
use unisono_linux::bpf::assembler::{Assembler, If, Register, STACK};
use unisono_linux::netlink::link::Index;

const KTIME_GET_NS: i32 = 5;
const SKB_VLAN_PUSH: i32 = 18;
const REDIRECT: i32 = 23;
const REDIRECT_MAP: i32 = 51;
const SKB_ANCESTOR_CGROUP_ID: i32 = 83;
const CHECK_MTU: i32 = 163;
/// Let the next program, or at the end the device, decide.
const PASS: i32 = -1;
const DROP: i32 = 1;
/// Places in `struct __sk_buff` and `struct xdp_md`.
const PRIORITY: i16 = 32;
const QUEUE: i16 = 16;

const R0: Register = Register(0);
const R1: Register = Register(1);
const R2: Register = Register(2);
const R3: Register = Register(3);
const R4: Register = Register(4);
const R5: Register = Register(5);
const CONTEXT: Register = Register(6);
const LIMIT: Register = Register(7);
const NUMBER: Register = Register(8);

/// A control group as the kernel numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group {
    /// Below the root, which is 0.
    pub(super) level: u32,
    pub(super) id: u64,
    /// What it adds to the number in the tag.
    pub(super) number: u16,
}

/// The program for where the device sends. `alive` is an array whose first word is the time until when the queue is to
/// be believed; `groups` come with the deepest first.
pub(super) fn capture(alive: BorrowedFd<'_>, queue: Index, groups: &[Group], named: &Named) -> Vec<u64> {
    let mut program = Assembler::new();
    let (pass, tag) = (program.label(), program.label());
    let device = queue.0 as i32;

    program.copy(CONTEXT, R1).array(R1, alive).load_double(LIMIT, R1, 0);
    program.call(KTIME_GET_NS).jump_if_registers(R0, If::Greater, LIMIT, pass);
    // a device that is gone with its process is noticed at once
    program.store_word(STACK, -4, 0).copy(R1, CONTEXT).number(R2, device);
    program.copy(R3, STACK).add(R3, -4).number(R4, 0).number(R5, 0).call(CHECK_MTU);
    program.jump_if(R0, If::SignedLess, 0, pass);

    program.number(NUMBER, 0);
    let priority = program.label();
    let mut asked = None;
    for group in groups {
        if asked.replace(group.level) != Some(group.level) {
            program.copy(R1, CONTEXT).number(R2, group.level as i32).call(SKB_ANCESTOR_CGROUP_ID);
        }
        let next = program.label();
        program.long_number(R1, group.id).jump_if_registers(R0, If::NotEqual, R1, next);
        program.number(NUMBER, group.number.into()).jump(priority).place(next);
    }
    program.place(priority);
    let mut names = named.priorities().peekable();
    if names.peek().is_some() {
        program.load_word(R0, CONTEXT, PRIORITY);
    }
    for (value, number) in names {
        let next = program.label();
        program.long_number(R1, value.into()).jump_if_registers(R0, If::NotEqual, R1, next);
        program.add(NUMBER, number.into()).jump(tag).place(next);
    }

    program.place(tag).copy(R1, CONTEXT).number(R2, TAG_TYPE.to_be().into()).copy(R3, NUMBER);
    program.call(SKB_VLAN_PUSH).jump_if(R0, If::SignedLess, 0, pass);
    program.number(R1, device).number(R2, 0).call(REDIRECT).exit();
    program.place(pass).number(R0, PASS).exit();
    program.finish()
}

/// The program for where the queue's device receives.
pub(super) fn deliver(sockets: BorrowedFd<'_>) -> Vec<u64> {
    let mut program = Assembler::new();
    program.load_word(R2, R1, QUEUE).map(R1, sockets).number(R3, DROP).call(REDIRECT_MAP).exit();
    program.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;
    use unisono_fairqueue::Policy;
    use unisono_linux::bpf::{Classifier, Redirector, SocketMap, Words};
    use unisono_linux::process::is_root;

    #[test]
    fn the_verifier_takes_both_programs_and_a_queue_that_is_not_alive_is_passed_by() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        let words = match Words::new("unisono_test", 1) {
            Ok(words) => words,
            Err(error) => {
                eprintln!("skipped: no BPF maps here: {error}");
                return;
            }
        };
        let rules: String = (0..40)
            .map(|at| format!("{{ cgroup = \"/{at}/a\" }}, {{ priority = {} }},", u32::MAX - at))
            .collect();
        let policy =
            Policy::parse(&format!("rate = \"1mbit\"\n[class.a]\nmatch = [{rules}]")).expect("sound");
        let named = Named::of(&policy).expect("a few");
        let groups: Vec<Group> = named
            .cgroups()
            .zip(0..)
            .map(|((_, number), at)| Group { level: 2, id: 1 << 40 | at, number })
            .collect();
        let program = capture(words.as_fd(), Index(1 << 20), &groups, &named);
        let program = Classifier::load("unisono_test", &program).expect("the verifier takes it");
        let frame = [0; 64];
        assert_eq!(program.test(&frame).expect("a frame"), PASS as u32, "not alive");
        words.all()[0].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(program.test(&frame).expect("a frame"), PASS as u32, "no such device");
        let here =
            Classifier::load("unisono_test", &capture(words.as_fd(), Index::LOOPBACK, &groups, &named));
        assert_eq!(here.expect("the verifier takes it").test(&frame).expect("a frame"), 7, "handed over");

        let sockets = SocketMap::new("unisono_test", 1).expect("AF_XDP is here");
        Redirector::load("unisono_test", &deliver(sockets.as_fd())).expect("the verifier takes it");
    }
}
