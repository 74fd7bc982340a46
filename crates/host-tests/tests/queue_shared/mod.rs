//! Helpers of the tests of policies on a device: two hosts, a policy on a device of the first, and the state
//! of the device as other programs see it.

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;
use unisono_enforce::journal::Journal;
use unisono_enforce::kernel::Kernel;
use unisono_enforce::{Backend as _, Error};
use unisono_fairqueue::{Live, LiveClass, Policy};
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::processes::{text, words};
use unisono_host_tests::{Skipped, TestOutcome, program, require};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::socket::set_priority;

pub(crate) const DEVICE: &str = "cable";
pub(crate) const THREE: &str = "rate = \"100mbit\"\ndefault = \"rest\"\n\
    [class.gold]\nweight = 60\nmatch = [{ port = 5001 }]\n\
    [class.silver]\nweight = 30\nmatch = [{ port = 5002 }]\n\
    [class.rest]\nweight = 10\n";

/// Makes two hosts, and moves this thread to the first.
pub(crate) fn on_a_host() -> Result<Hosts, Skipped> {
    let hosts = Hosts::new()?;
    require::program("tc", "apt-get install iproute2")?;
    let first = NetworkNamespace::named(hosts.name(0)).expect("it was just made");
    first.enter().map_err(|error| Skipped::because(format!("no namespace can be entered: {error}")))?;
    Ok(hosts)
}

pub(crate) fn policy(text: &str) -> Policy {
    Policy::parse(text).expect("it is sound")
}

/// Applies a policy. Skips the test if the kernel lacks a feature.
pub(crate) fn apply(text: &str) -> Result<Kernel, Skipped> {
    let mut kernel = Kernel::new(DEVICE);
    match kernel.apply(&policy(text)) {
        Err(error @ Error::Lacks { .. }) => Err(Skipped::because(error.to_string())),
        done => {
            done.expect("the kernel can");
            Ok(kernel)
        }
    }
}

/// Returns what a program prints.
fn printed(program: &str, words: &[&str]) -> String {
    text(&Command::new(program).args(words).output().expect("it starts").stdout)
}

/// Returns the state of the device as other programs see it, without numbers that the kernel assigns anew.
pub(crate) fn seen() -> String {
    let ask = |what: &str| printed("tc", &[what, "show", "dev", DEVICE]);
    let link = printed("ip", &["-d", "link", "show", DEVICE]);
    let most = link.split_whitespace().skip_while(|word| !word.starts_with("gso_max_size")).take(4);
    settled(&[ask("qdisc"), ask("class"), most.collect::<Vec<_>>().join(" ")].concat())
}

/// Returns the same as [`seen`], the BPF programs at the device, and all devices of this namespace with their
/// disciplines.
pub(crate) fn looks() -> String {
    let filters = |side: &str| printed("tc", &["filter", "show", "dev", DEVICE, side]);
    let disciplines = settled(&printed("tc", &["qdisc"]));
    [seen(), disciplines, printed("ip", &["-br", "link"]), filters("ingress"), filters("egress")].concat()
}

/// Waits until [`looks`] returns `before`: devices are removed, and cables come up, a moment after the
/// command that asked for it.
pub(crate) fn wait_until_it_looks(before: &str) {
    while looks() != before {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the lines sorted, without the numbers that the kernel assigns anew.
fn settled(text: &str) -> String {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().filter(|word| !is_automatic(word)).collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    lines.join("\n")
}

/// Returns whether a word is a number that the kernel assigned to a queueing discipline: from 8000 up,
/// counted for the whole host.
fn is_automatic(word: &str) -> bool {
    let number = word.strip_suffix(':').and_then(|number| u32::from_str_radix(number, 16).ok());
    number.is_some_and(|number| number >= 0x8000)
}

pub(crate) fn journal() -> PathBuf {
    Journal::for_device(DEVICE).expect("/proc is there").path().to_owned()
}

pub(crate) fn class<'a>(live: &'a Live, name: &str) -> &'a LiveClass {
    live.classes.iter().find(|class| class.name == name).expect("it is in the policy")
}

pub(crate) fn datagrams(from: &str, to: &str, priority: u32) {
    let socket = UdpSocket::bind(from).expect("the address is ours");
    set_priority(&socket, priority).expect("root may");
    for _ in 0..10 {
        socket.send_to(b"hello", to).expect("the cable is up");
    }
}

pub(crate) fn unisono(arguments: &[&str]) -> Output {
    Command::new(program::unisono()).args(arguments).output().expect("it starts")
}

/// Runs `unisono queue apply` with a policy and these options on the device.
pub(crate) fn queue_apply(policy: &tempfile::NamedTempFile, options: &[&str]) -> Output {
    unisono(&[&["queue", "apply", name(policy), "--dev", DEVICE][..], options].concat())
}

/// Runs [`queue_apply`], which must succeed. Skips the test if the host lacks a feature.
pub(crate) fn applied(policy: &tempfile::NamedTempFile, options: &[&str]) -> TestOutcome {
    let output = queue_apply(policy, options);
    match output.status.code() {
        Some(0) => Ok(()),
        Some(3) => Err(Skipped::because(words(&output))),
        _ => panic!("{}", words(&output)),
    }
}

pub(crate) fn cleared(options: &[&str]) -> String {
    let output = unisono(&[&["queue", "clear"], options].concat());
    assert!(output.status.success(), "{}", words(&output));
    words(&output)
}

pub(crate) fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("there is room");
    fs::write(&file, text).expect("there is room");
    file
}

pub(crate) fn name(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().expect("a plain name")
}
