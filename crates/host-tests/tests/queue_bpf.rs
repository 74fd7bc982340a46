//! Tests fair queuing as a queueing discipline of the kernel: packets leave a real device in the order that
//! `unisono-fairqueue` chooses.
//!
//! This needs a kernel with `CONFIG_NET_SCH_BPF`. `cargo xtask vm` runs these tests in a virtual machine that
//! has one. Three of the eleven tests set the discipline's clock themselves, so that they do not depend on
//! the speed of the machine. One test is about the kernel's own classes; it is here because that virtual
//! machine's kernel has `fq_codel`.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::{Duration, Instant as StdInstant};
use unisono_enforce::journal::{Journal, LinkSide};
use unisono_enforce::kernel::discipline::{
    self as discipline, Attached, FAIRQUEUE, LoadedDiscipline, PRIORITIES, Setup, kick, layout, priority,
    supported,
};
use unisono_enforce::kernel::{FairQueue, Kernel};
use unisono_enforce::{Backend as _, backends};
use unisono_fairqueue::{
    ClassId, ClassSpec, Discipline as _, Hierarchy, Limit, Overflow, Packet, Policy, Rate, Scheduler,
};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, one_in, require};
use unisono_linux::Errno;
use unisono_linux::bpf::compile::{ProgramError, compile};
use unisono_linux::clock::Instant;
use unisono_linux::netlink::{NetlinkSocket, link, qdisc};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::packet::PacketSocket;

/// An EtherType for experiments.
const TYPE: u16 = 0x88b5;
const NEAR: link::Index = link::Index(11);
const FAR: link::Index = link::Index(12);
/// A bit a nanosecond, in bits a second.
const RATE: u64 = 1_000_000_000;

/// A pair of veth devices in a network namespace of its own, which the kernel removes with the process.
struct Cable {
    netlink: NetlinkSocket,
    near: PacketSocket,
    far: PacketSocket,
    /// The major number of the discipline at the near device. A discipline that replaces another one gets
    /// another number.
    major: u16,
    /// The number of changes of its classes.
    generation: u32,
}

impl Cable {
    fn new() -> Result<Self, Skipped> {
        require::root()?;
        let here =
            NetworkNamespace::create().map_err(|error| Skipped::because(format!("no namespace: {error}")))?;
        here.enter().expect("root may");
        // otherwise the device would sometimes send router solicitations; without IPv6 there is no such file
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        let device = |index, name: &str, last| link::Device {
            namespace: std::os::fd::AsFd::as_fd(&here),
            name: name.to_owned(),
            index: Some(index),
            address: [2, 0, 0, 0, 0, last],
        };
        let mut netlink = NetlinkSocket::open().expect("route netlink");
        let pair = link::veth(&device(NEAR, "near", 1), &device(FAR, "far", 2));
        let made = netlink.run(&[pair, link::set(FAR, link::LinkState::Up)]);
        made.map_err(|error| Skipped::because(error.to_string()))?;
        let open = |device| PacketSocket::open(device, TYPE).expect("the device is up");
        let (near, far) = (open(NEAR), open(FAR));
        far.set_timeout(Duration::from_secs(20)).expect("a time");
        Ok(Self { netlink, near, far, major: 1, generation: 0 })
    }

    fn give(&mut self, discipline: &LoadedDiscipline) -> Result<(), String> {
        (self.major, self.generation) = (self.major + 1, 0);
        let request = qdisc::root(NEAR, discipline.kind(), self.major);
        self.netlink.run(&[request]).map_err(|error| error.to_string())
    }

    /// Replaces the classes of the discipline by others.
    fn change(&mut self, maps: &Attached, old: &Hierarchy, new: &Setup<'_>) {
        self.generation = maps.propose(old, new).expect("small enough");
        assert!(maps.is_pending().expect("it is there"), "nothing has come since");
        self.near.queue_with_priority(kick(self.major)).expect("root may");
        let _ = self.near.send(&[0; 60]); // may fail, because the discipline drops this frame
        assert!(!maps.is_pending().expect("it is there"), "it sets the change going");
        assert_eq!(maps.generation().expect("it is there"), self.generation);
    }

    /// Sends a numbered frame of `length` bytes to a class.
    fn send(&self, class: ClassId, length: u32, number: u32) {
        let priority = priority(self.major, self.generation, class);
        self.near.queue_with_priority(priority).expect("root may");
        // if the discipline drops the frame, the sender gets no error, or ENOBUFS
        let _ = self.near.send(&frame(length, number));
    }

    /// Returns the number of the next frame that arrives, if there is one.
    fn receive(&self) -> Option<u32> {
        let mut frame = [0; 2048];
        self.far.receive(&mut frame).expect("the device is up")?;
        frame[14..].first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }
}

fn frame(length: u32, number: u32) -> Vec<u8> {
    let mut frame = vec![0; length as usize];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&TYPE.to_be_bytes());
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Loads the discipline, compiled now or by an earlier test.
fn load(setup: &Setup<'_>) -> Result<LoadedDiscipline, Skipped> {
    require::root()?;
    let skip = |error: ProgramError| match error {
        ProgramError::Host(_) => Skipped::because(error.to_string()),
        error => panic!("{error}"),
    };
    let types = supported().map_err(skip)?;
    let object = compile(FAIRQUEUE).map_err(skip)?;
    LoadedDiscipline::load_object(setup, &object, &types).map_err(|error| match error {
        discipline::Error::Program(error) => skip(error),
        error => panic!("{error}"),
    })
}

fn setup(hierarchy: &Hierarchy, others: ClassId) -> Setup<'_> {
    Setup { hierarchy, rate: Rate::new(RATE), others, by_priority: [None; PRIORITIES], room: None }
}

fn leaves(hierarchy: &Hierarchy) -> Vec<ClassId> {
    hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id)).collect()
}

/// Returns a random tree of classes, some with limits. The parent of each class is a class before it.
fn tree(random: &mut Pcg64Mcg, most: usize) -> Hierarchy {
    let count = random.random_range(2..=most);
    let (mut parents, mut depths, mut specs) = (vec![0], vec![0], vec![ClassSpec::new("link")]);
    for at in 1..count {
        let parent = random.random_range(0..at);
        let parent = if depths[parent] < 8 { parent } else { 0 };
        parents.push(parent);
        depths.push(depths[parent] + 1);
        let weight = random.random_range(1..20_u32).to_string().parse().expect("a weight");
        let mut spec = ClassSpec::new(format!("c{at}")).weighing(weight);
        if random.random_bool(0.2) {
            let overflow = if random.random_bool(0.5) { Overflow::DropLongest } else { Overflow::DropTail };
            spec.limit = Some(Limit { packets: random.random_range(1..8), bytes: u64::MAX, overflow });
        }
        specs.push(spec);
    }
    while specs.len() > 1 {
        let at = specs.len() - 1;
        let spec = specs.pop().expect("there is more than one");
        specs[parents[at]].children.insert(0, spec);
    }
    let tree = Hierarchy::new(specs.pop().expect("the root is left")).expect("names are unique");
    tree.with_default("rest").expect("a new name")
}

/// Sends frames through the device and through the scheduler of `unisono-fairqueue` (`paper`), with changes
/// of the classes now and then. Asserts that both choose the same order.
fn follow(cable: &mut Cable, random: &mut Pcg64Mcg, most_classes: usize, changes: f64) -> TestOutcome {
    let mut hierarchy = tree(random, most_classes);
    let others = |tree: &Hierarchy| tree.default_class().expect("every tree has one");
    let discipline = load(&setup(&hierarchy, others(&hierarchy)))?;
    let mut now = 1_000_000_000;
    discipline.set_clock(Instant::from_nanos(now)).expect("it is there");
    cable.give(&discipline).expect("the device takes it");
    let mut paper: Scheduler<u32> = Scheduler::new(hierarchy.clone());
    let mut free_at = 0;
    let choose = |cable: &Cable, paper: &mut Scheduler<u32>, free_at: &mut u64| {
        let (class, packet) = paper.dequeue(Instant::ZERO).expect("one waits");
        assert_eq!(cable.receive(), Some(packet.item), "of class {}", paper.hierarchy().class(class).name);
        *free_at += u64::from(packet.length) * 8;
    };
    for number in 0..120 {
        // now and then a pause in which the link may become idle
        now += if random.random_bool(0.1) { 200_000 } else { random.random_range(1..9_000) };
        while paper.backlog().packets > 0 && free_at <= now {
            discipline.set_clock(Instant::from_nanos(free_at)).expect("it is there");
            choose(cable, &mut paper, &mut free_at);
        }
        discipline.set_clock(Instant::from_nanos(now)).expect("it is there");
        if now >= free_at {
            paper.finish(Instant::ZERO);
            free_at = now; // nothing waits here, because everything that could leave has left
        }
        if random.random_bool(changes) {
            let new = tree(random, most_classes);
            cable.change(discipline.maps(), &hierarchy, &setup(&new, others(&new)));
            paper.apply(new.clone()).expect("there is a default class");
            hierarchy = new;
        }
        let leaves = leaves(&hierarchy);
        let leaf = leaves[random.random_range(0..leaves.len())];
        let length = random.random_range(60..1500);
        cable.send(leaf, length, number);
        paper.enqueue(Instant::ZERO, leaf, Packet::new(length, number)).expect("a leaf");
        if now >= free_at {
            choose(cable, &mut paper, &mut free_at);
        }
    }
    while paper.backlog().packets > 0 {
        discipline.set_clock(Instant::from_nanos(free_at)).expect("it is there");
        choose(cable, &mut paper, &mut free_at);
    }
    let counted = discipline.counted().expect("it counts");
    for leaf in leaves(&hierarchy) {
        let (here, served) = (counted[leaf.index()], paper.served(leaf));
        assert_eq!(
            (here.served_packets, here.served_bytes, here.dropped, here.packets),
            (served.packets, served.bytes, served.dropped, 0),
            "{}",
            hierarchy.class(leaf).name
        );
    }
    Ok(())
}

fn packets_leave_a_device_in_the_order_of_the_core() -> TestOutcome {
    let mut cable = Cable::new()?;
    for seed in (0..12).step_by(one_in(4)) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        follow(&mut cable, &mut random, if seed % 3 == 0 { 120 } else { 12 }, 0.0)?;
    }
    Ok(())
}

fn so_they_do_while_the_classes_change_and_none_is_lost() -> TestOutcome {
    let mut cable = Cable::new()?;
    for seed in (100..112).step_by(one_in(4)) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        follow(&mut cable, &mut random, if seed % 3 == 0 { 120 } else { 12 }, 0.1)?;
    }
    Ok(())
}

fn a_classifier_of_the_generation_before_is_understood_until_the_next() -> TestOutcome {
    let mut cable = Cable::new()?;
    let old = two_leaves().with_default("a").expect("a leaf");
    let discipline = load(&setup(&old, leaves(&old)[0]))?;
    cable.give(&discipline).expect("the device takes it");
    let new = ClassSpec::new("link").with(["x", "y", "b"].map(ClassSpec::new));
    let new = Hierarchy::new(new).expect("three names").with_default("y").expect("a leaf");
    let [b_before, b] = [&old, &new].map(|tree| tree.find("b").expect("it is there"));
    cable.change(discipline.maps(), &old, &setup(&new, new.default_class().expect("it is y")));
    let mut generation = 0;
    for (number, (sent_as, wanted)) in (1..).zip([(0, b), (1, b), (2, leaves(&new)[1])]) {
        let class = if sent_as == 0 { b_before } else { b };
        let before = discipline.counted().expect("it counts");
        generation = sent_as;
        cable.near.queue_with_priority(priority(cable.major, generation, class)).expect("root may");
        cable.near.send(&frame(100, number)).expect("the device is up");
        assert_eq!(cable.receive(), Some(number));
        let after = discipline.counted().expect("it counts");
        let at = wanted.index();
        assert_eq!(after[at].served_packets, before[at].served_packets + 1, "as of generation {sent_as}");
    }
    assert_eq!(generation, 2, "one that is not there yet is nobody's");
    Ok(())
}

fn one_set_of_classes_serves_one_device_and_goes_with_it() -> TestOutcome {
    let mut cable = Cable::new()?;
    let hierarchy = two_leaves();
    let discipline = load(&setup(&hierarchy, leaves(&hierarchy)[0]))?;
    cable.give(&discipline).expect("the device takes it");
    let error = cable.netlink.run(&[qdisc::root(FAR, discipline.kind(), 1)]);
    assert!(
        error.is_err_and(|error| error.errno == Errno::BUSY.raw_os_error()),
        "a second device cannot have it"
    );
    let kind = discipline.kind().to_owned();
    drop(discipline);
    assert!(Attached::open(&kind).is_some_and(|maps| maps.is_ok()), "the device still has it");
    cable.netlink.run(&[qdisc::remove_root(NEAR)]).expect("it goes");
    // the kernel frees maps a moment after their last user
    for _ in 0..1000 {
        if Attached::open(&kind).is_some_and(|maps| maps.is_err()) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the maps of {kind} stay");
}

fn two_leaves() -> Hierarchy {
    Hierarchy::new(ClassSpec::new("link").with([ClassSpec::new("a"), ClassSpec::new("b")]))
        .expect("two names")
}

fn what_waits_goes_with_the_discipline_which_can_be_given_again() -> TestOutcome {
    let mut cable = Cable::new()?;
    let hierarchy = two_leaves();
    let leaves = leaves(&hierarchy);
    let discipline = load(&setup(&hierarchy, leaves[0]))?;
    discipline.set_clock(Instant::from_secs(1)).expect("it is there");
    for round in 1..=3 {
        cable.give(&discipline).expect("the device takes it");
        for number in 0..40 {
            cable.send(leaves[number as usize % 2], 1000, number);
        }
        assert_eq!(cable.receive(), Some(0), "the first finds the link free, and the clock stands still");
        let waiting: u32 =
            discipline.counted().expect("it counts").iter().skip(1).map(|class| class.packets).sum();
        assert_eq!(waiting, 39);
        cable.netlink.run(&[qdisc::remove_root(NEAR)]).expect("it goes");
        let counted = discipline.counted().expect("it counts");
        let sum = |of: fn(&layout::Counted) -> u64| counted.iter().skip(1).map(of).sum::<u64>();
        assert_eq!((sum(|class| class.packets.into()), sum(|class| class.bytes)), (0, 0));
        assert_eq!((sum(|class| class.served_packets), sum(|class| class.dropped)), (round, 39 * round));
        // the next round begins when the link has been free for long
        discipline.set_clock(Instant::from_secs(round + 1)).expect("it is there");
    }
    Ok(())
}

fn a_link_is_never_faster_than_its_rate() -> TestOutcome {
    const BYTES: u32 = 1000;
    let mut cable = Cable::new()?;
    let hierarchy = two_leaves();
    let leaves = leaves(&hierarchy);
    // a byte a microsecond
    let discipline = load(&Setup { rate: Rate::new(8_000_000), ..setup(&hierarchy, leaves[0]) })?;
    cable.give(&discipline).expect("the device takes it");
    let begin = StdInstant::now();
    for number in 0..80 {
        cable.send(leaves[number as usize % 2], BYTES, number);
    }
    for _ in 0..80 {
        cable.receive().expect("all of them arrive");
    }
    // 79 ms for 80 frames, because the time after the last frame does not count; the discipline makes up for
    // a timer that fires late, so delays do not add up
    assert!(begin.elapsed() >= Duration::from_millis(79), "{:?}", begin.elapsed());
    Ok(())
}

fn priorities_stand_for_classes() -> TestOutcome {
    let mut cable = Cable::new()?;
    let hierarchy = two_leaves();
    let leaves = leaves(&hierarchy);
    let mut setup = setup(&hierarchy, leaves[0]);
    setup.by_priority[6] = Some(leaves[1]);
    let discipline = load(&setup)?;
    cable.give(&discipline).expect("the device takes it");
    let class = |minor: u32| u32::from(cable.major) << 16 | minor;
    // each priority with the index of the leaf that gets the frame: one that the setup maps to a leaf; two
    // that it does not map (default leaf); the handle of a leaf; and the handles of an inner class, of no
    // class, and of a class of another discipline (default leaf)
    let priorities = [(6, 1), (0, 0), (7, 0), (class(3), 1), (class(1), 0), (class(99), 0), (0x0077_0003, 0)];
    for (number, (priority, wanted)) in (1..).zip(priorities) {
        let before = discipline.counted().expect("it counts");
        cable.near.queue_with_priority(priority).expect("root may");
        cable.near.send(&frame(100, number)).expect("the device is up");
        assert_eq!(cable.receive(), Some(number));
        let after = discipline.counted().expect("it counts");
        let gained = |leaf: ClassId| after[leaf.index()].served_packets - before[leaf.index()].served_packets;
        assert_eq!([gained(leaves[wanted]), gained(leaves[1 - wanted])], [1, 0], "{priority:#x}");
    }
    Ok(())
}

/// Returns a frame with a UDP packet to a port.
fn datagram(port: u16) -> Vec<u8> {
    let mut frame = frame(100, 0);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 86, 0, 0, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&9_u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

const POLICY: &str = r#"
rate = "1gbit"
default = "rest"
[class.media.video]
weight = 3
match = [{ port = 5004, protocol = "udp" }]
[class.mail]
match = [{ priority = 6 }]
"#;

fn a_policy_holds_by_our_scheduler_in_the_kernel_and_goes_without_a_trace() -> TestOutcome {
    let mut cable = Cable::new()?;
    require::path("/sys/fs/cgroup", "no control groups")?;
    load(&setup(&two_leaves(), leaves(&two_leaves())[0]))?; // skips the test if the host lacks a feature
    let ip = PacketSocket::open(NEAR, 0x0800).expect("the device is up");
    let mut place = FairQueue::new("near");
    let policy = |text: &str| Policy::parse(text).expect("it is sound");
    place.check(&policy(POLICY)).expect("this kernel can");
    place.apply(&policy(POLICY)).expect("this kernel can");
    let counts = |place: &mut FairQueue| {
        let live = place.live().expect("it holds");
        live.classes.iter().map(|class| (class.name.clone(), class.packets)).collect::<Vec<_>>()
    };
    let counted = |expected: &[(&str, u64)], counts: &[(String, u64)]| {
        expected
            .iter()
            .all(|(name, count)| counts.iter().any(|(class, packets)| class == name && packets == count))
    };
    for (priority, port) in [(0, 5004), (6, 5004), (6, 80), (0, 80), (0, 5004)] {
        ip.queue_with_priority(priority).expect("root may");
        ip.send(&datagram(port)).expect("the device is up");
    }
    let expected = [("media", 3), ("video", 3), ("mail", 1), ("rest", 1)];
    let mut tries = 0;
    while !counted(&expected, &counts(&mut place)) {
        tries += 1;
        assert!(tries < 1000, "{:?}", counts(&mut place));
        std::thread::sleep(Duration::from_millis(10));
    }
    let live = place.live().expect("it holds");
    for class in &live.classes {
        let delay = class.delay.expect("a packet of each has left");
        let figures = [delay.min_ns, delay.median_ns, delay.p99_ns, delay.max_ns];
        assert!(figures.is_sorted() && delay.mean_ns >= delay.min_ns, "{}: {delay:?}", class.name);
    }
    place.apply(&policy(&POLICY.replace("mail", "post"))).expect("another in its place");
    let now = counts(&mut place);
    assert!(counted(&[("video", 3), ("post", 0)], &now), "those that stay count on: {now:?}");
    let with_ceiling = policy("rate = \"1gbit\"\n[class.a]\nceiling = \"1mbit\"");
    assert!(place.apply(&with_ceiling).is_err(), "it keeps no ceilings");
    assert!(
        counts(&mut place).iter().any(|(name, _)| name == "post"),
        "and the policy before still holds"
    );
    assert_eq!(
        backends::in_force(&LinkSide::out("near")).expect("it is known").live().expect("it holds").backend,
        FairQueue::BPF_BACKEND
    );

    place.remove().expect("it goes");
    let left = qdisc::of_device(&mut cable.netlink, NEAR).expect("a list");
    assert!(left.iter().all(|qdisc| qdisc.handle == 0), "{left:?}");
    assert!(place.live().is_err(), "nothing holds any more");
    cable.give(&load(&setup(&two_leaves(), leaves(&two_leaves())[0]))?).expect("the device is free");
    Ok(())
}

/// Tests the kernel's own classes (HTB) with `fq_codel`.
fn a_flow_beside_a_bulk_one_in_a_class_of_the_kernel_does_not_wait_for_all_of_it() -> TestOutcome {
    // fewer than a socket's buffer holds; otherwise the last frame would be sent only after many have left
    const BULK: usize = 120;
    let mut cable = Cable::new()?;
    require::path("/sys/fs/cgroup", "no control groups")?;
    if !qdisc::knows(&mut cable.netlink, "fq_codel").expect("the kernel answers") {
        return Err(Skipped::because("this kernel has no fq_codel (CONFIG_NET_SCH_FQ_CODEL)"));
    }
    let open = |device| PacketSocket::open(device, 0x0800).expect("the device is up");
    let (near, far) = (open(NEAR), open(FAR));
    near.queue_with_priority(0).expect("root may");
    far.set_timeout(Duration::from_secs(2)).expect("a time");
    let mut place = Kernel::new("near");
    for (how, kind) in [("ecn = \"2ms\"", "fq_codel"), ("", "fq_codel"), ("packets = 1000", "pfifo")] {
        let policy = format!("rate = \"40kbit\"\ndefault = \"a\"\n[class.a]\n{how}");
        place.apply(&Policy::parse(&policy).expect("it is sound")).expect("this kernel can");
        let all = qdisc::of_device(&mut cable.netlink, NEAR).expect("a list");
        assert!(all.iter().any(|qdisc| qdisc.kind == kind), "{how}: {all:?}");
        for port in std::iter::repeat_n(5001, BULK).chain([5002]) {
            near.send(&datagram(port)).expect("there is room");
        }
        let (mut before, mut found, mut frame) = (0, false, [0; 2048]);
        while far.receive(&mut frame).expect("the device is up").is_some() {
            found |= frame[36..38] == 5002_u16.to_be_bytes();
            before += usize::from(!found);
        }
        let is_early = kind == "fq_codel";
        assert!(found && (before < BULK / 2) == is_early, "{how}: {before} of {BULK} before the small one");
        place.remove().expect("it goes");
    }
    let left = qdisc::of_device(&mut cable.netlink, NEAR).expect("a list");
    assert!(left.iter().all(|qdisc| qdisc.handle == 0), "{left:?}");
    Ok(())
}

fn another_policy_is_applied_without_losing_what_waits() -> TestOutcome {
    let cable = Cable::new()?;
    require::path("/sys/fs/cgroup", "no control groups")?;
    load(&setup(&two_leaves(), leaves(&two_leaves())[0]))?; // skips the test if the host lacks a feature
    let mut place = FairQueue::new("near");
    let policy = |text: &str| Policy::parse(text).expect("it is sound");
    // a frame takes a second
    let slow = POLICY.replace("1gbit", "8kbit");
    place.apply(&policy(&slow)).expect("this kernel can");
    for number in 0..30 {
        cable.near.queue_with_priority(if number % 2 == 0 { 6 } else { 0 }).expect("root may");
        cable.near.send(&frame(1000, number)).expect("there is room");
    }
    let waiting = |place: &mut FairQueue, name: &str| {
        let live = place.live().expect("it holds");
        live.classes.iter().find(|class| class.name == name).map(|class| class.backlog.packets)
    };
    let (mail, rest) = (waiting(&mut place, "mail"), waiting(&mut place, "rest"));
    assert!(mail > Some(3) && rest > Some(3), "most of them wait: {mail:?} {rest:?}");

    // changes the weights, which takes effect at once; then applies another tree, which lacks the class
    // `mail`
    place.apply(&policy(&slow.replace("weight = 3", "weight = 5"))).expect("the same classes");
    assert!(waiting(&mut place, "mail") > Some(3), "they still do");
    let fast = "rate = \"1gbit\"\ndefault = \"rest\"\n[class.a.rest]\n[class.a.b]\nmatch = [{ port = 80 }]";
    place.apply(&policy(fast)).expect("another tree");
    assert!(place.notes().is_empty(), "{:?}", place.notes());
    let mut arrived: Vec<u32> = (0..30).map(|_| cable.receive().expect("none is lost")).collect();
    for parity in [0, 1] {
        let class: Vec<u32> = arrived.iter().copied().filter(|number| number % 2 == parity).collect();
        assert!(class.is_sorted(), "in the order of their class: {class:?}");
    }
    arrived.sort_unstable();
    assert_eq!(arrived, (0..30).collect::<Vec<_>>());
    assert_eq!(waiting(&mut place, "mail"), None);
    place.remove().expect("it goes");
    Ok(())
}

fn a_change_that_is_stopped_or_killed_leaves_what_was_there() -> TestOutcome {
    let cable = Cable::new()?;
    require::path("/sys/fs/cgroup", "no control groups")?;
    load(&setup(&two_leaves(), leaves(&two_leaves())[0]))?; // skips the test if the host lacks a feature
    let policy = |text: &str| Policy::parse(text).expect("it is sound");
    let mut netlink = NetlinkSocket::open().expect("route netlink");
    let mut seen = || {
        let all = qdisc::of_device(&mut netlink, NEAR).expect("a list");
        all.into_iter().filter(|qdisc| qdisc.handle != 0).map(|qdisc| qdisc.kind).collect::<Vec<_>>()
    };
    let stopped_at = |time: u32, text: &str| {
        let mut asked = 0;
        let mut place = FairQueue::new("near").with_interrupt_check(move || {
            asked += 1;
            (asked == time).then(|| "a test".to_owned())
        });
        place.apply(&policy(text)).map(drop).map_err(|error| error.to_string())
    };
    let journal = Journal::for_device("near").expect("/proc is there");
    for time in [1, 2] {
        let error = stopped_at(time, POLICY).expect_err("it is stopped");
        assert!(error.contains("is as it was"), "{error}");
        assert_eq!((seen(), journal.path().exists()), (vec![], false), "stopped the {time}. time");
    }
    let mut place = FairQueue::new("near");
    place.apply(&policy(POLICY)).expect("this kernel can");
    let (held, note) = (seen(), std::fs::read(journal.path()).expect("it holds"));
    for time in [1, 2] {
        stopped_at(time, &POLICY.replace("mail", "post")).expect_err("it is stopped");
        assert_eq!(seen(), held);
        assert_eq!(std::fs::read(journal.path()).expect("it holds"), note);
        let live = place.live().expect("it holds");
        assert!(live.classes.iter().any(|class| class.name == "mail"), "{live:?}");
        // packets still reach the policy's classes
        let before = live.classes.iter().find(|class| class.name == "mail").map(|class| class.packets);
        cable.near.queue_with_priority(6).expect("root may");
        cable.near.send(&frame(100, 1)).expect("the device is up");
        assert_eq!(cable.receive(), Some(1));
        let after = place.live().expect("it holds").classes.into_iter().find(|class| class.name == "mail");
        assert_eq!(after.map(|class| class.packets), before.map(|packets| packets + 1));
    }
    // simulates a kill during a change: the journal says that a change was in progress, and the next command
    // restores the state before the policy (no discipline and no journal)
    let half_way = String::from_utf8(note).expect("text").replace("\"holds\"", "\"changing\"");
    std::fs::write(journal.path(), half_way).expect("root may");
    assert!(place.live().is_err(), "nothing holds any more");
    assert!(place.notes().iter().any(|note| note.contains("left half way")), "{:?}", place.notes());
    assert_eq!((seen(), journal.path().exists()), (vec![], false));
    Ok(())
}

host_tests![needs Queues;
    a_change_that_is_stopped_or_killed_leaves_what_was_there,
    packets_leave_a_device_in_the_order_of_the_core within 300,
    so_they_do_while_the_classes_change_and_none_is_lost within 300,
    a_classifier_of_the_generation_before_is_understood_until_the_next,
    another_policy_is_applied_without_losing_what_waits,
    one_set_of_classes_serves_one_device_and_goes_with_it,
    what_waits_goes_with_the_discipline_which_can_be_given_again,
    priorities_stand_for_classes,
    a_link_is_never_faster_than_its_rate,
    a_policy_holds_by_our_scheduler_in_the_kernel_and_goes_without_a_trace,
    a_flow_beside_a_bulk_one_in_a_class_of_the_kernel_does_not_wait_for_all_of_it,
];
