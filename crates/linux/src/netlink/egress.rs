//! A BPF program that decides about every frame that a device is about to send: at the `clsact` queueing
//! discipline, before the device's own.
//!
//! The program is attached in direct-action mode, with a handle of its own: it can be replaced in one step,
//! and removed without touching filters of other programs. Frames that bypass the queueing disciplines
//! (`PACKET_QDISC_BYPASS`, `AF_XDP`) do not reach it. Reference: tc-bpf(8),
//! include/uapi/linux/{pkt_sched,pkt_cls}.h.

use super::link::Index;
use super::message::{NetlinkRequest, TABLE};
use super::traffic::{
    CLSACT, CLSACT_HANDLE, CLSACT_INGRESS, CREATE_OR_REPLACE, DELETE_FILTER, FIRST_OF_ALL, KIND, OURS,
    deciding, head,
};
use super::{NetlinkSocket, Refused};
use std::os::fd::BorrowedFd;

const DELETE_QDISC: u16 = 37;
const READ_FILTERS: u16 = 46;
const CLSACT_EGRESS: u32 = 0xffff_fff3;

/// Attaches a program that decides about each frame to be sent, and replaces our earlier program; needs
/// [`clsact`](super::traffic::clsact).
pub fn attach(device: Index, program: BorrowedFd<'_>, name: &str) -> NetlinkRequest {
    let what = format!("attach the program {name} where device {} sends", device.0);
    let fixed = head(device, OURS, CLSACT_EGRESS, FIRST_OF_ALL);
    deciding(what, CREATE_OR_REPLACE, &fixed, program, name)
}

/// Removes our program.
pub fn detach(device: Index) -> NetlinkRequest {
    let what = format!("take our program away from where device {} sends", device.0);
    let mut request =
        NetlinkRequest::new(what, DELETE_FILTER, 0, &head(device, OURS, CLSACT_EGRESS, FIRST_OF_ALL));
    request.text(KIND, "bpf");
    request
}

/// Removes the clsact discipline unless another program has a filter there, in either direction. Returns
/// whether it was removed.
pub fn remove_unused_clsact(socket: &mut NetlinkSocket, device: Index) -> Result<bool, Refused> {
    for place in [CLSACT_INGRESS, CLSACT_EGRESS] {
        let what = format!("list the filters of device {}", device.0);
        let entries =
            socket.table(&NetlinkRequest::new(what, READ_FILTERS, TABLE, &head(device, 0, place, 0)), 20)?;
        if entries.iter().any(|entry| entry.word(4) == device.0) {
            return Ok(false);
        }
    }
    let what = format!("remove the clsact queueing discipline of device {}", device.0);
    let mut request = NetlinkRequest::new(what, DELETE_QDISC, 0, &head(device, CLSACT_HANDLE, CLSACT, 0));
    request.text(KIND, "clsact");
    socket.run(&[request])?;
    Ok(true)
}
