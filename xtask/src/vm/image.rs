//! Writes the file system of the virtual machine in the format that the kernel unpacks into memory (cpio,
//! "newc").
//!
//! Reference: Documentation/driver-api/early-userspace/buffer-format.rst.

use super::kernel::UnpackedKernel;
use super::{VmUnavailable, guest};
use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use unisono_linux::programs::on_path;

/// Kernel modules that the tests need; the modules on which these depend are added.
const MODULES: &[&str] = &["veth", "sch_ingress", "cls_bpf", "sch_htb"];

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;
const LINK: u32 = 0o120_777;

#[derive(Default)]
pub(super) struct Image {
    bytes: Vec<u8>,
    entries: u32,
    known: BTreeSet<String>,
}

impl Image {
    /// Adds a file of data at an absolute path, with the directories above it. If a path is added twice, the
    /// first file stays.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.add(path, DATA, content);
    }

    fn add(&mut self, path: &str, mode: u32, content: &[u8]) {
        for (at, _) in path.match_indices('/').skip(1) {
            let directory = &path[..at];
            if self.known.insert(directory.to_owned()) {
                self.entry(directory, DIRECTORY, &[]);
            }
        }
        if self.known.insert(path.to_owned()) {
            self.entry(path, mode, content);
        }
    }

    /// Adds a program, without its debug information, and its shared libraries.
    pub(super) fn program(&mut self, path: &str, program: &Path) -> anyhow::Result<()> {
        self.add(path, PROGRAM, &stripped(program)?);
        let ldd = Command::new("ldd").arg(program).output().context("start ldd")?;
        ensure!(
            ldd.status.success(),
            "ldd {}: {}",
            program.display(),
            String::from_utf8_lossy(&ldd.stderr)
        );
        for library in libraries(&String::from_utf8_lossy(&ldd.stdout)) {
            let content = fs::read(library).with_context(|| format!("read {library}"))?;
            self.add(library, PROGRAM, &content);
        }
        Ok(())
    }

    /// Adds programs of this machine as `/bin/NAME`.
    pub(super) fn commands(&mut self, names: &[&str]) -> Result<(), VmUnavailable> {
        for name in names {
            let found = on_path(name).ok_or_else(|| VmUnavailable::Skip(format!("no {name} on PATH")))?;
            self.program(&format!("/bin/{name}"), &found)?;
        }
        Ok(())
    }

    /// Adds the files and links of a directory, and of those below it, at the same paths.
    pub(super) fn directory(&mut self, directory: &Path) -> anyhow::Result<()> {
        let entries = fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let name = path.to_str().with_context(|| format!("{} is no text", path.display()))?;
            if kind.is_dir() {
                self.directory(&path)?;
            } else if kind.is_symlink() {
                self.add(name, LINK, fs::read_link(&path)?.as_os_str().as_bytes());
            } else if kind.is_file() {
                let mode = if entry.metadata()?.mode() & 0o111 == 0 { DATA } else { PROGRAM };
                self.add(name, mode, &fs::read(&path).with_context(|| format!("read {name}"))?);
            }
        }
        Ok(())
    }

    /// Adds the modules that the tests need.
    pub(super) fn modules(&mut self, kernel: &UnpackedKernel) -> anyhow::Result<()> {
        for (at, module) in kernel.modules(MODULES)?.iter().enumerate() {
            self.file(&format!("{}/{at:02}.ko", guest::MODULES), module);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("/TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        let name = path.trim_start_matches('/');
        self.entries += 1;
        // the fields of a header: magic; inode, mode, owner, group, links, time, size, device and special
        // device, length of the name, checksum
        let numbers =
            [self.entries, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend(b"070701");
        for number in numbers {
            self.bytes.extend(format!("{number:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn stripped(program: &Path) -> anyhow::Result<Vec<u8>> {
    let scratch = tempfile::tempdir().context("a temporary directory")?;
    let copy = scratch.path().join("stripped");
    let strip = Command::new("strip").arg("--strip-debug").arg("-o").arg(&copy).arg(program).status();
    // if strip is missing or fails, the image is only larger
    let from = if strip.is_ok_and(|status| status.success()) { &copy } else { program };
    fs::read(from).with_context(|| format!("read {}", from.display()))
}

/// Returns the paths in the output of ldd.
fn libraries(said: &str) -> Vec<&str> {
    said.split_whitespace().filter(|word| word.starts_with('/')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_made_of_aligned_entries_with_their_directories() {
        let mut image = Image::default();
        image.file("/a/b", b"hello");
        image.file("/a/b", b"again");
        let bytes = image.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).expect("all of it is text");
        assert_eq!(text.matches("070701").count(), 3, "a directory, a file and the end");
        assert!(text.contains("a\0") && text.contains("a/b\0") && text.contains("hello"));
        assert!(!text.contains("again"), "the first of a name stays");
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn a_directory_keeps_its_links_and_which_of_its_files_are_programs() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        fs::write(path("data"), "d").expect("room");
        fs::copy("/proc/self/exe", path("program")).expect("room");
        std::os::unix::fs::symlink("data", path("link")).expect("room");
        let mut image = Image::default();
        image.directory(directory.path()).expect("it is readable");
        let bytes = image.finish();
        for (name, mode) in [("data", DATA), ("program", PROGRAM), ("link", LINK)] {
            let name = format!("{}\0", path(name).display());
            let name = name.trim_start_matches('/').as_bytes();
            let at = bytes.windows(name.len()).position(|window| window == name).expect("an entry");
            // the name follows a header of 110 characters, whose third field is the mode
            let mode_there = &bytes[at - 110 + 14..at - 110 + 22];
            assert_eq!(mode_there, format!("{mode:08x}").as_bytes());
        }
    }

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let said = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(libraries(said), ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
