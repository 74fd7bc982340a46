use super::*;
use proptest::prelude::*;

/// Returns an Ethernet frame of this type.
fn ethernet(kind: u16, content: &[u8]) -> Vec<u8> {
    [&[2; 6][..], &[4; 6], &kind.to_be_bytes(), content].concat()
}

/// Returns an IPv4 packet with `options` words of options.
fn ipv4_packet(options: u8, place: u16, protocol: u8, content: &[u8]) -> Vec<u8> {
    let start = 20 + 4 * usize::from(options);
    let length = u16::try_from(start + content.len()).expect("a test's packet is short");
    let mut packet = vec![0x45 + options, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0x12, 0x34]);
    packet.extend(place.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.resize(start, 1);
    packet.extend(content);
    packet
}

/// Returns an IPv6 packet; `content` begins with its extension headers.
fn ipv6_packet(next: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a test's packet is short");
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([0xfd; 16]);
    packet.extend([0xfc; 16]);
    packet.extend(content);
    packet
}

fn udp(source: u16, destination: u16, bytes: usize) -> Vec<u8> {
    let length = u16::try_from(8 + bytes).expect("a test's packet is short");
    let mut packet = [source, destination, length, 0].map(u16::to_be_bytes).concat();
    packet.resize(8 + bytes, 7);
    packet
}

fn tcp(source: u16, destination: u16) -> Vec<u8> {
    let mut packet = [source, destination].map(u16::to_be_bytes).concat();
    packet.resize(20, 0);
    packet[12] = 5 << 4;
    packet
}

fn packet(frame: &[u8]) -> ParsedPacket {
    match parse(frame).expect("it is well formed") {
        ParsedFrame::Ip(packet) => packet,
        ParsedFrame::Other(kind) => panic!("{kind:#x} instead of IP"),
    }
}

#[test]
fn ports_are_found_behind_options_tags_and_extension_headers() {
    let plain = packet(&ethernet(IPV4, &ipv4_packet(0, 0, UDP, &udp(5004, 53, 10))));
    assert_eq!((plain.ports, plain.protocol, plain.fragment), (Some((5004, 53)), UDP, None));
    assert_eq!(plain.source, IpAddr::from([10, 0, 0, 1]));
    let options = packet(&ethernet(IPV4, &ipv4_packet(10, 0, TCP, &tcp(80, 4000))));
    assert_eq!(options.ports, Some((80, 4000)));
    let tagged = [&[0, 7][..], &VLAN.to_be_bytes(), &[0, 8], &IPV4.to_be_bytes()].concat();
    let tagged = ethernet(SERVICE_VLAN, &[tagged, ipv4_packet(0, 0, UDP, &udp(1, 2, 0))].concat());
    assert_eq!(packet(&tagged).ports, Some((1, 2)));
    let extensions = [
        &[DESTINATION_OPTIONS, 1][..],
        &[0; 14],
        &[AUTHENTICATION, 0, 0, 0, 0, 0, 0, 0],
        &[TCP, 1, 0, 0],
        &[0; 8],
        &tcp(443, 5),
    ]
    .concat();
    let six = packet(&ethernet(IPV6, &ipv6_packet(HOP_BY_HOP, &extensions)));
    assert_eq!((six.ports, six.protocol), (Some((443, 5)), TCP));
}

#[test]
fn only_the_first_fragment_has_ports_and_all_name_their_packet() {
    let first = packet(&ethernet(IPV4, &ipv4_packet(0, 0x2000, UDP, &udp(9, 10, 1000)[..512])));
    assert_eq!((first.ports, first.fragment), (Some((9, 10)), Some((0x1234, FragmentPosition::First))));
    let later = packet(&ethernet(IPV4, &ipv4_packet(0, 64, UDP, &[1, 2, 3])));
    assert_eq!((later.ports, later.fragment), (None, Some((0x1234, FragmentPosition::Later))));
    for (place, ports, part) in
        [(1_u16, Some((9, 10)), FragmentPosition::First), (65 << 3, None, FragmentPosition::Later)]
    {
        let mut content = vec![UDP, 0];
        content.extend(place.to_be_bytes());
        content.extend([0, 0, 0, 7]);
        content.extend(udp(9, 10, 100));
        let six = packet(&ethernet(IPV6, &ipv6_packet(FRAGMENT, &content)));
        assert_eq!((six.ports, six.fragment), (ports, Some((7, part))));
    }
}

#[test]
fn what_contradicts_itself_is_malformed_and_the_reason_is_told() {
    let mut short = ipv4_packet(0, 0, UDP, &udp(1, 2, 0));
    short[3] += 1;
    let mut headerless = ipv4_packet(0, 0, UDP, &udp(1, 2, 0));
    headerless[0] = 0x44;
    let mut udp_too_long = ipv4_packet(0, 0, UDP, &udp(1, 2, 0));
    udp_too_long[25] = 9;
    let mut tcp_too_long = tcp(1, 2);
    tcp_too_long[12] = 6 << 4;
    for (frame, expected) in [
        (vec![0; 13], "the frame ends within its Ethernet header"),
        (ethernet(VLAN, &[0; 3]), "the frame ends within its VLAN header"),
        (ethernet(VLAN, &[0x81, 0].repeat(20)), "more than 4 VLAN tags"),
        (ethernet(100, &[0; 99]), "the length 100 in the Ethernet header is impossible"),
        (ethernet(IPV4, &[0x45; 19]), "the frame ends within its IPv4 header"),
        (
            ethernet(IPV4, &ipv6_packet(UDP, &[])),
            "an IP packet of version 6 under another version's EtherType",
        ),
        (ethernet(IPV4, &headerless), "the length 16 in the IPv4 header is impossible"),
        (ethernet(IPV4, &short), "the frame ends within its IPv4 header"),
        (ethernet(IPV4, &udp_too_long), "the length 9 in the UDP header is impossible"),
        (
            ethernet(IPV4, &ipv4_packet(0, 0, TCP, &tcp_too_long)),
            "the length 24 in the TCP header is impossible",
        ),
        (ethernet(IPV4, &ipv4_packet(0, 0, TCP, &[0; 8])), "the frame ends within its TCP header"),
        (
            ethernet(IPV6, &ipv6_packet(ROUTING, &[TCP, 4, 0, 0])),
            "the length 40 in the IPv6 extension header is impossible",
        ),
        (
            ethernet(IPV6, &ipv6_packet(FRAGMENT, &[TCP, 4, 0, 0])),
            "the frame ends within its IPv6 extension header",
        ),
    ] {
        assert_eq!(parse(&frame).expect_err("malformed").to_string(), expected);
    }
}

#[test]
fn what_is_not_ip_is_named_by_its_type() {
    assert_eq!(parse(&ethernet(0x0806, &[0; 28])), Ok(ParsedFrame::Other(0x0806)));
    assert_eq!(parse(&ethernet(38, &[0; 46])), Ok(ParsedFrame::Other(38)), "with padding");
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn a_good_frame_changed_and_cut_anywhere_is_read_or_refused(
        six in any::<bool>(), at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut frame = if six {
            let content = [&[TCP, 1][..], &[0; 14], &tcp(1, 2)].concat();
            ethernet(IPV6, &ipv6_packet(HOP_BY_HOP, &content))
        } else {
            ethernet(IPV4, &ipv4_packet(3, 0, TCP, &tcp(1, 2)))
        };
        let length = frame.len();
        frame[at.index(length)] = value;
        let cut = cut.index(length) + 1;
        let unchanged = parse(&frame);
        frame.truncate(cut);
        // if the truncated frame parses as IP, it has the same fields as the whole frame
        if let Ok(ParsedFrame::Ip(shorter)) = parse(&frame) {
            prop_assert_eq!(unchanged, Ok(ParsedFrame::Ip(shorter)));
        }
    }

    #[test]
    fn padding_behind_the_packet_changes_nothing(padding in 0_usize..64) {
        let frame = ethernet(IPV4, &ipv4_packet(0, 0, UDP, &udp(5, 6, 3)));
        let padded = [frame.clone(), vec![0xff; padding]].concat();
        prop_assert_eq!(parse(&padded), parse(&frame));
    }
}
