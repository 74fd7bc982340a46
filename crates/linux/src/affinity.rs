//! The processors that a thread may use: `sched_getaffinity(2)`, `sched_setaffinity(2)`.
//!
//! A [`CpuSet`] is a sorted set of processor numbers; it reads and writes the kernel's list format (`0-3,8`).
//! Cost: one system call each (about 0.3 us); setting an affinity that excludes the thread's current
//! processor also migrates the thread. Do not change the affinity of a program that pinned itself: read it
//! first.
//!
//! Reference: sched_setaffinity(2), cpuset(7) "List format".

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A thread number of the kernel (`gettid`); 0 means the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub i32);

impl From<Tid> for u32 {
    fn from(Tid(number): Tid) -> Self {
        number.cast_unsigned()
    }
}

impl Tid {
    pub const SELF: Tid = Tid(0);

    pub fn current() -> Tid {
        Tid(rustix::thread::gettid().as_raw_nonzero().get())
    }
}

impl Tid {
    /// Converts the number for rustix; `None` stands for the calling thread.
    pub(crate) fn pid(self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(self.0)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of processors, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(BTreeSet<usize>);

impl CpuSet {
    /// The exclusive upper bound of processor numbers that this type passes to the kernel.
    pub const LIMIT: usize = 8192;

    pub fn empty() -> Self {
        Self::default()
    }

    pub fn single(cpu: usize) -> Self {
        Self(BTreeSet::from([cpu]))
    }

    pub fn insert(&mut self, cpu: usize) {
        self.0.insert(cpu);
    }

    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the processors in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + '_ {
        self.0.iter().copied()
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Parses one element of a list of processors, such as `3` or `0-3`.
    pub fn range(element: &str) -> Option<RangeInclusive<usize>> {
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|cpu| *cpu < Self::LIMIT);
        let (first, last) = element.split_once('-').unwrap_or((element, element));
        let range = number(first)?..=number(last)?;
        (!range.is_empty()).then_some(range)
    }

    fn to_words(&self) -> Vec<libc::c_ulong> {
        let bits = libc::c_ulong::BITS as usize;
        let words = self.iter().next_back().map_or(1, |last| last / bits + 1);
        let mut mask = vec![0; words];
        for cpu in self.iter() {
            mask[cpu / bits] |= 1 << (cpu % bits);
        }
        mask
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    /// Writes the kernel's list format; an empty string for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            if last == first {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

/// The error for a text that is not a list of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of processors; write for example 0-3,8")]
pub struct BadCpuList(String);

impl FromStr for CpuSet {
    type Err = BadCpuList;

    fn from_str(text: &str) -> Result<Self, BadCpuList> {
        let mut set = Self::empty();
        for part in text.trim().split(',').filter(|part| !part.trim().is_empty()) {
            set.0.extend(Self::range(part).ok_or_else(|| BadCpuList(text.to_owned()))?);
        }
        Ok(set)
    }
}

/// Returns the processors that a thread may use.
pub fn allowed(thread: Tid) -> io::Result<CpuSet> {
    let bits = libc::c_ulong::BITS as usize;
    let mut mask = vec![0 as libc::c_ulong; CpuSet::LIMIT / bits];
    let bytes = std::mem::size_of_val(mask.as_slice());
    // SAFETY: `mask` is valid for writes of `bytes` bytes for the length of the call.
    let written = unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread.0, bytes, mask.as_mut_ptr()) };
    if written < 0 {
        return Err(io::Error::last_os_error());
    }
    let isset = |cpu: &usize| mask[cpu / bits] >> (cpu % bits) & 1 == 1;
    Ok((0..CpuSet::LIMIT).filter(isset).collect())
}

/// Restricts the calling thread to the given processors. Fails with `EINVAL` if its cpuset allows none of
/// them. Another thread is restricted through [`crate::pinned::PinnedThread::restrict`].
pub fn restrict_own(cpus: &CpuSet) -> io::Result<()> {
    restrict(Tid::SELF, cpus)
}

/// Restricts the thread that has this number now. Fails with `ESRCH` if there is no such thread, with `EPERM`
/// if it belongs to another user, and with `EINVAL` if its cpuset allows none of the processors.
pub(crate) fn restrict(thread: Tid, cpus: &CpuSet) -> io::Result<()> {
    let mask = cpus.to_words();
    let bytes = std::mem::size_of_val(mask.as_slice());
    // SAFETY: `mask` is valid for reads of `bytes` bytes for the length of the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread.0, bytes, mask.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_in_the_kernels_format() {
        for text in ["", "0", "0-3", "0-3,8", "1,3,5-6"] {
            assert_eq!(text.parse::<CpuSet>().expect("a list").to_string(), text);
        }
        assert_eq!("3,1,2\n".parse::<CpuSet>().expect("a list").to_string(), "1-3");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["x", "3-1", "-1", "0-", "99999999"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_thread_that_restricts_itself_is_restricted() {
        std::thread::spawn(|| {
            let before = allowed(Tid::SELF).expect("own affinity");
            let last = before.iter().next_back().expect("some processor");
            restrict(Tid::SELF, &CpuSet::single(last)).expect("restrict");
            assert_eq!(allowed(Tid::current()).expect("own affinity"), CpuSet::single(last));
            restrict(Tid::SELF, &before).expect("widen");
            assert_eq!(allowed(Tid::SELF).expect("own affinity"), before);
        })
        .join()
        .expect("thread");
    }

    #[test]
    fn an_unknown_thread_is_an_error() {
        assert_eq!(allowed(Tid(i32::MAX)).expect_err("no such thread").raw_os_error(), Some(libc::ESRCH));
    }
}
