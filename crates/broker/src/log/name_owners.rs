//! The owners of names that outlive the broker: the file `owners` of a log.
//!
//! ```text
//!   {"owners":1}                                                     the version
//!   {"kind":"consumer","name":"billing","owner":"token:billing"}     the name belongs to this owner
//!   {"kind":"consumer","name":"billing"}                             the name is free again
//! ```
//! The last line of a name counts. A last line that a crash has cut off is ignored. Any other unreadable line
//! is an error when the log is opened: skipping it would assign the name to the next identity that asks for
//! it. Before the first line of a run, and once the file has grown too large (`line_file.rs`), it is
//! rewritten with one line for each name. The next sync of the log syncs new lines, too.
//!
//! Cost: a line for each name that is made or freed; nothing for events.

use super::line_file::LineFile;
use super::owned::{ChainNumber, OwnedKind};
use super::{EventLog, LogError, add_once, cursor};
use crate::name_owner::NameOwner;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the file.
pub(super) const OWNERS: &str = "owners";
const VERSION: &str = "{\"owners\":1}";
/// Names that have owners, of all kinds and owners together. A name of usual length takes some 100 bytes, so
/// that the file stays below 8 MiB. Chosen, not measured.
const MAX_OWNED_NAMES: usize = 65_536;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnerLine {
    kind: OwnedKind,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<NameOwner>,
}

#[derive(Debug)]
pub(super) struct NameOwners {
    path: PathBuf,
    /// `None`: no line was written since the file was read. A process that only reads a log does not change
    /// it.
    file: Option<LineFile>,
    known: BTreeMap<(OwnedKind, String), NameOwner>,
    /// The number of names of each kind and owner; a count of 0 has no entry.
    counts: HashMap<(OwnedKind, NameOwner), usize>,
    /// Bytes of the lines of all names.
    bytes: u64,
}

impl NameOwners {
    pub(super) fn open(log: &Path) -> Result<Self, LogError> {
        let path = log.join(OWNERS);
        let text = LineFile::content(&path)?;
        let damaged = |(line, what): (usize, String)| LogError::Owners { path: path.clone(), line, what };
        let known = read(&text).map_err(damaged)?;
        let (mut counts, mut bytes) = (HashMap::new(), 0);
        for ((kind, name), owner) in &known {
            *counts.entry((*kind, owner.clone())).or_default() += 1;
            bytes += line_bytes(*kind, name, owner);
        }
        Ok(Self { path, file: None, known, counts, bytes })
    }

    /// Rewrites the file with one line for each name.
    fn rewrite(&mut self) -> Result<(), LogError> {
        let mut text = format!("{VERSION}\n").into_bytes();
        for ((kind, name), owner) in &self.known {
            text.extend(line(*kind, name, Some(owner)));
        }
        self.file = Some(LineFile::replace(&self.path, &text)?);
        Ok(())
    }

    /// Returns the chains of all owners.
    pub(super) fn chains(&self) -> HashMap<NameOwner, ChainNumber> {
        let chains = self.known.iter().filter(|((kind, _), _)| *kind == OwnedKind::Chain);
        chains
            .filter_map(|((_, name), owner)| Some((owner.clone(), ChainNumber(name.parse().ok()?))))
            .collect()
    }

    fn write(&mut self, kind: OwnedKind, name: &str, owner: Option<&NameOwner>) -> Result<(), LogError> {
        if self.file.as_ref().is_none_or(|file| file.is_overgrown(self.bytes)) {
            self.rewrite()?;
        }
        self.file.as_mut().map_or(Ok(()), |file| file.append(&line(kind, name, owner)))
    }

    fn forget(&mut self, kind: OwnedKind, name: &str) {
        let Some(owner) = self.known.remove(&(kind, name.to_owned())) else { return };
        self.bytes -= line_bytes(kind, name, &owner);
        let of = (kind, owner);
        if let Some(count) = self.counts.get_mut(&of) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&of);
            }
        }
    }
}

fn line(kind: OwnedKind, name: &str, owner: Option<&NameOwner>) -> Vec<u8> {
    let line = OwnerLine { kind, name: name.to_owned(), owner: owner.cloned() };
    let mut line = serde_json::to_vec(&line).expect("has a text because it is two names");
    line.push(b'\n');
    line
}

fn line_bytes(kind: OwnedKind, name: &str, owner: &NameOwner) -> u64 {
    line(kind, name, Some(owner)).len() as u64
}

/// Parses a file of owners; the error has the number of the line.
fn read(text: &[u8]) -> Result<BTreeMap<(OwnedKind, String), NameOwner>, (usize, String)> {
    let mut known = BTreeMap::new();
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let last = lines.len();
    for (number, line) in (1..).zip(lines) {
        let is_torn = number == last;
        match number {
            // an empty file, or a file whose first line was cut off, has no names
            1 if line == VERSION.as_bytes() || is_torn => continue,
            1 => {
                let what = format!("does not begin with {VERSION}; a newer broker may have written it");
                return Err((1, what));
            }
            // earlier brokers left an empty line after a write that failed
            _ if line.is_empty() => continue,
            _ => {}
        }
        let parsed: Result<OwnerLine, _> = serde_json::from_slice(line);
        match parsed {
            Ok(OwnerLine { kind, name, owner: Some(owner) }) => drop(known.insert((kind, name), owner)),
            Ok(OwnerLine { kind, name, owner: None }) => drop(known.remove(&(kind, name))),
            Err(_) if is_torn => {}
            Err(error) => return Err((number, error.to_string())),
        }
        if known.len() > MAX_OWNED_NAMES {
            return Err((number, format!("more than {MAX_OWNED_NAMES} names")));
        }
    }
    Ok(known)
}

impl EventLog {
    /// Returns the owner of a name.
    pub fn owner_of(&self, kind: OwnedKind, name: &str) -> Option<&NameOwner> {
        self.owners.known.get(&(kind, name.to_owned()))
    }

    /// Returns the number of names of a kind that an owner has.
    pub fn owned_by(&self, kind: OwnedKind, owner: &NameOwner) -> usize {
        self.owners.counts.get(&(kind, owner.clone())).copied().unwrap_or(0)
    }

    /// Gives a name to an owner, in place of a former one.
    ///
    /// # Errors
    /// The disk's error, or the number of names is at its limit; the former owner stays.
    pub fn assign_name(&mut self, kind: OwnedKind, name: &str, owner: &NameOwner) -> Result<(), LogError> {
        if self.owner_of(kind, name) == Some(owner) {
            return Ok(());
        }
        if self.owners.known.len() >= MAX_OWNED_NAMES {
            return Err(LogError::TooManyNames { most: MAX_OWNED_NAMES });
        }
        self.write_owner(kind, name, Some(owner))?;
        let owners = &mut self.owners;
        owners.forget(kind, name);
        owners.bytes += line_bytes(kind, name, owner);
        owners.known.insert((kind, name.to_owned()), owner.clone());
        *owners.counts.entry((kind, owner.clone())).or_default() += 1;
        Ok(())
    }

    /// Removes the owner of a name.
    ///
    /// # Errors
    /// The disk's error; the name keeps its owner.
    pub fn free_name(&mut self, kind: OwnedKind, name: &str) -> Result<(), LogError> {
        if self.owner_of(kind, name).is_none() {
            return Ok(());
        }
        self.write_owner(kind, name, None)?;
        self.owners.forget(kind, name);
        Ok(())
    }

    /// Writes a line about a name, for the next sync.
    fn write_owner(
        &mut self,
        kind: OwnedKind,
        name: &str,
        owner: Option<&NameOwner>,
    ) -> Result<(), LogError> {
        let former = self.owners.file.as_ref().map(|file| Arc::clone(file.file()));
        let written = self.owners.write(kind, name, owner);
        let file = self.owners.file.as_ref().map(|file| Arc::clone(file.file()));
        // a file that was rewritten is gone, and the rename has to be synced
        if let Some(former) =
            former.filter(|former| file.as_ref().is_none_or(|file| !Arc::ptr_eq(file, former)))
        {
            self.unsynced.retain(|file| !Arc::ptr_eq(file, &former));
        }
        if let Some(file) = file {
            add_once(&mut self.unsynced, &file);
            add_once(&mut self.unsynced, &self.directory);
        }
        written
    }

    /// Returns whether a consumer of this name has a saved position.
    pub fn has_consumer(&self, name: &str) -> bool {
        cursor::check_consumer_key(name).is_ok() && self.path.join(cursor::CONSUMERS).join(name).is_file()
    }

    /// Forgets a consumer: its position and its owner.
    ///
    /// # Errors
    /// The disk's error.
    pub fn forget_consumer(&mut self, name: &str) -> Result<(), LogError> {
        let path = self.path.join(cursor::CONSUMERS).join(name);
        cursor::check_consumer_key(name).map_err(|said| LogError::Directory {
            path: path.clone(),
            source: io::Error::new(io::ErrorKind::InvalidInput, said),
        })?;
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(LogError::Write { path, source });
            }
            _ => {}
        }
        self.free_name(OwnedKind::Consumer, name)
    }

    /// Returns whether the log keeps an event of this writer.
    pub fn has_writer(&self, name: &str) -> bool {
        self.writers.values().any(|writers| writers.contains_key(name))
    }

    /// Frees the names of writers without events in the log, except the ones in use. Cost: a scan of all
    /// names.
    pub fn free_writers(&mut self, owner: &NameOwner, in_use: impl Fn(&str) -> bool) {
        let kept: std::collections::HashSet<&str> =
            self.writers.values().flat_map(|writers| writers.keys().map(String::as_str)).collect();
        let is_over = |((kind, name), of): &(&(OwnedKind, String), &NameOwner)| {
            *kind == OwnedKind::Writer && *of == owner && !kept.contains(name.as_str()) && !in_use(name)
        };
        let over: Vec<String> =
            self.owners.known.iter().filter(is_over).map(|((_, name), _)| name.clone()).collect();
        for name in over {
            // on a full disk the name keeps its owner
            let _ = self.free_name(OwnedKind::Writer, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogBounds;
    use proptest::prelude::*;

    fn owner(number: u32) -> NameOwner {
        NameOwner::User(number)
    }

    fn open(path: &Path) -> Result<EventLog, LogError> {
        EventLog::open(path, LogBounds::default())
    }

    #[test]
    fn owners_are_known_after_a_restart_and_a_freed_name_is_free() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut log = open(directory.path()).expect("it is empty");
        log.assign_name(OwnedKind::Consumer, "billing", &owner(1)).expect("room on the disk");
        log.assign_name(OwnedKind::Writer, "billing", &owner(2)).expect("kinds have names of their own");
        log.assign_name(OwnedKind::Writer, "shop", &owner(1)).expect("room on the disk");
        log.free_name(OwnedKind::Writer, "shop").expect("room on the disk");
        drop(log);
        let log = open(directory.path()).expect("it is sound");
        assert_eq!(log.owner_of(OwnedKind::Consumer, "billing"), Some(&owner(1)));
        assert_eq!(log.owner_of(OwnedKind::Writer, "billing"), Some(&owner(2)));
        assert_eq!(log.owner_of(OwnedKind::Writer, "shop"), None);
        assert_eq!(log.owned_by(OwnedKind::Writer, &owner(1)), 0);
        assert_eq!(log.owned_by(OwnedKind::Consumer, &owner(1)), 1);
    }

    #[test]
    fn names_that_are_made_and_freed_in_a_loop_leave_a_small_file_with_the_names_that_are_left() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut log = open(directory.path()).expect("it is empty");
        log.assign_name(OwnedKind::Consumer, "billing", &owner(1)).expect("room on the disk");
        let (path, mut most) = (directory.path().join(OWNERS), 0);
        for number in 0..2000 {
            let name = format!("{number}/{}", "x".repeat(1000));
            log.assign_name(OwnedKind::Writer, &name, &owner(2)).expect("room on the disk");
            log.free_name(OwnedKind::Writer, &name).expect("room on the disk");
            most = most.max(fs::metadata(&path).expect("it is there").len());
        }
        assert!(most <= (1 << 20) + 4096, "{most} bytes for one name");
        assert!(log.unsynced.len() <= 2, "a rewritten file is synced once");
        drop(log);
        let log = open(directory.path()).expect("it is sound");
        assert_eq!(log.owners.known.len(), 1);
        assert_eq!(log.owner_of(OwnedKind::Consumer, "billing"), Some(&owner(1)));
    }

    #[test]
    fn wherever_a_crash_cuts_the_file_off_the_whole_lines_count() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut log = open(directory.path()).expect("it is empty");
        for number in 0..4 {
            log.assign_name(OwnedKind::Consumer, &format!("c{number}"), &owner(number)).expect("room");
        }
        drop(log);
        let path = directory.path().join(OWNERS);
        let whole = fs::read(&path).expect("it was written");
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).expect("room on the disk");
            let ends = whole[..length].iter().filter(|byte| **byte == b'\n').count().saturating_sub(1);
            let log = open(directory.path()).expect("a crash is no damage");
            let known =
                (0..4).filter(|number| log.owner_of(OwnedKind::Consumer, &format!("c{number}")).is_some());
            // without its end, a line may be whole
            assert!((ends..=ends + 1).contains(&known.count()), "{length}");
        }
    }

    #[test]
    fn a_damaged_line_is_an_error_with_its_number_and_nobody_gets_its_name() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        drop(open(directory.path()).expect("it is empty"));
        let path = directory.path().join(OWNERS);
        let good = "{\"kind\":\"consumer\",\"name\":\"a\",\"owner\":\"unix:1\"}\n";
        for (text, says) in [
            (format!("{VERSION}\n{good}xx\n{good}"), ":3: "),
            (
                format!("{VERSION}\n{{\"kind\":\"consumer\",\"name\":\"a\",\"owner\":\"root\"}}\n"),
                "`root` is no owner",
            ),
            ("{\"owners\":2}\n".to_owned(), "a newer broker may have written it"),
            (format!("{good}{good}"), ":1: does not begin with"),
        ] {
            fs::write(&path, &text).expect("room on the disk");
            let error = open(directory.path()).expect_err(&text).to_string();
            assert!(error.contains(says) && error.contains("owners"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("it stays"), text);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200), whole in any::<bool>()) {
            let mut bytes = if whole { format!("{VERSION}\n").into_bytes() } else { Vec::new() };
            bytes.extend(text);
            let _ = read(&bytes);
        }
    }
}
