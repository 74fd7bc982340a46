//! Decides how a job ends. It is a state machine that takes times and events as input and returns actions.
//!
//! ```text
//!             a rank fails          grace over            grace over
//!   Running -------------> Failing ------------> Asked --------------> Killed
//!      |     (print it)              (SIGTERM)      ^      (SIGKILL)      ^
//!      +------------- time limit (SIGTERM) ---------+                     |
//!      the first signal is passed on; a second signal: -------------------+
//! ```
//!
//! During the grace period before SIGTERM, the other ranks detect within a second that a peer is gone, and
//! can still print messages about it. The first signal is only passed on, because the program decides what
//! the signal means, and may need time to save its data.
//!
//! Cost: negligible. There is no alternative: a job of this launcher has no other way to end. Reference:
//! wait(2), signal(7); exit codes as in POSIX shells (128 + signal) and timeout(1) (124).

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use unisono_linux::process::Signal;
use unisono_text::counted;

/// The launcher's exit code after a time limit.
pub const TIMED_OUT: u8 = 124;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitOutcome {
    /// The process exited with this exit code.
    Exited(i32),
    /// The signal with this number killed the process.
    Signalled(i32),
    /// A host whose helper did not report how its ranks ended: the launch command exited with this exit code.
    LostByExit(i32),
    /// A host whose helper did not report how its ranks ended: the signal with this number killed the launch
    /// command.
    LostBySignal(i32),
}

impl ExitOutcome {
    /// Converts the kernel's status of an ended process.
    pub fn from_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => ExitOutcome::Exited(code),
            (None, signal) => ExitOutcome::Signalled(signal.unwrap_or(0)),
        }
    }

    pub fn is_failure(self) -> bool {
        self != ExitOutcome::Exited(0)
    }

    /// Returns the exit code that a shell would report.
    pub fn code(self) -> u8 {
        match self {
            ExitOutcome::Exited(code) => u8::try_from(code).unwrap_or(1),
            ExitOutcome::Signalled(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            ExitOutcome::LostByExit(_) | ExitOutcome::LostBySignal(_) => 1,
        }
    }
}

impl fmt::Display for ExitOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitOutcome::LostByExit(code) => {
                write!(f, "is lost: its launch command ended with exit code {code}")
            }
            ExitOutcome::LostBySignal(signal) => {
                write!(f, "is lost: its launch command {}", ExitOutcome::Signalled(*signal))
            }
            ExitOutcome::Exited(code) => write!(f, "ended with exit code {code}"),
            ExitOutcome::Signalled(signal) => match name(*signal) {
                Some(name) => write!(f, "was ended by {name} (signal {signal})"),
                None => write!(f, "was ended by signal {signal}"),
            },
        }
    }
}

fn name(signal: i32) -> Option<&'static str> {
    // signals that kill programs, by their numbers on x86 and ARM; on MIPS, signal 7 is not SIGBUS and gets
    // no name, and signal 24 is not SIGXCPU but kills no program
    const NAMES: [(i32, &str); 13] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
    ];
    let same = !cfg!(any(target_arch = "mips", target_arch = "mips64"));
    let found = NAMES.iter().find(|(number, _)| *number == signal).map(|(_, name)| *name);
    found.or(if same && signal == 7 { Some("SIGBUS") } else { None })
}

/// An action for the launcher to take now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this signal to every remaining rank.
    Signal(Signal),
    Print(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TerminationPhase {
    Running,
    /// A rank has failed. The others have until this time to end by themselves.
    Failing(Duration),
    /// The other ranks were ordered to end (SIGTERM) and have until this time.
    Asked(Duration),
    Killed,
}

/// The state machine. Times count from the start of the job. Its members are the job's ranks, or its hosts.
#[derive(Debug)]
pub struct Termination {
    /// The word for a member: "rank" or "host".
    word: &'static str,
    names: Vec<String>,
    phase: TerminationPhase,
    grace: Duration,
    limit: Option<Duration>,
    remaining: Vec<usize>,
    first_failure: Option<(usize, ExitOutcome)>,
    passed_on: Option<Signal>,
    timed_out: bool,
}

/// Whether a job goes on after a signal.
pub(crate) fn lets_run(signal: Signal) -> bool {
    matches!(signal, Signal::User1 | Signal::User2 | Signal::WindowChange | Signal::Continue)
}

impl Termination {
    /// Makes the state of a job of these members, all running.
    pub fn new(word: &'static str, names: Vec<String>, grace: Duration, limit: Option<Duration>) -> Self {
        Self {
            remaining: (0..names.len()).collect(),
            word,
            names,
            phase: TerminationPhase::Running,
            grace,
            limit,
            first_failure: None,
            passed_on: None,
            timed_out: false,
        }
    }

    pub fn is_over(&self) -> bool {
        self.remaining.is_empty()
    }

    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    pub fn first_failure(&self) -> Option<usize> {
        self.first_failure.map(|(rank, _)| rank)
    }

    /// Returns the launcher's exit code.
    pub fn code(&self) -> u8 {
        if self.timed_out { TIMED_OUT } else { self.first_failure.map_or(0, |(_, how)| how.code()) }
    }

    /// Returns when [`on_timeout`](Self::on_timeout) has to be called next, unless an event comes before.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.phase {
            TerminationPhase::Running => self.limit,
            TerminationPhase::Failing(until) => Some(self.limit.map_or(until, |limit| until.min(limit))),
            TerminationPhase::Asked(until) => Some(until),
            TerminationPhase::Killed => None,
        }
    }

    /// Handles the failure of a member: of the rank itself, or of a rank on the host, which the host's helper
    /// has reported to the user. Returns whether it is the job's first failure.
    pub fn on_failure(&mut self, now: Duration, member: usize, how: ExitOutcome) -> bool {
        let first = self.first_failure.is_none();
        if first {
            self.first_failure = Some((member, how));
            if self.phase == TerminationPhase::Running {
                self.phase = TerminationPhase::Failing(now + self.grace);
            }
        }
        first
    }

    pub fn on_exit(&mut self, now: Duration, member: usize, process: u32, how: ExitOutcome) -> Vec<Action> {
        self.remaining.retain(|remaining| *remaining != member);
        let first = how.is_failure() && self.on_failure(now, member, how);
        // When a host dies, its connections break before its launch command ends. So ranks on other hosts may
        // have failed first, and only the loss of the host explains why; it is reported, too.
        let lost = matches!(how, ExitOutcome::LostByExit(_) | ExitOutcome::LostBySignal(_))
            && matches!(self.phase, TerminationPhase::Running | TerminationPhase::Failing(_));
        if !first && !lost {
            return Vec::new();
        }
        // a member that was ordered to end and did so is not reported
        let expected = self.timed_out
            || self.passed_on.is_some_and(|signal| how == ExitOutcome::Signalled(signal.number()));
        if expected {
            return Vec::new();
        }
        let others = match self.remaining.as_slice() {
            [] => String::new(),
            _ if !first => String::new(),
            _ => format!("; the others are given {:?} to end", self.grace),
        };
        vec![Action::Print(format!("{} {} (process {process}) {how}{others}", self.word, self.names[member]))]
    }

    /// Handles a signal that the launcher has received.
    pub fn on_signal(&mut self, signal: Signal) -> Vec<Action> {
        // signals that do not ask for the end are passed on every time
        if lets_run(signal) {
            return vec![Action::Signal(signal)];
        }
        if self.passed_on.is_none() {
            self.passed_on = Some(signal);
            return vec![Action::Signal(signal)];
        }
        self.kill("a second signal")
    }

    pub fn on_timeout(&mut self, now: Duration) -> Vec<Action> {
        if self.limit.is_some_and(|limit| now >= limit)
            && matches!(self.phase, TerminationPhase::Running | TerminationPhase::Failing(_))
        {
            self.timed_out = self.first_failure.is_none();
            self.phase = TerminationPhase::Asked(now + self.grace);
            let reason = format!("the time limit of {:?} has passed", self.limit.unwrap_or_default());
            return vec![
                Action::Print(format!("{reason}; telling {} to end", self.remaining_members())),
                Action::Signal(Signal::Terminate),
            ];
        }
        match self.phase {
            TerminationPhase::Failing(until) if now >= until => {
                self.phase = TerminationPhase::Asked(now + self.grace);
                let text = format!("telling {} to end", self.remaining_members());
                vec![Action::Print(text), Action::Signal(Signal::Terminate)]
            }
            TerminationPhase::Asked(until) if now >= until => {
                let who = if self.remaining.len() == 1 { "it" } else { "they" };
                self.kill(&format!("{who} did not end when told"))
            }
            _ => Vec::new(),
        }
    }

    fn kill(&mut self, why: &str) -> Vec<Action> {
        self.phase = TerminationPhase::Killed;
        vec![
            Action::Print(format!("killing {}: {why}", self.remaining_members())),
            Action::Signal(Signal::Kill),
        ]
    }

    /// Describes the remaining members: "rank 3", "ranks 0, 1, 2", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92
    /// others".
    fn remaining_members(&self) -> String {
        const MAX_NAMED: usize = 8;
        let some: Vec<String> =
            self.remaining.iter().take(MAX_NAMED).map(|member| self.names[*member].clone()).collect();
        let word = format!("{}{}", self.word, if self.remaining.len() == 1 { "" } else { "s" });
        match self.remaining.len().saturating_sub(MAX_NAMED) {
            0 => format!("{word} {}", some.join(", ")),
            others => format!("{word} {} and {}", some.join(", "), counted(others, "other")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ranks(count: usize, grace: Duration, limit: Option<Duration>) -> Termination {
        Termination::new("rank", (0..count).map(|rank| rank.to_string()).collect(), grace, limit)
    }

    fn signals(actions: &[Action]) -> Vec<Signal> {
        let as_signal = |action: &Action| match action {
            Action::Signal(signal) => Some(*signal),
            Action::Print(_) => None,
        };
        actions.iter().filter_map(as_signal).collect()
    }

    #[test]
    fn the_first_failure_decides_and_the_others_are_asked_and_then_killed() {
        let mut termination = ranks(3, GRACE, None);
        assert_eq!(termination.next_deadline(), None);
        let actions = termination.on_exit(at(1), 1, 77, ExitOutcome::Exited(3));
        let [Action::Print(text)] = actions.as_slice() else { panic!("{actions:?}") };
        assert!(text.contains("rank 1 (process 77) ended with exit code 3"), "{text}");
        assert_eq!(termination.next_deadline(), Some(at(3)));
        assert_eq!(termination.on_timeout(at(2)), []);
        assert_eq!(signals(&termination.on_timeout(at(3))), [Signal::Terminate]);
        assert_eq!(termination.on_exit(at(4), 0, 76, ExitOutcome::Signalled(15)), []);
        assert_eq!(termination.next_deadline(), Some(at(5)));
        assert_eq!(signals(&termination.on_timeout(at(5))), [Signal::Kill]);
        assert_eq!(termination.on_exit(at(5), 2, 78, ExitOutcome::Signalled(9)), []);
        assert!(termination.is_over());
        assert_eq!((termination.code(), termination.next_deadline()), (3, None));
    }

    #[test]
    fn one_who_is_done_early_is_no_failure() {
        let mut termination = ranks(2, GRACE, None);
        assert_eq!(termination.on_exit(at(1), 0, 7, ExitOutcome::Exited(0)), []);
        assert_eq!(termination.next_deadline(), None);
        assert_eq!(termination.on_exit(at(9), 1, 8, ExitOutcome::Exited(0)), []);
        assert_eq!((termination.is_over(), termination.code()), (true, 0));
    }

    #[test]
    fn a_first_signal_is_passed_on_and_a_second_one_kills() {
        let mut termination = ranks(2, GRACE, None);
        for signal in [Signal::User1, Signal::WindowChange, Signal::Continue] {
            assert_eq!(termination.on_signal(signal), [Action::Signal(signal)]);
        }
        assert_eq!(termination.on_signal(Signal::Interrupt), [Action::Signal(Signal::Interrupt)]);
        assert_eq!(termination.next_deadline(), None, "the program may take its time");
        assert_eq!(signals(&termination.on_signal(Signal::Terminate)), [Signal::Kill]);
    }

    #[test]
    fn who_ends_by_the_signal_that_was_passed_on_is_not_announced() {
        let mut termination = ranks(2, GRACE, None);
        termination.on_signal(Signal::Interrupt);
        assert_eq!(termination.on_exit(at(1), 1, 9, ExitOutcome::Signalled(2)), []);
        assert_eq!(signals(&termination.on_timeout(at(3))), [Signal::Terminate], "the one left is asked");
        assert_eq!(termination.code(), 130);
    }

    #[test]
    fn a_time_limit_asks_then_kills_and_has_an_exit_code_of_its_own() {
        let mut termination = ranks(1, GRACE, Some(at(10)));
        assert_eq!(termination.next_deadline(), Some(at(10)));
        assert_eq!(signals(&termination.on_timeout(at(10))), [Signal::Terminate]);
        assert_eq!(signals(&termination.on_timeout(at(12))), [Signal::Kill]);
        assert_eq!(termination.on_exit(at(12), 0, 5, ExitOutcome::Signalled(9)), []);
        assert_eq!((termination.code(), termination.timed_out()), (TIMED_OUT, true));
    }

    #[test]
    fn a_failure_before_the_time_limit_keeps_its_code() {
        let mut termination = ranks(2, at(20), Some(at(10)));
        termination.on_exit(at(9), 0, 5, ExitOutcome::Signalled(11));
        assert_eq!(signals(&termination.on_timeout(at(10))), [Signal::Terminate]);
        assert_eq!((termination.code(), termination.timed_out()), (139, false));
    }

    #[test]
    fn a_lost_host_is_named_and_is_a_failure_with_code_one() {
        let mut termination = Termination::new("host", vec!["a".into(), "b".into()], GRACE, None);
        let actions = termination.on_exit(at(1), 1, 9, ExitOutcome::LostByExit(255));
        let [Action::Print(text)] = actions.as_slice() else { panic!("{actions:?}") };
        assert!(text.contains("host b (process 9) is lost") && text.contains("exit code 255"), "{text}");
        assert_eq!((termination.code(), termination.next_deadline()), (1, Some(at(3))));
        assert!(!termination.on_failure(at(2), 0, ExitOutcome::Exited(7)), "one was first");
        let mut termination = Termination::new("host", vec!["a".into(), "b".into()], GRACE, None);
        assert!(termination.on_failure(at(1), 0, ExitOutcome::Exited(7)), "the helper has said it");
        assert_eq!(termination.on_exit(at(2), 0, 9, ExitOutcome::Exited(7)), []);
        assert_eq!(termination.code(), 7);
    }

    #[test]
    fn a_host_that_is_lost_is_named_although_ranks_that_missed_it_have_failed_before() {
        let mut termination = Termination::new("host", vec!["a".into(), "b".into(), "c".into()], GRACE, None);
        assert!(
            termination.on_failure(at(1), 0, ExitOutcome::Exited(1)),
            "a rank of the first host missed the second"
        );
        let actions = termination.on_exit(at(1), 1, 9, ExitOutcome::LostBySignal(9));
        assert_eq!(
            actions,
            [Action::Print(
                "host b (process 9) is lost: its launch command was ended by SIGKILL (signal 9)".to_owned()
            )]
        );
        // the loss of a member that was ordered to end is not reported
        termination.on_timeout(at(3));
        assert_eq!(termination.on_exit(at(3), 2, 10, ExitOutcome::LostBySignal(15)), []);
    }

    #[test]
    fn many_ranks_are_counted_not_listed() {
        let mut termination = ranks(100, GRACE, Some(at(1)));
        let actions = termination.on_timeout(at(1));
        let Action::Print(text) = &actions[0] else { panic!("{actions:?}") };
        assert!(text.contains("5, 6, 7 and 92 others"), "{text}");
    }
}
