//! `unisono events bench`: measures the cost of an event through a broker on this host.

use super::flags::DirectChoice;
use crate::exit::Failure;
use crate::flags::one_of;
use crate::machine_output;
use crate::output;
use clap::ValueEnum;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use unisono_broker::{TlsService, TrialError, TrialSpec, trial};
use unisono_events_client::{BrokerAddress, CertifiedFiles, ChannelWait, TlsAddress};
use unisono_measure::units;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TransportChoice {
    /// shared memory
    Shared,
    /// a Unix socket
    Unix,
    /// TCP on the loopback device
    Tcp,
    /// the same, with TLS
    Tls,
}

/// Measure the cost of an event here
///
/// A broker, a supplier and a consumer, each in a thread. The first half of the time measures one-way times,
/// one event at a time. The second half measures throughput, in batches.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events bench
  unisono events bench --transport tcp --batch 1
      each event leaves alone
  unisono events bench --transport tcp --size 1048576 --seconds 4 --json
  unisono events bench --transport shared --direct no
  unisono events bench --transport tls --certificate broker.crt \\
          --key broker.key --authority ca.pem")]
pub(crate) struct Args {
    /// What carries the events
    #[arg(long, value_name = "HOW", value_enum, default_value = "unix")]
    transport: TransportChoice,
    /// With shared memory: whether events go from the supplier to the consumer without the broker
    #[arg(long, value_name = "CHOICE", value_enum, default_value = "yes")]
    direct: DirectChoice,
    /// With TLS: the broker's certificate (PEM), for `localhost`
    #[arg(long, value_name = "FILE", requires = "key", required_if_eq("transport", "tls"))]
    certificate: Option<PathBuf>,
    /// The key (PEM) of the certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// With TLS: the certificate (PEM) of the authority that signed the broker's certificate
    #[arg(long, value_name = "FILE", required_if_eq("transport", "tls"))]
    authority: Option<PathBuf>,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// How the threads wait
    #[arg(long, value_name = "HOW", value_parser = one_of(&ChannelWait::ALL), default_value = "sleep")]
    wait: ChannelWait,
    /// Measured seconds
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Time from the publication of an event to its deadline
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "10ms")]
    deadline: Duration,
    /// Events that leave together when throughput is measured; default: as many as fit the library's buffer
    #[arg(long, value_name = "EVENTS")]
    batch: Option<NonZeroUsize>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let time = Duration::try_from_secs_f64(args.seconds).ok().filter(|time| !time.is_zero());
    let time = time.ok_or_else(|| Failure::Usage("--seconds is a positive number, such as 2".to_owned()))?;
    let path = std::env::temp_dir().join(format!("unisono-bench-{}", std::process::id()));
    let own = CertifiedFiles::new(args.certificate.as_deref(), args.key.as_deref())
        .map_err(|error| Failure::Usage(error.to_string()))?;
    if args.transport != TransportChoice::Tls && (own.is_some() || args.authority.is_some()) {
        let what = "--certificate, --key and --authority are for --transport tls";
        return Err(Failure::Usage(what.to_owned()).into());
    }
    let tls = own.map(|own| TlsService { own, client_authority: None, revocations: None });
    let loopback = ([127, 0, 0, 1], 0).into();
    let address = match args.transport {
        TransportChoice::Shared => BrokerAddress::Shared(path),
        TransportChoice::Unix => BrokerAddress::Unix(path),
        TransportChoice::Tcp => BrokerAddress::Tcp(loopback),
        TransportChoice::Tls => BrokerAddress::Tls(TlsAddress {
            host: "localhost".to_owned(),
            address: loopback,
            authority: args.authority.clone(),
            own: None,
            token: None,
        }),
    };
    let (direct, size, deadline) = (args.direct == DirectChoice::Yes, args.size, args.deadline);
    let wait = args.wait;
    let batch = args.batch.map(NonZeroUsize::get);
    let spec = TrialSpec { address, tls, direct, size, wait, time, deadline, batch };
    let result = trial(&spec).map_err(|error| match error {
        TrialError::TooSmall(_) | TrialError::TooLarge(_) => Failure::Usage(error.to_string()).into(),
        other => anyhow::Error::from(other),
    })?;
    let text = match args.json {
        true => machine_output::json("unisono-events-bench-1", &result)?,
        false => format!(
            "one way: median {:.1} us, p99 {:.1} us, longest {:.1} us ({} events, {} late)\nthroughput: {:.0} events/s",
            result.one_way_us.median,
            result.one_way_us.p99,
            result.one_way_us.max,
            result.one_way_us.n,
            result.deadline_misses,
            result.events_per_s
        ),
    };
    output::answer(&text)?;
    Ok(ExitCode::SUCCESS)
}
