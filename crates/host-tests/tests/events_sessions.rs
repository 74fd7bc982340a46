//! Tests the MQTT sessions of a broker with a log that is killed again and again (SIGKILL), while one client
//! publishes with QoS 2 and others receive: no message is lost, and none of QoS 2 comes twice.
//!
//! The broker is killed four times; twenty times in `cargo xtask nightly`. The clients keep the state that
//! MQTT requires of clients: the writer keeps the message that it has not released, and each reader the
//! identifiers whose release it has not seen. Whichever packet a kill interrupts, they connect again and
//! continue.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use unisono_host_tests::ports::free_ports;
use unisono_host_tests::{TestOutcome, host_tests, one_in, program};

const KILLS: u32 = 20;
const PUBREL: u8 = 0x62;
/// A connection may wait in the socket's queue until a broker serves.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

fn serve(address: &str, directory: &Path) -> Child {
    let mut command = Command::new(program::unisono());
    command.args(["events", "serve", "--mqtt", address, "--listen"]).arg(directory.join("bus"));
    command.arg("--log").arg(directory.join("log"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("unisono starts")
}

/// A connection of MQTT 3.1.1 whose session outlives it.
pub(crate) struct MqttLink(TcpStream);

impl MqttLink {
    /// Connects; tries again while there is no broker. Returns the connection, and whether the broker had a
    /// session for it.
    pub(crate) fn connect(address: &str, name: &str) -> (Self, bool) {
        loop {
            if let Ok(stream) = TcpStream::connect(address)
                && let Ok(found) = Self::greet(stream, name)
            {
                return found;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn greet(stream: TcpStream, name: &str) -> io::Result<(Self, bool)> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
        let mut link = Self(stream);
        let head =
            [0x10, 12 + name.len() as u8, 0, 4, b'M', b'Q', b'T', b'T', 4, 0, 0, 0, 0, name.len() as u8];
        link.0.write_all(&[&head, name.as_bytes()].concat())?;
        let (_, answer) = link.packet()?.ok_or(io::ErrorKind::TimedOut)?;
        assert_eq!(answer[1], 0, "CONNACK");
        link.0.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok((link, answer[0] == 1))
    }

    /// Subscribes to the topic of the test, and waits for the answer.
    pub(crate) fn subscribe(&mut self, qos: u8) {
        self.0.write_all(&[0x82, 6, 0, 1, 0, 1, b't', qos]).expect("it serves");
        while self.packet().expect("it serves").is_none_or(|(kind, _)| kind != 0x90) {}
    }

    /// Receives a packet of fewer than 128 bytes. Returns `None` if none arrives within the time limit.
    fn packet(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let mut head = [0; 2];
        match self.0.read(&mut head[..1]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        self.0.read_exact(&mut head[1..])?;
        let mut body = vec![0; head[1].into()];
        self.0.read_exact(&mut body)?;
        Ok(Some((head[0], body)))
    }

    fn acknowledge(&mut self, kind: u8, id: [u8; 2]) -> io::Result<()> {
        self.0.write_all(&[kind, 2, id[0], id[1]])
    }
}

/// Publishes numbers, one exchange after the other. `written` counts the completed exchanges.
pub(crate) fn write(address: &str, written: &AtomicU32, is_over: &AtomicBool) {
    let (mut number, mut has_receipt, mut is_again) = (0_u32, false, false);
    loop {
        let (mut link, _) = MqttLink::connect(address, "writer");
        let mut exchange = || -> io::Result<()> {
            loop {
                if !has_receipt {
                    if !is_again && is_over.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    let id = (number % 1000 + 1) as u16;
                    let first = 0x34 | u8::from(is_again) << 3;
                    let packet =
                        [&[first, 9, 0, 1, b't'], &id.to_be_bytes()[..], &number.to_be_bytes()].concat();
                    is_again = true;
                    link.0.write_all(&packet)?;
                    while link.packet()?.is_none_or(|(kind, _)| kind != 0x50) {}
                    has_receipt = true;
                }
                link.acknowledge(PUBREL, ((number % 1000 + 1) as u16).to_be_bytes())?;
                while link.packet()?.is_none_or(|(kind, _)| kind != 0x70) {}
                (has_receipt, is_again) = (false, false);
                number += 1;
                written.store(number, Ordering::Release);
            }
        };
        if exchange().is_ok() {
            return;
        }
    }
}

/// Receives until all numbers that were written have arrived. Returns them in the order of arrival.
pub(crate) fn read(
    address: &str,
    (name, qos): (&str, u8),
    written: &AtomicU32,
    is_written: &AtomicBool,
) -> Vec<u32> {
    let (mut received, mut got) = (BTreeSet::new(), Vec::new());
    loop {
        let (mut link, found) = MqttLink::connect(address, name);
        assert!(found, "the session of {name} is gone");
        let mut exchange = || -> io::Result<()> {
            loop {
                let Some((kind, body)) = link.packet()? else {
                    let all = written.load(Ordering::Acquire);
                    if is_written.load(Ordering::Acquire)
                        && got.iter().max().is_some_and(|last| last + 1 == all)
                    {
                        return Ok(());
                    }
                    continue;
                };
                if kind == PUBREL {
                    let id = [body[0], body[1]];
                    received.remove(&id);
                    link.acknowledge(0x70, id)?;
                } else if kind >> 4 == 3 {
                    let id = [body[3], body[4]];
                    if qos == 1 || received.insert(id) {
                        got.push(u32::from_be_bytes(body[5..9].try_into().expect("four bytes")));
                    }
                    link.acknowledge(if qos == 1 { 0x40 } else { 0x50 }, id)?;
                }
            }
        };
        if exchange().is_ok() {
            return got;
        }
    }
}

fn sessions_outlive_a_broker_that_is_killed_at_any_moment() -> TestOutcome {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let [address] = free_ports();
    let address = address.to_string();
    let mut broker = serve(&address, directory.path());
    let (is_over, is_written, written) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU32::new(0));
    for (name, qos) in [("one", 1), ("two", 2)] {
        let (mut link, found) = MqttLink::connect(&address, name);
        assert!(!found);
        link.subscribe(qos);
    }
    let (one, two) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&address, &written, &is_over));
        let readers = [("one", 1), ("two", 2)].map(|reader| {
            scope.spawn({
                let (address, written, is_written) = (&address, &written, &is_written);
                move || read(address, reader, written, is_written)
            })
        });
        for kill in (0..KILLS).step_by(one_in(5)) {
            std::thread::sleep(Duration::from_millis(150 + u64::from(kill * 37 % 100)));
            broker.kill().expect("it runs");
            broker.wait().expect("it is a child");
            broker = serve(&address, directory.path());
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("it writes");
        is_written.store(true, Ordering::Release);
        let [one, two] = readers.map(|reader| reader.join().expect("it reads"));
        (one, two)
    });
    broker.kill().expect("it runs");
    broker.wait().expect("it is a child");
    let all: Vec<u32> = (0..written.into_inner()).collect();
    assert!(all.len() > 10, "{} messages", all.len());
    assert!(two == all, "of QoS 2 each comes once: {two:?}");
    assert_eq!(
        one.into_iter().collect::<BTreeSet<_>>(),
        all.into_iter().collect(),
        "of QoS 1 at least once"
    );
    Ok(())
}

host_tests![needs Nothing; sessions_outlive_a_broker_that_is_killed_at_any_moment within 120,];
