//! BPF programs that decide about frames. At ingress, the `clsact` queueing discipline with a `bpf` filter in
//! direct-action mode runs the program on every frame that arrives at a device; the program's result is the
//! action. At egress, a `bpf` filter of a classful queueing discipline runs the program on every frame; the
//! result is the frame's class.
//!
//! Cost: some 50 ns per frame in addition to the program itself. A filter keeps its program: it continues to
//! work after the process that loaded it has ended, as long as the device exists. Reference: tc-bpf(8),
//! include/uapi/linux/{pkt_sched,pkt_cls}.h.

use super::link::Index;
use super::message::{CREATE_NEW, NetlinkRequest};
use super::qdisc::{CREATE_OR_REPLACE, KIND, NEW_QDISC, OPTIONS, head};
use std::os::fd::{AsRawFd, BorrowedFd};

pub(super) const NEW_FILTER: u16 = 44;
pub(super) const DELETE_FILTER: u16 = 45;
pub(super) const BPF_PROGRAM: u16 = 6;
pub(super) const BPF_NAME: u16 = 7;
pub(super) const BPF_FLAGS: u16 = 8;
/// The program itself decides about a packet (`TCA_BPF_FLAG_ACT_DIRECT`).
pub(super) const DIRECT_ACTION: u32 = 1;
pub(super) const CLSACT: u32 = 0xffff_fff1;
pub(super) const CLSACT_INGRESS: u32 = 0xffff_fff2;
pub(super) const CLSACT_EGRESS: u32 = 0xffff_fff3;
pub(super) const CLSACT_HANDLE: u32 = 0xffff_0000;
/// The handle of our filters; it distinguishes them from filters of other programs.
pub(super) const OURS: u32 = 0x756e_6973;
/// `tcm_info` of a filter that runs first, for all protocols: the priority in the upper half, the protocol in
/// network byte order in the lower.
pub(super) const FIRST_OF_ALL: u32 = 1 << 16 | (libc::ETH_P_ALL as u16).to_be() as u32;

/// Adds a clsact discipline to a device. It costs nothing as long as it has no programs.
pub fn clsact(device: Index) -> NetlinkRequest {
    let what = format!("add a clsact queueing discipline to device {}", device.0);
    let mut request =
        NetlinkRequest::new(what, NEW_QDISC, CREATE_NEW, &head(device, CLSACT_HANDLE, CLSACT, 0));
    request.text(KIND, "clsact");
    request
}

/// Attaches a program that decides about each arriving frame; needs [`clsact`].
pub fn at_ingress(device: Index, program: BorrowedFd<'_>, name: &str) -> NetlinkRequest {
    let what = format!("attach the program {name} to device {}", device.0);
    deciding(what, CREATE_NEW, &head(device, 0, CLSACT_INGRESS, FIRST_OF_ALL), program, name)
}

/// Makes a filter whose program's result is the action for the frame.
pub(super) fn deciding(
    what: String,
    flags: u16,
    fixed: &[u8],
    program: BorrowedFd<'_>,
    name: &str,
) -> NetlinkRequest {
    let mut request = NetlinkRequest::new(what, NEW_FILTER, flags, fixed);
    request.text(KIND, "bpf").nest(OPTIONS, |options| {
        options
            .attribute(BPF_PROGRAM, &program.as_raw_fd().to_ne_bytes())
            .text(BPF_NAME, name)
            .attribute(BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes());
    });
    request
}

/// Attaches a program that chooses the class of each queued frame: its result is the class's number. Replaces
/// the earlier program in one step.
pub fn classify(device: Index, handle: u32, program: BorrowedFd<'_>, name: &str) -> NetlinkRequest {
    let what = format!("attach the program {name} to the queueing discipline of device {}", device.0);
    let fixed = head(device, 1, handle, FIRST_OF_ALL);
    let mut request = NetlinkRequest::new(what, NEW_FILTER, CREATE_OR_REPLACE, &fixed);
    request.text(KIND, "bpf").nest(OPTIONS, |options| {
        options.attribute(BPF_PROGRAM, &program.as_raw_fd().to_ne_bytes()).text(BPF_NAME, name);
    });
    request
}
