//! `unisono events serve` with fewer descriptors than its clients need: clients wait, and are not sent away.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use unisono_events_client::Client;

/// Ends the broker when the test ends.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn programs_without_room_in_shared_memory_wait_until_one_leaves() {
    let scratch = tempfile::tempdir().expect("a directory");
    let socket = scratch.path().join("events");
    let serve = format!("ulimit -n 64; exec {} events serve --listen \"$0\"", env!("CARGO_BIN_EXE_unisono"));
    let mut command = Command::new("sh");
    command.args(["-c", &serve]).arg(&socket).stderr(Stdio::piped());
    let mut serving = Serving(command.spawn().expect("it starts"));
    let mut lines = BufReader::new(serving.0.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("serving at")), "it serves");
    std::thread::spawn(move || lines.for_each(drop));

    let (sender, connected) = mpsc::channel();
    std::thread::spawn(move || {
        // more than 64 descriptors suffice for
        for _ in 0..12 {
            let client = Client::connect_shared(&socket);
            let failed = client.is_err();
            if sender.send(client).is_err() || failed {
                return;
            }
        }
    });
    let mut clients = Vec::new();
    while let Ok(client) = connected.recv_timeout(Duration::from_secs(2)) {
        clients.push(client.expect("the broker is there"));
    }
    assert!((3..12).contains(&clients.len()), "{} programs", clients.len());
    drop(clients.pop());
    let next = connected.recv_timeout(Duration::from_secs(20)).expect("its place is free");
    next.expect("the broker is there");
}
