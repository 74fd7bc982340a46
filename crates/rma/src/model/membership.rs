//! A process's membership in a job, as set by the launcher: rank, number of ranks, and shared secret.

use super::{Error, Rank};
use std::fmt;
use std::str::FromStr;

/// A secret that only the members of a job know: 16 random bytes, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl Key {
    /// Makes a new key from the kernel's random bytes. Fails with [`Error::System`] when `/dev/urandom`
    /// cannot be read.
    pub fn random() -> Result<Self, Error> {
        let mut bytes = [0; 16];
        let read = |mut file: std::fs::File| std::io::Read::read_exact(&mut file, &mut bytes);
        std::fs::File::open("/dev/urandom")
            .and_then(read)
            .map_err(Error::system("cannot read /dev/urandom"))?;
        Ok(Self(bytes))
    }

    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Derives the key of the ranks of one host in a job on several hosts. `first` is the lowest of these
    /// ranks.
    pub(crate) fn of_group(mut self, first: Rank) -> Self {
        let low = self.0.iter_mut().zip((first.0 + 1).to_le_bytes());
        low.for_each(|(byte, other)| *byte ^= other);
        self
    }

    /// Makes the key with these bytes, such as those received from another rank.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A key is a secret: it must not get into logs.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits =
            |at: usize| text.get(2 * at..2 * at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let mut bytes = [0; 16];
        let wrong =
            || Error::Job("a job's key has 32 hexadecimal digits; take it from Key::random".to_owned());
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = digits(at).ok_or_else(wrong)?;
        }
        if text.len() == 32 { Ok(Self(bytes)) } else { Err(wrong()) }
    }
}

/// A process's membership in a job, as set by its launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMembership {
    pub rank: Rank,
    pub size: usize,
    pub key: Key,
}

/// The environment variables that pass a [`JobMembership`] from a launcher to a process.
pub mod environment {
    /// The rank, decimal.
    pub const RANK: &str = "UNISONO_RANK";
    /// The size of the job, decimal.
    pub const SIZE: &str = "UNISONO_SIZE";
    /// The key, as [`super::Key`] displays it.
    pub const KEY: &str = "UNISONO_JOB";
    /// The address at which rank 0 of a job on several hosts listens: host and port.
    pub const ROOT: &str = "UNISONO_ROOT";
    /// The ranks of a process's host in a job on several hosts: a list of numbers and ranges, such as 4-7.
    pub const HERE: &str = "UNISONO_HERE";
}

/// How the ranks of a job on several hosts find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// The address at which rank 0 listens: host and port.
    pub root: String,
    /// The ranks of this host, in order.
    pub here: Vec<Rank>,
}

impl Bootstrap {
    pub(super) fn parse(root: String, here: &str, place: &JobMembership) -> Result<Self, Error> {
        let wrong = || {
            let own = place.rank;
            Error::Job(format!(
                "{}={here}: a list of ranks below {} with {own} in it was expected",
                environment::HERE,
                place.size
            ))
        };
        let mut ranks = Vec::new();
        for range in here.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) else {
                return Err(wrong());
            };
            if last as usize >= place.size {
                return Err(wrong());
            }
            ranks.extend((first..=last).map(Rank));
        }
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.contains(&place.rank) { Ok(Self { root, here: ranks }) } else { Err(wrong()) }
    }
}

pub(super) fn incomplete() -> Error {
    Error::Job(format!(
        "{}, {} and {} belong together; start the program with a launcher that sets all three",
        environment::RANK,
        environment::SIZE,
        environment::KEY
    ))
}

impl JobMembership {
    /// Reads the membership from the environment. Returns `None` if no launcher started this process. Fails
    /// with [`Error::Job`] for missing or invalid values.
    pub fn from_environment() -> Result<Option<Self>, Error> {
        let variable = |name: &str| std::env::var(name).ok();
        match (variable(environment::RANK), variable(environment::SIZE), variable(environment::KEY)) {
            (None, None, None) => Ok(None),
            (Some(rank), Some(size), Some(key)) => Self::parse(&rank, &size, &key).map(Some),
            _ => Err(incomplete()),
        }
    }

    pub(super) fn parse(rank: &str, size: &str, key: &str) -> Result<Self, Error> {
        let number = |name: &str, text: &str| {
            text.parse::<u32>().map_err(|_| Error::Job(format!("{name}={text}: a number was expected")))
        };
        let (rank, size) = (number(environment::RANK, rank)?, number(environment::SIZE, size)?);
        if rank >= size || size > MAX_RANKS {
            return Err(Error::Job(format!(
                "{}={rank} and {}={size}: ranks are below the size, which is at most {MAX_RANKS}",
                environment::RANK,
                environment::SIZE
            )));
        }
        Ok(Self { rank: Rank(rank), size: size as usize, key: key.parse()? })
    }
}

/// The largest number of members of a job.
pub const MAX_RANKS: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_and_read_back_and_not_logged() {
        let key = Key::random().expect("the kernel has random bytes");
        assert_eq!(key.to_string().parse::<Key>().expect("32 digits"), key);
        assert!("12".parse::<Key>().is_err());
        assert!(format!("{key}x").parse::<Key>().is_err());
        assert_eq!(format!("{key:?}"), "Key(..)");
    }

    #[test]
    fn a_place_outside_its_job_is_refused_by_name() {
        let key = Key::from_bytes([7; 16]).to_string();
        assert_eq!(JobMembership::parse("1", "2", &key).expect("a place").rank, Rank(1));
        let wrong = JobMembership::parse("2", "2", &key).expect_err("rank 2 of 2");
        assert!(wrong.to_string().contains("UNISONO_RANK=2"), "{wrong}");
        assert!(JobMembership::parse("x", "2", &key).is_err());
    }
}
