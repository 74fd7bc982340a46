//! Measures round trips over iceoryx2 between two processes: `ping | pong BYTES ROUNDS PROCESSOR NAME`.
//! `ping` prints the one-way time of each of 100 groups of rounds, in nanoseconds.

use iceoryx2::prelude::*;
use std::time::Instant;

const GROUPS: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, bytes, rounds, processor, name] = arguments.as_slice() else {
        return Err("usage: ping|pong BYTES ROUNDS PROCESSOR NAME".into());
    };
    let (bytes, rounds): (usize, usize) = (bytes.parse()?, rounds.parse()?);
    pin(processor.parse()?);
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let service = |direction: &str| -> Result<_, Box<dyn std::error::Error>> {
        let name = ServiceName::new(&format!("{name}/{direction}"))?;
        // The settings equal the settings of iceoryx2's own benchmark.
        let service = node
            .service_builder(&name)
            .publish_subscribe::<[u8]>()
            .max_publishers(1)
            .max_subscribers(1)
            .history_size(0)
            .subscriber_max_buffer_size(1)
            .enable_safe_overflow(true)
            .open_or_create()?;
        Ok(service)
    };
    let (there, back) = (service("there")?, service("back")?);
    let is_ping = role == "ping";
    let (out, inward) = if is_ping { (&there, &back) } else { (&back, &there) };
    let publisher = out.publisher_builder().initial_max_slice_len(bytes).create()?;
    let subscriber = inward.subscriber_builder().create()?;
    let loan = || -> Result<_, Box<dyn std::error::Error>> {
        // SAFETY: every bit pattern is a valid u8, and the bytes are never read.
        Ok(unsafe { publisher.loan_slice_uninit(bytes)?.assume_init() })
    };
    if is_ping {
        // The other process is ready when it answers.
        loop {
            loan()?.send()?;
            std::thread::sleep(std::time::Duration::from_millis(1));
            if subscriber.receive()?.is_some() {
                break;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        while subscriber.receive()?.is_some() {}
        for _ in 0..GROUPS {
            let start = Instant::now();
            for _ in 0..rounds / GROUPS {
                loan()?.send()?;
                while subscriber.receive()?.is_none() {}
            }
            let one_way = start.elapsed().as_nanos() as f64 / (2 * (rounds / GROUPS)) as f64;
            println!("{one_way:.1}");
        }
        return Ok(());
    }
    loop {
        let sample = loan()?;
        while subscriber.receive()?.is_none() {}
        sample.send()?;
    }
}

/// Binds this process to one processor with `taskset`, which every distribution has.
fn pin(processor: usize) {
    let process = std::process::id().to_string();
    let _ = std::process::Command::new("taskset")
        .args(["-pc", &processor.to_string(), &process])
        .stdout(std::process::Stdio::null())
        .status();
}
