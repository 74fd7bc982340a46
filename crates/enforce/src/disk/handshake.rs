//! The handshake of the network block device protocol: fixed newstyle, without TLS.
//!
//! ```text
//!   server: two magic numbers, flags            client: flags
//!   client: option (list, info, go, ...)        server: replies, until the client chooses an export
//! ```
//! Each class is an export of its own name; the empty name is the default class. The handshake works on any
//! stream, so that its tests and its fuzz target need no socket. The connection ends if an option is longer
//! than `MAX_OPTION` bytes, if a client sends more than `MAX_OPTIONS` options, or if the bytes are of another
//! protocol. One option is Unisono's own, `OPTION_FIGURES`: the reply has the server's counters, as JSON.
//! Other servers answer it as the protocol provides for unknown options.
//!
//! Reference: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>, "Fixed newstyle".

use super::nbd::{ExportFacts, MAX_REQUEST, take};
use std::io::{self, Read, Write};
use unisono_fairqueue::ClassId;

/// The longest option in bytes. The longest name that the protocol allows is 4096 bytes.
const MAX_OPTION: u32 = 8192;
/// The most options of a client; nbdinfo --list asks twice for each export.
const MAX_OPTIONS: usize = 4096;
/// The cheapest length of a client's requests: a page of memory.
const PREFERRED_BLOCK: u32 = 4096;

const NBD_MAGIC: &[u8; 8] = b"NBDMAGIC";
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
const FLAG_NO_ZEROES: u16 = 1 << 1;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_LIST: u32 = 3;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;
/// "unis"; the protocol's own numbers are small.
const OPTION_FIGURES: u32 = 0x756e_6973;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const REPLY_FIGURES: u32 = OPTION_FIGURES;
/// The longest reply with counters that is read: 65,536 classes with a kilobyte each.
const MAX_FIGURES: u32 = 64 << 20;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_BLOCK_SIZE: u16 = 3;

/// Why an option was refused; the numbers have the highest bit set.
#[derive(Clone, Copy)]
#[repr(u32)]
enum OptionError {
    Unsupported = 1 << 31 | 1,
    Policy = 1 << 31 | 2,
    Invalid = 1 << 31 | 3,
    Unknown = 1 << 31 | 6,
}

/// A class as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    pub name: String,
    pub class: ClassId,
    /// Whether the policy lets the client's user choose the class.
    pub is_permitted: bool,
}

/// The exports of a server as one client may use them.
#[derive(Clone, Debug)]
pub struct Exports {
    pub facts: ExportFacts,
    pub exports: Vec<Export>,
    pub default: ClassId,
}

impl Exports {
    fn find(&self, name: &[u8]) -> Result<&Export, (OptionError, String)> {
        let is_meant = |export: &&Export| match name {
            [] => export.class == self.default,
            name => export.name.as_bytes() == name,
        };
        match self.exports.iter().find(is_meant) {
            Some(export) if export.is_permitted => Ok(export),
            Some(export) => Err((
                OptionError::Policy,
                format!("the policy does not let your user choose {}", export.name),
            )),
            None => {
                let names: Vec<&str> = self.offered().map(|export| export.name.as_str()).collect();
                let what = format!("there is no class of this name; there are {}", names.join(", "));
                Err((OptionError::Unknown, what))
            }
        }
    }

    pub(super) fn offered(&self) -> impl Iterator<Item = &Export> {
        self.exports.iter().filter(|export| export.is_permitted)
    }
}

/// Negotiates with a client. Returns the class that the client has chosen, or `None` if the client aborts as
/// the protocol provides. `figures` returns the counters of the classes that the client may choose. Fails
/// with `InvalidData` if the client does not follow the protocol.
pub fn negotiate(
    stream: &mut (impl Read + Write),
    exports: &Exports,
    figures: &dyn Fn() -> Vec<u8>,
) -> io::Result<Option<ClassId>> {
    let mut greeting = Vec::from(*NBD_MAGIC);
    greeting.extend(OPTION_MAGIC);
    greeting.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    stream.write_all(&greeting)?;
    let flags = u32::from_be_bytes(read_array(stream)?);
    if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
        return Err(nonsense("unknown flags"));
    }
    let padding = if flags & u32::from(FLAG_NO_ZEROES) == 0 { 124 } else { 0 };
    for _ in 0..MAX_OPTIONS {
        if read_array(stream)? != *OPTION_MAGIC {
            return Err(nonsense("no option"));
        }
        let option = u32::from_be_bytes(read_array(stream)?);
        let length = u32::from_be_bytes(read_array(stream)?);
        if length > MAX_OPTION {
            return Err(nonsense("an option that is too long"));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        let mut replies = OptionReplies { option, bytes: Vec::new() };
        let chosen = match option {
            OPTION_EXPORT_NAME => {
                // this option has no reply for a refusal: the connection ends
                let export = exports.find(&data).map_err(|(_, what)| nonsense(&what))?;
                replies.bytes.extend(exports.facts.size.to_be_bytes());
                replies.bytes.extend(exports.facts.flags().to_be_bytes());
                replies.bytes.resize(replies.bytes.len() + padding, 0);
                Some(export.class)
            }
            OPTION_ABORT => {
                replies.add(REPLY_ACK, &[]);
                // a client that aborts may have closed its end already
                let _ = stream.write_all(&replies.bytes);
                return Ok(None);
            }
            OPTION_FIGURES => {
                replies.add(REPLY_FIGURES, &figures());
                None
            }
            OPTION_LIST => {
                list(&data, exports, &mut replies);
                None
            }
            OPTION_INFO | OPTION_GO => {
                let class = describe(&data, exports, &mut replies);
                class.filter(|_| option == OPTION_GO)
            }
            _ => {
                replies.refuse(OptionError::Unsupported, "this server has no such option");
                None
            }
        };
        stream.write_all(&replies.bytes)?;
        if chosen.is_some() {
            return Ok(chosen);
        }
    }
    Err(nonsense("too many options"))
}

fn list(data: &[u8], exports: &Exports, replies: &mut OptionReplies) {
    if !data.is_empty() {
        replies.refuse(OptionError::Invalid, "a list has no data");
        return;
    }
    for export in exports.offered() {
        let mut entry = Vec::from(length_of(export.name.as_bytes()).to_be_bytes());
        entry.extend(export.name.as_bytes());
        replies.add(REPLY_SERVER, &entry);
    }
    replies.add(REPLY_ACK, &[]);
}

/// Replies with the facts of an export; returns its class.
fn describe(data: &[u8], exports: &Exports, replies: &mut OptionReplies) -> Option<ClassId> {
    let Some((name, wanted)) = parse_info(data) else {
        replies.refuse(OptionError::Invalid, "lengths that contradict each other");
        return None;
    };
    let export = match exports.find(name) {
        Ok(export) => export,
        Err((error, what)) => {
            replies.refuse(error, &what);
            return None;
        }
    };
    let mut facts = Vec::from(INFO_EXPORT.to_be_bytes());
    facts.extend(exports.facts.size.to_be_bytes());
    facts.extend(exports.facts.flags().to_be_bytes());
    replies.add(REPLY_INFO, &facts);
    if wanted.contains(&INFO_NAME) {
        let mut canonical = Vec::from(INFO_NAME.to_be_bytes());
        canonical.extend(export.name.as_bytes());
        replies.add(REPLY_INFO, &canonical);
    }
    if wanted.contains(&INFO_BLOCK_SIZE) {
        let mut sizes = Vec::from(INFO_BLOCK_SIZE.to_be_bytes());
        for size in [1, PREFERRED_BLOCK, MAX_REQUEST] {
            sizes.extend(size.to_be_bytes());
        }
        replies.add(REPLY_INFO, &sizes);
    }
    replies.add(REPLY_ACK, &[]);
    Some(export.class)
}

/// Parses the data of an info or go option: the name of an export, and the numbers of the facts that the
/// client asks for.
fn parse_info(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let (length, rest) = take::<4>(data)?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(length) as usize)?;
    let (count, rest) = take::<2>(rest)?;
    let (wanted, odd) = rest.as_chunks::<2>();
    let fits = odd.is_empty() && wanted.len() == usize::from(u16::from_be_bytes(count));
    fits.then(|| (name, wanted.iter().map(|number| u16::from_be_bytes(*number)).collect()))
}

/// Asks a server for its counters. Fails with `InvalidData` if it is no server of Unisono, and with
/// `UnexpectedEof` if it admits no client of this user.
pub(super) fn ask_for_figures(stream: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    let greeting: [u8; 18] = read_array(stream)?;
    if greeting[..16] != [&NBD_MAGIC[..], &OPTION_MAGIC[..]].concat() {
        return Err(nonsense("it serves no disk"));
    }
    let mut asked = Vec::from(u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    asked.extend(OPTION_MAGIC);
    asked.extend(OPTION_FIGURES.to_be_bytes());
    asked.extend(0_u32.to_be_bytes());
    stream.write_all(&asked)?;
    let head: [u8; 16] = read_array(stream)?;
    let length = u32::from_be_bytes(read_array(stream)?);
    let expected = [
        &REPLY_MAGIC.to_be_bytes()[..],
        &[OPTION_FIGURES.to_be_bytes(), REPLY_FIGURES.to_be_bytes()].concat(),
    ];
    if head[..] != expected.concat() || length > MAX_FIGURES {
        return Err(nonsense("it serves a disk, but is no server of Unisono of this version"));
    }
    let mut figures = vec![0; length as usize];
    stream.read_exact(&mut figures)?;
    Ok(figures)
}

/// The replies to one option.
struct OptionReplies {
    option: u32,
    bytes: Vec<u8>,
}

impl OptionReplies {
    fn add(&mut self, kind: u32, data: &[u8]) {
        self.bytes.extend(REPLY_MAGIC.to_be_bytes());
        self.bytes.extend(self.option.to_be_bytes());
        self.bytes.extend(kind.to_be_bytes());
        self.bytes.extend(length_of(data).to_be_bytes());
        self.bytes.extend(data);
    }

    fn refuse(&mut self, error: OptionError, what: &str) {
        self.add(error as u32, what.as_bytes());
    }
}

fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("below 4 GiB because names and options are short")
}

fn read_array<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unisono_fairqueue::{ClassSpec, Hierarchy};
    use unisono_linux::direct::FileAccess;

    /// A client that has sent all its bytes in advance.
    struct Sent<'a> {
        bytes: &'a [u8],
        replies: Vec<u8>,
    }

    impl Read for Sent<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.bytes.read(buffer)
        }
    }

    impl Write for Sent<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.replies.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn exports() -> Exports {
        let tree = ClassSpec::new("root").with([ClassSpec::new("video"), ClassSpec::new("secret")]);
        let tree = Hierarchy::new(tree).and_then(|tree| tree.with_default("rest")).expect("a sound tree");
        let export = |name: &str, is_permitted| Export {
            name: name.to_owned(),
            class: tree.find(name).expect("it is there"),
            is_permitted,
        };
        Exports {
            facts: ExportFacts { size: 1 << 20, access: FileAccess::Write },
            exports: vec![export("video", true), export("secret", false), export("rest", true)],
            default: tree.find("rest").expect("it is there"),
        }
    }

    fn option(number: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from(*OPTION_MAGIC);
        bytes.extend(number.to_be_bytes());
        bytes.extend(length_of(data).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn info(name: &str) -> Vec<u8> {
        let mut data = Vec::from(length_of(name.as_bytes()).to_be_bytes());
        data.extend(name.as_bytes());
        data.extend([0, 1, 0, 3]);
        data
    }

    fn negotiated(options: &[Vec<u8>]) -> (io::Result<Option<ClassId>>, Vec<u8>) {
        let bytes = [&[0, 0, 0, 3][..], &options.concat()].concat();
        let mut client = Sent { bytes: &bytes, replies: Vec::new() };
        (negotiate(&mut client, &exports(), &|| b"{}".to_vec()), client.replies)
    }

    #[test]
    fn a_name_chooses_a_class_and_no_name_the_default() {
        let (video, rest) = (exports().exports[0].class, exports().default);
        assert_eq!(negotiated(&[option(OPTION_GO, &info("video"))]).0.expect("sound"), Some(video));
        assert_eq!(negotiated(&[option(OPTION_GO, &info(""))]).0.expect("sound"), Some(rest));
        let (chosen, replies) = negotiated(&[option(OPTION_EXPORT_NAME, b"video")]);
        assert_eq!(chosen.expect("sound"), Some(video));
        assert_eq!(replies.len(), 18 + 10, "the greeting, the size and the flags, without zeroes");
    }

    #[test]
    fn a_class_of_others_is_neither_listed_nor_given() {
        let refused = negotiated(&[
            option(OPTION_LIST, &[]),
            option(OPTION_GO, &info("secret")),
            option(OPTION_GO, &info("nothing")),
            option(5, &[]),
            option(OPTION_ABORT, &[]),
        ]);
        assert_eq!(refused.0.expect("the client leaves in order"), None);
        let text = String::from_utf8_lossy(&refused.1).into_owned();
        assert!(text.contains("the policy does not let your user choose secret"), "{text}");
        assert!(text.contains("there are video, rest"), "{text}");
        let listed = negotiated(&[option(OPTION_LIST, &[]), option(OPTION_ABORT, &[])]).1;
        assert!(!String::from_utf8_lossy(&listed).contains("secret"));
        assert!(negotiated(&[option(OPTION_EXPORT_NAME, b"secret")]).0.is_err());
    }

    #[test]
    fn options_that_are_too_long_and_bytes_of_another_protocol_end_the_connection() {
        let mut long = option(OPTION_LIST, &[]);
        long[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
        for bytes in [long, b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![option(OPTION_LIST, &[]); 5000].concat()]
        {
            let error = negotiated(&[bytes]).0.expect_err("it must end");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_server_of_unisono_has_figures_and_another_one_is_told_apart() {
        let replies = negotiated(&[option(OPTION_FIGURES, &[]), option(OPTION_ABORT, &[])]).1;
        let asked = |bytes: &[u8]| ask_for_figures(&mut Sent { bytes, replies: Vec::new() });
        assert_eq!(asked(&replies).expect("it has them"), b"{}");
        // another server refuses the option
        let mut refused = replies.clone();
        refused[18 + 12..18 + 16].copy_from_slice(&(OptionError::Unsupported as u32).to_be_bytes());
        for other in [&refused[..], b"HTTP/1.1 400 Bad Request\r\n"] {
            assert_eq!(asked(other).expect_err("no figures").kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(asked(b"").expect_err("closed").kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn no_bytes_choose_a_class_of_others(
            options in prop::collection::vec((0..10_u32, prop::collection::vec(any::<u8>(), 0..40)), 0..5),
            rest: Vec<u8>,
        ) {
            let options: Vec<Vec<u8>> = options.iter().map(|(number, data)| option(*number, data)).collect();
            let chosen = negotiated(&[options.concat(), rest]).0;
            prop_assert!(chosen.ok().flatten().is_none_or(|class| class != exports().exports[1].class));
        }
    }
}
