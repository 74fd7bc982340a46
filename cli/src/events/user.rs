//! The user that a server becomes if it was started by root.

use super::sweep::SocketSweeper;
use crate::exit::Failure;
use crate::user::user_and_group;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use unisono_broker::Server;
use unisono_linux::{privilege, process};

/// The user whose rights the server has while it serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextUser {
    /// The user that has started the server.
    Same,
    /// A user that owns no files and has no processes.
    Unused,
    Named {
        user: u32,
        group: u32,
    },
}

impl NextUser {
    /// Returns the user that `--user` names, or the default.
    pub(crate) fn chosen(text: Option<&str>) -> anyhow::Result<Self> {
        let parsed = match text {
            None => return Ok(if process::is_root() { Self::Unused } else { Self::Same }),
            Some(text) => numbers(text).ok_or_else(|| {
                let what =
                    format!("this host has no user `{text}`; write a name of /etc/passwd, UID or UID:GID");
                Failure::Usage(what)
            })?,
        };
        if parsed.0 == unisono_linux::local_socket::own_user() {
            return Ok(Self::Same);
        }
        if !process::is_root() {
            let what = "only root can become another user; leave --user out, or start it as that user";
            return Err(Failure::Usage(what.to_owned()).into());
        }
        Ok(Self::Named { user: parsed.0, group: parsed.1 })
    }

    /// Returns the UID and GID to change to; `None` if they stay as they are.
    pub(crate) fn numbers(self) -> anyhow::Result<Option<(u32, u32)>> {
        match self {
            Self::Same => Ok(None),
            Self::Named { user, group } => Ok(Some((user, group))),
            Self::Unused => {
                let user = privilege::unused_user()
                    .context("cannot find a user number that no process has; choose a user: --user NAME")?;
                Ok(Some((user, user)))
            }
        }
    }
}

/// Gives up root's privileges. Returns the process that removes the sockets at the end. No other thread may
/// be running.
pub(crate) fn leave_root(
    (user, group): (u32, u32),
    sockets: &[PathBuf],
) -> anyhow::Result<Option<SocketSweeper>> {
    let sweeper = match sockets {
        [] => None,
        _ => Some(SocketSweeper::start(sockets).context("cannot start what removes the sockets")?),
    };
    privilege::drop_to_user(user, group).with_context(|| {
        format!("cannot become user {user} instead of root; choose another one: --user NAME, or --user root")
    })?;
    Ok(sweeper)
}

fn numbers(text: &str) -> Option<(u32, u32)> {
    if let Some((user, group)) = text.split_once(':') {
        return Some((user.parse().ok()?, group.parse().ok()?));
    }
    user_and_group(text).or_else(|| text.parse().ok().map(|user| (user, user)))
}

/// The steps of a listening broker that becomes another user.
pub(super) struct BecomeUser<'a> {
    pub(super) user: NextUser,
    pub(super) log: Option<&'a Path>,
    /// The files that the broker reads again on request. If the new user cannot read one, a warning is
    /// printed.
    pub(super) files: Vec<&'a Path>,
}

impl BecomeUser<'_> {
    /// Gives the log and the sockets to the user and gives up all privileges. Returns the process that
    /// removes the sockets at the end. No other thread may be running.
    pub(super) fn go(
        &self,
        server: &Server,
        sockets: &[PathBuf],
        quiet: bool,
    ) -> anyhow::Result<Option<SocketSweeper>> {
        let Some((user, group)) = self.user.numbers()? else { return Ok(None) };
        if let Some(log) = self.log {
            unisono_broker::log::change_owner(log, user, group)?;
        }
        server
            .change_owner(user, group)
            .with_context(|| format!("cannot give the sockets to user {user}"))?;
        let sweeper = leave_root((user, group), sockets)?;
        if let Some(log) = self.log {
            std::fs::read_dir(log).with_context(|| {
                format!(
                    "user {user}, as which the broker serves, cannot enter {}; choose a directory that other \
                     users can enter, or say --user root",
                    log.display()
                )
            })?;
        }
        for file in &self.files {
            if let Err(error) = std::fs::File::open(file) {
                let place = file.display();
                eprintln!(
                    "warning: user {user}, as which the broker serves, cannot read {place} ({error}): every reload \
                     will be refused; give that user the right to read it, or choose another one: --user NAME"
                );
            }
        }
        if !quiet {
            eprintln!("serving as user {user}, without root's privileges; --user chooses another one");
        }
        Ok(sweeper)
    }
}
