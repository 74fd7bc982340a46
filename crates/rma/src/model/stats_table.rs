//! The statistics of a job's windows by name: kept by each rank, added up over ranks, printed as one table.
//!
//! The idea: a window that ends is entered under its name. Windows with one name add up, and so do the counts
//! of one window at several ranks. A table travels as bytes ([`StatsTable::encode`]); the rank that prints
//! the table merges the tables of all ranks. A native program with [`STATS`] in its environment prints the
//! job's table at [`Job::finalize`](crate::Job::finalize); a binding merges the tables itself. Cost: nothing
//! before a window ends; a table of [`MAX_NAMES`] names has at most half a megabyte. When not to use: for the
//! counts of one window there is [`Window::stats`](crate::Window::stats).

use crate::model::{Amount, Medium, Rank, Stats, Verb, WindowStats};
use std::collections::BTreeMap;
use std::fmt;
use unisono_linux::clock::Duration;
use unisono_text::counted;

/// The environment variable that asks for the table of the job: set, not empty and not `0`.
pub const STATS: &str = "UNISONO_STATS";

/// The largest number of names in a table; windows with further names are entered under [`OTHERS`].
const MAX_NAMES: usize = 1000;
const OTHERS: &str = "(others)";
/// The longest name in a table (bytes); the rest is cut off.
const MAX_NAME_LENGTH: usize = 64;

/// The number of integers in an encoded row.
const NUMBERS: usize = 1 + 3 * 5 + Verb::ALL.len() * Medium::ALL.len() * 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StatsRow {
    /// Number of windows; the member 0 of a window counts it.
    windows: u64,
    stats: WindowStats,
}

/// The statistics of windows by name. `Display` prints the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsTable {
    rows: BTreeMap<String, StatsRow>,
    /// Number of ranks whose tables are in this one.
    ranks: u64,
}

impl StatsTable {
    /// Creates the table of one rank without windows. `default()` is the sum of no tables, which counts no
    /// rank.
    pub fn for_own_rank() -> Self {
        Self { rows: BTreeMap::new(), ranks: 1 }
    }

    /// Whether the environment asks for a table ([`STATS`]).
    pub fn is_wanted() -> bool {
        std::env::var_os(STATS).is_some_and(|value| !value.is_empty() && value != "0")
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns for each name the number of windows with that name, and their statistics. A window is counted
    /// by its member 0: a table without the part of that rank counts 0.
    pub fn rows(&self) -> impl Iterator<Item = (&str, u64, &WindowStats)> {
        self.rows.iter().map(|(name, row)| (name.as_str(), row.windows, &row.stats))
    }

    /// Enters a window of which this process is the member `rank`. Control characters in its name become
    /// question marks.
    pub fn add_window(&mut self, name: &str, rank: Rank, stats: WindowStats) {
        self.add(name, StatsRow { windows: u64::from(rank.index() == 0), stats });
    }

    pub fn merge(&mut self, other: &Self) {
        self.ranks += other.ranks;
        for (name, entered) in &other.rows {
            self.add(name, *entered);
        }
    }

    fn add(&mut self, name: &str, entered: StatsRow) {
        let mut kept: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        while kept.len() > MAX_NAME_LENGTH {
            kept.pop();
        }
        let name = if self.rows.len() < MAX_NAMES || self.rows.contains_key(&kept) {
            kept
        } else {
            OTHERS.to_owned()
        };
        let row = self.rows.entry(name).or_default();
        row.windows += entered.windows;
        row.stats += entered.stats;
    }

    /// Returns a table with all windows in one row.
    pub(crate) fn in_one_row(&self) -> Self {
        let mut in_one_row = Self { rows: BTreeMap::new(), ranks: self.ranks };
        self.rows.values().for_each(|entered| in_one_row.add(OTHERS, *entered));
        in_one_row
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.ranks.to_le_bytes().to_vec();
        for (name, entered) in &self.rows {
            bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
            numbers(entered).iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        bytes
    }

    /// Decodes the bytes that [`encode`](Self::encode) wrote. Returns `None` for any other bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (ranks, mut rest) = bytes.split_first_chunk::<8>()?;
        let mut stats_table = Self { rows: BTreeMap::new(), ranks: u64::from_le_bytes(*ranks) };
        while let Some((length, behind)) = rest.split_first_chunk::<8>() {
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (name, behind) = behind.split_at_checked(length)?;
            let (row, behind) = behind.split_at_checked(NUMBERS * 8)?;
            let (words, _) = row.as_chunks::<8>();
            let numbers: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            stats_table.add(std::str::from_utf8(name).ok()?, entered(&numbers));
            rest = behind;
        }
        rest.is_empty().then_some(stats_table)
    }
}

/// Returns a row's numbers: the number of windows, then the counts of each synchronization and of each verb
/// by each medium.
fn numbers(row: &StatsRow) -> Vec<u64> {
    let mut all = vec![row.windows];
    for Stats { epochs, operations, bytes, spun, blocked } in
        [row.stats.fence, row.stats.pscw, row.stats.passive]
    {
        all.extend([epochs, operations, bytes, spun.as_nanos(), blocked.as_nanos()]);
    }
    for (verb, medium) in cells() {
        let Amount { operations, bytes } = row.stats.traffic.get(verb, medium);
        all.extend([operations, bytes]);
    }
    all
}

/// Decodes the numbers that [`numbers`] wrote.
fn entered(numbers: &[u64]) -> StatsRow {
    let mut numbers = numbers.iter().copied();
    let mut next = || numbers.next().unwrap_or(0);
    let mut row = StatsRow { windows: next(), ..StatsRow::default() };
    for stats in [&mut row.stats.fence, &mut row.stats.pscw, &mut row.stats.passive] {
        (stats.epochs, stats.operations, stats.bytes) = (next(), next(), next());
        (stats.spun, stats.blocked) = (Duration::from_nanos(next()), Duration::from_nanos(next()));
    }
    for (verb, medium) in cells() {
        row.stats.traffic.add(verb, medium, Amount { operations: next(), bytes: next() });
    }
    row
}

fn cells() -> impl Iterator<Item = (Verb, Medium)> {
    Verb::ALL.into_iter().flat_map(|verb| Medium::ALL.map(|medium| (verb, medium)))
}

fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        (value, unit) = (value / 1e3, unit + 1);
    }
    let digits = usize::from(unit > 0 && value < 99.95);
    format!("{value:.digits$} {}", units[unit])
}

fn time(length: Duration) -> String {
    let nanos = length.as_nanos();
    match nanos {
        0..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

/// For each name the table has the operations of each verb by medium, then the epochs and waits of each
/// synchronization. Zeros are dashes.
impl fmt::Display for StatsTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let together = if self.ranks == 1 { "" } else { " together" };
        let of = counted(self.ranks, "rank") + together;
        if self.rows.is_empty() {
            return writeln!(f, "windows of {of}: none");
        }
        write!(f, "windows of {of}\n{:19}", "  operations")?;
        for medium in Medium::ALL {
            write!(f, " {:>19}", medium.name())?;
        }
        writeln!(f)?;
        for (name, row) in &self.rows {
            let times = if row.windows <= 1 { String::new() } else { format!(" ({} times)", row.windows) };
            writeln!(f, "{name}{times}")?;
            for verb in Verb::ALL {
                operations(f, verb, row)?;
            }
            synchronizations(f, row)?;
        }
        Ok(())
    }
}

fn operations(f: &mut fmt::Formatter<'_>, verb: Verb, row: &StatsRow) -> fmt::Result {
    let amounts = Medium::ALL.map(|medium| row.stats.traffic.get(verb, medium));
    if amounts.iter().all(|amount| amount.operations == 0) {
        return Ok(());
    }
    write!(f, "  {:17}", verb.name())?;
    for Amount { operations, bytes } in amounts {
        match operations {
            0 => write!(f, " {:>19}", "-")?,
            _ => write!(f, " {operations:>10} {:>8}", size(bytes))?,
        }
    }
    writeln!(f)
}

fn synchronizations(f: &mut fmt::Formatter<'_>, row: &StatsRow) -> fmt::Result {
    let kinds = [("fence", row.stats.fence), ("pscw", row.stats.pscw), ("passive", row.stats.passive)];
    for (kind, stats) in kinds.into_iter().filter(|(_, stats)| stats.epochs + stats.operations > 0) {
        let (spun, blocked) = (time(stats.spun), time(stats.blocked));
        let epochs = stats.epochs;
        writeln!(f, "  {kind:7} {epochs:>20} epochs, waited {spun} spinning, {blocked} asleep")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stats(puts: u64) -> WindowStats {
        let mut stats = WindowStats::default();
        stats.traffic.add(Verb::Put, Medium::Stores, Amount { operations: puts, bytes: 8 * puts });
        stats.fence = Stats { epochs: 2, operations: puts, bytes: 8 * puts, ..Stats::default() };
        stats
    }

    #[test]
    fn ranks_and_windows_of_one_name_add_up_in_one_row() {
        let (mut sum, mut other) = (StatsTable::for_own_rank(), StatsTable::for_own_rank());
        sum.add_window("ghosts", Rank(0), stats(3));
        other.add_window("ghosts", Rank(1), stats(4));
        other.add_window("ghosts", Rank(0), stats(1));
        other.add_window("halo", Rank(1), WindowStats::default());
        sum.merge(&other);
        let row = &sum.rows["ghosts"];
        assert_eq!((row.windows, row.stats.fence.epochs), (2, 6));
        assert_eq!(row.stats.traffic.get(Verb::Put, Medium::Stores), Amount { operations: 8, bytes: 64 });
        assert_eq!((sum.rows.len(), sum.ranks), (2, 2));
    }

    #[test]
    fn the_table_has_a_line_for_each_kind_that_was_used() {
        let mut stats_table = StatsTable::for_own_rank();
        let mut used = stats(1200);
        used.traffic.add(Verb::Get, Medium::Kernel, Amount { operations: 7, bytes: 2_500_000 });
        used.fence.spun = Duration::from_micros(1234);
        stats_table.add_window("ghosts", Rank(0), used);
        assert_eq!(
            stats_table.to_string(),
            "windows of 1 rank\n\
             \x20 operations                  by stores       by the kernel         by messages\n\
             ghosts\n\
             \x20 put                     1200   9.6 kB                   -                   -\n\
             \x20 get                                 -          7   2.5 MB                   -\n\
             \x20 fence                      2 epochs, waited 1.2 ms spinning, 0.0 us asleep\n"
        );
        assert_eq!(StatsTable::for_own_rank().to_string(), "windows of 1 rank: none\n");
    }

    #[test]
    fn any_number_of_names_takes_bounded_room() {
        let mut stats_table = StatsTable::for_own_rank();
        (0..3 * MAX_NAMES).for_each(|name| {
            stats_table.add_window(&format!("{name}{}", "\u{1b}x".repeat(99)), Rank(0), stats(1));
        });
        assert!(stats_table.rows.len() == MAX_NAMES + 1 && stats_table.encode().len() < 512 << 10);
        assert_eq!(stats_table.rows[OTHERS].windows, 2 * MAX_NAMES as u64);
        assert!(
            stats_table.rows.keys().all(|name| name.len() <= MAX_NAME_LENGTH && !name.contains('\u{1b}'))
        );
    }

    proptest! {
        #[test]
        fn a_ledger_survives_the_journey(
            names in proptest::collection::vec("[a-z]{0,9}", 0..6),
            counts in proptest::collection::vec(0_u64..1 << 40, NUMBERS),
        ) {
            let mut sent = StatsTable::for_own_rank();
            names.iter().for_each(|name| sent.add_window(name, Rank(0), entered(&counts).stats));
            prop_assert_eq!(StatsTable::decode(&sent.encode()), Some(sent));
        }

        #[test]
        fn any_bytes_decode_or_do_not(bytes in proptest::collection::vec(any::<u8>(), 0..900)) {
            let _ = StatsTable::decode(&bytes);
        }
    }
}
