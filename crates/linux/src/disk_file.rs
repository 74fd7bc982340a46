//! A file or a block device that is served as a disk: how it is opened, its length, holes and zeroes in it.
//!
//! Holes and zeroes fail with `EOPNOTSUPP` where the file system or the device cannot make them, and with
//! `EINVAL` if a range is not in whole blocks of a device; the caller then writes zeroes. Cost: a change of
//! metadata, whatever the length of the range. Reference: open(2) on `O_EXCL`, fallocate(2).

use crate::direct::FileAccess;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file or a block device. Fails with `InvalidInput` for anything else, and with `EBUSY` for a block
/// device that is opened for writing while it is mounted or otherwise in use.
pub fn open(path: &Path, access: FileAccess) -> io::Result<File> {
    let kind = path.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        let what = "this is neither a file nor a block device";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let is_written = access == FileAccess::Write;
    let flags = if is_written && kind.is_block_device() { libc::O_EXCL } else { 0 };
    File::options().read(true).write(is_written).custom_flags(flags).open(path)
}

/// Returns the length in bytes, also of a block device.
pub fn length(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// Deallocates the space of a range. The range then reads as zeroes.
pub fn punch_hole(file: &File, offset: u64, length: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)?)
}

/// Zeroes a range and keeps its space. Only for a regular file: the kernel may write all the zeroes of a
/// block device before it returns.
pub fn zero_range(file: &File, offset: u64, length: u64) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, length)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_zeroed_range_reads_as_zeroes_and_its_neighbours_and_the_length_stay() {
        type Zero = fn(&File, u64, u64) -> io::Result<()>;
        for (name, zero) in [("punch_hole", punch_hole as Zero), ("zero_range", zero_range)] {
            let file = tempfile::tempfile().expect("a scratch file");
            file.write_all_at(&[7; 12_288], 0).expect("room");
            match zero(&file, 4096, 4096) {
                Ok(()) => {
                    let mut bytes = [1; 12_288];
                    file.read_exact_at(&mut bytes, 0).expect("it has this length");
                    let zeroes = bytes.iter().filter(|byte| **byte == 0).count();
                    assert_eq!((zeroes, bytes[4095], bytes[4096], bytes[8192]), (4096, 7, 0, 7), "{name}");
                    assert_eq!(length(&file).expect("it is open"), 12_288);
                }
                Err(error) => eprintln!("skipped: {name} is not possible in this directory: {error}"),
            }
        }
    }

    #[test]
    fn a_directory_and_a_terminal_are_no_disks() {
        for path in ["/", "/dev/null"] {
            let error = open(Path::new(path), FileAccess::Read).expect_err("no disk");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
