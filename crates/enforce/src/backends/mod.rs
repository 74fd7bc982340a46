//! All backends: finds the backend of a device's policy, chooses a backend for a user, and restores the
//! devices of killed commands.

pub mod switch;

use crate::backend::{Backend, BackendKind, BackendName, KernelQueueName};
use crate::containers;
use crate::error::Error;
use crate::interposed;
use crate::journal::{Journal, LinkSide};
use crate::kernel::{self, Kernel};
use switch::SwitchOutcome;

/// All kinds of backends, in order of preference: the first one that fits the user's options is the default.
pub static ALL: [&BackendKind; 3] = [&kernel::HTB, &kernel::BPF, &interposed::KIND];

/// A device whose policy ended because its processes were killed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    pub side: LinkSide,
    /// Whether the device is as it was before the policy.
    pub is_as_before: bool,
    pub notes: Vec<String>,
}

/// Waits for changes that are in progress, and restores the devices of killed processes in this thread's
/// network namespace. The result also has the devices that could not be restored, with the reason.
pub fn recover_all() -> Result<Vec<Recovered>, Error> {
    let Some(_lock) = Journal::lock_if_used()? else { return Ok(Vec::new()) };
    forget_gone_namespaces()?;
    let mut recovered = Vec::new();
    for (side, pending) in Journal::all_pending()? {
        let (device, mut notes) = (&side.device, Vec::new());
        match switch::finish(&side, &pending, &mut notes) {
            Ok(SwitchOutcome::RolledBack) => notes.push(format!(
                "a command that was to change the place in force on {device} has ended half way; the policy before is in force"
            )),
            Ok(SwitchOutcome::Committed) => notes.push(format!(
                "took away what the place before had left on {device}; another place is in force"
            )),
            Err(error) => notes.push(format!("{device}: {error}")),
        }
        recovered.push(Recovered { side, is_as_before: false, notes });
    }
    for (side, journal) in Journal::all()? {
        let read = || journal.header();
        let Some(record) = read()? else { continue };
        let mut backend = with_name(&record.backend, &side)?;
        let recovery = backend.recover(&journal);
        let mut notes = backend.notes().to_vec();
        if let Err(error) = &recovery {
            notes.push(format!("{side}: {error}"));
        }
        let is_as_before = recovery.is_ok() && read()?.is_none();
        if is_as_before || !notes.is_empty() {
            recovered.push(Recovered { side, is_as_before, notes });
        }
    }
    if !recovered.is_empty() || !Journal::senders()?.is_empty() {
        // containers may have started since the policy was applied
        containers::refresh();
    }
    Ok(recovered)
}

/// Removes the journals of network namespaces that no longer exist. The caller must hold the journals' lock.
fn forget_gone_namespaces() -> Result<(), Error> {
    for (journal, record) in Journal::of_gone_namespaces()? {
        if record.backend == kernel::HTB_BACKEND {
            Kernel::new(&record.device).forget(&journal)?;
        }
        match std::fs::remove_file(interposed::socket_path(&journal)) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::System { what: "remove the socket of a queue that is gone", source });
            }
            _ => journal.remove()?,
        }
    }
    Ok(())
}

/// Returns the backend of a device's policy. A device that was renamed is also found by its old name.
pub fn in_force(side: &LinkSide) -> Result<Box<dyn Backend>, Error> {
    let (now, journal) = Journal::find(side)?;
    match journal.header()? {
        Some(record) => with_name(&record.backend, &now),
        None => Err(Error::NoPolicy { device: side.to_string() }),
    }
}

fn with_name(backend: &str, side: &LinkSide) -> Result<Box<dyn Backend>, Error> {
    let kind = ALL.iter().find(|kind| kind.name == backend && kind.directions.contains(&side.direction));
    let other = || Error::OtherBackend { device: side.to_string(), backend: backend.to_owned() };
    Ok((kind.ok_or_else(other)?.at)(side, Box::new(|| None)))
}

/// Chooses the backend for a user's options. Among the backends that fit, it prefers the one in force on
/// `side`, then the first of [`ALL`]. Returns `None` if no backend fits all options.
pub fn choose(
    side: Option<&LinkSide>,
    backend: Option<BackendName>,
    kernel_queue: Option<KernelQueueName>,
) -> Option<&'static BackendKind> {
    let in_force = side.and_then(|side| in_force(side).ok()).map(|backend| backend.kind().name);
    let fits = |kind: &&&BackendKind| {
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
