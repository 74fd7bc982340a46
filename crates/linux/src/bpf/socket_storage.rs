//! Words that the kernel keeps at a socket and frees with it (`BPF_MAP_TYPE_SK_STORAGE`).
//!
//! ```text
//!   a process with the socket's descriptor      set, read          the words of this socket
//!   a classifier with a packet of the socket    bpf_sk_storage_get
//!   [`StorageScan`]                             the words of all sockets that have some
//! ```
//! A map of this kind has no keys of its own: each entry belongs to a socket, and the kernel frees it with
//! the socket, after the socket's last packet. So a scan shows which sockets still exist, and this process
//! need not keep their descriptors open. A scan needs a program that the kernel calls for each entry
//! (`bpf_iter`).
//!
//! Cost: a system call to set or read; about 100 ns for each socket of a scan. Reference:
//! Documentation/bpf/map_sk_storage.rst, Documentation/bpf/bpf_iterators.rst.

use super::assembler::{Assembler, BpfRegister, JumpWhen, LoadSize, R0, R1, R2, R3};
use super::{
    Attributes, KernelTypes, MAP_BY_ID, MAP_LOOKUP, MAP_UPDATE, TypeInformation, bpf, element, load,
    map_information, owned, type_information,
};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The words at a socket.
pub type SocketWords = [u32; 9];

const SOCKET_STORAGE: u32 = 24;
const WITHOUT_PREALLOCATION: u32 = 1;
const WORDS_BYTES: usize = size_of::<SocketWords>();
const TRACING: u32 = 26;
const ITERATOR: u32 = 28;
const LINK_CREATE: i32 = 28;
const ITERATOR_CREATE: i32 = 33;
/// The kernel function whose arguments the program of a scan gets.
const ITERATED: &str = "bpf_iter_bpf_sk_storage_map";
const WRITE: i32 = 127;
/// Offsets in the structure of those arguments: the output, and the words of the socket.
const OUTPUT: i16 = 0;
const VALUE: i16 = 24;

#[derive(Debug)]
pub struct SocketStorage(OwnedFd);

impl SocketStorage {
    /// Makes a map without entries. Fails with `EPERM` without `CAP_BPF`, and with `EINVAL` before Linux 5.2.
    pub fn new(name: &str) -> io::Result<Self> {
        // an integer of four bytes with the name `int`, and an array of them
        let array = [0, 3 << 24, 0, 1, 1, size_of::<SocketWords>() as u32 / 4];
        let types = [&[1, 1 << 24, 4, 32][..], &array[..]].concat();
        let types = TypeInformation::load(&type_information::encode(b"\0int\0", &types))?;
        let map = Attributes::map(SOCKET_STORAGE, name, [4, WORDS_BYTES as u32, 0])
            .word(16, WITHOUT_PREALLOCATION)
            .word(48, types.as_fd().as_raw_fd() as u32)
            .word(52, 1)
            .word(56, 2);
        Ok(Self(map.make_map()?))
    }

    /// Opens a map that a program in the kernel still uses, by its [`id`](Self::id). Fails with `ENOENT` if
    /// the map is gone, and with `EINVAL` if the number belongs to a map of another kind.
    pub fn open(id: u32) -> io::Result<Self> {
        let mut attributes = Attributes::new().word(0, id);
        // SAFETY: the command follows no pointers.
        let map = Self(owned(unsafe { bpf(MAP_BY_ID, &mut attributes)? }));
        match map_information::<4>(&map.0)? {
            [SOCKET_STORAGE, _, 4, size] if size as usize == WORDS_BYTES => Ok(map),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// Returns the kernel's number of the map.
    pub fn id(&self) -> io::Result<u32> {
        Ok(map_information::<2>(&self.0)?[1])
    }

    /// Stores words at a socket. Fails with `ENOTSOCK` if the descriptor is no socket.
    pub fn set(&self, socket: BorrowedFd<'_>, words: &SocketWords) -> io::Result<()> {
        let key = socket.as_raw_fd();
        // SAFETY: the key has four bytes, and the words have the map's value size.
        unsafe { element(MAP_UPDATE, &self.0, &raw const key, words.as_ptr()) }
    }

    /// Reads the words at a socket, if it has some. Fails with `ENOTSOCK` if the descriptor is no socket.
    pub fn read(&self, socket: BorrowedFd<'_>) -> io::Result<Option<SocketWords>> {
        let (key, mut words) = (socket.as_raw_fd(), SocketWords::default());
        // SAFETY: the key has four bytes, and the words are valid for writes of the map's value size.
        match unsafe { element(MAP_LOOKUP, &self.0, &raw const key, words.as_mut_ptr()) } {
            Ok(()) => Ok(Some(words)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

crate::as_fd!(SocketStorage.0);

/// A program that the kernel calls for each socket with words.
#[derive(Debug)]
pub struct StorageScan(OwnedFd);

impl StorageScan {
    /// Loads a scan that reads. Fails with `ENOTSUP` if the kernel cannot scan: it is older than 5.9, or does
    /// not describe its types.
    pub fn reading() -> io::Result<Self> {
        const WORDS: BpfRegister = BpfRegister(6);
        let mut code = Assembler::default();
        let none = code.label();
        code.load(LoadSize::Eight, WORDS, R1, VALUE).jump_if(JumpWhen::Equal, WORDS, 0, none);
        code.load(LoadSize::Eight, R1, R1, OUTPUT).load(LoadSize::Eight, R1, R1, OUTPUT);
        code.copy(R2, WORDS).set(R3, WORDS_BYTES as i32).call(WRITE);
        code.here(none).set(R0, 0).exit();
        Self::load(code)
    }

    /// Loads a scan that clears all words of the sockets whose word `at` has none of the `kept` values. Fails
    /// as [`reading`](Self::reading) does.
    ///
    /// # Panics
    /// If there is no word `at`.
    pub fn clearing(at: usize, kept: &[u32]) -> io::Result<Self> {
        assert!(at < WORDS_BYTES / 4, "a socket has fewer words");
        let offset = |word: usize| (word * 4) as i16;
        let mut code = Assembler::default();
        let none = code.label();
        code.load(LoadSize::Eight, R2, R1, VALUE).jump_if(JumpWhen::Equal, R2, 0, none);
        code.load(LoadSize::Four, R3, R2, offset(at));
        for value in kept {
            let differs = code.label();
            code.jump_if(JumpWhen::Not32, R3, value.cast_signed(), differs).jump(none).here(differs);
        }
        for word in 0..WORDS_BYTES / 4 {
            code.store_number(R2, offset(word), 0);
        }
        code.here(none).set(R0, 0).exit();
        Self::load(code)
    }

    fn load(code: Assembler) -> io::Result<Self> {
        let unsupported = |why: String| io::Error::new(io::ErrorKind::Unsupported, why);
        let code = code.finish().ok_or_else(|| unsupported("too many values".to_owned()))?;
        let types = KernelTypes::of_this_kernel().map_err(|error| unsupported(error.to_string()))?;
        let function = types.function(ITERATED).ok_or_else(|| {
            unsupported("this kernel cannot list the sockets of a map; it needs Linux 5.9".to_owned())
        })?;
        let kind = Attributes::new().word(0, TRACING).word(68, ITERATOR).word(108, function);
        let program = load(kind, "unisono_sockets", &code).map_err(|error| unsupported(error.to_string()))?;
        Ok(Self(program))
    }

    /// Runs the scan once. Returns the words of all sockets if the scan reads, and nothing if it clears.
    /// Sockets of all network namespaces are included.
    pub fn run(&self, storage: &SocketStorage) -> io::Result<Vec<SocketWords>> {
        let map = storage.0.as_raw_fd();
        let mut attributes = Attributes::new()
            .word(0, self.0.as_raw_fd() as u32)
            .word(8, ITERATOR)
            .pointer(16, &raw const map)
            .word(24, size_of_val(&map) as u32);
        // SAFETY: the descriptor of the map is valid for reads of the given length.
        let link = owned(unsafe { bpf(LINK_CREATE, &mut attributes)? });
        let mut attributes = Attributes::new().word(0, link.as_raw_fd() as u32);
        // SAFETY: the command follows no pointers.
        let mut output = File::from(owned(unsafe { bpf(ITERATOR_CREATE, &mut attributes)? }));
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes)?;
        let word = |bytes: &[u8; 4]| u32::from_ne_bytes(*bytes);
        let (all, _) = bytes.as_chunks::<WORDS_BYTES>();
        Ok(all.iter().map(|words| std::array::from_fn(|at| word(&words.as_chunks().0[at]))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::is_root;
    use std::net::UdpSocket;

    #[test]
    fn words_stay_at_a_socket_are_listed_and_go_with_it() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        let (map, scan) = match (SocketStorage::new("unisono_test"), StorageScan::reading()) {
            (Ok(map), Ok(scan)) => (map, scan),
            (map, scan) => {
                eprintln!("skipped: no words at sockets here: {:?} {:?}", map.err(), scan.err());
                return;
            }
        };
        let socket = || UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let (one, other) = (socket(), socket());
        assert_eq!(map.read(one.as_fd()).expect("a socket"), None);
        map.set(one.as_fd(), &[1, 2, 3, 4, 5, 0, 0, 0, 0]).expect("a socket");
        map.set(other.as_fd(), &[7; 9]).expect("a socket");
        let changed = [1, 2, 3, 4, 9, 0, 0, 0, 8];
        map.set(one.as_fd(), &changed).expect("a socket");
        let listed = || {
            let mut all = scan.run(&map).expect("it was loaded");
            all.sort_unstable();
            all
        };
        assert_eq!(listed(), [changed, [7; 9]]);
        let again = SocketStorage::open(map.id().expect("it has one")).expect("it is open");
        assert_eq!(again.read(other.as_fd()).expect("a socket"), Some([7; 9]));
        StorageScan::clearing(1, &[8, 2]).expect("as the other").run(&map).expect("it was loaded");
        assert_eq!(listed(), [[0; 9], changed]);
        drop(other);
        drop(one);
        while !listed().is_empty() {
            std::thread::yield_now();
        }
        let file = File::open("/proc/self/stat").expect("proc is mounted");
        let refused = map.set(file.as_fd(), &[1; 9]).expect_err("it is no socket");
        assert_eq!(refused.raw_os_error(), Some(libc::ENOTSOCK));
    }
}
