//! The file behind a served disk, and the steps in which requests are executed on it.
//!
//! A long read or write is executed in pieces of [`PIECE`] bytes, and each piece is scheduled on its own. So
//! a class waits for at most one piece of another class, not for a request of 32 MiB.
//!
//! A sync that fails is final: the kernel reports lost pages only once, to the next sync. If a later sync
//! succeeded, a client would believe that its writes are on the disk. So all later syncs fail, too.

use super::nbd::{DiskCommand, NbdError, WriteDurability, ZeroedSpace};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use unisono_linux::{Errno, disk_file};

/// Bytes of a read or write that are executed at a time. A disk of 250 MB/s needs a millisecond for it.
/// Chosen, not measured.
pub(super) const PIECE: u32 = 256 << 10;
/// The least bytes that a request is charged: a page, because the disk reads or writes whole pages.
const MIN_COST: u32 = 4096;

static ZEROES: [u8; PIECE as usize] = [0; PIECE as usize];

pub(super) struct Backing {
    file: File,
    has_failed_sync: Mutex<bool>,
}

impl Backing {
    pub(super) fn new(file: File) -> Self {
        Self { file, has_failed_sync: Mutex::new(false) }
    }

    /// Writes everything to the disk that was written to the file before.
    pub(super) fn sync(&self) -> io::Result<()> {
        let mut has_failed = self.has_failed_sync.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_failed {
            return Err(io::Error::other("an earlier sync has failed, so writes may be lost"));
        }
        self.file.sync_data().inspect_err(|_| *has_failed = true)
    }
}

/// The effect of a request on the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DiskAction {
    Read,
    Write,
    Flush,
    Trim,
    Zero(ZeroedSpace),
    /// Writes zeroes, because the file system has no other way to zero a range.
    Fill,
}

/// A request in execution: how much of it is done, and its data.
#[derive(Debug)]
pub(super) struct Transfer {
    action: DiskAction,
    durability: WriteDurability,
    offset: u64,
    length: u32,
    done: u32,
    data: Vec<u8>,
}

/// Whether the executed step was the last step of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransferProgress {
    More,
    Last,
}

impl Transfer {
    /// Begins a request; `data` are the bytes of a write. Returns `None` for a command that does not touch
    /// the file.
    pub(super) fn new(command: DiskCommand, offset: u64, length: u32, data: Vec<u8>) -> Option<Self> {
        let (action, durability) = match command {
            DiskCommand::Read => (DiskAction::Read, WriteDurability::UntilFlush),
            DiskCommand::Write(durability) => (DiskAction::Write, durability),
            DiskCommand::Flush => (DiskAction::Flush, WriteDurability::UntilFlush),
            DiskCommand::Trim(durability) => (DiskAction::Trim, durability),
            DiskCommand::Zero(durability, space) => (DiskAction::Zero(space), durability),
            DiskCommand::Disconnect => return None,
        };
        Some(Self { action, durability, offset, length, done: 0, data })
    }

    /// Returns the offset in the file at which the next step begins.
    pub(super) fn position(&self) -> u64 {
        self.offset + u64::from(self.done)
    }

    /// Returns the number of bytes that the next step reads or writes.
    pub(super) fn bytes(&self) -> u32 {
        match self.action {
            DiskAction::Read | DiskAction::Write | DiskAction::Fill => (self.length - self.done).min(PIECE),
            DiskAction::Flush | DiskAction::Trim | DiskAction::Zero(_) => 0,
        }
    }

    /// Returns the number of bytes that the scheduler charges for the next step.
    pub(super) fn cost(&self) -> u32 {
        self.bytes().max(MIN_COST)
    }

    /// Returns the bytes of memory that the whole request needs.
    pub(super) fn held(&self) -> u32 {
        match self.action {
            DiskAction::Read | DiskAction::Write => self.length,
            DiskAction::Flush | DiskAction::Trim | DiskAction::Zero(_) | DiskAction::Fill => 0,
        }
    }

    pub(super) fn reads(&self) -> bool {
        self.action == DiskAction::Read
    }

    /// Executes the next step.
    pub(super) fn step(&mut self, backing: &Backing) -> io::Result<TransferProgress> {
        let (position, bytes) = (self.position(), self.bytes());
        let piece = self.done as usize..(self.done + bytes) as usize;
        let (file, offset, length) = (&backing.file, self.offset, u64::from(self.length));
        match self.action {
            DiskAction::Read => {
                if self.data.is_empty() {
                    self.data = vec![0; self.length as usize];
                }
                file.read_exact_at(&mut self.data[piece], position)?;
            }
            DiskAction::Write => file.write_all_at(&self.data[piece], position)?,
            DiskAction::Fill => file.write_all_at(&ZEROES[..bytes as usize], position)?,
            DiskAction::Flush => backing.sync()?,
            DiskAction::Trim | DiskAction::Zero(_) if length == 0 => {}
            // the protocol lets a server ignore a trim: the bytes of the range are undefined afterwards
            DiskAction::Trim => {
                possible(disk_file::punch_hole(file, offset, length))?;
            }
            DiskAction::Zero(space) => {
                let zeroed = match space {
                    ZeroedSpace::MayBeHole => disk_file::punch_hole(file, offset, length),
                    ZeroedSpace::Kept => disk_file::zero_range(file, offset, length),
                };
                if !possible(zeroed)? {
                    self.action = DiskAction::Fill;
                    return Ok(TransferProgress::More);
                }
            }
        }
        self.done += bytes;
        if self.bytes() > 0 {
            return Ok(TransferProgress::More);
        }
        if self.durability == WriteDurability::OnReply {
            backing.sync()?;
        }
        Ok(TransferProgress::Last)
    }

    /// Returns the bytes that were read, or none after another action.
    pub(super) fn into_data(self) -> Vec<u8> {
        if self.action == DiskAction::Read { self.data } else { Vec::new() }
    }
}

/// Converts a result of fallocate(2): `Ok(false)` if the file system cannot make holes or zero ranges.
fn possible(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error)
            if error.kind() == io::ErrorKind::Unsupported
                || matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::INVAL)) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Returns the protocol's number for an error.
pub(super) fn error_number(error: &io::Error) -> NbdError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            NbdError::NoSpace
        }
        _ => NbdError::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u32 = 3 * PIECE;

    fn run(backing: &Backing, command: DiskCommand, offset: u64, length: u32, data: Vec<u8>) -> Vec<u8> {
        let mut transfer = Transfer::new(command, offset, length, data).expect("a transfer");
        while transfer.step(backing).expect("it is possible") == TransferProgress::More {}
        transfer.into_data()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn a_disk_has_the_bytes_that_were_written_last(
            requests in prop::collection::vec((0..4_u8, 0..SIZE, 0..SIZE, any::<u8>(), any::<bool>()), 1..12),
        ) {
            let file = tempfile::tempfile().expect("a scratch file");
            file.set_len(u64::from(SIZE)).expect("room");
            let backing = Backing::new(file);
            let mut model = vec![0; SIZE as usize];
            for (kind, offset, length, byte, is_durable) in requests {
                let length = length.min(SIZE - offset);
                let range = offset as usize..(offset + length) as usize;
                let durability = if is_durable { WriteDurability::OnReply } else { WriteDurability::UntilFlush };
                let (command, data) = match kind {
                    0 => (DiskCommand::Write(durability), vec![byte; length as usize]),
                    1 => (DiskCommand::Zero(durability, ZeroedSpace::MayBeHole), Vec::new()),
                    2 => (DiskCommand::Zero(durability, ZeroedSpace::Kept), Vec::new()),
                    _ => (DiskCommand::Flush, Vec::new()),
                };
                if kind < 3 {
                    model[range].fill(if kind == 0 { byte } else { 0 });
                }
                run(&backing, command, offset.into(), length, data);
                prop_assert!(run(&backing, DiskCommand::Read, 0, SIZE, Vec::new()) == model);
            }
        }
    }

    #[test]
    fn a_flush_and_a_durable_write_sync_and_after_a_sync_that_failed_none_succeeds() {
        use unisono_linux::seccomp::{CallRule, Filter, SystemCall};
        let backing = Backing::new(tempfile::tempfile().expect("a scratch file"));
        let step = |command| {
            Transfer::new(command, 0, 4, vec![1; 4]).expect("a transfer").step(&backing).map(|_| ())
        };
        let [durable, plain] = [WriteDurability::OnReply, WriteDurability::UntilFlush]
            .map(|durability| move || step(DiskCommand::Write(durability)));
        step(DiskCommand::Flush).and_then(|()| durable()).expect("it can be synced");
        let refused = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                Filter::refusing(&[CallRule(SystemCall::FDATASYNC, &[])], 5).install()?;
                plain().expect("it promises nothing");
                io::Result::Ok(step(DiskCommand::Flush).expect_err("it syncs"))
            });
            thread.join().expect("no panic")
        });
        match refused {
            Ok(error) => {
                assert_eq!(error_number(&error), NbdError::Io);
                step(DiskCommand::Flush).expect_err("an earlier one has failed");
                durable().expect_err("nor this");
                plain().expect("it promises nothing");
            }
            Err(error) => eprintln!("skipped: no filters here: {error}"),
        }
    }
}
