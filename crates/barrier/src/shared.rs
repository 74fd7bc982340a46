//! The process form: a group in shared memory, with the configuration written by its creator.
//!
//! The first line holds the configuration. An opener validates all of it, once; afterwards it reads only the
//! words of the protocol, and uses none of them as an index or a length.

use crate::algorithm::Algorithm;
use crate::control::Control;
use crate::error::Error;
use crate::group::Group;
use crate::spec::GroupSpec;
use std::path::{Path, PathBuf};
use unisono_linux::clock::Duration;
use unisono_linux::futex::Scope;
use unisono_linux::membarrier;
use unisono_linux::shared_memory::SharedMemory;
use unisono_sync::atomics::Ordering;
use unisono_sync::{Lines, SpinBudget, Wait, Wakeups};

/// "UNIB", and the version of the layout below it.
const MAGIC: u32 = 0x554e_4942;
const VERSION: u32 = 4;

const ASYMMETRIC: u32 = 1;
const SYMMETRIC: u32 = 2;

impl GroupSpec {
    /// Makes a barrier for processes; other processes open it by [`Group::open`] or inherit it. Fails with
    /// [`Error::SharedMemory`].
    ///
    /// ```
    /// use unisono_barrier::{Group, GroupSpec};
    ///
    /// let group = GroupSpec::new(2)?.for_processes()?;
    /// let path = group.path().expect("it is a group of its own");
    /// // another process of the same user does this
    /// let opened = Group::open(&path)?;
    /// let mut theirs = opened.participant(1)?;
    /// let other = std::thread::spawn(move || theirs.wait().is_ok());
    /// group.participant(0)?.wait()?;
    /// assert!(other.join().is_ok_and(|waited| waited));
    /// # Ok::<(), unisono_barrier::Error>(())
    /// ```
    pub fn for_processes(&self) -> Result<Group, Error> {
        let bytes = Group::lines(self) * size_of::<unisono_sync::CacheLine>();
        let region =
            SharedMemory::create(bytes).map_err(|source| Error::SharedMemory { path: None, source })?;
        Ok(Group::in_lines(self, Lines::in_region(region)))
    }

    /// Returns the number of lines that a group of this specification takes.
    pub fn lines(&self) -> usize {
        Group::lines(self)
    }

    /// Makes a barrier in memory that processes share for other purposes, too. The lines must be zero; the
    /// barrier takes the first [`Self::lines`] of them. Other processes open it by [`Group::open_in`]; it has
    /// no path. Panics if there are too few lines.
    pub fn for_processes_in(&self, lines: &Lines) -> Group {
        Group::in_lines(self, lines.part(0, self.lines()))
    }
}

impl Group {
    fn in_lines(spec: &GroupSpec, lines: Lines) -> Self {
        let group = Self::create(spec, lines, Scope::Shared);
        group.write_configuration();
        group
    }

    /// Returns the path at which processes of the same user can open a group of [`GroupSpec::for_processes`],
    /// while this process lives.
    pub fn path(&self) -> Option<PathBuf> {
        self.control.lines.region().map(SharedMemory::path)
    }

    /// Opens another process's group by its [`path`](Self::path). Fails with
    /// [`Error::SharedMemory`], [`Error::NotABarrier`], [`Error::NoMembarrier`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let region = SharedMemory::open(path)
            .map_err(|source| Error::SharedMemory { path: Some(path.to_owned()), source })?;
        Self::open_in(Lines::in_region(region), path)
    }

    /// Opens a group of [`GroupSpec::for_processes_in`], made by another process in lines that both map.
    /// Errors name the region by `path`. Fails with [`Error::NotABarrier`], [`Error::NoMembarrier`].
    pub fn open_in(lines: Lines, path: &Path) -> Result<Self, Error> {
        let refuse = |what: &str| Error::NotABarrier { path: path.to_owned(), what: what.to_owned() };
        let word = |index: usize| lines.line(0).word(index).load(Ordering::Relaxed);
        // SYNC(configuration) acquire: the configuration is read after its magic number
        if lines.line(0).word(0).load(Ordering::Acquire) != MAGIC {
            return Err(refuse("no magic number"));
        }
        if word(1) != VERSION {
            return Err(refuse(&format!("version {} instead of {VERSION}", word(1))));
        }
        let algorithm = *Algorithm::ALL.get(word(4) as usize).ok_or_else(|| refuse("unknown algorithm"))?;
        let wait = *Wait::ALL.get(word(5) as usize).ok_or_else(|| refuse("unknown wait policy"))?;
        let budget = Duration::from_nanos(word(6).into());
        let spin_budget = SpinBudget::new(budget).map_err(|bad| refuse(&bad.to_string()))?;
        let spec = GroupSpec::with_algorithm(word(2) as usize, algorithm)
            .and_then(|spec| spec.capacity(word(3) as usize))
            .map_err(|bad| refuse(&bad.to_string()))?
            .wait(wait)
            .spin_budget(spin_budget);
        let needed = Self::lines(&spec);
        if lines.count() < needed {
            return Err(refuse("too short"));
        }
        let lines = lines.part(0, needed);
        let wakeups = match word(7) {
            ASYMMETRIC => {
                membarrier::register(Scope::Shared).map_err(Error::NoMembarrier)?;
                Wakeups::Asymmetric(Scope::Shared)
            }
            SYMMETRIC => Wakeups::Symmetric(Scope::Shared),
            _ => Wakeups::Never,
        };
        let control = Control::new(lines, spec.capacity, Scope::Shared);
        Ok(Self::over(&spec, control, wakeups))
    }

    fn write_configuration(&self) {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let position = |at: Option<usize>| number(at.unwrap_or(usize::MAX));
        let words = [
            (1, VERSION),
            (2, number(self.participants)),
            (3, number(self.control.capacity)),
            (4, position(Algorithm::ALL.iter().position(|one| *one == self.algorithm))),
            (5, position(Wait::ALL.iter().position(|one| *one == self.wait))),
            (6, u32::try_from(self.spin_budget.duration().as_nanos()).unwrap_or(u32::MAX)),
            (
                7,
                match self.wakeups {
                    Wakeups::Never => 0,
                    Wakeups::Asymmetric(_) => ASYMMETRIC,
                    Wakeups::Symmetric(_) => SYMMETRIC,
                },
            ),
        ];
        for (index, value) in words {
            self.control.lines.line(0).word(index).store(value, Ordering::Relaxed);
        }
        // SYNC(configuration) release: the configuration is written before its magic number
        self.control.lines.line(0).word(0).store(MAGIC, Ordering::Release);
    }
}
