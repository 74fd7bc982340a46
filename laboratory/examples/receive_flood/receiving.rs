//! Two network namespaces with a cable between them, and the ways in which its far end receives.

use crate::{NiceValues, RECEIVER};
use anyhow::{Context as _, bail, ensure};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use unisono_fairqueue::{ClassId, IpProtocol, Policy};
use unisono_linux::affinity::{CpuSet, Tid};
use unisono_linux::bpf::assembler::{
    AluOperation, Assembler, BpfRegister, JumpWhen, Label, LoadSize, R0, R1, R2, R3, R4, R5,
};
use unisono_linux::bpf::{ProcessorMap, Redirector};
use unisono_linux::ethtool::{self, Offload, On};
use unisono_linux::netlink::link::{self, Device, Index, LinkState};
use unisono_linux::netlink::{NetlinkSocket, address, capture};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::pinned::PinnedThread;
use unisono_linux::scheduling::SchedulingPolicy;
use unisono_linux::{process_list, schedstat};

pub(crate) const VIDEO_PORT: u16 = 7000;
pub(crate) const REST_PORT: u16 = 7001;
pub(crate) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 1);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 2);
/// The rate is more than the cable carries: only the order of receiving is tried here.
const POLICY: &str = "\
rate = \"100gbit\"
default = \"rest\"
[class.video]
weight = 3
match = [{ port = 7000 }, { protocol = \"icmp\" }]
[class.rest]
";
const CABLE: &str = "cable";
const INDEX: Index = Index(2);
/// Frames that wait for the thread of a class; as many as a device's own ring has by default.
const QUEUE: u32 = 256;
const XDP_PASS: i32 = 2;
/// `bpf_redirect_map`.
const REDIRECT: i32 = 51;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceivingWay {
    Stock,
    Threaded,
    Classes,
}

impl ReceivingWay {
    pub(crate) const ALL: [Self; 3] = [Self::Stock, Self::Threaded, Self::Classes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Threaded => "threaded",
            Self::Classes => "classes",
        }
    }
}

/// The threads of a class; their program and their maps end with the stage.
struct ClassThread {
    _map: ProcessorMap,
    thread: PinnedThread,
}

pub(crate) struct Stage {
    near: NetworkNamespace,
    far: NetworkNamespace,
    /// The threads of video and rest.
    classes: Option<[ClassThread; 2]>,
    /// How the program of class rest is scheduled.
    pub(crate) rest_program: SchedulingPolicy,
    _program: Option<Redirector>,
}

impl Stage {
    /// Makes the namespaces. Afterwards, the calling thread is in the senders' namespace.
    pub(crate) fn set(way: ReceivingWay, nice: NiceValues) -> anyhow::Result<Self> {
        let far = NetworkNamespace::create()?;
        let near = NetworkNamespace::create()?;
        let device = |namespace, last| Device {
            namespace,
            name: CABLE.to_owned(),
            index: Some(INDEX),
            address: [2, 0, 0, 97, 0, last],
        };
        let pair = link::veth(&device(near.as_fd(), 1), &device(far.as_fd(), 2));
        let up = |own| {
            [
                link::resolving(INDEX),
                address::add(INDEX, own, 24),
                link::set(INDEX, LinkState::Up),
                link::set(Index::LOOPBACK, LinkState::Up),
            ]
        };
        let mut here = NetlinkSocket::open()?;
        here.run(&[pair])?;
        here.run(&up(NEAR))?;
        let mut stage = Self { near, far, classes: None, rest_program: nice.rest, _program: None };
        // finished frames, as they come from a network: the cable's end passes them through its NAPI, and a
        // frame that XDP redirects keeps no note that its checksum is still missing
        ethtool::set(INDEX, Offload::Segmentation, On::No)?;
        ethtool::set(INDEX, Offload::SendChecksums, On::No)?;
        stage.far.enter()?;
        NetlinkSocket::open()?.run(&up(FAR))?;
        // merging makes the cable's end receive by NAPI, as a network card does
        ethtool::set(INDEX, Offload::Merging, On::Yes)?;
        match way {
            ReceivingWay::Stock => steer()?,
            ReceivingWay::Threaded => {
                thread(nice)?;
                stage.rest_program = nice.half_of_rest;
            }
            ReceivingWay::Classes => stage.divide(nice)?,
        }
        stage.near.enter()?;
        Ok(stage)
    }

    /// Calls `act` in the receiver's namespace.
    pub(crate) fn at_the_receiver<T>(&self, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.far.enter()?;
        let done = act();
        self.near.enter()?;
        done
    }

    /// The nanoseconds that receiving took for video and rest. `None`: the kernel does not tell them apart.
    pub(crate) fn receiving_ns(&self) -> anyhow::Result<Option<[u64; 2]>> {
        let Some([video, rest]) = &self.classes else { return Ok(None) };
        let ran = |class: &ClassThread| class.thread.read(schedstat::read).map(|time| time.ran_ns);
        Ok(Some([ran(video)?, ran(rest)?]))
    }

    /// Divides receiving among the threads of the classes.
    fn divide(&mut self, nice: NiceValues) -> anyhow::Result<()> {
        let policy = Policy::parse(POLICY)?;
        let processor = u32::try_from(RECEIVER)?;
        let class_thread = |scheduling| -> anyhow::Result<ClassThread> {
            let map = ProcessorMap::new("unisono_receive", processor + 1)?;
            map.start(processor, QUEUE, None)?;
            let thread = map.thread(processor).context("no thread of the map")?;
            thread.set_class(scheduling)?;
            Ok(ClassThread { _map: map, thread })
        };
        let threads = [class_thread(nice.video)?, class_thread(nice.half_of_rest)?];
        let video = policy.hierarchy.find("video").context("the policy has it")?;
        let map_of = |class: ClassId| &threads[usize::from(class != video)]._map;
        let program = Redirector::load("unisono_receive", &redirecting(&policy, map_of, processor)?)?;
        NetlinkSocket::open()?.run(&[capture::redirect(INDEX, program.as_fd())])?;
        (self.classes, self._program) = (Some(threads), Some(program));
        self.rest_program = nice.half_of_rest;
        Ok(())
    }
}

/// Writes an XDP program that passes each frame of IPv4 to its class's thread. Other frames take the usual
/// way.
fn redirecting<'a>(
    policy: &Policy,
    map_of: impl Fn(ClassId) -> &'a ProcessorMap,
    processor: u32,
) -> anyhow::Result<Vec<u64>> {
    const PROTOCOL: BpfRegister = BpfRegister(6);
    const PORT: BpfRegister = BpfRegister(7);
    /// Ethernet's header, IP's without options, and the first eight bytes behind it.
    const HEADERS: i32 = 14 + 20 + 8;
    let mut code = Assembler::default();
    let (usual, default) = (code.label(), code.label());
    // struct xdp_md: the frame's first byte, and the byte after its last one
    code.load(LoadSize::Four, R2, R1, 0).load(LoadSize::Four, R3, R1, 4);
    code.copy(R4, R2).number(AluOperation::Add, R4, HEADERS);
    code.jump_if_registers(JumpWhen::Above, R4, R3, usual);
    code.load(LoadSize::Two, R5, R2, 12).jump_if(JumpWhen::Not, R5, 0x0800_u16.to_be().into(), usual);
    code.load(LoadSize::One, R5, R2, 14).jump_if(JumpWhen::Not, R5, 0x45, default);
    code.load(LoadSize::One, PROTOCOL, R2, 23);
    code.load(LoadSize::Two, PORT, R2, 36).swap_from_network(PORT);
    let redirect = |code: &mut Assembler, class| {
        code.map(R1, map_of(class).as_fd()).set(R2, processor.cast_signed()).set(R3, XDP_PASS);
        code.call(REDIRECT).exit();
    };
    for rule in &policy.rules {
        let (next, matched) = (code.label(), code.label());
        if let Some(IpProtocol(number)) = rule.matcher.protocol {
            code.jump_if(JumpWhen::Not, PROTOCOL, number.into(), next);
        }
        if let Some(ports) = &rule.matcher.ports {
            has_ports(&mut code, PROTOCOL, next);
            code.jump_if(JumpWhen::Below, PORT, (*ports.start()).into(), next);
            code.jump_if(JumpWhen::Above, PORT, (*ports.end()).into(), next);
        }
        code.here(matched);
        redirect(&mut code, rule.class);
        code.here(next);
    }
    code.here(default);
    redirect(&mut code, policy.default);
    code.here(usual).set(R0, XDP_PASS).exit();
    code.finish().context("the program is too long")
}

fn has_ports(code: &mut Assembler, protocol: BpfRegister, otherwise: Label) {
    let found = code.label();
    for IpProtocol(number) in IpProtocol::WITH_PORTS {
        code.jump_if(JumpWhen::Equal, protocol, number.into(), found);
    }
    code.jump(otherwise).here(found);
}

/// Runs a line of shell with the files of the receiver's devices in /sys.
fn in_sysfs(line: &str) -> anyhow::Result<()> {
    let script = format!("mount -t sysfs sysfs /sys && cd /sys/class/net/{CABLE} && {line}");
    let done = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output();
    let done = done.context("cannot run unshare(1); install util-linux")?;
    ensure!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(())
}

/// Sets receive packet steering to the receiver's processor.
fn steer() -> anyhow::Result<()> {
    in_sysfs(&format!("echo {:x} > queues/rx-0/rps_cpus", 1 << RECEIVER))
}

/// Lets a kernel thread receive, on the receiver's processor and with rest's nice value.
fn thread(nice: NiceValues) -> anyhow::Result<()> {
    let threads = || -> Vec<i32> {
        let is_napi = |number: &i32| {
            let comm = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
            comm.starts_with(&format!("napi/{CABLE}-"))
        };
        process_list::numbers().into_iter().filter(is_napi).collect()
    };
    let before = threads();
    in_sysfs("echo 1 > threaded")?;
    let made: Vec<i32> = threads().into_iter().filter(|number| !before.contains(number)).collect();
    let [number] = made[..] else { bail!("{} threads receive from the cable instead of one", made.len()) };
    let thread = PinnedThread::now(Tid(number))?;
    thread.restrict(&CpuSet::single(RECEIVER))?;
    Ok(thread.set_class(nice.half_of_rest)?)
}
