//! Barriers of ranks on several hosts along the links of their network (`unisono mpi --tree NETWORK`).
//!
//! The first rank of each host on a communicator represents its host. Each of these ranks sends a
//! [`HostOffer`] to the others by a collective of the host MPI. From the offers and the network's file each
//! of them plans the same tree for itself ([`unisono_btin::plan`]), arranges the hosts by it ([`MemberTree`])
//! and connects to its neighbors in the tree over TCP. A barrier is then a call of
//! [`TreeBarrierMember::wait`]; the shim synchronizes the ranks of a host before and after it.
//!
//! Every decision that could split the ranks depends on the offers alone, so that all ranks decide alike. The
//! shim makes the ranks agree on whether the connections were made.
//!
//! Where every host has a helper of the switches (`unisono tree deploy --serve`), the barrier runs in them
//! ([`switches`]), and the connections of the tree stand beside it: if no host is released although all have
//! arrived, all hosts change to the tree. If the switches release some hosts and then fail, a thread of these
//! hosts' first ranks answers the others, whatever the ranks do by then ([`AnsweringMember`]).
//!
//! Cost: 2 (n - 1) packets of 48 bytes a barrier for n hosts, and a connection for each neighbor. When not to
//! use: on one host. Reference: Moh and others, "A Fast Tree-Based Barrier Synchronization on Switch-Based
//! Irregular Networks", section 3.

pub(super) mod offer;
mod switches;

use super::{ProgressCall, membership, progress_hook};
use crate::error::{CallStatus, argument, ffi_call, ffi_call_or};
use offer::HostOffer;
use std::ffi::{CStr, c_char, c_int};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as StdDuration;
use switches::{SwitchAttempt, SwitchBarrier};
use unisono_btin::{
    BarrierGroup, GroupId, MemberTree, NetworkFile, NodeId, PlanOptions, SwitchNetwork, Ties, plan,
};
use unisono_fabric::served::{self, HelperConnection};
use unisono_linux::netlink::NetlinkSocket;
use unisono_linux::netlink::address::{self, DeviceAddress};
use unisono_rma::wire::tcp::JobListener;
use unisono_rma::{AnsweringMember, Error, HookOutcome, Key, Rank, ReleasedBy, TreeBarrierMember};
use unisono_text::counted;

/// The size of an offer (bytes).
pub const UNISONO_MPI_TREE_OFFER: usize = 2048;
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The time limit for the hosts to connect: all of them begin at the same collective. A firewall that drops
/// packets is noticed after this time. Chosen, not measured.
const MEET_TIMEOUT: StdDuration = StdDuration::from_secs(10);
/// The time after the last arrival at which a barrier in the switches counts as stuck, as in `unisono tree
/// deploy`. Lost frames are repeated after 30 to 500 ms.
const STALL_AFTER: StdDuration = StdDuration::from_secs(2);
/// The interval of progress calls where the hosts are namespaces of one machine and outnumber its processors:
/// there the calls of waiting hosts keep the processors from the awaited hosts. With calls every 500 us, 64
/// hosts on two processors switched contexts 50 times a barrier, and never caught up.
const SHARED_PROGRESS_INTERVAL: StdDuration = StdDuration::from_millis(5);
/// The maximum number of progress calls one after the other. Chosen, not measured.
const MAX_DRAINING_CALLS: u32 = 64;

/// The tree of a communicator's hosts, as seen by the first rank of one of them.
#[derive(Debug)]
pub struct TreeHandle {
    own: usize,
    /// `None` if the network's file cannot be read; this host's offer then has the reason.
    network: Option<&'static PlannedNetwork>,
    /// `None` once this host has connected to the others.
    listener: Option<JobListener>,
    addresses: Vec<DeviceAddress>,
    hosts: Vec<HostOffer>,
    barrier: Option<AnsweringMember>,
    /// This host's helper of the switches, until the hosts have met.
    helper: Option<HelperConnection>,
    /// The barrier in the switches, if it serves.
    switches: Option<SwitchBarrier>,
    /// The switches that serve no longer; their registers are returned with the tree.
    stuck: Option<SwitchBarrier>,
    /// A line for the user.
    note: Option<String>,
}

/// The network of `--tree`, and a digest of its file and of the options of `unisono mpi`.
#[derive(Debug)]
struct PlannedNetwork {
    path: String,
    file: NetworkFile,
    digest: u64,
    /// The digest of its switches, links and nodes, by which deployed switches are compared with it.
    shape: u64,
}

/// Returns the network of this process, read once.
fn network(path: &str, options: &str) -> Result<&'static PlannedNetwork, &'static str> {
    static NETWORK: OnceLock<Result<PlannedNetwork, String>> = OnceLock::new();
    let read = || {
        let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let file = NetworkFile::from_json(&text).map_err(|error| format!("{path}:{error}"))?;
        let mut digest = DefaultHasher::new();
        (&text, options).hash(&mut digest);
        let shape = served::digest(&file.network);
        Ok(PlannedNetwork { path: path.to_owned(), file, digest: digest.finish(), shape })
    };
    NETWORK.get_or_init(read).as_ref().map_err(String::as_str)
}

/// Makes this host's part in a tree of `hosts` hosts, and stores its offer for the others in `offer`
/// (UNISONO_MPI_TREE_OFFER bytes). `network` is the path of a network's file, `options` the version and the
/// options of `unisono mpi`, `rank` this rank in the communicator, `host` this host's position among the
/// hosts, `key` the same 16 random bytes at all hosts. Waits for no other rank. NULL after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_tree_new(
    network: *const c_char,
    options: *const c_char,
    rank: c_int,
    host: c_int,
    hosts: c_int,
    key: *const u8,
    offer: *mut u8,
) -> *mut TreeHandle {
    let mut made = std::ptr::null_mut();
    ffi_call(|| {
        // SAFETY: the shim passes a C string.
        let path = unsafe { CStr::from_ptr(network) };
        // SAFETY: the shim passes a C string.
        let options = unsafe { CStr::from_ptr(options) };
        // SAFETY: the shim passes 16 readable bytes.
        let key = unsafe { *key.cast::<[u8; 16]>() };
        // SAFETY: the shim passes this many writable bytes.
        let room = unsafe { slice::from_raw_parts_mut(offer, UNISONO_MPI_TREE_OFFER) };
        let place = membership(host, hosts, Key::from_bytes(key))?;
        let own = place.rank.index();
        // any address: the network between the hosts is not known yet, and only ranks know the key
        let listener = JobListener::bind(place, SocketAddr::from(([0, 0, 0, 0], 0)))?;
        let addresses = NetlinkSocket::open()
            .map_err(system("open a netlink socket"))
            .and_then(|mut socket| address::all(&mut socket).map_err(|why| argument(why.to_string())))?;
        let name = fs::read_to_string("/proc/sys/kernel/hostname").map_err(system("read the host's name"))?;
        let (path, options) = (path.to_string_lossy(), options.to_string_lossy());
        let network = self::network(&path, &options);
        let (helper, helper_offer) = match HelperConnection::open() {
            Ok(Some(helper)) => {
                let offer = helper.offer().clone();
                (Some(helper), Some(Ok(offer)))
            }
            Ok(None) => (None, None),
            Err(error) => (None, Some(Err(error.to_string()))),
        };
        let [low, high, ..] = *Key::random()?.bytes();
        HostOffer::new(rank, name.trim(), listener.address().port(), &addresses)
            .of_boot(&fs::read_to_string(BOOT).unwrap_or_default())
            .in_network(network.map(|known| (&known.file, known.digest)), &path)
            .with_switches(
                helper_offer,
                network.ok().map(|known| known.shape),
                u16::from_le_bytes([low, high]),
            )
            .encode(room)?;
        let handle = TreeHandle {
            own,
            network: network.ok(),
            listener: Some(listener),
            addresses,
            hosts: Vec::new(),
            barrier: None,
            helper,
            switches: None,
            stuck: None,
            note: None,
        };
        made = Box::into_raw(Box::new(handle));
        Ok(())
    });
    made
}

/// Returns a hook that calls this one until it finds no work, and never asks to be called early: where hosts
/// share processors, a call after a sleep takes as long as a call that has moved data, because the
/// processor's caches hold other data. The call after it tells.
fn drained(mut hook: Box<dyn FnMut() -> HookOutcome + Send>) -> Box<dyn FnMut() -> HookOutcome + Send> {
    Box::new(move || {
        (0..MAX_DRAINING_CALLS).find(|_| hook() == HookOutcome::Nothing);
        HookOutcome::Nothing
    })
}

fn system(doing: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::System { doing: doing.to_owned(), source }
}

/// Plans the tree from the offers of all hosts, in order, and connects to the neighbors in it. From then
/// on each barrier call that waits calls `progress` from time to time. All hosts get the same error for wrong
/// offers; a connection may fail at one host alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_tree_meet(
    tree: *mut TreeHandle,
    offers: *const u8,
    hosts: usize,
    progress: ProgressCall,
) -> CallStatus {
    ffi_call(|| {
        // SAFETY: the shim passes a live handle.
        let tree = unsafe { &mut *tree };
        // SAFETY: the shim passes an offer of each host.
        let all = unsafe { slice::from_raw_parts(offers, hosts * UNISONO_MPI_TREE_OFFER) };
        tree.hosts =
            all.chunks_exact(UNISONO_MPI_TREE_OFFER).map(HostOffer::decode).collect::<Result<_, _>>()?;
        tree.meet(progress)
    })
}

/// Waits until the first ranks of all hosts have called this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_tree_barrier(tree: *mut TreeHandle) -> CallStatus {
    // SAFETY: the shim passes a live handle.
    ffi_call(|| unsafe { &mut *tree }.wait())
}

/// Copies a line for the user into `room` (`bytes` bytes, at least one) and returns 1, or returns 0 if there
/// is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_tree_note(
    tree: *mut TreeHandle,
    room: *mut c_char,
    bytes: usize,
) -> c_int {
    ffi_call_or(0, || {
        // SAFETY: the shim passes a live handle.
        let tree = unsafe { &mut *tree };
        let Some(note) = tree.note.take() else { return Ok(0) };
        // SAFETY: the shim passes this many writable bytes.
        let room = unsafe { slice::from_raw_parts_mut(room.cast::<u8>(), bytes) };
        let text = &note.as_bytes()[..note.floor_char_boundary(bytes - 1)];
        room[..text.len()].copy_from_slice(text);
        room[text.len()] = 0;
        Ok(1)
    })
}

/// Ends this host's part in an orderly way: all hosts have entered their last barrier. Waits for no host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_tree_leave(tree: *mut TreeHandle) {
    ffi_call_or((), || {
        // SAFETY: `unisono_mpi_tree_new` made it, and the shim frees it once.
        unsafe { Box::from_raw(tree) }.leave();
        Ok(())
    });
}

/// Closes this host's connections: the other hosts' barriers fail from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_tree_free(tree: *mut TreeHandle) {
    ffi_call_or((), || {
        // SAFETY: `unisono_mpi_tree_new` made it, and the shim frees it once.
        drop(unsafe { Box::from_raw(tree) });
        Ok(())
    });
}

/// A host's parent and children, by position among the offers.
type HostPlace = (Option<Rank>, Vec<Rank>);

/// Returns the place of each host in the tree.
fn arrange(network: &SwitchNetwork, nodes: &[NodeId]) -> Result<Vec<HostPlace>, String> {
    let group = BarrierGroup::new(network, GroupId(0), nodes.to_vec()).map_err(|error| error.to_string())?;
    let mut options = PlanOptions::default();
    options.ties = Ties::usual(network);
    let planned = plan(network, &group, &options).map_err(|error| error.to_string())?;
    let tree = MemberTree::new(network, &group, &planned);
    let members = group.members();
    let host_of = |member: usize| {
        let host = nodes.iter().position(|node| *node == members[member]);
        Rank::at(host.expect("found because the members are these nodes"))
    };
    let place = |node: &NodeId| {
        let member = members.binary_search(node).expect("found because it is a member");
        let children = tree.children(member).iter().map(|child| host_of(*child)).collect();
        (tree.parent(member).map(host_of), children)
    };
    Ok(nodes.iter().map(place).collect())
}

impl TreeHandle {
    fn meet(&mut self, progress: ProgressCall) -> Result<(), Error> {
        let nodes = offer::nodes(&self.hosts).map_err(argument)?;
        let known = self.network.ok_or_else(|| argument("the network's file cannot be read"))?;
        let arranged =
            arrange(&known.file.network, &nodes).map_err(|why| argument(format!("{}: {why}", known.path)))?;
        let (parent, children) = arranged[self.own].clone();
        let neighbours: Vec<Rank> = parent.iter().chain(&children).copied().collect();
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut addresses = vec![nowhere; self.hosts.len()];
        for neighbour in &neighbours {
            addresses[neighbour.index()] =
                self.hosts[neighbour.index()].address_for(&self.addresses).map_err(argument)?;
        }
        let listener = self.listener.take().ok_or_else(|| argument("the hosts have met already"))?;
        let tcp = listener.connect_neighbours(&addresses, &neighbours, MEET_TIMEOUT).map_err(|error| {
            argument(format!(
                "host {} cannot connect to its neighbors ({error}); allow TCP between the hosts, on all ports",
                self.hosts[self.own].host
            ))
        })?;
        let mut barrier = TreeBarrierMember::over(tcp, parent, children);
        let (every, hook) = progress_hook(progress);
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let is_shared = self.hosts[self.own].hosts_of_machine(&self.hosts) > processors;
        if is_shared {
            barrier.while_waiting(SHARED_PROGRESS_INTERVAL, drained(hook));
        } else {
            barrier.while_waiting(every, hook);
        }
        self.claim_switches(&mut barrier, &nodes)?;
        let mut barrier = AnsweringMember::over(barrier);
        if self.switches.is_some() {
            barrier.start()?;
        }
        self.barrier = Some(barrier);
        Ok(())
    }

    /// Claims a group in the switches, if every host offers them.
    fn claim_switches(&mut self, tree: &mut TreeBarrierMember, nodes: &[NodeId]) -> Result<(), Error> {
        static SPILLED: AtomicBool = AtomicBool::new(false);
        static REFUSED: AtomicBool = AtomicBool::new(false);
        let is_first_time = |given: &AtomicBool| !given.swap(true, Ordering::Relaxed);
        let by_the_tree = "barriers between hosts go from host to host and not by the switches";
        let helper = self.helper.take();
        let offered = match offer::switches(&self.hosts) {
            Ok(offered) => offered,
            Err(why) => {
                if self.own == 0 && is_first_time(&REFUSED) {
                    self.note = Some(format!("{by_the_tree}: {why}"));
                }
                return Ok(());
            }
        };
        let Some(helper) = helper else { return Ok(()) };
        match switches::claim(tree, helper, &offered, nodes)? {
            SwitchAttempt::Granted(granted) => self.switches = Some(granted),
            SwitchAttempt::Spilled if self.own == 0 && is_first_time(&SPILLED) => {
                self.note = Some(format!(
                    "{by_the_tree} on some communicators: no switch has more than {}; free communicators \
                     that are not used any more",
                    counted(offered.registers, "register")
                ));
            }
            SwitchAttempt::Failed(Some(why)) if is_first_time(&REFUSED) => {
                self.note = Some(format!("{by_the_tree}: {why}"));
            }
            SwitchAttempt::Spilled | SwitchAttempt::Failed(_) => {}
        }
        Ok(())
    }

    fn leave(self) {
        if let Some(barrier) = self.barrier {
            barrier.leave();
        }
        if let Some(switches) = self.switches {
            switches.leave();
        }
    }

    fn wait(&mut self) -> Result<(), Error> {
        let barrier = self.barrier.as_mut().ok_or_else(|| argument("the hosts have not met"))?;
        let released = match &mut self.switches {
            Some(switches) => barrier.wait_beside(switches, STALL_AFTER),
            None => barrier.wait().map(|()| ReleasedBy::Fast),
        };
        if matches!(released, Ok(ReleasedBy::Tree)) {
            self.stuck = self.switches.take();
            if let Some(stuck) = self.stuck.as_mut().filter(|_| self.own == 0) {
                self.note = Some(format!(
                    "a barrier between {} hosts was stuck in the switches and is undone there ({}); this \
                     communicator's barriers go from host to host from now on",
                    self.hosts.len(),
                    stuck.suspects()
                ));
            }
        }
        released.map(|_| ()).map_err(|error| match error {
            Error::Gone { rank, why } => match self.hosts.get(rank.index()) {
                Some(lost) => Error::Gone {
                    rank: Rank(lost.rank.cast_unsigned()),
                    why: format!("the first rank of host {}: {why}", lost.host),
                },
                None => Error::Gone { rank, why },
            },
            error => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_btin::{End, Port, SwitchId, SwitchLink};

    /// Makes a network of a spine and two leaves with two nodes each.
    fn leaves() -> SwitchNetwork {
        let at = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
        let links = vec![SwitchLink { a: at(0, 3), b: at(2, 0) }, SwitchLink { a: at(1, 3), b: at(2, 1) }];
        SwitchNetwork::new(vec![4; 3], links, vec![at(0, 0), at(0, 1), at(1, 0), at(1, 1)]).expect("sound")
    }

    #[test]
    fn hosts_are_arranged_by_leaf_in_whatever_order_the_ranks_come() {
        let arranged = arrange(&leaves(), &[3, 0, 2, 1].map(NodeId)).expect("connected");
        let parents: Vec<Option<Rank>> = arranged.iter().map(|(parent, _)| *parent).collect();
        // node 0 is the root; node 2 represents the other leaf
        assert_eq!(parents, [Some(Rank(2)), None, Some(Rank(1)), Some(Rank(1))]);
        assert_eq!(arranged[1].1, [Rank(3), Rank(2)]);
    }

    #[test]
    fn a_hook_that_finds_work_is_called_again_at_once_and_never_early() {
        let mut left = 3;
        let mut hook = drained(Box::new(move || {
            left -= 1;
            assert!(left >= 0, "called again although it found no work");
            if left > 0 { HookOutcome::Work } else { HookOutcome::Nothing }
        }));
        assert_eq!(hook(), HookOutcome::Nothing);
        let mut endless = drained(Box::new(|| HookOutcome::Work));
        assert_eq!(endless(), HookOutcome::Nothing);
    }

    #[test]
    fn two_hosts_at_one_node_are_no_group() {
        let error = arrange(&leaves(), &[1, 1].map(NodeId)).expect_err("one of them is elsewhere");
        assert_eq!(error, "member 1 is named twice");
    }
}
