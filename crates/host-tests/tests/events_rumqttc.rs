//! Tests the broker's MQTT listener with the client rumqttc: every quality of service, sessions, retained
//! messages whose expiry is counted down, shared subscriptions, wills. The client program is
//! `crates/broker/peers/rumqttc`.
//!
//! Runs only in `cargo xtask nightly rumqttc`, because the client is built from crates that are downloaded,
//! which takes minutes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use unisono_host_tests::processes::Killed;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, require};

fn rumqttc_finds_the_listener_as_the_standard_has_it() -> TestOutcome {
    require::nightly("rumqttc")?;
    let place = program::target().join("peers");
    let manifest = program::workspace().join("crates/broker/peers/rumqttc/Cargo.toml");
    let mut build = program::cargo();
    build.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(manifest);
    let built =
        build.arg("--target-dir").arg(&place).output().expect("cargo starts because it runs this test");
    if !built.status.success() {
        let why = String::from_utf8_lossy(&built.stderr);
        return Err(Skipped::because(format!("rumqttc cannot be built here: {}", why.trim())));
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = Command::new(program::unisono());
    command.args(["events", "serve", "--mqtt", "127.0.0.1:0", "--listen"]).arg(scratch.path().join("bus"));
    let mut broker =
        Killed(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("unisono starts"));
    let mut said = BufReader::new(broker.0.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let address =
        said.find_map(|line| Some(line.strip_prefix("serving MQTT at ")?.split(';').next()?.to_owned()));
    let checked = Command::new(place.join("debug/rumqttc_check"))
        .arg(address.expect("it says where it listens"))
        .output()
        .expect("it was built");
    let found = String::from_utf8_lossy(&checked.stdout);
    let wrong = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{found}{wrong}");
    assert_eq!(found.lines().count(), 5, "{found}");
    Ok(())
}

host_tests![needs Nothing;rumqttc_finds_the_listener_as_the_standard_has_it within 900,];
