//! Tests changes of policies on a device: if a change is interrupted, the device is as before, and no waiting
//! packet is lost.

use crate::queue_shared::{
    DEVICE, THREE, applied, apply, class, cleared, datagrams, file, journal, name, on_a_host, policy, seen,
    unisono,
};
use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use unisono_enforce::interposed::Interposed;
use unisono_enforce::kernel::Kernel;
use unisono_enforce::{Backend as _, Error};
use unisono_host_tests::processes::words;
use unisono_host_tests::{TestOutcome, host_tests, program, require};
use unisono_linux::affinity::Tid;
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::process::{PidFd, Signal};

/// Applies a policy, and interrupts the change after `steps` steps. Returns whether it was interrupted,
/// because it had more steps.
fn stopped_after(steps: usize, text: &str) -> bool {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let mut kernel = Kernel::new(DEVICE).with_interrupt_check(move || {
        (count.fetch_add(1, Ordering::Relaxed) >= steps).then(|| "a test".to_owned())
    });
    match kernel.apply(&policy(text)) {
        Ok(()) => false,
        Err(Error::Stopped { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

fn a_change_that_is_stopped_anywhere_leaves_what_was_there() -> TestOutcome {
    let _hosts = on_a_host()?;
    let disciplines: [&[&str]; 3] = [
        &["pfifo", "limit", "7"],
        &["bfifo", "limit", "77777"],
        &["tbf", "rate", "50mbit", "burst", "20k", "latency", "30ms"],
    ];
    for discipline in [None].into_iter().chain(disciplines.map(Some)) {
        if let Some(discipline) = discipline {
            let replace = ["qdisc", "replace", "dev", DEVICE, "root", "handle", "77:"];
            let made = Command::new("tc").args(replace).args(discipline).status().expect("tc starts");
            if !made.success() {
                continue; // this kernel lacks this discipline
            }
        }
        let before = seen();
        let mut steps = 0;
        while stopped_after(steps, THREE) {
            assert_eq!(seen(), before, "after {steps} steps");
            assert!(!journal().exists(), "after {steps} steps");
            steps += 1;
            assert!(steps < 100, "it never ends");
        }
        assert!(steps > 4, "only {steps} steps"); // requests are sent in batches
        let mut kernel = Kernel::new(DEVICE);
        kernel.remove().expect("it is there");
        assert!(kernel.notes().is_empty(), "{:?}", kernel.notes());
        assert_eq!(seen(), before);
    }
    Ok(())
}

fn a_second_policy_that_is_stopped_anywhere_leaves_the_first() -> TestOutcome {
    let _hosts = on_a_host()?;
    let mut kernel = apply(THREE)?;
    let before = seen();
    let note = fs::read(journal()).expect("a policy holds");
    let second = "rate = \"50mbit\"\ndefault = \"other\"\n\
        [class.gold]\nweight = 1\nmatch = [{ port = 5001 }]\n\
        [class.silver.inner]\npackets = 9\nmatch = [{ port = 5002 }]\n";
    let mut steps = 0;
    while stopped_after(steps, second) {
        assert_eq!(seen(), before, "after {steps} steps");
        assert_eq!(fs::read(journal()).expect("a policy holds"), note, "after {steps} steps");
        steps += 1;
        assert!(steps < 100, "it never ends");
    }
    assert!(steps > 7, "only {steps} steps");
    let live = kernel.live().expect("a policy holds");
    let names: Vec<&str> = live.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(
        (names, live.rate.bits_per_second()),
        (vec!["gold", "silver", "inner", "other"], 50_000_000)
    );
    assert_eq!(
        seen().lines().filter(|line| line.starts_with("class htb")).count(),
        5,
        "none is left over"
    );
    kernel.remove().expect("it is there");
    assert!(!seen().contains("htb"));
    Ok(())
}

fn other_weights_change_the_classes_that_are_there_and_they_count_on() -> TestOutcome {
    let _hosts = on_a_host()?;
    let mut kernel = apply(THREE)?;
    datagrams("10.77.0.1:5001", "10.77.0.2:9", 0);
    let before = kernel.live().expect("a policy holds");
    kernel.apply(&policy(&THREE.replace("60", "30"))).expect("the kernel can");
    let after = kernel.live().expect("a policy holds");
    assert!(class(&before, "gold").packets >= 10);
    assert!(class(&after, "gold").packets >= class(&before, "gold").packets, "it has begun again");
    assert!((class(&after, "gold").guarantee - 3e8 / 7.0).abs() < 1.0);
    assert!(seen().contains("rate 42857Kbit") || seen().contains("rate 42.857"), "{}", seen());
    kernel.remove().expect("it is there");
    Ok(())
}

/// Returns the number of packets that wait, in all classes together.
fn waiting(kernel: &mut Kernel) -> u64 {
    let live = kernel.live().expect("a policy holds");
    live.classes.iter().filter(|class| class.parent.is_none()).map(|class| class.backlog.packets).sum()
}

fn another_policy_is_applied_without_losing_what_waits() -> TestOutcome {
    let hosts = on_a_host()?;
    let far = NetworkNamespace::named(hosts.name(1)).expect("it is there");
    let receivers = std::thread::spawn(move || {
        far.enter().expect("root may");
        [5001, 5002, 5003].map(|port| UdpSocket::bind(("10.77.0.2", port)).expect("it is free"))
    });
    let receivers = receivers.join().expect("no panic");
    // a packet takes 8 ms; class `stays` has a limit of packets, then of bytes; `moves` gets another parent;
    // `goes` is removed
    let first = "rate = \"1mbit\"\ndefault = \"rest\"\n\
        [class.stays]\npackets = 100\nmatch = [{ port = 5001 }]\n\
        [class.moves]\nlimit = \"100KiB\"\nmatch = [{ port = 5002 }]\n\
        [class.goes]\nlimit = \"100KiB\"\nmatch = [{ port = 5003 }]\n";
    let second = "rate = \"2mbit\"\ndefault = \"rest\"\n\
        [class.stays]\nweight = 3\nlimit = \"10KiB\"\nmatch = [{ port = 5001 }]\n\
        [class.above.moves]\nlimit = \"100KiB\"\nmatch = [{ port = 5002 }]\n\
        [class.rest]\nlimit = \"100KiB\"\n";
    for (first, second) in [(first, second), (second, first)] {
        let mut kernel = apply(&first.replace("10KiB", "100KiB"))?;
        let sender = UdpSocket::bind("10.77.0.1:0").expect("the address is ours");
        for number in 0..20_u8 {
            for port in [5001, 5002, 5003] {
                sender.send_to(&[number; 950], ("10.77.0.2", port)).expect("the cable is up");
            }
        }
        let before = waiting(&mut kernel);
        assert!(before > 20, "only {before} wait");
        kernel.apply(&policy(second)).expect("the kernel can");
        assert!(kernel.notes().is_empty(), "{:?}", kernel.notes());
        for receiver in &receivers {
            receiver.set_read_timeout(Some(Duration::from_secs(20))).expect("it is positive");
            for number in 0..20 {
                let mut packet = [0; 1000];
                let got = loop {
                    match receiver.recv(&mut packet) {
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        got => break got,
                    }
                };
                assert_eq!(got.expect("none is lost"), 950);
                assert_eq!(packet[0], number, "in their order");
            }
        }
        kernel.remove().expect("it is there");
    }
    Ok(())
}

/// Starts the program, and sends it a signal at time `after` after its change has begun.
fn ended_by(signal: Signal, after: Duration, arguments: &[&str]) -> Output {
    let mut command = Command::new(program::unisono());
    let mut child =
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let process = PidFd::open(Tid(child.id().cast_signed())).expect("it is not waited for yet");
    let journal = journal();
    while !journal.exists() && child.try_wait().expect("it is ours").is_none() {
        // sleeps, because a spinning test would take processor time from the command that it waits for
        std::thread::sleep(Duration::from_micros(50));
    }
    std::thread::sleep(after);
    let _ = process.send(signal); // fails if the command has ended already
    child.wait_with_output().expect("it is ours")
}

/// Returns a policy with so many classes that a change takes some time.
fn many() -> String {
    let class = |number: u32| format!("[class.c{number}]\nmatch = [{{ port = {} }}]\n", 1000 + number);
    format!("rate = \"100mbit\"\n{}", (0..400).map(class).collect::<String>())
}

fn whatever_kills_a_change_the_next_command_puts_back_what_was_there() -> TestOutcome {
    let _hosts = on_a_host()?;
    drop(apply(THREE)?.remove());
    let status = Command::new("tc")
        .args(["qdisc", "add", "dev", DEVICE, "root", "handle", "77:", "pfifo", "limit", "7"])
        .status();
    assert!(status.expect("tc starts").success());
    let before = seen();
    let many = file(&many());
    let (mut half_way, mut whole) = (0, 0);
    for round in 0..40_u64 {
        let after = Duration::from_micros(400 * round);
        ended_by(Signal::Kill, after, &["queue", "apply", name(&many), "--dev", DEVICE]);
        let note = fs::read_to_string(journal()).unwrap_or_default();
        half_way += usize::from(note.contains("\"changing\""));
        whole += usize::from(note.contains("\"holds\""));
        // any command restores the previous state
        let next: &[&str] = match round % 3 {
            _ if note.is_empty() => &["queue", "clear"],
            0 => &["queue", "clear", "--dev", DEVICE],
            1 if !note.contains("\"holds\"") => &["queue", "show", "--dev", DEVICE, "--once"],
            _ => &["queue", "clear"],
        };
        let output = unisono(next);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(seen(), before, "round {round}: {next:?}: {said}");
        assert!(!journal().exists(), "round {round}: {said}");
        assert!(
            note.contains("\"changing\"") <= said.contains("put back what `unisono queue`"),
            "round {round}: {said}"
        );
    }
    eprintln!("killed half way {half_way} times, afterwards {whole} times");
    assert!(half_way > 0, "all {whole} kills came too late");
    Ok(())
}

fn the_former_discipline_comes_back_though_the_queue_of_a_class_has_its_number() -> TestOutcome {
    let _hosts = on_a_host()?;
    drop(apply(THREE)?.remove());
    let tc = |arguments: &[&str]| {
        let status =
            Command::new("tc").arg("qdisc").args(arguments).args(["handle", "77:", "pfifo"]).status();
        assert!(status.expect("tc starts").success());
    };
    tc(&["add", "dev", DEVICE, "root"]);
    let before = seen();
    let policy = file(THREE);
    let applied = unisono(&["queue", "apply", name(&policy), "--dev", DEVICE]);
    assert!(applied.status.success(), "{applied:?}");
    let classes = seen();
    let with_queue = classes.lines().find(|line| line.contains(" leaf ")).expect("a class has a queue");
    let class = with_queue.split_ascii_whitespace().nth(2).expect("it has a number");
    tc(&["replace", "dev", DEVICE, "parent", class]);
    let cleared = unisono(&["queue", "clear", "--dev", DEVICE]);
    assert_eq!(seen(), before, "{cleared:?}");
    Ok(())
}

fn a_signal_during_a_change_puts_back_what_was_there() -> TestOutcome {
    let _hosts = on_a_host()?;
    drop(apply(THREE)?.remove());
    let before = seen();
    let many = file(&many());
    let mut stopped = 0;
    for round in 0..30_u64 {
        let signal = if round % 2 == 0 { Signal::Interrupt } else { Signal::Terminate };
        let after = Duration::from_micros(400 * round);
        let output = ended_by(signal, after, &["queue", "apply", name(&many), "--dev", DEVICE]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => {
                let output = unisono(&["queue", "clear", "--dev", DEVICE]);
                assert!(output.status.success(), "round {round}");
            }
            Some(1) => {
                assert!(said.contains("is as it was"), "round {round}: {said}");
                stopped += 1;
            }
            other => panic!("round {round}: {other:?} {said}"),
        }
        assert_eq!(seen(), before, "round {round}: {said}");
        assert!(!journal().exists(), "round {round}: {said}");
    }
    eprintln!("stopped {stopped} times");
    assert!(stopped > 0, "no signal hit a change");
    Ok(())
}

/// The number of classes of a large policy. A debug build needs seconds to parse 1,000, as long as the guard
/// waits for its worker.
const MANY: usize = if cfg!(debug_assertions) { 700 } else { 1000 };

/// Sends a frame of the class `c0` every 200 us until `stop` is set. Returns the number of frames.
fn steady_sender(stop: &AtomicBool) -> u64 {
    let socket = UdpSocket::bind("10.77.0.1:0").expect("the address is ours");
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        sent += u64::from(socket.send_to(&[7; 200], "10.77.0.2:20000").is_ok());
        thread::sleep(Duration::from_micros(200));
    }
    sent
}

fn an_interposed_policy_of_many_classes_is_replaced_and_shown_without_the_loss_of_a_frame() -> TestOutcome {
    let hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let text = |turn: usize| {
        let class = |number: usize| {
            let (weight, port) = (1 + (number + turn) % 7, 20_000 + number);
            format!("[class.c{number}]\nweight = {weight}\nmatch = [{{ port = {port} }}]\n")
        };
        let classes: String = (0..MANY - turn % 3).map(class).collect();
        file(&format!("rate = \"200mbit\"\ndefault = \"rest\"\n{classes}"))
    };
    applied(&text(0), &["--backend", "interposed"])?;
    let far = NetworkNamespace::named(hosts.name(1)).expect("it is there");
    let (ready, listening) = std::sync::mpsc::channel();
    thread::spawn(move || {
        far.enter().expect("root may");
        let socket = UdpSocket::bind("10.77.0.2:20000").expect("the port is free");
        ready.send(()).expect("the test waits");
        while socket.recv(&mut [0; 2000]).is_ok() {}
    });
    listening.recv().expect("it listens");
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    let sender = thread::spawn(move || steady_sender(&stops));
    let mut shown = String::new();
    for turn in 1..4 {
        applied(&text(turn), &["--backend", "interposed"])?;
        shown =
            words(&unisono(&["queue", "show", "--dev", DEVICE, "--once", "--json", "--interval", "10ms"]));
    }
    stop.store(true, Ordering::Relaxed);
    let sent = sender.join().expect("it does not panic");
    let (live, counters) = Interposed::at(DEVICE).figures().expect("a queue is there");
    let counters = counters.expect("a queue counts");
    let lost = class(&live, "c0").dropped + counters.overrun + counters.unsent + counters.unattended;
    assert!(sent > 0 && lost == 0, "{lost} of {sent}: {counters:?} {shown}");
    assert_eq!(live.classes.len(), MANY + 1, "{shown}");
    cleared(&[]);
    Ok(())
}

host_tests![needs OwnQueues;
    an_interposed_policy_of_many_classes_is_replaced_and_shown_without_the_loss_of_a_frame within 240,
    a_change_that_is_stopped_anywhere_leaves_what_was_there,
    a_second_policy_that_is_stopped_anywhere_leaves_the_first,
    other_weights_change_the_classes_that_are_there_and_they_count_on,
    another_policy_is_applied_without_losing_what_waits,
    the_former_discipline_comes_back_though_the_queue_of_a_class_has_its_number,
    whatever_kills_a_change_the_next_command_puts_back_what_was_there within 180,
    a_signal_during_a_change_puts_back_what_was_there within 180,
];
