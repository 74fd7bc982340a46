//! Puts back what a scheduler changed that was killed together with its guardian.
//!
//! The journals say what there is to put back. Every run does this first, and `unisono gang restore` does it
//! on request: programs that were left frozen stay frozen until somebody does.

use crate::journal;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Killed schedulers whose changes were undone.
    pub restored: usize,
    /// Schedulers that run, whose journals were left alone.
    pub alive: usize,
    /// What is still not as it was, and journals that cannot be read; in words.
    pub left: Vec<String>,
}

/// Undoes what killed schedulers of this user left. What cannot be undone does not keep the rest from it.
#[must_use]
pub fn restore() -> Leftover {
    let mut found = Leftover::default();
    let journals = match journal::all() {
        Ok(journals) => journals,
        Err(error) => {
            found.left.push(error.to_string());
            return found;
        }
    };
    for path in journals {
        let entries = match journal::read(&path) {
            Ok(entries) => entries,
            // a scheduler that ends removes its journal
            Err(_) if !path.exists() => continue,
            Err(error) => {
                found.left.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        // a journal begins with its scheduler; one without has just been made, and its scheduler is about to
        // write
        if entries.is_empty() || journal::is_alive(&entries) {
            found.alive += 1;
            continue;
        }
        match journal::restore(&path) {
            Ok(done) => {
                found.restored += 1;
                found.left.extend(done.left);
            }
            Err(error) => found.left.push(format!("{}: {error}", path.display())),
        }
    }
    found
}
