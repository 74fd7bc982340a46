//! Schedules the packets that a device receives, by a redirection through an intermediate functional block
//! (IFB): a device that returns each packet sent to it, so that its queueing discipline can schedule incoming
//! packets.
//!
//! ```text
//!   device receives --> clsact, our filter: redirect --> IFB and its queueing discipline
//!                                                                  |
//!                             device receives, as if nothing had happened
//! ```
//!
//! The filter is a BPF program that matches every packet (`cls_bpf`) with a redirecting action
//! (`act_mirred`). The program cannot redirect packets itself: it would not mark them as an IFB requires, and
//! the IFB would drop them. Packets that return from the IFB skip the filter.
//!
//! Cost: one more queueing discipline for each packet, and a softirq. When not to use it: the packets have
//! already crossed the link; dropping them slows down only senders that react to loss (TCP). A device that
//! merges packets on arrival (GRO) redirects the merged packets. Reference: tc-mirred(8), tc-bpf(8),
//! include/uapi/linux/tc_act/tc_mirred.h, drivers/net/ifb.c.

use super::filter::{Preference, TrafficHook};
use super::link::{Index, LINK_INFO, NAME, NEW_LINK, head as link_head};
use super::message::{CREATE_NEW, NetlinkRequest};
use super::qdisc::{CREATE_OR_REPLACE, KIND, OPTIONS, head};
use super::traffic::{BPF_NAME, BPF_PROGRAM, NEW_FILTER, OURS};
use std::os::fd::{AsRawFd, BorrowedFd};

const BPF_ACTIONS: u16 = 1;
/// The number of a filter's first action.
const FIRST_ACTION: u16 = 1;
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const MIRRED_PARAMETERS: u16 = 2;
/// `TC_ACT_STOLEN`: the packet was taken away.
const STOLEN: u32 = 4;
/// `TCA_EGRESS_REDIR`: as if the other device sent it.
const TO_EGRESS: u32 = 1;

/// Makes an IFB with this name and number, switched off. The kernel refuses if the name or number is taken,
/// and with `EOPNOTSUPP` if it has no such devices.
pub fn make_block(index: Index, name: &str) -> NetlinkRequest {
    let what = format!("make the device {name} for incoming packets");
    let mut request = NetlinkRequest::new(what, NEW_LINK, CREATE_NEW, &link_head(Some(index), 0, 0));
    request.text(NAME, name).nest(LINK_INFO, |info| {
        info.text(KIND, "ifb");
    });
    request
}

/// Redirects packets that a device receives to another device, if `program` does not return 0; needs
/// [`clsact`](super::traffic::clsact). Replaces our earlier filter of this preference.
pub fn redirect(
    device: Index,
    preference: Preference,
    to: Index,
    program: BorrowedFd<'_>,
    name: &str,
) -> NetlinkRequest {
    let what = format!("redirect what device {} receives", device.0);
    let fixed = head(device, OURS, TrafficHook::Ingress.parent(), preference.of_all_protocols());
    let mut request = NetlinkRequest::new(what, NEW_FILTER, CREATE_OR_REPLACE, &fixed);
    // struct tc_mirred: index, capabilities, action, two reference counts; kind of redirection, device
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
