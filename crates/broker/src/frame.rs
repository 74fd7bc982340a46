//! The frames between programs and the broker: one packet of the socket each.
//!
//! ```text
//!   byte 0      1..4    4..8       8..
//!   kind        zero    channel    by kind
//! ```
//! Numbers are little-endian. A frame is read completely or refused: no length in it is believed before it
//! has been compared with what is there, and what is left over is an error, so that a frame has one reading.

use crate::destination::{Destination, Transport};
use std::net::{IpAddr, SocketAddr};

/// What [`Frame::Hello`] begins with.
pub const MAGIC: [u8; 4] = *b"UBR1";

/// The longest name of a class.
pub const MOST_NAME: usize = 255;

/// The longest name of a congestion control, as in the kernel.
pub const MOST_CONGESTION: usize = 15;

/// The longest text that a broker sends with a refusal.
pub const MOST_TEXT: usize = 1024;

/// The length of a frame's head, and of that of a message with its deadline.
pub const HEAD: usize = 8;
pub const MESSAGE_HEAD: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// Program: the first frame.
    Hello,
    /// Program: a channel of this number (the program's) to a destination, in a class.
    Open {
        /// The program's number of it.
        channel: u32,
        /// Where it leads.
        destination: Destination,
        /// The class's name; empty: the default.
        class: &'a str,
    },
    /// Program: a message.
    Message {
        /// On which channel.
        channel: u32,
        /// By when it should have left, on the monotonic clock.
        deadline: u64,
        /// What to send.
        payload: &'a [u8],
    },
    /// Program: no more messages on this channel; what was handed over is still sent.
    Close { channel: u32 },
    /// Program: give all credit back when everything on this channel has left.
    Flush { channel: u32 },
    /// Program: what have you done?
    Ask,
    /// Broker: the answer to [`Frame::Hello`].
    Welcome {
        /// The longest payload.
        largest: u32,
    },
    /// Broker: the channel is there.
    Opened {
        channel: u32,
        /// How many bytes may be on their way.
        credit: u32,
    },
    /// Broker: the channel is not there, or no longer.
    Closed {
        channel: u32,
        /// Why, and what to do.
        reason: &'a str,
    },
    /// Broker: so many bytes have left (or were dropped); as many may come.
    Credit {
        /// On which channel.
        channel: u32,
        bytes: u32,
    },
    /// Broker: the answer to [`Frame::Ask`], in JSON.
    Statistics { json: &'a str },
    /// Broker: you are sent away.
    Bye { reason: &'a str },
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a frame of {length} bytes that is none: {what}")]
pub struct Bad {
    length: usize,
    what: &'static str,
}

const HELLO: u8 = 1;
const OPEN: u8 = 2;
const MESSAGE: u8 = 3;
const CLOSE: u8 = 4;
const ASK: u8 = 5;
const FLUSH: u8 = 6;
const WELCOME: u8 = 129;
const OPENED: u8 = 130;
const CLOSED: u8 = 131;
const CREDIT: u8 = 132;
const STATISTICS: u8 = 133;
const BYE: u8 = 134;

const UDP: u8 = 1;
const TCP: u8 = 2;

impl<'a> Frame<'a> {
    /// Reads one packet.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Bad> {
        let mut reader = FrameReader { bytes, whole: bytes.len() };
        let kind = reader.byte()?;
        if reader.take(3)? != [0; 3] {
            return Err(reader.bad("the bytes after its kind are not zero"));
        }
        let channel = reader.word()?;
        let frame = match kind {
            HELLO if reader.take(4)? == MAGIC => Self::Hello,
            HELLO => return Err(reader.bad("a greeting of another protocol")),
            OPEN => reader.open(channel)?,
            MESSAGE => Self::Message { channel, deadline: reader.long()?, payload: reader.rest() },
            CLOSE => Self::Close { channel },
            ASK => Self::Ask,
            FLUSH => Self::Flush { channel },
            WELCOME => Self::Welcome { largest: reader.word()? },
            OPENED => Self::Opened { channel, credit: reader.word()? },
            CLOSED => Self::Closed { channel, reason: reader.text()? },
            CREDIT => Self::Credit { channel, bytes: reader.word()? },
            STATISTICS => Self::Statistics { json: reader.text()? },
            BYE => Self::Bye { reason: reader.text()? },
            _ => return Err(reader.bad("an unknown kind")),
        };
        let is_whole = matches!(
            frame,
            Self::Hello | Self::Ask | Self::Welcome { .. } | Self::Statistics { .. } | Self::Bye { .. }
        );
        if is_whole && channel != 0 {
            return Err(reader.bad("a channel where there is none"));
        }
        if reader.bytes.is_empty() { Ok(frame) } else { Err(reader.bad("bytes are left over")) }
    }

    /// Appends the frame to `bytes`.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut head = |kind: u8, channel: u32| {
            bytes.extend([kind, 0, 0, 0]);
            bytes.extend(channel.to_le_bytes());
        };
        match self {
            Self::Hello => {
                head(HELLO, 0);
                bytes.extend(MAGIC);
            }
            Self::Open { channel, destination, class } => {
                head(OPEN, *channel);
                write_destination(bytes, destination);
                bytes.extend(class.as_bytes());
            }
            Self::Message { channel, deadline, payload } => {
                head(MESSAGE, *channel);
                bytes.extend(deadline.to_le_bytes());
                bytes.extend(*payload);
            }
            Self::Close { channel } => head(CLOSE, *channel),
            Self::Flush { channel } => head(FLUSH, *channel),
            Self::Ask => head(ASK, 0),
            Self::Welcome { largest } => {
                head(WELCOME, 0);
                bytes.extend(largest.to_le_bytes());
            }
            Self::Opened { channel, credit } => {
                head(OPENED, *channel);
                bytes.extend(credit.to_le_bytes());
            }
            Self::Closed { channel, reason } => {
                head(CLOSED, *channel);
                bytes.extend(reason.as_bytes());
            }
            Self::Credit { channel, bytes: count } => {
                head(CREDIT, *channel);
                bytes.extend(count.to_le_bytes());
            }
            Self::Statistics { json } => {
                head(STATISTICS, 0);
                bytes.extend(json.as_bytes());
            }
            Self::Bye { reason } => {
                head(BYE, 0);
                bytes.extend(reason.as_bytes());
            }
        }
    }
}

/// Transport, family, port, address (16 bytes, IPv4 in the first four), congestion control after its length.
fn write_destination(bytes: &mut Vec<u8>, destination: &Destination) {
    let mut address = [0; 16];
    let family = match destination.address.ip() {
        IpAddr::V4(ip) => {
            address[..4].copy_from_slice(&ip.octets());
            4
        }
        IpAddr::V6(ip) => {
            address = ip.octets();
            6
        }
    };
    let transport = match destination.transport {
        Transport::Udp => UDP,
        Transport::Tcp => TCP,
    };
    bytes.extend([transport, family]);
    bytes.extend(destination.address.port().to_le_bytes());
    bytes.extend(address);
    let congestion = destination.congestion.as_deref().unwrap_or_default();
    bytes.push(u8::try_from(congestion.len()).unwrap_or(u8::MAX)); // too long: the reader refuses it
    bytes.extend(congestion.as_bytes());
}

struct FrameReader<'a> {
    bytes: &'a [u8],
    whole: usize,
}

impl<'a> FrameReader<'a> {
    fn bad(&self, what: &'static str) -> Bad {
        Bad { length: self.whole, what }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(self.bad("it ends too early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, Bad> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn word(&mut self) -> Result<u32, Bad> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn long(&mut self) -> Result<u64, Bad> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    fn text(&mut self) -> Result<&'a str, Bad> {
        let bytes = self.rest();
        std::str::from_utf8(bytes).map_err(|_| self.bad("a text that is not UTF-8"))
    }

    fn open(&mut self, channel: u32) -> Result<Frame<'a>, Bad> {
        let transport = match self.byte()? {
            UDP => Transport::Udp,
            TCP => Transport::Tcp,
            _ => return Err(self.bad("an unknown transport")),
        };
        let family = self.byte()?;
        let port = u16::from_le_bytes(self.array()?);
        let octets: [u8; 16] = self.array()?;
        let ip = match family {
            4 if octets[4..] == [0; 12] => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
            6 => IpAddr::from(octets),
            _ => return Err(self.bad("an address of no known family")),
        };
        let length = usize::from(self.byte()?);
        if length > MOST_CONGESTION {
            return Err(self.bad("a name of a congestion control longer than 15 bytes"));
        }
        let congestion = std::str::from_utf8(self.take(length)?).ok();
        let congestion = congestion.ok_or(self.bad("a congestion control that is not UTF-8"))?;
        let class = self.text()?;
        if class.len() > MOST_NAME {
            return Err(self.bad("a class's name longer than 255 bytes"));
        }
        let congestion = (!congestion.is_empty()).then(|| congestion.to_owned());
        if congestion.is_some() && transport == Transport::Udp {
            return Err(self.bad("a congestion control of datagrams"));
        }
        let destination = Destination { transport, address: SocketAddr::new(ip, port), congestion };
        Ok(Frame::Open { channel, destination, class })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn destinations() -> impl Strategy<Value = Destination> {
        let address = (any::<std::net::IpAddr>(), any::<u16>()).prop_map(SocketAddr::from);
        (address, any::<bool>(), "[a-z]{0,15}").prop_map(|(address, tcp, congestion)| {
            if tcp {
                let congestion = (!congestion.is_empty()).then_some(congestion);
                Destination { congestion, ..Destination::tcp(address) }
            } else {
                Destination::udp(address)
            }
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            channel in any::<u32>(), number in any::<u32>(), deadline in any::<u64>(), text in ".{0,60}",
            payload in proptest::collection::vec(any::<u8>(), 0..100), destination in destinations(),
        ) {
            let frames = [
                Frame::Hello, Frame::Open { channel, destination, class: &text },
                Frame::Message { channel, deadline, payload: &payload }, Frame::Close { channel }, Frame::Ask,
                Frame::Welcome { largest: number }, Frame::Opened { channel, credit: number },
                Frame::Closed { channel, reason: &text }, Frame::Credit { channel, bytes: number },
                Frame::Statistics { json: &text }, Frame::Bye { reason: &text },
            ];
            for frame in frames {
                let mut bytes = Vec::new();
                frame.write(&mut bytes);
                prop_assert_eq!(Frame::read(&bytes), Ok(frame));
            }
        }

        #[test]
        fn a_frame_has_one_reading(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0_u8..8) {
            let mut bytes = bytes;
            if let [first, a, b, c, ..] = &mut bytes[..] {
                // mostly frames that are nearly right
                (*first, *a, *b, *c) = (kind, 0, 0, 0);
            }
            if let Ok(frame) = Frame::read(&bytes) {
                let mut again = Vec::new();
                frame.write(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_goes_on_is_refused() {
        let mut bytes = Vec::new();
        let destination = Destination::udp("[::1]:7".parse().expect("an address"));
        Frame::Open { channel: 3, destination, class: "" }.write(&mut bytes);
        for length in 0..bytes.len() {
            assert!(Frame::read(&bytes[..length]).is_err(), "{length}");
        }
        let mut hello = Vec::new();
        Frame::Hello.write(&mut hello);
        hello.push(0);
        let said = Frame::read(&hello).expect_err("a byte too many").to_string();
        assert_eq!(said, "a frame of 13 bytes that is none: bytes are left over");
    }
}
