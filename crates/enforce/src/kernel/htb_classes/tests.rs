//! Numbers, rates, turns and queues of the kernel's classes for policies.

use super::*;

fn policy(text: &str) -> Policy {
    Policy::parse(&format!("rate = \"100mbit\"\ndefault = \"rest\"\n{text}")).expect("it is sound")
}

const THREE: &str = "[class.a]\nweight = 6\n[class.b]\nweight = 3\nceiling = \"50mbit\"\n[class.rest]";

fn planned(policy: &Policy) -> Vec<PlannedClass> {
    plan(
        policy,
        &number(policy, &ClassNumbers::new(), FlowTurns::Unknown).expect("few classes"),
        Longest { sent: 16_000, arriving: 16_000 },
        Tuning::ByWeight,
        &[],
        &ClassesInForce::default(),
    )
}

#[test]
fn rates_follow_the_weights_and_ceilings_the_policy() {
    let plan = planned(&policy(THREE));
    let of = |f: fn(&PlannedClass) -> u64| plan.iter().map(f).collect::<Vec<_>>();
    assert_eq!(of(|planned| planned.class.rate.0), [12_500_000, 7_500_000, 3_750_000, 1_250_000]);
    assert_eq!(of(|planned| planned.class.ceiling.0), [12_500_000, 12_500_000, 6_250_000, 12_500_000]);
    assert_eq!(of(|planned| planned.class.quantum.into())[1..], [6 * 18_514, 3 * 18_514, 18_514]);
    assert_eq!(plan[1].class.parent, plan[0].class.number);
    assert_eq!(plan[0].class.parent, HANDLE);
    assert_eq!(plan[0].leaf, None);
    let room = |bytes| Some(LeafDiscipline::Together(Room::Bytes(bytes)));
    assert_eq!(plan[1].leaf, room(150_000), "20 ms");
    assert_eq!(plan[3].leaf, room(65_536), "no local connection starves");
}

#[test]
fn a_turn_and_a_queue_hold_the_longest_packet_as_it_is_charged() {
    let in_cells = Policy::parse("rate = \"1mbit\"\natm = true\n[class.a]\n").expect("it is sound");
    let plan = planned(&in_cells);
    let charged = 386 * 53; // 18,514 bytes in cells of 48
    assert_eq!(plan[1].class.quantum, charged);
    assert_eq!(plan[1].leaf, Some(LeafDiscipline::Together(Room::Bytes(65_536))));
    assert_eq!(room(None, ByteRate(125_000), 40_000), Room::Bytes(80_000), "two of the longest packets");
}

#[test]
fn the_longest_packet_takes_a_quarter_of_a_millisecond_and_a_turn_is_no_shorter_than_it() {
    let longest = |rate: &str, now| {
        let policy = Policy::parse(&format!("rate = \"{rate}\"")).expect("it is sound");
        Tuning::ByWeight.longest(&policy, now)
    };
    assert_eq!(longest("100mbit", 65_536), 3125);
    assert_eq!(longest("1gbit", 65_536), 31_250);
    assert_eq!(longest("10gbit", 65_536), 65_536);
    assert_eq!(longest("1mbit", 65_536), 3028);
    assert_eq!(longest("100mbit", 2000), 2000);
    let skewed = planned(&policy("[class.a]\nweight = 1000000\n[class.b]"));
    assert!(skewed.iter().all(|planned| (18_514..=625_000).contains(&planned.class.quantum)));
}

#[test]
fn children_never_have_more_than_their_parent() {
    let below =
        "[class.a.b]\nweight = 7\n[class.a.c]\nweight = 3\n[class.a.d]\nweight = 1.7\n[class.x]\nweight = 3";
    let with_ceiling = format!("[class.a]\nweight = 2\nceiling = \"30mbit\"\n{below}");
    for text in [below, &with_ceiling] {
        let plan = planned(&policy(text));
        for above in &plan {
            let below = plan.iter().filter(|planned| planned.class.parent == above.class.number);
            assert!(below.map(|planned| planned.class.rate.0).sum::<u64>() <= above.class.rate.0, "{text}");
            assert!(above.class.rate <= above.class.ceiling, "{text}");
        }
    }
}

#[test]
fn a_class_that_stays_what_it_is_keeps_its_number_and_no_number_is_used_for_two() {
    let number =
        |text: &str, before: &ClassNumbers, can| number(&policy(text), before, can).expect("few classes");
    let before = number(THREE, &ClassNumbers::new(), FlowTurns::Unknown);
    let changed = "[class.new]\n[class.b.inner]\n[class.a]\nweight = 2\n[class.rest]";
    let after = number(changed, &before, FlowTurns::Unknown);
    assert_eq!(after["a"], before["a"]);
    assert_eq!(after["rest"], before["rest"]);
    assert_ne!(after["b"].own, before["b"].own, "it has a child now");
    assert_eq!(removed_numbers(&before, &after), [before["b"].own]);
    let mut own: Vec<u16> = after.values().chain([&before["b"]]).map(|number| number.own).collect();
    own.sort_unstable();
    own.dedup();
    assert_eq!(own.len(), after.len() + 1);
    let fair = number(THREE, &before, FlowTurns::Known);
    assert_eq!(fair["root"], before["root"]);
    assert_ne!(fair["a"].own, before["a"].own, "what waits would be lost with the discipline");
    assert_eq!(number(THREE, &fair, FlowTurns::Known), fair);
}

#[test]
fn leaves_of_sockets_share_their_class_with_its_other_packets() {
    let policy = policy(
        "[class.video]\nweight = 3\nsockets = { from = [\"alice\"], weight = \"1..100\" }\n[class.rest]",
    );
    let numbers = number(&policy, &ClassNumbers::new(), FlowTurns::Known).expect("few classes");
    let class = numbers["video"].own;
    let socket = |leaf, weight| SocketLeaf { leaf, class, weight, user: 1000, program: Default::default() };
    let sockets = [socket(0xf000, 3.0), socket(0xf001, 1.0), SocketLeaf { class: 99, ..socket(0xf002, 1.0) }];
    let longest = Longest { sent: 3000, arriving: 3000 };
    let plan = plan(&policy, &numbers, longest, Tuning::ByWeight, &sockets, &ClassesInForce::default());
    let names: Vec<&str> = plan.iter().map(|planned| planned.name.as_str()).collect();
    assert_eq!(names, ["root", "video", "video", "video", "video", "rest"]);
    let of =
        |own: u16| plan.iter().find(|planned| planned.class.number == class_handle(own)).expect("planned");
    assert_eq!(of(class).leaf, None);
    let rates = [packet_class(&numbers, "video"), 0xf000, 0xf001].map(|own| of(own).class.rate.0);
    assert_eq!(rates, [1_875_000, 5_625_000, 1_875_000], "1, 3 and 1 of 75 Mbit/s");
    assert_eq!(of(0xf000).class.quantum, 3 * of(0xf001).class.quantum);
    assert!(matches!(of(0xf000).leaf, Some(LeafDiscipline::Together(Room::Bytes(187_500)))));
    assert!(matches!(of(packet_class(&numbers, "video")).leaf, Some(LeafDiscipline::Fair(_))));
    assert_eq!(packet_class(&numbers, "rest"), numbers["rest"].own);
    assert_eq!(levels(&policy), 3);
    let again = number(&policy, &numbers, FlowTurns::Known).expect("few classes");
    assert_eq!(again, numbers);
}

#[test]
fn flows_take_turns_where_the_kernel_can_unless_a_class_says_how_much_may_wait() {
    let text = "[class.a]\necn = \"2ms\"\n[class.b]\npackets = 9\n[class.c]\npackets = 9\nflows = \"fair\"\n\
                [class.d]\nlimit = \"64KiB\"\nflows = \"fair\"\n[class.slow]\nweight = 0.01\nceiling = \"1mbit\"";
    let policy = policy(text);
    let plan = |can| {
        let numbers = number(&policy, &ClassNumbers::new(), can).expect("few classes");
        let longest = Longest { sent: 3000, arriving: 3000 };
        plan(&policy, &numbers, longest, Tuning::ByWeight, &[], &ClassesInForce::default())
    };
    let leaf = |can, name: &str| {
        let plan = plan(can);
        plan.iter().find(|class| class.name == name).expect("it is there").leaf.expect("a leaf")
    };
    let fair = |name| match leaf(FlowTurns::Known, name) {
        LeafDiscipline::Fair(codel) => codel,
        LeafDiscipline::Together(room) => panic!("{name}: {room:?}"),
    };
    let (a, slow) = (fair("a"), fair("slow"));
    assert_eq!((a.target_us, a.interval_us, a.mark_us, a.packets), (5000, 100_000, Some(2000), None));
    assert_eq!(a.memory, 1_250_000, "100 ms of the link");
    assert!(slow.target_us > 50_000 && slow.interval_us >= 10 * slow.target_us, "{slow:?}");
    assert_eq!(leaf(FlowTurns::Known, "b"), LeafDiscipline::Together(Room::Packets(9)));
    assert_eq!((fair("c").packets, fair("d").memory), (Some(9), 65_536));
    for class in ["a", "c", "d", "slow"] {
        assert!(matches!(leaf(FlowTurns::Unknown, class), LeafDiscipline::Together(_)), "{class}");
    }
    assert!(unsupported_notes(&policy, FlowTurns::Known).is_empty());
    assert_eq!(unsupported_notes(&policy, FlowTurns::Unknown).len(), 3);
}

#[test]
fn what_the_kernel_cannot_do_is_said() {
    let notes = unsupported_notes(
        &policy(
            "[class.a]\norder = \"deadline\"\n[class.b]\npackets = 3\n[class.b.c]\npackets = 9\noverflow = \"drop-longest\"\n\
         [class.d]\nflows = \"fair\"\necn = \"5ms\"",
        ),
        FlowTurns::Unknown,
    );
    assert_eq!(notes.len(), 5, "{notes:?}");
    assert!(unsupported_notes(&policy(THREE), FlowTurns::Unknown).is_empty());
}

#[test]
fn the_queues_of_few_classes_have_numbers_of_the_kernels_choice_and_most_others_their_own() {
    let handles: Vec<u32> = (LINK + 1..FIRST_LEAF).map(|own| leaf_handle(class_handle(own))).collect();
    let own: HashSet<u32> = handles.iter().copied().filter(|handle| *handle != qdisc::AUTOMATIC).collect();
    assert!(handles[..20_000].iter().all(|handle| *handle == qdisc::AUTOMATIC));
    assert!(!own.contains(&HANDLE) && own.iter().all(|handle| handle & 0xffff == 0 && *handle < 0x8000_0000));
    let chosen = handles.iter().filter(|handle| **handle == qdisc::AUTOMATIC).count();
    assert!(chosen + own.len() == handles.len() && chosen < 30_000, "{chosen}: the kernel has 32,767");
}
