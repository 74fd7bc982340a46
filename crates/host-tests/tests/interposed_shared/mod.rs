//! Helpers of the tests of the interposed backend: two hosts, a queue at the device of the first, and
//! connections through it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use unisono_enforce::Backend as _;
use unisono_enforce::interposed::{Counters, Interposed};
use unisono_fairqueue::{Live, LiveClass};
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::{Skipped, program, require};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::socket::set_congestion_control;

pub(crate) const WAYS: [&str; 2] = ["tun", "af-xdp"];
pub(crate) const DEVICE: &str = "cable";
pub(crate) const POLICY: &str = "rate = \"50mbit\"\ndefault = \"rest\"\n[class.a]\nweight = 3\nmatch = [{ port = 5001 }]\n\
    [class.b]\nmatch = [{ port = 5002 }, { priority = 6 }]\n";

/// Two hosts; the queue is on the first.
pub(crate) struct QueueUnderTest {
    pub(crate) hosts: Hosts,
    pub(crate) policy: tempfile::NamedTempFile,
}

impl QueueUnderTest {
    pub(crate) fn new(policy: &str) -> Result<Self, Skipped> {
        Self::at(Hosts::new, policy)
    }

    /// Adds a third host with a cable to each of the others.
    pub(crate) fn at_three(policy: &str) -> Result<Self, Skipped> {
        Self::at(Hosts::three, policy)
    }

    fn at(hosts: fn() -> Result<Hosts, Skipped>, policy: &str) -> Result<Self, Skipped> {
        require::path("/dev/net/tun", "load the module `tun`")?;
        let hosts = hosts()?;
        let mut file = tempfile::NamedTempFile::new().expect("room for a policy");
        file.write_all(policy.as_bytes()).expect("room for a policy");
        Ok(Self { hosts, policy: file })
    }

    pub(crate) fn enter(&self, host: usize) {
        let file = fs::File::open(Path::new("/run/netns").join(self.hosts.name(host))).expect("it was made");
        NetworkNamespace::from(std::os::fd::OwnedFd::from(file)).enter().expect("root may");
    }

    /// Runs `unisono queue ARGUMENTS --dev cable` on the first host, but in this mount namespace, which has
    /// the control groups.
    pub(crate) fn queue(&self, arguments: &[&str]) -> Output {
        self.enter(0);
        let mut command = Command::new(program::unisono());
        command.arg("queue").args(arguments).args(["--dev", DEVICE]).stdin(Stdio::null());
        command.output().expect("the program starts")
    }

    /// Replaces the policy for the next `apply`.
    pub(crate) fn set_policy(&self, policy: &str) {
        fs::write(self.policy.path(), policy).expect("room for a policy");
    }

    pub(crate) fn apply(&self, way: &str) -> Result<(), Skipped> {
        let policy = self.policy.path().to_str().expect("a path of letters").to_owned();
        let output = self.queue(&["apply", &policy, "--backend", "interposed", "--way", way]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => Ok(()),
            Some(3) => Err(Skipped::because(said)),
            _ => panic!("{said}"),
        }
    }

    pub(crate) fn figures(&self) -> (Live, Counters) {
        self.enter(0);
        let (live, counters) = Interposed::at(DEVICE).figures().expect("a queue is there");
        (live, counters.expect("a queue counts"))
    }

    pub(crate) fn class(&self, name: &str) -> LiveClass {
        self.figures().0.classes.into_iter().find(|class| class.name == name).expect("it is in the policy")
    }

    /// Returns the processes of the queue: the guard, and the worker that frames pass through.
    pub(crate) fn processes(&self) -> (u32, u32) {
        self.enter(0);
        let journal = unisono_enforce::journal::Journal::for_device(DEVICE).expect("proc is mounted");
        let record = journal.read::<serde_json::Value>().expect("sound").expect("a policy holds");
        let children = format!("/proc/{0}/task/{0}/children", record.author.process);
        let worker = fs::read_to_string(children).expect("it runs").trim().parse().expect("it has one child");
        (record.author.process, worker)
    }

    /// Returns, as text, the part of the device's state that a policy changes.
    pub(crate) fn looks(&self) -> String {
        let near = self.hosts.name(0);
        let links = ip(&["-n", near, "-br", "link"]).expect("it lists");
        let qdiscs = Command::new("ip").args(["netns", "exec", near, "tc", "qdisc", "show"]).output();
        links + &String::from_utf8_lossy(&qdiscs.expect("tc is with ip").stdout)
    }

    /// Waits until nothing of the queue is left. If that never happens, the watchdog ends the test.
    pub(crate) fn wait_until_it_looks(&self, before: &str) {
        while self.looks() != before {
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn flow(&self, port: u16) -> Flow {
        self.flow_between(0, 1, &Hosts::address(1), port)
    }

    /// Connects a host to an address of another host.
    pub(crate) fn flow_between(&self, sender: usize, receiver: usize, address: &str, port: u16) -> Flow {
        let to = SocketAddr::new(address.parse().expect("an address"), port);
        self.enter(receiver);
        let listener = TcpListener::bind(to).expect("the port is free");
        self.enter(sender);
        let mut near = TcpStream::connect(to).expect("the far host answers");
        set_congestion_control(&near, "cubic")
            .or_else(|_| set_congestion_control(&near, "reno"))
            .expect("it is built in");
        let (mut far, _) = listener.accept().expect("it connected");
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
            stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a socket");
        }
        let (got, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counts, stops) = (Arc::clone(&got), Arc::clone(&stop));
        let reader = thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            loop {
                match far.read(&mut bytes) {
                    Ok(0) => return,
                    Ok(count) => _ = counts.fetch_add(count as u64, Ordering::Relaxed),
                    // a signal, such as at the end of a child, interrupts a read that has a time limit
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => panic!("nothing arrives any more: {error}"),
                }
            }
        });
        let writer = thread::spawn(move || {
            let bytes = [7; 1 << 14];
            while !stops.load(Ordering::Relaxed) && near.write_all(&bytes).is_ok() {}
        });
        Flow { got, stop, threads: vec![reader, writer] }
    }
}

impl Drop for QueueUnderTest {
    fn drop(&mut self) {
        // removes what a failed test has left
        let _ = self.queue(&["clear"]);
    }
}

/// A TCP connection that sends as much as it can.
pub(crate) struct Flow {
    got: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    pub(crate) fn got(&self) -> u64 {
        self.got.load(Ordering::Relaxed)
    }

    /// Waits until `bytes` more bytes have arrived.
    pub(crate) fn wait_for(&self, bytes: u64) {
        let until = self.got() + bytes;
        while self.got() < until {
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "the connection ended");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

pub(crate) fn kill(process: u32, signal: &str) {
    let killed =
        Command::new("kill").args([signal, &process.to_string()]).status().expect("kill is everywhere");
    assert!(killed.success(), "{process} runs");
}
