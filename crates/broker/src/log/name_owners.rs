//! The owners of names that outlive the broker: the file `owners` of a log.
//!
//! ```text
//!   {"owners":1}                                                     the version
//!   {"kind":"consumer","name":"billing","owner":"token:billing"}     the name belongs to this owner
//!   {"kind":"consumer","name":"billing"}                             the name is free again
//! ```
//! The last line of a name counts. A last line that a crash has cut off is ignored. Any other unreadable line
//! is an error when the log is opened: to skip it would give the name to the next identity that asks. Before
//! the first line of a run, the file is rewritten with one line for each name and replaces the former one by
//! rename(2). The next sync of the log syncs new lines, too.
//!
//! Cost: a line for each name that is made or freed; nothing for events.

use super::owned::{ChainNumber, OwnedKind};
use super::{EventLog, LogError, cursor};
use crate::name_owner::NameOwner;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
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
    owner: Option<String>,
}

#[derive(Debug)]
pub(super) struct NameOwners {
    path: PathBuf,
    /// None: no line was written since the file was read. A process that only reads a log does not change it.
    file: Option<Arc<File>>,
    known: BTreeMap<(OwnedKind, String), NameOwner>,
    /// The number of names of each kind and owner; a count of 0 has no entry.
    counts: HashMap<(OwnedKind, NameOwner), usize>,
    /// Whether the last line is incomplete.
    torn: bool,
}

impl NameOwners {
    pub(super) fn open(log: &Path) -> Result<Self, LogError> {
        let path = log.join(OWNERS);
        let text = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(LogError::Read { path, source }),
        };
        let damaged = |(line, what): (usize, String)| LogError::Owners { path: path.clone(), line, what };
        let known = read(&text).map_err(damaged)?;
        let mut counts = HashMap::new();
        for ((kind, _), owner) in &known {
            *counts.entry((*kind, owner.clone())).or_default() += 1;
        }
        Ok(Self { path, file: None, known, counts, torn: false })
    }

    /// Returns the file for new lines; the first call rewrites it, so that it has one line for each name.
    fn begin(&mut self) -> Result<Arc<File>, LogError> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let anew = self.path.with_extension("new");
        let written = || {
            let mut options = OpenOptions::new();
            let mut file = options.append(true).create_new(true).mode(0o600).open(&anew)?;
            let mut text = format!("{VERSION}\n").into_bytes();
            for ((kind, name), owner) in &self.known {
                text.extend(line(*kind, name, Some(owner)));
            }
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&anew, &self.path)?;
            Ok(Arc::new(file))
        };
        // left by a broker that was killed during the rewrite
        let _ = fs::remove_file(&anew);
        let file = written().map_err(|source| LogError::Write { path: self.path.clone(), source })?;
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// The chains of all owners.
    pub(super) fn chains(&self) -> HashMap<NameOwner, ChainNumber> {
        let chains = self.known.iter().filter(|((kind, _), _)| *kind == OwnedKind::Chain);
        chains
            .filter_map(|((_, name), owner)| Some((owner.clone(), ChainNumber(name.parse().ok()?))))
            .collect()
    }

    fn write(&mut self, kind: OwnedKind, name: &str, owner: Option<&NameOwner>) -> Result<(), LogError> {
        let file = self.begin()?;
        let mut line = line(kind, name, owner);
        if self.torn {
            line.insert(0, b'\n');
        }
        self.torn = true;
        let written = (&*file).write_all(&line);
        written.map_err(|source| LogError::Write { path: self.path.clone(), source })?;
        self.torn = false;
        Ok(())
    }

    fn forget(&mut self, kind: OwnedKind, name: &str) {
        let Some(owner) = self.known.remove(&(kind, name.to_owned())) else { return };
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
    let line = OwnerLine { kind, name: name.to_owned(), owner: owner.map(ToString::to_string) };
    let mut line = serde_json::to_vec(&line).expect("has a text because it is two names");
    line.push(b'\n');
    line
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
            // an incomplete line is followed by an empty one, or by the next line
            _ if line.is_empty() => continue,
            _ => {}
        }
        let parsed: Result<OwnerLine, _> = serde_json::from_slice(line);
        let owner = parsed.map_err(|error| error.to_string()).and_then(|line| {
            let owner = line.owner.as_deref().map(str::parse).transpose()?;
            Ok(((line.kind, line.name), owner))
        });
        match owner {
            Ok((name, Some(owner))) => drop(known.insert(name, owner)),
            Ok((name, None)) => drop(known.remove(&name)),
            Err(_) if is_torn => {}
            Err(what) => return Err((number, what)),
        }
        if known.len() > MAX_OWNED_NAMES {
            return Err((number, format!("more than {MAX_OWNED_NAMES} names")));
        }
    }
    Ok(known)
}

impl EventLog {
    /// The owner of a name.
    #[must_use]
    pub fn owner_of(&self, kind: OwnedKind, name: &str) -> Option<&NameOwner> {
        self.owners.known.get(&(kind, name.to_owned()))
    }

    /// The number of names of a kind that an owner has.
    #[must_use]
    pub fn owned_by(&self, kind: OwnedKind, owner: &NameOwner) -> usize {
        self.owners.counts.get(&(kind, owner.clone())).copied().unwrap_or(0)
    }

    /// Gives a name to an owner, in place of a former one.
    ///
    /// # Errors
    /// The disk's error, or the number of names is at its limit; the former owner stays.
    pub fn give_name(&mut self, kind: OwnedKind, name: &str, owner: &NameOwner) -> Result<(), LogError> {
        if self.owner_of(kind, name) == Some(owner) {
            return Ok(());
        }
        let owners = &mut self.owners;
        if owners.known.len() >= MAX_OWNED_NAMES {
            return Err(LogError::TooManyNames { most: MAX_OWNED_NAMES });
        }
        owners.write(kind, name, Some(owner))?;
        owners.forget(kind, name);
        owners.known.insert((kind, name.to_owned()), owner.clone());
        *owners.counts.entry((kind, owner.clone())).or_default() += 1;
        self.sync_owners();
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
        self.owners.write(kind, name, None)?;
        self.owners.forget(kind, name);
        self.sync_owners();
        Ok(())
    }

    fn sync_owners(&mut self) {
        let Some(owners) = &self.owners.file else { return };
        if !self.unsynced.iter().any(|file| Arc::ptr_eq(file, owners)) {
            self.unsynced.push(Arc::clone(owners));
        }
    }

    /// Whether a consumer of this name has a saved position.
    #[must_use]
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

    /// Whether the log keeps an event of this writer.
    #[must_use]
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
        log.give_name(OwnedKind::Consumer, "billing", &owner(1)).expect("room on the disk");
        log.give_name(OwnedKind::Writer, "billing", &owner(2)).expect("kinds have names of their own");
        log.give_name(OwnedKind::Writer, "shop", &owner(1)).expect("room on the disk");
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
    fn wherever_a_crash_cuts_the_file_off_the_whole_lines_count() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut log = open(directory.path()).expect("it is empty");
        for number in 0..4 {
            log.give_name(OwnedKind::Consumer, &format!("c{number}"), &owner(number)).expect("room");
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
