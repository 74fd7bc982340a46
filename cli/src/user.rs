//! Finds users of this host by their names in `/etc/passwd`.

use unisono_linux::read;

/// Returns the UID of a user of this host.
pub(crate) fn user_id(name: &str) -> Option<u32> {
    user_and_group(name).map(|(user, _)| user)
}

/// Returns the UID of a user of this host and the GID of the user's group.
pub(crate) fn user_and_group(name: &str) -> Option<(u32, u32)> {
    let users = read::text("/etc/passwd".as_ref(), read::HAND_WRITTEN).ok()?;
    users.lines().find_map(|line| {
        let parts: Vec<&str> = line.split(':').collect();
        let [found, _, user, group, ..] = parts[..] else { return None };
        (found == name).then(|| Some((user.parse().ok()?, group.parse().ok()?)))?
    })
}
