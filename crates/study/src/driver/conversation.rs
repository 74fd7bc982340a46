//! Starts the two processes of conversations, and the broker beside the server if the carrier needs one.
//!
//! ```text
//!   prepare: addresses, certificate, rendezvous --> execute: broker, server, client --> figures of both ends
//! ```
//! The conversations are described in [`workload::conversation`](unisono_workload::conversation). A driver
//! describes its program in a scene that contains the [`ConversationScene`] prepared here.

use super::NoResult;
use super::run_host::{MeasuredParty, RunHost};
use crate::child::{self, ChildError, StudyChild};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use unisono_linux::clock;
use unisono_linux::programs::on_path;
use unisono_measure::record::Figure;
use unisono_workload::conversation::{
    BrokerAddresses, ConversationCarrier, ConversationScene, StartRendezvous,
};

/// Expected time for processes to start and to find each other; for the progress display.
pub const START_TIME: Duration = Duration::from_millis(150);
/// Time for the processes to end.
pub const END_TIME: Duration = Duration::from_millis(100);
/// Time from the moment both ends are ready to the start of measuring: the ends poll every millisecond.
pub const LEAD: Duration = Duration::from_millis(50);
/// Time for an end of a conversation to appear and to answer. A busy machine may take seconds to start a
/// program.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for opening all conversations.
const OPENING_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for making a certificate, which usually takes some milliseconds.
const OPENSSL_TIMEOUT: Duration = Duration::from_secs(30);
pub const PORT: u16 = 5101;
pub const BROKER_PORT: u16 = 5100;
/// The rule of the measured broker. The two ends connect by different sockets, so they have two identities,
/// and a consumer may block another identity's supplier only where a rule allows it.
const EVERYTHING: &str = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\nblock = true\npaths = true\nconnections = 65536\n";
/// The maximum number of conversations under the broker's default limit of 128 programs of one user: a
/// conversation has two programs, and the server has other connections.
pub const MAX_DEFAULT_CLIENTS: u16 = 60;

/// The server's location, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPlace {
    /// On the client's host, over loopback.
    Here,
    /// At this address, over a link between two network namespaces.
    Beyond(Ipv4Addr),
}

impl ServerPlace {
    fn address(self) -> Ipv4Addr {
        match self {
            Self::Here => Ipv4Addr::LOCALHOST,
            Self::Beyond(address) => address,
        }
    }
}

/// One run of two processes.
pub struct ConversationRun<'a> {
    host: &'a RunHost<'a>,
    interrupted: child::Interrupted<'a>,
    /// Whether the server and the client, and the broker if there is a third processor, have a processor
    /// each.
    pinned: bool,
    certificate: Option<BrokerCertificate>,
    rendezvous: StartRendezvous,
    /// The conversations, with their addresses and their rendezvous.
    pub scene: ConversationScene,
}

impl<'a> ConversationRun<'a> {
    /// Completes a scene with the server's and the broker's addresses, and with a rendezvous.
    pub fn prepare(
        host: &'a RunHost<'a>,
        place: ServerPlace,
        pinned: bool,
        scene: ConversationScene,
        interrupted: child::Interrupted<'a>,
    ) -> Result<Self, NoResult> {
        let rendezvous = host.files.path("rendezvous");
        let rendezvous = StartRendezvous::at(&rendezvous)
            .map_err(|error| NoResult::Failed(format!("{}: {error}", rendezvous.display())))?;
        let certificate = match scene.carrier {
            ConversationCarrier::ChannelUdp => {
                Some(BrokerCertificate::create(host, place.address(), interrupted)?)
            }
            _ => None,
        };
        let broker = scene
            .carrier
            .is_channel()
            .then(|| broker_addresses(host, scene.carrier, place, certificate.as_ref()));
        let scene = ConversationScene {
            server: place.address().into(),
            broker,
            rendezvous: Some(rendezvous.clone()),
            ..scene
        };
        Ok(Self { host, interrupted, pinned, certificate, rendezvous, scene })
    }

    /// Runs `unisono workload WORKLOAD` as server and as client, with `described` as their scene, and returns
    /// the figures of both ends. `at_client` starts the client in its network namespace. When both have
    /// opened their conversations, `begin` is called, and measuring starts `lead` later.
    pub fn execute<T>(
        &self,
        workload: &str,
        described: &impl Serialize,
        lead: Duration,
        at_client: impl FnOnce(&dyn Fn() -> Result<StudyChild, NoResult>) -> Result<StudyChild, NoResult>,
        begin: impl FnOnce() -> Result<T, NoResult>,
    ) -> Result<(Vec<Figure>, T), NoResult> {
        // before the broker starts, because its socket is in the directory created here
        let text = serde_json::to_string(described).map_err(|error| NoResult::Failed(error.to_string()))?;
        let file = self.host.files.write("scene.json", &text)?;
        let mut broker = self.start_broker()?;
        let start = |party, end: &str| {
            let mut command = self.host.unisono(&["workload", workload, "--end", end, "--scene"]);
            command.arg(&file).arg("--result").arg(self.host.files.path(end));
            self.host.start(party, self.pinned, command)
        };
        let server = start(MeasuredParty::Sender, "server")?;
        let client = at_client(&|| start(MeasuredParty::Receiver, "client"))?;
        let mut ends = [server, client];
        let measured = Duration::from(self.scene.until - self.scene.from);
        let ended = self.await_opening(&mut ends).and_then(|()| {
            let begun = begin()?;
            let told = self.rendezvous.begin_at(clock::now() + lead.into());
            told.map_err(|error| NoResult::Failed(error.to_string()))?;
            child::wait_all(&mut ends, lead + measured * 2 + ANSWER_TIMEOUT, self.interrupted)?;
            Ok(begun)
        });
        drop(ends);
        // if the broker failed, that is why its programs failed
        let failed = broker.as_mut().filter(|_| ended.is_err()).and_then(StudyChild::failure);
        drop(broker);
        if let Some(failed) = failed {
            return Err(failed.into());
        }
        let begun = ended?;
        let mut figures: Vec<Figure> = self.host.files.read("client")?;
        figures.extend(self.host.files.read::<Vec<Figure>>("server")?);
        if figures.is_empty() {
            return Err(NoResult::Failed("the client measured nothing".to_owned()));
        }
        Ok((figures, begun))
    }

    fn start_broker(&self) -> Result<Option<StudyChild>, NoResult> {
        let Some(places) = &self.scene.broker else { return Ok(None) };
        let permissions = self.host.files.write("permissions.toml", EVERYTHING)?;
        let wait = self.scene.wait.name();
        let mut command = self.host.unisono(&["events", "serve", "--json", "--insecure", "--wait", wait]);
        command.arg("--permissions").arg(&permissions);
        // the part after a question mark is for clients only
        let listened = |place: &str| place.split('?').next().unwrap_or(place).to_owned();
        command.args(["--listen", &listened(&places.for_server)]);
        if places.for_client != places.for_server {
            command.args(["--listen", &listened(&places.for_client)]);
        }
        if self.scene.carrier == ConversationCarrier::ChannelLink {
            command.arg("--direct-tcp");
        }
        if let Some(BrokerCertificate { certificate, key }) = &self.certificate {
            command.arg("--certificate").arg(certificate).arg("--key").arg(key);
        }
        if self.scene.conversations > MAX_DEFAULT_CLIENTS {
            // room for both ends of each conversation and for the server's other connections, twice, because
            // the programs of one user get only half of the room
            command.args(["--clients", &(u32::from(self.scene.conversations) * 4 + 16).to_string()]);
        }
        self.host.start(MeasuredParty::Broker, self.pinned, command).map(Some)
    }

    /// Waits until both ends have opened their conversations.
    fn await_opening(&self, ends: &mut [StudyChild]) -> Result<(), NoResult> {
        let give_up_at = clock::now() + OPENING_TIMEOUT.into();
        while !self.rendezvous.is_complete() {
            if let Some(signal) = (self.interrupted)() {
                return Err(ChildError::Interrupted(signal).into());
            }
            if let Some(failed) = ends.iter_mut().find_map(StudyChild::failure) {
                return Err(failed.into());
            }
            if clock::now() > give_up_at {
                return Err(NoResult::Failed(format!(
                    "the ends have not opened their conversations within {OPENING_TIMEOUT:?}; let the machine rest"
                )));
            }
            std::thread::sleep(child::POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Returns the broker's addresses: the broker listens beside the server, as the paper's event channel did.
fn broker_addresses(
    host: &RunHost<'_>,
    carrier: ConversationCarrier,
    place: ServerPlace,
    certified: Option<&BrokerCertificate>,
) -> BrokerAddresses {
    let shared = host.files.path("broker").display().to_string();
    let unix = format!("unix:{shared}");
    let address = place.address();
    let tcp = format!("tcp:{address}:{BROKER_PORT}");
    if let Some(BrokerCertificate { certificate, .. }) = certified {
        let udp = format!("udp:{address}:{BROKER_PORT}?authority={}", certificate.display());
        let for_server = if place == ServerPlace::Here { udp.clone() } else { unix };
        return BrokerAddresses { for_server, for_client: udp };
    }
    match (carrier, place) {
        (ConversationCarrier::ChannelTcp | ConversationCarrier::ChannelLink, _) => {
            BrokerAddresses { for_server: tcp.clone(), for_client: tcp }
        }
        (ConversationCarrier::ChannelShm, _) => {
            BrokerAddresses { for_server: shared.clone(), for_client: shared }
        }
        (_, ServerPlace::Beyond(_)) => BrokerAddresses { for_server: unix, for_client: tcp },
        (_, ServerPlace::Here) => BrokerAddresses { for_server: unix.clone(), for_client: unix },
    }
}

/// A certificate for the broker of one run, which its clients trust.
struct BrokerCertificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl BrokerCertificate {
    /// Lets `openssl` make a certificate for an address.
    fn create(
        host: &RunHost<'_>,
        address: Ipv4Addr,
        interrupted: child::Interrupted,
    ) -> Result<Self, NoResult> {
        let Some(openssl) = on_path("openssl") else {
            return Err(NoResult::Skipped(
                "UDP is encrypted, and openssl, which makes the broker's certificate, is not installed; \
                 Debian: apt-get install openssl"
                    .to_owned(),
            ));
        };
        let made = Self { certificate: host.files.path("broker.crt"), key: host.files.path("broker.key") };
        let mut command = Command::new(openssl);
        command.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(' '));
        command.args(["-subj", "/CN=unisono study", "-addext", "basicConstraints=critical,CA:FALSE"]);
        command.arg("-addext").arg(format!("subjectAltName=IP:{address}"));
        command.arg("-keyout").arg(&made.key).arg("-out").arg(&made.certificate);
        child::wait_all(&mut [StudyChild::start(command)?], OPENSSL_TIMEOUT, interrupted)?;
        Ok(made)
    }
}
