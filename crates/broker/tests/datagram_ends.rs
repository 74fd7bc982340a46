//! The end of a connection over UDP where the network loses datagrams or changes their order: both ends as
//! state machines, without sockets and without a clock.

use crate::datagrams::established;
use std::time::Instant;
use unisono_events_wire::datagram::{DatagramLink, LinkEnd};

const BYE: &[u8] = b"the broker's last frame";
const WHY: &str = "the token has expired; connect again with another";

/// Takes all datagrams that an end would send now.
fn sent(now: Instant, by: &mut DatagramLink) -> Vec<Vec<u8>> {
    let (mut all, mut datagram) = (Vec::new(), Vec::new());
    while by.next_datagram(now, &mut datagram) {
        all.push(datagram.clone());
    }
    all
}

/// A program, and the datagrams of a broker that sends its last frame and ends the connection.
fn sent_away() -> (Instant, DatagramLink, [Vec<Vec<u8>>; 2]) {
    let mut network = established();
    let (now, program) = (network.now, network.program.take().expect("it is there"));
    let mut broker = network.broker.take().expect("it is there");
    sent(now, &mut broker);
    assert_eq!(broker.write(BYE), Ok(BYE.len()));
    broker.finish();
    let bye = sent(now, &mut broker);
    broker.close(now, WHY);
    let end = sent(now, &mut broker);
    assert!(!bye.is_empty() && !end.is_empty(), "{} {}", bye.len(), end.len());
    (now, program, [bye, end])
}

#[test]
fn a_program_that_is_sent_away_reads_why_if_the_end_overtakes_the_last_frame_or_is_all_that_comes() {
    for bye_comes in [true, false] {
        let (now, mut program, [bye, end]) = sent_away();
        end.iter().for_each(|datagram| program.take(now, datagram));
        bye.iter().filter(|_| bye_comes).for_each(|datagram| program.take(now, datagram));
        assert_eq!(program.read_some(&mut [0; 100]), None);
        assert_eq!(program.end(), Some(&LinkEnd::SentAway(WHY.to_owned())));
    }
}

#[test]
fn the_last_frame_is_read_if_it_comes_before_the_end() {
    let (now, mut program, [bye, end]) = sent_away();
    [bye, end].iter().flatten().for_each(|datagram| program.take(now, datagram));
    let mut read = [0; 100];
    assert_eq!(program.read_some(&mut read), Some(BYE.len()));
    assert_eq!((&read[..BYE.len()], program.read_some(&mut [0; 100])), (BYE, None));
}

#[test]
fn a_broker_takes_no_reason_from_a_program() {
    let mut network = established();
    let (now, mut program) = (network.now, network.program.take().expect("it is there"));
    let mut broker = network.broker.take().expect("it is there");
    program.close(now, WHY);
    sent(now, &mut program).iter().for_each(|datagram| broker.take(now, datagram));
    assert_eq!(broker.end(), Some(&LinkEnd::Gone));
}
