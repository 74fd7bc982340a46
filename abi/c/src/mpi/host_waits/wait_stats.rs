//! The cost of a rank's waits, by call; summed over the ranks and printed as a table or as JSON.
//!
//! The idea: with `--stats` the length of each wait is recorded. A few crowded waits (see [`super`]) are left
//! to the host MPI and recorded as samples. The gain is the mean of the samples less the mean of the other
//! crowded waits, times the number of these waits. Samples may take at most 1/[`SAMPLED`] of a rank's time,
//! and long waits are sampled rarely. Cost: two clock readings and a mutex for each wait; nothing without
//! `--stats`.

use super::{LeftReason, WaitCall};
use crate::mpi::wanted;
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use unisono_linux::clock::{Duration, Instant, now};
use unisono_text::counted;

/// Samples may take 1/50 (2 %) of a rank's time, so that sampling hardly changes the measured program.
const SAMPLED: u64 = 50;
/// Minimum number of samples of a call: the mean of fewer samples is meaningless.
const MIN_SAMPLES: u64 = 3;
/// Maximum number of ranks with a row in the table, because a screen has 24 rows. The JSON has all ranks.
const MAX_LINES: usize = 16;

/// The names of the calls, in the order of [`WaitCall`].
const CALLS: [&str; 30] = [
    "MPI_Recv",
    "MPI_Send",
    "MPI_Sendrecv",
    "MPI_Wait",
    "MPI_Waitall",
    "MPI_Waitany",
    "MPI_Waitsome",
    "MPI_Probe",
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Allreduce",
    "MPI_Allgather",
    "MPI_Allgatherv",
    "MPI_Alltoall",
    "MPI_Alltoallv",
    "MPI_Alltoallw",
    "MPI_Gather",
    "MPI_Gatherv",
    "MPI_Scatter",
    "MPI_Scatterv",
    "MPI_Reduce",
    "MPI_Scan",
    "MPI_Exscan",
    "MPI_Reduce_scatter",
    "MPI_Reduce_scatter_block",
    "MPI_Neighbor_allgather",
    "MPI_Neighbor_allgatherv",
    "MPI_Neighbor_alltoall",
    "MPI_Neighbor_alltoallv",
    "MPI_Neighbor_alltoallw",
];

/// The words of the table for calls that were left to the host MPI, in the order of [`LeftReason`].
const LEFT_REASONS: [&str; 4] = [
    "before its order of sums was known",
    "its order of sums is unknown",
    "not for this type, operation or length",
    "NaN, or a least or greatest number of -0",
];

/// A completed wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedWait {
    pub(super) crowded: bool,
    pub(super) waited: Duration,
    pub(super) slept: Duration,
}

/// The waits of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CallStats {
    calls: u64,
    waited: Duration,
    slept: Duration,
    crowded: u64,
    crowded_waited: Duration,
    samples: u64,
    sampled: Duration,
    /// Calls left to the host MPI, by [`LeftReason`].
    left: [u64; LEFT_REASONS.len()],
}

/// The number of integers of a [`CallStats`] in its encoded form.
const NUMBERS: usize = 7 + LEFT_REASONS.len();

impl CallStats {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.waited += other.waited;
        self.slept += other.slept;
        self.crowded += other.crowded;
        self.crowded_waited += other.crowded_waited;
        self.samples += other.samples;
        self.sampled += other.sampled;
        self.left.iter_mut().zip(other.left).for_each(|(left, other)| *left += other);
    }

    fn numbers(self) -> [u64; NUMBERS] {
        let Self { calls, waited, slept, crowded, crowded_waited, samples, sampled, left: [a, b, c, d] } =
            self;
        let [waited, slept, crowded_waited, sampled] =
            [waited, slept, crowded_waited, sampled].map(Duration::as_nanos);
        [calls, waited, slept, crowded, crowded_waited, samples, sampled, a, b, c, d]
    }

    fn from_numbers(
        [calls, waited, slept, crowded, crowded_waited, samples, sampled, left @ ..]: [u64; NUMBERS],
    ) -> Self {
        let [waited, slept, crowded_waited, sampled] =
            [waited, slept, crowded_waited, sampled].map(Duration::from_nanos);
        Self { calls, waited, slept, crowded, crowded_waited, samples, sampled, left }
    }

    /// Returns the mean length of the host MPI's own crowded waits, in seconds, if enough were sampled.
    fn host_mean(self) -> Option<f64> {
        (self.samples >= MIN_SAMPLES).then(|| self.sampled.as_secs_f64() / self.samples as f64)
    }

    /// Returns the seconds by which the host MPI's own waits would have taken longer; negative if they would
    /// have been shorter.
    fn gained(self) -> Option<f64> {
        Some(self.host_mean()? * self.crowded as f64 - self.crowded_waited.as_secs_f64())
    }
}

/// The waits of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitStats {
    rank: u64,
    /// The time from the first recorded wait to the end of MPI.
    lasted: Duration,
    calls: [CallStats; CALLS.len()],
}

#[derive(Debug)]
struct OwnWaitStats {
    begun: Instant,
    wait_stats: WaitStats,
}

static OWN: Mutex<Option<OwnWaitStats>> = Mutex::new(None);

fn own() -> MutexGuard<'static, Option<OwnWaitStats>> {
    // a panic leaves no entry half changed: an entry is changed by a few additions, which do not panic
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn is_wanted() -> bool {
    wanted::is_wanted()
}

/// Changes the record. The first change is made after a wait of the length `waited`, with which the record
/// begins.
fn change<T>(waited: Duration, change: impl FnOnce(&mut OwnWaitStats) -> T) -> T {
    let mut own = own();
    let begin = || OwnWaitStats { begun: now() - waited, wait_stats: WaitStats::new(0) };
    change(own.get_or_insert_with(begin))
}

/// Records a wait, and why it was left to the host MPI, if it was.
pub(super) fn record(
    call: WaitCall,
    EndedWait { crowded, waited, slept }: EndedWait,
    left: Option<LeftReason>,
) {
    let mut account = CallStats { calls: 1, waited, slept, ..CallStats::default() };
    if crowded {
        (account.crowded, account.crowded_waited) = (1, waited);
    }
    if let Some(why) = left {
        account.left[why as usize] = 1;
    }
    change(waited, |own| own.wait_stats.calls[call as usize].add(account));
}

/// Records a sample. It also counts as a call with its waiting time, so that the table's sums cover all waits
/// of the program.
pub(super) fn record_sample(call: WaitCall, sampled: Duration) {
    let account = CallStats { calls: 1, waited: sampled, samples: 1, sampled, ..CallStats::default() };
    change(sampled, |own| own.wait_stats.calls[call as usize].add(account));
}

pub(super) fn sample_is_due() -> bool {
    change(Duration::ZERO, |own| {
        let sampled: Duration = own.wait_stats.calls.iter().map(|account| account.sampled).sum();
        sampled * SAMPLED < now() - own.begun
    })
}

impl WaitStats {
    fn new(rank: u64) -> Self {
        Self { rank, lasted: Duration::ZERO, calls: [CallStats::default(); CALLS.len()] }
    }

    /// Takes the record of this process's waits, and leaves none.
    pub(crate) fn take(rank: u64) -> Self {
        own().take().map_or_else(
            || Self::new(rank),
            |OwnWaitStats { begun, wait_stats }| Self { rank, lasted: now() - begun, ..wait_stats },
        )
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let accounts = self.calls.iter().flat_map(|account| account.numbers());
        [self.rank, self.lasted.as_nanos()].into_iter().chain(accounts).flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes the result of [`encode`](Self::encode). Returns `None` if the bytes are not such a result; any
    /// input is safe.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let numbers: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (&[rank, lasted], accounts) = numbers.split_first_chunk::<2>()?;
        let (accounts, behind) = accounts.as_chunks::<NUMBERS>();
        if !rest.is_empty() || !behind.is_empty() || accounts.len() != CALLS.len() {
            return None;
        }
        let mut wait_stats = Self { lasted: Duration::from_nanos(lasted), ..Self::new(rank) };
        for (account, numbers) in wait_stats.calls.iter_mut().zip(accounts) {
            *account = CallStats::from_numbers(*numbers);
        }
        Some(wait_stats)
    }

    fn sum(&self) -> CallStats {
        total(self.calls.iter())
    }

    fn json(&self) -> Value {
        json!({ "rank": self.rank, "seconds": self.lasted.as_secs_f64(), "waits": accounts(&self.calls) })
    }
}

fn total<'a>(accounts: impl Iterator<Item = &'a CallStats>) -> CallStats {
    accounts.fold(CallStats::default(), |mut sum, account| {
        sum.add(*account);
        sum
    })
}

fn accounts(calls: &[CallStats; CALLS.len()]) -> Vec<Value> {
    let used = CALLS.into_iter().zip(calls).filter(|(_, account)| account.calls > 0);
    used.map(|(call, account)| {
        json!({
            "call": call,
            "calls": account.calls,
            "waited_s": account.waited.as_secs_f64(),
            "asleep_s": account.slept.as_secs_f64(),
            "crowded": account.crowded + account.samples,
            "crowded_waited_s": account.crowded_waited.as_secs_f64(),
            "host_samples": account.samples,
            "host_sampled_s": account.sampled.as_secs_f64(),
            "gained_s": account.gained(),
            "left_to_mpi": account.left.iter().sum::<u64>(),
        })
    })
    .collect()
}

/// The waits of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobWaits(Vec<WaitStats>);

impl JobWaits {
    pub(crate) fn push(&mut self, wait_stats: WaitStats) {
        self.0.push(wait_stats);
    }

    fn by_call(&self) -> [CallStats; CALLS.len()] {
        std::array::from_fn(|call| total(self.0.iter().map(|wait_stats| &wait_stats.calls[call])))
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "format": "unisono-mpi-1",
            "waits": accounts(&self.by_call()),
            "ranks": self.0.iter().map(WaitStats::json).collect::<Vec<_>>(),
        })
    }
}

fn time(seconds: f64) -> String {
    match seconds.abs() {
        short if short < 1e-3 => format!("{:.1} us", seconds * 1e6),
        middling if middling < 1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.0} %", 100.0 * part / whole) } else { "-".to_owned() }
}

/// Writes the rows of the calls, then the rows of the ranks.
impl fmt::Display for JobWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let together = if self.0.len() == 1 { "" } else { " together" };
        let of = counted(self.0.len(), "rank") + together;
        let calls = self.by_call();
        if calls.iter().all(|account| account.calls == 0) {
            return writeln!(f, "waits of {of}: none");
        }
        writeln!(f, "waits of {of}")?;
        let head = ["calls", "waited", "asleep", "crowded", "a wait", "MPI's own", "saved"];
        cells(f, "call", head)?;
        let used = || CALLS.into_iter().zip(calls).filter(|(_, account)| account.calls > 0);
        for (call, account) in used() {
            row(f, call, account)?;
        }
        writeln!(f, "  waited includes asleep; MPI's own: a wait that was left to the MPI to compare")?;
        for (call, account) in used() {
            for (left, why) in account.left.into_iter().zip(LEFT_REASONS).filter(|(left, _)| *left > 0) {
                writeln!(f, "  {call}: {left} left to the MPI: {why}")?;
            }
        }
        let mut ranks: Vec<&WaitStats> = self.0.iter().collect();
        ranks.sort_by_key(|wait_stats| (std::cmp::Reverse(wait_stats.sum().waited), wait_stats.rank));
        ranks.truncate(MAX_LINES);
        ranks.sort_by_key(|wait_stats| wait_stats.rank);
        for wait_stats in &ranks {
            let sum = wait_stats.sum();
            let (waited, lasted) = (sum.waited.as_secs_f64(), wait_stats.lasted.as_secs_f64());
            let crowded = percent((sum.crowded + sum.samples) as f64, sum.calls as f64);
            let share = percent(waited, lasted);
            let (waited, lasted, rank) = (time(waited), time(lasted), wait_stats.rank);
            writeln!(
                f,
                "  rank {rank} waited {waited} of {lasted} ({share}); {crowded} of its waits crowded"
            )?;
        }
        if ranks.len() < self.0.len() {
            let left = self.0.len() - ranks.len();
            writeln!(f, "  {} that waited less: --json FILE", counted(left, "rank"))?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, account: CallStats) -> fmt::Result {
    let ours = account.calls - account.samples;
    let own = account.waited - account.sampled;
    let each = if ours > 0 { time(own.as_secs_f64() / ours as f64) } else { "-".to_owned() };
    let crowded = percent((account.crowded + account.samples) as f64, account.calls as f64);
    let host = account.host_mean().map_or_else(|| "-".to_owned(), time);
    let gained = account.gained().map_or_else(|| "-".to_owned(), time);
    let (waited, asleep) = (time(account.waited.as_secs_f64()), time(account.slept.as_secs_f64()));
    let calls = account.calls.to_string();
    cells(f, name, [calls, waited, asleep, crowded, each, host, gained])
}

/// Writes a line of 80 columns at most. A long name leaves less room for the number of calls.
fn cells(f: &mut fmt::Formatter<'_>, name: &str, cells: [impl fmt::Display; 7]) -> fmt::Result {
    let [calls, others @ ..] = cells;
    let room = 21_usize.saturating_sub(name.len());
    write!(f, "  {name} {calls:>room$}")?;
    others.iter().zip([9, 8, 7, 8, 10, 8]).try_for_each(|(cell, width)| write!(f, " {cell:>width$}"))?;
    writeln!(f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wait_stats(rank: u64, call: WaitCall, account: CallStats) -> WaitStats {
        let mut wait_stats = WaitStats { lasted: Duration::SECOND, ..WaitStats::new(rank) };
        wait_stats.calls[call as usize] = account;
        wait_stats
    }

    fn account() -> CallStats {
        CallStats {
            calls: 1003,
            waited: Duration::from_millis(11),
            slept: Duration::ZERO,
            crowded: 1000,
            crowded_waited: Duration::from_millis(2),
            samples: 3,
            sampled: Duration::from_millis(9),
            left: [6, 0, 0, 0],
        }
    }

    #[test]
    fn the_table_says_what_was_gained_against_samples_of_the_hosts_own_waits() {
        let mut job = JobWaits::default();
        job.push(wait_stats(0, WaitCall::Recv, account()));
        job.push(wait_stats(1, WaitCall::Recv, CallStats::default()));
        assert_eq!(
            job.to_string(),
            "waits of 2 ranks together\n\
             \x20 call             calls    waited   asleep crowded   a wait  MPI's own    saved\n\
             \x20 MPI_Recv          1003   11.0 ms   0.0 us   100 %   2.0 us     3.0 ms   3.00 s\n\
             \x20 waited includes asleep; MPI's own: a wait that was left to the MPI to compare\n\
             \x20 MPI_Recv: 6 left to the MPI: before its order of sums was known\n\
             \x20 rank 0 waited 11.0 ms of 1.00 s (1 %); 100 % of its waits crowded\n\
             \x20 rank 1 waited 0.0 us of 1.00 s (0 %); - of its waits crowded\n"
        );
        let json = job.json();
        assert_eq!(json["waits"][0]["call"], "MPI_Recv");
        let gained = json["waits"][0]["gained_s"].as_f64().expect("a number");
        assert!((gained - 2.998).abs() < 1e-9, "{gained}");
        assert_eq!(json["ranks"].as_array().map(Vec::len), Some(2));
        assert_eq!(json["ranks"][1]["waits"].as_array().map(Vec::len), Some(0));
    }

    #[test]
    fn few_samples_say_nothing_and_a_loss_is_shown_as_one() {
        let few = CallStats { samples: MIN_SAMPLES - 1, ..account() };
        assert_eq!(few.gained(), None);
        let loss = CallStats { sampled: Duration::from_nanos(3), ..account() };
        assert!(loss.gained().is_some_and(|gained| gained < 0.0));
    }

    #[test]
    fn of_many_ranks_those_that_waited_longest_have_a_line() {
        let mut job = JobWaits::default();
        for rank in 0..20 {
            job.push(wait_stats(
                rank,
                WaitCall::Wait,
                CallStats { waited: Duration::from_micros(rank), ..account() },
            ));
        }
        let text = job.to_string();
        assert!(
            !text.contains("rank 3 ") && text.contains("rank 4 ") && text.contains("rank 19 "),
            "{text}"
        );
        assert!(text.ends_with("  4 ranks that waited less: --json FILE\n"), "{text}");
    }

    #[test]
    fn without_waits_the_table_is_one_line() {
        let mut job = JobWaits::default();
        job.push(WaitStats::new(0));
        assert_eq!(job.to_string(), "waits of 1 rank: none\n");
    }

    proptest! {
        #[test]
        fn a_ledger_survives_the_journey(numbers in proptest::collection::vec(0_u64..1 << 40, NUMBERS)) {
            let numbers: [u64; NUMBERS] = numbers.try_into().expect("that many were drawn");
            let sent = wait_stats(7, WaitCall::Probe, CallStats::from_numbers(numbers));
            prop_assert_eq!(WaitStats::decode(&sent.encode()), Some(sent));
        }

        #[test]
        fn any_bytes_decode_or_do_not(bytes in proptest::collection::vec(any::<u8>(), 0..900)) {
            let _ = WaitStats::decode(&bytes);
        }
    }
}
