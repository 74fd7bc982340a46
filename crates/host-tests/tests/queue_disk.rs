//! Tests disks that `unisono queue disk` serves, with the clients of the distribution: libnbd's tools and
//! qemu-io.

use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use unisono_host_tests::processes::{send, words};
use unisono_host_tests::{TestOutcome, host_tests, program, require};
use unisono_linux::process::{Signal, is_root};

const MIB: u64 = 1 << 20;
/// The number of a user that no host has.
const STRANGER: &str = "1999999999";

/// A served disk, in a directory of its own. Dropping this value kills the server.
struct ServedDisk {
    directory: tempfile::TempDir,
    server: Child,
    /// The lines that the server has printed since it serves, to its standard error.
    said: Mutex<Receiver<String>>,
}

impl Drop for ServedDisk {
    fn drop(&mut self) {
        // fails if the process has ended already
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn clients() -> TestOutcome {
    for (client, package) in [("nbdinfo", "libnbd-bin"), ("nbdcopy", "libnbd-bin"), ("qemu-io", "qemu-utils")]
    {
        require::program(client, &format!("apt-get install {package}"))?;
    }
    Ok(())
}

/// Serves a new file of `bytes` bytes. Other users may enter its directory.
fn served(bytes: u64, policy: &str, options: &[&str]) -> ServedDisk {
    let directory = tempfile::tempdir().expect("a scratch directory");
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o711)).expect("it is ours");
    fs::write(directory.path().join("policy.toml"), policy).expect("room");
    let disk = File::create(directory.path().join("disk.img")).expect("room");
    disk.set_len(bytes).expect("room");
    let (server, said) = start(directory.path(), options);
    ServedDisk { directory, server, said: Mutex::new(said) }
}

/// Starts the server, and waits until it serves.
fn start(directory: &Path, options: &[&str]) -> (Child, Receiver<String>) {
    let mut command = Command::new(program::unisono());
    command.current_dir(directory).args(["queue", "disk", "disk.img"]);
    command.args(["--policy", "policy.toml", "--listen", "socket"]).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().expect("it starts");
    let mut lines = BufReader::new(server.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let said: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("serving disk.img")).collect();
    // if the server has closed its standard error instead, it has ended
    assert!(server.try_wait().expect("a child").is_none(), "{said:?}");
    let (sender, said) = channel();
    // the test may no longer be interested
    thread::spawn(move || lines.for_each(|line| drop(sender.send(line))));
    (server, said)
}

impl ServedDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn uri(&self, class: &str) -> String {
        format!("nbd+unix:///{class}?socket={}", self.path("socket").display())
    }

    /// Runs commands of qemu-io in a class.
    fn qemu(&self, class: &str, commands: &[&str], options: &[&str]) -> Output {
        let mut command = Command::new("qemu-io");
        command.args(["--format", "raw"]).args(options);
        command.args(commands.iter().flat_map(|command| ["--cmd", command])).arg(self.uri(class));
        command.output().expect("it was looked for")
    }

    /// Ends the server by SIGINT. Returns what it printed.
    fn end(&mut self) -> String {
        send(self.server.id().cast_signed(), Signal::Interrupt);
        let mut printed = String::new();
        self.server.stdout.take().expect("piped").read_to_string(&mut printed).expect("text");
        assert!(self.server.wait().expect("a child").success());
        assert!(!self.path("socket").exists(), "the socket goes");
        printed
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().expect("it was looked for")
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", words(output));
    words(output)
}

const TWO: &str = "rate = \"100gbit\"\ndefault = \"rest\"\n[class.video]\nweight = 3\n[class.rest]\n";

fn clients_of_all_classes_read_what_they_wrote_and_the_file_has_it() -> TestOutcome {
    clients()?;
    let mut disk = served(64 * MIB, TWO, &[]);
    let listed = succeeded(&run("nbdinfo", &["--list", &disk.uri("")]));
    for word in ["video", "rest", "67108864", "can_trim: true", "can_fua: true", "can_multi_conn: true"] {
        assert!(listed.contains(word), "{word}: {listed}");
    }
    let unknown = run("nbdinfo", &[&disk.uri("vidoe")]);
    assert!(
        !unknown.status.success() && words(&unknown).contains("No such file"),
        "{}",
        words(&unknown)
    );
    // four clients at the same time, each in its own quarter of the disk
    thread::scope(|scope| {
        for (part, class) in ["video", "rest", "", "video"].into_iter().enumerate() {
            let disk = &disk;
            scope.spawn(move || {
                let quarter = part as u64 * 16;
                let at = |kib: u64| format!("{}k", quarter * 1024 + kib);
                let commands = [
                    format!("write -P {} {} 16M", part + 1, at(0)),
                    format!("write -f -P 9 {} 3k", at(5)),
                    format!("write -z {} 1M", at(1024)),
                    format!("write -z -u {} 1M", at(3072)),
                    format!("discard {} 1M", at(8192)),
                    "flush".to_owned(),
                    format!("read -P 9 {} 3k", at(5)),
                    format!("read -P 0 {} 1M", at(1024)),
                    format!("read -P 0 {} 1M", at(3072)),
                    format!("read -P {} {} 1M", part + 1, at(15_360)),
                ];
                let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
                let said = succeeded(&disk.qemu(class, &commands, &[]));
                assert!(!said.contains("verification failed") && !said.contains("rror"), "{said}");
            });
        }
    });
    let file = File::open(disk.path("disk.img")).expect("it is ours");
    for part in 0..4_u64 {
        let (mut byte, quarter) = ([0; 3], part * 16 * MIB);
        file.read_exact_at(&mut byte, quarter + 15 * MIB).expect("64 MiB");
        assert_eq!(u64::from(byte[0]), part + 1);
        file.read_exact_at(&mut byte, quarter + 5 * 1024).expect("64 MiB");
        assert_eq!(byte, [9; 3]);
    }
    // copies the whole disk out, and an image in
    let (copy, uri) = (disk.path("copy.img"), disk.uri("video"));
    succeeded(&run("nbdcopy", &[&uri, copy.to_str().expect("plain")]));
    let image: Vec<u8> = (0..8 * MIB).map(|at| ((at * 2_654_435_761) >> 11) as u8).collect();
    assert!(fs::read(&copy).expect("it was made") == fs::read(disk.path("disk.img")).expect("it is ours"));
    fs::write(&copy, &image).expect("room");
    succeeded(&run("nbdcopy", &["--flush", copy.to_str().expect("plain"), &disk.uri("rest")]));
    let mut first = vec![0; image.len()];
    file.read_exact_at(&mut first, 0).expect("64 MiB");
    assert!(first == image);
    let printed = disk.end();
    assert!(printed.contains("video") && printed.contains("contended"), "{printed}");
    Ok(())
}

fn classes_with_requests_waiting_get_their_shares_in_bytes() -> TestOutcome {
    clients()?;
    // slower than any disk, so that requests wait in the classes
    let mut disk = served(128 * MIB, &TWO.replace("100gbit", "600mbit"), &["--json"]);
    let source = disk.path("source.img");
    fs::write(&source, vec![7; 128 << 20]).expect("room");
    let (video, rest) = (disk.uri("video"), disk.uri("rest"));
    let copies = [[video.as_str(), "null:"], [source.to_str().expect("plain"), &rest]];
    let copies = copies.map(|copy| Command::new("nbdcopy").args(copy).spawn().expect("it was looked for"));
    for mut copy in copies {
        assert!(copy.wait().expect("a child").success());
    }
    let printed = disk.end();
    assert_eq!(crate::schema::formats_of(&printed), ["unisono-queue-disk-1"]);
    let figures: Value = serde_json::from_str(&printed).expect("JSON");
    let of = |class: usize, key: &str| figures["classes"][class][key].as_u64().expect("a number") as f64;
    assert_eq!((of(0, "read_bytes"), of(1, "written_bytes")), (128.0 * MIB as f64, 128.0 * MIB as f64));
    let (video, rest) = (of(0, "contended_bytes"), of(1, "contended_bytes"));
    assert!(rest > 20.0 * MIB as f64, "{printed}");
    let share = video / (video + rest);
    assert!((share - 0.75).abs() < 0.02, "{share}: {printed}");
    Ok(())
}

fn a_hang_up_puts_a_changed_policy_in_force_or_nothing_of_it_and_show_tells_both() -> TestOutcome {
    clients()?;
    // the server has to be able to read the policy again
    let stays: &[&str] = if is_root() { &["--user", "root"] } else { &[] };
    let mut disk = served(64 * MIB, TWO, stays);
    let mut video = Client::chosen(&disk, "video");
    let shown = |disk: &ServedDisk| {
        let output =
            run_here(disk, &["queue", "show", "--disk", "socket", "--once", "--interval", "1ms", "--json"]);
        let printed = succeeded(&output);
        assert_eq!(crate::schema::formats_of(&printed), ["unisono-queue-disk-1"]);
        let figures: Value = serde_json::from_str(&printed).expect("JSON");
        let classes = figures["classes"].as_array().expect("classes").iter();
        let class = |class: &Value| {
            let text = class["name"].as_str().expect("a name").to_owned();
            (
                text,
                class["share"].as_f64().expect("a share"),
                class["clients"].as_u64().expect("a number"),
            )
        };
        classes.map(class).collect::<Vec<_>>()
    };
    let named = |name: &str, share, clients| (name.to_owned(), share, clients);
    assert_eq!(shown(&disk), [named("video", 0.75, 1), named("rest", 0.25, 0)]);
    let change = |text: &str, is_answer: fn(&str) -> bool| {
        fs::write(disk.path("policy.toml"), text).expect("room");
        send(disk.server.id().cast_signed(), Signal::Hangup);
        disk.said
            .lock()
            .expect("one thread")
            .iter()
            .find(|line| is_answer(line))
            .expect("it answers every SIGHUP")
    };
    for (policy, reason) in [
        ("rate = 5\n", "policy.toml:1"),
        (&TWO.replace("weight = 3", "ceiling = \"1mbit\""), "ceiling"),
        (&TWO.replace("video", "other"), "1 clients use the class video"),
    ] {
        let answer = change(policy, |line| line.contains("the policy stays as it is"));
        assert!(answer.contains(reason), "{answer}");
        assert_eq!(shown(&disk), [named("video", 0.75, 1), named("rest", 0.25, 0)]);
    }
    change(&(TWO.replace("weight = 3", "weight = 8") + "[class.new]\n"), |line| {
        line.contains("is in force now")
    });
    assert_eq!(shown(&disk), [named("video", 0.8, 1), named("rest", 0.1, 0), named("new", 0.1, 0)]);
    assert_eq!(video.request(WRITE, 0, &[9; 512]), 0, "the client is served on");
    drop(video);
    succeeded(&disk.qemu("new", &["write -P 5 0 64k", "read -P 5 0 64k"], &[]));
    disk.end();
    let gone = run_here(&disk, &["queue", "show", "--disk", "socket", "--once"]);
    assert!(words(&gone).contains("socket tells no statistics"), "{}", words(&gone));
    Ok(())
}

fn a_killed_server_loses_nothing_that_was_flushed_and_the_next_one_takes_its_socket() -> TestOutcome {
    clients()?;
    // as root, `--user root`, because a server that gives up root has another process that removes its socket
    let stays: &[&str] = if is_root() { &["--user", "root"] } else { &[] };
    let mut disk = served(64 * MIB, TWO, stays);
    let in_use =
        run_here(&disk, &["queue", "disk", "disk.img", "--policy", "policy.toml", "--listen", "other"]);
    assert_eq!(in_use.status.code(), Some(2), "{}", words(&in_use));
    assert!(words(&in_use).contains("another process serves or locks disk.img"), "{}", words(&in_use));
    let flushed = disk.qemu("video", &["write -P 5 0 8M", "flush", "write -f -P 6 8M 64k"], &[]);
    succeeded(&flushed);
    // the server is killed while another client writes
    let mut writer = Command::new("nbdcopy");
    writer.args([disk.path("disk.img").as_os_str(), disk.uri("rest").as_ref()]);
    let mut writer = writer.stderr(Stdio::null()).spawn().expect("it was looked for");
    disk.server.kill().expect("it runs");
    disk.server.wait().expect("a child");
    writer.wait().expect("a child");
    assert!(disk.path("socket").symlink_metadata().expect("left").file_type().is_socket());
    disk.server = start(disk.directory.path(), &["--json"]).0;
    let commands = ["read -P 5 0 8M", "read -P 6 8M 64k"];
    let said = succeeded(&disk.qemu("", &commands, &[]));
    assert!(!said.contains("verification failed"), "{said}");
    disk.end();
    Ok(())
}

fn run_here(disk: &ServedDisk, arguments: &[&str]) -> Output {
    let mut command = Command::new(program::unisono());
    command.current_dir(disk.directory.path()).args(arguments).output().expect("it starts")
}

fn a_disk_that_is_read_only_refuses_writes() -> TestOutcome {
    clients()?;
    let mut disk = served(MIB, TWO, &["--read-only"]);
    let info = succeeded(&run("nbdinfo", &[&disk.uri("video")]));
    assert!(info.contains("is_read_only: true"), "{info}");
    let said = succeeded(&disk.qemu("video", &["read -P 0 0 1M"], &["--read-only"]));
    assert!(!said.contains("failed"), "{said}");
    let mut client = Client::chosen(&disk, "video");
    assert_eq!(client.request(WRITE, 0, &[1; 512]), 1, "EPERM");
    assert_eq!(client.request(WRITE_ZEROES, 0, &[]), 1, "EPERM");
    disk.end();
    Ok(())
}

const WRITE: u16 = 1;
const WRITE_ZEROES: u16 = 6;

/// A client that can send any bytes.
struct Client(UnixStream);

impl Client {
    fn new(disk: &ServedDisk) -> Self {
        Self(UnixStream::connect(disk.path("socket")).expect("it listens"))
    }

    /// Connects, and chooses a class by the oldest option (NBD_OPT_EXPORT_NAME).
    fn chosen(disk: &ServedDisk, class: &str) -> Self {
        let mut client = Self::new(disk);
        let length = u32::try_from(class.len()).expect("short").to_be_bytes();
        let option = [&[0, 0, 0, 3], &b"IHAVEOPT"[..], &[0, 0, 0, 1], &length, class.as_bytes()].concat();
        client.send(&option);
        client.0.read_exact(&mut [0; 18 + 10]).expect("the greeting, and the facts of the class");
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it reads");
    }

    /// Sends a request whose length is that of `data`, or a sector if there are none, and then `data`.
    /// Returns the error of the reply.
    fn request(&mut self, kind: u16, offset: u64, data: &[u8]) -> u32 {
        let length = if data.is_empty() { 512 } else { u32::try_from(data.len()).expect("short") };
        self.send(&head(kind, offset, length));
        self.send(data);
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).expect("it replies");
        assert_eq!((&reply[..4], reply[15]), (&[0x67, 0x44, 0x66, 0x98][..], 7));
        u32::from_be_bytes(reply[4..8].try_into().expect("four bytes"))
    }

    /// Sends these bytes and waits until the server has closed the connection.
    fn until_cut_off_by(mut self, bytes: &[u8]) {
        // fails if the server closes the connection before it has read everything
        let _ = self.0.write_all(bytes).and_then(|()| self.0.read_to_end(&mut Vec::new()));
    }
}

/// Returns the head of a request with the cookie 7.
fn head(kind: u16, offset: u64, length: u32) -> Vec<u8> {
    [
        &[0x25, 0x60, 0x95, 0x13, 0, 0][..],
        &kind.to_be_bytes(),
        &7_u64.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

fn bad_bytes_hurt_their_sender_alone() -> TestOutcome {
    clients()?;
    let mut disk = served(MIB, TWO, &["--json"]);
    let mut other = Client::chosen(&disk, "video");
    Client::new(&disk).until_cut_off_by(b"GET / HTTP/1.1\r\n\r\n");
    let endless = [&[0, 0, 0, 3], &b"IHAVEOPT"[..], &[0, 0, 0, 3], &[255; 4]].concat();
    Client::new(&disk).until_cut_off_by(&endless);
    Client::chosen(&disk, "rest").until_cut_off_by(&[0; 28]);
    Client::chosen(&disk, "rest").until_cut_off_by(&head(WRITE, 0, u32::MAX));
    // an incomplete write, whose sender then disconnects
    let mut half = Client::chosen(&disk, "rest");
    half.send(&[head(WRITE, 0, 4096), vec![9; 100]].concat());
    drop(half);
    // requests that are refused; the connection can still be used afterwards
    let mut client = Client::chosen(&disk, "rest");
    assert_eq!(client.request(WRITE, MIB - 1, &[9; 2]), 28, "ENOSPC");
    assert_eq!(client.request(WRITE, u64::MAX, &[9; 2]), 28, "ENOSPC");
    assert_eq!(client.request(0, MIB, &[]), 22, "EINVAL");
    assert_eq!(client.request(77, 0, &[]), 22, "EINVAL");
    assert_eq!(client.request(WRITE, 0, &[4; 512]), 0);
    // a client that sends many requests and reads no reply
    let mut greedy = Client::chosen(&disk, "rest");
    let socket = greedy.0.try_clone().expect("a descriptor");
    let requests = head(0, 0, 1 << 20).repeat(40_000);
    let sender = thread::spawn(move || greedy.0.write_all(&requests));
    assert_eq!(other.request(WRITE, 4096, &[8; 512]), 0);
    let file = fs::read(disk.path("disk.img")).expect("it is ours");
    assert_eq!((file[0], file[100], file[600], file[4096]), (4, 4, 0, 8));
    // SIGINT ends the server nevertheless
    let figures: Value = serde_json::from_str(&disk.end()).expect("JSON");
    assert_eq!((&figures["refused"], &figures["connections"]), (&4.into(), &8.into()));
    drop(socket);
    sender.join().expect("no panic").expect_err("the server has gone");
    Ok(())
}

fn a_class_is_for_the_users_that_the_policy_names() -> TestOutcome {
    clients()?;
    require::root()?;
    require::program("setpriv", "apt-get install util-linux")?;
    let policy = format!("{TWO}[disk.video]\npurpose = \"interactive\"\nusers = [\"nobody\"]\n");
    let mut disk = served(MIB, &policy, &["--mode", "666", "--user", "root"]);
    let as_user = |user: &str, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--clear-groups", "--"]).args(arguments);
        command.output().expect("it was looked for")
    };
    let listed = succeeded(&as_user(STRANGER, &["nbdinfo", "--list", &disk.uri("")]));
    assert!(listed.contains("rest") && !listed.contains("video"), "{listed}");
    let (unisono, socket) = (program::unisono(), disk.path("socket"));
    let show = [unisono.to_str(), Some("queue show --once --interval 1ms --disk"), socket.to_str()];
    let show = show.map(|words| words.expect("plain")).join(" ");
    let shown = |user| succeeded(&as_user(user, &["sh", "-c", &show]));
    assert!(!shown(STRANGER).contains("video") && shown("nobody").contains("video"), "{show}");
    let refused = as_user(STRANGER, &["nbdinfo", &disk.uri("video")]);
    assert!(!refused.status.success(), "{}", words(&refused));
    assert!(words(&refused).contains("server replied with error"), "{}", words(&refused));
    succeeded(&as_user(STRANGER, &["nbdinfo", &disk.uri("rest")]));
    succeeded(&as_user("nobody", &["nbdinfo", &disk.uri("video")]));
    succeeded(&as_user("root", &["nbdinfo", &disk.uri("video")]));
    disk.end();
    // by default, no other user can connect, and the server gives up root
    let mut disk = served(MIB, &policy, &[]);
    let closed = as_user("nobody", &["nbdinfo", &disk.uri("video")]);
    assert!(
        !closed.status.success() && words(&closed).contains("ermission denied"),
        "{}",
        words(&closed)
    );
    let status = fs::read_to_string(format!("/proc/{}/status", disk.server.id())).expect("it runs");
    let users = status.lines().find(|line| line.starts_with("Uid:")).expect("a line");
    assert!(!users.split_whitespace().any(|user| user == "0"), "{users}");
    assert_eq!(Client::chosen(&disk, "video").request(WRITE, 0, &[1; 512]), 0);
    disk.end();
    Ok(())
}

host_tests![needs Nothing;
    clients_of_all_classes_read_what_they_wrote_and_the_file_has_it within 300,
    classes_with_requests_waiting_get_their_shares_in_bytes within 300,
    a_killed_server_loses_nothing_that_was_flushed_and_the_next_one_takes_its_socket within 120,
    a_hang_up_puts_a_changed_policy_in_force_or_nothing_of_it_and_show_tells_both within 120,
    a_disk_that_is_read_only_refuses_writes within 120,
    bad_bytes_hurt_their_sender_alone within 120,
    a_class_is_for_the_users_that_the_policy_names within 120,
];
