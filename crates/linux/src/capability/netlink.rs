//! The few rtnetlink messages that the network probes send.
//!
//! Messages are encoded before the scratch process is forked, because that process may not allocate;
//! it only sends them and reads the acknowledgements. This is not a netlink library.
//!
//! Reference: netlink(7), rtnetlink(7).

use super::scratch::errno_of;

const REQUEST_ACK_CREATE: u16 = 0x1 | 0x4 | 0x400;
/// Without it the kernel takes a second discipline for a change of the first, and never looks up
/// its kind.
const REPLACE: u16 = 0x100;
const NEW_LINK: u16 = 16;
const NEW_QDISC: u16 = 36;
const QDISC_KIND: u16 = 1;
const LINK_INFO: u16 = 18;
const LINK_KIND: u16 = 1;
const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;
/// In a new network namespace the loopback device is always the first.
const LOOPBACK: u32 = 1;

/// Asks for a queueing discipline on the loopback device.
pub(super) fn new_qdisc(kind: &str) -> Vec<u8> {
    let parent = if matches!(kind, "ingress" | "clsact") { INGRESS } else { ROOT };
    // struct tcmsg: family, interface, handle, parent, info
    let mut body = Vec::new();
    for word in [0, LOOPBACK, 0, parent, 0] {
        body.extend(word.to_ne_bytes());
    }
    body.extend(attribute(QDISC_KIND, &with_zero(kind)));
    message(NEW_QDISC, &body)
}

/// Asks for a device of a kind; the kernel chooses its name.
pub(super) fn new_link(kind: &str) -> Vec<u8> {
    // struct ifinfomsg, all zero
    let mut body = vec![0; 16];
    body.extend(attribute(LINK_INFO, &attribute(LINK_KIND, &with_zero(kind))));
    message(NEW_LINK, &body)
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + body.len());
    bytes.extend((16 + body.len() as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    let replace = if kind == NEW_QDISC { REPLACE } else { 0 };
    bytes.extend((REQUEST_ACK_CREATE | replace).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn with_zero(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// Opens a route netlink socket; negative if it cannot. Makes only async-signal-safe calls.
pub(super) fn open() -> i32 {
    // SAFETY: takes no pointers.
    unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) }
}

/// Sends one request and answers the `errno` of its acknowledgement, 0 for success. Makes only
/// async-signal-safe calls.
pub(super) fn ask(socket: i32, message: &[u8]) -> i32 {
    // SAFETY: `message` is valid for reads of its length.
    let sent = unsafe { libc::send(socket, message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return errno_of(sent as i64);
    }
    let mut answer = [0_u8; 4096];
    // SAFETY: `answer` is valid for writes of its length.
    let got = unsafe { libc::recv(socket, answer.as_mut_ptr().cast(), answer.len(), 0) };
    // struct nlmsghdr (16 bytes), then the negated errno
    match (got >= 20, answer[16..20].try_into()) {
        (true, Ok(bytes)) => -i32::from_ne_bytes(bytes),
        _ => libc::EIO,
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
