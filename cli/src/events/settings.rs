//! The files with a broker's settings, which it reads at the start and again on request while it serves.

use super::policy::policy;
use crate::exit::Failure;
use crate::user::user_id;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use unisono_broker::{Broker, BrokerSettings, Limits, Permissions, PermissionsError, Tokens};
use unisono_fairqueue::{ClassSpec, Hierarchy, LinkPace};
use unisono_linux::read;

/// The files. `None`: the broker has no file of that kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsFiles {
    pub(crate) policy: Option<PathBuf>,
    pub(crate) permissions: Option<PathBuf>,
    pub(crate) tokens: Option<PathBuf>,
}

impl SettingsFiles {
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.policy, &self.permissions, &self.tokens].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Reads and checks all files.
    pub(super) fn read(&self) -> anyhow::Result<BrokerSettings> {
        let policy = self.policy.as_deref().map(policy).transpose()?;
        let policy = policy.map(|policy| (policy.hierarchy, policy.rate));
        let classes = match &policy {
            Some((hierarchy, _)) => hierarchy,
            None => &one_class()?,
        };
        let leaves = classes.classes().filter(|(class, _)| classes.is_leaf(*class));
        let leaves: Vec<&str> = leaves.map(|(_, class)| class.name.as_str()).collect();
        let permissions = self.permissions.as_deref().map(|path| {
            parsed(path, |text| {
                let permissions = Permissions::parse(text, &user_id)?;
                permissions.check_classes(&leaves)?;
                Ok(permissions)
            })
        });
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let clock = i64::try_from(clock).unwrap_or(i64::MAX);
        let tokens = self
            .tokens
            .as_deref()
            .map(|path| parsed(path, |text| Tokens::parse(text, unisono_events_client::now(), clock)));
        let (permissions, tokens) = (permissions.transpose()?, tokens.transpose()?);
        if let (Some(permissions), Some(path)) = (&permissions, &self.permissions) {
            for warning in permissions.without_token(tokens.as_ref()) {
                eprintln!("warning: {}:{warning}", path.display());
            }
        }
        Ok(BrokerSettings { permissions, tokens, policy })
    }

    /// Reads and checks all files while the broker serves. Fails for a pipe: the broker would wait for a
    /// writer, because the settings were consumed at the start.
    pub(super) fn read_again(&self) -> anyhow::Result<BrokerSettings> {
        for path in self.paths() {
            if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
                let what = format!("cannot read {} again: it is no regular file", path.display());
                return Err(Failure::Usage(what).into());
            }
        }
        self.read()
    }

    /// Creates a broker with these settings.
    pub(crate) fn broker(&self, limits: Limits) -> anyhow::Result<Broker> {
        let BrokerSettings { policy, permissions, tokens } = self.read()?;
        let mut broker = match policy {
            Some((hierarchy, rate)) => {
                Broker::new(hierarchy, limits).with_paths(LinkPace::new(rate, Limits::MAX_LATENESS))
            }
            None => Broker::new(one_class()?, limits),
        };
        if let Some(permissions) = permissions {
            broker = broker.with_permissions(permissions);
        }
        if let Some(tokens) = tokens {
            broker = broker.with_tokens(tokens);
        }
        Ok(broker)
    }
}

/// Returns the classes of a broker without a policy.
fn one_class() -> anyhow::Result<Hierarchy> {
    Ok(Hierarchy::new(ClassSpec::new("all"))?.with_default("rest")?)
}

fn parsed<T>(path: &Path, parse: impl Fn(&str) -> Result<T, PermissionsError>) -> anyhow::Result<T> {
    let place = path.display();
    let text = read::text(path, read::HAND_WRITTEN)
        .map_err(|error| Failure::Usage(format!("cannot read {place}: {error}")))?;
    Ok(parse(&text).map_err(|error| Failure::Usage(format!("{place}:{error}")))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_not_waited_for_while_the_broker_serves() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("permissions");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("coreutils");
        assert!(made.success());
        let files = SettingsFiles { permissions: Some(path), ..SettingsFiles::default() };
        let error = match files.read_again() {
            Ok(_) => panic!("nobody writes"),
            Err(error) => error.to_string(),
        };
        assert!(error.ends_with("again: it is no regular file"), "{error}");
    }
}
