//! `unisono events serve --take-over`: takes the place of a broker that serves.

use super::in_words;
use super::log::LogFlags;
use super::user::NextUser;
use crate::exit::Failure;
use anyhow::{Context as _, anyhow};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::{Duration, Instant};
use unisono_broker::{Server, SocketOrigin};
use unisono_events_client::{BrokerAddress, Client, Error, Predecessor, default_socket};

const ROOT: u32 = 0;
/// The time for which this process asks again while another one takes over: as long as a large log takes to
/// be read. Chosen, not measured.
const RACE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A broker that serves after another one.
pub(super) struct Successor<'a> {
    predecessor: Predecessor,
    log: &'a LogFlags,
}

impl<'a> Successor<'a> {
    /// Asks the broker at the first path of these addresses for its sockets; it serves on. Returns none if no
    /// broker listens there.
    pub(super) fn ask(addresses: &[BrokerAddress], log: &'a LogFlags) -> anyhow::Result<Option<Self>> {
        let path = addresses.iter().find_map(|address| match address {
            BrokerAddress::Shared(path) => Some(path.clone()),
            _ => None,
        });
        let path = match (path, addresses) {
            (Some(path), _) => path,
            (None, []) => default_socket(),
            (None, _) => {
                let what = "--take-over asks the other broker at the path of its socket; name that path: --listen PATH";
                return Err(Failure::Usage(what.to_owned()).into());
            }
        };
        let until = Instant::now() + RACE_TIMEOUT;
        let predecessor = loop {
            match Client::connect_shared(&path).and_then(Client::take_over) {
                Ok(predecessor) => break predecessor,
                Err(Error::Nobody { .. }) => {
                    eprintln!("note: no broker serves at {}, so none is taken over", path.display());
                    return Ok(None);
                }
                // another process has just taken over, and serves at the same socket
                Err(Error::Broken(_)) if Instant::now() < until => thread::sleep(RETRY_INTERVAL),
                Err(error) => {
                    let what = || format!("cannot take over from the broker at {}", path.display());
                    return Err(in_words(error)).with_context(what);
                }
            }
        };
        if let Some(theirs) = predecessor.log()
            && log.path().and_then(|ours| fs::canonicalize(ours).ok()).as_deref() != Some(theirs)
        {
            let (path, theirs) = (path.display(), theirs.display());
            let what = format!("the broker at {path} keeps its log in {theirs}; say --log {theirs}");
            return Err(Failure::Usage(what).into());
        }
        Ok(Some(Self { predecessor, log }))
    }

    /// Passes the other broker's sockets to the server.
    pub(super) fn inherit(mut self, server: &mut Server) -> Self {
        server.inherit(self.predecessor.sockets(), SocketOrigin::Predecessor);
        self
    }

    /// The user to become instead of an unused one: the owner of the log. The other broker is that user, and
    /// can serve on only as long as the log is its own.
    pub(super) fn user(&self) -> Option<NextUser> {
        let log = fs::metadata(self.predecessor.log()?).ok()?;
        (log.uid() != ROOT).then(|| NextUser::Named { user: log.uid(), group: log.gid() })
    }

    /// Makes the other broker stop serving, and opens the log. The other broker serves on if this process
    /// fails before the returned value's end.
    pub(super) fn release(mut self, server: &mut Server) -> anyhow::Result<Predecessor> {
        self.predecessor.release().map_err(|error| match error {
            Error::Broken(_) => anyhow!("another process has taken over meanwhile; start again"),
            other => in_words(other),
        })?;
        self.log.add_to(server.broker_mut())?;
        server.own_inherited_names();
        Ok(self.predecessor)
    }
}
