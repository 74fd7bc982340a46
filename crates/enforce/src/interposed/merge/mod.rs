//! Merges consecutive frames of a connection into one large frame for the device to segment again (as GRO and
//! TSO do).
//!
//! ```text
//!   | header 1 | payload | header 2 | payload | header 3 | rest |   as they were scheduled, one by one
//!   | header 1'| payload | payload | rest |   + "cut every `segment` bytes"   as the device gets them
//! ```
//! How a device (or the kernel before it) segments a large frame is known to the byte. So frames that are
//! exactly the result of such a segmentation can be passed to the device as one large frame. No frame waits
//! for more frames: the scheduler decides about each frame, and only frames that it has released at the same
//! moment are merged. With segmentation offload, or a receiver on this host, up to [`MAX_SEGMENTS`] frames
//! then cost as much as one.
//!
//! A frame with wrong checksums, other TCP options or any other difference stays single, because segmentation
//! would repair or lose the difference. Only TCP is merged, over IPv4 without IP options and over IPv6
//! without extension headers; frames with VLAN tags stay single.
//!
//! Pure functions without allocation. Cost: two checksums (about 50 ns for each 1,500 bytes), computed only
//! when a second frame follows. When not to use it: if a device on the way must see single frames, such as a
//! mirroring device. Reference: Documentation/networking/segmentation-offloads.rst; RFC 1071, 9293.

/// The most frames in a run.
pub const MAX_SEGMENTS: usize = 64;
/// Ethernet, IPv6, and TCP with all its options.
pub const MAX_HEADERS: usize = 14 + 40 + 60;
const ETHERNET: usize = 14;
const MAX_PACKET_BYTES: usize = u16::MAX as usize;
const TCP: u8 = 6;
const ACKNOWLEDGES: u8 = 0x10;
const PUSH: u8 = 0x08;

/// The version of IP, which determines the positions of the fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    Four,
    /// Without extension headers.
    Six,
}

impl Version {
    fn header(self) -> usize {
        match self {
            Self::Four => 20,
            Self::Six => 40,
        }
    }

    /// Returns the offset of the TCP header.
    fn transport(self) -> usize {
        ETHERNET + self.header()
    }
}

/// Frames that can be sent as one large frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRun {
    version: Version,
    /// The offset of the payload in each frame.
    payload: usize,
    /// Bytes of payload in each frame; the last frame may have fewer.
    segment: usize,
    frames: usize,
    bytes: usize,
    is_checked: bool,
    is_open: bool,
    pushes: bool,
}

/// How the device has to segment a large frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunSegmentation {
    pub version: Version,
    /// The bytes of the headers; each frame gets a copy of the headers.
    pub headers: usize,
    /// The bytes of payload in each frame.
    pub segment: usize,
    /// The offset of the TCP header.
    pub transport: usize,
}

impl FrameRun {
    /// Begins a run with one frame. Returns `None` if no frame could follow this one.
    pub fn begin(frame: &[u8]) -> Option<Self> {
        let (version, payload) = headers(frame)?;
        let segment = frame.len() - payload;
        let is_open = frame[version.transport() + 13] & PUSH == 0;
        is_open.then_some(Self {
            version,
            payload,
            segment,
            frames: 1,
            bytes: segment,
            is_checked: false,
            is_open,
            pushes: false,
        })
    }

    /// Adds a frame that continues the run. Returns whether the frame was added. `first` is the frame that
    /// began the run.
    pub fn takes(&mut self, first: &[u8], frame: &[u8]) -> bool {
        let Some((version, payload)) = headers(frame) else { return false };
        if !self.is_open || self.frames >= MAX_SEGMENTS || (version, payload) != (self.version, self.payload)
        {
            return false;
        }
        let bytes = frame.len() - payload;
        let at = version.transport();
        let fits = bytes <= self.segment && payload - ETHERNET + self.bytes + bytes <= MAX_PACKET_BYTES;
        let sequence = word(first, at + 4).wrapping_add(self.bytes as u32);
        if !fits || word(frame, at + 4) != sequence || !self.is_alike(first, frame) {
            return false;
        }
        if !(self.is_checked || is_sound(version, first)) || !is_sound(version, frame) {
            return false;
        }
        self.is_checked = true;
        self.frames += 1;
        self.bytes += bytes;
        self.pushes = frame[at + 13] & PUSH != 0;
        self.is_open = bytes == self.segment && !self.pushes;
        true
    }

    /// Returns whether the headers differ only in fields that segmentation rewrites.
    fn is_alike(&self, first: &[u8], frame: &[u8]) -> bool {
        let at = self.version.transport();
        let same = |from: usize, until: usize| first[from..until] == frame[from..until];
        let network = match self.version {
            Version::Four => {
                let number = half(first, 18).wrapping_add(self.frames as u16);
                same(0, 16) && half(frame, 18) == number && same(20, 24) && same(26, 34)
            }
            Version::Six => same(0, 18) && same(20, 54),
        };
        network
            && same(at, at + 4)
            && same(at + 8, at + 13)
            && same(at + 14, at + 16)
            && same(at + 18, self.payload)
    }

    pub fn frames(&self) -> usize {
        self.frames
    }

    pub fn payload(&self) -> usize {
        self.payload
    }

    /// Writes the header of the large frame into `into`. Returns how the device has to segment the frame.
    pub fn header(&self, first: &[u8], into: &mut [u8; MAX_HEADERS]) -> RunSegmentation {
        let (at, end) = (self.version.transport(), self.payload);
        let into = &mut into[..end];
        into.copy_from_slice(&first[..end]);
        let behind = (end - at + self.bytes) as u16;
        match self.version {
            Version::Four => {
                into[16..18].copy_from_slice(&(behind + 20).to_be_bytes());
                into[24..26].fill(0);
                let sum = !folded(summed(&into[ETHERNET..at]));
                into[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            Version::Six => into[18..20].copy_from_slice(&behind.to_be_bytes()),
        }
        if self.pushes {
            into[at + 13] |= PUSH;
        }
        // the field gets the sum of the pseudo header; the device adds the sum of the TCP header and the
        // payload
        let sum = folded(pseudo_header(self.version, into, behind));
        into[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        RunSegmentation { version: self.version, headers: end, segment: self.segment, transport: at }
    }
}

/// Returns the version of IP and the offset of the payload, for a frame that could be part of a run. Does not
/// check checksums.
fn headers(frame: &[u8]) -> Option<(Version, usize)> {
    let version = match (half_at(frame, 12)?, *frame.get(ETHERNET)?) {
        (0x0800, 0x45) => Version::Four,
        (0x86dd, first) if first >> 4 == 6 => Version::Six,
        _ => return None,
    };
    let at = version.transport();
    if frame.len() < at + 20 || frame.len() - ETHERNET > MAX_PACKET_BYTES {
        return None;
    }
    let is_whole = match version {
        // no padding after the packet, not a fragment, and the reserved bit is clear
        Version::Four => {
            usize::from(half(frame, 16)) == frame.len() - ETHERNET
                && half(frame, 20) & !0x4000 == 0
                && frame[23] == TCP
        }
        Version::Six => usize::from(half(frame, 18)) == frame.len() - at && frame[20] == TCP,
    };
    let (offset, flags) = (frame[at + 12], frame[at + 13]);
    let payload = at + usize::from(offset >> 4) * 4;
    let is_plain = offset & 0xf == 0 && flags & !PUSH == ACKNOWLEDGES && half(frame, at + 18) == 0;
    (is_whole && is_plain && payload >= at + 20 && payload < frame.len()).then_some((version, payload))
}

fn is_sound(version: Version, frame: &[u8]) -> bool {
    let at = version.transport();
    // 0x0000 and 0xffff both mean zero in one's complement; segmentation writes 0x0000
    let is_usual = |at: usize| half(frame, at) != u16::MAX;
    let network = version == Version::Six || is_usual(24) && folded(summed(&frame[ETHERNET..at])) == u16::MAX;
    let length = (frame.len() - at) as u16;
    network
        && is_usual(at + 16)
        && folded(pseudo_header(version, frame, length) + summed(&frame[at..])) == u16::MAX
}

/// Returns the checksum's sum over the pseudo header.
fn pseudo_header(version: Version, frame: &[u8], length: u16) -> u64 {
    let addresses = match version {
        Version::Four => &frame[26..34],
        Version::Six => &frame[22..54],
    };
    summed(addresses) + u64::from(TCP) + u64::from(length)
}

/// Returns the sum of all 16-bit words, read as big-endian. An odd last byte counts as if a zero followed.
fn summed(bytes: &[u8]) -> u64 {
    // four bytes at a time is correct, because 2^16 counts as 1 in one's complement arithmetic
    let words = bytes.chunks_exact(4);
    let rest = match *words.remainder() {
        [] => 0,
        [one] => u32::from_be_bytes([one, 0, 0, 0]),
        [one, two] => u32::from_be_bytes([one, two, 0, 0]),
        [one, two, three, ..] => u32::from_be_bytes([one, two, three, 0]),
    };
    // the byte order of the words affects the sum only by a swap of the result's bytes
    let swapped: u64 =
        words.map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))).sum();
    let sum = folded(swapped);
    u64::from(u16::from_be_bytes(sum.to_ne_bytes())) + u64::from(rest)
}

/// Folds a sum into 16 bits by adding the carries.
fn folded(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum >> 16) + (sum & u64::from(u16::MAX));
    }
    sum as u16
}

fn half_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
