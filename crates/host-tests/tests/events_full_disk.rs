//! Tests `unisono events` with a log on a disk that becomes full: suppliers to which durability was promised
//! get an error, all others notice nothing, and the log continues when there is room again.
//!
//! The disk is a tmpfs of 512 KiB in a mount namespace of the broker's own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_broker::log::{EventLog, LogBounds};
use unisono_events_client::{
    Advertisement, Client, Durability, Error, EventDraft, LogStatistics, PublishOutcome, ReceivedEvent,
    Reception, ResumeSpec, SubscriptionSpec,
};
use unisono_host_tests::{TestOutcome, host_tests, program, require};

const PAYLOAD: [u8; 4000] = [7; 4000];

/// A broker that is killed when this value is dropped.
struct BrokerOnSmallDisk(Child);

impl Drop for BrokerOnSmallDisk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl BrokerOnSmallDisk {
    fn start(scratch: &Path) -> Self {
        let disk = scratch.join("disk");
        std::fs::create_dir(&disk).expect("a scratch directory");
        let script = "mount -t tmpfs -o size=512k tmpfs \"$1\" && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(&disk).arg(program::unisono());
        command
            .args(["events", "serve", "--listen"])
            .arg(scratch.join("bus"))
            .arg("--log")
            .arg(disk.join("log"));
        command.args(["--log-topics", "kept/#"]).stdout(Stdio::null());
        Self(command.spawn().expect("unshare is there"))
    }

    /// Returns the path by which this process reaches a path in the broker's mount namespace.
    fn seen(&self, path: &Path) -> std::path::PathBuf {
        let root = Path::new("/proc").join(self.0.id().to_string()).join("root");
        root.join(path.strip_prefix("/").expect("it is absolute"))
    }
}

fn client(bus: &Path) -> Client {
    let start = Instant::now();
    loop {
        match Client::connect_unix(bus) {
            Ok(client) => return client,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn log_of(client: &mut Client) -> LogStatistics {
    client.statistics().expect("it answers").log.expect("it keeps a log")
}

fn next(client: &mut Client) -> ReceivedEvent {
    match client.receive(Some(Duration::from_secs(60))).expect("it goes on") {
        Some(Reception::Event(event)) => event,
        other => panic!("{other:?}"),
    }
}

fn on_a_full_disk_suppliers_are_told_and_nobody_else_notices() -> TestOutcome {
    require::root()?;
    require::unshare(&["--mount"])?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let broker = BrokerOnSmallDisk::start(scratch.path());
    let bus = scratch.path().join("bus");
    let mut durable = client(&bus);
    let disk = broker.seen(&scratch.path().join("disk"));
    std::fs::write(disk.join("filler"), vec![0; 200 << 10]).expect("there is room");
    let offer = Advertisement { durability: Durability::Synced, ..Advertisement::new("orders") };
    let orders = durable.advertise(&offer).expect("a topic");
    let (mut others, mut consumer) = (client(&bus), client(&bus));
    let (plain, kept) = ["plain", "kept/1"].map(|name| others.advertise(&Advertisement::new(name))).into();
    let (plain, kept) = (plain.expect("a topic"), kept.expect("a topic"));
    for name in ["plain", "kept/1", "orders"] {
        consumer.subscribe(&SubscriptionSpec::new(name)).expect("it fits");
    }
    let mut taken = 0_u64;
    let reason = loop {
        match durable.try_publish(orders, &EventDraft::new(&PAYLOAD)) {
            Ok(published) => {
                assert!(matches!(published.outcome, PublishOutcome::Synced(1)), "{published:?}");
                assert_eq!(&*next(&mut consumer).topic, "orders");
                taken += 1;
            }
            Err(Error::Rejected(reason)) => break reason,
            Err(error) => panic!("{error}"),
        }
        assert!(taken < 200, "the disk holds fewer");
    };
    assert!(taken > 10, "there was room for more than {taken}");
    assert!(reason.contains("No space left") && reason.contains(".events"), "{reason}");
    assert!(reason.contains("make room on the disk"), "{reason}");
    let log = log_of(&mut durable);
    assert_eq!((log.written, log.failed, log.synced), (taken, 1, taken + 1));

    // nobody got the event; topics without a log, and events without a promise of durability, still pass
    others.publish(plain, &EventDraft::new(b"plain")).expect("it leaves");
    assert_eq!(&*next(&mut consumer).payload.bytes(), b"plain");
    let published = others.try_publish(kept, &EventDraft::new(&PAYLOAD)).expect("it is taken");
    assert!(matches!(published.outcome, PublishOutcome::Taken(1)), "{published:?}");
    assert_eq!(&*next(&mut consumer).topic, "kept/1");
    assert_eq!(log_of(&mut durable).failed, 2);

    std::fs::remove_file(disk.join("filler")).expect("it is there");
    for _ in 0..10 {
        durable.try_publish(orders, &EventDraft::new(&PAYLOAD)).expect("there is room again");
        taken += 1;
    }
    let mut reader = client(&bus);
    let resume = ResumeSpec { name: "reader".to_owned(), after: Some(0), ..ResumeSpec::default() };
    reader
        .subscribe(&SubscriptionSpec { resume: Some(resume), ..SubscriptionSpec::new("orders") })
        .expect("it fits");
    for position in 1..=taken {
        let event = next(&mut reader);
        assert_eq!((event.delivery, &*event.payload.bytes()), (Some(position), &PAYLOAD[..]));
        reader.acknowledge(&event).expect("it goes on");
    }
    // what a broker finds that is started again on a copy of the log
    let copy = scratch.path().join("copy");
    std::fs::create_dir(&copy).expect("a scratch directory");
    for entry in std::fs::read_dir(disk.join("log")).expect("the log is there") {
        let path = entry.expect("it is read").path();
        if path.is_file() {
            std::fs::copy(&path, copy.join(path.file_name().expect("it has a name"))).expect("there is room");
        }
    }
    let found = EventLog::open(
        &copy,
        LogBounds { age: unisono_events_client::Duration::MAX, ..LogBounds::default() },
    );
    let found = found.expect("it opens");
    assert_eq!((found.damage(), found.next(), found.counters().torn), (&[][..], taken + 1, 0));
    Ok(())
}

host_tests![needs Nothing;on_a_full_disk_suppliers_are_told_and_nobody_else_notices within 120];
