//! `unisono queue apply`: enforces a policy on a device.

use super::interpose::{self, InterposeOptions};
use super::show::Reading;
use super::side::{self, Directions};
use super::unseen::{Passage, PassageWatch, WINDOW};
use super::{cpu, failure, policy_file, units};
use crate::completions;
use crate::exit::Failure;
use crate::flags::one_of;
use crate::live_view::body_rows;
use crate::machine_output;
use crate::output;
use clap_complete::engine::ArgValueCandidates;
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use unisono_enforce::cpu::KeeperSwitch;
use unisono_enforce::journal::LinkSide;
use unisono_enforce::{Backend, BackendKind, BackendName, KernelQueueName, backends, switch};
use unisono_fairqueue::{ClassId, Policy, TrafficDirection};
use unisono_linux::{interrupt, poll};
use unisono_text::counted;

/// Put a policy in force on a device: all of it, or nothing
///
/// The command first saves the state of the device (in /run/unisono/queue). `unisono queue clear`
/// restores it. If a signal ends the command before the policy is in force, the command restores it itself.
/// If the command is killed by SIGKILL, the next `unisono queue apply`, `show`, `metrics` or `clear` restores
/// it. (With --direction both it may be killed between the directions: then apply or clear once more.)
///
/// You may apply a policy while another one is in force. If both have the same backend and a class of the
/// same name and the same parent, the packets that wait in it are kept. With --backend kernel, packets of a
/// class that is gone have 3 s to leave; then they are dropped.
///
/// With --backend kernel the command changes the named device, and the weights of the control groups that
/// [cpu] and [io] name. If a class matches a control group, it also adds a BPF program at the host's end of
/// each container's veth pair. --direction in also adds a device. --backend interposed also adds a device, a
/// network namespace and two processes. --cpu-shares core also starts processes that stop and resume the
/// control groups.
#[derive(clap::Args)]
#[command(after_help = "A policy is TOML:
  rate = \"100mbit\"          # what the link carries: kbit, mbit, gbit
  overhead = 18             # bytes that the link adds to each frame; if it
                            # carries ATM cells, also atm = true
  default = \"rest\"          # the class of all other packets; made if undeclared
  # subscribers = \"a.csv\"   # a class for each row of a table, with the columns
                            # Name, Addresses, Rate, Ceiling, Parent
  [class.video]
  weight = 3                # compared with its siblings; 1 if left out
  ceiling = \"80mbit\"        # never more than this, even if others are idle
  match = [
    { cgroup = \"/system.slice/video.service\" },
    { port = 5004, protocol = \"udp\" },
  ]

  [class.office.mail]       # a class inside another class
  limit = \"64KiB\"           # how much may wait; or packets = 100
  flows = \"fair\"            # the flows in the class take turns;
                            # or fair = \"host\": its hosts
  ecn = \"5ms\"               # mark packets that waited longer (ECN senders)
  match = [{ address = \"10.0.0.0/8\", port = [8000, 8010] }, { priority = 6 }]

  [class.voice]
  match = [{ dscp = \"ef\" }, { mark = 0x10 }, { vlan = 5 }]

  [cpu]                     # processor time of the matched control groups
  video = 3

  [io]                      # the same for disks that have the scheduler BFQ
  video = 3
The first match in the file decides. Every backend knows these matches (--direction in: all but \
cgroup, priority and mark):
  address, port   both of the sender, or both of the receiver
  cgroup          the control group of the process that made the socket;
                  includes all groups below
  priority        SO_PRIORITY
  mark            set by SO_MARK, or by nftables or iptables before the
                  packet reaches the device
  dscp            a number or a name (cs0 to cs7, af11 to af43, ef)
  vlan            the number of the outermost tag
  mac             of the same end as address and port, as in \"02:00:5e:10:00:01\"
unisono-policy(5) has all keys. `fair = \"host\"` needs --backend interposed. `flows` and `ecn` need \
that, or a kernel with fq_codel. Where the kernel has fq_codel, flows of a class take turns in any case, unless the class \
limits what may wait.

With --direction in the policy is for packets that the device receives. They wait in a device \
that this command makes (ifb-uN) before programs get them. They have already crossed the link, so \
only senders that notice drops, as TCP does, slow down. Such packets have no cgroup, priority or \
mark yet, so a policy with such a match is refused.

Examples:
  unisono queue apply policy.toml --check
      check it, print what it guarantees
  unisono queue apply policy.toml --dev eth0
  unisono queue apply policy.toml --dev eth0 --watch
      then say whether the traffic passes it
  unisono queue apply received.toml --dev eth0 --direction in
  unisono queue apply policy.toml --dev eth0 --direction both
  unisono queue show --dev eth0
  unisono queue clear --dev eth0")]
pub(crate) struct Args {
    /// The policy; - is standard input
    #[arg(value_name = "POLICY")]
    policy: PathBuf,
    /// The device whose packets the policy divides into classes
    #[arg(long, value_name = "DEV", required_unless_present = "check", add = ArgValueCandidates::new(completions::devices))]
    dev: Option<String>,
    /// Direction of the policy: the packets that the device sends, or the packets that it receives. Each
    /// direction has its own policy; with `both`, both get this one, or neither
    #[arg(long, value_name = "WHICH", value_parser = side::directions(), default_value = "out")]
    direction: Directions,
    /// Where the policy is enforced [default: where it is now, or else kernel]
    #[arg(long, value_parser = one_of(&BackendName::ALL))]
    backend: Option<BackendName>,
    /// With --backend kernel: which scheduler of the kernel to use [default: the one in force, or else htb]
    #[arg(long, value_parser = one_of(&KernelQueueName::ALL), value_name = "WHICH")]
    kernel_queue: Option<KernelQueueName>,
    /// What enforces the shares of processor time in [cpu]
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    cpu_shares: CpuShares,
    #[command(flatten)]
    turns: cpu::Turns,
    #[command(flatten)]
    way: InterposeOptions,
    /// With --backend interposed: serve the queue in this process, and clear it when the process ends
    #[arg(long)]
    foreground: bool,
    /// Then watch the device for ten seconds, and say whether its traffic passes the policy
    #[arg(long, conflicts_with_all = ["check", "foreground"])]
    watch: bool,
    /// Check the policy and change nothing. With --dev, also check whether this host can enforce it
    #[arg(long)]
    check: bool,
    /// Print one JSON object: backend, device, classes with their guarantees
    #[arg(long)]
    json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default)]
enum CpuShares {
    /// The kernel's controller of control groups (cpu.shares, cpu.weight); needs --backend kernel
    #[default]
    Controller,
    /// Unisono's scheduler, which lets the groups take turns in the background; see `unisono queue cpu
    /// --help`
    Core,
}

impl Args {
    /// Returns the backend that the options select for a direction.
    fn backend_kind(
        &self,
        direction: TrafficDirection,
        has_shares: bool,
    ) -> Result<&'static BackendKind, Failure> {
        let side = self.dev.clone().map(|device| LinkSide { device, direction });
        let chosen = backends::choose(side.as_ref(), self.backend, self.kernel_queue);
        self.check_options(chosen, direction, has_shares)
    }

    /// Refuses options of another backend than the chosen one, because they would be ignored.
    fn check_options(
        &self,
        chosen: Option<&'static BackendKind>,
        direction: TrafficDirection,
        has_shares: bool,
    ) -> Result<&'static BackendKind, Failure> {
        let backend = chosen.map_or(self.backend, |kind| Some(kind.backend));
        let (name, other, wrong) = match backend {
            Some(BackendName::Interposed) => {
                ("interposed", "kernel", self.kernel_queue.map(|_| "--kernel-queue").into_iter().collect())
            }
            _ => {
                let foreground = self.foreground.then_some("--foreground");
                ("kernel", "interposed", self.way.given().into_iter().chain(foreground).collect::<Vec<_>>())
            }
        };
        if direction == TrafficDirection::In {
            let wrong = if chosen.is_none_or(|kind| !kind.directions.contains(&direction)) {
                Some(
                    "--direction in works only with --backend kernel and --kernel-queue htb; leave out other choices",
                )
            } else if has_shares {
                Some(
                    "[cpu] and [io] belong in the policy for packets that the device sends; leave them out with --direction in",
                )
            } else {
                None
            };
            if let Some(what) = wrong {
                return Err(Failure::Usage(what.to_owned()));
            }
        }
        if self.turns.quantum.is_some() && self.cpu_shares != CpuShares::Core {
            let what =
                "--quantum has an effect only with --cpu-shares core; add that, or leave --quantum out";
            return Err(Failure::Usage(what.to_owned()));
        }
        if let Some(kind) = chosen.filter(|_| wrong.is_empty()) {
            return Ok(kind);
        }
        let options = wrong.join(" and ");
        Err(Failure::Usage(format!(
            "{options} can be used only with --backend {other}, and this is --backend {name}; choose --backend {other}, or leave \
             {options} out"
        )))
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (name, policy) = policy_file::read(&args.policy)?;
    let text = &policy.text;
    if args.dev.is_some() {
        failure::warn(&unisono_enforce::cpu::recover_all().map_err(failure::from_error)?);
        if !args.check {
            failure::recover_all()?;
        }
    }
    let has_shares = policy.cpu.is_some() || policy.io.is_some();
    let kinds = args.direction.list().into_iter().map(|direction| {
        let kind = args.backend_kind(direction, has_shares)?;
        Ok((args.dev.clone().map(|device| LinkSide { device, direction }), kind))
    });
    let kinds: Vec<(Option<LinkSide>, &BackendKind)> = kinds.collect::<Result<_, Failure>>()?;
    if let Some(device) = &args.dev {
        let by_core = args.cpu_shares == CpuShares::Core && policy.cpu.is_some();
        if by_core {
            unisono_enforce::cpu::check(&policy).map_err(|error| failure::in_policy(Some(&name), error))?;
        }
        if args.foreground && !args.check {
            let (keeper, mut notes) = (|| cpu::keeper(device, &args.turns), Vec::new());
            let keeping = by_core.then(|| KeeperSwitch::start(device, text, &keeper, &mut notes)).transpose();
            failure::warn(&std::mem::take(&mut notes));
            let keeping = keeping.map_err(|error| failure::in_policy(Some(&name), error))?;
            let served = interpose::foreground(&args.way.options(device), text);
            let undone = keeping.map(|keeping| keeping.roll_back(&mut notes)).transpose();
            failure::warn(&notes);
            undone.map_err(failure::from_error)?;
            return served;
        }
        interrupt::catch()?;
        let backend = |(side, kind): &(Option<LinkSide>, &BackendKind)| -> Option<Box<dyn Backend>> {
            Some(match kind.backend {
                BackendName::Interposed => Box::new(args.way.backend(device)),
                _ => (kind.at)(side.as_ref()?, Box::new(|| interrupt::caught().map(str::to_owned))),
            })
        };
        apply(args, &name, &mut kinds.iter().filter_map(backend).collect::<Vec<_>>(), &policy, by_core)?;
    }
    if !args.json {
        output::answer(&table(&name, &policy, &kinds, args.check, body_rows()))?;
    }
    let sides: Vec<LinkSide> = kinds.iter().filter_map(|(side, _)| side.clone()).collect();
    let passages = if args.watch { watch(&sides)? } else { Vec::new() };
    if args.json {
        for (at, (side, kind)) in kinds.iter().enumerate() {
            let object = json(&policy, kind.name, side.as_ref(), args.check, passages.get(at));
            output::answer(&machine_output::json("unisono-queue-apply-1", &object)?)?;
        }
    } else {
        passages.iter().try_for_each(|passage| output::answer(&passage.in_words()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Watches the traffic of these policies for ten seconds, or until a signal.
fn watch(sides: &[LinkSide]) -> anyhow::Result<Vec<Passage>> {
    let read = || sides.iter().map(Reading::read).collect::<Result<Vec<_>, _>>();
    let begin = read()?;
    let watch = PassageWatch::start(&begin.iter().map(|reading| &reading.live).collect::<Vec<_>>());
    while !watch.is_over() && interrupt::caught().is_none() {
        poll::readable([], Some(WINDOW))?;
    }
    let end = read()?;
    Ok(watch.judge(&end.iter().map(|reading| &reading.live).collect::<Vec<_>>()))
}

/// Applies the policy to the link, in one direction or in both, and to processor time; if one fails, nothing
/// is changed.
fn apply(
    args: &Args,
    name: &str,
    backends: &mut [Box<dyn Backend>],
    policy: &Policy,
    by_core: bool,
) -> anyhow::Result<()> {
    let in_policy = |error| failure::in_policy(Some(name), error);
    if args.check {
        let cpu = policy.cpu.clone().filter(|_| !by_core);
        let mut wanted = policy.clone();
        wanted.cpu = cpu;
        return backends.iter_mut().try_for_each(|backend| {
            let done = backend.check(&wanted);
            failure::warn(backend.notes());
            done.map_err(in_policy)
        });
    }
    let mut notes = Vec::new();
    let done = match backends {
        [outgoing, incoming] => {
            switch::apply_to_both(&mut **outgoing, &mut **incoming, policy, interpose::server, &mut notes)
        }
        one => one.iter_mut().try_for_each(|backend| {
            let device = backend.side().device;
            let keeper = || cpu::keeper(&device, &args.turns);
            let keeper = by_core.then_some(&keeper as &dyn Fn() -> Command);
            switch::apply_with_shares(&mut **backend, policy, keeper, interpose::server, &mut notes)
        }),
    };
    failure::warn(&notes);
    done.map_err(in_policy)
}

fn json(
    policy: &Policy,
    backend: &str,
    side: Option<&LinkSide>,
    check: bool,
    passage: Option<&Passage>,
) -> serde_json::Value {
    let guarantees = policy.guarantees();
    let class = |(id, class): (ClassId, &unisono_fairqueue::Class)| {
        let parent = Some(class.parent).filter(|parent| *parent != ClassId::ROOT);
        json!({
            "name": class.name, "parent": parent.map(|parent| policy.hierarchy.class(parent).name.clone()),
            "weight": class.weight.to_f64(), "guarantee": guarantees[id.index()],
            "ceiling": policy.ceiling(id).bits_per_second(), "default": id == policy.default,
        })
    };
    let classes: Vec<_> = policy.hierarchy.classes().skip(1).map(class).collect();
    json!({
        "backend": backend, "device": side.map(|side| &side.device),
        "direction": side.map(|side| side.direction), "applied": !check,
        "rate": policy.rate.bits_per_second(), "classes": classes, "passage": passage,
    })
}

/// Returns a table of the classes and of the changes to the host, in at most `max_rows` lines.
fn table(
    name: &str,
    policy: &Policy,
    kinds: &[(Option<LinkSide>, &BackendKind)],
    check: bool,
    max_rows: usize,
) -> String {
    let tree = &policy.hierarchy;
    let guarantees = policy.guarantees();
    let mut matchers = vec![Vec::new(); guarantees.len()];
    for rule in &policy.rules {
        matchers[rule.class.index()].push(rule.matcher.to_string());
    }
    let mut table = format!("{:<24} {:>11} {:>11}   packets\n", "class", "guaranteed", "at most");
    // in a policy with more classes than lines, those with children are all shown
    let max_rows = max_rows.saturating_sub(kinds.len() + 2);
    let all = tree.classes().count() - 1;
    let is_shown = |id: ClassId| all <= max_rows || !tree.is_leaf(id);
    let mut room = max_rows.saturating_sub(tree.classes().skip(1).filter(|(id, _)| is_shown(*id)).count());
    let mut left_out = 0;
    for (id, class) in tree.classes().skip(1) {
        if !is_shown(id) {
            if room == 0 {
                left_out += 1;
                continue;
            }
            room -= 1;
        }
        let mut depth = 0;
        let mut at = class.parent;
        while at != ClassId::ROOT {
            depth += 1;
            at = tree.class(at).parent;
        }
        let whose = &mut matchers[id.index()];
        if id == policy.default {
            whose.push("everything else".to_owned());
        }
        let _ = writeln!(
            table,
            "{:<24} {:>11} {:>11}   {}",
            format!("{}{}", "  ".repeat(depth), class.name),
            units::rate(guarantees[id.index()]),
            units::rate(policy.ceiling(id).bits_per_second() as f64),
            whose.join(" ")
        );
    }
    if left_out > 0 {
        let _ = writeln!(table, "({} not shown; --json has all)", counted(left_out, "class"));
    }
    let table: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let end = |(side, kind): &(Option<LinkSide>, &BackendKind)| match (side, kind.name, check) {
        (None, ..) => format!("{name} is sound; nothing was changed"),
        (Some(side), backend, true) => {
            format!("{name} is sound and {backend} can do it on {side}; nothing was changed")
        }
        (Some(side), backend, false) => format!(
            "{side} has this policy now ({backend}); watch it: unisono queue show {0}; take it away: unisono queue \
             clear {0}",
            side.options()
        ),
    };
    let mut ends: Vec<String> = kinds.iter().map(end).collect();
    ends.dedup();
    table + &ends.join("\n")
}
