//! Tests that a broker that root has started gives up its privileges, and still serves, logs and tidies up.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_events_client::{
    Advertisement, Client, Durability, EventDraft, PublishOutcome, Reception, SubscriptionSpec,
};
use unisono_host_tests::processes::Killed;
use unisono_host_tests::{TestOutcome, host_tests, program, require};

/// A running broker, with the line in which it said which user it is. It is killed when the test ends.
struct ServedBy {
    broker: Killed,
    said: String,
}

fn serve(arguments: &[&str]) -> Child {
    let mut command = Command::new(program::unisono());
    command.args(["events", "serve"]).args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped()).spawn().expect("unisono starts")
}

/// Starts a broker, and waits until it prints a line that begins with `last`.
fn served(arguments: &[&str], last: &str) -> ServedBy {
    let mut broker = serve(arguments);
    let mut lines = BufReader::new(broker.stderr.take().expect("piped")).lines();
    let said = lines.find_map(|line| line.ok().filter(|line| line.starts_with(last)));
    ServedBy { broker: Killed(broker), said: said.expect("it serves") }
}

/// Returns, for each thread of a process, what the kernel says of its users, groups and capabilities.
fn threads(process: u32) -> Vec<Vec<String>> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let status = tasks.map(|task| {
        let path = task.expect("it runs").path().join("status");
        let status = std::fs::read_to_string(path).expect("it runs");
        let of = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect("a line");
            line.split_once(':').expect("a name").1.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        ["Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs"].map(of).to_vec()
    });
    status.collect()
}

fn assert_unprivileged(process: u32, (user, group): (u32, u32)) {
    let four = |number: u32| [number; 4].map(|number| number.to_string()).join(" ");
    let none = "0000000000000000".to_owned();
    let expected = [four(user), four(group), String::new(), none.clone(), none.clone(), none, "1".to_owned()];
    let threads = threads(process);
    assert!(!threads.is_empty());
    for thread in threads {
        assert_eq!(thread, expected);
    }
}

fn directory(mode: u32) -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(mode)).expect("it is ours");
    scratch
}

fn interrupt(mut broker: ServedBy) {
    let pid = rustix::process::Pid::from_child(&broker.broker.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert!(broker.broker.0.wait().expect("it ends").success());
}

fn exchange(address: &str) {
    let mut client = Client::at(&address.parse().expect("an address")).expect("it serves");
    let durable = Advertisement { durability: Durability::Synced, ..Advertisement::new("t") };
    let topic = client.advertise(&durable).expect("a topic");
    client.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
    for payload in [vec![1; 10], vec![2; 300_000]] {
        let published = client.try_publish(topic, &EventDraft::new(&payload)).expect("it is taken");
        assert!(matches!(published.outcome, PublishOutcome::Synced(_)), "{published:?}");
        match client.receive(Some(Duration::from_secs(60))).expect("the broker is there") {
            Some(Reception::Event(event)) => assert_eq!(event.payload.bytes(), payload),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the owners of all files of a log.
fn owners(log: &Path) -> Vec<u32> {
    let mut owners = vec![log.metadata().expect("it is there").uid()];
    for directory in [log.to_owned(), log.join("consumers"), log.join("sessions")] {
        let files = std::fs::read_dir(directory).expect("it is there");
        owners.extend(files.map(|file| file.and_then(|file| file.metadata()).expect("it is there").uid()));
    }
    owners
}

fn a_broker_that_root_starts_serves_and_logs_as_a_user_that_owns_nothing() -> TestOutcome {
    require::root()?;
    let scratch = directory(0o711);
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (bus, metrics, log) = (path("bus"), path("metrics"), path("log"));
    // the second broker takes over a log of another user
    for _ in 0..2 {
        let broker = served(&["--listen", &bus, "--log", &log, "--metrics", &metrics], "serving as user");
        exchange(&bus);
        exchange(&format!("unix:{bus}"));
        let user = broker.said.split_whitespace().find_map(|word| word.trim_end_matches(',').parse().ok());
        let user: u32 = user.expect("a number");
        assert_ne!(user, 0);
        assert_unprivileged(broker.broker.0.id(), (user, user));
        assert!(owners(log.as_ref()).iter().all(|owner| *owner == user), "{:?}", owners(log.as_ref()));
        interrupt(broker);
        for name in ["bus", "metrics"] {
            assert!(!scratch.path().join(name).exists(), "{name} is left");
        }
    }
    Ok(())
}

fn a_broker_that_is_killed_leaves_no_socket_in_roots_directory() -> TestOutcome {
    require::root()?;
    let scratch = directory(0o711);
    let unix = scratch.path().join("bus");
    let broker = served(&["--listen", &unix.display().to_string()], "serving as user");
    assert!(unix.exists());
    drop(broker);
    let start = Instant::now();
    while unix.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "the socket is left");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn root_chooses_the_user_and_may_stay_root() -> TestOutcome {
    require::root()?;
    let scratch = directory(0o711);
    let unix = scratch.path().join("bus").display().to_string();
    let broker = served(&["--listen", &unix, "--user", "12345:54321"], "serving as user 12345,");
    assert_unprivileged(broker.broker.0.id(), (12345, 54321));
    interrupt(broker);
    let broker = served(&["--listen", &unix, "--user", "root"], "serving at");
    Client::connect_unix(unix.as_ref()).expect("it serves").statistics().expect("it answers");
    assert!(threads(broker.broker.0.id()).iter().all(|thread| thread[0] == "0 0 0 0"));
    interrupt(broker);
    let mut nobody = serve(&["--listen", &unix, "--user", "no-such-user"]);
    let mut said = String::new();
    nobody.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(nobody.wait().expect("it ends").code(), Some(2), "{said}");
    assert!(said.contains("no user `no-such-user`"), "{said}");
    Ok(())
}

fn a_log_that_the_user_cannot_reach_is_refused_before_anybody_is_served() -> TestOutcome {
    require::root()?;
    let scratch = directory(0o700);
    let (unix, log) = (scratch.path().join("bus"), scratch.path().join("log").display().to_string());
    let mut broker = serve(&["--listen", &unix.display().to_string(), "--log", &log]);
    let mut said = String::new();
    broker.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(!broker.wait().expect("it ends").success());
    assert!(said.contains("--user root") && said.contains(&log), "{said}");
    assert!(!unix.exists(), "the socket is left");
    Ok(())
}

fn a_reload_needs_files_that_the_brokers_user_can_read_and_the_start_says_so() -> TestOutcome {
    require::root()?;
    let scratch = directory(0o711);
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let write = |name: &str, text: &str, mode: u32| {
        std::fs::write(path(name), text).expect("it is ours");
        std::fs::set_permissions(path(name), PermissionsExt::from_mode(mode)).expect("it is ours");
    };
    let rule = |patterns: &str| format!("[[allow]]\nwho = [\"unix:0\"]\nsubscribe = [{patterns}]\n");
    write("permissions", &rule("\"x\", \"y\""), 0o644);
    write("tokens", "", 0o600);
    let (bus, permissions, tokens) = (path("bus"), path("permissions"), path("tokens"));
    let words = ["--listen", &bus, "--permissions", &permissions, "--tokens", &tokens];
    let broker = served(&words, "warning: user");
    assert!(
        broker.said.contains(&tokens) && broker.said.contains("every reload will be refused"),
        "{}",
        broker.said
    );
    let connect = |topic: &str| {
        let start = Instant::now();
        let mut client = loop {
            match Client::at(&bus.parse().expect("an address")) {
                Ok(client) => break client,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
            }
        };
        client.subscribe(&SubscriptionSpec::new(topic)).expect("it may");
        client
    };
    let (mut ended, mut kept) = (connect("x"), connect("y"));
    let reload = || {
        let output = Command::new(program::unisono()).args(["events", "reload", "--at", &bus]).output();
        let output = output.expect("unisono starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("text"))
    };
    write("permissions", &rule("\"y\""), 0o644);
    let (code, said) = reload();
    assert!(
        code == Some(2) && said.contains(&tokens) && said.contains("nothing was changed"),
        "{said}"
    );
    ended.statistics().expect("it goes on");
    write("tokens", "", 0o644);
    let (code, said) = reload();
    assert!(code == Some(0) && said.contains("permissions and tokens; connections ended: 1"), "{said}");
    assert!(said.contains("ended unix:0"), "{said}");
    let end = ended.statistics().expect_err("it is ended").to_string();
    assert!(end.contains("may not subscribe to `x` any more"), "{end}");
    kept.statistics().expect("it goes on");
    interrupt(broker);
    Ok(())
}

host_tests![needs Nothing;
    a_reload_needs_files_that_the_brokers_user_can_read_and_the_start_says_so within 120,
    a_broker_that_root_starts_serves_and_logs_as_a_user_that_owns_nothing within 120,
    a_broker_that_is_killed_leaves_no_socket_in_roots_directory within 120,
    root_chooses_the_user_and_may_stay_root within 120,
    a_log_that_the_user_cannot_reach_is_refused_before_anybody_is_served within 120,
];
