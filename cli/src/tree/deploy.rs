//! `unisono tree deploy`: builds the network from namespaces of this host, and runs barriers in its switches.

use super::input::NetworkSource;
use crate::columns::hanging_lines;
use crate::exit::Failure;
use crate::live_view::table_width;
use crate::machine_output;
use crate::output;
use serde_json::json;
use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;
use unisono_btin::{BarrierGroup, ReductionOperator, TurnPoint};
use unisono_fabric::leftovers::Note;
use unisono_fabric::served::MAX_REGISTERS;
use unisono_fabric::{BarrierJob, Deployment, EnduranceResult, Error, TRACED_BARRIERS};
use unisono_measure::units;
use unisono_text::counted;

/// Run barriers for real: switches are network namespaces of this host
///
/// Each switch and each node becomes a network namespace, and each cable a pair of devices. A BPF program at
/// every port of a switch combines arrivals and replicates releases. Each member is a process with a raw
/// socket in its node. The members set up the registers by messages through the network. All groups of the
/// file run barriers at once until the time is over or Ctrl-C. Then everything is removed.
///
/// Devices and BPF programs exist only in the namespaces that this command makes. Outside of them, the
/// command writes notes below /run/unisono/tree and, with --names, names below /run/netns. For a fraction of
/// a second at the start and at the end it sets /sys/kernel/rcu_expedited. After kill -9 the kernel removes
/// the namespaces and the devices in them. `unisono tree undeploy` removes the notes and names, and restores
/// the setting.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono tree generate | sudo unisono tree deploy -
      75 switches, 256 nodes, 64 members; barriers for ten seconds
  sudo unisono tree deploy net.json --turn switch --lose 1000 --json
      the root switch turns messages around; one frame of a thousand is lost on
      purpose, and sent again
  sudo unisono tree deploy net.json --names --for 600s &
  ip netns exec unisono-$!-s0 tcpdump -i p3 -xx ether proto 0x88b5
      watch the barriers of switch 0, port 3
  sudo unisono tree deploy net.json --serve --user ann --names --for 1h
      barriers of ann's MPI programs on these hosts, under 'unisono mpi --tree
      net.json'

When a node's process ends, the registers show which node: each register names the port that it waits for. The \
kernel reports a pulled cable at once. Barriers go on over other links where there are any; otherwise they wait \
until the cable is back or --patience is over.

Needs root, clang, libbpf-dev and a kernel with BPF and veth (5.12 or later): unisono doctor.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) source: NetworkSource,
    /// Time for which barriers run
    #[arg(long = "for", value_name = "DURATION", value_parser = units::duration, default_value = "10s")]
    pub(super) time: Duration,
    /// Where messages turn around: at the root node as in the paper, or at the root switch
    #[arg(long, value_enum, default_value_t = TurnAt::Node, value_name = "WHERE")]
    turn: TurnAt,
    /// Lose one barrier frame in N on purpose, at every switch
    #[arg(long, value_name = "N")]
    pub(super) lose: Option<u32>,
    /// If a barrier takes longer than this, name the nodes and links that may have failed, and avoid a link
    /// that loses frames
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2s")]
    patience: Duration,
    /// Name the namespaces for `ip netns exec`: unisono-PID-s0 is switch 0, unisono-PID-n0 node 0
    #[arg(long)]
    pub(super) names: bool,
    /// Run no barriers, but let processes on the hosts use the switches, such as MPI programs under 'unisono
    /// mpi --tree NETWORK'
    ///
    /// A helper at each host (each node's namespace) sets up registers for processes of its host and gives
    /// them open sockets; groups of the file are ignored. The helpers serve root and the users of --user. A
    /// user whom they serve can send any frame into this network, but receives only frames of barriers in
    /// which the user takes part.
    #[arg(long, conflicts_with_all = ["turn", "patience"])]
    pub(super) serve: bool,
    /// With --serve: a user whose processes may use the switches; repeatable [default: only root]
    #[arg(long = "user", value_name = "NAME", requires = "serve")]
    pub(super) users: Vec<String>,
    /// With --serve: the number of registers of each switch, 1 to 256. Groups for which none is left have
    /// their barriers in software
    #[arg(long, value_name = "N", requires = "serve", default_value_t = MAX_REGISTERS,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_REGISTERS)))]
    pub(super) registers: u16,
    /// Print what happened as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// The definition of this command's time; `tree bench` has another definition.
const MEASURED: &str = "time of a barrier: the mean of all, in rounds of 200; each round's start, when members \
                        wait until all of them have begun, is in it (tree bench leaves it out)";

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum TurnAt {
    /// At the root node
    Node,
    /// At the root switch
    Switch,
}

impl From<TurnAt> for TurnPoint {
    fn from(turn: TurnAt) -> Self {
        match turn {
            TurnAt::Node => Self::AtNode,
            TurnAt::Switch => Self::AtSwitch,
        }
    }
}

pub(super) fn failure(error: Error) -> anyhow::Error {
    match error {
        Error::Host(text) => Failure::Host(text).into(),
        Error::Input(text) => Failure::Usage(text).into(),
        error => error.into(),
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.source.read()?;
    input.group()?; // fails if the file lacks the group that is asked for; `groups` does not check that
    let groups = input.groups()?;
    let _note = super::prepare("tree deploy")?;
    let job = |group: &BarrierGroup| BarrierJob {
        group: group.clone(),
        turn: args.turn.into(),
        operation: ReductionOperator::Or,
    };
    let jobs: Vec<BarrierJob> = groups.iter().map(job).collect();
    let network = &input.topology.network;
    let events = RefCell::new(Vec::new());
    let mut deployment = Deployment::new(network, &jobs).map_err(failure)?;
    deployment.listen(|text| {
        eprintln!("unisono: {text}");
        events.borrow_mut().push(text.to_owned());
    });
    if args.names {
        deployment.fabric().publish(&Note::prefix()).map_err(failure)?;
    }
    let registers = deployment.set_up().map_err(failure)?;
    let (times, hook) = (deployment.times(), deployment.hook().to_string());
    let up = times.network + times.program + times.nodes + times.registers;
    eprintln!(
        "unisono: {}, {}, {} up in {:.2} s; {} set up by the members; programs by {hook}",
        counted(network.switch_count(), "switch"),
        counted(network.nodes().len(), "node"),
        counted(network.links().len(), "link"),
        up.as_secs_f64(),
        counted(registers, "register"),
    );
    deployment.program().lose_one_in(args.lose.unwrap_or(0)).map_err(failure)?;
    let EnduranceResult { barriers, took, repeated, failed } =
        deployment.run_for(args.time, args.patience).map_err(failure)?;
    if let Some(what) = &failed {
        eprintln!("unisono: {what}");
    }
    let counters = deployment.program().counters().map_err(failure)?;
    drop(deployment);
    let micros = if barriers == 0 { 0.0 } else { took.as_nanos() as f64 / 1e3 / barriers as f64 };
    if args.json {
        let counters: serde_json::Map<String, serde_json::Value> =
            counters.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let answer = json!({
            "switches": network.switch_count(), "nodes": network.nodes().len(), "links": network.links().len(),
            "groups": jobs.len(), "members": jobs.iter().map(|job| job.group.members().len()).collect::<Vec<_>>(),
            "registers": registers, "hook": hook,
            "up_s": {"network": times.network.as_secs_f64(), "program": times.program.as_secs_f64(),
                "nodes": times.nodes.as_secs_f64(), "registers": times.registers.as_secs_f64(),
                "all": up.as_secs_f64()},
            "barriers": barriers, "us_per_barrier": micros, "repeated": repeated,
            "checked": TRACED_BARRIERS, "events": events.take(), "failed": failed, "counters": counters,
        });
        output::answer(&machine_output::json("unisono-tree-deploy-1", &answer)?)?;
    } else {
        let each = if jobs.len() == 1 { "" } else { " of all groups at once" };
        // the first barriers are the traced ones: if there are none, nothing was checked
        let checked = if barriers == 0 {
            String::new()
        } else {
            format!("; in the first {TRACED_BARRIERS} no member left before all had arrived")
        };
        let text = format!(
            "{}{each}, {micros:.1} us each; {}{checked}\n{MEASURED}",
            counted(barriers, "barrier"),
            counted(repeated, "timeout")
        );
        output::answer(&hanging_lines(&text, table_width()))?;
        for (name, value) in counters.iter().filter(|(_, value)| *value > 0) {
            output::answer(&format!("  {value:>8} {name}"))?;
        }
    }
    Ok(ExitCode::from(u8::from(failed.is_some())))
}
