//! BPF maps and programs: bpf(2).
//!
//! The values of maps are plain bytes here; the crate that loads a program defines their layout. Programs are
//! instructions from a compiler, with the descriptors of their maps filled in. The kernel's verifier checks
//! each program before it runs; its log is part of the error.
//!
//! Cost: one system call per function; the verifier takes about a millisecond for a thousand instructions.
//! Reference: bpf(2), Documentation/bpf/.

pub mod assembler;
mod callable;
pub mod compile;
mod kernel_types;
mod loaded_program;
mod lru_map;
pub mod object;
mod operations;
mod processor_map;
mod redirector;
mod return_values;
mod socket_storage;
mod table;
pub mod tcx;
pub mod type_information;
mod words;

pub use callable::Callable;
pub use kernel_types::{BtfMember, KernelTypes, Structure};
pub use loaded_program::LoadedProgram;
pub use lru_map::LruMap;
pub use operations::{LoadedOperations, MaySleep, Operations};
pub use processor_map::ProcessorMap;
pub use redirector::{Redirector, SocketMap};
pub use return_values::ReturnValues;
pub use socket_storage::{SocketStorage, SocketWords, StorageScan};
pub use table::Table;
pub use type_information::TypeInformation;
pub use words::Words;

use crate::netlink::link::Index;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const PROGRAM_LOAD: i32 = 5;
const PROGRAM_ATTACH: i32 = 8;
const PROGRAM_DETACH: i32 = 9;
const PROGRAM_TEST_RUN: i32 = 10;
const MAP_BY_ID: i32 = 14;
const INFORMATION: i32 = 15;
const MAP_UPDATE_BATCH: i32 = 26;
const TCX_INGRESS: u32 = 46;
const ARRAY: u32 = 2;
const SCHEDULER_CLASSIFIER: u32 = 3;
/// The flag of a program that may sleep.
const SLEEPABLE: u32 = 1 << 4;
const LOG: usize = 256 * 1024;
/// The bytes of `struct __sk_buff` that a test run passes to the program.
const CONTEXT: usize = 64;
/// The longest form of `bpf_attr` works on all kernels, because fields that a kernel does not know need only
/// be zero.
const ATTRIBUTES: usize = 128;

/// `union bpf_attr`, filled in field by field.
#[repr(C, align(8))]
struct Attributes([u8; ATTRIBUTES]);

impl Attributes {
    fn new() -> Self {
        Self([0; ATTRIBUTES])
    }

    /// Describes a map: its type, its name, and the bytes of a key, the bytes of a value, the entries.
    fn map(kind: u32, name: &str, [key, value, entries]: [u32; 3]) -> Self {
        Self::new().word(0, kind).word(4, key).word(8, value).word(12, entries).name(28, name)
    }

    fn make_map(mut self) -> io::Result<OwnedFd> {
        // SAFETY: the command follows no pointers.
        Ok(owned(unsafe { bpf(MAP_CREATE, &mut self)? }))
    }

    fn word(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn pointer<T>(mut self, at: usize, value: *const T) -> Self {
        self.0[at..at + 8].copy_from_slice(&(value as u64).to_ne_bytes());
        self
    }

    fn name(mut self, at: usize, name: &str) -> Self {
        let name = name.as_bytes();
        let length = name.len().min(15);
        self.0[at..at + length].copy_from_slice(&name[..length]);
        self
    }

    fn answer(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }
}

/// Makes the system call bpf(2).
///
/// # Safety
/// The pointers in the attributes must be valid for the command's reads and writes.
unsafe fn bpf(command: i32, attributes: &mut Attributes) -> io::Result<i32> {
    // SAFETY: the attributes are valid for reads and writes of their size; the caller guarantees the pointers
    // in them.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, (&raw mut attributes.0).cast::<u8>(), ATTRIBUTES) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// Makes the call that reads or writes one element of a map.
///
/// # Safety
/// Key and value must have the sizes of the map and be valid for reads; the value that MAP_LOOKUP fills, for
/// writes.
unsafe fn element<K, V>(command: i32, map: &OwnedFd, key: *const K, value: *const V) -> io::Result<()> {
    let mut attributes = Attributes::new().word(0, map.as_raw_fd() as u32).pointer(8, key).pointer(16, value);
    // SAFETY: the caller guarantees both pointers.
    unsafe { bpf(command, &mut attributes).map(drop) }
}

/// Reads the head of a map's `struct bpf_map_info`: type, number, size of a key, size of a value, elements,
/// flags.
fn map_information<const WORDS: usize>(map: &OwnedFd) -> io::Result<[u32; WORDS]> {
    let mut words = [0_u32; WORDS];
    let mut attributes = Attributes::new()
        .word(0, map.as_raw_fd() as u32)
        .word(4, size_of_val(&words) as u32)
        .pointer(8, words.as_mut_ptr());
    // SAFETY: the words are valid for writes of the given length.
    unsafe { bpf(INFORMATION, &mut attributes)? };
    Ok(words)
}

fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: the callers pass a descriptor that the kernel just made for them alone; it is close-on-exec.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// An array in the kernel, of elements of equal size. All elements exist and are zero from the beginning.
#[derive(Debug)]
pub struct Array {
    descriptor: OwnedFd,
    value_size: usize,
}

impl Array {
    /// Makes an array of `elements` elements of `value_size` bytes. Fails with `EPERM` without `CAP_BPF`.
    pub fn new(name: &str, value_size: u32, elements: u32) -> io::Result<Self> {
        let descriptor = Attributes::map(ARRAY, name, [4, value_size, elements]).make_map()?;
        Ok(Self { descriptor, value_size: value_size as usize })
    }

    /// Makes an array whose elements hold data that the kernel has to know about, such as its own objects.
    /// `key` and `value` are the numbers of their types in `types`; the key is a number of four bytes. Fails
    /// as [`new`](Self::new) does, or if the kernel does not support such elements.
    pub fn with_types(
        name: &str,
        value_size: u32,
        elements: u32,
        (types, key, value): (&TypeInformation, u32, u32),
    ) -> io::Result<Self> {
        let descriptor = Attributes::map(ARRAY, name, [4, value_size, elements])
            .word(48, types.as_fd().as_raw_fd() as u32)
            .word(52, key)
            .word(56, value)
            .make_map()?;
        Ok(Self { descriptor, value_size: value_size as usize })
    }

    /// Opens an array that a program in the kernel still uses, by its [`id`](Self::id). Fails if the map is
    /// gone, or has another type or size.
    pub fn open(id: u32, value_size: u32) -> io::Result<Self> {
        let mut attributes = Attributes::new().word(0, id);
        // SAFETY: the command follows no pointers.
        let descriptor = owned(unsafe { bpf(MAP_BY_ID, &mut attributes)? });
        let array = Self { descriptor, value_size: value_size as usize };
        match map_information::<4>(&array.descriptor)? {
            [ARRAY, _, 4, size] if size == value_size => Ok(array),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// Returns the kernel's number of the map. Needs Linux 4.13.
    pub fn id(&self) -> io::Result<u32> {
        Ok(map_information::<2>(&self.descriptor)?[1])
    }

    /// Reads an element.
    ///
    /// # Panics
    /// If `value` does not have the size of an element.
    pub fn read(&self, at: u32, value: &mut [u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_size, "an element has a size of its own");
        // SAFETY: the key has four bytes, and the value has the map's element size, as checked above.
        unsafe { element(MAP_LOOKUP, &self.descriptor, &raw const at, value.as_mut_ptr()) }
    }

    /// Writes an element.
    ///
    /// # Panics
    /// If `value` does not have the size of an element.
    pub fn write(&self, at: u32, value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_size, "an element has a size of its own");
        // SAFETY: the key has four bytes, and the value has the map's element size, as checked above.
        unsafe { element(MAP_UPDATE, &self.descriptor, &raw const at, value.as_ptr()) }
    }
}

crate::as_fd!(Array.descriptor);

#[derive(Debug, thiserror::Error)]
#[error("load the program {name}: {error}{}", .log.as_ref().map(|log| format!("; the verifier says:\n{log}")).unwrap_or_default())]
pub struct NotLoaded {
    name: String,
    #[source]
    error: io::Error,
    log: Option<String>,
}

impl NotLoaded {
    /// Returns whether the verifier refused the program. Other causes are this user's rights or the kernel's
    /// configuration.
    pub fn is_refused_by_verifier(&self) -> bool {
        self.log.is_some()
    }
}

/// A program in the kernel that classifies frames (`BPF_PROG_TYPE_SCHED_CLS`).
#[derive(Debug)]
pub struct ClassifierProgram(OwnedFd);

impl ClassifierProgram {
    /// Loads a classifier. Instructions that load a map contain the map's descriptor; the map must still be
    /// open. Fails with `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`; a refusal by the verifier includes the
    /// end of its log.
    pub fn load(name: &str, instructions: &[u64]) -> Result<Self, NotLoaded> {
        let kind = Attributes::new().word(0, SCHEDULER_CLASSIFIER);
        load(kind, name, instructions).map(Self)
    }

    /// Runs the program once on a frame as if the frame had arrived at device 1 of this namespace; returns
    /// the program's result. Frames that the program sends are really sent. Fails if the frame is shorter
    /// than an Ethernet header.
    pub fn test(&self, frame: &[u8]) -> io::Result<u32> {
        self.test_with(frame, 0, 0)
    }

    /// Does the same as [`test`](Self::test), for a frame of a socket with this `SO_PRIORITY` and `SO_MARK`.
    pub fn test_with(&self, frame: &[u8], priority: u32, mark: u32) -> io::Result<u32> {
        // struct __sk_buff: the caller may set its priority and mark
        let mut context = [0_u8; CONTEXT];
        context[8..12].copy_from_slice(&mark.to_ne_bytes());
        context[32..36].copy_from_slice(&priority.to_ne_bytes());
        let mut attributes = Attributes::new()
            .word(0, self.0.as_raw_fd() as u32)
            .word(8, frame.len() as u32)
            .pointer(16, frame.as_ptr())
            .word(40, CONTEXT as u32)
            .pointer(48, context.as_ptr());
        // SAFETY: the frame and the context are valid for reads of their lengths; no output buffer is given.
        unsafe { bpf(PROGRAM_TEST_RUN, &mut attributes)? };
        Ok(attributes.answer(4))
    }
}

crate::as_fd!(ClassifierProgram.0);

/// Loads a program of the type in the attributes.
fn load(kind: Attributes, name: &str, instructions: &[u64]) -> Result<OwnedFd, NotLoaded> {
    let kind = kind
        .word(4, instructions.len() as u32)
        .pointer(8, instructions.as_ptr())
        .pointer(16, c"GPL".as_ptr())
        .name(48, name);
    let load = |log: &mut [u8]| {
        let mut attributes = Attributes(kind.0);
        if !log.is_empty() {
            attributes = attributes.word(24, 1).word(28, log.len() as u32).pointer(32, log.as_mut_ptr());
        }
        // SAFETY: the instructions, the license and the log are valid for their lengths, and outlive the
        // call.
        unsafe { bpf(PROGRAM_LOAD, &mut attributes) }
    };
    match load(&mut []) {
        Ok(descriptor) => Ok(owned(descriptor)),
        Err(error) => {
            let mut log = vec![0; LOG];
            // repeat the call with a log, which holds the reason; if the program loads this time, the first
            // attempt had failed for lack of memory
            if let Ok(descriptor) = load(&mut log) {
                return Ok(owned(descriptor));
            }
            Err(NotLoaded { name: name.to_owned(), error, log: last_lines(&log) })
        }
    }
}

/// Attaches a classifier to the frames that arrive at a device of the calling thread's namespace, without a
/// queueing discipline (tcx). The kernel keeps the program attached as long as the device exists, even if the
/// program is closed. Fails with `EINVAL` if the kernel is older than 6.6, with `ENODEV` if the device does
/// not exist, and with `EEXIST` if the program is already attached there.
pub fn attach(program: BorrowedFd<'_>, device: Index) -> io::Result<()> {
    at_device(PROGRAM_ATTACH, program, device)
}

/// Detaches a classifier that [`attach`] attached to a device.
pub fn detach(program: BorrowedFd<'_>, device: Index) -> io::Result<()> {
    at_device(PROGRAM_DETACH, program, device)
}

fn at_device(command: i32, program: BorrowedFd<'_>, device: Index) -> io::Result<()> {
    let program = program.as_raw_fd() as u32;
    let mut attributes = Attributes::new().word(0, device.0).word(4, program).word(8, TCX_INGRESS);
    // SAFETY: the command follows no pointers.
    unsafe { bpf(command, &mut attributes) }.map(|_| ())
}

/// Returns the last lines of the verifier's log, which give the reason.
fn last_lines(log: &[u8]) -> Option<String> {
    let length = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..length]);
    let lines: Vec<&str> = text.lines().collect();
    (!lines.is_empty()).then(|| lines[lines.len().saturating_sub(20)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::is_root;

    #[test]
    fn an_array_holds_what_is_written() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        let array = match Array::new("unisono_test", 8, 2) {
            Ok(array) => array,
            Err(error) => {
                eprintln!("skipped: no BPF maps here: {error}");
                return;
            }
        };
        array.write(1, &[7; 8]).expect("element 1 is there");
        let mut value = [1; 8];
        array.read(0, &mut value).expect("element 0 is there");
        assert_eq!(value, [0; 8]);
        array.read(1, &mut value).expect("element 1 is there");
        assert_eq!(value, [7; 8]);
        assert!(array.write(2, &value).is_err(), "there is no element 2");
    }

    #[test]
    fn a_program_runs_and_one_that_the_verifier_refuses_comes_back_with_its_words() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        // mov r0, 2; exit
        let program = match ClassifierProgram::load("unisono_test", &[0x2_0000_00b7, 0x95]) {
            Ok(program) => program,
            Err(error) => {
                eprintln!("skipped: no BPF programs here: {error}");
                return;
            }
        };
        assert_eq!(program.test(&[0; 64]).expect("a frame"), 2);
        // exit without a result
        let error = ClassifierProgram::load("unisono_test", &[0x95]).expect_err("it answers nothing");
        assert!(error.is_refused_by_verifier() && error.to_string().contains("R0"), "{error}");
    }
}
