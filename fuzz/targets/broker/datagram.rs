//! A UDP link under loss, reordering, duplication and datagrams of other hosts: each end reads a prefix of
//! the other end's writes, and the answer to an unverified sender is never larger than its datagram. The
//! bytes are steps, one after the other.
#![no_main]

#[path = "../../../crates/events-wire/tests/common/authority.rs"]
mod authority;

use authority::Authority;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use unisono_events_wire::TlsClient;
use unisono_events_wire::datagram::{DatagramAcceptor, DatagramLink, DatagramOutcome};
use unisono_broker::{TlsCertificates, TlsService, Uncertified};

static KEYS: LazyLock<(TlsCertificates, TlsClient)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let authority = Authority::new(directory.path(), "brokers");
    let own = authority.certify("broker", &["localhost"]);
    let broker = TlsService { own, client_authority: None, revocations: None }
        .read(Uncertified::Heard)
        .expect("they are sound");
    let program = TlsClient::read("localhost", &authority.file, None).expect("it was written");
    (broker, program)
});

/// An end, the datagrams on their way to it, and its written and read bytes.
struct End {
    link: Option<DatagramLink>,
    coming: VecDeque<Vec<u8>>,
    written: Vec<u8>,
    read: Vec<u8>,
}

impl End {
    fn new(link: Option<DatagramLink>) -> Self {
        Self { link, coming: VecDeque::new(), written: Vec::new(), read: Vec::new() }
    }
}

struct Scene {
    now: Instant,
    program: SocketAddr,
    acceptor: DatagramAcceptor,
    /// The program, and the broker.
    ends: [End; 2],
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [program, broker] = [1000, 7402].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
    let now = Instant::now();
    let link = DatagramLink::connect(now, broker, &KEYS.1).expect("a name");
    let acceptor = DatagramAcceptor::new(&KEYS.0, Duration::from_secs(30)).expect("TLS 1.3");
    let mut scene = Scene { now, program, acceptor, ends: [End::new(Some(link)), End::new(None)] };
    let mut bytes = bytes.iter().copied();
    // more steps take longer and reveal nothing else
    for _ in 0..400 {
        scene.leave();
        let Some(what) = bytes.next() else { break };
        let to = usize::from(what & 1);
        match what >> 1 & 7 {
            // a byte of a datagram is changed
            0 => {
                let (at, with) = (bytes.next().unwrap_or(0), bytes.next().unwrap_or(1));
                if let Some(mut datagram) = scene.ends[to].coming.pop_front() {
                    let at = usize::from(at) * 6 % datagram.len().max(1);
                    datagram.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= with);
                    scene.arrives(to, &datagram);
                }
            }
            // a datagram is lost, duplicated, or swapped with the next one
            1 => drop(scene.ends[to].coming.pop_front()),
            2 => {
                if let Some(datagram) = scene.ends[to].coming.front().cloned() {
                    scene.arrives(to, &datagram);
                }
            }
            3 => scene.ends[to].coming.rotate_left(usize::from(!scene.ends[to].coming.is_empty())),
            // a datagram of another host
            4 => {
                let length = bytes.next().unwrap_or(0);
                let datagram: Vec<u8> = bytes.by_ref().take(length.into()).collect();
                scene.arrives(to, &datagram);
            }
            // time passes: up to 4 s
            5 => {
                scene.now +=
                    Duration::from_millis(u64::from(bytes.next().unwrap_or(0)) << (what >> 4 & 7) >> 3);
                scene
                    .ends
                    .iter_mut()
                    .filter_map(|end| end.link.as_mut())
                    .for_each(|link| link.pass(scene.now));
            }
            6 => scene.writes(to, usize::from(bytes.next().unwrap_or(0)) * 17),
            // the network works
            _ => {
                for _ in 0..8 {
                    for to in [1, 0] {
                        while let Some(datagram) = scene.ends[to].coming.pop_front() {
                            scene.arrives(to, &datagram);
                        }
                        scene.leave();
                    }
                }
            }
        }
    }
    scene.reads();
});

impl Scene {
    /// Puts the datagrams that the ends have to send into the network.
    fn leave(&mut self) {
        let mut datagram = Vec::new();
        for from in 0..2 {
            while let Some(link) = &mut self.ends[from].link
                && link.next_datagram(self.now, &mut datagram)
            {
                self.ends[1 - from].coming.push_back(datagram.clone());
            }
        }
    }

    fn arrives(&mut self, to: usize, datagram: &[u8]) {
        match &mut self.ends[to].link {
            Some(link) => link.take(self.now, datagram),
            None => {
                let mut answer = Vec::new();
                match self.acceptor.handle_datagram(self.now, self.program, datagram, &mut answer) {
                    DatagramOutcome::Ignored => {}
                    DatagramOutcome::Answered => {
                        assert!(answer.len() <= datagram.len(), "more than was asked");
                        self.ends[0].coming.push_back(answer);
                    }
                    DatagramOutcome::Opened(link) => self.ends[to].link = Some(*link),
                }
            }
        }
        self.reads();
    }

    fn writes(&mut self, from: usize, count: usize) {
        let end = &mut self.ends[from];
        let Some(link) = &mut end.link else { return };
        let more: Vec<u8> = (0..count).map(|at| ((end.written.len() + at) >> 3) as u8).collect();
        if let Ok(taken) = link.write(&more) {
            end.written.extend(&more[..taken]);
        }
    }

    fn reads(&mut self) {
        let mut some = [0; 4096];
        for to in 0..2 {
            while let Some(count) = self.ends[to].link.as_mut().and_then(|link| link.read_some(&mut some)) {
                self.ends[to].read.extend(&some[..count]);
            }
            let (read, written) = (&self.ends[to].read, &self.ends[1 - to].written);
            assert!(written.starts_with(read), "{} bytes were read of {} written", read.len(), written.len());
        }
    }
}
