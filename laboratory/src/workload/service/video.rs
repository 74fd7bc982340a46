//! Finds the frames of an encoded video: the boundaries of pictures in an MPEG-1 stream.
//!
//! A start code is `00 00 01` and a byte with the kind of the following unit: a picture (00), a slice of a
//! picture (01 to AF), the header of a sequence (B3) or of a group of pictures (B8). Headers belong to the
//! picture after them. Reference: ISO/IEC 11172-2.

const PICTURE: u8 = 0x00;
const SEQUENCE: u8 = 0xb3;
const GROUP: u8 = 0xb8;

/// Returns the sizes in bytes of the pictures of a video stream.
pub(super) fn picture_sizes(stream: &[u8]) -> Vec<usize> {
    let mut sizes = Vec::new();
    let (mut begins, mut has_slices) = (0, false);
    for (at, start) in stream.windows(4).enumerate().filter(|(_, start)| start[..3] == [0, 0, 1]) {
        match start[3] {
            0x01..=0xaf => has_slices = true,
            PICTURE | SEQUENCE | GROUP if has_slices => {
                sizes.push(at - begins);
                (begins, has_slices) = (at, false);
            }
            _ => {}
        }
    }
    if has_slices {
        sizes.push(stream.len() - begins);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(parts: &[(u8, usize)]) -> Vec<u8> {
        let part = |(code, bytes): &(u8, usize)| [&[0, 0, 1, *code][..], &vec![0xff; *bytes]].concat();
        parts.iter().flat_map(part).collect()
    }

    #[test]
    fn heads_belong_to_the_picture_after_them_and_slices_to_the_one_before() {
        let two = [(SEQUENCE, 8), (GROUP, 4), (PICTURE, 4), (1, 100), (2, 50), (PICTURE, 4), (1, 30)];
        assert_eq!(picture_sizes(&stream(&two)), [12 + 8 + 8 + 104 + 54, 8 + 34]);
        let with_a_head_between = [&two[..], &[(GROUP, 4), (PICTURE, 4), (1, 7), (0xb7, 0)]].concat();
        let sizes = picture_sizes(&stream(&with_a_head_between));
        assert_eq!(sizes[2..], [8 + 8 + 11 + 4], "the end of the sequence is the last picture's");
    }

    proptest! {
        #[test]
        fn any_bytes_are_cut_into_pictures_that_are_parts_of_them(
            parts in proptest::collection::vec((prop_oneof![Just(0), Just(1), Just(0xb3), any::<u8>()], 0..9_usize), 0..30)
        ) {
            let stream = stream(&parts);
            let sizes = picture_sizes(&stream);
            prop_assert!(sizes.iter().sum::<usize>() <= stream.len() && sizes.iter().all(|size| *size >= 4));
            let slices = parts.iter().any(|(code, _)| (1..=0xaf).contains(code));
            prop_assert_eq!(slices, !sizes.is_empty());
        }
    }
}
