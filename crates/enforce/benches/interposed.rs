//! Measures the cost of an interposed queue on this host: latency, goodput, shares. Uses two network
//! namespaces connected by a pair of veth devices (the cable); needs root.
//!
//! `cargo bench -p unisono-enforce --bench interposed -- [latency|goodput|unshaped|shares|change]...
//! [--repeats N] [--seconds S]`
//!
//! Each repetition runs all variants, every other one in the opposite order. The queue runs on the last
//! processor, the rest of the work where the kernel puts it (for `latency`, on the first). Each figure is a
//! median with the minimum and maximum of the repetitions.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a measuring program speaks")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unisono_enforce::interposed::{
    Engine, EngineChange, EngineDiscipline, FlowNumber, FramePathName, NextFrame, Options, READY,
    WaitStrategy, serve,
};
use unisono_fairqueue::Policy;
use unisono_linux::affinity::{CpuSet, Tid, allowed, restrict_own};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::socket::set_congestion_control;

const NEAR: &str = "unisono-bench-a";
const FAR: &str = "unisono-bench-b";
const CLASSES: &str = "\ndefault = \"rest\"\n[class.a]\nweight = 60\nmatch = [{ port = 5001 }]\n\
    [class.b]\nweight = 30\nmatch = [{ port = 5002 }]\n[class.c]\nweight = 10\nmatch = [{ port = 5003 }]\n";

/// The queue between the two namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Between {
    Nothing,
    Htb,
    Queue(&'static str, &'static str, &'static str),
}

const TUN: Between = Between::Queue("tun", "spin-block", "fair");
const TUN_SPIN: Between = Between::Queue("tun", "spin", "fair");
const XDP: Between = Between::Queue("af-xdp", "spin", "fair");
const XDP_FIFO: Between = Between::Queue("af-xdp", "spin", "fifo");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "serve") {
        return serve_here(&arguments[1..]);
    }
    if !unisono_linux::process::is_root() {
        println!("skipped: it needs root");
        return;
    }
    let number = |flag: &str, usual: f64| {
        let at = arguments.iter().position(|argument| argument == flag);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(usual)
    };
    let (repeats, seconds) = (number("--repeats", 5.0) as usize, number("--seconds", 2.0));
    let wanted = |name: &str| {
        let all = ["latency", "goodput", "unshaped", "shares", "change"];
        !arguments.iter().any(|argument| all.contains(&argument.as_str()))
            || arguments.iter().any(|one| one == name)
    };
    if wanted("change") {
        for classes in [100, 1000, 4000] {
            change(classes, repeats);
        }
    }
    if arguments.iter().any(|one| one == "change") {
        return;
    }
    let cable = Cable::new();
    if wanted("latency") {
        let variants = [Between::Nothing, XDP, TUN_SPIN, TUN];
        let measure = |_: &Between| latency(&cable, seconds);
        table("one way, us", &variants, repeats, "40gbit", &cable, measure);
    }
    if wanted("goodput") {
        let measure = |_: &Between| goodput(&cable, &[5001], seconds, "cubic")[0] / 1e6;
        table(
            "goodput at 100 Mbit/s, Mbit/s",
            &[Between::Htb, TUN, XDP],
            repeats,
            "100mbit",
            &cable,
            measure,
        );
    }
    if wanted("unshaped") {
        let measure = |_: &Between| goodput(&cable, &[5001], seconds, "cubic")[0] / 1e9;
        table("TCP unshaped, Gbit/s", &[XDP, XDP_FIFO], repeats, "100gbit", &cable, measure);
    }
    if wanted("shares") {
        for (control, between) in [("cubic", TUN), ("cubic", XDP), ("bbr", XDP)] {
            for (ports, exact) in
                [(&[5001, 5002, 5003][..], &[0.6, 0.3, 0.1][..]), (&[5002, 5003], &[0.75, 0.25])]
            {
                let measure = |_: &Between| {
                    let got = goodput(&cable, ports, seconds, control);
                    let all: f64 = got.iter().sum();
                    let off =
                        got.iter().zip(exact).map(|(got, exact)| (got / all / exact - 1.0).abs() * 100.0);
                    off.fold(0.0, f64::max)
                };
                let title = format!("{} classes, {control}: farthest from its share, %", ports.len());
                table(&title, &[between], repeats, "100mbit", &cable, measure);
            }
        }
    }
}

/// Measures the change to another policy with `classes` classes while a frame of each class waits: the time
/// to prepare the change, which another thread does, and the time for which the link stops.
fn change(classes: usize, repeats: usize) {
    let policy = |turn: usize| {
        let class = |number: usize| {
            let (weight, port) = (1 + (number + turn) % 7, 20_000 + number);
            format!("[class.c{number}]\nweight = {weight}\nmatch = [{{ port = {port} }}]\n")
        };
        let classes: String = (0..classes - turn % 3).map(class).collect();
        format!("rate = \"200mbit\"\ndefault = \"rest\"\n{classes}")
    };
    let parse = |turn| Policy::parse(&policy(turn)).expect("it is sound");
    let mut engine: Engine<u32> = Engine::new(parse(0), EngineDiscipline::Fair).expect("it has a tree");
    let leaves: Vec<_> = engine.policy().hierarchy.classes().skip(1).map(|(id, _)| id).collect();
    let mut now = unisono_linux::clock::Instant::ZERO;
    for _ in 0..100 {
        for class in &leaves {
            now += unisono_linux::clock::Duration::from_micros(61);
            engine.accept(now, *class, FlowNumber::default(), 1500, 0);
            while matches!(engine.next(now), NextFrame::Send(_)) {}
        }
    }
    for class in &leaves {
        engine.accept(now, *class, FlowNumber::default(), 1500, 0);
    }
    let mut figures = [const { Vec::new() }; 3];
    for turn in 1..=repeats {
        let begin = Instant::now();
        let prepared = EngineChange::new(parse(turn)).expect("it has a tree");
        let (ready, changed) =
            (Instant::now(), engine.change(prepared).expect("packets have a default class"));
        let stopped = ready.elapsed();
        drop(changed);
        let shown = Instant::now();
        assert!(engine.live().len() + 2 >= classes, "all are shown");
        let times = [ready - begin, stopped, shown.elapsed()];
        figures.iter_mut().zip(times).for_each(|(all, time)| all.push(time.as_secs_f64() * 1e3));
    }
    for (all, what) in
        figures.iter_mut().zip(["prepared", "link stops for a change", "link stops for `show`"])
    {
        all.sort_by(f64::total_cmp);
        println!(
            "{classes} classes, {what}: median {:.2} ms, max {:.2} ms",
            all[all.len() / 2],
            all[all.len() - 1]
        );
    }
}

fn table(
    title: &str,
    variants: &[Between],
    repeats: usize,
    rate: &str,
    cable: &Cable,
    measure: impl Fn(&Between) -> f64,
) {
    let mut figures = vec![Vec::new(); variants.len()];
    for repeat in 0..repeats {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if repeat % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let _queue = cable.put(variants[at], rate);
            figures[at].push(measure(&variants[at]));
        }
    }
    println!("{title} (n = {repeats})");
    for (variant, figures) in variants.iter().zip(&mut figures) {
        figures.sort_by(f64::total_cmp);
        let (least, most) = (figures[0], figures[figures.len() - 1]);
        println!(
            "  {:<40} {:>9.3}   {least:.3} to {most:.3}",
            format!("{variant:?}"),
            figures[figures.len() / 2]
        );
    }
}

/// The two namespaces and the cable; dropping this value removes them.
struct Cable;

fn run(command: &str) {
    let mut words = command.split(' ');
    let done = Command::new(words.next().expect("a word")).args(words).stderr(Stdio::null()).status();
    if !done.is_ok_and(|status| status.success()) {
        println!("{command}: refused");
    }
}

impl Cable {
    fn new() -> Self {
        for name in [NEAR, FAR] {
            let _ = unisono_linux::network_namespace::remove(name);
            run(&format!("ip netns add {name}"));
        }
        run(&format!("ip link add near netns {NEAR} type veth peer name far netns {FAR}"));
        for (name, device, address) in [(NEAR, "near", "10.66.0.1/24"), (FAR, "far", "10.66.0.2/24")] {
            run(&format!("ip -n {name} addr add {address} dev {device}"));
            run(&format!("ip -n {name} link set {device} up"));
        }
        thread::sleep(Duration::from_millis(300));
        Self
    }

    fn put(&self, between: Between, rate: &str) -> Option<Queue> {
        match between {
            Between::Nothing => None,
            Between::Htb => {
                run(&format!("ip netns exec {NEAR} tc qdisc add dev near root handle 1: htb default 1"));
                run(&format!(
                    "ip netns exec {NEAR} tc class add dev near parent 1: classid 1:1 htb rate {rate} quantum 1514"
                ));
                run(&format!("ip netns exec {NEAR} tc qdisc add dev near parent 1:1 pfifo limit 100"));
                Some(Queue(None))
            }
            Between::Queue(way, wait, choice) => {
                enter(NEAR);
                let mut child = Command::new("/proc/self/exe")
                    .args(["serve", way, wait, choice])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("this program starts again");
                let mut input = child.stdin.take().expect("it was asked for");
                input.write_all(format!("rate = \"{rate}\"{CLASSES}").as_bytes()).expect("it reads");
                drop(input);
                let mut line = String::new();
                BufReader::new(child.stdout.take().expect("it was asked for"))
                    .read_line(&mut line)
                    .expect("it speaks");
                assert_eq!(line.trim_end(), READY, "the queue begins");
                Some(Queue(Some(child)))
            }
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in [NEAR, FAR] {
            let _ = unisono_linux::network_namespace::remove(name);
        }
    }
}

/// A queue; dropping this value ends it.
struct Queue(Option<Child>);

impl Drop for Queue {
    fn drop(&mut self) {
        match &mut self.0 {
            None => run(&format!("ip netns exec {NEAR} tc qdisc del dev near root")),
            Some(child) => {
                run(&format!("kill {}", child.id()));
                let _ = child.wait();
            }
        }
    }
}

fn serve_here(arguments: &[String]) {
    let [way, wait, choice] = arguments else { panic!("three words") };
    let options = Options {
        device: "near".to_owned(),
        way: if way == "tun" { FramePathName::Tun } else { FramePathName::AfXdp },
        choice: if choice == "fifo" { EngineDiscipline::Fifo } else { EngineDiscipline::Fair },
        wait: match wait.as_str() {
            "spin" => WaitStrategy::Spin,
            "block" => WaitStrategy::Block,
            _ => WaitStrategy::SpinBlock(Duration::from_micros(50)),
        },
        processor: last_processor(),
        lock: None,
    };
    let mut policy = String::new();
    std::io::stdin().read_to_string(&mut policy).expect("a policy");
    let ready = || println!("{READY}");
    if let Err(error) = serve(&policy, &options, ready) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn last_processor() -> Option<usize> {
    allowed(Tid::SELF).ok().and_then(|all| all.iter().next_back())
}

fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).expect("it was made");
    NetworkNamespace::from(OwnedFd::from(file)).enter().expect("root may");
}

/// Returns the median of the microseconds from a send until a spinning receiver has the packet. One thread
/// has both ends, so that no wake-up of a receiver is measured.
fn latency(_cable: &Cable, seconds: f64) -> f64 {
    let measure = move || {
        let _ = restrict_own(&CpuSet::single(0));
        let to: SocketAddr = "10.66.0.2:5001".parse().expect("an address");
        enter(FAR);
        let far = UdpSocket::bind(to).expect("it is free");
        far.set_nonblocking(true).expect("a socket");
        enter(NEAR);
        let near = UdpSocket::bind("10.66.0.1:0").expect("a port is free");
        near.connect(to).expect("a route");
        let (mut figures, mut bytes) = (Vec::new(), [0; 64]);
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            let begin = Instant::now();
            near.send(&[1; 64]).expect("a route");
            while far.recv(&mut bytes).is_err() && begin.elapsed() < Duration::from_millis(100) {}
            figures.push(begin.elapsed().as_nanos() as f64 / 1e3);
            let pause = Instant::now();
            while pause.elapsed() < Duration::from_micros(100) {
                std::hint::spin_loop();
            }
        }
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    thread::spawn(measure).join().expect("it measured")
}

/// Returns the bits a second of each TCP connection, after half a second in which it finds its rate.
fn goodput(_cable: &Cable, ports: &[u16], seconds: f64, control: &'static str) -> Vec<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let (mut counters, mut threads) = (Vec::new(), Vec::new());
    for port in ports {
        let to = SocketAddr::from(([10, 66, 0, 2], *port));
        enter(FAR);
        let listener = TcpListener::bind(to).expect("it is free");
        enter(NEAR);
        let mut near = TcpStream::connect(to).expect("a route");
        set_congestion_control(&near, control).expect("the kernel has it");
        let (mut far, _) = listener.accept().expect("it connected");
        near.set_write_timeout(Some(Duration::from_secs(1))).expect("a socket");
        far.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
        let got = Arc::new(AtomicU64::new(0));
        counters.push(Arc::clone(&got));
        let (stops, also) = (Arc::clone(&stop), Arc::clone(&stop));
        threads.push(thread::spawn(move || {
            let mut bytes = vec![0; 1 << 18];
            while let Ok(count @ 1..) = far.read(&mut bytes) {
                got.fetch_add(count as u64, Ordering::Relaxed);
                if stops.load(Ordering::Relaxed) {
                    break;
                }
            }
        }));
        threads.push(thread::spawn(move || {
            let bytes = vec![7; 1 << 17];
            while !also.load(Ordering::Relaxed) && near.write(&bytes).is_ok() {}
        }));
    }
    thread::sleep(Duration::from_millis(500));
    let now = || -> Vec<u64> { counters.iter().map(|count| count.load(Ordering::Relaxed)).collect() };
    let (before, begin) = (now(), Instant::now());
    thread::sleep(Duration::from_secs_f64(seconds));
    let (after, took) = (now(), begin.elapsed().as_secs_f64());
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("it ends");
    }
    before.iter().zip(after).map(|(before, after)| (after - before) as f64 * 8.0 / took).collect()
}
