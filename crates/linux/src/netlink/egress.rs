//! A BPF program that decides about every frame that a device is about to send: at the `clsact` queueing discipline, before
//! the device's own.
//!
//! The program is attached in direct-action mode, at a place that it can be replaced in at once and taken away from without
//! touching what others have attached. Frames that are sent past the queueing disciplines (`PACKET_QDISC_BYPASS`,
//! `AF_XDP`) do not come by. Reference: tc-bpf(8), include/uapi/linux/{pkt_sched,pkt_cls}.h.

use super::link::Index;
use super::message::Request;
use std::os::fd::{AsRawFd, BorrowedFd};

const DELETE_QDISC: u16 = 37;
const NEW_FILTER: u16 = 44;
const DELETE_FILTER: u16 = 45;
const CREATE: u16 = 0x400;
const REPLACE: u16 = 0x100;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BPF_PROGRAM: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const DIRECT_ACTION: u32 = 1;
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_EGRESS: u32 = 0xffff_fff3;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// The priority in the upper half, the protocol (all) in network byte order in the lower. Ours comes first; the handle
/// tells it from what others may have there.
const FIRST_OF_ALL: u32 = 1 << 16 | (libc::ETH_P_ALL as u16).to_be() as u32;
const HANDLE: u32 = 0x756e_6973;

/// Has a program decide about each frame that is to be sent, in place of ours that did so before; needs
/// [`clsact`](super::traffic::clsact).
#[must_use]
pub fn attach(device: Index, program: BorrowedFd<'_>, name: &str) -> Request {
    let what = format!("attach the program {name} where device {} sends", device.0);
    let fixed = head(device, HANDLE, CLSACT_EGRESS, FIRST_OF_ALL);
    let mut request = Request::new(what, NEW_FILTER, CREATE | REPLACE, &fixed);
    request.text(KIND, "bpf").nest(OPTIONS, |options| {
        options
            .attribute(BPF_PROGRAM, &program.as_raw_fd().to_ne_bytes())
            .text(BPF_NAME, name)
            .attribute(BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes());
    });
    request
}

/// Takes ours away.
#[must_use]
pub fn detach(device: Index) -> Request {
    let what = format!("take our program away from where device {} sends", device.0);
    let mut request =
        Request::new(what, DELETE_FILTER, 0, &head(device, HANDLE, CLSACT_EGRESS, FIRST_OF_ALL));
    request.text(KIND, "bpf");
    request
}

/// Takes the place for programs away, with all programs in it.
#[must_use]
pub fn remove_clsact(device: Index) -> Request {
    let what = format!("remove the clsact queueing discipline of device {}", device.0);
    let mut request = Request::new(what, DELETE_QDISC, 0, &head(device, CLSACT_HANDLE, CLSACT, 0));
    request.text(KIND, "clsact");
    request
}

/// `struct tcmsg`: family, device, handle, parent, info.
fn head(device: Index, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut head = [0; 20];
    for (at, word) in (4..).step_by(4).zip([device.0, handle, parent, info]) {
        head[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    head
}
