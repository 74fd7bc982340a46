//! Tests policies on a host that forwards: containers match by control group, and flows of other hosts get
//! their rates; so do many connections of this host. Each kind of device accepts a policy, or the error names
//! the device to use instead.

use crate::queue_shared::{
    DEVICE, THREE, applied, class, cleared, datagrams, file, looks, name, on_a_host, policy, queue_apply,
    seen, unisono,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use unisono_enforce::Backend as _;
use unisono_enforce::kernel::Kernel;
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::processes::{Killed, until, words};
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, require};
use unisono_linux::bpf::tcx::{self, TcxHook};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies};
use unisono_linux::interface::Interface;
use unisono_linux::network_namespace::NetworkNamespace;

/// Makes three hosts. The first routes between the second and the third, which stands for a container. Moves
/// this thread to the first.
fn router() -> Result<Hosts, Skipped> {
    let hosts = Hosts::three()?;
    require::program("nsenter", "apt-get install util-linux")?;
    let first = NetworkNamespace::named(hosts.name(0)).expect("it was just made");
    first.enter().map_err(|error| Skipped::because(format!("no namespace can be entered: {error}")))?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("root may");
    let here = Hosts::address_towards(0, 2);
    ip(&["-n", hosts.name(2), "route", "replace", "10.77.0.0/24", "via", &here]).expect("a neighbor");
    ip(&["-n", hosts.name(1), "route", "replace", "10.77.1.0/24", "via", "10.77.0.1"]).expect("a neighbor");
    Ok(hosts)
}

/// A control group of version 2, removed when this value is dropped.
struct Group(ControlGroup, String);

impl Group {
    fn new(what: &str) -> Result<Self, Skipped> {
        let all = hierarchies().expect("mounts can be read");
        let Some(hierarchy) = CgroupHierarchy::of_version(&all, CgroupVersion::V2) else {
            return Err(Skipped::because("no cgroup2 is mounted"));
        };
        let top = groups::name(what);
        let group = hierarchy.top().create(&top).map_err(|error| Skipped::because(error.to_string()))?;
        Ok(Self(group, top))
    }

    /// Returns the command of a shell that runs `script` in the group.
    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("echo $$ > {}/cgroup.procs; {script}", self.0.path().display())]);
        command
    }

    /// Sends five datagrams from a process in the group and in the container's network namespace.
    fn send(&self, hosts: &Hosts) {
        let script = format!(
            "exec nsenter --net=/run/netns/{} bash -c \
             'for i in 1 2 3 4 5; do echo hello > /dev/udp/10.77.0.2/7000; done'",
            hosts.name(2)
        );
        assert!(self.shell(&script).status().expect("bash starts").success());
    }

    fn policy(&self) -> String {
        format!("rate = \"100mbit\"\n[class.theirs]\nmatch = [{{ cgroup = \"/{}\" }}]\n", self.1)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

/// Returns the number of packets of the container's class, whatever the backend.
fn theirs() -> u64 {
    let output = unisono(&["queue", "show", "--dev", DEVICE, "--once", "--json", "--interval", "10ms"]);
    assert!(output.status.success(), "{}", words(&output));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    shown["classes"][0]["packets"].as_u64().expect("a number")
}

fn got(send: impl FnOnce()) -> u64 {
    let before = theirs();
    send();
    theirs() - before
}

fn a_container_with_a_network_of_its_own_matches_by_its_control_group() -> TestOutcome {
    let hosts = router()?;
    let group = Group::new("container")?;
    let policy = file(&group.policy());
    for backend in ["kernel", "interposed"] {
        applied(&policy, &["--backend", backend])?;
        // once before counting, because the first packet waits for the neighbor's address
        group.send(&hosts);
        assert_eq!(got(|| group.send(&hosts)), 5, "{backend}");
        applied(&policy, &["--backend", backend])?;
        assert_eq!(got(|| group.send(&hosts)), 5, "{backend}, applied again");
        cleared(&[]);
        let device = Interface::find("to-c").expect("it is there").index;
        let left = tcx::programs(device, TcxHook::Ingress).expect("a kernel with tcx");
        assert!(left.is_empty(), "{backend}: {left:?}");
    }
    Ok(())
}

fn the_group_of_a_service_that_is_started_again_matches_after_the_next_command() -> TestOutcome {
    let _hosts = router()?;
    let send = |group: &Group| {
        let script = "for i in 1 2 3 4 5; do echo hello > /dev/udp/10.77.0.2/7000; done";
        assert!(group.shell(script).status().expect("bash starts").success());
    };
    let (first, stopped) = (Group::new("again")?, Group::new("stopped")?);
    let both = format!("{}[class.stopped]\nmatch = [{{ cgroup = \"/{}\" }}]\n", first.policy(), stopped.1);
    // the process of the interposed queue follows groups by itself, some time later
    applied(&file(&both), &["--backend", "kernel"])?;
    send(&first);
    assert_eq!(got(|| send(&first)), 5);
    // a group that is absent does not keep the other one from being followed
    stopped.0.remove().expect("nothing runs there");
    first.0.remove().expect("nothing runs there");
    let again = Group::new("again")?;
    assert_eq!(got(|| send(&again)), 5, "made anew");
    cleared(&[]);
    Ok(())
}

fn a_container_behind_a_bridge_or_one_that_comes_later_matches_too() -> TestOutcome {
    let hosts = router()?;
    let group = Group::new("bridged")?;
    let on_host = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        ip(&words).expect("root may");
    };
    let (near, container) = (hosts.name(0), hosts.name(2));
    let address = Hosts::address_towards(0, 2);
    for words in [
        format!("-n {near} addr flush dev to-c"),
        format!("-n {near} link add br0 type bridge"),
        format!("-n {near} link set to-c master br0"),
        format!("-n {near} addr add {address}/24 dev br0"),
        format!("-n {near} link set br0 up"),
    ] {
        on_host(&words);
    }
    applied(&file(&group.policy()), &[])?;
    group.send(&hosts);
    assert_eq!(got(|| group.send(&hosts)), 5, "behind a bridge");
    for words in [
        format!("link add late netns {near} type veth peer name near netns {container}"),
        format!("-n {near} addr add 10.77.9.1/24 dev late"),
        format!("-n {near} link set late up"),
        format!("-n {container} addr add 10.77.9.2/24 dev near"),
        format!("-n {container} link set near up"),
        format!("-n {container} route replace 10.77.0.0/24 via 10.77.9.1"),
        format!("-n {} route add 10.77.9.0/24 via 10.77.0.1", hosts.name(1)),
    ] {
        on_host(&words);
    }
    theirs(); // any command finds the new device
    group.send(&hosts);
    assert_eq!(got(|| group.send(&hosts)), 5, "a device that came later");
    cleared(&[]);
    Ok(())
}

fn a_group_whose_packets_cannot_come_here_is_named_by_check() -> TestOutcome {
    let _hosts = router()?;
    require::unshare(&["--net"])?;
    let group = Group::new("far")?;
    let child =
        group.shell("exec unshare --net sleep 600").stdin(Stdio::null()).spawn().expect("bash starts");
    let child = Killed(child);
    let here = std::fs::read_link("/proc/thread-self/ns/net").expect("proc is mounted");
    let first = std::fs::read_link("/proc/self/ns/net").expect("proc is mounted");
    let there = format!("/proc/{}/ns/net", child.0.id());
    until("the process has a network of its own", || {
        std::fs::read_link(&there).is_ok_and(|there| there != here && there != first)
    });
    let output = queue_apply(&file(&group.policy()), &["--check"]);
    assert!(output.status.success(), "{}", words(&output));
    assert!(
        words(&output).contains(&format!("no packet of /{} can match", group.1)),
        "{}",
        words(&output)
    );
    drop(child);
    Ok(())
}

/// Returns the bits a second of one TCP flow from the container, from its first to its fifth second.
fn forwarded(hosts: &Hosts, port: u16) -> f64 {
    let [far, container] = [1, 2].map(|host| NetworkNamespace::named(hosts.name(host)).expect("it is there"));
    let (ready, listening) = std::sync::mpsc::channel();
    let receiver = thread::spawn(move || {
        far.enter().expect("root may");
        let listener = TcpListener::bind(("10.77.0.2", port)).expect("the port is free");
        ready.send(()).expect("the test waits");
        let (mut stream, _) = listener.accept().expect("the sender connects");
        let mut room = vec![0; 1 << 16];
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) {
            let _ = stream.read(&mut room).expect("it sends on");
        }
        // on a busy machine, the last read may end long after the time is over
        let (counted, mut bytes) = (Instant::now(), 0);
        while counted.elapsed() < Duration::from_secs(4) {
            bytes += stream.read(&mut room).expect("it sends on");
        }
        bytes as f64 * 8.0 / counted.elapsed().as_secs_f64()
    });
    listening.recv().expect("it listens");
    thread::spawn(move || {
        container.enter().expect("root may");
        let mut stream = TcpStream::connect(("10.77.0.2", port)).expect("it listens");
        // until the receiver closes
        while stream.write_all(&[7; 1 << 16]).is_ok() {}
    });
    receiver.join().expect("no panic")
}

fn a_forwarded_flow_gets_its_rate_although_it_comes_in_packets_of_64_kib() -> TestOutcome {
    let hosts = router()?;
    let text = "rate = \"5mbit\"\ndefault = \"rest\"\n[class.a]\nweight = 3\nmatch = [{ port = 6001 }]\n[class.rest]\n";
    applied(&file(text), &["--backend", "kernel"])?;
    let rate = forwarded(&hosts, 6002);
    assert!((4.0e6..5.1e6).contains(&rate), "{rate} of 5 Mbit/s");
    let limited = file(&format!("{text}limit = \"8KiB\"\n"));
    let said = words(&queue_apply(&limited, &[]));
    assert!(said.contains("class `rest`: packets of up to 65536 bytes arrive here"), "{said}");
    cleared(&[]);
    Ok(())
}

fn sixteen_local_connections_share_a_slow_class_and_each_goes_on() -> TestOutcome {
    const CONNECTIONS: usize = 16;
    /// In a queue of 25 kB, the length of 20 ms at this rate, eight connections had ended by then.
    const ENDED: Duration = Duration::from_secs(8);
    const END: Duration = Duration::from_secs(20);
    require::nightly("queues")?;
    let hosts = on_a_host()?;
    applied(&file("rate = \"10mbit\"\ndefault = \"rest\"\n[class.rest]\n"), &["--backend", "kernel"])?;
    if seen().contains("fq_codel") {
        cleared(&[]);
        return Err(Skipped::because("this kernel has fq_codel, in which connections take turns"));
    }
    let far = NetworkNamespace::named(hosts.name(1)).expect("it is there");
    let (ready, listening) = std::sync::mpsc::channel();
    let receiver = thread::spawn(move || {
        far.enter().expect("root may");
        let listener = TcpListener::bind(("10.77.0.2", 6001)).expect("the port is free");
        ready.send(()).expect("the test waits");
        let accept = |_| listener.accept().expect("a sender connects").0;
        let streams: Vec<TcpStream> = (0..CONNECTIONS).map(accept).collect();
        let begin = Instant::now();
        let read = |mut stream: TcpStream| {
            stream.set_read_timeout(Some(Duration::from_millis(100))).expect("it is a socket");
            let (mut room, mut late_bytes) = (vec![0; 1 << 16], 0);
            while begin.elapsed() < END {
                match stream.read(&mut room) {
                    Ok(0) => break,
                    Ok(came) if begin.elapsed() > ENDED => late_bytes += came,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => panic!("{error}"),
                }
            }
            late_bytes
        };
        thread::scope(|scope| {
            let readers: Vec<_> =
                streams.into_iter().map(|stream| scope.spawn(move || read(stream))).collect();
            readers.into_iter().map(|reader| reader.join().expect("no panic")).collect::<Vec<usize>>()
        })
    });
    listening.recv().expect("it listens");
    for _ in 0..CONNECTIONS {
        thread::spawn(|| {
            let mut stream = TcpStream::connect(("10.77.0.2", 6001)).expect("it listens");
            // until the receiver closes
            while stream.write_all(&[7; 1 << 16]).is_ok() {}
        });
    }
    let late_bytes = receiver.join().expect("no panic");
    assert!(late_bytes.iter().all(|bytes| *bytes > 0), "{late_bytes:?} bytes after {ENDED:?}");
    cleared(&[]);
    Ok(())
}

fn a_bridge_is_refused_with_its_ports_and_a_port_is_taken() -> TestOutcome {
    let hosts = on_a_host()?;
    let near = hosts.name(0);
    ip(&["-n", near, "link", "add", "br0", "type", "bridge"])
        .map_err(|why| Skipped::because(format!("no bridges here: {why}")))?;
    ip(&["-n", near, "link", "set", DEVICE, "master", "br0"]).expect("root may");
    let policy = file(THREE);
    let before = looks();
    for options in [&[][..], &["--backend", "interposed"], &["--direction", "in"], &["--check"]] {
        let output = unisono(&[&["queue", "apply", name(&policy), "--dev", "br0"][..], options].concat());
        let said = words(&output);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(&format!("unisono queue apply POLICY --dev {DEVICE}")), "{said}");
    }
    assert_eq!(looks(), before);
    applied(&policy, &[])?;
    cleared(&[]);
    Ok(())
}

fn a_policy_holds_at_every_other_kind_of_device_that_this_kernel_can_make() -> TestOutcome {
    let hosts = on_a_host()?;
    let near = hosts.name(0);
    let kinds = [
        ("vlan", "link cable type vlan id 7"),
        ("macvlan", "link cable type macvlan mode bridge"),
        ("ipvlan", "link cable type ipvlan"),
        ("macsec", "link cable type macsec"),
        ("bond", "type bond"),
        ("team", "type team"),
        ("dummy", "type dummy"),
        ("vxlan", "type vxlan id 7 remote 10.77.0.2 dstport 4789"),
        ("gre", "type gre local 10.77.0.1 remote 10.77.0.2"),
        ("ipip", "type ipip local 10.77.0.1 remote 10.77.0.2"),
        ("wireguard", "type wireguard"),
    ];
    let mut tried = Vec::new();
    for (kind, words) in kinds {
        let on_host = |words: &str| ip(&words.split_whitespace().collect::<Vec<_>>());
        let added = words
            .strip_prefix("link cable ")
            .map_or(format!("-n {near} link add name kind {words}"), |rest| {
                format!("-n {near} link add link cable name kind {rest}")
            });
        if on_host(&added).is_err() {
            continue;
        }
        if kind == "bond" {
            on_host(&format!("-n {near} link add name port type dummy")).expect("root may");
            on_host(&format!("-n {near} link set port master kind")).expect("a bond takes it");
        }
        on_host(&format!("-n {near} addr add 10.78.0.1/24 dev kind")).expect("root may");
        on_host(&format!("-n {near} link set kind up")).expect("root may");
        // fails for a tunnel, which needs no neighbor
        let neighbor = format!("-n {near} neigh replace 10.78.0.2 lladdr 02:00:00:00:00:02 dev kind");
        let _ = on_host(&neighbor);
        let mut kernel = Kernel::new("kind");
        kernel.apply(&policy(THREE)).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let before = class(&kernel.live().expect("it holds"), "gold").packets;
        if kind != "wireguard" {
            datagrams("10.78.0.1:0", "10.78.0.2:5001", 0);
            let got = class(&kernel.live().expect("it holds"), "gold").packets - before;
            assert!(got >= 10, "{kind}: {got}");
        }
        kernel.remove().expect("it is there");
        on_host(&format!("-n {near} link del kind")).expect("it is there");
        tried.push(kind);
    }
    eprintln!("tried: {}", tried.join(", "));
    assert!(!tried.is_empty(), "every kernel has some");
    Ok(())
}

host_tests![needs OwnQueues;
    a_container_with_a_network_of_its_own_matches_by_its_control_group within 120,
    the_group_of_a_service_that_is_started_again_matches_after_the_next_command within 120,
    a_container_behind_a_bridge_or_one_that_comes_later_matches_too within 120,
    a_group_whose_packets_cannot_come_here_is_named_by_check,
    a_forwarded_flow_gets_its_rate_although_it_comes_in_packets_of_64_kib within 120,
    sixteen_local_connections_share_a_slow_class_and_each_goes_on within 180,
    a_bridge_is_refused_with_its_ports_and_a_port_is_taken,
    a_policy_holds_at_every_other_kind_of_device_that_this_kernel_can_make within 120,
];
