//! Tests policies on a device of this host: they are enforced, each kind of match finds its packets, and a
//! wrong policy changes nothing.

use crate::queue_shared::{
    DEVICE, THREE, apply, class, datagrams, file, journal, name, on_a_host, policy, seen, unisono,
};
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unisono_enforce::kernel::Kernel;
use unisono_enforce::{Backend as _, Error};
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::processes::words;
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, program};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::socket::set_congestion_control;

/// Returns how many packets a class gets while `send` runs.
fn packets(kernel: &mut Kernel, name: &str, send: impl FnOnce()) -> u64 {
    let before = class(&kernel.live().expect("a policy holds"), name).packets;
    send();
    class(&kernel.live().expect("a policy holds"), name).packets - before
}

fn packets_find_their_class_by_port_address_protocol_and_priority() -> TestOutcome {
    let _hosts = on_a_host()?;
    let mut kernel = apply(
        "rate = \"100mbit\"\ndefault = \"rest\"\n\
         [class.port]\nmatch = [{ port = [7000, 7009], protocol = \"udp\" }]\n\
         [class.both]\nmatch = [{ address = \"10.77.0.2\", port = 7100 }]\n\
         [class.address]\nmatch = [{ address = \"10.77.0.1\", port = 7200 }, { address = \"fd77::2\" }]\n\
         [class.priority]\nmatch = [{ priority = 5 }]\n",
    )?;
    let here = "10.77.0.1:0";
    for (name, from, to, priority) in [
        ("port", here, "10.77.0.2:7009", 0),
        ("port", "10.77.0.1:7000", "10.77.0.2:9", 5),
        ("both", here, "10.77.0.2:7100", 0),
        ("rest", "10.77.0.1:7100", "10.77.0.2:9", 0),
        ("address", "10.77.0.1:7200", "10.77.0.2:9", 0),
        ("priority", here, "10.77.0.2:9", 5),
        ("rest", here, "10.77.0.2:7010", 4),
    ] {
        let got = packets(&mut kernel, name, || datagrams(from, to, priority));
        assert!(got >= 10, "{from} {to} {priority}: {name} got {got}");
    }
    if UdpSocket::bind("[fd77::1]:0").is_ok() {
        let got = packets(&mut kernel, "address", || datagrams("[fd77::1]:0", "[fd77::2]:9", 0));
        assert!(got >= 10, "by IPv6: {got}");
    }
    kernel.remove().expect("it is there");
    Ok(())
}

fn all_fragments_of_a_large_datagram_are_of_the_class_of_its_port() -> TestOutcome {
    let _hosts = on_a_host()?;
    let mut kernel = apply("rate = \"100mbit\"\n[class.port]\nmatch = [{ port = 7000 }]\n")?;
    let got = packets(&mut kernel, "port", || {
        let socket = UdpSocket::bind("10.77.0.1:0").expect("the address is ours");
        for _ in 0..5 {
            socket.send_to(&[7; 4000], "10.77.0.2:7000").expect("the cable is up");
        }
    });
    assert_eq!(got, 15, "three fragments each");
    kernel.remove().expect("it is there");
    Ok(())
}

fn packets_find_their_class_by_control_group_and_those_below_it_too() -> TestOutcome {
    let _hosts = on_a_host()?;
    let all = hierarchies().expect("mounts can be read");
    let Some(hierarchy) = CgroupHierarchy::of_version(&all, CgroupVersion::V2) else {
        return Err(Skipped::because("no cgroup2 is mounted"));
    };
    let top = groups::name("queue");
    let group = hierarchy.top().create(&top).map_err(|error| Skipped::because(error.to_string()))?;
    let below = group.create("below").expect("a group below");
    let text = format!(
        "rate = \"100mbit\"\n[class.theirs]\nmatch = [{{ cgroup = \"/{top}\" }}]\n[class.port]\nmatch = [{{ port = 7000 }}]\n"
    );
    let applied = apply(&text);
    let send = |cgroup: &str| {
        let script = format!("echo $$ > {cgroup}/cgroup.procs; echo hello > /dev/udp/10.77.0.2/7000");
        let status = Command::new("bash").args(["-c", &script]).status().expect("bash starts");
        assert!(status.success());
    };
    let outcome = applied.map(|mut kernel| {
        let path = |group: &unisono_linux::cgroup::ControlGroup| group.path().display().to_string();
        let counts = [
            packets(&mut kernel, "theirs", || send(&path(&group))),
            packets(&mut kernel, "theirs", || send(&path(&below))),
            packets(&mut kernel, "port", || send(&path(&hierarchy.top()))),
        ];
        kernel.remove().expect("it is there");
        counts
    });
    below.remove().expect("nobody is in it");
    group.remove().expect("nobody is in it");
    assert_eq!(outcome?, [1, 1, 1]);
    Ok(())
}

fn a_control_group_that_is_not_there_is_named_with_its_place_and_nothing_changes() -> TestOutcome {
    let _hosts = on_a_host()?;
    let before = seen();
    let text = "rate = \"1mbit\"\n[class.a]\nmatch = [{ cgroup = \"/no/such/group\" }]\n";
    match Kernel::new(DEVICE).apply(&policy(text)) {
        Err(Error::NotHere { at, what }) => {
            assert_eq!(at.to_string(), "3:10");
            assert!(what.contains("/no/such/group"), "{what}");
        }
        Err(error @ Error::Lacks { .. }) => return Err(Skipped::because(error.to_string())),
        other => panic!("{other:?}"),
    }
    assert_eq!(seen(), before);
    assert!(!journal().exists());
    Ok(())
}

fn a_control_group_of_version_1_alone_is_refused_with_what_to_do() -> TestOutcome {
    let _hosts = on_a_host()?;
    drop(apply(THREE)?.remove()); // or skips the test
    let all = hierarchies().expect("mounts can be read");
    let (Some(first), Some(_)) = (
        CgroupHierarchy::of_version(&all, CgroupVersion::V1),
        CgroupHierarchy::of_version(&all, CgroupVersion::V2),
    ) else {
        return Err(Skipped::because("no control groups of both versions are mounted"));
    };
    let before = seen();
    let top = groups::name("first");
    let group = first.top().create(&top).map_err(|error| Skipped::because(error.to_string()))?;
    let file = file(&format!("rate = \"1mbit\"\n[class.a]\nmatch = [{{ cgroup = \"/{top}\" }}]\n"));
    let output = unisono(&["queue", "apply", name(&file), "--dev", DEVICE]);
    group.remove().expect("nobody is in it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("is a control group of version 1 alone") && said.contains("match by port"),
        "{said}"
    );
    assert_eq!(seen(), before);
    Ok(())
}

/// Sends over one connection to each port, as fast as possible, for `time`.
fn saturate(hosts: &Hosts, ports: &[u16], congestion: &str, time: Duration) {
    let far = NetworkNamespace::named(hosts.name(1)).expect("it is there");
    let listeners: Vec<TcpListener> = std::thread::spawn({
        let ports = ports.to_vec();
        move || {
            far.enter().expect("root may");
            ports
                .into_iter()
                .map(|port| TcpListener::bind(("10.77.0.2", port)).expect("it is free"))
                .collect()
        }
    })
    .join()
    .expect("no panic");
    let readers: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("somebody connects");
                std::io::copy(&mut stream, &mut std::io::sink()).expect("it ends");
            })
        })
        .collect();
    let until = Instant::now() + time;
    let writers: Vec<_> = ports
        .iter()
        .map(|port| {
            let stream = TcpStream::connect(("10.77.0.2", *port)).expect("somebody listens");
            let _ = set_congestion_control(&stream, congestion); // if refused, the host's default is used
            stream.set_write_timeout(Some(Duration::from_secs(20))).expect("it is positive");
            std::thread::spawn(move || {
                let bytes = vec![0; 16 * 1024];
                while Instant::now() < until {
                    std::io::Write::write_all(&mut &stream, &bytes).expect("it is read");
                }
            })
        })
        .collect();
    for thread in writers.into_iter().chain(readers) {
        thread.join().expect("no panic");
    }
}

fn flows_of_a_class_take_turns_where_the_kernel_can_and_show_says_so() -> TestOutcome {
    let _hosts = on_a_host()?;
    let mut kernel = apply(&THREE.replace("weight = 30", "weight = 30\npackets = 9"))?;
    let show = || {
        let output = unisono(&["queue", "show", "--dev", DEVICE, "--once", "--interval", "10ms"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (looks, said) = (seen(), show());
    if !looks.contains("fq_codel") {
        assert!(said.contains("flows wait together inside of every class"), "{said}");
        kernel.remove().expect("it is there");
        return Err(Skipped::because("this kernel has no fq_codel (CONFIG_NET_SCH_FQ_CODEL)"));
    }
    assert!(looks.contains(" ecn") && looks.contains("pfifo"), "{looks}");
    assert!(
        said.contains("flows take turns inside of gold, rest (fq_codel), and wait together in silver"),
        "{said}"
    );
    kernel.apply(&policy(THREE)).expect("the kernel can");
    assert!(show().contains("inside of every class (fq_codel)"));
    kernel.remove().expect("it is there");
    Ok(())
}

fn three_busy_classes_get_about_their_shares_and_no_more_than_the_link() -> TestOutcome {
    let hosts = on_a_host()?;
    let mut kernel = apply(&THREE.replace("[class.rest]", "[class.rest]\nmatch = [{ port = 5003 }]"))?;
    let before = kernel.live().expect("a policy holds");
    let reading = std::thread::scope(|scope| {
        scope.spawn(|| saturate(&hosts, &[5001, 5002, 5003], "cubic", Duration::from_secs(4)));
        std::thread::sleep(Duration::from_secs(1));
        let begin = kernel.live().expect("a policy holds");
        std::thread::sleep(Duration::from_secs(2));
        (kernel.live().expect("a policy holds"), begin)
    });
    let paces = reading.0.paces(&reading.1);
    let shares: Vec<f64> = paces.iter().map(|pace| pace.share).collect();
    let all: f64 = paces.iter().map(|pace| pace.rate).sum();
    // wide ranges, because the study measures precise figures; this order cannot arise by chance
    assert!((0.45..0.75).contains(&shares[0]), "{shares:?}");
    assert!((0.15..0.45).contains(&shares[1]), "{shares:?}");
    assert!((0.02..0.25).contains(&shares[2]), "{shares:?}");
    assert!(shares[0] > shares[1] && shares[1] > shares[2], "{shares:?}");
    assert!(all < 103e6, "{all} bits a second");
    assert!(class(&reading.0, "gold").bytes > class(&before, "gold").bytes);
    kernel.remove().expect("it is there");
    Ok(())
}

fn a_ceiling_holds_while_all_others_are_idle() -> TestOutcome {
    let hosts = on_a_host()?;
    let mut kernel = apply(&THREE.replace("weight = 30", "weight = 30\nceiling = \"20mbit\""))?;
    let paces = std::thread::scope(|scope| {
        scope.spawn(|| saturate(&hosts, &[5002], "cubic", Duration::from_secs(4)));
        std::thread::sleep(Duration::from_secs(1));
        let begin = kernel.live().expect("a policy holds");
        std::thread::sleep(Duration::from_secs(2));
        kernel.live().expect("a policy holds").paces(&begin)
    });
    assert!((5e6..21e6).contains(&paces[1].rate), "{paces:?}");
    kernel.remove().expect("it is there");
    Ok(())
}

/// Sends datagrams to ports of the other host, as fast as possible, for `time`.
fn flood(ports: &[u16], time: Duration) {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for port in ports {
            let socket = UdpSocket::bind("10.77.0.1:0").expect("the address is ours");
            scope.spawn(move || {
                while Instant::now() < until {
                    // fails if a full queue drops the datagram
                    let _ = socket.send_to(&[7; 1400], ("10.77.0.2", *port));
                }
            });
        }
    });
}

fn the_ceiling_of_an_inner_class_holds_while_all_its_children_are_flooded() -> TestOutcome {
    let _hosts = on_a_host()?;
    // without its ceiling, a third of the link would be guaranteed to the class, which is more
    let text = "rate = \"100mbit\"\ndefault = \"rest\"\n[class.x]\n[class.rest]\n[class.g]\nceiling = \"30mbit\"\n\
        [class.g.a]\nweight = 2\nmatch = [{ port = 5001 }]\n[class.g.b]\nmatch = [{ port = 5002 }]\n";
    let mut kernel = apply(text)?;
    flood(&[5001, 5002], Duration::from_millis(500));
    let before = kernel.live().expect("a policy holds");
    flood(&[5001, 5002], Duration::from_secs(3));
    let after = kernel.live().expect("a policy holds");
    for child in ["a", "b"] {
        assert!(class(&after, child).dropped > class(&before, child).dropped, "{child} was not flooded");
    }
    let sent = (class(&after, "g").bytes - class(&before, "g").bytes) as f64 * 8.0;
    let rate = sent / ((after.at_ns - before.at_ns) as f64 / 1e9);
    // a tolerance, because the time is read a moment after the bytes; without the ceiling the rate would have
    // been 33.3 Mbit/s
    assert!(rate < 30.5e6, "{rate} bits a second");
    kernel.remove().expect("it is there");
    Ok(())
}

fn what_is_wrong_leaves_the_host_unchanged() -> TestOutcome {
    let _hosts = on_a_host()?;
    let before = seen();
    for (text, expected) in [
        (THREE.replace("60", "-1"), ":4:10: the weight -1 gives no share"),
        (THREE.replace("5002", "5001"), ":8:10: this match is shadowed"),
        (
            THREE.replace("weight = 60", "ceiling = \"1gbit\""),
            ":4:11: the ceiling 1gbit is over the link's rate",
        ),
        (format!("{THREE}[class.a.b.c.d.e.f.g.h]\n"), ": the kernel nests classes at most 7 deep"),
        (
            format!("{THREE}[class.x]\nmatch = [{{ cgroup = \"/none\" }}]\n"),
            ":12:10: there is no control group /none",
        ),
    ] {
        let file = file(&text);
        let output = unisono(&["queue", "apply", name(&file), "--dev", DEVICE]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("{}{expected}", name(&file))), "{said}");
        assert_eq!(seen(), before);
        assert!(!journal().exists());
    }
    let sound = file(THREE);
    let output = unisono(&["queue", "apply", name(&sound), "--dev", "nosuch0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no device nosuch0 here; there are "));
    Ok(())
}

/// Returns the state of this network namespace except the device itself: other devices, addresses, routes,
/// rules, settings.
fn around() -> String {
    let ask = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mut text = ask(&["tc", "qdisc", "show", "dev", "lo"]);
    for what in
        [&["addr"][..], &["route", "show", "table", "all"], &["rule"], &["neigh", "show", "nud", "permanent"]]
    {
        text += &ask(&[&["ip"], what].concat());
    }
    text += &ask(&["ip", "-d", "link", "show", "dev", "lo"]);
    for file in ["tcp_congestion_control", "tcp_limit_output_bytes", "ip_forward", "conf/all/rp_filter"] {
        text += &fs::read_to_string(format!("/proc/sys/net/ipv4/{file}")).unwrap_or_default();
    }
    // without the lines of the device, because the line of an address names the discipline of its device
    let lines = text.lines().filter(|line| !line.contains(&format!("{DEVICE}@")));
    lines.collect::<Vec<_>>().join("\n")
}

fn nothing_but_the_device_is_touched() -> TestOutcome {
    let _hosts = on_a_host()?;
    let before = around();
    assert!(before.contains("10.77.0.1") && before.contains("qdisc"), "{before}");
    let mut kernel = apply(THREE)?;
    assert_eq!(around(), before, "while it holds");
    kernel.remove().expect("it is there");
    assert_eq!(around(), before, "afterwards");
    Ok(())
}

fn what_others_have_set_up_is_not_replaced_and_what_they_replace_stays() -> TestOutcome {
    let _hosts = on_a_host()?;
    let tc = |arguments: &[&str]| {
        assert!(Command::new("tc").args(arguments).status().expect("tc starts").success(), "{arguments:?}");
    };
    tc(&["qdisc", "add", "dev", DEVICE, "root", "handle", "9:", "htb", "default", "1"]);
    match Kernel::new(DEVICE).apply(&policy(THREE)) {
        Err(Error::Occupied { kind, .. }) => assert_eq!(kind, "htb"),
        other => panic!("{other:?}"),
    }
    tc(&["qdisc", "del", "dev", DEVICE, "root"]);
    let mut kernel = apply(THREE)?;
    tc(&["qdisc", "replace", "dev", DEVICE, "root", "handle", "9:", "pfifo", "limit", "5"]);
    kernel.remove().expect("the rest goes");
    assert!(kernel.notes()[0].contains("somebody else has replaced"), "{:?}", kernel.notes());
    assert!(seen().contains("limit 5p"), "{}", seen());
    assert!(!journal().exists());
    Ok(())
}

/// A control group in the hierarchy of a controller and in cgroup2, because packets carry the number of the
/// group in cgroup2.
struct Weighed {
    name: String,
    groups: Vec<ControlGroup>,
    version: CgroupVersion,
}

impl Weighed {
    fn new(controllers: [&str; 2], name: &str) -> Result<Self, Skipped> {
        let all = hierarchies().expect("mounts can be read");
        let found = controllers.iter().find_map(|controller| CgroupHierarchy::with(&all, controller));
        let Some(weighing) = found else {
            return Err(Skipped::because(format!(
                "no control groups with the controller {}",
                controllers[1]
            )));
        };
        let Some(unified) = CgroupHierarchy::of_version(&all, CgroupVersion::V2) else {
            return Err(Skipped::because("no cgroup2 is mounted"));
        };
        let name = groups::name(name);
        let group = weighing.top().create(&name).map_err(|error| Skipped::because(error.to_string()))?;
        let same = (unified != weighing).then(|| unified.top().create(&name).expect("root may"));
        Ok(Self { name, groups: [group].into_iter().chain(same).collect(), version: weighing.version })
    }

    /// Returns the weight in the first of these files that exists, which depends on the kernel's
    /// configuration.
    fn weight(&self, files: &[&str]) -> Result<String, Skipped> {
        let text = files.iter().find_map(|file| self.groups[0].read(file).ok());
        let text = text.ok_or_else(|| Skipped::because(format!("no weights here: none of {files:?}")))?;
        Ok(text.lines().next().unwrap_or_default().trim_start_matches("default ").trim().to_owned())
    }
}

impl Drop for Weighed {
    fn drop(&mut self) {
        for group in &self.groups {
            let _ = group.remove(); // if this fails, the harness removes it
        }
    }
}

/// Tests that the weights of a table of the policy are set and changed, and restored by a policy without the
/// table and at the end.
fn weights_are_set_and_restored(table: &str, controllers: [&str; 2], files: [&[&str]; 2]) -> TestOutcome {
    let _hosts = on_a_host()?;
    let weighed = Weighed::new(controllers, table)?;
    let files = files[usize::from(weighed.version == CgroupVersion::V2)];
    let read = || weighed.weight(files);
    let before = read()?;
    let text =
        format!("{THREE}[class.x]\nmatch = [{{ cgroup = \"/{}\" }}]\n[{table}]\nx = 3\n", weighed.name);
    let mut kernel = apply(&text)?;
    let three = read()?;
    kernel.apply(&policy(&text.replace("x = 3", "x = 0.5"))).expect("the kernel can");
    let half = read()?;
    kernel.apply(&policy(THREE)).expect("the kernel can");
    let none = read()?;
    kernel.apply(&policy(&text)).expect("the kernel can");
    kernel.remove().expect("it is there");
    let ratio = |one: &str, other: &str| {
        one.parse::<f64>().expect("a number") / other.parse::<f64>().expect("a number")
    };
    assert!((ratio(&three, &half) - 6.0).abs() < 1e-9, "{three} {half}");
    assert_eq!((none, read()?), (before.clone(), before));
    Ok(())
}

fn processor_weights_are_set_and_put_back() -> TestOutcome {
    weights_are_set_and_restored("cpu", ["cpu", "cpu"], [&["cpu.shares"], &["cpu.weight"]])
}

fn disk_weights_are_set_and_put_back() -> TestOutcome {
    let files: [&[&str]; 2] = [&["blkio.bfq.weight", "blkio.weight"], &["io.bfq.weight", "io.weight"]];
    weights_are_set_and_restored("io", ["blkio", "io"], files)
}

/// One `apply` gives a class its share of the link, of the processors and of the disks, and `show` prints all
/// three.
fn three_shares_of_one_policy_are_shown_side_by_side() -> TestOutcome {
    let _hosts = on_a_host()?;
    let disk = Weighed::new(["blkio", "io"], "three")?;
    disk.weight(&["blkio.bfq.weight", "io.bfq.weight", "io.weight"])?;
    let processors = hierarchies().expect("mounts can be read");
    let Some(processors) = CgroupHierarchy::with(&processors, "cpu") else {
        return Err(Skipped::because("no control groups with the controller cpu"));
    };
    // in version 1 each controller may have a hierarchy of its own
    let own = !processors.top().path().join(&disk.name).exists();
    let own = own.then(|| processors.top().create(&disk.name).expect("root may"));
    let text = format!(
        "{THREE}[class.x]\nmatch = [{{ cgroup = \"/{}\" }}]\n[cpu]\nx = 3\n[io]\nx = 2\n",
        disk.name
    );
    let kernel = apply(&text)?;
    let none_obeys = !fs::read_dir("/sys/block").into_iter().flatten().flatten().any(|device| {
        let scheduler = fs::read_to_string(device.path().join("queue/scheduler"));
        scheduler.is_ok_and(|text| text.contains("[bfq]"))
    });
    let noted = kernel.notes().iter().any(|note| note.contains("no disk here obeys weights"));
    assert!(noted || !none_obeys || disk.version == CgroupVersion::V2, "{:?}", kernel.notes());
    let shown = unisono(&["queue", "show", "--once", "--dev", DEVICE]);
    let text = words(&shown);
    for title in ["processors (by the controller)", "disks (by the controller)", "shares"] {
        assert!(text.lines().any(|line| line.starts_with(title)), "{title}: {text}");
    }
    let shown = unisono(&["queue", "show", "--json", "--once", "--dev", DEVICE]);
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert_eq!(crate::schema::formats_of(&shown), ["unisono-queue-show-1"]);
    assert!(shown.contains("\"bytes_per_s\":"), "{shown}");
    drop(own.map(|group| group.remove()));
    Ok(())
}

fn apply_show_and_clear_print_objects_of_the_schema() -> TestOutcome {
    let _hosts = on_a_host()?;
    let policy = file(THREE);
    let says = |arguments: &[&str]| {
        let output = unisono(&[&["queue"], arguments, &["--dev", DEVICE]].concat());
        assert!(output.status.success(), "{}", words(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let applied = says(&["apply", name(&policy), "--json"]);
    assert_eq!(crate::schema::formats_of(&applied), ["unisono-queue-apply-1"]);
    let rows = says(&["show", "--csv", "--interval", "10ms"]);
    let classes: Vec<&str> = rows.lines().skip(1).filter_map(|row| row.split(',').nth(2)).collect();
    assert!(rows.starts_with("device,direction,name,") && classes.contains(&"gold"), "{rows}");
    let cleared = says(&["clear", "--json"]);
    assert_eq!(crate::schema::formats_of(&cleared), ["unisono-queue-clear-1"]);
    Ok(())
}

fn watching_ends_when_nobody_reads_any_more() -> TestOutcome {
    let _hosts = on_a_host()?;
    let _kernel = apply(THREE)?;
    for json in [&["--json"][..], &[]] {
        let watching = ["queue", "show", "--dev", DEVICE, "--interval", "20ms"];
        let mut shown = Command::new(program::unisono())
            .args(watching)
            .args(json)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut read = shown.stdout.take().expect("asked for");
        read.read_exact(&mut [0; 20]).expect("it speaks");
        drop(read);
        assert!(shown.wait().expect("it ends").success());
    }
    Ok(())
}

host_tests![needs Queues;
    apply_show_and_clear_print_objects_of_the_schema,
    watching_ends_when_nobody_reads_any_more,
    packets_find_their_class_by_port_address_protocol_and_priority,
    all_fragments_of_a_large_datagram_are_of_the_class_of_its_port,
    packets_find_their_class_by_control_group_and_those_below_it_too,
    a_control_group_that_is_not_there_is_named_with_its_place_and_nothing_changes,
    a_control_group_of_version_1_alone_is_refused_with_what_to_do,
    flows_of_a_class_take_turns_where_the_kernel_can_and_show_says_so,
    three_busy_classes_get_about_their_shares_and_no_more_than_the_link,
    a_ceiling_holds_while_all_others_are_idle,
    the_ceiling_of_an_inner_class_holds_while_all_its_children_are_flooded,
    nothing_but_the_device_is_touched,
    what_is_wrong_leaves_the_host_unchanged,
    what_others_have_set_up_is_not_replaced_and_what_they_replace_stays,
    processor_weights_are_set_and_put_back,
    disk_weights_are_set_and_put_back,
    three_shares_of_one_policy_are_shown_side_by_side,
];
