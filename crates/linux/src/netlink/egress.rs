//! A BPF program that decides about every frame that a device is about to send: at the `clsact` queueing discipline, before
//! the device's own.
//!
//! The program is attached in direct-action mode, at a place that it can be replaced in at once and taken away from without
//! touching what others have attached. Frames that are sent past the queueing disciplines (`PACKET_QDISC_BYPASS`,
//! `AF_XDP`) do not come by. Reference: tc-bpf(8), include/uapi/linux/{pkt_sched,pkt_cls}.h.

use super::link::Index;
use super::message::Request;
use super::traffic::{CLSACT, CLSACT_HANDLE, CREATE_OR_REPLACE, FIRST_OF_ALL, KIND, deciding, head};
use std::os::fd::BorrowedFd;

const DELETE_QDISC: u16 = 37;
const DELETE_FILTER: u16 = 45;
const CLSACT_EGRESS: u32 = 0xffff_fff3;
/// Tells ours from what others may have there.
const HANDLE: u32 = 0x756e_6973;

/// Has a program decide about each frame that is to be sent, in place of ours that did so before; needs
/// [`clsact`](super::traffic::clsact).
#[must_use]
pub fn attach(device: Index, program: BorrowedFd<'_>, name: &str) -> Request {
    let what = format!("attach the program {name} where device {} sends", device.0);
    let fixed = head(device, HANDLE, CLSACT_EGRESS, FIRST_OF_ALL);
    deciding(what, CREATE_OR_REPLACE, &fixed, program, name)
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
