//! All backends: finds the backend of a device's policy, chooses a backend for a user, and restores the
//! devices of killed commands.

pub mod switch;

use crate::error::Error;
use crate::interposed;
use crate::journal::{Journal, LinkSide};
use crate::kernel;
use crate::place::{BackendName, EnforcingPlace, KernelQueueName, PlaceKind};
use switch::Finished;

/// The first one that fits is the default.
pub static ALL: [&PlaceKind; 3] = [&kernel::HTB, &kernel::BPF, &interposed::KIND];

/// A device whose policy ended because its processes were killed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    pub side: LinkSide,
    /// Whether it is as it was before the policy.
    pub is_as_before: bool,
    pub notes: Vec<String>,
}

/// Waits for unfinished changes on devices of this thread's network namespace, and restores the devices of
/// killed processes. A device that could not be restored is in the result, with the reason.
pub fn settle() -> Result<Vec<Settled>, Error> {
    let Some(_lock) = Journal::lock_what_is_there()? else { return Ok(Vec::new()) };
    let mut settled = Vec::new();
    for (side, aside) in Journal::all_aside()? {
        let (device, mut notes) = (&side.device, Vec::new());
        match switch::finish(&side, &aside, &mut notes) {
            Ok(Finished::IsBack) => notes.push(format!(
                "a command that was to change the place in force on {device} has ended half way; the policy before is in force"
            )),
            Ok(Finished::HasGone) => notes.push(format!(
                "took away what the place before had left on {device}; another place is in force"
            )),
            Err(error) => notes.push(format!("{device}: {error}")),
        }
        settled.push(Settled { side, is_as_before: false, notes });
    }
    for (side, journal) in Journal::all()? {
        let read = || journal.read::<serde_json::Value>();
        let Some(record) = read()? else { continue };
        let mut place = named(&record.backend, &side)?;
        let mended = place.mend(&journal);
        let mut notes = place.notes().to_vec();
        if let Err(error) = &mended {
            notes.push(format!("{side}: {error}"));
        }
        let is_as_before = mended.is_ok() && read()?.is_none();
        if is_as_before || !notes.is_empty() {
            settled.push(Settled { side, is_as_before, notes });
        }
    }
    Ok(settled)
}

/// The backend of a device's policy. A device that was renamed is also found by its old name.
pub fn of(side: &LinkSide) -> Result<Box<dyn EnforcingPlace>, Error> {
    let (now, journal) = Journal::find(side)?;
    match journal.read::<serde_json::Value>()? {
        Some(record) => named(&record.backend, &now),
        None => Err(Error::NoPolicy { device: side.to_string() }),
    }
}

fn named(backend: &str, side: &LinkSide) -> Result<Box<dyn EnforcingPlace>, Error> {
    let kind = ALL.iter().find(|kind| kind.name == backend && kind.directions.contains(&side.direction));
    let other = || Error::OtherBackend { device: side.to_string(), backend: backend.to_owned() };
    Ok((kind.ok_or_else(other)?.at)(side, Box::new(|| None)))
}

/// The backend for a user's options. Options that the user leaves open are taken from the backend in force on
/// `side`. `None`: no backend has both.
pub fn choose(
    side: Option<&LinkSide>,
    backend: Option<BackendName>,
    kernel_queue: Option<KernelQueueName>,
) -> Option<&'static PlaceKind> {
    let in_force = side.and_then(|side| of(side).ok()).map(|place| place.kind().name);
    let fits = |kind: &&&PlaceKind| {
        backend.is_none_or(|backend| kind.backend == backend)
            && kernel_queue.is_none_or(|queue| kind.kernel_queue == Some(queue))
    };
    ALL.iter().filter(fits).min_by_key(|kind| in_force != Some(kind.name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_leaves_open_is_the_first_place_that_fits() {
        let chosen = |backend, queue| choose(None, backend, queue).map(|kind| kind.name);
        let (kernel, interposed) = (Some(BackendName::Kernel), Some(BackendName::Interposed));
        assert_eq!(chosen(None, None), Some("kernel"));
        assert_eq!(chosen(None, Some(KernelQueueName::Bpf)), Some("kernel-bpf"));
        assert_eq!(chosen(kernel, None), Some("kernel"));
        assert_eq!(chosen(interposed, None), Some("interposed"));
        assert_eq!(chosen(interposed, Some(KernelQueueName::Htb)), None);
    }
}
