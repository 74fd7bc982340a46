//! Tests policies beside other programs: filters of others stay and run first, sockets do not choose their
//! class, busy programs do not take the worker's processor, and a journal of a namespace that no longer
//! exists is ignored.

use crate::queue_shared::{
    DEVICE, THREE, applied, apply, class, cleared, datagrams, file, journal, looks, on_a_host, queue_apply,
    unisono,
};
use std::fs::{self, DirBuilder};
use std::net::UdpSocket;
use std::os::unix::fs::DirBuilderExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};
use unisono_enforce::Backend as _;
use unisono_host_tests::processes::words;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, require};
use unisono_linux::bpf::ClassifierProgram;
use unisono_linux::bpf::assembler::{Assembler, R0};
use unisono_linux::bpf::tcx::{self, TcxHook};
use unisono_linux::interface::Interface;
use unisono_linux::netlink::link::Index;
use unisono_linux::network_namespace::NetworkNamespace;

fn tc(line: &str) {
    let status = Command::new("tc").args(line.split_whitespace()).status().expect("tc starts");
    assert!(status.success(), "{line}");
}

fn filters_of_others_stay_and_come_first_on_both_hooks() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    tc(&format!("qdisc add dev {DEVICE} clsact"));
    let bare = looks();
    for (hook, pref, options) in [
        ("ingress", 1, &["--direction", "in"][..]),
        ("ingress", 49_152, &["--direction", "in"]),
        ("egress", 1, &["--backend", "interposed"]),
        ("egress", 5, &["--backend", "interposed"]),
    ] {
        // a filter of another kind and protocol than ours, so that ours cannot share its preference; without
        // an action, so that it never ends the chain
        tc(&format!("filter add dev {DEVICE} {hook} pref {pref} protocol ip u32 match u32 0 0"));
        let theirs = looks();
        let output = queue_apply(&policy, options);
        let said = words(&output);
        assert!(output.status.success(), "{hook} {pref}: {said}");
        assert!(said.contains(&format!("u32 (pref {pref})")), "{said}");
        let all = looks();
        let at = |what: &str| all.find(what).unwrap_or_else(|| panic!("{what} in {all}"));
        assert!(at("u32") < at("unisono_"), "ours come last: {all}");
        applied(&policy, options)?; // once more, over the same policy
        cleared(&[]);
        crate::queue_shared::wait_until_it_looks(&theirs);
        tc(&format!("filter del dev {DEVICE} {hook} pref {pref} protocol ip"));
    }
    assert_eq!(looks(), bare);
    for options in [&["--direction", "in"][..], &["--backend", "interposed"]] {
        applied(&policy, options)?;
        cleared(&[]);
        crate::queue_shared::wait_until_it_looks(&bare);
    }
    Ok(())
}

/// A program at the device that is not ours and returns a constant. It is detached when this value is
/// dropped.
struct ForeignProgram(Index, TcxHook);

impl ForeignProgram {
    const NAME: &str = "cil_netdev";

    fn returning(value: i32, hook: TcxHook) -> Result<Self, Skipped> {
        let index = Interface::find(DEVICE).expect("it is there").index;
        let mut code = Assembler::default();
        code.set(R0, value).exit();
        let code = code.finish().expect("it has no labels");
        let program = ClassifierProgram::load(Self::NAME, &code).expect("root may");
        tcx::replace_or_prepend(&program, Self::NAME, index, hook)
            .map_err(|error| Skipped::because(format!("no tcx: {error}")))?;
        Ok(Self(index, hook))
    }
}

impl Drop for ForeignProgram {
    fn drop(&mut self) {
        let _ = tcx::detach_named(Self::NAME, self.0, self.1);
    }
}

fn a_program_of_others_is_named_by_what_it_can_return() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    for (hook, options) in
        [(TcxHook::Ingress, ["--direction", "in"]), (TcxHook::Egress, ["--backend", "interposed"])]
    {
        for (value, said) in [(0, Some("cil_netdev (tcx) ends the chain for every packet")), (-1, None)] {
            let _foreign = ForeignProgram::returning(value, hook)?;
            let output = queue_apply(&policy, &[&options[..], &["--check"]].concat());
            let words = words(&output);
            assert!(output.status.success(), "{words}");
            assert_eq!(words.contains("cil_netdev"), said.is_some(), "{value}: {words}");
            assert!(said.is_none_or(|said| words.contains(said)), "{value}: {words}");
        }
    }
    Ok(())
}

fn a_socket_cannot_choose_its_class_by_its_priority() -> TestOutcome {
    let _hosts = on_a_host()?;
    let mut kernel = apply(THREE)?;
    let rest = |kernel: &mut unisono_enforce::kernel::Kernel| {
        class(&kernel.live().expect("it holds"), "rest").packets
    };
    datagrams("10.77.0.1:0", "10.77.0.2:9", 0); // so that the neighbor's address is known
    let before = rest(&mut kernel);
    // priorities that name the discipline itself, which would bypass all classes, and each class
    for number in 0..5 {
        datagrams("10.77.0.1:0", "10.77.0.2:9", 0x556e_0000 | number);
    }
    let got = rest(&mut kernel) - before;
    assert!(got >= 50, "{got} of 50");
    kernel.remove().expect("it is there");
    Ok(())
}

fn a_journal_of_another_namespace_with_the_same_number_is_forgotten() -> TestOutcome {
    let hosts = on_a_host()?;
    applied(&file(THREE), &[])?;
    let path = journal();
    let record = fs::read_to_string(&path).expect("it holds");
    cleared(&[]);
    let (header, rest) = record.split_once('\n').expect("a header, and a line of its own for the rest");
    let mut header: serde_json::Value = serde_json::from_str(header).expect("one object");
    let cookie = header["namespace"].as_u64().expect("this kernel has cookies");
    header["namespace"] = (cookie + 1_000_000_000).into();
    let record = format!("{header}\n{rest}");
    let before = looks();
    // makes the directory again, because it was removed with its last journal
    let directory = path.parent().expect("a file is in a directory");
    let make = || DirBuilder::new().recursive(true).mode(0o700).create(directory).expect("root may");
    make();
    fs::write(&path, &record).expect("root may");
    let shown = unisono(&["queue", "show", "--dev", DEVICE, "--once"]);
    assert!(words(&shown).contains("has no policy"), "{}", words(&shown));
    assert_eq!(looks(), before);
    assert!(!path.exists(), "forgotten");
    // and a journal of a namespace number that no namespace has
    let gone = path.with_file_name("1-7.json");
    make();
    fs::write(&gone, &record).expect("root may");
    cleared(&[]);
    assert!(!gone.exists(), "forgotten");
    drop(hosts);
    Ok(())
}

/// Programs that use all processor time. They are killed when this value is dropped.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn on_every_processor() -> Self {
        let count = thread::available_parallelism().map_or(2, usize::from);
        let start = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh starts");
        Self((0..count).map(start).collect())
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn an_interposed_class_below_its_share_loses_nothing_beside_busy_programs() -> TestOutcome {
    let hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let text = "rate = \"200mbit\"\ndefault = \"rest\"\n[class.a]\nmatch = [{ port = 7001 }]\n[class.rest]\n";
    applied(&file(text), &["--backend", "interposed"])?;
    let far = NetworkNamespace::named(hosts.name(1)).expect("it is there");
    let (ready, listening) = std::sync::mpsc::channel();
    thread::spawn(move || {
        far.enter().expect("root may");
        let socket = UdpSocket::bind("10.77.0.2:7001").expect("the port is free");
        ready.send(()).expect("the test waits");
        while socket.recv(&mut [0; 2000]).is_ok() {}
    });
    listening.recv().expect("it listens");
    let busy = BusyLoops::on_every_processor();
    let socket = UdpSocket::bind("10.77.0.1:0").expect("the address is ours");
    let (begin, mut sent) = (Instant::now(), 0_u64);
    while begin.elapsed() < Duration::from_secs(4) {
        // one packet at a time, so that the class's queue never overflows: a sender that is late does not
        // catch up
        sent += u64::from(socket.send_to(&[7; 500], "10.77.0.2:7001").is_ok());
        thread::sleep(Duration::from_micros(200));
    }
    drop(busy);
    let output = unisono(&["queue", "show", "--dev", DEVICE, "--once", "--json", "--interval", "10ms"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let counters = &shown["counters"];
    let lost = number(&shown["classes"][0]["dropped"])
        + ["overrun", "unsent", "unattended"].map(|name| number(&counters[name])).iter().sum::<u64>();
    assert!(lost * 1000 <= sent, "{lost} of {sent}: {shown}");
    cleared(&[]);
    Ok(())
}

host_tests![needs OwnQueues;
    filters_of_others_stay_and_come_first_on_both_hooks within 120,
    a_program_of_others_is_named_by_what_it_can_return within 60,
    a_socket_cannot_choose_its_class_by_its_priority,
    a_journal_of_another_namespace_with_the_same_number_is_forgotten,
    an_interposed_class_below_its_share_loses_nothing_beside_busy_programs within 120,
];
