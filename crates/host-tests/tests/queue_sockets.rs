//! Tests sockets with leaves of their own: their shares, and the refusals and the end of the guard.

use crate::events_languages::{LANGUAGES, compiled, python};
use crate::queue_shared::{
    DEVICE, applied, cleared, file, looks, on_a_host, queue_apply, wait_until_it_looks,
};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::processes::{Killed, send, text};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::process::Signal;

/// Numbers that no user of a host has.
const ALICE: u32 = 1_999_999_998;
const STRANGER: u32 = 1_999_999_999;

/// Returns a policy for a slow link with long queues in the class: on a busy host a sender may not run for a
/// while, and the shares hold only while both queues have packets.
fn policy(class: &str) -> String {
    format!(
        "rate = \"4mbit\"\ndefault = \"rest\"\n[class.{class}]\nweight = 3\nlimit = \"1MiB\"\n\
         sockets = {{ from = [{ALICE}], max = 3, weight = \"1..10\" }}\n[class.rest]\n"
    )
}

/// A policy in force, and its guard.
struct Guarded {
    hosts: Hosts,
    scratch: tempfile::TempDir,
    before: String,
}

impl Guarded {
    fn new() -> Result<Self, Skipped> {
        let hosts = on_a_host()?;
        let before = looks();
        let scratch = tempfile::tempdir().expect("a scratch directory");
        fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
        applied(&file(&policy("video")), &[])?;
        Ok(Self { hosts, scratch, before })
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path().join("guard")
    }

    /// Starts a guard, and waits until it serves.
    fn guard(&self) -> Killed {
        let mut command = Command::new(program::unisono());
        command.args(["queue", "guard", "--listen"]).arg(self.socket());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut guard = Killed(command.spawn().expect("it starts"));
        let errors = BufReader::new(guard.0.stderr.take().expect("a pipe"));
        let mut lines = errors.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("sockets get shares")), "the guard does not serve");
        thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        guard
    }

    /// Returns the command of a user's program, which uses this guard.
    fn by(&self, user: u32, mut command: Command) -> Command {
        command.env("UNISONO_QUEUE_GUARD", self.socket()).uid(user).gid(user).current_dir("/");
        command
    }
}

/// Returns the number of leaves of sockets at the device.
fn leaves() -> usize {
    let shown = Command::new("tc").args(["class", "show", "dev", DEVICE]).output().expect("tc is there");
    text(&shown.stdout).lines().filter(|line| line.starts_with("class htb 556e:f")).count()
}

fn wait_for_leaves(count: usize) {
    while leaves() != count {
        thread::sleep(Duration::from_millis(10));
    }
}

/// A client that shares and closes sockets on command: it reads one command from each line, and writes one
/// line in reply.
const CLIENT: &str = "
import errno, os, socket, sys, unisono
kept = {}
for line in sys.stdin:
    name, *share = line.split()
    try:
        if name == 'close':
            kept.pop(share[0]).close()
        elif name == 'file':
            unisono.share_socket(os.open('/dev/null', os.O_RDONLY), share[0], float(share[1]))
        elif name == 'local':
            unisono.share_socket(socket.socket(socket.AF_UNIX), share[0], float(share[1]))
        else:
            if name not in kept:
                kept[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            unisono.share_socket(kept[name], share[0], float(share[1]))
        print('done', flush=True)
    except OSError as refused:
        print(errno.errorcode[refused.errno], refused.strerror, flush=True)
";

struct Client {
    _process: Killed,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn new(guarded: &Guarded, user: u32) -> Result<Self, Skipped> {
        let mut command = guarded.by(user, python()?);
        command.args(["-c", CLIENT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Killed(command.spawn().expect("python3 starts"));
        let commands = process.0.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.0.stdout.take().expect("a pipe"));
        Ok(Self { _process: process, commands, answers })
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("it reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }
}

fn two_sockets_of_a_user_share_their_class_by_weight_in_each_language() -> TestOutcome {
    let guarded = Guarded::new()?;
    compiled(guarded.scratch.path())?;
    let guard = guarded.guard();
    // two receivers on the other host
    let here = NetworkNamespace::named(guarded.hosts.name(0)).expect("it is there");
    NetworkNamespace::named(guarded.hosts.name(1)).expect("it is there").enter().expect("root may");
    let address = Hosts::address(1);
    let receivers = [5001, 5002].map(|port| UdpSocket::bind((address.as_str(), port)).expect("it is free"));
    here.enter().expect("root may");
    for language in LANGUAGES {
        let mut command = guarded.by(ALICE, language.example("weighted_streams", guarded.scratch.path())?);
        let to = |port| format!("{address}:{port}");
        command.args(["video", "60", &to(5001), "6000", "3", &to(5002), "6000", "1"]);
        let mut sender = Killed(command.spawn().expect("the example starts"));
        let counts = count_packets(&receivers, &mut sender.0);
        drop(sender);
        let ratio = counts[0] as f64 / counts[1] as f64;
        assert!((2.7..3.3).contains(&ratio), "{language:?}: {counts:?}");
        wait_for_leaves(0);
        let mut rest = [0; 2000];
        for receiver in &receivers {
            receiver.set_nonblocking(true).expect("it is a socket");
            while receiver.recv(&mut rest).is_ok() {}
            receiver.set_nonblocking(false).expect("it is a socket");
        }
    }
    drop(guard);
    cleared(&[]);
    wait_until_it_looks(&guarded.before);
    Ok(())
}

/// Counts the packets that each of two receivers gets of 1000 packets (about three seconds of the class),
/// after the first 200.
fn count_packets(receivers: &[UdpSocket; 2], sender: &mut Child) -> [u64; 2] {
    let (mut counts, mut skipped) = ([0_u64; 2], 0);
    let mut buffer = [0; 2000];
    receivers.iter().for_each(|receiver| receiver.set_nonblocking(true).expect("it is a socket"));
    while counts[0] + counts[1] < 1000 {
        assert_eq!(sender.try_wait().expect("our child"), None, "the sender has ended");
        for (count, receiver) in counts.iter_mut().zip(receivers) {
            while receiver.recv(&mut buffer).is_ok() {
                if skipped < 200 {
                    skipped += 1;
                } else {
                    *count += 1;
                }
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    counts
}

fn limits_and_strangers_are_refused_and_a_leaf_goes_with_its_socket() -> TestOutcome {
    let guarded = Guarded::new()?;
    let guard = guarded.guard();
    let mut stranger = Client::new(&guarded, STRANGER)?;
    let refused = stranger.ask("a video 1");
    assert!(
        refused.starts_with(&format!("EPERM no policy in force here takes sockets of user {STRANGER}")),
        "{refused}"
    );
    let mut alice = Client::new(&guarded, ALICE)?;
    for (command, said) in [
        ("a video 3", "done"),
        ("b video 1", "done"),
        ("c video 2.5", "done"),
        ("d video 1", "EDQUOT user 1999999998 has 3 sockets in class `video`"),
        ("a video 11", "ERANGE class `video` takes weights from 1 to 10"),
        (
            "a vidoe 1",
            "ENOENT no policy in force here has a class `vidoe`; classes for sockets are video",
        ),
        ("a rest 1", "class `rest` has no leaves for sockets"),
        ("a video 0", "EINVAL 0 is no weight"),
        ("file video 1", "ENOTSOCK"),
        ("local video 1", "ENOTSOCK"),
        ("a video 5", "done"),
    ] {
        let answer = alice.ask(command);
        assert!(answer.contains(said), "{command}: {answer}");
    }
    assert_eq!(leaves(), 3, "one for each socket, also for the one that was shared twice");
    let mut show = Command::new(program::unisono());
    show.args(["queue", "show", "--dev", DEVICE, "--once", "--interval", "10ms", "--json"]);
    let shown = text(&show.output().expect("it starts").stdout);
    assert_eq!(crate::schema::formats_of(&shown), ["unisono-queue-show-1"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let sockets = shown["sockets"].as_array().expect("a list").iter().map(|socket| {
        assert!(socket["program"].as_str().is_some_and(|name| name.starts_with("python")), "{socket}");
        (socket["class"].as_str(), socket["user"].as_u64(), socket["weight"].as_f64())
    });
    let expected = [5.0, 1.0, 2.5].map(|weight| (Some("video"), Some(ALICE.into()), Some(weight)));
    assert_eq!(sockets.collect::<Vec<_>>(), expected);
    assert_eq!(alice.ask("close a"), "done");
    wait_for_leaves(2);
    assert_eq!(alice.ask("d video 1"), "done", "there is room again");
    wait_for_leaves(3);
    // a policy that keeps the class keeps the leaves; a policy without the class removes them
    applied(&file(&policy("video").replace("4mbit", "5mbit")), &[])?;
    assert_eq!(leaves(), 3);
    applied(&file(&policy("film")), &[])?;
    assert_eq!(leaves(), 0);
    assert_eq!(alice.ask("d film 1"), "done");
    assert_eq!(leaves(), 1);
    drop((alice, guard));
    cleared(&[]);
    wait_until_it_looks(&guarded.before);
    Ok(())
}

fn a_guard_that_is_killed_loses_nothing_and_one_that_ends_takes_the_leaves_away() -> TestOutcome {
    let guarded = Guarded::new()?;
    let guard = guarded.guard();
    let mut alice = Client::new(&guarded, ALICE)?;
    assert_eq!([alice.ask("a video 3"), alice.ask("b video 1")], ["done", "done"]);
    drop(guard); // kill -9
    assert_eq!(leaves(), 2);
    let refused = alice.ask("c video 1");
    assert!(
        refused.starts_with("ECONNREFUSED") && refused.contains("unisono queue guard"),
        "{refused}"
    );
    assert_eq!(alice.ask("close a"), "done");
    let mut guard = guarded.guard();
    wait_for_leaves(1);
    assert_eq!(alice.ask("c video 1"), "done");
    assert_eq!(leaves(), 2);
    send(guard.0.id().cast_signed(), Signal::Terminate);
    assert!(guard.0.wait().expect("our child").success());
    assert_eq!(leaves(), 0);
    assert!(!guarded.socket().exists());
    // sockets that still exist may request a share again
    let guard = guarded.guard();
    assert_eq!(alice.ask("c video 1"), "done");
    assert_eq!(leaves(), 1);
    cleared(&[]);
    wait_until_it_looks(&guarded.before);
    let refused = alice.ask("c video 1");
    assert!(refused.starts_with("EPERM no policy in force"), "{refused}");
    drop(guard);
    Ok(())
}

fn places_without_leaves_for_sockets_refuse_the_policy_with_the_place_that_has_them() -> TestOutcome {
    let _hosts = on_a_host()?;
    let policy = file(&policy("video"));
    for options in [&["--backend", "interposed"][..], &["--direction", "in"]] {
        let output = queue_apply(&policy, options);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("class `video`: sockets have leaves of their own in"), "{said}");
    }
    Ok(())
}

fn the_example_is_a_policy_that_the_kernel_enforces() -> TestOutcome {
    let _hosts = on_a_host()?;
    let path = program::workspace().join("examples/policies/streams.toml");
    applied(&file(&fs::read_to_string(path).expect("it is there")), &[])?;
    cleared(&[]);
    Ok(())
}

host_tests![needs Queues;
    two_sockets_of_a_user_share_their_class_by_weight_in_each_language within 300,
    limits_and_strangers_are_refused_and_a_leaf_goes_with_its_socket within 120,
    a_guard_that_is_killed_loses_nothing_and_one_that_ends_takes_the_leaves_away within 120,
    places_without_leaves_for_sockets_refuse_the_policy_with_the_place_that_has_them within 60,
    the_example_is_a_policy_that_the_kernel_enforces within 60,
];
