//! The packets that a device receives, on a detour through an intermediate functional block (IFB): a device
//! that hands back what is sent to it, so that a queueing discipline can schedule what comes in.
//!
//! ```text
//!   device receives --> clsact, filter of ours: redirect --> IFB and its queueing discipline
//!                                                                  |
//!                             device receives, as if nothing had happened
//! ```
//! The filter is a BPF program that takes every packet (`cls_bpf`) with a redirecting action
//! (`act_mirred`): the program's own way to redirect does not mark packets as an IFB wants them marked, and
//! the IFB drops them. Packets that have made the detour do not meet the filter again.
//!
//! Cost: one more queueing discipline for each packet, and a softirq. When not to use it: the packets have
//! already crossed the link; dropping them slows down only senders that notice (TCP). A device that merges
//! packets as they come in (GRO) hands on the merged ones. Reference: tc-mirred(8), tc-bpf(8),
//! include/uapi/linux/tc_act/tc_mirred.h, drivers/net/ifb.c.

use super::link::{Index, NEW_LINK, head as link_head};
use super::message::NetlinkRequest;
use super::traffic::{
    CLSACT_INGRESS, CREATE_OR_REPLACE, DELETE_FILTER, FIRST_OF_ALL, KIND, NEW_FILTER, OPTIONS, OURS, head,
};
use std::os::fd::{AsRawFd, BorrowedFd};

const CREATE_NEW: u16 = 0x400 | 0x200;
const NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const BPF_ACTIONS: u16 = 1;
const BPF_PROGRAM: u16 = 6;
const BPF_NAME: u16 = 7;
/// The first of the actions of a filter.
const FIRST_ACTION: u16 = 1;
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const MIRRED_PARAMETERS: u16 = 2;
/// `TC_ACT_STOLEN`: the packet has gone elsewhere.
const STOLEN: u32 = 4;
/// `TCA_EGRESS_REDIR`: as if the other device sent it.
const TO_EGRESS: u32 = 1;

/// Makes an IFB with this name and number, which is off. It is refused if either is taken, and with
/// `EOPNOTSUPP` if the kernel knows no such devices.
pub fn make_block(index: Index, name: &str) -> NetlinkRequest {
    let what = format!("make the device {name} for incoming packets");
    let mut request = NetlinkRequest::new(what, NEW_LINK, CREATE_NEW, &link_head(Some(index), 0, 0));
    request.text(NAME, name).nest(LINK_INFO, |info| {
        info.text(KIND, "ifb");
    });
    request
}

/// Sends every packet that a device receives to another one, if `program` does not answer 0; needs
/// [`clsact`](super::traffic::clsact). Replaces ours that did so before.
pub fn redirect(device: Index, to: Index, program: BorrowedFd<'_>, name: &str) -> NetlinkRequest {
    let what = format!("redirect what device {} receives", device.0);
    let fixed = head(device, OURS, CLSACT_INGRESS, FIRST_OF_ALL);
    let mut request = NetlinkRequest::new(what, NEW_FILTER, CREATE_OR_REPLACE, &fixed);
    // struct tc_mirred: index, capabilities, action, two counts of references; what to do, device
    let parameters = [0, 0, STOLEN, 0, 0, TO_EGRESS, to.0].map(u32::to_ne_bytes).concat();
    request.text(KIND, "bpf").nest(OPTIONS, |options| {
        options.attribute(BPF_PROGRAM, &program.as_raw_fd().to_ne_bytes()).text(BPF_NAME, name).nest(
            BPF_ACTIONS,
            |actions| {
                actions.nest(FIRST_ACTION, |action| {
                    action.text(ACTION_KIND, "mirred").nest(ACTION_OPTIONS, |options| {
                        options.attribute(MIRRED_PARAMETERS, &parameters);
                    });
                });
            },
        );
    });
    request
}

/// Takes our filter away from where a device receives.
pub fn receive_directly(device: Index) -> NetlinkRequest {
    let what = format!("take our filter away from where device {} receives", device.0);
    let mut request =
        NetlinkRequest::new(what, DELETE_FILTER, 0, &head(device, OURS, CLSACT_INGRESS, FIRST_OF_ALL));
    request.text(KIND, "bpf");
    request
}
