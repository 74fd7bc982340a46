//! Tests MQTT over WebSocket with clients of other projects: paho in Python with and without TLS, MQTT.js in
//! node, and MQTT.js in a page of a browser. Each client subscribes, reports that it is ready, and sends back
//! the messages that it gets.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use unisono_events_client::{Advertisement, Client, EventDraft, Reception, SubscriptionSpec};
use unisono_host_tests::processes::{Killed, text};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, pypi, require};

/// Echoes with paho: the port, and the file of an authority for TLS.
const PAHO: &str = "
import sys
import paho.mqtt.client as mqtt

client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, transport='websockets', protocol=mqtt.MQTTv5)
if len(sys.argv) > 2:
    client.tls_set(sys.argv[2])
client.on_connect = lambda *_: client.subscribe('down', qos=1)
client.on_subscribe = lambda *_: client.publish('up', b'ready', qos=1)
client.on_message = lambda _client, _data, message: client.publish('up', message.payload, qos=1)
client.connect('localhost', int(sys.argv[1]))
client.loop_forever()
";

/// Echoes with MQTT.js: `mqtt` and `url` are defined before.
const MQTT_JS: &str = "
const client = mqtt.connect(url, { protocolVersion: 5 });
client.on('connect', () => client.subscribe('down', { qos: 1 }, () => client.publish('up', 'ready', { qos: 1 })));
client.on('message', (topic, payload) => client.publish('up', payload, { qos: 1 }));
";

/// Starts a broker. Returns it, and the address at which it serves WebSockets.
fn serve(socket: &Path, mqtt: &str, more: &[&str]) -> (Killed, String) {
    let mut command = Command::new(program::unisono());
    command.args(["events", "serve", "--mqtt", mqtt]).args(more).arg("--listen").arg(socket);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut broker = Killed(command.spawn().expect("unisono starts"));
    let mut said = BufReader::new(broker.0.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let address =
        said.find_map(|line| Some(line.strip_prefix("serving MQTT at ")?.split(';').next()?.to_owned()));
    assert!(said.any(|line| line.starts_with("serving at")), "it serves");
    std::thread::spawn(move || said.for_each(|line| eprintln!("{line}")));
    (broker, address.expect("it says where it listens"))
}

fn payload(client: &mut Client) -> Vec<u8> {
    match client.receive(Some(Duration::from_secs(120))).expect("the broker is there") {
        Some(Reception::Event(event)) => event.payload.bytes().to_vec(),
        other => panic!("no answer of the client: {other:?}"),
    }
}

/// Starts a client that echoes, and has it echo payloads of all lengths.
fn echoes(socket: &Path, mut client: Command) {
    let mut program = Client::connect_unix(socket).expect("it serves");
    program
        .subscribe(&SubscriptionSpec { queue_bytes: 4 << 20, ..SubscriptionSpec::new("up") })
        .expect("it fits");
    let down = program.advertise(&Advertisement::new("down")).expect("a topic");
    let _client = Killed(client.stdin(Stdio::null()).spawn().expect("it starts"));
    assert_eq!(payload(&mut program), b"ready");
    for length in [0, 1, 125, 126, 65_535, 65_536, 1 << 20] {
        let sent: Vec<u8> = (0..length).map(|at| (at % 253) as u8).collect();
        program.publish(down, &EventDraft::new(&sent)).expect("it leaves");
        assert!(payload(&mut program) == sent, "{length} bytes come back unchanged");
    }
}

fn paho_speaks_mqtt_over_websocket_with_and_without_tls() -> TestOutcome {
    require::program("openssl", "apt-get install openssl")?;
    let python = pypi::environment("websocket-paho", "python3", &["paho-mqtt==2.1.0"])?.join("bin/python");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "9",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-keyout", "broker.key", "-out", "broker.crt"])
        .current_dir(scratch.path())
        .output()
        .expect("openssl starts");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let file = |name: &str| scratch.path().join(name).display().to_string();
    let (socket, certificate, key) = (scratch.path().join("bus"), file("broker.crt"), file("broker.key"));
    let encrypted = ["--certificate", certificate.as_str(), "--key", key.as_str()];
    for (mqtt, more) in [("ws:127.0.0.1:0", &[][..]), ("wss:127.0.0.1:0", &encrypted)] {
        let (_broker, address) = serve(&socket, mqtt, more);
        let port = address.rsplit(':').next().expect("a port");
        let mut client = Command::new(&python);
        client.args(["-c", PAHO, port]).args(more.get(1));
        echoes(&socket, client);
    }
    Ok(())
}

/// Returns the directory with MQTT.js, which is installed first if it is missing.
fn mqtt_js() -> Result<PathBuf, Skipped> {
    require::program("npm", "apt-get install npm")?;
    let directory = program::target().join("websocket-npm");
    std::fs::create_dir_all(&directory).expect("the directory is ours");
    // tests that run at the same time install it once
    let lock = std::fs::File::create(directory.join("lock")).expect("the directory is ours");
    lock.lock().expect("the file system has locks");
    if !directory.join("ready").exists() {
        let install = ["install", "--silent", "--no-audit", "--no-fund", "mqtt@5.16.0"];
        let installed = Command::new("npm").args(install).current_dir(&directory).output();
        let installed =
            installed.map_err(|error| Skipped::because(format!("npm does not start: {error}")))?;
        if !installed.status.success() {
            let why = format!("npm cannot install mqtt: {}", text(&installed.stderr).trim());
            return Err(Skipped::because(why));
        }
        std::fs::write(directory.join("ready"), b"").expect("the directory is ours");
    }
    Ok(directory)
}

fn mqtt_js_speaks_mqtt_over_websocket_in_node() -> TestOutcome {
    require::program("node", "apt-get install nodejs")?;
    let directory = mqtt_js()?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let socket = scratch.path().join("bus");
    let (_broker, address) = serve(&socket, "ws:127.0.0.1:0", &[]);
    let url = address.replacen("ws:", "ws://", 1);
    let mut client = Command::new("node");
    client.args(["-e", &format!("const mqtt = require('mqtt'); const url = '{url}'; {MQTT_JS}")]);
    client.current_dir(directory);
    echoes(&socket, client);
    Ok(())
}

/// Serves a page to a browser over HTTP, because a page that is read from a file has no origin. Returns the
/// port.
fn serve_page(page: String, script: String) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            // the browser also opens connections in advance, on which it sends nothing
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = BufReader::new(&stream).read_line(&mut line);
            let (kind, body) = match line.split(' ').nth(1) {
                Some("/") => ("text/html", &page),
                Some("/mqtt.js") => ("text/javascript", &script),
                _ => continue,
            };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}; charset=utf-8\r\n");
            let length = body.len();
            let rest = format!("Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            let _ = std::io::Write::write_all(&mut stream, [head, rest].concat().as_bytes());
        }
    });
    port
}

fn a_page_in_a_browser_speaks_mqtt_over_websocket() -> TestOutcome {
    let directory = mqtt_js()?;
    let browser = super::report::browser()?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let socket = scratch.path().join("bus");
    let (_broker, address) = serve(&socket, "ws:127.0.0.1:0", &[]);
    let url = address.replacen("ws:", "ws://", 1);
    let script = std::fs::read_to_string(directory.join("node_modules/mqtt/dist/mqtt.min.js"));
    let page = format!(
        "<!DOCTYPE html><script src=mqtt.js></script><script>const url = '{url}'; {MQTT_JS}</script>"
    );
    let port = serve_page(page, script.expect("MQTT.js has it"));
    let mut chromium = Command::new(browser);
    chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-extensions", "--disable-breakpad", "--remote-debugging-port=0"])
        .arg(format!("--user-data-dir={}", scratch.path().join("profile").display()))
        .arg(format!("http://127.0.0.1:{port}/"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    echoes(&socket, chromium);
    Ok(())
}

host_tests![needs Nothing;
    paho_speaks_mqtt_over_websocket_with_and_without_tls within 300,
    mqtt_js_speaks_mqtt_over_websocket_in_node within 300,
    a_page_in_a_browser_speaks_mqtt_over_websocket within 300,
];
