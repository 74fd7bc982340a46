//! Tests what holds for each server of Unisono: it survives hangups, other users cannot change its files, and
//! its privileges are given up before it reads from the first client.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unisono_events_client::{BrokerAddress, Client, SubscriptionSpec, TlsAddress};
use unisono_host_tests::ports::free_ports;
use unisono_host_tests::processes::Killed;
use unisono_host_tests::{TestOutcome, host_tests, program, require};
use unisono_linux::process::is_root;

/// A server that is killed when the test ends.
struct StartedServer {
    child: Killed,
    /// The lines that it printed until it served.
    said: Vec<String>,
}

/// Starts `unisono` with these arguments and with umask 0, and waits until it prints `ready`.
fn start(words: &[&str], ready: &str) -> StartedServer {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(program::unisono()).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a shell is there");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut said = Vec::new();
    for line in lines.by_ref().map_while(Result::ok) {
        let is_ready = line.contains(ready);
        said.push(line);
        if is_ready {
            // reads the rest, so that the server does not block or fail when it prints
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return StartedServer { child: Killed(child), said };
        }
    }
    panic!("{words:?} ended: {said:?}, {:?}", child.wait());
}

fn signal(server: &StartedServer, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(&server.child.0);
    rustix::process::kill_process(pid, signal).expect("it runs");
}

/// Sends SIGHUP three times, and checks with `answers` that the server still serves; then ends it by SIGINT.
fn survives_hangups(mut server: StartedServer, answers: impl Fn()) {
    for _ in 0..3 {
        signal(&server, rustix::process::Signal::HUP);
        answers();
    }
    assert!(server.child.0.try_wait().expect("it is a child").is_none(), "it ended by SIGHUP");
    signal(&server, rustix::process::Signal::INT);
    assert!(server.child.0.wait().expect("it ends").success());
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it is there").permissions().mode() & 0o777
}

fn open_directory() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o711)).expect("it is ours");
    scratch
}

fn scrape(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn connect(socket: &Path) -> Client {
    Client::connect_unix(socket).expect("it serves")
}

fn the_broker_of_events_outlives_hangups_and_its_files_are_its_owners() -> TestOutcome {
    let scratch = open_directory();
    let path = |name: &str| scratch.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    let (bus, metrics, log, audit) = (text("bus"), text("metrics"), text("log"), text("audit"));
    let words =
        ["events", "serve", "--listen", &bus, "--metrics", &metrics, "--log", &log, "--audit", &audit];
    let ready = if is_root() { "serving as user" } else { "serving at" };
    let server = start(&words, ready);
    connect(&path("bus")).subscribe(&SubscriptionSpec::new("t")).expect("it fits");
    assert_eq!([mode(&path("bus")), mode(&path("metrics"))], [0o600; 2], "sockets");
    assert_eq!([mode(&path("log")), mode(&path("audit"))], [0o700, 0o600], "what is kept");
    survives_hangups(server, || {
        connect(&path("bus")).statistics().expect("it answers");
        assert!(scrape(&path("metrics")).starts_with("HTTP/1.1 200 OK"));
    });
    let lines = std::fs::read_to_string(path("audit")).expect("it is text");
    for action in ["connect", "subscribe", "disconnect"] {
        assert!(lines.contains(&format!("\"action\":\"{action}\"")), "{action} in {lines}");
    }
    Ok(())
}

fn a_socket_for_others_has_the_mode_that_was_asked_for() -> TestOutcome {
    let scratch = open_directory();
    let bus = scratch.path().join("bus");
    let words = ["events", "serve", "--listen", &bus.display().to_string(), "--mode", "660"];
    let _server = start(&words, if is_root() { "serving as user" } else { "serving at" });
    assert_eq!(mode(&bus), 0o660);
    Ok(())
}

/// Returns the line with the user ids of a process from `/proc/PID/status`.
fn users(process: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    status.lines().find(|line| line.starts_with("Uid:")).expect("a line").to_owned()
}

fn the_broker_of_paths_outlives_hangups_and_gives_roots_privileges_away() -> TestOutcome {
    let scratch = open_directory();
    let (socket, policy) = (scratch.path().join("broker"), scratch.path().join("policy.toml"));
    std::fs::write(&policy, "rate = \"80mbit\"\ndefault = \"rest\"\n[class.video]\n").expect("written");
    let [listen, policy] = [&socket, &policy].map(|path| path.display().to_string());
    let words = ["queue", "broker", &policy, "--listen", &listen];
    let server = start(&words, if is_root() { "serving as user" } else { "serving at" });
    connect(&socket).statistics().expect("it answers");
    if is_root() {
        assert!(!users(server.child.0.id()).contains("\t0"), "{}", users(server.child.0.id()));
    }
    survives_hangups(server, || drop(connect(&socket).statistics().expect("it answers")));
    assert!(!socket.exists(), "the socket is left");
    if is_root() {
        let server = start(&[&words[..], &["--user", "root"]].concat(), "serving at");
        connect(&socket).statistics().expect("it answers");
        assert!(users(server.child.0.id()).contains("\t0\t0"), "{}", users(server.child.0.id()));
    }
    Ok(())
}

fn figures_of_queues_are_answered_after_hangups() -> TestOutcome {
    require::root()?;
    let scratch = open_directory();
    let socket = scratch.path().join("metrics");
    let words = ["queue", "metrics", "--listen", &socket.display().to_string()];
    let server = start(&words, "answering at");
    assert_eq!(mode(&socket), 0o600);
    survives_hangups(server, || assert!(scrape(&socket).starts_with("HTTP/1.1 200 OK")));
    Ok(())
}

fn the_gang_daemon_without_rules_outlives_hangups() -> TestOutcome {
    require::root()?;
    let scratch = open_directory();
    let socket = scratch.path().join("gang.sock");
    let place = socket.display().to_string();
    let mut command = Command::new(program::unisono());
    command.args(["gang", "daemon", "--socket", &place]).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("unisono starts");
    let mut server = StartedServer { child: Killed(child), said: Vec::new() };
    let answers = || {
        let list = Command::new(program::unisono()).args(["gang", "list", "--socket", &place]).output();
        list.expect("unisono starts").status.success()
    };
    let begin = Instant::now();
    while !answers() {
        if let Some(status) = server.child.0.try_wait().expect("it is a child") {
            let mut said = String::new();
            server.child.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
            assert_eq!(status.code(), Some(3), "{said}");
            return Err(unisono_host_tests::Skipped::because(format!("no gangs here: {said}")));
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    survives_hangups(server, || assert!(answers()));
    Ok(())
}

/// Makes certificates for a broker in a directory: `broker.crt` and its key, signed by the authority
/// `ca.crt`.
pub(crate) fn certificates(directory: &Path) {
    let script = "
        set -e
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt \
            -days 9 -subj /CN=ca
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout broker.key -out broker.csr \
            -subj /CN=localhost
        printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > names
        openssl x509 -req -in broker.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 9 -extfile names \
            -out broker.crt";
    let made = Command::new("sh").args(["-c", script]).current_dir(directory).output().expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A Python that other users can execute, too.
const PYTHON: &str = "/usr/bin/python3";

fn a_udp_port_is_shared_by_the_sockets_of_the_user_that_the_broker_becomes_and_by_no_other() -> TestOutcome {
    require::root()?;
    require::program("openssl", "apt-get install openssl")?;
    require::path(PYTHON, "Python that every user may start")?;
    require::program("setpriv", "apt-get install util-linux")?;
    let scratch = open_directory();
    certificates(scratch.path());
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let [address] = free_ports();
    let (listen, certificate, key) = (format!("udp:{address}"), path("broker.crt"), path("broker.key"));
    let words = ["events", "serve", "--listen", &listen, "--certificate", &certificate, "--key", &key];
    let server = start(&words, "serving as user");
    let place = TlsAddress {
        host: "localhost".to_owned(),
        address,
        authority: Some(scratch.path().join("ca.crt")),
        own: None,
        token: None,
    };
    // for each client the broker makes a socket at the address to which root has bound the listener
    let at = BrokerAddress::Udp(place);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::at(&at).expect("it serves")).collect();
    clients.iter_mut().for_each(|client| drop(client.statistics().expect("it answers")));
    let bind = "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                [s.setsockopt(socket.SOL_SOCKET, o, 1) for o in (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]\n\
                s.bind(('127.0.0.1', int(sys.argv[1])))";
    let stranger = ["--reuid=61003", "--regid=61003", "--clear-groups", PYTHON, "-c", bind];
    let bound = Command::new("setpriv").args(stranger).arg(address.port().to_string()).output();
    let bound = bound.expect("it is there");
    let said = String::from_utf8_lossy(&bound.stderr);
    assert!(!bound.status.success() && said.contains("in use"), "{said}");
    assert!(server.said.iter().any(|line| line.contains("serving as user")), "{:?}", server.said);
    Ok(())
}

fn a_unit_that_is_installed_with_an_open_umask_can_be_written_by_its_owner_alone() -> TestOutcome {
    let scratch = open_directory();
    let policy = scratch.path().join("policy.toml");
    std::fs::write(&policy, "rate = \"80mbit\"\ndefault = \"rest\"\n[class.video]\n").expect("written");
    let root = scratch.path().join("root");
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(program::unisono()).args(["queue", "install"]);
    command.arg(&policy).args(["--dev", "eth9", "--root"]).arg(&root);
    let installed = command.output().expect("a shell is there");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let unit = root.join("etc/systemd/system/unisono-queue-eth9.service");
    assert_eq!(mode(&unit) & 0o022, 0, "{:o}", mode(&unit));
    assert_eq!(mode(unit.parent().expect("a directory")) & 0o022, 0);
    Ok(())
}

host_tests![
    needs Nothing;
    the_broker_of_events_outlives_hangups_and_its_files_are_its_owners within 120,
    a_socket_for_others_has_the_mode_that_was_asked_for within 120,
    the_broker_of_paths_outlives_hangups_and_gives_roots_privileges_away within 120,
    figures_of_queues_are_answered_after_hangups within 120,
    the_gang_daemon_without_rules_outlives_hangups within 120,
    a_udp_port_is_shared_by_the_sockets_of_the_user_that_the_broker_becomes_and_by_no_other within 120,
    a_unit_that_is_installed_with_an_open_umask_can_be_written_by_its_owner_alone within 60,
];
