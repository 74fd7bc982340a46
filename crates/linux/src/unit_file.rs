//! systemd unit files of our own: their place, and words of command lines in them (quotes, escapes,
//! specifiers, variables).
//!
//! This module makes only text and files; the program calls systemd. Reference: systemd.unit(5),
//! systemd.service(5) on command lines, systemd.syntax(7).

use crate::next_step::next_step;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The directory of an administrator's units.
const DIRECTORY: &str = "etc/systemd/system";

/// Why a unit is not installed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnitFileError {
    /// A file of this name belongs to another program.
    #[error("{} was not written by `{written_by}`; move it away first", path.display())]
    Theirs { path: PathBuf, written_by: &'static str },
    #[error("{owner} no unit ({} does not exist), so nothing was changed; install one: {install}", path.display())]
    NotInstalled { owner: String, path: PathBuf, install: String },
    #[error("cannot {what} {}: {source}; {}", path.display(), next_step(source))]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

/// A unit that a command of ours writes and removes below a root directory.
#[derive(Clone, Debug)]
pub struct UnitFile {
    pub name: String,
    /// The unit that starts this one.
    pub wanted_by: String,
    /// The first line of the unit. Other files are neither replaced nor removed.
    pub mark: &'static str,
    /// The command that writes such units.
    pub written_by: &'static str,
    /// Begins the message that the unit is missing: "there is", or "eth0 has".
    pub owner: String,
    /// The command that writes this unit.
    pub install: String,
}

impl UnitFile {
    /// Writes the unit and enables it. Returns its path. On an error an older unit is still in place.
    pub fn write(&self, root: &Path, text: &str) -> Result<PathBuf, UnitFileError> {
        let (path, link) = self.places(root);
        match self.installed(root) {
            Err(UnitFileError::NotInstalled { .. }) => {}
            other => drop(other?),
        }
        for directory in [&path, &link].into_iter().filter_map(|file| file.parent()) {
            fs::create_dir_all(directory).map_err(failed("make", directory))?;
        }
        // atomically: the complete file or none
        let beside = path.with_extension("service.new");
        fs::write(&beside, text).map_err(failed("write", &beside))?;
        fs::rename(&beside, &path).map_err(failed("write", &path))?;
        match std::os::unix::fs::symlink(Path::new("/").join(DIRECTORY).join(&self.name), &link) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("make", &link)(error)),
            _ => Ok(path),
        }
    }

    /// Removes the unit. Returns its former path.
    pub fn remove(&self, root: &Path) -> Result<PathBuf, UnitFileError> {
        let path = self.installed(root)?;
        let (_, link) = self.places(root);
        for file in [&link, &path] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(failed("remove", file)(error));
                }
                _ => {}
            }
        }
        // the directory may hold the links of other units, too
        let _ = link.parent().map(fs::remove_dir);
        Ok(path)
    }

    /// Returns the unit's path. Fails unless the unit exists and begins with its mark.
    pub fn installed(&self, root: &Path) -> Result<PathBuf, UnitFileError> {
        let (path, _) = self.places(root);
        match fs::read_to_string(&path) {
            Ok(text) if text.starts_with(self.mark) => Ok(path),
            Ok(_) => Err(UnitFileError::Theirs { path, written_by: self.written_by }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (owner, install) = (self.owner.clone(), self.install.clone());
                Err(UnitFileError::NotInstalled { owner, path, install })
            }
            Err(error) => Err(failed("read", &path)(error)),
        }
    }

    /// Returns the paths of the unit, and of the link that enables it.
    fn places(&self, root: &Path) -> (PathBuf, PathBuf) {
        let directory = root.join(DIRECTORY);
        let link = directory.join(format!("{}.wants", self.wanted_by)).join(&self.name);
        (directory.join(&self.name), link)
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> UnitFileError {
    let path = path.to_owned();
    move |source| UnitFileError::File { what, path, source }
}

/// Returns an argument of a command line in a unit: quoted, with specifiers (`%`) and variables (`$`)
/// escaped.
#[must_use]
pub fn argument(text: &str) -> String {
    program(text).replace('$', "$$")
}

/// Returns the first word of a command line, where systemd replaces no variables.
#[must_use]
pub fn program(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '%' => quoted.push_str("%%"),
            letter if letter.is_control() => {
                let mut bytes = [0; 4];
                let bytes = letter.encode_utf8(&mut bytes).bytes();
                quoted.extend(bytes.map(|byte| format!("\\x{byte:02x}")));
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemd_would_replace_is_doubled_or_escaped() {
        assert_eq!(argument("/a b/50%n $HOME\n\"q\" \\x"), r#""/a b/50%%n $$HOME\x0a\"q\" \\x""#);
        assert_eq!(program("/a$b"), r#""/a$b""#, "no variables in the first word");
    }
}
