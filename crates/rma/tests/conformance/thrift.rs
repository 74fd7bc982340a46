//! The packets of each synchronization, one by one: the table of PROTOCOL.md, counted at the transport.

use crate::paths::together;
use crate::watch;
use std::fmt;
use std::io::IoSlice;
use std::sync::{Arc, Mutex};
use unisono_linux::clock::Instant;
use unisono_rma::wire::loopback::Loopback;
use unisono_rma::wire::packet::{HEADER, PacketFlags, PacketKind, WirePacket};
use unisono_rma::wire::{Bell, Gone, Transport};
use unisono_rma::{
    Assert, Completion, Element, Error, Job, Layout, Lock, Operation, Rank, Source, Spec, Style, Target,
    Window,
};

/// A packet as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    from: Rank,
    to: Rank,
    kind: PacketKind,
    flags: PacketFlags,
    /// The packets in a batch.
    members: Vec<(PacketKind, PacketFlags)>,
}

type Log = Arc<Mutex<Vec<Sent>>>;

/// A transport that records the packets that it is asked to send.
struct Counting {
    inner: Loopback,
    log: Log,
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Transport for Counting {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn send(&mut self, to: Rank, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> Result<(), Error> {
        let mut bytes = header.to_vec();
        payload.iter().for_each(|piece| bytes.extend_from_slice(piece));
        let packet = WirePacket::parse(&bytes).expect("the engine sends what it understands");
        let (kind, flags) = (packet.header.kind, packet.header.flags);
        let is_batch = kind == PacketKind::Batch;
        let members = packet.members().filter(|_| is_batch).map(|one| {
            let header = one.expect("as above").header;
            (header.kind, header.flags)
        });
        let sent = Sent { from: self.rank(), to, kind, flags, members: members.collect() };
        self.log.lock().expect("nobody panics with it").push(sent);
        self.inner.send(to, header, payload)
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error> {
        self.inner.receive(packet)
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error> {
        self.inner.wait(until)
    }

    fn flush(&mut self) -> Result<bool, Error> {
        self.inner.flush()
    }

    fn gone(&self) -> &[Gone] {
        self.inner.gone()
    }

    fn refuse(&mut self, peer: Rank, why: &str) {
        self.inner.refuse(peer, why);
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.inner.bell()
    }
}

/// Runs `member` in `size` members, and returns the packets that they send in it, by sender and in order. The
/// packets of the barriers before and after it, and those of making and freeing the window, are left out.
fn sent(
    (size, spec): (usize, Spec),
    member: impl Fn(&mut Window, Rank) -> Result<(), Error> + Sync,
) -> Vec<Vec<Sent>> {
    watch();
    let log = Log::default();
    let ends = Loopback::job(size).into_iter();
    let jobs = ends.map(|inner| Job::over(Counting { inner, log: Arc::clone(&log) })).collect();
    let (begun, ended) = (Mutex::new(0), Mutex::new(0));
    let now = || log.lock().expect("as above").len();
    let note = |moment: &Mutex<usize>| *moment.lock().expect("as above") = now();
    let meet = std::sync::Barrier::new(size);
    let part = |mut job: Job| {
        let rank = job.rank();
        let mut window = job.allocate(64 << 10, spec)?;
        job.barrier()?;
        // No member sends between the two.
        meet.wait();
        if rank == Rank(0) {
            note(&begun);
        }
        meet.wait();
        member(&mut window, rank)?;
        // Acknowledgements for which no call has waited arrive here.
        window.settle()?;
        meet.wait();
        if rank == Rank(0) {
            note(&ended);
        }
        meet.wait();
        window.free()?;
        job.finalize()
    };
    together(jobs, part, "counting");
    let (begun, ended) = (*begun.lock().expect("as above"), *ended.lock().expect("as above"));
    let all = log.lock().expect("as above")[begun..ended].to_vec();
    let of = |rank| all.iter().filter(|sent| sent.from == Rank::at(rank)).cloned().collect();
    (0..size).map(of).collect()
}

fn deferred() -> Spec {
    Spec::new().unit(8).style(Style::Deferred)
}

fn kinds(sent: &[Sent]) -> Vec<PacketKind> {
    sent.iter().map(|sent| sent.kind).collect()
}

/// Returns the number of packets of a kind.
fn count(sent: &[Sent], kind: PacketKind) -> usize {
    sent.iter().filter(|sent| sent.kind == kind).count()
}

#[test]
fn a_fence_that_ends_nothing_sends_nothing() {
    let sent = sent((3, deferred()), |window, _| {
        window.fence(Assert::NONE)?;
        window.fence(Assert::NO_PRECEDE)?;
        window.fence(Assert::NO_PRECEDE | Assert::NO_SUCCEED)
    });
    assert_eq!(sent, vec![Vec::new(); 3]);
}

#[test]
fn a_fence_that_ends_an_epoch_is_one_reduce_scatter_and_one_message_a_target_and_no_barrier() {
    for size in [2, 3, 4, 5, 8] {
        let sent = sent((size, deferred()), |window, rank| {
            window.fence(Assert::NO_PRECEDE)?;
            for place in 0..4 {
                window.put(&[1_u64, 2], Rank::at((rank.index() + 1) % size), 2 * place)?;
            }
            window.fence(Assert::NO_STORE | Assert::NO_PUT | Assert::NO_SUCCEED)
        });
        let rounds = size.next_power_of_two().ilog2() as usize;
        for (rank, sent) in sent.iter().enumerate() {
            let what = format!("rank {rank} of {size}: {sent:?}");
            assert!(count(sent, PacketKind::FenceCount) <= rounds + 2, "{what}");
            assert_eq!(count(sent, PacketKind::Collect), 0, "{what}");
            let [batch] =
                sent.iter().filter(|sent| sent.kind != PacketKind::FenceCount).collect::<Vec<_>>()[..]
            else {
                panic!("{what}");
            };
            let marks = PacketFlags::LAST.with(PacketFlags::FENCE);
            let plain = (PacketKind::Put, PacketFlags(0));
            assert_eq!(batch.members, [plain, plain, plain, (PacketKind::Put, marks)], "{what}");
        }
        let total: usize = sent.iter().map(|sent| count(sent, PacketKind::FenceCount)).sum();
        assert!(total <= size * rounds + 2 * (size - size.next_power_of_two() / 2), "{total} of {size}");
    }
}

#[test]
fn a_naive_fence_has_a_barrier_at_both_ends_and_asks_whether_all_is_complete() {
    let sent = sent((4, deferred().style(Style::Naive)), |window, rank| {
        window.fence(Assert::NONE)?;
        window.put(&[1_u64], Rank::at((rank.index() + 1) % 4), 0)?;
        window.fence(Assert::NONE)
    });
    for sent in sent {
        assert_eq!(count(&sent, PacketKind::Collect), 2 * 2, "{sent:?}");
        assert_eq!((count(&sent, PacketKind::Flush), count(&sent, PacketKind::Complete)), (1, 1), "{sent:?}");
    }
}

/// Runs one rank. Rank 0 has two targets, and accesses only one of them.
fn post_and_start(
    window: &mut Window,
    rank: Rank,
    assert: Assert,
    meet: &std::sync::Barrier,
) -> Result<(), Error> {
    if rank == Rank(0) {
        // The promise that the others have posted must be true.
        meet.wait();
        window.start(&[Rank(1), Rank(2)], assert)?;
        window.put(&[1_u64], Rank(1), 0)?;
        window.put(&[1_u64], Rank(1), 1)?;
        return window.complete();
    }
    window.post(&[Rank(0)], assert)?;
    meet.wait();
    window.wait()
}

#[test]
fn post_and_complete_send_a_message_a_pair_and_a_target_without_operations_gets_its_mark() {
    let meet = std::sync::Barrier::new(3);
    let sent = sent((3, deferred()), |window, rank| post_and_start(window, rank, Assert::NONE, &meet));
    assert_eq!(kinds(&sent[0]), [PacketKind::Batch, PacketKind::Done]);
    assert_eq!(
        sent[0][0].members,
        [(PacketKind::Put, PacketFlags(0)), (PacketKind::Put, PacketFlags::LAST)]
    );
    assert_eq!((sent[0][1].to, sent[0][1].flags), (Rank(2), PacketFlags::LAST));
    assert_eq!((kinds(&sent[1]), kinds(&sent[2])), (vec![PacketKind::Post], vec![PacketKind::Post]));
}

#[test]
fn no_check_removes_the_posts_message() {
    let meet = std::sync::Barrier::new(3);
    let sent = sent((3, deferred()), |window, rank| post_and_start(window, rank, Assert::NO_CHECK, &meet));
    assert_eq!(kinds(&sent[0]), [PacketKind::Batch, PacketKind::Done]);
    assert_eq!((sent[1].len(), sent[2].len()), (0, 0));
}

/// Returns the packets of rank 0 and rank 1 while rank 0 is in a passive epoch to rank 1.
fn passive(spec: Spec, lock: Lock, work: impl Fn(&mut Window) -> Result<(), Error> + Sync) -> [Vec<Sent>; 2] {
    let sent = sent((2, spec), |window, rank| {
        if rank == Rank(0) {
            window.lock(Rank(1), lock, Assert::NONE)?;
            work(window)?;
            window.unlock(Rank(1))?;
        }
        Ok(())
    });
    let [zero, one] = &sent[..] else { panic!("two members") };
    [zero.clone(), one.clone()]
}

#[test]
fn one_short_operation_is_one_message_with_its_lock_and_one_answer() {
    let put = |window: &mut Window| window.put(&[1_u64], Rank(1), 0);
    let fetch = |window: &mut Window| {
        let _pending = window.get_accumulate(&[1_u64], Rank(1), 0, Operation::Sum)?;
        Ok(())
    };
    for (lock, request) in
        [(Lock::Shared, PacketFlags::LOCK_SHARED), (Lock::Exclusive, PacketFlags::LOCK_EXCLUSIVE)]
    {
        let marks = request.with(PacketFlags::LAST).with(PacketFlags::UNLOCK);
        let [zero, one] = passive(deferred(), lock, put);
        assert_eq!(kinds(&zero), [PacketKind::Put]);
        assert_eq!(zero[0].flags, marks.with(PacketFlags::ACKNOWLEDGE));
        assert_eq!(kinds(&one), [PacketKind::Complete]);
        let [zero, one] = passive(deferred(), lock, fetch);
        assert_eq!((kinds(&zero), zero[0].flags), (vec![PacketKind::GetAccumulate], marks));
        assert_eq!(kinds(&one), [PacketKind::Data]);
    }
}

#[test]
fn an_operation_on_one_element_travels_with_its_lock_and_its_old_value_is_the_only_answer() {
    static ONE: u64 = 1;
    let target = (Rank(1), 0);
    let fetch = |window: &mut Window| {
        let before = Box::leak(Box::new(0_u64));
        let (source, result) = ((&raw const ONE).cast(), (&raw mut *before).cast());
        // SAFETY: the source and the result are never freed.
        unsafe { window.raw_fetch_and_op(source, result, Element::U64, target, Operation::Sum) }
    };
    let swap = |window: &mut Window| {
        let before = Box::leak(Box::new(0_u64));
        let (source, result) = ((&raw const ONE).cast(), (&raw mut *before).cast());
        // SAFETY: the source and the result are never freed.
        unsafe { window.raw_compare_and_swap(source, source, result, Element::U64, target) }
    };
    let marks = PacketFlags::LOCK_EXCLUSIVE.with(PacketFlags::LAST).with(PacketFlags::UNLOCK);
    let [zero, one] = passive(deferred(), Lock::Exclusive, fetch);
    assert_eq!((kinds(&zero), zero[0].flags), (vec![PacketKind::GetAccumulate], marks));
    assert_eq!(kinds(&one), [PacketKind::Data]);
    let [zero, one] = passive(deferred(), Lock::Exclusive, swap);
    assert_eq!((kinds(&zero), zero[0].flags), (vec![PacketKind::CompareAndSwap], marks));
    assert_eq!(kinds(&one), [PacketKind::Data]);
}

#[test]
fn one_long_operation_is_one_message_with_its_lock_and_one_answer() {
    for lock in [Lock::Shared, Lock::Exclusive] {
        let [zero, one] = passive(deferred(), lock, |window| window.put_static(&LONG, Rank(1), 0));
        assert_eq!((kinds(&zero), kinds(&one)), (vec![PacketKind::Put], vec![PacketKind::Complete]));
    }
}

#[test]
fn several_short_operations_are_one_message_with_their_lock_and_one_answer() {
    let puts = |window: &mut Window| (0..2).try_for_each(|place| window.put(&[1_u64], Rank(1), place));
    let mixed = |window: &mut Window| {
        let _pending = window.get::<u64>(1, Rank(1), 8)?;
        puts(window)
    };
    let plain = |kind| (kind, PacketFlags(0));
    for (lock, request) in
        [(Lock::Shared, PacketFlags::LOCK_SHARED), (Lock::Exclusive, PacketFlags::LOCK_EXCLUSIVE)]
    {
        let marks = request.with(PacketFlags::LAST).with(PacketFlags::UNLOCK);
        let [zero, one] = passive(deferred(), lock, puts);
        assert_eq!(kinds(&zero), [PacketKind::Batch]);
        assert_eq!(zero[0].flags, marks.with(PacketFlags::ACKNOWLEDGE));
        assert_eq!(zero[0].members, [plain(PacketKind::Put), plain(PacketKind::Put)]);
        assert_eq!(kinds(&one), [PacketKind::Complete]);
        // a get goes last, so that its answer is enough
        let [zero, one] = passive(deferred(), lock, mixed);
        assert_eq!((kinds(&zero), zero[0].flags), (vec![PacketKind::Batch], marks));
        assert_eq!(zero[0].members, [PacketKind::Put, PacketKind::Put, PacketKind::Get].map(plain));
        assert_eq!(kinds(&one), [PacketKind::Data]);
        // With local completion the epoch requests no acknowledgement; `settle` does, once.
        let [zero, one] = passive(deferred().completion(Completion::Local), lock, puts);
        assert_eq!(kinds(&zero), [PacketKind::Batch, PacketKind::Flush]);
        assert_eq!(zero[0].flags, marks);
        assert_eq!(kinds(&one), [PacketKind::Complete]);
    }
}

/// More than shares a packet with other operations.
static LONG: [u64; 4096] = [7; 4096];

#[test]
fn the_last_of_longer_operations_releases_the_lock_and_a_get_goes_last_so_that_nothing_is_acknowledged() {
    for lock in [Lock::Shared, Lock::Exclusive] {
        let [zero, one] = passive(deferred(), lock, |window| {
            let _pending = window.get::<u64>(1, Rank(1), 8)?;
            window.put_static(&LONG, Rank(1), 0)?;
            window.put(&[1_u64], Rank(1), 1)
        });
        assert_eq!(kinds(&zero), [PacketKind::LockRequest, PacketKind::Put, PacketKind::Batch]);
        let (plain, marks) = (PacketFlags(0), PacketFlags::LAST.with(PacketFlags::UNLOCK));
        assert_eq!(zero[2].members, [(PacketKind::Put, plain), (PacketKind::Get, marks)]);
        assert_eq!(kinds(&one), [PacketKind::LockGranted, PacketKind::Data]);
    }
}

#[test]
fn longer_operations_without_a_get_are_acknowledged_once_and_not_at_all_if_that_was_given_up() {
    let puts = |window: &mut Window| {
        window.put_static(&LONG, Rank(1), 0)?;
        window.put(&[1_u64], Rank(1), 1)
    };
    for lock in [Lock::Shared, Lock::Exclusive] {
        let [zero, one] = passive(deferred(), lock, puts);
        assert_eq!(kinds(&zero), [PacketKind::LockRequest, PacketKind::Put, PacketKind::Put]);
        assert!(zero[2].flags.has(PacketFlags::UNLOCK.with(PacketFlags::ACKNOWLEDGE)), "{zero:?}");
        assert_eq!(kinds(&one), [PacketKind::LockGranted, PacketKind::Complete]);
        // With local completion the epoch requests no acknowledgement; `settle` does, once.
        let [zero, one] = passive(deferred().completion(Completion::Local), lock, puts);
        assert_eq!(
            kinds(&zero),
            [PacketKind::LockRequest, PacketKind::Put, PacketKind::Put, PacketKind::Flush]
        );
        assert_eq!(zero[2].flags, PacketFlags::LAST.with(PacketFlags::UNLOCK));
        assert_eq!(kinds(&one), [PacketKind::LockGranted, PacketKind::Complete]);
    }
}

#[test]
fn operations_that_a_flush_sends_with_their_lock_are_acknowledged_by_the_grant() {
    let [zero, one] = passive(deferred(), Lock::Exclusive, |window| {
        window.put(&[1_u64], Rank(1), 0)?;
        window.put(&[1_u64], Rank(1), 1)?;
        window.flush(Rank(1))
    });
    assert_eq!(kinds(&zero), [PacketKind::Batch, PacketKind::Unlock]);
    assert_eq!(zero[0].flags, PacketFlags::LOCK_EXCLUSIVE.with(PacketFlags::ACKNOWLEDGE));
    assert_eq!((kinds(&one), one[0].flags), (vec![PacketKind::LockGranted], PacketFlags::ACKNOWLEDGE));
}

#[test]
fn the_end_of_lock_all_sends_to_all_targets_before_it_waits_for_any() {
    let sent = sent((3, deferred()), |window, rank| {
        if rank == Rank(0) {
            window.lock_all(Assert::NONE)?;
            window.put(&[1_u64], Rank(1), 0)?;
            window.put_static(&LONG, Rank(2), 0)?;
            window.put(&[1_u64], Rank(2), 0)?;
            window.unlock_all()?;
        }
        Ok(())
    });
    assert_eq!(
        kinds(&sent[0]),
        [PacketKind::LockRequest, PacketKind::Put, PacketKind::Put, PacketKind::Put]
    );
    let targets: Vec<Rank> = sent[0].iter().map(|sent| sent.to).collect();
    assert_eq!(targets, [Rank(2), Rank(1), Rank(2), Rank(2)]);
    assert_eq!(kinds(&sent[1]), [PacketKind::Complete]);
    assert_eq!(kinds(&sent[2]), [PacketKind::LockGranted, PacketKind::Complete]);
}

#[test]
fn a_naive_lock_waits_to_be_granted_and_unlocks_with_a_message_of_its_own() {
    let [zero, one] =
        passive(deferred().style(Style::Naive), Lock::Shared, |window| window.put(&[1_u64], Rank(1), 0));
    assert_eq!(kinds(&zero), [PacketKind::LockRequest, PacketKind::Put, PacketKind::Unlock]);
    assert_eq!(kinds(&one), [PacketKind::LockGranted, PacketKind::Complete]);
}

#[test]
fn a_lock_without_operations_and_a_promise_that_nobody_conflicts_send_nothing_for_the_lock() {
    let [zero, one] = passive(deferred(), Lock::Exclusive, |_| Ok(()));
    assert_eq!((zero.len(), one.len()), (0, 0));
    let sent = sent((2, deferred()), |window, rank| {
        if rank == Rank(0) {
            window.lock(Rank(1), Lock::Shared, Assert::NO_CHECK)?;
            window.put(&[1_u64], Rank(1), 0)?;
            window.unlock(Rank(1))?;
        }
        Ok(())
    });
    assert_eq!((kinds(&sent[0]), sent[0][0].flags), (vec![PacketKind::Put], PacketFlags::ACKNOWLEDGE));
    assert_eq!(kinds(&sent[1]), [PacketKind::Complete]);
}

#[test]
fn a_local_flush_of_puts_asks_for_nothing_but_the_lock_and_a_flush_once() {
    let [zero, one] = passive(deferred(), Lock::Shared, |window| {
        window.put(&[1_u64], Rank(1), 0)?;
        window.flush_local(Rank(1))?;
        window.put(&[1_u64], Rank(1), 1)?;
        window.flush(Rank(1))?;
        window.flush(Rank(1))
    });
    assert_eq!(kinds(&zero), [PacketKind::Put, PacketKind::Put, PacketKind::Unlock]);
    assert_eq!([zero[0].flags, zero[1].flags], [PacketFlags::LOCK_SHARED, PacketFlags::ACKNOWLEDGE]);
    assert_eq!(kinds(&one), [PacketKind::LockGranted, PacketKind::Complete]);
}

#[test]
fn a_layout_is_described_once_and_referred_to_from_then_on() {
    let layout = Layout::indexed(Element::U64, &[(0, 1), (5, 2), (9, 1)]).expect("a layout");
    let sent = sent((3, deferred()), |window, rank| {
        let data = [1_u64, 2, 3, 4];
        for round in 0..5 {
            window.fence(Assert::NO_PRECEDE)?;
            let source = Source { address: data.as_ptr().cast(), count: 4, layout: &Element::U64.layout() };
            let next = Rank::at((rank.index() + 1 + round % 2) % 3);
            let target = Target { rank: next, displacement: 16, count: 1, layout: &layout };
            // SAFETY: the data lives until the epoch has ended.
            unsafe { window.raw_put(source, target) }?;
            window.fence(Assert::NO_SUCCEED)?;
        }
        Ok(())
    });
    for sent in sent {
        assert_eq!(count(&sent, PacketKind::Put), 5);
        let described: Vec<Rank> =
            sent.iter().filter(|sent| sent.kind == PacketKind::Layout).map(|sent| sent.to).collect();
        assert_eq!(described.len(), 2, "once to each of two targets: {sent:?}");
        assert_ne!(described[0], described[1]);
    }
}

#[test]
fn long_data_goes_in_pieces_beside_batches_of_what_is_short() {
    let [zero, _] = passive(deferred(), Lock::Shared, |window| {
        for place in 0..100 {
            window.put(&[1_u64], Rank(1), place)?;
        }
        window.put_static(&LONG, Rank(1), 0)?;
        window.put(&[1_u64], Rank(1), 0)
    });
    assert_eq!(
        kinds(&zero),
        [PacketKind::LockRequest, PacketKind::Batch, PacketKind::Put, PacketKind::Put]
    );
    assert_eq!(zero[1].members.len(), 100);
}
