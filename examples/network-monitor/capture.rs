//! Captures: reads the TCP packets of a pcap file, and writes synthetic ones.

use anyhow::{Context, bail};
use etherparse::{LaxNetSlice, LaxSlicedPacket, PacketBuilder, TcpHeader, TransportSlice};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, PcapError, TsResolution};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use unisono_laboratory::workload::monitor::packet::TcpPacket;

/// Packets of a capture, one after the other.
pub(crate) struct Capture<R: Read> {
    reader: PcapReader<R>,
    name: String,
    number: u64,
    is_cut_off: bool,
}

pub(crate) fn open(path: &Path) -> anyhow::Result<Capture<BufReader<File>>> {
    let file = File::open(path).with_context(|| format!("cannot open the capture {}", path.display()))?;
    Capture::new(BufReader::new(file), path.display().to_string())
}

impl<R: Read> Capture<R> {
    /// Opens a capture. `name` is for messages only.
    pub(crate) fn new(reader: R, name: String) -> anyhow::Result<Self> {
        let Ok(reader) = PcapReader::new(reader) else {
            bail!(
                "{name} is no pcap file; capture with `tcpdump -w FILE`, or convert with `editcap -F pcap {name} FILE`"
            );
        };
        let link = reader.header().datalink;
        if !matches!(link, DataLink::ETHERNET | DataLink::RAW | DataLink::IPV4 | DataLink::IPV6) {
            bail!(
                "{name} has packets of the link type {link:?}; capture at one Ethernet device: `tcpdump -i eth0 -w FILE`"
            );
        }
        Ok(Self { reader, name, number: 0, is_cut_off: false })
    }

    /// Whether the capture ended in the middle of a packet, for example because its writer was killed.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Returns the next TCP packet; other packets are left out.
    pub(crate) fn next_packet(&mut self) -> anyhow::Result<Option<TcpPacket>> {
        let is_ethernet = self.reader.header().datalink == DataLink::ETHERNET;
        loop {
            self.number += 1;
            let packet = match self.reader.next_packet() {
                None => return Ok(None),
                Some(Ok(packet)) => packet,
                Some(Err(error)) if is_end(&error) => {
                    self.is_cut_off = true;
                    return Ok(None);
                }
                Some(Err(error)) => {
                    let place = format!("{}: packet {}", self.name, self.number);
                    return Err(anyhow::Error::new(error).context(place));
                }
            };
            let (at, missing) =
                (packet.timestamp, (packet.orig_len as usize).saturating_sub(packet.data.len()));
            if let Some(packet) = decode(&packet.data, is_ethernet, at, missing) {
                return Ok(Some(packet));
            }
        }
    }

    /// Returns the services with the most packets, at most `count`, and the number of services left out.
    pub(crate) fn busiest(mut self, count: usize) -> anyhow::Result<(Vec<SocketAddr>, usize)> {
        let mut packets: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        while let Some(packet) = self.next_packet()? {
            *packets.entry(packet.service()).or_default() += 1;
        }
        let mut services: Vec<_> = packets.into_iter().collect();
        services.sort_by_key(|(service, count)| (u64::MAX - count, *service));
        let others = services.len().saturating_sub(count);
        services.truncate(count);
        Ok((services.into_iter().map(|(service, _)| service).collect(), others))
    }
}

/// Whether the file ended before the packet did.
fn is_end(error: &PcapError) -> bool {
    match error {
        PcapError::IncompleteBuffer => true,
        PcapError::IoError(error) => error.kind() == ErrorKind::UnexpectedEof,
        _ => false,
    }
}

/// Decodes the TCP packet in these bytes. `missing` is the number of bytes that were on the wire but are not
/// here.
fn decode(bytes: &[u8], is_ethernet: bool, at: Duration, missing: usize) -> Option<TcpPacket> {
    let sliced = if is_ethernet {
        LaxSlicedPacket::from_ethernet(bytes).ok()?
    } else {
        LaxSlicedPacket::from_ip(bytes).ok()?
    };
    let (from, to): (IpAddr, IpAddr) = match sliced.net? {
        LaxNetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Arp(_) => return None,
    };
    let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { return None };
    let payload = tcp.payload();
    Some(TcpPacket {
        at,
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
        flags: *tcp.slice().get(13)?,
        length: u32::try_from(payload.len() + missing).unwrap_or(u32::MAX),
        payload: payload.to_vec(),
    })
}

/// Writes packets as an Ethernet capture with times in nanoseconds; returns their number.
pub(crate) fn write(path: &Path, packets: impl Iterator<Item = TcpPacket>) -> anyhow::Result<u64> {
    let cannot = || format!("cannot write the capture {}", path.display());
    let file = File::create(path).with_context(cannot)?;
    let header = PcapHeader { ts_resolution: TsResolution::NanoSecond, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(BufWriter::new(file), header).with_context(cannot)?;
    let mut count = 0;
    for packet in packets {
        let bytes = encode(&packet)?;
        let length = bytes.len() as u32 + (packet.length - packet.payload.len() as u32);
        writer.write_packet(&PcapPacket::new(packet.at, length, &bytes)).with_context(cannot)?;
        count += 1;
    }
    writer.into_writer().flush().with_context(cannot)?;
    Ok(count)
}

fn encode(packet: &TcpPacket) -> anyhow::Result<Vec<u8>> {
    let flag = |bit: u8| packet.flags & (1 << bit) != 0;
    let mut tcp = TcpHeader::new(packet.from.port(), packet.to.port(), 1, 65_535);
    (tcp.fin, tcp.syn, tcp.rst, tcp.psh) = (flag(0), flag(1), flag(2), flag(3));
    (tcp.ack, tcp.urg, tcp.ece, tcp.cwr) = (flag(4), flag(5), flag(6), flag(7));
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let builder = match (packet.from.ip(), packet.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from.octets(), to.octets(), 64).tcp_header(tcp),
        (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from.octets(), to.octets(), 64).tcp_header(tcp),
        (from, to) => bail!("no packet goes from {from} to {to}: one is IPv4 and one IPv6"),
    };
    let mut bytes = Vec::new();
    builder.write(&mut bytes, &packet.payload).context("cannot build a packet")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unisono_laboratory::workload::monitor::generator::{StreamPackets, StreamRate};

    fn made_up(count: usize) -> Vec<TcpPacket> {
        let rate = StreamRate { packets_per_s: 1e5, burst: 4.0, burst_packets: 100.0 };
        StreamPackets::new(rate, 0, 1, None).take(count).collect()
    }

    fn read<R: Read>(reader: R) -> anyhow::Result<(Vec<TcpPacket>, bool)> {
        let mut capture = Capture::new(reader, "a.pcap".to_owned())?;
        let mut packets = Vec::new();
        while let Some(packet) = capture.next_packet()? {
            packets.push(packet);
        }
        Ok((packets, capture.is_cut_off()))
    }

    #[test]
    fn packets_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.pcap");
        let packets = made_up(300);
        assert!(packets.iter().any(|packet| packet.length as usize > packet.payload.len()));
        assert_eq!(write(&path, packets.iter().cloned()).expect("written"), 300);
        let bytes = std::fs::read(&path).expect("there");
        assert_eq!(read(&bytes[..]).expect("a capture"), (packets.clone(), false));
        let (busiest, others) = open(&path).and_then(|capture| capture.busiest(4)).expect("readable");
        assert_eq!((busiest, others), (vec![packets[0].service()], 0));
        // a truncated capture gives its complete packets
        let (whole, cut_off) = read(&bytes[..bytes.len() - 3]).expect("a capture");
        assert_eq!((whole.len(), cut_off), (299, true));
    }

    #[test]
    fn what_is_no_capture_is_refused_with_a_remedy() {
        let said = |bytes: &[u8]| read(bytes).expect_err("refused").to_string();
        assert!(said(b"\x0a\x0d\x0d\x0a is pcapng").contains("editcap -F pcap"));
        let mut wireless = Vec::new();
        let header = PcapHeader { datalink: DataLink::IEEE802_11, ..PcapHeader::default() };
        PcapWriter::with_header(&mut wireless, header).expect("written");
        assert!(said(&wireless).contains("tcpdump -i eth0"));
    }

    proptest! {
        /// A valid capture with one changed byte, and packets of random bytes.
        #[test]
        fn no_bytes_are_a_surprise(at in 0..2000usize, byte: u8, noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = Vec::new();
            let mut writer = PcapWriter::new(&mut bytes).expect("written");
            for packet in made_up(6) {
                let good = encode(&packet).expect("a packet");
                writer.write_packet(&PcapPacket::new(packet.at, good.len() as u32, &good)).expect("written");
            }
            writer.write_packet(&PcapPacket::new(Duration::ZERO, 300, &noise)).expect("written");
            let place = at % bytes.len();
            bytes[place] = byte;
            let _ = read(&bytes[..]);
            for is_ethernet in [true, false] {
                let _ = decode(&noise, is_ethernet, Duration::ZERO, 0);
            }
        }
    }
}
