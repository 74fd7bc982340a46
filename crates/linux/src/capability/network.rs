//! Namespaces, queueing disciplines, devices, and ways around the network stack.
//!
//! All trials run in a forked process with a network namespace of its own, and their effects vanish with it.
//! A kind that is an unloaded module is reported as such and not tried, because a trial would load the module
//! into the running kernel and leave it there.
//!
//! Reference: namespaces(7), network_namespaces(7), tc(8), packet(7), Documentation/networking/af_xdp.rst,
//! tuntap.rst.

use super::scratch::{errno, in_child, words};
use super::{ProbedHost, TrialFinding, netlink};
use crate::interface;
use crate::process::is_root;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::os::fd::AsFd;

/// Kinds for `tc qdisc add`.
const QDISCS: [&str; 13] = [
    "htb", "tbf", "hfsc", "fq", "fq_codel", "sfq", "pfifo", "prio", "netem", "etf", "drr", "ingress",
    "clsact",
];
const LINKS: [&str; 5] = ["veth", "dummy", "ifb", "bridge", "macvlan"];

/// Makes a user namespace, which vanishes with its process.
pub(super) fn user_namespaces(host: &ProbedHost) -> TrialFinding {
    // SAFETY: unshare is async-signal-safe, and the body makes no other call.
    let tried = unsafe { in_child::<1>(|answer| answer[0] = unshare(UnshareFlags::NEWUSER)) };
    let errno = match tried {
        Ok([errno]) => errno,
        Err(error) => return TrialFinding::unknown(format!("it could not be tried: {error}")),
    };
    if errno == 0 {
        return TrialFinding::found("an unprivileged process can make one");
    }
    let setting = |path: &str| host.read(path).unwrap_or_default();
    if setting("proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return TrialFinding::missing(
            "kernel.unprivileged_userns_clone is 0",
            "sysctl kernel.unprivileged_userns_clone=1",
        );
    }
    if setting("proc/sys/user/max_user_namespaces") == "0" {
        return TrialFinding::missing(
            "user.max_user_namespaces is 0",
            "sysctl user.max_user_namespaces=10000",
        );
    }
    let reason = format!("unshare: {}", words(errno));
    match errno {
        libc::EINVAL | libc::ENOSYS => TrialFinding::missing(reason, "use a kernel with CONFIG_USER_NS"),
        libc::EPERM if is_chroot(host) => TrialFinding::missing(
            format!("{reason}: the root of this process is a chroot, where the kernel refuses them"),
            "run it outside the chroot, or enter its directory by a program that makes a mount namespace (bwrap, \
             systemd-nspawn, pivot_root)",
        ),
        _ => TrialFinding::missing(reason, "run it outside the container or sandbox that forbids them"),
    }
}

/// Returns whether this process has another root directory than its mount namespace. The root of a namespace
/// is a mount point, and of the mounts only those below the root are listed, so a chroot to an ordinary
/// directory lacks `/` in the list. A chroot to a mount point has it; there the root of process 1 differs, if
/// it has the same namespace and this process may look at it.
///
/// Reference: user_namespaces(7), EPERM; proc_pid_mountinfo(5).
fn is_chroot(host: &ProbedHost) -> bool {
    let mounts = host.read("proc/self/mountinfo");
    let is_listed =
        mounts.is_none_or(|mounts| mounts.lines().any(|line| line.split(' ').nth(4) == Some("/")));
    let identity = |path| rustix::fs::stat(host.path(path)).ok().map(|root| (root.st_dev, root.st_ino));
    let pair = |first, own| identity(first).zip(identity(own));
    let has_one_namespace =
        pair("proc/1/ns/mnt", "proc/self/ns/mnt").is_some_and(|(first, own)| first == own);
    let differs = pair("proc/1/root/", "/").is_some_and(|(first, own)| first != own);
    !is_listed || (has_one_namespace && differs)
}

/// Makes a network namespace, as root or inside a user namespace.
pub(super) fn network_namespaces(_: &ProbedHost) -> TrialFinding {
    // SAFETY: unshare is async-signal-safe, and the body makes no other call.
    match unsafe { in_child::<1>(|answer| answer[0] = unshare(own_network())) } {
        Ok([0]) if is_root() => TrialFinding::found("can be made"),
        Ok([0]) => TrialFinding::found("can be made inside a user namespace"),
        Ok([errno]) => TrialFinding::missing(
            format!("unshare: {}", words(errno)),
            "run as root: unisono tree deploy needs them",
        ),
        Err(error) => TrialFinding::unknown(format!("it could not be tried: {error}")),
    }
}

pub(super) fn qdiscs(host: &ProbedHost) -> TrialFinding {
    // for a discipline that needs options, the kernel's errno differs from that for an unknown discipline
    let finding = kinds(host, "sch", &QDISCS, netlink::new_qdisc, |errno| errno != libc::ENOENT);
    let present = finding.detail.split("; not ").next().unwrap_or_default();
    let has = |wanted: &str| present.split(", ").any(|kind| kind.split(' ').next() == Some(wanted));
    match (finding.is_found(), has("htb"), has("fq_codel")) {
        (true, false, _) => finding.with_hint("unisono queue apply needs htb: a kernel with CONFIG_NET_SCH_HTB"),
        (true, true, false) => finding.with_hint(
            "without fq_codel (CONFIG_NET_SCH_FQ_CODEL) the flows of a class of unisono queue wait together in the kernel",
        ),
        _ => finding,
    }
}

pub(super) fn link_kinds(host: &ProbedHost) -> TrialFinding {
    kinds(host, "", &LINKS, netlink::new_link, |errno| errno != libc::EOPNOTSUPP)
}

/// Tries each kind by netlink in a namespace of its own, except kinds that would load a module.
fn kinds<const N: usize>(
    host: &ProbedHost,
    prefix: &str,
    names: &[&str; N],
    message: fn(&str) -> Vec<u8>,
    known: fn(i32) -> bool,
) -> TrialFinding {
    let modules = Modules::read(host);
    let module = names.map(|name| {
        let module = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}_{name}") };
        modules.would_be_loaded(&module)
    });
    let messages = names.map(message);
    // SAFETY: the body only makes system calls and writes to its array; the messages were allocated before.
    let tried = unsafe {
        in_child::<N>(|answers| {
            let refused = unshare(own_network());
            let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
            for index in 0..N {
                answers[index] = match (refused, module[index], &socket) {
                    (0, false, Ok(socket)) => netlink::ask(socket.as_fd(), &messages[index]),
                    // negative: the trial itself was refused, which says nothing about the kind
                    (0, false, Err(error)) => -error.raw_os_error(),
                    _ => -refused,
                };
            }
        })
    };
    let answers = match tried {
        Ok(answers) => answers,
        Err(error) => return TrialFinding::unknown(format!("they could not be tried: {error}")),
    };
    if let Some(errno) = answers.iter().copied().find(|errno| *errno < 0 || *errno == libc::EPERM) {
        return TrialFinding::undecided(
            format!("no network namespace to try them in: {}", words(errno.abs())),
            "run as root: unisono tree deploy needs veth and clsact",
        );
    }
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for index in 0..N {
        match (module[index], known(answers[index])) {
            (true, _) => present.push(format!("{} (module, not loaded)", names[index])),
            (false, true) => present.push(names[index].to_owned()),
            (false, false) => absent.push(names[index]),
        }
    }
    let present = present.join(", ");
    match (present.is_empty(), absent.is_empty()) {
        (true, _) => TrialFinding::missing(
            format!("this kernel has none of {}", absent.join(", ")),
            "use a kernel with CONFIG_VETH and CONFIG_NET_SCH_INGRESS, which unisono tree deploy needs",
        ),
        (false, true) => TrialFinding::found(present),
        (false, false) => TrialFinding::found(format!("{present}; not {}", absent.join(", "))),
    }
}

const TUN_REMEDY: &str = "run as root: unisono queue apply --backend interposed needs it";

/// Opens `/dev/net/tun` and, in a namespace of its own, makes a device that ends with the descriptor.
pub(super) fn tun(host: &ProbedHost) -> TrialFinding {
    if !host.exists("dev/net/tun") {
        return TrialFinding::missing(
            "/dev/net/tun does not exist",
            "modprobe tun as root, or mkdir -p /dev/net && mknod /dev/net/tun c 10 200: \
             unisono queue apply --backend interposed needs it",
        );
    }
    if Modules::read(host).would_be_loaded("tun") {
        return TrialFinding::found("as a module, not loaded");
    }
    let Some(mut request) = interface::request("unisono%d") else {
        return TrialFinding::unknown("no name for it");
    };
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the body only makes system calls and writes to its array.
    let tried = unsafe {
        in_child::<2>(|answers| {
            let refused = unshare(own_network());
            let device = rustix::fs::open(c"/dev/net/tun", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
            answers[1] = match &device {
                Ok(device) if refused == 0 => {
                    errno(interface::ask(device, libc::TUNSETIFF as libc::c_ulong, &mut request))
                }
                _ => -refused,
            };
            answers[0] = errno(device);
        })
    };
    match tried {
        Ok([0, 0]) => TrialFinding::found("a device can be made"),
        Ok([0, refused]) if refused < 0 => TrialFinding::undecided(
            format!(
                "/dev/net/tun opens, but there is no network namespace to try it in: {}",
                words(-refused)
            ),
            TUN_REMEDY,
        ),
        Ok([0, errno]) => TrialFinding::missing(
            format!("/dev/net/tun opens, but no device can be made: {}", words(errno)),
            TUN_REMEDY,
        ),
        Ok([errno, _]) => TrialFinding::missing(format!("/dev/net/tun: {}", words(errno)), TUN_REMEDY),
        Err(error) => TrialFinding::unknown(format!("it could not be tried: {error}")),
    }
}

pub(super) fn af_xdp(_: &ProbedHost) -> TrialFinding {
    match errno(socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)) {
        0 => TrialFinding::found("a socket can be made"),
        libc::EPERM => TrialFinding::missing(
            "it needs CAP_NET_RAW",
            "run as root: unisono queue apply --way af-xdp needs it",
        ),
        errno => TrialFinding::missing(
            format!("socket: {}", words(errno)),
            "use a kernel with CONFIG_XDP_SOCKETS, which unisono queue apply --way af-xdp needs",
        ),
    }
}

fn own_network() -> UnshareFlags {
    if is_root() { UnshareFlags::NEWNET } else { UnshareFlags::NEWUSER | UnshareFlags::NEWNET }
}

fn unshare(what: UnshareFlags) -> i32 {
    // SAFETY: called in the scratch process only, and never for its table of descriptors.
    errno(unsafe { unshare_unsafe(what) })
}

/// The modules that the kernel can load, and the loaded modules.
struct Modules {
    loadable: String,
    loaded: String,
}

impl Modules {
    fn read(host: &ProbedHost) -> Self {
        let release = host.read("proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            loadable: host.read(&format!("lib/modules/{release}/modules.dep")).unwrap_or_default(),
            loaded: host.read("proc/modules").unwrap_or_default(),
        }
    }

    /// Returns whether using `name` would load its module.
    fn would_be_loaded(&self, name: &str) -> bool {
        let file = format!("/{name}.ko");
        let loadable =
            self.loadable.lines().any(|line| line.split(':').next().is_some_and(|path| path.contains(&file)));
        let loaded = self.loaded.lines().any(|line| line.split(' ').next() == Some(name));
        loadable && !loaded
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeRoot;
    use super::*;

    #[test]
    fn what_would_load_a_module_is_reported_and_not_tried() {
        let root = FakeRoot::with(
            "modules",
            &[
                ("proc/sys/kernel/osrelease", "6.1.0-made-up\n"),
                (
                    "lib/modules/6.1.0-made-up/modules.dep",
                    "kernel/net/sched/sch_htb.ko.xz:\nkernel/net/sched/sch_fq.ko:\n",
                ),
                ("proc/modules", "sch_fq 24576 1 - Live 0x0\n"),
            ],
        );
        let modules = Modules::read(&root.0);
        assert!(modules.would_be_loaded("sch_htb"));
        assert!(!modules.would_be_loaded("sch_fq"), "it is loaded already");
        assert!(!modules.would_be_loaded("sch_f"));
        assert!(!modules.would_be_loaded("sch_netem"));
    }

    #[test]
    fn a_queueing_discipline_nobody_has_is_unknown_to_the_kernel() {
        let finding =
            kinds(&ProbedHost::here(), "sch", &["pfifo", "unisono_made_up"], netlink::new_qdisc, |errno| {
                errno != libc::ENOENT
            });
        if finding.is_found() {
            assert_eq!(finding.detail, "pfifo; not unisono_made_up");
        } else {
            // without a namespace for the trial there must be a reason
            assert!(finding.reason.is_some());
        }
    }

    #[test]
    fn a_chroot_is_told_from_the_root_of_its_mounts() {
        let proc = "31 22 0:5 / /proc rw - proc proc rw\n";
        let whole = format!("22 1 254:0 / / rw - ext4 /dev/vda rw\n{proc}");
        let with = |mounts: &str, name: &str| {
            let files = [
                ("proc/self/mountinfo", mounts),
                ("proc/1/root/x", ""),
                ("proc/1/ns/mnt", ""),
                ("proc/self/ns/x", ""),
            ];
            FakeRoot::with(name, &files)
        };
        assert!(is_chroot(&with(proc, "chroot-unlisted").0), "no `/` is listed");
        let root = with(&whole, "chroot-mount");
        assert!(!is_chroot(&root.0), "process 1 has its own namespace, as beside a container");
        std::fs::hard_link(root.0.path("proc/1/ns/mnt"), root.0.path("proc/self/ns/mnt")).expect("a name");
        assert!(is_chroot(&root.0), "process 1 has another root in the same namespace");
        assert!(!is_chroot(&FakeRoot::with("no-proc", &[]).0));
    }

    #[test]
    fn a_host_without_the_tun_device_says_how_to_make_it() {
        let root = FakeRoot::with("no-tun", &[]);
        let remedy = tun(&root.0).remedy.expect("a remedy");
        assert!(
            remedy.contains("mknod") && remedy.contains("queue apply --backend interposed"),
            "{remedy}"
        );
    }
}
