//! The queueing discipline of a device, by the name of its kind: what decides which packet leaves next.
//!
//! Reference: tc(8), include/uapi/linux/{pkt_sched,rtnetlink}.h.

use super::link::Index;
use super::message::Request;

const NEW: u16 = 36;
const DELETE: u16 = 37;
const CREATE: u16 = 0x400;
const REPLACE: u16 = 0x100;
const KIND: u16 = 1;
const ROOT: u32 = 0xffff_ffff;

/// Gives a device a discipline in place of the one it has; `major` is its number among the device's own.
#[must_use]
pub fn root(device: Index, kind: &str, major: u16) -> Request {
    let what = format!("give device {} the queueing discipline {kind}", device.0);
    let mut request = Request::new(what, NEW, CREATE | REPLACE, &head(device, u32::from(major) << 16));
    request.text(KIND, kind);
    request
}

/// Takes the discipline off a device that it was given; the kernel's default comes back.
#[must_use]
pub fn remove_root(device: Index) -> Request {
    let what = format!("take the queueing discipline off device {}", device.0);
    Request::new(what, DELETE, 0, &head(device, 0))
}

/// `struct tcmsg`: family, device, handle, parent, info.
fn head(device: Index, handle: u32) -> [u8; 20] {
    let mut head = [0; 20];
    for (at, word) in (4..).step_by(4).zip([device.0, handle, ROOT, 0]) {
        head[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    head
}
