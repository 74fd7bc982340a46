//! Parses a broker's policy and permissions from arguments.

use crate::exit::Failure;
use unisono_fairqueue::Policy;
use unisono_linux::read::HAND_WRITTEN;

/// Reads a policy from a file. Fails if the broker cannot enforce all of it.
pub(super) fn policy(path: &std::path::Path) -> anyhow::Result<Policy> {
    let place = path.display();
    let text = unisono_linux::read::text(path, HAND_WRITTEN)
        .map_err(|error| Failure::Usage(format!("cannot read the policy {place}: {error}")))?;
    let policy = Policy::parse(&text).map_err(|error| Failure::Usage(format!("{place}:{error}")))?;
    keeps(&policy)
        .map_err(|what| Failure::Usage(format!("{place}: {what}, or use `unisono queue apply`")))?;
    Ok(policy)
}

/// Checks that the broker can enforce all of a policy. The error names the unsupported part and the remedy.
fn keeps(policy: &Policy) -> Result<(), String> {
    let ceilings = policy.hierarchy.classes().zip(&policy.ceilings);
    let mut ceilings = ceilings.filter_map(|((_, class), ceiling)| Some((&class.name, ceiling.as_ref()?)));
    if let Some((class, ceiling)) = ceilings.next() {
        return Err(format!(
            "the class {class} has a ceiling of {ceiling}, which the broker cannot keep; remove it"
        ));
    }
    if let Some(part) = policy.packet_part() {
        return Err(format!("{part}, which is for packets; a broker has messages: remove it"));
    }
    Ok(())
}

/// Parses permission bits from octal digits.
pub(crate) fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "permissions are three octal digits, such as 600".to_owned())
}
