//! Finds the programs of other software at the hooks of a device, such as Cilium, Calico, systemd and
//! firewalls.
//!
//! Our programs run behind them, because a packet that ours redirect reaches no later program. A program that
//! ends the chain (`TC_ACT_OK`, a redirection) keeps its packets from the policy, and nothing can run behind
//! it. The values that a program can return follow from its instructions ([`ReturnValues`]): the note says if
//! a program ends the chain for every packet; it does not mention a program that never does, and says of all
//! others that they may.

use unisono_linux::bpf::tcx::{self, TcxHook};
use unisono_linux::bpf::{LoadedProgram, ReturnValues};
use unisono_linux::netlink::filter::{self, TrafficHook};
use unisono_linux::netlink::link::Index;
use unisono_linux::netlink::{NetlinkSocket, Refused};

/// The prefix of the names of our own programs.
const OURS: &str = "unisono";
/// The return values that let a packet go on, but end the chain, so that no later program sees the packet:
/// `TC_ACT_OK`, `TC_ACT_STOLEN`, `TC_ACT_REDIRECT`, `TC_ACT_TRAP`.
const ENDS: [i32; 4] = [0, 4, 7, 8];
/// `TC_ACT_SHOT`: the packet is dropped, so it does not matter that the policy does not see it.
const DROPS: i32 = 2;

/// The packets for which a program ends the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChainEnd {
    Never,
    Some,
    Every,
}

impl ChainEnd {
    fn of_values(values: &ReturnValues) -> Self {
        let ReturnValues::Known(values) = values else { return Self::Some };
        let mut decided = values.iter().filter(|value| **value != DROPS).peekable();
        if decided.peek().is_none() {
            return Self::Never;
        }
        let ends = decided.clone().filter(|value| ENDS.contains(value)).count();
        match ends {
            0 => Self::Never,
            ends if ends == decided.count() => Self::Every,
            _ => Self::Some,
        }
    }

    /// Returns the packets for which a program ends the chain. If its instructions cannot be read, it may end
    /// the chain for some.
    fn of_program(program: &LoadedProgram) -> Self {
        match program.instructions() {
            Ok(code) if !code.is_empty() => Self::of_values(&ReturnValues::of_program(&code)),
            _ => Self::Some,
        }
    }
}

/// Returns a note that names the programs at a hook that keep packets from a policy, if there are any.
pub(crate) fn note(
    socket: &mut NetlinkSocket,
    index: Index,
    device: &str,
    hook: TrafficHook,
) -> Result<Option<String>, Refused> {
    let list = match hook {
        TrafficHook::Ingress => TcxHook::Ingress,
        TrafficHook::Egress => TcxHook::Egress,
    };
    // a kernel without tcx has no such programs
    let programs = tcx::programs(index, list).unwrap_or_default();
    let programs = programs.into_iter().filter(|program| !program.name.starts_with(OURS));
    let mut found: Vec<(String, ChainEnd)> =
        programs.map(|program| (format!("{} (tcx)", program.name), ChainEnd::of_program(&program))).collect();
    for foreign in filter::foreign(socket, index, hook)? {
        let program = foreign.deciding_program.and_then(|id| LoadedProgram::by_id(id).ok().flatten());
        let end = program.map_or(ChainEnd::Some, |program| ChainEnd::of_program(&program));
        found.push((foreign.to_string(), end));
    }
    Ok(words(&found, device, hook))
}

/// Returns the note about the programs `found`, which are in the order of execution.
fn words(found: &[(String, ChainEnd)], device: &str, hook: TrafficHook) -> Option<String> {
    let (sends, way_out) = match hook {
        TrafficHook::Ingress => {
            ("receives", "have it return TC_ACT_UNSPEC (-1) for packets that it only looks at")
        }
        TrafficHook::Egress => (
            "sends",
            "use --backend kernel, whose classes come behind all programs, or have it return TC_ACT_UNSPEC (-1)",
        ),
    };
    if let Some((name, _)) = found.iter().find(|(_, end)| *end == ChainEnd::Every) {
        return Some(format!(
            "{name} ends the chain for every packet that {device} {sends} (TC_ACT_OK or a redirection), and nothing can run \
             behind it: no packet passes this policy; {way_out}"
        ));
    }
    let names: Vec<&str> =
        found.iter().filter(|(_, end)| *end == ChainEnd::Some).map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "other programs decide first about what {device} {sends}: {}; packets that they accept finally (TC_ACT_OK) or \
             redirect pass by this policy",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_ends_the_chain_for_every_packet_for_some_or_for_none() {
        let known =
            |values: &[i32]| ChainEnd::of_values(&ReturnValues::Known(values.iter().copied().collect()));
        assert_eq!([known(&[0]), known(&[0, 7]), known(&[0, 2])], [ChainEnd::Every; 3]);
        assert_eq!(
            [known(&[-1]), known(&[2]), known(&[-1, 2]), known(&[3]), known(&[])],
            [ChainEnd::Never; 5]
        );
        assert_eq!([known(&[-1, 0]), ChainEnd::of_values(&ReturnValues::Any)], [ChainEnd::Some; 2]);
    }

    #[test]
    fn the_program_that_ends_the_chain_is_named_and_programs_that_never_do_are_not() {
        let all = [("a".to_owned(), ChainEnd::Never), ("b".to_owned(), ChainEnd::Some)];
        let said = words(&all, "eth0", TrafficHook::Egress).expect("a note");
        assert!(said.contains("eth0 sends: b;"), "{said}");
        let ended = [&all[..], &[("c".to_owned(), ChainEnd::Every)]].concat();
        let said = words(&ended, "eth0", TrafficHook::Egress).expect("a note");
        assert!(said.starts_with("c ends the chain for every packet that eth0 sends"), "{said}");
        assert!(said.contains("--backend kernel"), "{said}");
        assert_eq!(words(&all[..1], "eth0", TrafficHook::Ingress), None);
    }
}
