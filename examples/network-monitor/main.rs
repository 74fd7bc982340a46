//! Clusters the packets of TCP streams while they arrive, and reports new kinds of packets: the application
//! of *Gang scheduling isn't worth it... yet* (ETH TR 745, section 4). `unisono study monitor` measures the
//! same computation under several ways to share processors.
//!
//! ```sh
//! network-monitor --attack 1              # synthetic traffic with an attack on stream 1
//! network-monitor --attack 1 --write a.pcap && network-monitor a.pcap
//! ```
//! Read `watch` for a team of threads that follows a stream, and `capture` for files.
#![forbid(unsafe_code)]

mod capture;
mod watch;

use anyhow::{Context, bail, ensure};
use clap::{Parser, ValueEnum};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use unisono_laboratory::workload::monitor::generator::{AttackPlan, StreamPackets, StreamRate};
use unisono_laboratory::workload::monitor::packet::TcpPacket;
use watch::{StreamCollector, Update};

/// The paper's number of threads per stream.
const MAX_THREADS: usize = 8;

/// Cluster the packets of TCP streams while they arrive, and say what is new in them
///
/// A stream is all TCP traffic of one service: an address and a port. Each packet becomes a point of 128
/// numbers: its flags, length, sender, the time since the packet before, and the bytes that it carries. A
/// team of threads finds 10 to 20 clusters in each chunk of packets. A cluster of at least 5 % of the packets
/// that is unlike all that the stream had before is an alert.
#[derive(Parser)]
#[command(
    name = "network-monitor",
    after_help = "\
Examples:
  network-monitor                                  made-up traffic: four streams, without an attack
  network-monitor --attack 2 --updates 6           the third stream is attacked half-way
  network-monitor --attack 2 --write try.pcap      the same traffic as a capture
  network-monitor try.pcap --json                  a capture, as tcpdump -w writes it
  unisono fit -- network-monitor try.pcap          with as many threads as there really are processors

Exit codes: 0 done, with alerts or without; 1 the work failed; 2 bad usage or bad input."
)]
struct Args {
    /// A capture in pcap format; without it, traffic is made up
    capture: Option<PathBuf>,
    /// Streams to watch: the services with the most packets
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    streams: u32,
    /// Packets of a stream between two updates of its clusters
    #[arg(long, value_name = "N", default_value_t = 16_000, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    chunk: u32,
    /// Threads of each stream [default: the processors that this process may use, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// When packets are taken: as fast as they can be clustered, or at the times that they have
    #[arg(long, value_enum, default_value_t = Pace::Full)]
    pace: Pace,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Made-up traffic: updates of each stream
    #[arg(long, value_name = "N", default_value_t = 4, conflicts_with = "capture", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    updates: u32,
    /// Made-up traffic: packets a second of each stream
    #[arg(long, value_name = "RATE", default_value_t = 16_000.0, conflicts_with = "capture")]
    rate: f64,
    /// Made-up traffic: how many times faster than that packets come within a burst
    #[arg(long, value_name = "TIMES", default_value_t = 4.0, conflicts_with = "capture")]
    burst: f64,
    /// Made-up traffic: attack this stream (from 0), beginning with the second half of its packets
    #[arg(long, value_name = "STREAM", conflicts_with = "capture")]
    attack: Option<u32>,
    /// Write the made-up traffic to this file as a capture, and end
    #[arg(long, value_name = "FILE", conflicts_with = "capture")]
    write: Option<PathBuf>,
    /// Print one JSON object on a line for each update, and one for the summary
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pace {
    Full,
    Recorded,
}

/// Bad input: exit code 2.
struct BadInput(anyhow::Error);

fn main() -> ExitCode {
    let args = Args::parse();
    let (error, code) = match run(&args) {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(BadInput(error))) => (error, 2),
        Err(error) => (error, 1),
    };
    // a failed write to standard error cannot be reported anywhere
    let _ = writeln!(std::io::stderr(), "network-monitor: {error:#}");
    ExitCode::from(code)
}

fn run(args: &Args) -> anyhow::Result<Result<(), BadInput>> {
    let opened = match &args.capture {
        Some(path) => captured(args, path),
        None => made_up(args),
    };
    let traffic = match opened {
        Ok(traffic) => traffic,
        Err(error) => return Ok(Err(BadInput(error))),
    };
    if let Some(path) = &args.write {
        let count = capture::write(path, traffic.packets.map_while(Result::ok))?;
        let written = if args.json {
            json!({ "written": path.display().to_string(), "packets": count }).to_string()
        } else {
            format!("{count} packets written to {}", path.display())
        };
        return print_line(&written).map(Ok);
    }
    watch(args, traffic).map(Ok)
}

/// Packets in the order of their times, and their services.
struct Traffic {
    services: Vec<SocketAddr>,
    packets: Box<dyn Iterator<Item = anyhow::Result<TcpPacket>>>,
}

fn captured(args: &Args, path: &Path) -> anyhow::Result<Traffic> {
    let (services, others) = capture::open(path)?.busiest(args.streams as usize)?;
    ensure!(!services.is_empty(), "{} has no TCP packets", path.display());
    if others > 0 {
        eprintln!(
            "network-monitor: {others} more services have fewer packets and are left out; watch more with --streams"
        );
    }
    let mut capture = capture::open(path)?;
    let name = path.display().to_string();
    let packets = std::iter::from_fn(move || {
        let next = capture.next_packet().transpose();
        if next.is_none() && capture.is_cut_off() {
            eprintln!("network-monitor: {name} ends in the middle of a packet; that packet is left out");
        }
        next
    });
    Ok(Traffic { services, packets: Box::new(packets) })
}

fn made_up(args: &Args) -> anyhow::Result<Traffic> {
    let rate = StreamRate {
        packets_per_s: args.rate,
        burst: args.burst,
        burst_packets: 2.0 * f64::from(args.chunk),
    };
    rate.check()?;
    let each = u64::from(args.updates) * u64::from(args.chunk);
    let attack = args.attack.map(|stream| AttackPlan { stream, first: each / 2 });
    if let Some(stream) = args.attack.filter(|stream| *stream >= args.streams) {
        bail!("--attack {stream}: there are {} streams, counted from 0", args.streams);
    }
    let mut streams: Vec<_> = (0..args.streams)
        .map(|stream| StreamPackets::new(rate, stream, args.seed, attack).take(each as usize).peekable())
        .collect();
    let services = streams.iter_mut().filter_map(|packets| packets.peek().map(TcpPacket::service)).collect();
    let packets = std::iter::from_fn(move || {
        let heads = streams.iter_mut().enumerate();
        let (_, next) = heads.filter_map(|(i, head)| head.peek().map(|packet| (packet.at, i))).min()?;
        streams[next].next().map(Ok)
    });
    Ok(Traffic { services, packets: Box::new(packets) })
}

/// The totals for the summary.
#[derive(Default)]
struct Totals {
    latencies: Vec<Duration>,
    alerts: usize,
    /// The error, if standard output was closed.
    failed: Option<anyhow::Error>,
}

fn watch(args: &Args, traffic: Traffic) -> anyhow::Result<()> {
    let available = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let threads = args.threads.map_or(available, |threads| threads as usize);
    let (collectors, teams): (Vec<_>, Vec<_>) = traffic
        .services
        .iter()
        .map(|service| watch::stream(*service, args.chunk as usize, threads, args.seed))
        .unzip();
    let totals = Mutex::new(Totals::default());
    let report = |update: Update| {
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.latencies.push(update.latency);
        totals.alerts += update.alerts.len();
        let said = print_line(&if args.json { in_json(&update) } else { in_words(&update, args.chunk) });
        let goes_on = said.is_ok();
        totals.failed = totals.failed.take().or(said.err());
        goes_on
    };
    let mut collectors: BTreeMap<SocketAddr, StreamCollector> =
        traffic.services.iter().copied().zip(collectors).collect();
    let left = thread::scope(|scope| {
        for team in teams {
            scope.spawn(|| team.work(&report));
        }
        let fed = feed(args.pace, traffic.packets, &mut collectors);
        let left: usize = collectors.values().map(StreamCollector::left).sum();
        // the teams end when their collectors are gone
        collectors.clear();
        fed.map(|()| left)
    })?;
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    match totals.failed {
        Some(error) => Err(error),
        None => print_line(&summary(args, threads, traffic.services.len(), &totals, left)),
    }
}

/// Passes each packet to its stream's collector, until the packets end or no team works any more.
fn feed(
    pace: Pace,
    packets: impl Iterator<Item = anyhow::Result<TcpPacket>>,
    collectors: &mut BTreeMap<SocketAddr, StreamCollector>,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut first = None;
    for packet in packets {
        let packet = packet?;
        let Some(collector) = collectors.get_mut(&packet.service()) else { continue };
        let mut arrived = Instant::now();
        if pace == Pace::Recorded {
            let since = packet.at.saturating_sub(*first.get_or_insert(packet.at));
            let due = begin.checked_add(since).context("the capture's times are out of all bounds")?;
            thread::sleep(due.saturating_duration_since(arrived));
            arrived = due;
        }
        if !collector.take(&packet, arrived) {
            return Ok(());
        }
    }
    Ok(())
}

fn print_line(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").context("cannot write to standard output")
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn in_words(update: &Update, chunk: u32) -> String {
    let Update { service, number, clusters, latency, alerts } = update;
    let latency = milliseconds(*latency);
    let mut text =
        format!("{service}  update {number}: {chunk} packets, {clusters} clusters, {latency:.1} ms");
    for alert in alerts {
        let percent = alert.share * 100.0;
        text +=
            &format!("\n{service}  ALERT: {percent:.0} % of the packets are of a new kind: {}", alert.what);
    }
    text
}

fn in_json(update: &Update) -> String {
    let alerts: Vec<_> = update
        .alerts
        .iter()
        .map(|alert| json!({ "share": alert.share, "distance": alert.distance, "what": alert.what }))
        .collect();
    json!({
        "service": update.service.to_string(), "update": update.number, "clusters": update.clusters,
        "latency_ms": milliseconds(update.latency), "alerts": alerts,
    })
    .to_string()
}

fn summary(args: &Args, threads: usize, streams: usize, totals: &Totals, left: usize) -> String {
    let mut latencies = totals.latencies.clone();
    latencies.sort();
    let median = latencies.get(latencies.len() / 2).copied().map(milliseconds);
    let longest = latencies.last().copied().map(milliseconds);
    if args.json {
        return json!({
            "streams": streams, "threads": threads, "updates": latencies.len(), "alerts": totals.alerts,
            "latency_median_ms": median, "latency_max_ms": longest, "packets_left": left,
        })
        .to_string();
    }
    let updates = latencies.len();
    let counts = format!(
        "streams: {streams}, threads of each: {threads}, updates: {updates}, alerts: {}",
        totals.alerts
    );
    match median.zip(longest) {
        Some((median, longest)) => format!("{counts}, latency: {median:.1} ms (longest {longest:.1} ms)"),
        None => format!("{counts}; no stream has {} packets, try a smaller --chunk", args.chunk),
    }
}
