//! Undoes the changes of a scheduler that was killed together with its guardian.
//!
//! The journals list the changes. Every run restores them first, and `unisono gang restore` does so on
//! request: programs that were left frozen stay frozen until a restore.

use crate::journal;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Killed schedulers whose changes were undone.
    pub restored: usize,
    /// Running schedulers, whose journals were left alone.
    pub alive: usize,
    /// Changes that could not be undone and journals that cannot be read, as texts.
    pub unrestored: Vec<String>,
}

/// Undoes the changes of this user's killed schedulers. If one change cannot be undone, the others are undone
/// all the same.
#[must_use]
pub fn restore() -> Leftover {
    let mut found = Leftover::default();
    let journals = match journal::all() {
        Ok(journals) => journals,
        Err(error) => {
            found.unrestored.push(error.to_string());
            return found;
        }
    };
    for path in journals {
        let entries = match journal::read(&path) {
            Ok(entries) => entries,
            // the journal is gone: a scheduler that ends removes its journal
            Err(_) if !path.exists() => continue,
            Err(error) => {
                found.unrestored.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        // the first entry of a journal names its scheduler; an empty journal is new, and its scheduler is
        // about to write that entry
        if entries.is_empty() || journal::is_alive(&entries) {
            found.alive += 1;
            continue;
        }
        match journal::restore(&path) {
            Ok(done) => {
                found.restored += 1;
                found.unrestored.extend(done.unrestored);
            }
            Err(error) => found.unrestored.push(format!("{}: {error}", path.display())),
        }
    }
    found
}
