//! Classifies frames: finds the class that a frame belongs to.
//!
//! The control group and the priority of a frame's socket, and the packet's mark, are known only inside the
//! kernel. The program at the device's egress ([`super::redirect`]) encodes them as a number in a VLAN tag;
//! this module reads the tag and removes it. 16 bits suffice, because the number distinguishes only the
//! control groups, priorities and marks that the policy names:
//!
//! ```text
//! number = (group * (priorities + 1) + priority) * (marks + 1) + mark       0: none of the named ones
//! ```
//!
//! The frame's own VLAN tags follow this one. Later fragments of a packet carry no ports; they get the class
//! of the packet's first fragment, as long as that class is remembered.

use super::flows::{FlowHash, FlowNumber};
use super::parse::{FragmentPosition, Malformed, ParsedFrame, ParsedPacket, parse};
use super::translations::Translations;
use std::net::IpAddr;
use unisono_fairqueue::{ClassId, Dscp, Facts, Flows, IpProtocol, MacAddress, Policy};

/// The bytes of the tag, which is between the addresses and the EtherType.
pub const TAG: usize = 4;
pub const TAG_AT: usize = 12;
/// The EtherType that begins the tag.
pub const TAG_TYPE: u16 = 0x8100;
/// The number of packets whose first fragment is remembered. The fragments of a packet leave a host in a row,
/// so 64 is the number of hosts or sockets that may send fragments at the same time. Beyond that, later
/// fragments are classified without ports. Each entry costs 40 bytes and a comparison. Chosen, not measured.
const REMEMBERED: usize = 64;

/// The control groups, priorities and marks that a policy names, in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The control groups, with the deepest first.
    cgroups: Vec<String>,
    priorities: Vec<u32>,
    marks: Vec<u32>,
}

impl Named {
    /// Collects the values that a policy names. Returns `None` if there are more than a tag can distinguish.
    pub fn from_policy(policy: &Policy) -> Option<Self> {
        let mut cgroups: Vec<String> = Vec::new();
        let (mut priorities, mut marks) = (Vec::new(), Vec::new());
        for rule in &policy.rules {
            cgroups.extend(rule.matcher.cgroup.clone());
            priorities.extend(rule.matcher.priority);
            marks.extend(rule.matcher.mark);
        }
        let depth = |path: &String| path.split('/').filter(|part| !part.is_empty()).count();
        cgroups.sort_by(|one, other| depth(other).cmp(&depth(one)).then_with(|| one.cmp(other)));
        cgroups.dedup();
        for numbers in [&mut priorities, &mut marks] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let named = Self { cgroups, priorities, marks };
        let numbers = (named.cgroups.len() + 1).checked_mul(named.step())?;
        (numbers <= 1 << 16).then_some(named)
    }

    /// Returns the factor of a control group in the number.
    fn step(&self) -> usize {
        (self.priorities.len() + 1) * (self.marks.len() + 1)
    }

    /// Returns the control groups, with the deepest first, each with its summand in the number.
    pub fn cgroups(&self) -> impl Iterator<Item = (&str, u16)> {
        let step = self.step();
        self.cgroups.iter().zip(1..).map(move |(path, at)| (path.as_str(), (at * step) as u16))
    }

    /// Returns the priorities, each with its summand in the number.
    pub fn priorities(&self) -> impl Iterator<Item = (u32, u16)> {
        let step = self.marks.len() + 1;
        self.priorities.iter().copied().zip(1..).map(move |(priority, at)| (priority, (at * step) as u16))
    }

    /// Returns the marks, each with its summand in the number.
    pub fn marks(&self) -> impl Iterator<Item = (u32, u16)> {
        self.marks.iter().copied().zip(1..)
    }

    fn read(&self, number: u16) -> Facts<'_> {
        let (number, marks) = (usize::from(number), self.marks.len() + 1);
        let (cgroup, priority, mark) = (number / self.step(), number % self.step() / marks, number % marks);
        let cgroup = cgroup.checked_sub(1).and_then(|at| self.cgroups.get(at)).map(String::as_str);
        let priority = priority.checked_sub(1).and_then(|at| self.priorities.get(at)).copied();
        let mark = mark.checked_sub(1).and_then(|at| self.marks.get(at)).copied();
        Facts { cgroup, priority, mark, ..Facts::default() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoClass {
    /// The frame has no tag of ours, so it did not come from the program at the device.
    #[error("it does not come from the device")]
    Stranger,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

#[derive(Clone, Debug)]
pub struct Classifier {
    named: Named,
    fragments: [Option<(Fragmented, ClassId)>; REMEMBERED],
    next: usize,
    flows: FlowHash,
    translations: Translations,
}

/// The fields that all fragments of a packet share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fragmented {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    identification: u32,
}

impl Classifier {
    pub fn new(named: Named) -> Self {
        let (flows, translations) = (FlowHash::default(), Translations::default());
        Self { named, fragments: [None; REMEMBERED], next: 0, flows, translations }
    }

    /// Begins anew with the named values of another policy.
    pub(super) fn change(&mut self, named: Named) {
        let translations = std::mem::take(&mut self.translations);
        *self = Self { translations, ..Self::new(named) };
    }

    /// Replaces the hosts behind translated addresses. Returns the previous ones, so that another thread can
    /// free them.
    pub(super) fn translate(&mut self, translations: Translations) -> Translations {
        std::mem::replace(&mut self.translations, translations)
    }

    /// Returns the class of a frame that still has the tag.
    pub fn class(&mut self, policy: &Policy, frame: &[u8]) -> Result<ClassId, NoClass> {
        self.class_and_flow(policy, frame).map(|(class, _)| class)
    }

    /// Returns the class of a frame that still has the tag, and the frame's flow.
    pub fn class_and_flow(
        &mut self,
        policy: &Policy,
        frame: &[u8],
    ) -> Result<(ClassId, FlowNumber), NoClass> {
        let tag = frame.get(TAG_AT..TAG_AT + TAG).filter(|tag| tag[..2] == TAG_TYPE.to_be_bytes());
        let tag = tag.ok_or(NoClass::Stranger)?;
        let known = self.named.read(u16::from_be_bytes([tag[2], tag[3]]));
        let [destination_mac, source_mac] =
            [0, 6].map(|at| MacAddress::new(*frame.get(at..)?.first_chunk()?));
        let sender = Facts { vlan: own_vlan(frame), source_mac, destination_mac, ..known };
        // the parser skips our tag as it skips any VLAN tag
        let packet = match parse(frame)? {
            ParsedFrame::Ip(packet) => packet,
            ParsedFrame::Other(_) => return Ok((policy.class_of(&sender), FlowNumber::default())),
        };
        let (source_port, destination_port) = packet.ports.unzip();
        let facts = Facts {
            source: Some(packet.source),
            destination: Some(packet.destination),
            source_port,
            destination_port,
            protocol: Some(IpProtocol(packet.protocol)),
            dscp: Some(Dscp::of_field(packet.service)),
            ..sender
        };
        let flow = |class| match policy.flows(class) {
            Flows::Fair => self.flows.flow(&packet),
            Flows::Together => FlowNumber::default(),
            Flows::Hosts | Flows::Receivers => {
                let host = policy.host(class, &facts).unwrap_or(packet.source);
                let is_sender = host == packet.source;
                self.flows.host(if is_sender { self.translations.sender(&packet) } else { host })
            }
        };
        let fragmented = packet.fragment.map(|(identification, part)| {
            let ParsedPacket { source, destination, protocol, .. } = packet;
            (Fragmented { source, destination, protocol, identification }, part)
        });
        if let Some((packet_key, FragmentPosition::Later)) = fragmented
            && let Some((_, class)) = self.fragments.iter().flatten().find(|(known, _)| *known == packet_key)
        {
            return Ok((*class, flow(*class)));
        }
        let class = policy.class_of(&facts);
        let flow = flow(class);
        if let Some((packet_key, FragmentPosition::First)) = fragmented {
            self.fragments[self.next] = Some((packet_key, class));
            self.next = (self.next + 1) % REMEMBERED;
        }
        Ok((class, flow))
    }
}

/// Returns the VLAN number in the outermost of the frame's own tags.
fn own_vlan(frame: &[u8]) -> Option<u16> {
    let own: &[u8; 4] = frame.get(TAG_AT + TAG..)?.first_chunk()?;
    let is_tag = matches!(u16::from_be_bytes([own[0], own[1]]), TAG_TYPE | 0x88a8);
    is_tag.then(|| u16::from_be_bytes([own[2], own[3]]) & 0xfff)
}

/// Removes the tag by moving the addresses over it. The frame then begins [`TAG`] bytes later.
pub fn untag(frame: &mut [u8]) {
    if frame.len() >= TAG_AT + TAG {
        frame.copy_within(..TAG_AT, TAG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy::parse(
            r#"
            rate = "100mbit"
            default = "rest"
            [class.a]
            match = [{ cgroup = "/a/b" }, { priority = 6 }]
            [class.b]
            match = [{ cgroup = "/a" }, { port = 53 }]
            [class.c]
            match = [{ cgroup = "/c", priority = 7 }]
            "#,
        )
        .expect("a sound policy")
    }

    fn frame(tag: u16, fragment: [u8; 2], ports: [u16; 2]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(TAG_TYPE.to_be_bytes());
        frame.extend(tag.to_be_bytes());
        frame.extend([8, 0, 0x45, 0, 0, 36, 9, 9]);
        frame.extend(fragment);
        frame.extend([64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        frame.extend(ports.map(u16::to_be_bytes).concat());
        frame.extend([0, 16, 0, 0]);
        frame.extend([0; 8]);
        frame
    }

    fn name(classifier: &mut Classifier, policy: &Policy, frame: &[u8]) -> String {
        let class = classifier.class(policy, frame).expect("well formed");
        policy.hierarchy.class(class).name.clone()
    }

    #[test]
    fn a_tag_tells_the_deepest_group_and_the_priority() {
        let policy = policy();
        let named = Named::from_policy(&policy).expect("a few");
        let cgroups: Vec<_> = named.cgroups().collect();
        assert_eq!(cgroups, [("/a/b", 3), ("/a", 6), ("/c", 9)]);
        assert_eq!(named.priorities().collect::<Vec<_>>(), [(6, 1), (7, 2)]);
        let mut classifier = Classifier::new(named);
        for (tag, class) in [(3, "a"), (6, "b"), (1, "a"), (9, "rest"), (11, "c"), (2, "rest"), (999, "rest")]
        {
            assert_eq!(name(&mut classifier, &policy, &frame(tag, [0, 0], [1, 2])), class, "{tag}");
        }
        assert_eq!(name(&mut classifier, &policy, &frame(0, [0, 0], [53, 2])), "b");
    }

    #[test]
    fn marks_code_points_and_vlans_find_their_class() {
        let policy = Policy::parse(
            "rate = \"1mbit\"\ndefault = \"rest\"\n\
             [class.both]\nmatch = [{ mark = 9, priority = 6, cgroup = \"/a\" }]\n\
             [class.mark]\nmatch = [{ mark = 7 }, { mark = 9 }]\n\
             [class.vlan]\nmatch = [{ vlan = 5 }]\n\
             [class.ef]\nmatch = [{ dscp = \"ef\" }]\n",
        )
        .expect("a sound policy");
        let named = Named::from_policy(&policy).expect("a few");
        assert_eq!(named.marks().collect::<Vec<_>>(), [(7, 1), (9, 2)]);
        assert_eq!((named.priorities().next(), named.cgroups().next()), (Some((6, 3)), Some(("/a", 6))));
        let mut classifier = Classifier::new(named);
        for (tag, class) in [(0, "rest"), (1, "mark"), (2, "mark"), (3, "rest"), (5, "mark"), (11, "both")] {
            assert_eq!(name(&mut classifier, &policy, &frame(tag, [0, 0], [1, 2])), class, "{tag}");
        }
        let mut marked = frame(0, [0, 0], [1, 2]);
        marked[TAG_AT + TAG + 2 + 1] = 46 << 2 | 2;
        assert_eq!(name(&mut classifier, &policy, &marked), "ef");
        for (own, class) in
            [([0x81, 0, 0x20, 5], "vlan"), ([0x88, 0xa8, 0, 5], "vlan"), ([0x81, 0, 0, 6], "ef")]
        {
            let mut tagged = marked.clone();
            tagged.splice(TAG_AT + TAG..TAG_AT + TAG, own);
            assert_eq!(name(&mut classifier, &policy, &tagged), class, "{own:?}");
        }
        let mut other = frame(0, [0, 0], [1, 2]);
        other.splice(TAG_AT + TAG.., [0x81, 0, 0, 5, 8, 6, 0, 1]);
        assert_eq!(name(&mut classifier, &policy, &other), "vlan", "ARP in a VLAN");
    }

    #[test]
    fn all_flows_of_a_host_are_one_flow_where_hosts_take_turns() {
        let policy = |fair: &str| {
            Policy::parse(&format!("rate = \"1mbit\"\ndefault = \"rest\"\n[class.rest]\nfair = \"{fair}\"\n"))
                .expect("a sound policy")
        };
        let mut classifier = Classifier::new(Named::from_policy(&policy("flow")).expect("none"));
        let mut flow = |fair: &str, frame: &[u8]| {
            classifier.class_and_flow(&policy(fair), frame).expect("well formed").1
        };
        let one = frame(0, [0, 0], [1, 2]);
        let other_port = frame(0, [0, 0], [9, 2]);
        let (mut other_sender, mut other_receiver) = (one.clone(), one.clone());
        other_sender[33] += 1;
        other_receiver[37] += 1;
        for (fair, is_one) in [
            ("flow", [false, false, false]),
            ("host", [true, false, true]),
            ("receiver", [true, true, false]),
        ] {
            let seen = [&other_port, &other_sender, &other_receiver]
                .map(|other| flow(fair, other) == flow(fair, &one));
            assert_eq!(seen, is_one, "{fair}");
        }
    }

    #[test]
    fn later_fragments_follow_their_first_one() {
        let policy = policy();
        let mut classifier = Classifier::new(Named::from_policy(&policy).expect("a few"));
        assert_eq!(
            name(&mut classifier, &policy, &frame(0, [0, 5], [53, 53])),
            "rest",
            "the first was not seen"
        );
        assert_eq!(name(&mut classifier, &policy, &frame(0, [0x20, 0], [53, 4])), "b");
        assert_eq!(name(&mut classifier, &policy, &frame(0, [0, 5], [9, 9])), "b");
    }

    #[test]
    fn a_frame_without_a_tag_is_a_strangers_and_a_tag_comes_off() {
        let policy = policy();
        let mut classifier = Classifier::new(Named::from_policy(&policy).expect("a few"));
        let mut bytes = frame(3, [0, 0], [1, 2]);
        for (at, byte) in bytes[..12].iter_mut().enumerate() {
            *byte = at as u8;
        }
        untag(&mut bytes);
        assert_eq!(bytes[TAG..TAG + 12], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(bytes[TAG + 12..TAG + 14], [8, 0]);
        assert_eq!(classifier.class(&policy, &bytes[TAG..]), Err(NoClass::Stranger));
        untag(&mut [0; 3]);
    }
}
