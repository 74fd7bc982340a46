//! `unisono queue apply`: a policy holds on a device from now on.

use super::interpose::{self, InterposeOptions};
use super::{cpu, failure, side, units};
use crate::exit::Failure;
use crate::output;
use crate::tree::input::text_of;
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use unisono_enforce::cpu::Keeping;
use unisono_enforce::journal::LinkSide;
use unisono_enforce::kernel::{FairQueue, Kernel};
use unisono_enforce::{Place, switch};
use unisono_fairqueue::{ClassId, Policy, TrafficDirection};
use unisono_linux::interrupt;
use unisono_linux::read::HAND_WRITTEN;

/// Have a policy hold on a device: all of it, or nothing
///
/// What the device had before is written down first (/run/unisono/queue) and put back by `unisono queue
/// clear`, by a signal before the policy holds, and by the next `unisono queue` if this one is killed.
/// Another policy may be applied over one that holds: packets of classes that stay are not lost. Nothing but
/// the named device is touched, and the processor weights of control groups that [cpu] names.
#[derive(clap::Args)]
#[command(after_help = "A policy is TOML:
  rate = \"100mbit\"                  # what the link carries: kbit, mbit, gbit
  default = \"rest\"                  # the class of all that no match names; made if not declared

  [class.video]
  weight = 3                        # beside its siblings; 1 if left out
  ceiling = \"80mbit\"                # never more, whoever is idle
  match = [{ cgroup = \"/system.slice/video.service\" }, { port = 5004, protocol = \"udp\" }]

  [class.office.mail]               # a class in a class
  limit = \"64KiB\"                   # how much may wait; or packets = 100
  flows = \"fair\"                    # each flow in the class has its turn
  ecn = \"5ms\"                       # mark what waited longer, if its sender understands
  match = [{ address = \"10.0.0.0/8\", port = [8000, 8010] }, { priority = 6 }]

  [class.voice]
  match = [{ dscp = \"ef\" }, { mark = 0x10 }, { vlan = 5 }]

  [cpu]                             # processor time of the control groups that classes match
  video = 3
The first match in the file decides. Address and port are of the same end of a packet, the \
sender's or the receiver's; a control group means all below it, and is that of the process that \
made the socket; priority is SO_PRIORITY; mark is the one that SO_MARK, nftables or iptables \
(before the device) set; dscp is a number or a name (cs0 to cs7, af11 to af43, ef); vlan is \
the number of the outermost tag. Every place knows all of them. examples/policies has more.
`flows` and `ecn` need --backend interposed, or a kernel with fq_codel: there the kernel's \
classes give each flow its turn anyway, unless a class limits what may wait.

With --direction in the policy is for packets that the device receives: they wait in a device \
that this command makes (ifb-uN), and programs get them after that. They have crossed the link \
already, so only senders that notice drops, as TCP does, slow down. cgroup, priority and mark \
are not known of them yet.

Examples:
  unisono queue apply policy.toml --check                read it, and say what each class is sure of
  unisono queue apply policy.toml --dev eth0
  unisono queue apply received.toml --dev eth0 --direction in
  unisono queue show --dev eth0
  unisono queue clear --dev eth0")]
pub(crate) struct Args {
    /// The policy; - is standard input
    #[arg(value_name = "POLICY")]
    policy: PathBuf,
    /// The device whose packets are to wait in classes
    #[arg(long, value_name = "DEV", required_unless_present = "check")]
    dev: Option<String>,
    /// Whether the policy is for packets that the device sends, or for those that it receives. Each direction
    /// has a policy of its own
    #[arg(long, value_name = "WHICH", value_parser = side::direction(), default_value = "out")]
    direction: TrafficDirection,
    /// Where the policy is enforced [default: where it is now, or else kernel]
    #[arg(long, value_enum)]
    backend: Option<BackendChoice>,
    /// Which of the kernel's schedulers, where the backend is the kernel [default: the one in force, or else
    /// htb]
    #[arg(long, value_enum, value_name = "WHICH")]
    kernel_queue: Option<KernelQueue>,
    /// Who keeps the shares of processor time in [cpu]
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    cpu_shares: CpuShares,
    #[command(flatten)]
    turns: cpu::Turns,
    #[command(flatten)]
    way: InterposeOptions,
    /// With --backend interposed: stay, and end with this program
    #[arg(long)]
    foreground: bool,
    /// Check the policy, with --dev against this host too, and change nothing
    #[arg(long)]
    check: bool,
    /// One JSON object: backend, device, classes with what they are sure of
    #[arg(long)]
    json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default)]
enum BackendChoice {
    /// The kernel's own classes (HTB)
    #[default]
    Kernel,
    /// A queue of our own in front of the device; lends what is left by weight
    Interposed,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default)]
enum KernelQueue {
    /// Its own token buckets
    #[default]
    Htb,
    /// Ours, as a BPF program (Linux 6.16 and later); lends by weight, keeps no ceilings
    Bpf,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default)]
enum CpuShares {
    /// The kernel's controller of control groups (cpu.shares, cpu.weight), which comes with --backend kernel
    #[default]
    Controller,
    /// The scheduler that shares links, by turns in the background; see `unisono queue cpu --help`
    Core,
}

impl Args {
    fn side(&self) -> Option<LinkSide> {
        Some(LinkSide { device: self.dev.clone()?, direction: self.direction })
    }

    /// The place that is asked for; what is not asked for is as in the place in force.
    fn choice(&self) -> (BackendChoice, KernelQueue) {
        let in_force = self.side().and_then(|side| Place::of(&side).ok());
        let backend = self.backend.unwrap_or(match in_force {
            Some(Place::Interposed(_)) if self.kernel_queue.is_none() => BackendChoice::Interposed,
            _ => BackendChoice::Kernel,
        });
        let queue = self.kernel_queue.unwrap_or(match in_force {
            Some(Place::FairQueue(_)) => KernelQueue::Bpf,
            _ => KernelQueue::Htb,
        });
        (backend, queue)
    }
}

impl BackendChoice {
    fn on(self, side: &LinkSide, queue: KernelQueue, way: &InterposeOptions) -> Place {
        let device = side.device.as_str();
        match self {
            Self::Kernel if queue == KernelQueue::Bpf => {
                Place::FairQueue(FairQueue::new(device).until(|| interrupt::caught().map(str::to_owned)))
            }
            Self::Kernel => {
                Place::Kernel(Kernel::at(side.clone()).until(|| interrupt::caught().map(str::to_owned)))
            }
            Self::Interposed => Place::Interposed(way.place(device)),
        }
    }

    fn name(self, queue: KernelQueue) -> &'static str {
        match self {
            Self::Kernel if queue == KernelQueue::Bpf => FairQueue::NAME,
            Self::Kernel => unisono_enforce::kernel::NAME,
            Self::Interposed => unisono_enforce::interposed::NAME,
        }
    }
}

impl Args {
    /// Whether all options are of the place that was chosen: one of another place would be ignored.
    fn fit_the_place(
        &self,
        (backend, queue): (BackendChoice, KernelQueue),
        has_shares: bool,
    ) -> Result<(), Failure> {
        let (place, other, wrong) = match backend {
            BackendChoice::Kernel => {
                let foreground = self.foreground.then_some("--foreground");
                ("kernel", "interposed", self.way.given().into_iter().chain(foreground).collect::<Vec<_>>())
            }
            BackendChoice::Interposed => {
                ("interposed", "kernel", self.kernel_queue.map(|_| "--kernel-queue").into_iter().collect())
            }
        };
        if self.direction == TrafficDirection::In {
            let here = backend == BackendChoice::Kernel && queue == KernelQueue::Htb;
            let wrong = if !here {
                Some(
                    "--direction in is for --backend kernel with --kernel-queue htb only; leave the others out",
                )
            } else if has_shares {
                Some(
                    "[cpu] belongs to the policy of packets that the device sends; leave it out with --direction in",
                )
            } else {
                None
            };
            if let Some(what) = wrong {
                return Err(Failure::Usage(what.to_owned()));
            }
        }
        if self.turns.quantum.is_some() && self.cpu_shares != CpuShares::Core {
            let what = "--quantum is the length of a turn when the core keeps the shares of processor time; say --cpu-shares \
                        core, or leave --quantum out";
            return Err(Failure::Usage(what.to_owned()));
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let options = wrong.join(" and ");
        Err(Failure::Usage(format!(
            "{options} can be had with --backend {other} only, and this is --backend {place}; say --backend {other}, or leave \
             {options} out"
        )))
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (name, text) = text_of(&args.policy, HAND_WRITTEN)?;
    let policy = Policy::parse(&text).map_err(|error| Failure::Usage(format!("{name}:{error}")))?;
    if args.dev.is_some() {
        failure::warn(&unisono_enforce::cpu::settle().map_err(failure::of)?);
        if !args.check {
            failure::settle()?;
        }
    }
    let (backend, queue) = args.choice();
    args.fit_the_place((backend, queue), policy.cpu.is_some())?;
    if let Some(side) = &args.side() {
        let device = &side.device;
        let by_core = args.cpu_shares == CpuShares::Core && policy.cpu.is_some();
        if by_core {
            unisono_enforce::cpu::check(&policy).map_err(|error| failure::in_policy(Some(&name), error))?;
        }
        if backend == BackendChoice::Interposed && args.foreground && !args.check {
            let (keeper, mut notes) = (|| cpu::keeper(device, &args.turns), Vec::new());
            let keeping = by_core.then(|| Keeping::begin(device, &text, &keeper, &mut notes)).transpose();
            failure::warn(&std::mem::take(&mut notes));
            let keeping = keeping.map_err(|error| failure::in_policy(Some(&name), error))?;
            let served = interpose::foreground(&args.way.options(device), &text);
            let undone = keeping.map(|keeping| keeping.undo(&mut notes)).transpose();
            failure::warn(&notes);
            undone.map_err(failure::of)?;
            return served;
        }
        interrupt::catch()?;
        let place = backend.on(side, queue, &args.way);
        apply(args, &name, place, &policy, by_core)?;
    }
    let (side, place) = (args.side(), backend.name(queue));
    if args.json {
        output::answer(&json(&policy, place, side.as_ref(), args.check))?;
    } else {
        output::answer(&words(&name, &policy, place, side.as_ref(), args.check))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The link and the shares of processor time: both, or neither.
fn apply(args: &Args, name: &str, mut place: Place, policy: &Policy, by_core: bool) -> anyhow::Result<()> {
    let in_policy = |error| failure::in_policy(Some(name), error);
    if args.check {
        let cpu = policy.cpu.clone().filter(|_| !by_core);
        let done = place.check(&Policy { cpu, ..policy.clone() });
        failure::warn(place.notes());
        return done.map_err(in_policy);
    }
    let device = place.device().to_owned();
    let keeper = || cpu::keeper(&device, &args.turns);
    let keeper = by_core.then_some(&keeper as &dyn Fn() -> Command);
    let mut notes = Vec::new();
    let done = switch::apply_with_shares(&mut place, policy, keeper, interpose::server, &mut notes);
    failure::warn(&notes);
    done.map_err(in_policy)
}

fn json(policy: &Policy, backend: &str, side: Option<&LinkSide>, check: bool) -> String {
    let class = |(id, class): (ClassId, &unisono_fairqueue::Class)| {
        let parent = Some(class.parent).filter(|parent| *parent != ClassId::ROOT);
        json!({
            "name": class.name,
            "parent": parent.map(|parent| policy.hierarchy.class(parent).name.clone()),
            "weight": class.weight.to_f64(),
            "guarantee": policy.guarantee(id),
            "ceiling": policy.ceiling(id).bits_per_second(),
            "default": id == policy.default,
        })
    };
    let classes: Vec<_> = policy.hierarchy.classes().skip(1).map(class).collect();
    json!({
        "backend": backend,
        "device": side.map(|side| &side.device),
        "direction": side.map(|side| side.direction),
        "applied": !check,
        "rate": policy.rate.bits_per_second(),
        "classes": classes,
    })
    .to_string()
}

fn words(name: &str, policy: &Policy, backend: &str, side: Option<&LinkSide>, check: bool) -> String {
    let tree = &policy.hierarchy;
    let mut table = format!("{:<24} {:>11} {:>11}   whose\n", "class", "sure of", "at most");
    for (id, class) in tree.classes().skip(1) {
        let mut depth = 0;
        let mut at = class.parent;
        while at != ClassId::ROOT {
            depth += 1;
            at = tree.class(at).parent;
        }
        let rules = policy.rules.iter().filter(|rule| rule.class == id);
        let mut whose: Vec<String> = rules.map(|rule| rule.matcher.to_string()).collect();
        if id == policy.default {
            whose.push("all that no match names".to_owned());
        }
        let _ = writeln!(
            table,
            "{:<24} {:>11} {:>11}   {}",
            format!("{}{}", "  ".repeat(depth), class.name),
            units::rate(policy.guarantee(id)),
            units::rate(policy.ceiling(id).bits_per_second() as f64),
            whose.join(" ")
        );
    }
    let table: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let end = match (side, check) {
        (None, _) => format!("{name} is sound; nothing was changed"),
        (Some(side), true) => {
            format!("{name} is sound and {backend} can do it on {side}; nothing was changed")
        }
        (Some(side), false) => format!(
            "{side} has this policy now ({backend}); watch it: unisono queue show {0}; take it away: unisono queue \
             clear {0}",
            side.options()
        ),
    };
    table + &end
}
