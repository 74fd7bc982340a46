//! Filters at the `clsact` queueing discipline of a device, where several programs have to coexist.
//!
//! The kernel runs the filters of a hook in the order of their preferences, and stops at the first filter
//! that decides. Our filters have the handle `OURS` and come behind all others: our program must not see a
//! frame that another program drops or redirects, and a frame that our program takes away would never reach
//! the others. The consequence: a foreign filter that accepts frames finally (`TC_ACT_OK`) hides them from
//! ours; [`foreign`] names the filters for a warning. Reference: tc-bpf(8), include/uapi/linux/pkt_cls.h.

use super::link::Index;
use super::message::{Entry, NetlinkRequest, TABLE, attribute, text};
use super::qdisc::{KIND, OPTIONS, head};
use super::traffic::{
    BPF_FLAGS, BPF_NAME, CLSACT_EGRESS, CLSACT_INGRESS, DELETE_FILTER, DIRECT_ACTION, OURS,
};
use super::{NetlinkSocket, Refused};
use std::fmt;

const READ_FILTERS: u16 = 46;
const BPF_ID: u16 = 11;
const FIRST: u32 = 1;
/// The last preference.
const LAST: u32 = 0xffff;

/// A place where a device runs filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficHook {
    Ingress,
    Egress,
}

impl TrafficHook {
    pub(super) fn parent(self) -> u32 {
        match self {
            Self::Ingress => CLSACT_INGRESS,
            Self::Egress => CLSACT_EGRESS,
        }
    }
}

/// The position of a filter among the filters of its hook; a smaller number runs earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Preference(u32);

impl Preference {
    /// Returns `tcm_info`: the preference in the upper half, the protocol (all) in network byte order in the
    /// lower.
    pub(super) fn of_all_protocols(self) -> u32 {
        self.0 << 16 | u32::from((libc::ETH_P_ALL as u16).to_be())
    }
}

/// A filter of another program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignFilter {
    pub preference: Preference,
    pub kind: String,
    /// The name of the filter's BPF program, if it has one.
    pub program: Option<String>,
    /// The number of the filter's BPF program in the kernel, if the program itself decides about packets.
    pub deciding_program: Option<u32>,
}

impl fmt::Display for ForeignFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            Some(program) => write!(f, "{program} ({}, pref {})", self.kind, self.preference.0),
            None => write!(f, "{} (pref {})", self.kind, self.preference.0),
        }
    }
}

/// Reads the filters of a hook.
fn entries(socket: &mut NetlinkSocket, device: Index, hook: TrafficHook) -> Result<Vec<Entry>, Refused> {
    let what = format!("list the filters of device {}", device.0);
    let request = NetlinkRequest::new(what, READ_FILTERS, TABLE, &head(device, 0, hook.parent(), 0));
    let mut entries = socket.table(&request, 20)?;
    entries.retain(|entry| entry.word(4) == device.0);
    Ok(entries)
}

fn is_ours(entry: &Entry) -> bool {
    entry.word(8) == OURS && entry.attribute(KIND).map(text).as_deref() == Some("bpf")
}

fn preference(entry: &Entry) -> Preference {
    Preference(entry.word(16) >> 16)
}

/// Returns the filters of other programs at a hook, each once, in the order of execution.
pub fn foreign(
    socket: &mut NetlinkSocket,
    device: Index,
    hook: TrafficHook,
) -> Result<Vec<ForeignFilter>, Refused> {
    let entries = entries(socket, device, hook)?;
    let filter = |entry: &Entry| {
        let kind = entry.attribute(KIND).map(text).unwrap_or_default();
        let options = entry.attribute(OPTIONS).filter(|_| kind == "bpf");
        let program = options.and_then(|options| attribute(options, BPF_NAME)).map(text);
        let word = |number| {
            let value = attribute(options?, number)?;
            Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
        };
        let decides = word(BPF_FLAGS).is_some_and(|flags| flags & DIRECT_ACTION != 0);
        let deciding_program = word(BPF_ID).filter(|_| decides);
        ForeignFilter { preference: preference(entry), kind, program, deciding_program }
    };
    let mut found: Vec<ForeignFilter> = entries.iter().filter(|entry| !is_ours(entry)).map(filter).collect();
    // the kernel lists a preference whose filters have options once more, without the options
    let named: Vec<Preference> =
        found.iter().filter(|filter| filter.program.is_some()).map(|filter| filter.preference).collect();
    let ours: Vec<Preference> = entries.iter().filter(|entry| is_ours(entry)).map(preference).collect();
    found.retain(|filter| {
        filter.program.is_some() || !(named.contains(&filter.preference) || ours.contains(&filter.preference))
    });
    found.sort_by_key(|filter| filter.preference);
    found.dedup();
    Ok(found)
}

/// Returns the preference of our filter at a hook: its present preference, or else a preference behind all
/// other filters.
pub fn our_preference(
    socket: &mut NetlinkSocket,
    device: Index,
    hook: TrafficHook,
) -> Result<Preference, Refused> {
    let entries = entries(socket, device, hook)?;
    if let Some(ours) = entries.iter().find(|entry| is_ours(entry)) {
        return Ok(preference(ours));
    }
    let last = entries.iter().map(|entry| preference(entry).0).max();
    Ok(Preference(last.map_or(FIRST, |last| (last + 1).min(LAST))))
}

/// Removes our filter from a hook. Returns whether there was one.
pub fn remove_ours(socket: &mut NetlinkSocket, device: Index, hook: TrafficHook) -> Result<bool, Refused> {
    let entries = entries(socket, device, hook)?;
    let Some(ours) = entries.iter().find(|entry| is_ours(entry)) else { return Ok(false) };
    let what = format!("take our filter away from device {}", device.0);
    let fixed = head(device, OURS, hook.parent(), preference(ours).of_all_protocols());
    let mut request = NetlinkRequest::new(what, DELETE_FILTER, 0, &fixed);
    request.text(KIND, "bpf");
    socket.run(&[request])?;
    Ok(true)
}

/// Returns whether a hook has filters of any program.
pub(super) fn is_used(socket: &mut NetlinkSocket, device: Index, hook: TrafficHook) -> Result<bool, Refused> {
    Ok(!entries(socket, device, hook)?.is_empty())
}
