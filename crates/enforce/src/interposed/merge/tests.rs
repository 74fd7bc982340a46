//! The oracle of these tests is segmentation: a merged run, segmented as a device does it, gives the original
//! frames to the byte.

use super::*;
use proptest::prelude::*;

/// The common fields of a connection's frames.
#[derive(Clone, Debug)]
struct Connection {
    version: Version,
    options: Vec<u8>,
    sequence: u32,
    number: u16,
}

/// Returns the checksum, computed by its definition.
fn reference(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Writes the lengths, the identification, the sequence number and the checksums into a frame.
fn finish(frame: &mut [u8], version: Version, number: u16, sequence: u32) {
    let at = version.transport();
    let behind = (frame.len() - at) as u16;
    frame[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
    let addresses = match version {
        Version::Four => {
            frame[16..18].copy_from_slice(&(behind + 20).to_be_bytes());
            frame[18..20].copy_from_slice(&number.to_be_bytes());
            frame[24..26].fill(0);
            let sum = reference(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            26..34
        }
        Version::Six => {
            frame[18..20].copy_from_slice(&behind.to_be_bytes());
            22..54
        }
    };
    frame[at + 16..at + 18].fill(0);
    let mut covered = frame[addresses].to_vec();
    covered.extend([0, TCP]);
    covered.extend(behind.to_be_bytes());
    covered.extend_from_slice(&frame[at..]);
    let sum = reference(&covered);
    frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
}

impl Connection {
    /// Returns frames of the connection with these payload lengths.
    fn frames(&self, payloads: &[usize]) -> Vec<Vec<u8>> {
        let (mut sequence, mut number) = (self.sequence, self.number);
        let mut frames = Vec::new();
        for (bytes, at) in payloads.iter().zip(0_usize..) {
            let mut frame = vec![7; 12];
            match self.version {
                Version::Four => {
                    frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, TCP, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
                }
                Version::Six => {
                    frame.extend([0x86, 0xdd, 0x60, 1, 2, 3, 0, 0, TCP, 64]);
                    frame.extend(0..32);
                }
            }
            frame.extend([1, 2, 3, 4, 0, 0, 0, 0, 9, 9, 9, 9]);
            frame.extend([(5 + self.options.len() / 4) as u8 * 16, ACKNOWLEDGES, 1, 1, 0, 0, 0, 0]);
            frame.extend(&self.options);
            frame.extend((0..*bytes).map(|byte| (byte * 31 + at * 7) as u8));
            finish(&mut frame, self.version, number, sequence);
            sequence = sequence.wrapping_add(*bytes as u32);
            number = number.wrapping_add(1);
            frames.push(frame);
        }
        frames
    }
}

/// A run: its number of frames and, if there is more than one, the large frame and its segmentation.
type Merged = (usize, Option<(Vec<u8>, RunSegmentation)>);

/// Merges all frames that can be merged, in order.
fn merged(frames: &[Vec<u8>]) -> Vec<Merged> {
    let (mut runs, mut at) = (Vec::new(), 0);
    while at < frames.len() {
        let Some(mut run) = FrameRun::begin(&frames[at]) else {
            runs.push((1, None));
            at += 1;
            continue;
        };
        while at + run.frames() < frames.len() && run.takes(&frames[at], &frames[at + run.frames()]) {}
        let mut header = [0; MAX_HEADERS];
        let made = (run.frames() > 1).then(|| {
            let cut = run.header(&frames[at], &mut header);
            let mut merged = header[..cut.headers].to_vec();
            for frame in &frames[at..at + run.frames()] {
                merged.extend(&frame[run.payload()..]);
            }
            (merged, cut)
        });
        runs.push((run.frames(), made));
        at += run.frames();
    }
    runs
}

/// Segments a large frame as a device does.
fn cut(merged: &[u8], how: RunSegmentation) -> Vec<Vec<u8>> {
    let header = &merged[..how.headers];
    let (sequence, number) = (word(header, how.transport + 4), half(header, 18));
    let payload = &merged[how.headers..];
    let count = payload.len().div_ceil(how.segment);
    let parts = payload.chunks(how.segment).zip(0_usize..);
    parts
        .map(|(part, at)| {
            let mut frame = [header, part].concat();
            if at + 1 < count {
                frame[how.transport + 13] &= !PUSH;
            }
            let sequence = sequence.wrapping_add((at * how.segment) as u32);
            finish(&mut frame, how.version, number.wrapping_add(at as u16), sequence);
            frame
        })
        .collect()
}

fn connections() -> impl Strategy<Value = Connection> {
    let version = prop_oneof![Just(Version::Four), Just(Version::Six)];
    let options = (0_usize..=10).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4));
    (version, options, any::<u32>(), any::<u16>())
        .prop_map(|(version, options, sequence, number)| Connection { version, options, sequence, number })
}

proptest! {
    #[test]
    fn what_a_run_makes_is_cut_into_the_frames_that_it_was_made_of(
        connection in connections(),
        payloads in prop::collection::vec(prop_oneof![3 => Just(1448_usize), 1 => 1_usize..1449], 1..100),
        spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..=255_u8), 0..4),
        pushing in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut frames = connection.frames(&payloads);
        let at = connection.version.transport();
        for index in pushing {
            let frame: &mut Vec<u8> = index.get_mut(&mut frames[..]);
            frame[at + 13] |= PUSH;
            let (number, sequence) = (half(frame, 18), word(frame, at + 4));
            finish(frame, connection.version, number, sequence);
        }
        for (frame, byte, change) in spoilt {
            let frame: &mut Vec<u8> = frame.get_mut(&mut frames[..]);
            *byte.get_mut(&mut frame[..]) ^= change;
        }
        let mut left = Vec::new();
        let mut begin = 0;
        for (count, made) in merged(&frames) {
            match made {
                Some((merged, how)) => {
                    prop_assert!(merged.len() - 14 <= 65_535 + 40, "a length that fits its field");
                    left.extend(cut(&merged, how));
                }
                None => left.extend_from_slice(&frames[begin..begin + count]),
            }
            begin += count;
        }
        prop_assert_eq!(left, frames);
    }

    #[test]
    fn a_header_that_stands_for_many_has_the_sums_that_devices_expect(connection in connections()) {
        let frames = connection.frames(&[1000; 3]);
        let runs = merged(&frames);
        let (3, Some((merged, how))) = &runs[0] else { panic!("one run: {runs:?}") };
        // the field has the sum of the pseudo header, and a device adds the sum of the bytes behind it
        let sum = reference(&merged[how.transport..]);
        let mut full = merged.clone();
        full[how.transport + 16..how.transport + 18].copy_from_slice(&sum.to_be_bytes());
        prop_assert!(is_sound(how.version, &full));
    }

    #[test]
    fn sums_are_those_of_the_slow_way(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (sum, slow) = (folded(summed(&bytes)), !reference(&bytes));
        prop_assert_eq!(u32::from(sum) % 0xffff, u32::from(slow) % 0xffff);
    }

    #[test]
    fn whatever_the_bytes_are_nothing_panics(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..4),
    ) {
        let _ = merged(&frames);
    }
}

fn plain(version: Version) -> Connection {
    Connection { version, options: vec![1; 12], sequence: u32::MAX - 5000, number: u16::MAX - 3 }
}

#[test]
fn a_stream_of_full_frames_is_merged_as_far_as_ip_can_say_its_length() {
    for version in [Version::Four, Version::Six] {
        let counts: Vec<usize> =
            merged(&plain(version).frames(&[1448; 90])).iter().map(|(count, _)| *count).collect();
        assert_eq!(counts, [45, 45], "{version:?}");
        let counts: Vec<usize> =
            merged(&plain(version).frames(&[100; 70])).iter().map(|(count, _)| *count).collect();
        assert_eq!(counts, [MAX_SEGMENTS, 6], "{version:?}");
    }
}

#[test]
fn what_cutting_would_not_give_back_ends_a_run() {
    for version in [Version::Four, Version::Six] {
        let at = version.transport();
        let counts = |change: &dyn Fn(&mut Vec<Vec<u8>>)| -> Vec<usize> {
            let mut frames = plain(version).frames(&[500; 4]);
            change(&mut frames);
            merged(&frames).iter().map(|(count, _)| *count).collect()
        };
        let run_lengths = |change: &dyn Fn(&mut Vec<u8>)| {
            counts(&|frames| {
                change(&mut frames[2]);
                let (number, sequence) = (half(&frames[2], 18), word(&frames[2], at + 4));
                finish(&mut frames[2], version, number, sequence);
            })
        };
        assert_eq!(counts(&|_| ()), [4]);
        assert_eq!(counts(&|frames| frames[2][at + 40] ^= 1), [2, 1, 1], "a wrong checksum");
        assert_eq!(counts(&|frames| drop(frames.remove(1))), [1, 2], "a gap");
        assert_eq!(counts(&|frames| frames.swap(1, 2)), [1, 1, 1, 1], "out of order");
        assert_eq!(counts(&|frames| frames[2].push(0)), [2, 1, 1], "padding");
        assert_eq!(run_lengths(&|frame| frame[at + 13] |= PUSH), [3, 1], "it pushes");
        assert_eq!(run_lengths(&|frame| frame[at + 13] |= 1), [2, 1, 1], "it ends the connection");
        assert_eq!(run_lengths(&|frame| frame[at + 13] |= 0x80), [2, 1, 1], "the window was reduced");
        assert_eq!(run_lengths(&|frame| frame[at + 15] ^= 1), [2, 1, 1], "another window");
        assert_eq!(run_lengths(&|frame| frame[at + 25] ^= 1), [2, 1, 1], "another time stamp");
        assert_eq!(run_lengths(&|frame| frame[15] ^= 2), [2, 1, 1], "another class of traffic");
        assert_eq!(run_lengths(&|frame| frame.truncate(frame.len() - 1)), [3, 1], "a shorter one");
    }
}
