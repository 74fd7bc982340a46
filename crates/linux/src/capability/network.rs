//! Namespaces, queueing disciplines, devices, and ways around the network stack.
//!
//! Everything is tried in a forked process with a network namespace of its own; what was made there
//! vanishes with it. A kind that exists as a module is reported as such and not tried, because trying
//! would load the module into the running kernel and leave it there.
//!
//! Reference: namespaces(7), network_namespaces(7), tc(8), packet(7),
//! Documentation/networking/af_xdp.rst, tuntap.rst.

use super::scratch::{errno_of, in_child, words};
use super::{Finding, Host, is_root, netlink};

/// What `tc qdisc add` may be asked for.
const QDISCS: [&str; 13] = [
    "htb", "tbf", "hfsc", "fq", "fq_codel", "sfq", "pfifo", "prio", "netem", "etf", "drr", "ingress",
    "clsact",
];
const LINKS: [&str; 5] = ["veth", "dummy", "ifb", "bridge", "macvlan"];
const AF_XDP: i32 = 44;

/// Makes a user namespace, which vanishes with its process.
pub(super) fn user_namespaces(host: &Host) -> Finding {
    // SAFETY: unshare is async-signal-safe, and the body does nothing else.
    let tried = unsafe { in_child::<1>(|answer| answer[0] = unshare(libc::CLONE_NEWUSER)) };
    let errno = match tried {
        Ok([errno]) => errno,
        Err(error) => return Finding::unknown(format!("it could not be tried: {error}")),
    };
    if errno == 0 {
        return Finding::found("an unprivileged process can make one");
    }
    let setting = |path: &str| host.read(path).unwrap_or_default();
    if setting("proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return Finding::missing(
            "kernel.unprivileged_userns_clone is 0",
            "sysctl kernel.unprivileged_userns_clone=1",
        );
    }
    if setting("proc/sys/user/max_user_namespaces") == "0" {
        return Finding::missing("user.max_user_namespaces is 0", "sysctl user.max_user_namespaces=10000");
    }
    Finding::missing(
        format!("unshare: {}", words(errno)),
        "use a kernel with CONFIG_USER_NS, outside a sandbox",
    )
}

/// Makes a network namespace, as root or inside a user namespace.
pub(super) fn network_namespaces(_: &Host) -> Finding {
    // SAFETY: unshare is async-signal-safe, and the body does nothing else.
    match unsafe { in_child::<1>(|answer| answer[0] = unshare(own_network())) } {
        Ok([0]) if is_root() => Finding::found("can be made"),
        Ok([0]) => Finding::found("can be made inside a user namespace"),
        Ok([errno]) => Finding::missing(
            format!("unshare: {}", words(errno)),
            "run as root: unisono tree deploy needs them",
        ),
        Err(error) => Finding::unknown(format!("it could not be tried: {error}")),
    }
}

pub(super) fn qdiscs(host: &Host) -> Finding {
    // a discipline that needs options is refused with another errno than one that is unknown
    let finding = kinds(host, "sch", &QDISCS, netlink::new_qdisc, |errno| errno != libc::ENOENT);
    if finding.is_found() && !finding.detail.split(", ").any(|kind| kind.starts_with("htb")) {
        return finding.but("unisono queue apply needs htb: a kernel with CONFIG_NET_SCH_HTB");
    }
    finding
}

pub(super) fn link_kinds(host: &Host) -> Finding {
    kinds(host, "", &LINKS, netlink::new_link, |errno| errno != libc::EOPNOTSUPP)
}

/// Tries each kind by netlink in a namespace of its own, except those that would load a module.
fn kinds<const N: usize>(
    host: &Host,
    prefix: &str,
    names: &[&str; N],
    message: fn(&str) -> Vec<u8>,
    known: fn(i32) -> bool,
) -> Finding {
    let modules = Modules::read(host);
    let module = names.map(|name| {
        let module = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}_{name}") };
        modules.would_be_loaded(&module)
    });
    let messages = names.map(message);
    // SAFETY: the body makes system calls only and writes to its array; the messages were
    // allocated before.
    let tried = unsafe {
        in_child::<N>(|answers| {
            let refused = unshare(own_network());
            let socket = netlink::open();
            for index in 0..N {
                answers[index] = match (refused, module[index]) {
                    (0, false) => netlink::ask(socket, &messages[index]),
                    _ => refused,
                };
            }
        })
    };
    let answers = match tried {
        Ok(answers) => answers,
        Err(error) => return Finding::unknown(format!("they could not be tried: {error}")),
    };
    if let Some(errno) = answers.iter().copied().find(|errno| matches!(*errno, libc::EPERM | libc::ENOSPC)) {
        return Finding::missing(
            format!("no network namespace to try them in: {}", words(errno)),
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
        (true, _) => Finding::missing(
            format!("this kernel has none of {}", absent.join(", ")),
            "use a kernel with CONFIG_VETH and CONFIG_NET_SCH_INGRESS, which unisono tree deploy needs",
        ),
        (false, true) => Finding::found(present),
        (false, false) => Finding::found(format!("{present}; not {}", absent.join(", "))),
    }
}

/// Opens `/dev/net/tun` and, in a namespace of its own, makes a device that ends with the descriptor.
pub(super) fn tun(host: &Host) -> Finding {
    const TUN_WITHOUT_HEADER: u16 = 0x0001 | 0x1000;
    if !host.exists("dev/net/tun") {
        return Finding::missing(
            "/dev/net/tun does not exist",
            "modprobe tun as root, or mkdir -p /dev/net && mknod /dev/net/tun c 10 200; nothing in this version uses it",
        );
    }
    if Modules::read(host).would_be_loaded("tun") {
        return Finding::found("as a module, not loaded");
    }
    // struct ifreq: 16 bytes of name, then the flags
    let mut request = [0_u8; 40];
    request[..10].copy_from_slice(b"unisono%d\0");
    request[16..18].copy_from_slice(&TUN_WITHOUT_HEADER.to_ne_bytes());
    // SAFETY: the body makes system calls only and writes to its array.
    let tried = unsafe {
        in_child::<2>(|answers| {
            let refused = unshare(own_network());
            let device = open_tun();
            answers[0] = errno_of(i64::from(device));
            answers[1] = match refused {
                0 if device >= 0 => make_tun(device, &request),
                _ => refused,
            };
        })
    };
    match tried {
        Ok([0, 0]) => Finding::found("a device can be made"),
        Ok([0, errno]) => Finding::missing(
            format!("/dev/net/tun opens, but no device can be made: {}", words(errno)),
            "run as root; nothing in this version uses it",
        ),
        Ok([errno, _]) => Finding::missing(
            format!("/dev/net/tun: {}", words(errno)),
            "run as root; nothing in this version uses it",
        ),
        Err(error) => Finding::unknown(format!("it could not be tried: {error}")),
    }
}

fn open_tun() -> i32 {
    // SAFETY: the path is a string constant with its zero.
    unsafe { libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }
}

/// `request` is a `struct ifreq`.
fn make_tun(device: i32, request: &[u8; 40]) -> i32 {
    const SET_INTERFACE: libc::c_ulong = 0x4004_54ca;
    let mut request = *request;
    // SAFETY: `request` is as long as a `struct ifreq` and valid for reads and writes.
    let result = unsafe { libc::ioctl(device, SET_INTERFACE, request.as_mut_ptr()) };
    errno_of(i64::from(result))
}

pub(super) fn af_xdp(_: &Host) -> Finding {
    // SAFETY: takes no pointers.
    let socket = unsafe { libc::socket(AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    match errno_of(i64::from(socket)) {
        0 => {
            super::scratch::close(socket);
            Finding::found("a socket can be made")
        }
        libc::EPERM => {
            Finding::missing("it needs CAP_NET_RAW", "run as root; nothing in this version uses it")
        }
        errno => Finding::missing(
            format!("socket: {}", words(errno)),
            "use a kernel with CONFIG_XDP_SOCKETS; nothing in this version uses it",
        ),
    }
}

fn own_network() -> i32 {
    if is_root() { libc::CLONE_NEWNET } else { libc::CLONE_NEWUSER | libc::CLONE_NEWNET }
}

fn unshare(what: i32) -> i32 {
    // SAFETY: takes no pointers; called in the scratch process only.
    errno_of(i64::from(unsafe { libc::unshare(what) }))
}

/// Which modules the kernel could load, and which it has loaded.
struct Modules {
    loadable: String,
    loaded: String,
}

impl Modules {
    fn read(host: &Host) -> Self {
        let release = host.read("proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            loadable: host.read(&format!("lib/modules/{release}/modules.dep")).unwrap_or_default(),
            loaded: host.read("proc/modules").unwrap_or_default(),
        }
    }

    /// Whether using `name` would load it.
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
            kinds(&Host::here(), "sch", &["pfifo", "unisono_made_up"], netlink::new_qdisc, |errno| {
                errno != libc::ENOENT
            });
        if finding.is_found() {
            assert_eq!(finding.detail, "pfifo; not unisono_made_up");
        } else {
            // without a namespace to try it in there must be a reason
            assert!(finding.reason.is_some());
        }
    }

    #[test]
    fn a_host_without_the_tun_device_says_how_to_make_it() {
        let root = FakeRoot::with("no-tun", &[]);
        assert!(tun(&root.0).remedy.expect("a remedy").contains("mknod"));
    }
}
