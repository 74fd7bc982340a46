//! The few rtnetlink messages that the network probes send.
//!
//! Messages are encoded before the scratch process is forked, because that process may not allocate memory;
//! it only sends them and reads the acknowledgments. This is not a netlink library.
//!
//! Reference: netlink(7), rtnetlink(7).

use super::scratch::errno;
use crate::netlink::NetlinkRequest;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::BorrowedFd;

const CREATE: u16 = 0x400;
/// Without this flag the kernel treats a second discipline as a change of the first, and never looks up its
/// kind.
const REPLACE: u16 = 0x100;
const NEW_LINK: u16 = 16;
const NEW_QDISC: u16 = 36;
const QDISC_KIND: u16 = 1;
const LINK_INFO: u16 = 18;
const LINK_KIND: u16 = 1;
const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;
/// In a new network namespace the loopback device always has number 1.
const LOOPBACK: u32 = 1;

/// Makes a request for a queueing discipline on the loopback device.
pub(super) fn new_qdisc(kind: &str) -> Vec<u8> {
    let parent = if matches!(kind, "ingress" | "clsact") { INGRESS } else { ROOT };
    // struct tcmsg: family, interface, handle, parent, info
    let fixed: Vec<u8> = [0, LOOPBACK, 0, parent, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
    let mut request = NetlinkRequest::new(String::new(), NEW_QDISC, CREATE | REPLACE, &fixed);
    encoded(request.text(QDISC_KIND, kind))
}

/// Makes a request for a device of a kind; the kernel chooses its name.
pub(super) fn new_link(kind: &str) -> Vec<u8> {
    // struct ifinfomsg, all zero
    let mut request = NetlinkRequest::new(String::new(), NEW_LINK, CREATE, &[0; 16]);
    encoded(request.nest(LINK_INFO, |info| _ = info.text(LINK_KIND, kind)))
}

fn encoded(request: &NetlinkRequest) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.write(0, true, &mut bytes);
    bytes
}

/// Sends a request and returns the `errno` of its acknowledgment, 0 for success. Makes only async-signal-safe
/// calls.
pub(super) fn ask(socket: BorrowedFd<'_>, message: &[u8]) -> i32 {
    let mut answer = [0_u8; 4096];
    let answered = send(socket, message, SendFlags::empty())
        .and_then(|_| recv(socket, &mut answer, RecvFlags::empty()))
        .map(|(length, _)| length);
    // struct nlmsghdr (16 bytes), then the negated errno
    match (answered, answer[16..20].try_into()) {
        (Ok(20..), Ok(bytes)) => i32::from_ne_bytes(bytes).wrapping_neg(),
        (Ok(_), _) => libc::EIO,
        (refused, _) => errno(refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_carries_its_own_length_and_is_padded() {
        for bytes in [new_qdisc("htb"), new_qdisc("ingress"), new_link("veth")] {
            let length = u32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"));
            assert_eq!(length as usize, bytes.len());
            assert_eq!(bytes.len() % 4, 0);
        }
    }
}
