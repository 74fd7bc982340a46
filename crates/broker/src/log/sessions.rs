//! MQTT sessions that outlive the broker: a file for each, in the folder `sessions` of a log.
//!
//! ```text
//!   {"session":{"version":1,"client":"c","identity":"unix:7","peer":{"user":7},"next":80}}
//!   {"connected":{"expiry":3600}}   {"away":{"expiry":3600,"at":17..}}    how long the session lives
//!   {"subscribed":{"filter":"a/#","qos":1,"from":80,...}}   {"unsubscribed":{"filter":"a/#"}}
//!   {"waiting":{"queue":1,"positions":[71,74]}}   {"emptied":{"queue":1,"before":90}}   what waits
//!   {"sent":{"id":5,"position":81,...}}   {"received":{"id":5}}   {"done":{"id":5}}     to the client
//!   {"dropped":{"queue":1,"position":82}}
//!   {"arrived":{"id":9,"position":85}}   {"released":{"id":9}}                          from the client
//! ```
//! The messages themselves are in the log, once for all sessions. A session's queue therefore has the logged
//! events at position `next` or later that match its subscriptions, and the earlier events whose positions a
//! `waiting` line lists, except the events that were sent or dropped. A session has a queue for QoS 1 and
//! a queue for QoS 2; an event that waits in both counts as two.
//!
//! Lines are appended. The file is rewritten once it has twice the bytes that the last rewrite left, plus 256
//! KiB. A last line that a crash has cut off is ignored. Any other unreadable line means damage: the session
//! is not restored, its file stays, and no other session is affected.
//!
//! Cost: an `open`, a `write` and a `close` in each iteration of the server's loop in which the session has
//! changed, and a rewrite and a sync each time the file has doubled.

use super::line_file::LineFile;
use super::session_lines::SavedSession;
use super::{EventLog, LogError, add_once, own_file};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// The folder of the sessions' files, inside the log's folder.
pub(super) const SESSIONS: &str = "sessions";
/// The number of bytes by which a file may exceed twice its size after the last rewrite, so that the file of
/// a session with few subscriptions is rewritten once in some thousand messages. Chosen by this argument, not
/// measured.
const MAX_SLACK: u64 = 256 << 10;

/// Returns the name of a session's file: a digest of its key, which may have bytes that no file name has.
pub(crate) fn session_file(key: &str) -> String {
    Sha256::digest(key)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Debug, Default)]
struct SessionFile {
    bytes: u64,
    /// Bytes of the file after its last rewrite; after a restart, the bytes that a rewrite would leave.
    counting: u64,
    /// The open file, as long as it waits for a sync.
    file: Weak<File>,
    /// Whether the folder was added to a sync after the file was created in it.
    is_listed: bool,
}

/// The files of all sessions.
#[derive(Debug)]
pub(super) struct SessionFiles {
    path: PathBuf,
    directory: Arc<File>,
    files: HashMap<String, SessionFile>,
}

/// A session and the name of its file.
#[derive(Debug)]
pub struct FoundSession {
    pub file: String,
    pub session: SavedSession,
}

/// Whether a change has to be part of the log's next sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionSync {
    No,
    Next,
}

impl SessionFiles {
    fn open(&self, name: &str) -> Result<Arc<File>, LogError> {
        if let Some(file) = self.files.get(name).and_then(|file| file.file.upgrade()) {
            return Ok(file);
        }
        let path = self.path.join(name);
        let file = own_file::open(OpenOptions::new().append(true).create(true).mode(0o600), &path);
        file.map(Arc::new).map_err(|source| LogError::Write { path, source })
    }
}

impl EventLog {
    /// Reads all sessions; from now on the log keeps sessions. Returns the sessions, and the errors of
    /// damaged files.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn saved_sessions(&mut self) -> Result<Vec<Result<FoundSession, LogError>>, LogError> {
        let path = self.path.join(SESSIONS);
        let failed = |source| LogError::Directory { path: path.clone(), source };
        let directory = Arc::new(File::open(&path).map_err(failed)?);
        let (mut found, mut files) = (Vec::new(), HashMap::new());
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        names.sort_unstable();
        let is_digest = |name: &String| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        for name in names.into_iter().filter(is_digest) {
            let path = path.join(&name);
            let text = match LineFile::content(&path) {
                Ok(text) => text,
                Err(error) => {
                    found.push(Err(error));
                    continue;
                }
            };
            match SavedSession::read(&text) {
                Ok(Some((session, whole))) => {
                    // a line that a crash has cut off
                    if whole < text.len() {
                        shorten(&path, whole as u64)?;
                    }
                    let counting = session.lines().len() as u64;
                    let file = SessionFile { bytes: whole as u64, counting, ..SessionFile::default() };
                    files.insert(name.clone(), file);
                    self.pass(session.last());
                    found.push(Ok(FoundSession { file: name, session }));
                }
                // the broker was killed while it made the file, before it told the client of the session
                Ok(None) => drop(fs::remove_file(&path)),
                Err((line, what)) => found.push(Err(LogError::Session { path, line, what })),
            }
        }
        self.sessions = Some(SessionFiles { path, directory, files });
        Ok(found)
    }

    /// Returns whether the log keeps sessions.
    pub fn keeps_sessions(&self) -> bool {
        self.sessions.is_some()
    }

    /// Writes the whole file of a session.
    ///
    /// # Errors
    /// The disk's error; the former file stays.
    pub fn save_session(
        &mut self,
        name: &str,
        session: &SavedSession,
        sync: SessionSync,
    ) -> Result<(), LogError> {
        let Some(sessions) = &mut self.sessions else { return Ok(()) };
        let (lines, path) = (session.lines(), sessions.path.join(name));
        let counting = lines.len() as u64;
        if sessions.files.contains_key(name) {
            LineFile::replace(&path, &lines)?;
            let file = SessionFile { bytes: counting, counting, ..SessionFile::default() };
            sessions.files.insert(name.to_owned(), file);
            return self.append_to_session(name, &[], sync).map(drop);
        }
        // left by a session whose file was damaged
        let _ = fs::remove_file(&path);
        sessions.files.insert(name.to_owned(), SessionFile { counting, ..SessionFile::default() });
        let written = self.append_to_session(name, &lines, sync);
        if written.is_err()
            && let Some(sessions) = &mut self.sessions
        {
            sessions.files.remove(name);
            let _ = fs::remove_file(&path);
        }
        written.map(drop)
    }

    /// Appends lines to a session's file; returns its length before.
    ///
    /// # Errors
    /// The disk's error; the file is as before.
    pub fn append_to_session(
        &mut self,
        name: &str,
        lines: &[u8],
        sync: SessionSync,
    ) -> Result<u64, LogError> {
        let Some(sessions) = &mut self.sessions else { return Ok(0) };
        let file = sessions.open(name)?;
        let known = sessions.files.entry(name.to_owned()).or_default();
        let before = known.bytes;
        if let Err(source) = (&*file).write_all(lines) {
            let _ = file.set_len(before);
            return Err(LogError::Write { path: sessions.path.join(name), source });
        }
        known.bytes += lines.len() as u64;
        if sync == SessionSync::Next {
            known.file = Arc::downgrade(&file);
            add_once(&mut self.unsynced, &file);
            if !std::mem::replace(&mut known.is_listed, true) {
                add_once(&mut self.unsynced, &sessions.directory);
            }
        }
        Ok(before)
    }

    /// Removes the lines behind the first `bytes` bytes of a session's file.
    ///
    /// # Errors
    /// The disk's error; the lines stay.
    pub fn shorten_session(&mut self, name: &str, bytes: u64) -> Result<(), LogError> {
        let Some(sessions) = &mut self.sessions else { return Ok(()) };
        shorten(&sessions.path.join(name), bytes)?;
        if let Some(known) = sessions.files.get_mut(name) {
            known.bytes = bytes;
        }
        Ok(())
    }

    /// Returns whether a session's file has grown so much since its last rewrite that another one is due.
    pub fn is_session_overgrown(&self, name: &str) -> bool {
        let known = self.sessions.as_ref().and_then(|sessions| sessions.files.get(name));
        known.is_some_and(|known| known.bytes > 2 * known.counting + MAX_SLACK)
    }

    /// Removes a session's file.
    ///
    /// # Errors
    /// The disk's error; the session is there again after a restart.
    pub fn forget_session(&mut self, name: &str) -> Result<(), LogError> {
        let Some(sessions) = &mut self.sessions else { return Ok(()) };
        sessions.files.remove(name);
        let path = sessions.path.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(LogError::Write { path, source }),
            _ => Ok(()),
        }
    }
}

fn shorten(path: &Path, bytes: u64) -> Result<(), LogError> {
    let file = own_file::open(OpenOptions::new().write(true), path);
    let shortened = file.and_then(|file| file.set_len(bytes));
    shortened.map_err(|source| LogError::Write { path: path.to_owned(), source })
}
