//! Reads the files of a broker's permissions and tokens.

use crate::exit::Failure;
use crate::user::user_id;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use unisono_broker::{Broker, Permissions, PermissionsError, Tokens};
use unisono_linux::read;

/// The broker with the permissions and the tokens of these files.
pub(super) fn guarded(
    mut broker: Broker,
    permissions: Option<&Path>,
    tokens: Option<&Path>,
) -> anyhow::Result<Broker> {
    if let Some(path) = permissions {
        let permissions = parsed(path, |text| {
            let permissions = Permissions::parse(text, &user_id)?;
            permissions.check_classes(|name| broker.has_class(name))?;
            Ok(permissions)
        });
        broker = broker.with_permissions(permissions?);
    }
    if let Some(path) = tokens {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let clock = i64::try_from(clock).unwrap_or(i64::MAX);
        broker = broker.with_tokens(parsed(path, |text| Tokens::parse(text, unisono_broker::now(), clock))?);
    }
    Ok(broker)
}

fn parsed<T>(path: &Path, parse: impl Fn(&str) -> Result<T, PermissionsError>) -> anyhow::Result<T> {
    let place = path.display();
    let text = read::text(path, read::HAND_WRITTEN)
        .map_err(|error| Failure::Usage(format!("cannot read {place}: {error}")))?;
    Ok(parse(&text).map_err(|error| Failure::Usage(format!("{place}:{error}")))?)
}
