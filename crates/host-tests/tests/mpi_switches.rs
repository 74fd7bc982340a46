//! Barriers of MPI programs in simulated switches: the ranks have no privilege, and helpers at their hosts
//! claim registers for them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use unisono_btin::{
    BarrierGroup, End, GroupId, NetworkFile, NodeId, Port, SwitchId, SwitchLink, SwitchNetwork,
};
use unisono_fabric::Error;
use unisono_fabric::fabric::{HARDWARE, NODE_DEVICE, address_of};
use unisono_fabric::layout::{REQUEST, RegisterRequest, RegisterRequestKind};
use unisono_fabric::served::{GroupClaim, HelperConnection, MAX_REGISTERS, ServedNetwork, SwitchMember};
use unisono_host_tests::mpi::{TestedMpi, verdict};
use unisono_host_tests::processes::{until, words};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, one_in, program, require};
use unisono_linux::clock::{Duration, now};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::packet::PacketSocket;

/// The user `nobody`, under whom all ranks run.
const NOBODY: u32 = 65534;

/// Returns a network of four switches in a ring with two nodes each.
fn ring() -> SwitchNetwork {
    let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
    let links = (0..4).map(|at| SwitchLink { a: end(at, 0), b: end((at + 1) % 4, 1) }).collect();
    let nodes = (0..8).map(|node| end(node / 2, 2 + (node % 2) as u16)).collect();
    SwitchNetwork::new(vec![4; 4], links, nodes).expect("each port is used once")
}

fn serve<'a>(
    network: &'a SwitchNetwork,
    users: &[u32],
    registers: u16,
) -> Result<ServedNetwork<'a>, Skipped> {
    require::root()?;
    require::program("clang", "apt-get install clang libbpf-dev")?;
    require::path("/usr/include/bpf/bpf_helpers.h", "apt-get install libbpf-dev")?;
    match ServedNetwork::new(network, users, registers) {
        Ok(served) => Ok(served),
        Err(error @ (Error::Host(_) | Error::System { .. })) => Err(Skipped::because(error.to_string())),
        Err(error) => panic!("{error}"),
    }
}

/// The number of registers in use, of all groups in all switches.
fn registers(served: &ServedNetwork<'_>) -> usize {
    let groups = || (0..=u8::MAX).map(GroupId);
    let used = |switch, group| served.program().setup(SwitchId(switch), group).expect("it is there") != 0;
    (0..4).map(|switch| groups().filter(|group| used(switch, *group)).count()).sum()
}

/// Hosts for ranks: nodes of the ring, with copies of the programs that everybody can read.
struct RankHosts {
    scratch: tempfile::TempDir,
    prefix: String,
}

impl RankHosts {
    fn new(served: &mut ServedNetwork<'_>, network: &SwitchNetwork) -> Result<Self, Skipped> {
        require::unshare(&["--uts"])?;
        require::program("ip", "apt-get install iproute2")?;
        require::program("setpriv", "apt-get install util-linux")?;
        let built = TestedMpi::Mpich.build("host_barriers.c")?;
        let scratch = tempfile::tempdir().expect("room");
        let hosts = Self { scratch, prefix: format!("unisono-{}", std::process::id()) };
        served.fabric().publish(&hosts.prefix).expect("the names are free");
        let open = |path: PathBuf, mode| {
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("it is ours");
        };
        open(hosts.scratch.path().to_owned(), 0o777);
        let library = program::unisono().with_file_name("libunisono.so");
        for (from, to) in
            [(program::unisono().to_owned(), "unisono"), (library, "libunisono.so"), (built, "program")]
        {
            fs::copy(from, hosts.path(to)).expect("room");
        }
        let mut file = NetworkFile::new(network.clone(), Vec::<BarrierGroup>::new());
        file.node_names = (0..8).map(|node| address_of(NodeId(node)).to_string()).collect();
        fs::write(hosts.path("network.json"), file.to_json()).expect("room");
        open(hosts.path("network.json"), 0o644);
        let script = format!(
            "#!/bin/sh\n\
             while [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n\
             node=$((${{1##*.}} - 1)); shift\n\
             exec ip netns exec {}-n$node unshare --uts sh -c \"hostname node$node; $*\"\n",
            hosts.prefix
        );
        fs::write(hosts.path("shell"), script).expect("room");
        open(hosts.path("shell"), 0o755);
        Ok(hosts)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Returns the command that runs the program with one rank of `nobody` at each of these nodes.
    fn mpiexec(&self, nodes: &[u32], options: &[&str], arguments: &[&str]) -> Command {
        let address = |node: &u32| address_of(NodeId(*node)).to_string();
        let list: Vec<String> = nodes.iter().map(|node| address(node) + ":1").collect();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-n{}", self.prefix, nodes[0]), "mpiexec.mpich"]);
        command.args(options).args(["-launcher", "ssh", "-launcher-exec"]).arg(self.path("shell"));
        command.args(["-localhost", &address(&nodes[0]), "-hosts", &list.join(",")]);
        command.args(["-n", &nodes.len().to_string(), "setpriv", "--reuid=65534", "--regid=65534"]);
        command.args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
        command.arg(self.path("unisono")).args(["mpi", "--tree"]).arg(self.path("network.json")).arg("--");
        command.arg(self.path("program")).args(arguments).env("HOME", self.scratch.path());
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, nodes: &[u32], options: &[&str], arguments: &[&str]) -> Output {
        self.mpiexec(nodes, options, arguments).output().expect("ip starts because it was found")
    }
}

fn barriers_of_ranks_without_privilege_run_in_the_switches_and_lost_frames_are_repeated() -> TestOutcome {
    let network = ring();
    let mut served = serve(&network, &[NOBODY], MAX_REGISTERS)?;
    let hosts = RankHosts::new(&mut served, &network)?;
    served.program().lose_one_in(100).expect("it is loaded");
    let output = hosts.run(&[0, 3, 5], &[], &["tree", "2", "5"]);
    verdict("host_barriers", &output).expect("barriers are right");
    assert!(!words(&output).contains("unisono:"), "{}", words(&output));
    let counters = served.program().counters().expect("it is loaded");
    let lost = counters.iter().find(|(name, _)| *name == "lost on purpose").expect("it is counted").1;
    assert!(lost > 0, "no barrier was in the switches");
    until("all registers are returned", || registers(&served) == 0);
    Ok(())
}

fn communicators_that_are_made_and_freed_return_their_registers() -> TestOutcome {
    let network = ring();
    let mut served = serve(&network, &[NOBODY], MAX_REGISTERS)?;
    let hosts = RankHosts::new(&mut served, &network)?;
    let freed = if one_in(2) == 1 { "300" } else { "100" };
    let mut child = hosts.mpiexec(&[1, 4], &[], &["tree", "1", freed]).spawn().expect("ip was found");
    let mut most = 0;
    while child.try_wait().expect("it is ours").is_none() {
        most = most.max(registers(&served));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let output = child.wait_with_output().expect("it has ended");
    verdict("host_barriers", &output).expect("barriers are right");
    assert!((2..100).contains(&most), "{most} registers at a time");
    until("all registers are returned", || registers(&served) == 0);
    Ok(())
}

fn communicators_beyond_the_registers_go_from_host_to_host_and_a_line_says_so() -> TestOutcome {
    let network = ring();
    let mut served = serve(&network, &[NOBODY], 1)?;
    let hosts = RankHosts::new(&mut served, &network)?;
    let output = hosts.run(&[0, 2, 7], &[], &["tree", "3", "5"]);
    verdict("host_barriers", &output).expect("barriers are right");
    let line = "unisono: barriers between hosts go from host to host and not by the switches on some \
                communicators: no switch has more than 1 register; free communicators that are not used any more";
    let said = words(&output);
    // a line from the first host of the world, or of a part of it
    assert!((1..=3).contains(&said.lines().filter(|said| *said == line).count()), "{said}");
    until("all registers are returned", || registers(&served) == 0);
    Ok(())
}

fn users_whom_the_deployment_does_not_name_are_refused() -> TestOutcome {
    let network = ring();
    let mut served = serve(&network, &[1], MAX_REGISTERS)?;
    let hosts = RankHosts::new(&mut served, &network)?;
    let output = hosts.run(&[0, 2], &[], &["tree", "1", "2"]);
    verdict("host_barriers", &output).expect("barriers are right");
    let line = "unisono: barriers between hosts go from host to host and not by the switches: host ";
    let reason = ": the helper of the switches serves root and the users that its deployment names, not user 65534: \
                  unisono tree deploy --serve --user NAME";
    let said = words(&output);
    let fits = |said: &&str| said.starts_with(line) && said.ends_with(reason);
    // from the first host of the world, or of a part of it
    assert!((1..=2).contains(&said.lines().filter(fits).count()), "{said}");
    Ok(())
}

/// Tells a switch to forget the register of a group, as if it had been started anew.
fn forget(served: &mut ServedNetwork<'_>, target: SwitchId, group: GroupId) {
    let home = NetworkNamespace::current().expect("our own");
    served.fabric().node(NodeId(7)).enter().expect("root may");
    let socket = PacketSocket::open(NODE_DEVICE, REQUEST).expect("the device is up");
    home.enter().expect("root may");
    let request = RegisterRequest { kind: RegisterRequestKind::Release, group, target, origin: 7, number: 0 };
    let frame = [&HARDWARE[..], &HARDWARE, &REQUEST.to_be_bytes(), &request.to_bytes()].concat();
    until("the switch has no register", || {
        socket.send(&frame).expect("the device is up");
        served.program().setup(target, group).expect("it is there") == 0
    });
}

fn a_switch_that_forgets_its_registers_is_named_and_barriers_go_on_from_host_to_host() -> TestOutcome {
    let network = ring();
    let mut served = serve(&network, &[NOBODY], MAX_REGISTERS)?;
    let hosts = RankHosts::new(&mut served, &network)?;
    let child = hosts.mpiexec(&[0, 3, 5], &[], &["long", "1", "1"]).spawn().expect("ip was found");
    let (switch, group) = (SwitchId(2), GroupId(0)); // of node 5; the world is the first group
    let mut first = None;
    until("some barriers are over", || {
        let Some(state) = served.program().state(switch, group).expect("it is there") else { return false };
        state.episode.wrapping_sub(*first.get_or_insert(state.episode)) > 60
    });
    forget(&mut served, switch, group);
    let output = child.wait_with_output().expect("it ends");
    verdict("host_barriers", &output).expect("barriers are right");
    let line = "unisono: a barrier between 3 hosts was stuck in the switches and is undone there (switch 2 has no \
                register of the group); this communicator's barriers go from host to host from now on";
    let said = words(&output);
    assert_eq!(said.lines().filter(|said| *said == line).count(), 1, "{said}");
    until("all registers are returned", || registers(&served) == 0);
    Ok(())
}

fn a_rank_that_dies_in_a_barrier_in_the_switches_is_named_and_its_registers_are_returned() -> TestOutcome {
    let network = ring();
    let mut served = serve(&network, &[NOBODY], MAX_REGISTERS)?;
    let hosts = RankHosts::new(&mut served, &network)?;
    // otherwise MPICH's launcher ends the job before a rank can say anything
    let output = hosts.run(&[0, 3, 5], &["-disable-auto-cleanup"], &["die"]);
    let said = words(&output);
    let gone = "rank 2 is gone (the first rank of host node5: it closed the connection)";
    assert!(said.contains(gone) && !output.status.success(), "{said}");
    until("all registers are returned", || registers(&served) == 0);
    Ok(())
}

/// Connects to the helper of a node.
fn connect(served: &mut ServedNetwork<'_>, node: u32) -> HelperConnection {
    let home = NetworkNamespace::current().expect("our own");
    served.fabric().node(NodeId(node)).enter().expect("root may");
    let connection = HelperConnection::open();
    home.enter().expect("root may");
    connection.expect("root is served").expect("every node has a helper")
}

fn groups_of_one_number_do_not_meet_in_a_switch_and_the_last_to_leave_is_still_answered() -> TestOutcome {
    let network = ring();
    let mut served = serve(&network, &[], MAX_REGISTERS)?;
    let pairs = [[0, 4].map(NodeId), [1, 5].map(NodeId)];
    let mut open = |pair: [NodeId; 2]| pair.map(|node| connect(&mut served, node.0));
    let (mut one, mut other) = (open(pairs[0]), open(pairs[1]));
    let claim = |helper: &mut HelperConnection, group, members: &[NodeId]| {
        // the first episodes of different groups differ
        let first = 0x1234 + members[0].0 as u16;
        helper.claim(GroupId(group), first, members).expect("the helper answers")
    };
    let granted = |claim| -> SwitchMember {
        let GroupClaim::Granted(member) = claim else { panic!("{claim:?}") };
        member
    };
    let [mut near, mut far] = one.each_mut().map(|helper| granted(claim(helper, 9, &pairs[0])));
    // the switches of the pairs are the same
    let refused = other.each_mut().map(|helper| claim(helper, 9, &pairs[1]));
    assert!(refused.iter().all(|claim| matches!(claim, GroupClaim::Taken)), "{refused:?}");
    let [mut second, mut third] = other.each_mut().map(|helper| granted(claim(helper, 10, &pairs[1])));
    let soon = || now() + Duration::from_secs(20);
    for _ in 0..100 {
        for (a, b) in [(&mut near, &mut far), (&mut second, &mut third)] {
            a.arrive();
            assert!(!a.wait(now()), "the other has not arrived");
            b.arrive();
            assert!(a.wait(soon()) && b.wait(soon()));
        }
    }
    // a member that has left does not take the registers from the other, which has not seen its release
    near.arrive();
    far.arrive();
    assert!(near.wait(soon()));
    let [first_helper, second_helper] = one;
    first_helper.leave(near.episode());
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(registers(&served), 2 * 3, "three switches of each tree");
    assert!(far.wait(soon()));
    second_helper.leave(far.episode());
    until("the first group is returned", || registers(&served) == 3);
    drop(other);
    until("the other group is returned", || registers(&served) == 0);
    Ok(())
}

/// Connects to the helper of this network namespace many times, prints how often it was welcome, and stays.
const CONNECT_OFTEN: &str = "\
import socket, struct, sys
held, welcome = [], 0
for _ in range(int(sys.argv[1])):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect('\\0unisono-tree-helper-1')
    length, = struct.unpack('<I', held[-1].recv(4, socket.MSG_WAITALL))
    welcome += b'Welcome' in held[-1].recv(length, socket.MSG_WAITALL)
print(welcome, flush=True)
sys.stdin.read()
";

fn a_user_who_connects_a_thousand_times_keeps_neither_others_nor_their_groups_out() -> TestOutcome {
    require::program("python3", "apt-get install python3")?;
    let network = ring();
    let other = NOBODY - 1;
    let mut served = serve(&network, &[NOBODY, other], MAX_REGISTERS)?;
    let mut welcome = |user, times: u32| {
        let home = NetworkNamespace::current().expect("our own");
        served.fabric().node(NodeId(0)).enter().expect("root may");
        let mut command = Command::new("python3");
        command.args(["-c", CONNECT_OFTEN, &times.to_string()]).uid(user).gid(user);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        home.enter().expect("root may");
        let mut child = child.expect("python3 starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        (child, line.trim().to_owned())
    };
    let (mut first, many) = welcome(NOBODY, 1010);
    assert_eq!(many, "512");
    let (mut second, one) = welcome(other, 1);
    assert_eq!(one, "1", "the other user");
    let pair = [0, 4].map(NodeId);
    for helper in pair.map(|node| connect(&mut served, node.0)).iter_mut() {
        let claim = helper.claim(GroupId(3), 1, &pair).expect("the helper answers");
        assert!(matches!(claim, GroupClaim::Granted(_)), "{claim:?}");
    }
    for child in [&mut first, &mut second] {
        drop(child.stdin.take());
        child.wait().expect("a child");
    }
    Ok(())
}

fn the_program_serves_and_leaves_nothing() -> TestOutcome {
    let network = ring();
    drop(serve(&network, &[], MAX_REGISTERS)?);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(&file, NetworkFile::new(network, Vec::<BarrierGroup>::new()).to_json()).expect("room");
    let unisono = |options: &[&str]| {
        let mut command = Command::new(program::unisono());
        command.args(["tree", "deploy"]).arg(file.path()).args(["--serve", "--for", "200ms"]).args(options);
        command.stdin(Stdio::null()).output().expect("unisono starts")
    };
    let output = unisono(&["--user", "nobody", "--registers", "7", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    crate::schema::formats_of(&text);
    let told: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!((&told["users"][0], &told["registers"]), (&"nobody".into(), &7.into()), "{told}");
    assert_eq!(told["failed"], serde_json::Value::Null);
    let output = unisono(&["--user", "no-such-user"]);
    assert!(words(&output).contains("--user no-such-user: this host has no such user"), "{output:?}");
    Ok(())
}

host_tests![needs Switches;
    the_program_serves_and_leaves_nothing,
    barriers_of_ranks_without_privilege_run_in_the_switches_and_lost_frames_are_repeated within 300,
    communicators_that_are_made_and_freed_return_their_registers within 300,
    communicators_beyond_the_registers_go_from_host_to_host_and_a_line_says_so within 300,
    users_whom_the_deployment_does_not_name_are_refused within 300,
    a_switch_that_forgets_its_registers_is_named_and_barriers_go_on_from_host_to_host within 300,
    a_rank_that_dies_in_a_barrier_in_the_switches_is_named_and_its_registers_are_returned within 300,
    groups_of_one_number_do_not_meet_in_a_switch_and_the_last_to_leave_is_still_answered,
    a_user_who_connects_a_thousand_times_keeps_neither_others_nor_their_groups_out,
];
