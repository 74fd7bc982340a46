//! Limits a device's rate: the token bucket queueing discipline (TBF), a single first-in-first-out queue
//! behind a token bucket.
//!
//! Packets larger than the bucket (of several segments) are segmented before they pass. Cost: a timer per
//! packet while the link is full. When not to use: for shares; it has no classes. Reference: tc-tbf(8),
//! include/uapi/linux/pkt_sched.h.

use super::link::Index;
use super::message::NetlinkRequest;
use super::qdisc::{CREATE_OR_REPLACE, KIND, NEW_QDISC, OPTIONS, ROOT, head};

const HANDLE: u32 = 0x1_0000;
const PARAMETERS: u16 = 1;
const RATE64: u16 = 4;
const BURST: u16 = 6;
const ETHERNET: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    /// Bits per second.
    pub bits_per_s: u64,
    /// The number of bytes that may pass at once after a pause.
    pub burst: u32,
    /// The maximum number of waiting bytes.
    pub limit: u32,
}

/// Limits a device to this rate. The bucket replaces the device's previous root discipline.
pub fn set(device: Index, link: TokenBucket) -> NetlinkRequest {
    let what = format!("give device {} a link of {} bit/s", device.0, link.bits_per_s);
    let bytes_per_s = link.bits_per_s / 8;
    // struct tc_tbf_qopt: rate and peak rate (struct tc_ratespec, 12 bytes each), limit, buffer, mtu
    let mut parameters = [0; 36];
    parameters[1] = ETHERNET;
    parameters[8..12].copy_from_slice(&u32::try_from(bytes_per_s).unwrap_or(u32::MAX).to_ne_bytes());
    parameters[24..28].copy_from_slice(&link.limit.to_ne_bytes());
    let mut request = NetlinkRequest::new(what, NEW_QDISC, CREATE_OR_REPLACE, &head(device, HANDLE, ROOT, 0));
    request.text(KIND, "tbf").nest(OPTIONS, |options| {
        options
            .attribute(PARAMETERS, &parameters)
            .attribute(RATE64, &bytes_per_s.to_ne_bytes())
            .attribute(BURST, &link.burst.to_ne_bytes());
    });
    request
}
