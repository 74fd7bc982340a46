//! A BPF program that decides about every frame that a device is about to send. It runs at the `clsact`
//! queueing discipline, before the device's own queueing discipline.
//!
//! The program is attached in direct-action mode, with a handle of its own: it can be replaced in one step,
//! and removed without touching filters of other programs. Frames that bypass the queueing disciplines
//! (`PACKET_QDISC_BYPASS`, `AF_XDP`) do not reach it. Reference: tc-bpf(8),
//! include/uapi/linux/{pkt_sched,pkt_cls}.h.

use super::filter::{self, Preference, TrafficHook};
use super::link::Index;
use super::message::NetlinkRequest;
use super::qdisc::{CREATE_OR_REPLACE, DELETE_QDISC, KIND, head};
use super::traffic::{CLSACT, CLSACT_HANDLE, OURS, deciding};
use super::{NetlinkSocket, Refused};
use std::os::fd::BorrowedFd;

/// Attaches a program that decides about each frame to be sent, and replaces our earlier program at this
/// preference; needs [`clsact`](super::traffic::clsact).
pub fn attach(device: Index, preference: Preference, program: BorrowedFd<'_>, name: &str) -> NetlinkRequest {
    let what = format!("attach the program {name} where device {} sends", device.0);
    let fixed = head(device, OURS, TrafficHook::Egress.parent(), preference.of_all_protocols());
    deciding(what, CREATE_OR_REPLACE, &fixed, program, name)
}

/// Removes the clsact discipline unless another program has a filter there, in either direction. Returns
/// whether it was removed.
pub fn remove_unused_clsact(socket: &mut NetlinkSocket, device: Index) -> Result<bool, Refused> {
    for hook in [TrafficHook::Ingress, TrafficHook::Egress] {
        if filter::is_used(socket, device, hook)? {
            return Ok(false);
        }
    }
    let what = format!("remove the clsact queueing discipline of device {}", device.0);
    let mut request = NetlinkRequest::new(what, DELETE_QDISC, 0, &head(device, CLSACT_HANDLE, CLSACT, 0));
    request.text(KIND, "clsact");
    socket.run(&[request])?;
    Ok(true)
}
