//! Policies for packets that a device receives: the packets are redirected through a device of our own (IFB),
//! and the policy is enforced there as at any other device.
//!
//! ```text
//!   journal --> IFB, down --> classes of the policy at the IFB --> IFB up --> clsact and redirecting filter
//!      ^                                                                          | the policy holds
//!      +------- remove IFB <-- remove clsact if unused <-- remove filter <------+  cleared, failed, killed
//! ```
//! The filter is the last step of a start and the first step of an end, because a packet that is redirected
//! to a device that is missing or down is lost. The IFB's number is the device's number plus 2^30. The kernel
//! itself gives no other device such a number, because it numbers devices upward from 1. So the journal need
//! not contain the IFB's number: a process that finds the journal of a killed process knows which IFB to
//! remove.
//!
//! Differences from a policy for packets that a device sends: the packets have crossed the link already, so
//! only senders that react to drops slow down; the receiving process is not known yet; packets that the
//! kernel has merged (GRO) are scheduled whole, up to 64 KiB.

use super::site::{HostDevice, ifb_index, ifb_name};
use crate::error::Error;
use crate::foreign_programs;
use crate::journal::{Journal, LinkSide};
use std::os::fd::AsFd;
use unisono_fairqueue::Policy;
use unisono_linux::Errno;
use unisono_linux::bpf::ClassifierProgram;
use unisono_linux::bpf::assembler::{Assembler, R0};
use unisono_linux::netlink::filter::{self, TrafficHook};
use unisono_linux::netlink::link::{self, Index};
use unisono_linux::netlink::{
    NetlinkRequest, NetlinkSocket, Refused, capture, egress, ingress, qdisc, traffic,
};

/// The longest packet that the kernel merges by default (`GRO_LEGACY_MAX_SIZE`).
pub(super) const MAX_GRO_BYTES: u64 = 65_536;
const ENOENT: i32 = Errno::NOENT.raw_os_error();
const FILTER: &str = "unisono_detour";
/// The disciplines whose filters see each packet that a device receives.
const FILTERED: [&str; 2] = ["clsact", "ingress"];

/// Checks whether incoming packets can be classified as the policy asks.
pub(super) fn check_matchers(policy: &Policy) -> Result<(), Error> {
    for rule in &policy.rules {
        let matcher = &rule.matcher;
        let asked = [
            (matcher.cgroup.is_some(), "no control group"),
            (matcher.priority.is_some(), "no priority"),
            (matcher.mark.is_some(), "no mark"),
        ];
        if let Some((_, none)) = asked.into_iter().find(|(is_asked, _)| *is_asked) {
            let what = format!(
                "a packet that comes in has {none} yet; match by address, port, protocol, dscp, vlan or mac, or leave --direction in out"
            );
            return Err(Error::NotHere { at: rule.at, what });
        }
    }
    Ok(())
}

/// Fails if another device has the IFB's name or number.
pub(super) fn check_free(host: &mut HostDevice, side: &LinkSide) -> Result<(), Error> {
    let (device, name) = (&side.device, ifb_name(host.link.index));
    let taken = |what: String, remedy: String| Err(Error::InTheWay { what, remedy });
    if let Some(there) =
        link::all(&mut host.socket)?.iter().find(|link| link.index == host.queue || link.name == name)
    {
        let what = format!(
            "the device {} has the name {name} or the number {}, which the queue of packets that {device} receives is to have",
            there.name, host.queue.0
        );
        return taken(what, format!("remove it first: ip link del {}", there.name));
    }
    Ok(())
}

/// Returns whether another program made the device's discipline for filters (`clsact` or `ingress`).
pub(super) fn has_foreign_clsact(host: &mut HostDevice, side: &LinkSide) -> Result<bool, Error> {
    let now = qdisc::of_device(&mut host.socket, host.link.index)?;
    let has_one = now.iter().any(|there| FILTERED.contains(&there.kind.as_str()));
    Ok(has_one && !Journal::for_side(side)?.other_direction_made_clsact()?)
}

/// Returns a note about the programs of others that see each packet before our filter does.
pub(super) fn earlier_notes(host: &mut HostDevice, device: &str) -> Result<Option<String>, Error> {
    Ok(foreign_programs::note(&mut host.socket, host.link.index, device, TrafficHook::Ingress)?)
}

/// Loads the filter's program, which selects every packet; the filter's action redirects them.
pub(super) fn redirect_all() -> Result<ClassifierProgram, Error> {
    let mut code = Assembler::default();
    let program = code.set(R0, 1).exit();
    let program = std::mem::take(program).finish().expect("because it has no jumps");
    Ok(ClassifierProgram::load(FILTER, &program)?)
}

/// Whether a change goes on if the kernel refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnRefusal {
    Stop,
    GoOn,
}

/// Returns the first group of requests: they make the IFB.
pub(super) fn make_ifb(host: &HostDevice) -> Vec<(OnRefusal, NetlinkRequest)> {
    vec![
        (OnRefusal::Stop, ingress::make_block(host.queue, &ifb_name(host.link.index))),
        // hosts without IPv6 refuse this request, and do not need it
        (OnRefusal::GoOn, capture::without_address(host.queue)),
    ]
}

/// Returns the second group of requests: they switch the IFB on and make the discipline for the filter. Only
/// the last request ([`redirect`]) follows them.
pub(super) fn attach_filter(host: &HostDevice) -> Vec<(OnRefusal, NetlinkRequest)> {
    vec![
        (OnRefusal::Stop, link::set(host.queue, link::LinkState::Up)),
        // refused if the discipline exists already, for the policy of the other direction or for another
        // program
        (OnRefusal::GoOn, traffic::clsact(host.link.index)),
    ]
}

/// Makes the last request: attaches the filter behind the filters of other programs. Packets skip all filters
/// when they return from the IFB, so a filter behind ours would never see them.
pub(super) fn redirect(host: &mut HostDevice, redirect_all: &ClassifierProgram) -> Result<(), Refused> {
    let device = host.link.index;
    let preference = filter::our_preference(&mut host.socket, device, TrafficHook::Ingress)?;
    let program = redirect_all.as_fd();
    host.socket.run(&[ingress::redirect(device, preference, host.queue, program, FILTER)])
}

/// Removes the filter and the IFB. Adds a note if a part stays.
pub(super) fn restore(
    host: &mut HostDevice,
    side: &LinkSide,
    had_clsact: bool,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let device = host.link.index;
    let now = qdisc::of_device(&mut host.socket, device)?;
    if now.iter().any(|there| FILTERED.contains(&there.kind.as_str())) {
        match filter::remove_ours(&mut host.socket, device, TrafficHook::Ingress) {
            Err(refused) if refused.errno != ENOENT => return Err(refused.into()),
            _ => {}
        }
        if !had_clsact {
            remove_clsact(host, side, notes)?;
        }
    }
    remove_ifb(&mut host.socket, device)
}

/// Removes the clsact discipline if it is unused. Adds a note if it stays, unless the policy of the other
/// direction will remove it.
pub(super) fn remove_clsact(
    host: &mut HostDevice,
    side: &LinkSide,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let is_gone = egress::remove_unused_clsact(&mut host.socket, host.link.index)?;
    if !is_gone && Journal::for_side(side)?.for_other_direction().header()?.is_none() {
        notes.push(format!(
            "somebody else has filters at {} since, at its clsact queueing discipline; it stays",
            side.device
        ));
    }
    Ok(())
}

/// Removes the IFB, whether the device itself still exists or not.
pub(super) fn remove_ifb(socket: &mut NetlinkSocket, device: Index) -> Result<(), Error> {
    let block = ifb_index(device);
    if link::all(socket)?.iter().any(|link| link.index == block) {
        socket.run(&[capture::remove(block)])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Blame;

    #[test]
    fn what_is_not_known_of_incoming_packets_is_refused_with_its_place_and_the_rest_is_taken() {
        let policy = |text: &str| {
            let text = format!("rate = \"1mbit\"\n[class.a]\nmatch = [{text}]\n");
            Policy::parse(&text).expect("it is sound")
        };
        for text in ["{ cgroup = \"/a\" }", "{ priority = 6 }", "{ mark = 1, port = 80 }"] {
            let error = check_matchers(&policy(text)).expect_err(text);
            assert!(error.to_string().starts_with("3:10: a packet that comes in has no"), "{error}");
            assert_eq!(error.blame(), Blame::Input);
        }
        for text in ["{ port = 80 }", "{ dscp = \"ef\" }, { vlan = 5 }, { address = \"10.0.0.0/8\" }"] {
            check_matchers(&policy(text)).expect(text);
        }
    }

    #[test]
    fn the_name_of_an_intermediate_device_fits_whatever_the_number() {
        assert!(ifb_name(Index(u32::MAX)).len() < 16);
        assert_eq!(ifb_index(Index(5)), Index(super::super::site::FIRST_NUMBER + 5));
    }
}
