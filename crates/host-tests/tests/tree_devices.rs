//! Tests barriers in simulated switches on this host: they synchronize, groups do not disturb each other,
//! losses are repaired, missing members are named, and nothing is left behind.

use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use unisono_btin::generate::{NetworkOptions, Sparse, generate};
use unisono_btin::{
    BarrierGroup, End, GroupId, NetworkFile, NodeId, Port, ReductionOperator, SwitchId, SwitchLink,
    SwitchNetwork, TurnPoint,
};
use unisono_fabric::orders::BarrierRun;
use unisono_fabric::software::SoftwareAlgorithm;
use unisono_fabric::{BarrierJob, Deployment, Error};
use unisono_host_tests::processes::until;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, require};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::netlink::link::LinkState;
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::process::{PidFd, Signal};

fn here() -> TestOutcome {
    require::root()?;
    require::program("clang", "apt-get install clang libbpf-dev")?;
    require::path("/usr/include/bpf/bpf_helpers.h", "apt-get install libbpf-dev")
}

fn end(switch: u32, port: u16) -> End {
    End { switch: SwitchId(switch), port: Port(port) }
}

/// Returns a network of four switches in a ring with two nodes each, in which any one link is dispensable.
fn ring() -> SwitchNetwork {
    let links = (0..4).map(|at| SwitchLink { a: end(at, 0), b: end((at + 1) % 4, 1) }).collect();
    let nodes = (0..8).map(|node| end(node / 2, 2 + (node % 2) as u16)).collect();
    SwitchNetwork::new(vec![4; 4], links, nodes).expect("each port is used once")
}

/// All nodes of the ring.
const EVERYBODY: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

fn job(
    network: &SwitchNetwork,
    id: u8,
    members: &[u32],
    turn: TurnPoint,
    operation: ReductionOperator,
) -> BarrierJob {
    let members = members.iter().copied().map(NodeId).collect();
    let group = BarrierGroup::new(network, GroupId(id), members).expect("the members are there");
    BarrierJob { group, turn, operation }
}

/// Deploys barriers. Skips the test, with the error as the reason, if the host lacks BPF.
fn deploy<'a>(network: &'a SwitchNetwork, jobs: &'a [BarrierJob]) -> Result<Deployment<'a>, Skipped> {
    let mut deployment = match Deployment::new(network, jobs) {
        Ok(deployment) => deployment,
        Err(error @ (Error::Host(_) | Error::System { .. })) => {
            return Err(Skipped::because(error.to_string()));
        }
        Err(error) => panic!("{error}"),
    };
    deployment.set_up().expect("the network carries requests");
    Ok(deployment)
}

fn run(count: u32) -> BarrierRun {
    BarrierRun { warm_up: 0, count, trace: true, stuck_after: 20_000 }
}

fn barriers_hold_in_both_ways_to_turn_and_registers_are_released() -> TestOutcome {
    here()?;
    let network = ring();
    let jobs = [
        job(&network, 0, &EVERYBODY, TurnPoint::AtNode, ReductionOperator::Min),
        job(&network, 255, &EVERYBODY, TurnPoint::AtSwitch, ReductionOperator::And),
    ];
    let mut deployment = deploy(&network, &jobs)?;
    for position in 0..jobs.len() {
        let ran = deployment.barriers(&[position], run(300)).expect("nobody is missing");
        assert_eq!((ran.moments.len(), ran.moments[&NodeId(0)].len()), (8, 300));
        assert!(ran.is_synchronized(), "job {position}");
    }
    assert_eq!(deployment.release().expect("switches answer"), 8, "four switches, two groups");
    for switch in network.switches() {
        assert_eq!(deployment.program().setup(switch, GroupId(255)).expect("there is one"), 0);
    }
    Ok(())
}

fn groups_that_share_members_and_switches_do_not_disturb_each_other() -> TestOutcome {
    here()?;
    let network = ring();
    let jobs = [
        job(&network, 1, &EVERYBODY, TurnPoint::AtNode, ReductionOperator::Or),
        job(&network, 2, &[0, 2, 4, 6], TurnPoint::AtSwitch, ReductionOperator::Max),
        job(&network, 3, &[6, 7], TurnPoint::AtNode, ReductionOperator::Min),
        job(&network, 4, &[5], TurnPoint::AtNode, ReductionOperator::Or),
    ];
    let mut deployment = deploy(&network, &jobs)?;
    let ran = deployment.barriers(&[0, 1, 2, 3], run(200)).expect("nobody is missing");
    assert!(ran.moments.values().all(|member| member.len() == 200));
    assert!(ran.is_synchronized(), "in its own group");
    // the members of the second group alone wait only for each other
    let ran = deployment.barriers(&[1], run(50)).expect("nobody is missing");
    assert_eq!(ran.moments.len(), 4);
    assert!(ran.is_synchronized());
    Ok(())
}

fn a_single_member_waits_for_nobody_and_a_root_switch_with_one_member_serves_all() -> TestOutcome {
    here()?;
    let network = ring();
    for turn in [TurnPoint::AtNode, TurnPoint::AtSwitch] {
        let jobs = [
            job(&network, 0, &[3], turn, ReductionOperator::Min),
            job(&network, 1, &[0, 2, 6], turn, ReductionOperator::Max), // at three switches
        ];
        let mut deployment = deploy(&network, &jobs)?;
        for together in [&[0][..], &[1], &[0, 1]] {
            let ran = deployment.barriers(together, run(200)).expect("nobody is missing");
            assert!(ran.moments.values().all(|member| member.len() == 200), "{turn:?} {together:?}");
            assert!(ran.is_synchronized(), "{turn:?} {together:?}");
        }
        assert_eq!(deployment.release().expect("switches answer"), 4);
    }
    Ok(())
}

fn lost_frames_are_sent_again_and_barriers_still_hold() -> TestOutcome {
    here()?;
    let network = ring();
    let turns = [TurnPoint::AtNode, TurnPoint::AtSwitch];
    let jobs: Vec<BarrierJob> = (0..)
        .zip(turns)
        .map(|(id, turn)| job(&network, id, &EVERYBODY, turn, ReductionOperator::Or))
        .collect();
    let mut deployment = deploy(&network, &jobs)?;
    deployment.program().lose_one_in(20).expect("a setting");
    for position in 0..jobs.len() {
        let ran = deployment.barriers(&[position], run(40)).expect("nobody is missing");
        assert!(ran.is_synchronized());
        assert!(ran.repeated > 0, "one frame of twenty was lost");
    }
    let counters = deployment.program().counters().expect("counters");
    assert!(
        counters.iter().any(|(name, count)| *name == "lost on purpose" && *count > 0),
        "{counters:?}"
    );
    Ok(())
}

fn software_barriers_cross_the_same_switches() -> TestOutcome {
    here()?;
    let network = ring();
    let jobs = [job(&network, 0, &EVERYBODY, TurnPoint::AtNode, ReductionOperator::Or)];
    let mut deployment = deploy(&network, &jobs)?;
    for algorithm in
        [SoftwareAlgorithm::Central, SoftwareAlgorithm::Tree(2), SoftwareAlgorithm::Dissemination]
    {
        let ran = deployment.software(algorithm, 0, run(100)).expect("nobody is missing");
        assert!(ran.is_synchronized(), "{algorithm}");
    }
    Ok(())
}

fn a_node_whose_process_is_killed_is_named() -> TestOutcome {
    here()?;
    let network = ring();
    let jobs = [job(&network, 0, &EVERYBODY, TurnPoint::AtNode, ReductionOperator::Or)];
    let mut deployment = deploy(&network, &jobs)?;
    let victim = deployment.process(NodeId(5)).expect("it runs");
    PidFd::open(victim).and_then(|process| process.send(Signal::Kill)).expect("it runs");
    let error = deployment.barriers(&[0], run(10)).expect_err("node 5 is dead").to_string();
    assert_eq!(error, "the process of node 5 (port 3 of switch 2) was killed by signal 9");
    assert!(deployment.process(NodeId(5)).is_none());
    Ok(())
}

/// Starts a shell with these commands in the namespace of a switch. The caller waits for its end.
fn inside(deployment: &mut Deployment<'_>, switch: u32, commands: &str) -> std::process::Child {
    let home = NetworkNamespace::current().expect("our own");
    deployment.fabric().switch(SwitchId(switch)).enter().expect("root may");
    let child = Command::new("sh").args(["-c", commands]).spawn();
    home.enter().expect("root may");
    child.expect("sh is on every Linux")
}

fn a_cable_that_is_pulled_is_named_at_once_and_barriers_go_on_without_it() -> TestOutcome {
    here()?;
    require::program("ip", "apt-get install iproute2")?;
    let network = ring();
    let jobs = [job(&network, 0, &EVERYBODY, TurnPoint::AtSwitch, ReductionOperator::Or)];
    // no timeout expires in this test, so only the kernel's report of the link can end the barriers
    let run = |count| BarrierRun { stuck_after: 3_600_000, ..run(count) };
    let mut deployment = deploy(&network, &jobs)?;
    deployment.barriers(&[0], run(10)).expect("nobody is missing");
    // the tree uses three of the four links, so at least one of the root switch's two
    let mut far = inside(&mut deployment, 1, "sleep 0.3; ip link set p1 down");
    let error = deployment.barriers(&[0], run(10_000_000)).expect_err("link 0 is down");
    far.wait().expect("it ends");
    assert!(matches!(error, Error::Cable(_)), "{error}");
    assert_eq!(error.to_string(), "link 0 between switch 0 (port 0) and switch 1 (port 1) is down");
    let repaired = deployment.set_up_again(&[]).expect("the ring is still connected");
    assert_eq!((repaired.registers, repaired.roots), (4, 0), "the root stays");
    assert_eq!(deployment.without(), [0]);
    assert!(deployment.barriers(&[0], run(20)).expect("nobody is missing").is_synchronized());
    // when the cable is plugged in again, the next deployment uses it again
    inside(&mut deployment, 1, "ip link set p1 up").wait().expect("it ends");
    until("the kernel has said that link 0 is back", || {
        deployment.set_up_again(&[]).expect("everything is connected");
        deployment.without().is_empty()
    });
    assert!(deployment.barriers(&[0], run(20)).expect("nobody is missing").is_synchronized());
    // a device that is removed counts as a cable that is unplugged
    inside(&mut deployment, 0, "ip link delete p0").wait().expect("it ends");
    let error = deployment.barriers(&[0], run(10)).expect_err("link 0 is gone");
    assert!(matches!(error, Error::Cable(_)), "{error}");
    Ok(())
}

fn a_cable_that_nothing_replaces_is_waited_for_and_named_at_the_time_limit() -> TestOutcome {
    here()?;
    require::program("ip", "apt-get install iproute2")?;
    let link = SwitchLink { a: end(0, 0), b: end(1, 0) };
    let nodes = (0..4).map(|node| end(node / 2, 2 + (node % 2) as u16)).collect();
    let network = SwitchNetwork::new(vec![4; 2], vec![link], nodes).expect("each port is used once");
    let jobs = [job(&network, 0, &[0, 1, 2, 3], TurnPoint::AtNode, ReductionOperator::Or)];
    let told = RefCell::new(Vec::new());
    let mut deployment = deploy(&network, &jobs)?;
    deployment.listen(|text| told.borrow_mut().push(text.to_owned()));
    deployment.barriers(&[0], run(10)).expect("nobody is missing");
    deployment.fabric().set_link(&link, LinkState::Down).expect("root may");
    let mut near = inside(&mut deployment, 0, "sleep 0.5; ip link set p0 up");
    let mut far = inside(&mut deployment, 1, "sleep 0.5; ip link set p0 up");
    let ran = deployment.barriers(&[0], run(10)).expect("the cable comes back");
    assert!(ran.repeated > 0 && ran.is_synchronized());
    near.wait().and_then(|_| far.wait()).expect("they end");

    let short = BarrierRun { stuck_after: 1_000, ..run(10) };
    inside(&mut deployment, 1, "ip link set p3 down").wait().expect("it ends");
    let error = deployment.barriers(&[0], short).expect_err("node 3 is cut off").to_string();
    assert!(error.ends_with("the cable between node 3 and switch 1 (port 3) is down"), "{error}");
    let error = deployment.set_up_again(&[]).expect_err("it still is").to_string();
    assert!(error.ends_with("is down, and there is no other"), "{error}");
    drop(deployment);
    let name = "link 0 between switch 0 (port 0) and switch 1 (port 0)";
    assert_eq!(told.borrow()[..2], [format!("{name} is down"), format!("{name} is up again")]);
    Ok(())
}

fn a_cable_that_loses_what_is_sent_is_named_from_the_registers() -> TestOutcome {
    here()?;
    let network = ring();
    let jobs = [job(&network, 0, &EVERYBODY, TurnPoint::AtSwitch, ReductionOperator::Or)];
    let mut deployment = deploy(&network, &jobs)?;
    deployment.barriers(&[0], run(10)).expect("nobody is missing");
    // loses the arrivals at the root switch; releases still pass
    deployment.program().lose_all_at(network.links()[0].a).expect("a setting");
    let short = BarrierRun { stuck_after: 1_000, ..run(10) };
    let error = deployment.barriers(&[0], short).expect_err("link 0 loses").to_string();
    assert!(error.contains("link 0 between switch 0 and switch 1 loses what is sent"), "{error}");
    let repaired = deployment.set_up_again(&[0]).expect("the ring is still connected");
    assert_eq!((repaired.registers, repaired.roots), (4, 0), "the root stays");
    assert!(deployment.barriers(&[0], run(20)).expect("nobody is missing").is_synchronized());
    Ok(())
}

fn members_that_no_link_connects_are_named_before_anything_is_made() -> TestOutcome {
    here()?;
    let network = SwitchNetwork::new(vec![4; 2], vec![], vec![end(0, 0), end(1, 0)]).expect("it is sound");
    let jobs = [job(&network, 0, &[0, 1], TurnPoint::AtNode, ReductionOperator::Or)];
    let error = Deployment::new(&network, &jobs).err().expect("they cannot meet");
    assert!(matches!(error, Error::Input(_)) && error.to_string().contains("cut off"), "{error}");
    Ok(())
}

fn a_network_of_the_paper_comes_up_and_synchronizes() -> TestOutcome {
    here()?;
    let options = NetworkOptions {
        switches: 75,
        ports: 8,
        nodes: 256,
        connectivity: 0.75,
        members: 256,
        seed: 1,
        sparse: Sparse::Refuse,
    };
    let NetworkFile { network, groups, .. } = generate(&options).expect("it is possible");
    let jobs =
        [BarrierJob { group: groups[0].clone(), turn: TurnPoint::AtNode, operation: ReductionOperator::Or }];
    let mut deployment = deploy(&network, &jobs)?;
    assert!(deployment.barriers(&[0], run(20)).expect("nobody is missing").is_synchronized());
    members_are_at_home(&mut deployment, &groups[0]);
    Ok(())
}

/// Asserts that many members are divided among the processors, and that their nodes receive packets on the
/// same processors.
fn members_are_at_home(deployment: &mut Deployment<'_>, group: &BarrierGroup) {
    let all = affinity::allowed(Tid::SELF).expect("own affinity");
    if all.len() < 2 || group.members().len() < 16 * all.len() {
        return; // few members are not bound
    }
    let outside = NetworkNamespace::current().expect("our own");
    let mut shares = BTreeMap::new();
    for member in group.members() {
        let allowed = affinity::allowed(deployment.process(*member).expect("it runs")).expect("it runs");
        assert_eq!(allowed.len(), 1, "{member:?}");
        let processor = allowed.iter().next().expect("there is one");
        *shares.entry(processor).or_insert(0) += 1;
        deployment.fabric().node(*member).enter().expect("root may");
        let mask = fs::read_to_string("/proc/sys/net/core/rps_default_mask"); // since Linux 6.3
        if let Ok(mask) = mask.as_deref().map(|mask| mask.trim().replace(',', "")) {
            assert_eq!(u128::from_str_radix(&mask, 16), Ok(1 << processor), "{member:?}");
        }
    }
    outside.enter().expect("root may");
    assert_eq!(shares.len(), all.len(), "{shares:?}");
}

fn topology(name: &str) -> std::path::PathBuf {
    let network = ring();
    let group = BarrierGroup::new(&network, GroupId(0), (0..8).map(NodeId).collect()).expect("they exist");
    let path = std::env::temp_dir().join(format!("unisono-{name}-{}.json", std::process::id()));
    fs::write(&path, NetworkFile::new(network, vec![group]).to_json()).expect("a temporary file");
    path
}

fn unisono(arguments: &[&str]) -> Command {
    let mut command = Command::new(program::unisono());
    command.arg("tree").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn names() -> Vec<String> {
    unisono_linux::network_namespace::names("unisono-")
}

/// Starts a deployment that lasts for minutes, and waits until its namespaces have names. Returns the
/// process, and a function that counts these names.
fn named(path: &str) -> (std::process::Child, impl Fn() -> usize + use<>) {
    let child = unisono(&["deploy", path, "--for", "600s", "--names"]).spawn().expect("unisono starts");
    let prefix = format!("unisono-{}-", child.id());
    let ours = move || names().into_iter().filter(|name| name.starts_with(&prefix)).count();
    until("four switches and eight nodes have names", || ours() == 12);
    (child, ours)
}

fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    crate::schema::formats_of(&String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn the_program_deploys_and_leaves_nothing() -> TestOutcome {
    here()?;
    let file = topology("deploy");
    let path = file.to_str().expect("plain");
    let output = unisono(&["deploy", path, "--for", "300ms", "--lose", "500", "--json"]).output();
    let story = answer(&output.expect("unisono starts"));
    assert_eq!((story["registers"].as_u64(), story["failed"].is_null()), (Some(4), true), "{story}");
    assert!(story["barriers"].as_u64() >= Some(20), "{story}");
    let _ = fs::remove_file(file);
    Ok(())
}

fn what_a_killed_deployment_leaves_is_taken_away() -> TestOutcome {
    here()?;
    let file = topology("killed");
    let path = file.to_str().expect("plain");
    let (mut child, ours) = named(path);
    let process = PidFd::open(Tid(child.id() as i32)).expect("it runs");
    process.send(Signal::Kill).expect("it runs");
    child.wait().expect("it ends");
    // unless another deployment on this host has started meanwhile, which removes them
    let left = ours();
    assert!(left == 12 || left == 0, "names outlive kill -9: {left}");
    let removed = answer(
        &unisono(&["undeploy", &child.id().to_string(), "--leftovers", "--json"])
            .output()
            .expect("unisono starts"),
    );
    if removed["dead"] == serde_json::json!([child.id()]) {
        assert!(removed["names"].as_u64() <= Some(12), "{removed}");
    } else {
        assert_eq!((&removed["dead"], &removed["names"]), (&serde_json::json!([]), &0.into()));
    }
    until("its names are gone", || ours() == 0);
    let _ = fs::remove_file(file);
    Ok(())
}

fn undeploy_ends_a_deployment_that_runs() -> TestOutcome {
    here()?;
    let file = topology("ended");
    let path = file.to_str().expect("plain");
    let (mut child, ours) = named(path);
    let removed =
        answer(&unisono(&["undeploy", &child.id().to_string(), "--json"]).output().expect("unisono starts"));
    assert_eq!(removed["ended"], serde_json::json!([child.id()]), "{removed}");
    child.wait().expect("it ends");
    assert_eq!(ours(), 0);
    let _ = fs::remove_file(file);
    Ok(())
}

fn without_root_or_clang_deploy_says_what_is_missing_and_the_rest_works() -> TestOutcome {
    require::root()?; // to become nobody
    let directory = tempfile::tempdir().expect("a directory");
    let open = || std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), open()).expect("permissions");
    let (copy, file) = (directory.path().join("unisono"), directory.path().join("net.json"));
    fs::copy(program::unisono(), &copy).expect("a copy");
    fs::rename(topology("missing"), &file).expect("the same directory for temporary files");
    let run = |command: &str, user: u32, programs: &str| {
        let mut run = Command::new(&copy);
        run.args(["tree", command]).arg(&file).current_dir("/").env("PATH", programs);
        let output = run.uid(user).gid(user).stdin(Stdio::null()).output().expect("unisono starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for command in ["deploy", "bench"] {
        let (code, errors) = run(command, 65534, "/usr/bin:/bin");
        assert!(code == Some(3) && errors.contains(&format!("sudo unisono tree {command}")), "{errors}");
        let (code, errors) = run(command, 0, "/nonexistent");
        assert!(code == Some(3) && errors.contains("apt-get install clang libbpf-dev"), "{errors}");
    }
    for command in ["plan", "simulate"] {
        assert_eq!(run(command, 65534, "/nonexistent"), (Some(0), String::new()), "{command}");
    }
    Ok(())
}

host_tests![needs Switches;
    barriers_hold_in_both_ways_to_turn_and_registers_are_released,
    groups_that_share_members_and_switches_do_not_disturb_each_other,
    a_single_member_waits_for_nobody_and_a_root_switch_with_one_member_serves_all,
    lost_frames_are_sent_again_and_barriers_still_hold,
    software_barriers_cross_the_same_switches,
    a_node_whose_process_is_killed_is_named,
    a_cable_that_is_pulled_is_named_at_once_and_barriers_go_on_without_it,
    a_cable_that_nothing_replaces_is_waited_for_and_named_at_the_time_limit,
    a_cable_that_loses_what_is_sent_is_named_from_the_registers,
    members_that_no_link_connects_are_named_before_anything_is_made,
    a_network_of_the_paper_comes_up_and_synchronizes,
    the_program_deploys_and_leaves_nothing,
    what_a_killed_deployment_leaves_is_taken_away,
    undeploy_ends_a_deployment_that_runs,
    without_root_or_clang_deploy_says_what_is_missing_and_the_rest_works,
];
