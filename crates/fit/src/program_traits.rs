//! Reads from a program's file which runtime the program has: the version of Go that built it, the version of
//! Java if it is Java's launcher, the shared libraries that it links to.
//!
//! The file's bytes are untrusted; what cannot be parsed counts as not found. Interpreters and scripts load
//! libraries later, so a runtime that is not found may still be used. The names by which MPI is recognized
//! are an argument, because the MPI preload has that list.
//!
//! Reference: Go's debug/buildinfo (the section `.go.buildinfo`); the file `release` of a JDK.

use crate::command_line::{LaunchArguments, behind_prefixes};
use crate::mpi4py::uses_mpi4py;
use crate::program_file::read_program;
use crate::ranks::launched;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use unisono_linux::cgroup::CgroupVersion;
use unisono_linux::elf;
use unisono_linux::programs::executable;
use unisono_linux::quota::{GroupRelation, Quota};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramTraits {
    pub name: String,
    /// The index of the program in its command line. Commands that become the rest of their arguments
    /// (`nice`, `timeout 60`) come before it.
    pub at: usize,
    /// The variables that `env` sets before the program, as `NAME=VALUE`.
    pub assignments: Vec<String>,
    /// The shared libraries that the program links to (`DT_NEEDED`).
    pub libraries: Vec<String>,
    pub go: Option<Go>,
    /// The version of Java, if the program is the launcher `java`.
    pub java: Option<Java>,
    /// The minor version of Python 3, if the program is an interpreter whose file name has it
    /// (`python3.11`), also behind links.
    pub python: Option<u32>,
    /// The number of ranks on this host, if the program launches an MPI program and its arguments name the
    /// number (`mpiexec -n 8`).
    pub ranks: Option<usize>,
    /// Whether the program uses MPI or starts programs that do.
    pub mpi: bool,
    /// The indices in the command line of the programs that a launcher starts as ranks.
    pub rank_programs: Vec<usize>,
    /// Whether the ranks that the program launches, or the program as a rank, use an MPI that keeps their
    /// processors while they wait. Of mpi4py this is assumed, because it chooses its MPI when it is imported.
    pub ranks_wait_awake: bool,
}

/// The names by which MPI is recognized.
#[derive(Clone, Copy, Debug)]
pub struct MpiNames {
    /// Returns whether a program of this name starts the ranks of MPI programs.
    pub is_launcher: fn(&str) -> bool,
    /// Returns whether a shared library of this name belongs to an MPI.
    pub is_library: fn(&str) -> bool,
    /// Returns whether a shared library of this name belongs to an MPI whose ranks stay awake while they
    /// wait.
    pub waits_awake: fn(&str) -> bool,
}

impl ProgramTraits {
    /// Reads the file of a command's program. Fails if exec(2) would not find the command's first word.
    pub fn from_command(command: &[OsString], mpi: MpiNames) -> io::Result<Self> {
        let Some(first) = command.first() else { return Ok(Self::default()) };
        let mut file = executable(Path::new(first))?;
        let mut at = behind_prefixes(command);
        match executable(Path::new(&command[at])) {
            Ok(found) => file = found,
            // the command before the program will report that
            Err(_) => at = 0,
        }
        let (name, arguments) = (&command[at], &command[at + 1..]);
        let bytes = read_program(&file);
        let libraries = elf::needed(&bytes);
        let launch =
            (mpi.is_launcher)(&name.to_string_lossy()).then(|| LaunchArguments::read(name, arguments));
        let waits_awake = |libraries: &[String], program: usize| {
            libraries.iter().any(|library| (mpi.waits_awake)(library)) || uses_mpi4py(&command[program..])
        };
        let rank_programs = launch.iter().flat_map(|launch| &launch.programs);
        let rank_programs: Vec<usize> = rank_programs
            .map(|program| at + 1 + program)
            .filter(|program| executable(Path::new(&command[*program])).is_ok())
            .collect();
        let file_name = Path::new(name).file_name().unwrap_or_default();
        Ok(Self {
            name: file_name.to_string_lossy().into_owned(),
            at,
            assignments: command[..at]
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .filter(|word| !word.starts_with('-') && word.contains('='))
                .collect(),
            go: Go::from_binary(&bytes),
            java: if file_name == "java" { Java::from_launcher(&file) } else { None },
            python: python_minor(&file),
            ranks: launch.as_ref().and_then(|launch| launched(name, launch, &own_host_name())),
            mpi: launch.is_some()
                || libraries.iter().any(|library| (mpi.is_library)(library))
                || uses_mpi4py(&command[at..]),
            ranks_wait_awake: match &launch {
                Some(_) => rank_programs.iter().any(|program| {
                    let rank = program + behind_prefixes(&command[*program..]);
                    let file = executable(Path::new(&command[rank])).unwrap_or_default();
                    waits_awake(&elf::needed(&read_program(&file)), rank)
                }),
                None => waits_awake(&libraries, at),
            },
            rank_programs,
            libraries,
        })
    }

    /// Returns the value that `env` gives to a variable before the program.
    pub(crate) fn assigned(&self, name: &str) -> Option<String> {
        let value = |word: &String| word.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        self.assignments.iter().rev().find_map(value)
    }

    /// Returns whether the program links to one of these libraries. `libgomp` matches `libgomp.so.1`;
    /// `libmkl` also matches `libmkl_rt.so.2`.
    pub(crate) fn links(&self, stems: &[&str]) -> bool {
        let ends = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_alphabetic());
        let is = |library: &String, stem: &&str| library.strip_prefix(stem).is_some_and(ends);
        self.libraries.iter().any(|library| stems.iter().any(|stem| is(library, stem)))
    }
}

fn python_minor(file: &Path) -> Option<u32> {
    let file = file.canonicalize().ok()?;
    file.file_name()?.to_str()?.strip_prefix("python3.")?.parse().ok()
}

fn own_host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Go {
    /// The minor version: 24 for go1.24; 0 for a version before 1.18, whose number is not in the file as
    /// text.
    pub minor: u32,
    /// Whether the program reads the quota of its own control group: since Go 1.25, in modules of `go 1.25`
    /// and later.
    pub reads_quota: bool,
}

impl Go {
    pub fn from_binary(bytes: &[u8]) -> Option<Self> {
        const MAGIC: &[u8] = b"\xff Go buildinf:";
        const HEADER: usize = 32;
        /// The flag for versions as text after the header, since Go 1.18.
        const INLINE: u8 = 2;
        // the linker aligns this section to 16 bytes
        let at = bytes.chunks_exact(16).position(|chunk| chunk.starts_with(MAGIC))? * 16;
        let header = bytes.get(at..at.checked_add(HEADER)?)?;
        if header[15] & INLINE == 0 {
            return Some(Self { minor: 0, reads_quota: false });
        }
        let (version, rest) = length_prefixed(&bytes[at + HEADER..])?;
        let (module, _) = length_prefixed(rest).unwrap_or_default();
        let number = std::str::from_utf8(version).ok()?.split("go1.").nth(1)?;
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let minor = number[..digits].parse().ok()?;
        let switch = b"containermaxprocs=0";
        let off = module.windows(switch.len()).any(|part| part == switch);
        Some(Self { minor, reads_quota: minor >= 25 && !off })
    }

    /// Returns the number of threads of a program that reads the quota: the quota rounded up, but at least
    /// two.
    pub fn threads_in(self, quota: &Quota) -> usize {
        usize::try_from(quota.time_us.div_ceil(quota.period_us)).unwrap_or(usize::MAX).max(2)
    }
}

/// Reads a length in the format of Go's `binary.Uvarint`, and as many bytes. Returns these bytes and the
/// rest.
fn length_prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length: u64 = 0;
    for (at, byte) in bytes.iter().enumerate().take(9) {
        length |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let rest = &bytes[at + 1..];
            return rest.split_at_checked(usize::try_from(length).ok()?);
        }
    }
    None
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Java {
    /// The feature version: 17 for 17.0.15, 8 for 1.8.0_191.
    pub feature: u32,
    /// The update version: 15 for 17.0.15, 191 for 1.8.0_191.
    pub update: u32,
}

impl Java {
    /// Reads the JDK's file `release`, which names the version. `/usr/bin/java` is a link into the JDK.
    fn from_launcher(file: &Path) -> Option<Self> {
        let file = file.canonicalize().ok()?;
        Self::from_release(&fs::read_to_string(file.parent()?.parent()?.join("release")).ok()?)
    }

    /// Parses the text of a JDK's file `release`.
    pub fn from_release(text: &str) -> Option<Self> {
        let version = text.lines().find_map(|line| line.trim().strip_prefix("JAVA_VERSION="))?;
        let mut numbers = version.trim_matches('"').split(['.', '_', '-', '+']).map_while(|n| n.parse().ok());
        match (numbers.next()?, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) {
            (1, feature, _) => Some(Self { feature, update: numbers.next().unwrap_or(0) }),
            (feature, _, update) => Some(Self { feature, update }),
        }
    }

    /// Returns whether this Java takes this quota into account. It does for version 1 of control groups since
    /// 8u191 and 10, for version 2 since 8u372, 11.0.16 and 15, and for quotas of parent groups since 24
    /// (JDK-8322420).
    pub fn counts_quota(self, quota: &Quota) -> bool {
        let Self { feature, update } = self;
        match (quota.of, quota.version) {
            (GroupRelation::Ancestor, _) => feature >= 24,
            (GroupRelation::Own, CgroupVersion::V1) => feature >= 10 || feature == 8 && update >= 191,
            (GroupRelation::Own, CgroupVersion::V2) => {
                feature >= 15 || feature == 8 && update >= 372 || feature == 11 && update >= 16
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the bytes of a program with this version and module text, at an offset such as linkers choose.
    fn built_by(version: &str, module: &str) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes.extend(b"\xff Go buildinf:\x08\x02");
        bytes.extend([0; 16]);
        for text in [version, module] {
            let length = text.len();
            bytes.extend(if length < 128 {
                vec![length as u8]
            } else {
                vec![length as u8 | 0x80, (length >> 7) as u8]
            });
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    const NO_MPI: MpiNames =
        MpiNames { is_launcher: |_| false, is_library: |_| false, waits_awake: |_| false };

    #[test]
    fn a_shell_is_a_program_of_no_known_runtime() {
        let found = ProgramTraits::from_command(&["sh".into(), "-c".into(), "true".into()], NO_MPI)
            .expect("sh is on every Linux");
        assert_eq!((found.name.as_str(), found.go, found.java, found.mpi), ("sh", None, None, false));
    }

    #[test]
    fn a_program_is_read_behind_commands_that_become_it_and_so_are_the_programs_of_a_launcher() {
        // `cat` stands for a launcher
        let names = MpiNames { is_launcher: |name| name == "cat", ..NO_MPI };
        let read = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            ProgramTraits::from_command(&words, names).expect("every Linux has these")
        };
        let shell = read("nice -n 1 sh -c true");
        assert_eq!((shell.name.as_str(), shell.at), ("sh", 3));
        let missing = read("nice no-such-program");
        assert_eq!((missing.name.as_str(), missing.at), ("nice", 0), "nice reports that");
        let launcher = read("timeout 60 cat -n 3 sh -n 5");
        assert_eq!((launcher.at, launcher.ranks, launcher.mpi), (2, Some(3), true));
        assert_eq!(launcher.rank_programs, [5]);
    }

    #[test]
    fn the_go_that_built_a_program_is_in_its_build_information() {
        let padding = format!("build\tDefaultGODEBUG=asynctimerchan=1{}", " ".repeat(200));
        for (version, module, expected) in [
            ("go1.26.8", padding.as_str(), Some((26, true))),
            ("go1.25", "", Some((25, true))),
            ("go1.25.1", &format!("{padding},containermaxprocs=0"), Some((25, false))),
            ("go1.24.9 X:nocoverageredesign", "", Some((24, false))),
            ("devel go1.27-abcdef", "", Some((27, true))),
            ("go2", "", None),
            ("", "", None),
        ] {
            let found = Go::from_binary(&built_by(version, module)).map(|go| (go.minor, go.reads_quota));
            assert_eq!(found, expected, "{version}");
        }
    }

    #[test]
    fn a_program_of_a_go_before_1_18_is_old() {
        let mut bytes = built_by("", "");
        bytes[64 + 15] = 0;
        assert_eq!(Go::from_binary(&bytes), Some(Go { minor: 0, reads_quota: false }));
        assert_eq!(Go::from_binary(b"\x7fELF and no Go"), None);
    }

    #[test]
    fn a_java_machine_names_its_version_in_its_release_file() {
        for (text, feature, update) in [
            ("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"17.0.15\"\n", 17, 15),
            ("JAVA_VERSION=\"1.8.0_191\"", 8, 191),
            ("JAVA_VERSION=\"21\"", 21, 0),
            ("JAVA_VERSION=\"25-ea\"", 25, 0),
        ] {
            assert_eq!(Java::from_release(text), Some(Java { feature, update }), "{text}");
        }
        assert_eq!(Java::from_release("JAVA_VERSION=\"x\""), None);
        assert_eq!(Java::from_release(""), None);
    }

    #[test]
    fn the_version_of_python_is_in_the_name_of_its_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for name in ["python3.11", "python3.13t", "ruby3.3"] {
            fs::write(path(name), "").expect("there is room");
        }
        std::os::unix::fs::symlink("python3.11", path("python3")).expect("a link");
        let minor = |name: &str| python_minor(&path(name));
        assert_eq!((minor("python3.11"), minor("python3")), (Some(11), Some(11)));
        assert_eq!([minor("python3.13t"), minor("ruby3.3"), minor("none")], [None; 3]);
    }

    #[test]
    fn variables_that_env_sets_are_known() {
        let none = MpiNames { is_launcher: |_| false, is_library: |_| false, waits_awake: |_| false };
        let words = ["nice", "env", "-u", "A", "B=1", "C=x=y", "B=2", "true", "D=3"].map(OsString::from);
        let program = ProgramTraits::from_command(&words, none).expect("the programs are there");
        let assigned = ["A", "B", "C", "D"].map(|name| program.assigned(name));
        assert_eq!(assigned, [None, Some("2".into()), Some("x=y".into()), None]);
    }

    #[test]
    fn libraries_are_known_by_their_stem() {
        let libraries =
            ["libgomp.so.1", "libm.so.6", "libmkl_rt.so.2", "libpython3.11.so.1.0"].map(str::to_owned);
        let program = ProgramTraits { libraries: libraries.to_vec(), ..ProgramTraits::default() };
        for stem in ["libgomp", "libmkl", "libpython"] {
            assert!(program.links(&["libomp", stem]), "{stem}");
        }
        assert!(!program.links(&["libgo", "libgompx", "libmk"]));
    }

    proptest! {
        #[test]
        fn whatever_bytes_a_program_has_they_are_read_without_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0_usize..20,
        ) {
            let mut program = vec![0; at * 16];
            program.extend(b"\xff Go buildinf:\x08");
            program.extend(&bytes);
            let _ = Go::from_binary(&program);
            let _ = Java::from_release(&String::from_utf8_lossy(&bytes));
        }
    }
}
