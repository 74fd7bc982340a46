//! SIGKILL of a rank in the middle of each synchronization: the errors of the others name it.

use crate::children::{TIMEOUT, WELL, place, start_with};
use crate::watchdog::watched;
use std::io::Read;
use std::process::Child;
use std::time::Duration;
use unisono_rma::{Assert, Error, Job, JobMembership, Key, Lock, Rank, Spec, Style, Window};

/// The environment variable that tells a child the synchronization, the style, and how the window is made,
/// such as `fence-direct-allocated`. With `hooked` in it, waits call a hook.
const HOW: &str = "UNISONO_TEST_HOW";

/// The rank that is killed.
const VICTIM: Rank = Rank(2);

struct Part {
    job: Job,
    window: Window,
    /// The program's memory for a created window; it outlives the window.
    _memory: Vec<u64>,
}

impl Part {
    fn new(place: &JobMembership, how: &str) -> Self {
        let mut job = Job::shared(place, TIMEOUT).expect("all come");
        if how.contains("hooked") {
            // The rank waits as in a binding: the wait is interrupted every half a millisecond, and begins
            // again.
            job.while_waiting(Duration::from_micros(500), Box::new(|| unisono_rma::HookOutcome::Nothing));
        }
        let style = if how.contains("deferred") { Style::Deferred } else { Style::Direct };
        let spec = Spec::new().style(style);
        let mut memory = vec![0_u64; 64];
        let window = if how.ends_with("created") {
            // SAFETY: the memory is kept beside the window, and touched only through it.
            unsafe { job.create(memory.as_mut_ptr().cast(), 512, spec) }
        } else {
            job.allocate(512, spec)
        };
        Self { job, window: window.expect("a small window"), _memory: memory }
    }

    /// Runs a survivor's loop until it gets the error.
    fn survive(&mut self, how: &str) -> Error {
        let rank = self.job.rank();
        loop {
            let step = match how.split('-').next() {
                Some("fence") => self.fence(),
                Some("wait") => self.post_to_the_victim(),
                Some("complete") => self.complete_at_the_victim(),
                Some("lock") => self.lock_what_the_victim_holds(),
                other => panic!("no synchronization is called {other:?}"),
            };
            if let Err(error) = step {
                return error;
            }
            assert!(rank != VICTIM, "the victim never gets here");
        }
    }

    fn fence(&mut self) -> Result<(), Error> {
        let next = Rank((self.job.rank().0 + 1) % 3);
        self.window.fence(Assert::NONE)?;
        self.window.put(&[1_u64], next, 0)?;
        self.window.fence(Assert::NONE)
    }

    fn post_to_the_victim(&mut self) -> Result<(), Error> {
        self.window.post(&[VICTIM], Assert::NONE)?;
        self.window.wait()
    }

    fn complete_at_the_victim(&mut self) -> Result<(), Error> {
        self.window.start(&[VICTIM], Assert::NONE)?;
        // On the mapped path such puts are staged while the pair's ring has room. Once it is full, a put is
        // queued, and complete waits until the victim exposes its part.
        self.window.put(&[1_u64; 64], VICTIM, 0)?;
        self.window.complete()?;
        // The transport may have passed some bytes on, but the victim has not taken them.
        Ok(())
    }

    fn lock_what_the_victim_holds(&mut self) -> Result<(), Error> {
        self.window.lock(Rank(0), Lock::Exclusive, Assert::NONE)?;
        self.window.put(&[1_u64], Rank(0), 8)?;
        self.window.unlock(Rank(0))
    }

    /// Makes the victim's calls until it is killed.
    fn be_killed(&mut self, how: &str) {
        match how.split('-').next() {
            Some("fence") => {
                let _ = self.fence();
                let _ = self.fence();
            }
            Some("lock") => {
                self.window.lock(Rank(0), Lock::Exclusive, Assert::NONE).expect("no epoch is open");
                self.window.put(&[1_u64], Rank(0), 0).expect("inside the window");
                // Now the lock is held.
                self.window.flush(Rank(0)).expect("rank 0 lives");
            }
            _ => {}
        }
        self.job.barrier().expect("all live still");
        let _ = std::io::stdin().read(&mut [0; 1]);
    }
}

/// Plays a child's part.
pub(crate) fn child(place: &JobMembership) {
    let how = std::env::var(HOW).expect("the parent says how");
    let mut part = Part::new(place, &how);
    if place.rank == VICTIM {
        part.be_killed(&how);
        return;
    }
    prelude(&mut part, &how);
    // Rank 0 may kill the victim while this rank is still in the barrier.
    match part.job.barrier().err().unwrap_or_else(|| part.survive(&how)) {
        Error::Gone { rank, .. } => {
            // This exit is one more death that rank 0 could name, but rank 0 checks only afterwards.
            std::process::exit(30 + i32::try_from(rank.0).expect("small"))
        }
        other => panic!("a rank was killed, yet {other}"),
    }
}

fn prelude(part: &mut Part, how: &str) {
    if how.starts_with("fence") {
        part.fence().expect("all live still");
        part.fence().expect("all live still");
    }
}

fn a_killed_rank_is_named(how: &str) {
    watched(how, || {
        let key = Key::random().expect("the kernel has random bytes");
        let begin = |rank| start_with("dies", &place(rank, 3, key), &[(HOW, how)]);
        let mut survivor: Child = begin(1);
        let mut victim: Child = begin(2);
        let mut part = Part::new(&place(0, 3, key), how);
        prelude(&mut part, how);
        part.job.barrier().expect("all live still");
        victim.kill().expect("our child can be killed");
        victim.wait().expect("our child can be collected");
        // By the time that this rank checks, a lower rank is gone as well. The error must name the first
        // death.
        let told = survivor.wait().expect("our child can be collected").code();
        let error = part.survive(how);
        let Error::Gone { rank, why } = &error else { panic!("rank 2 was killed, yet {error}") };
        assert_eq!(*rank, VICTIM, "{why}");
        assert!(why.contains(&victim.id().to_string()), "{why} does not name the process");
        assert_eq!(
            told,
            Some(32),
            "the other survivor ends with the rank it was told (or {WELL}: it was not)"
        );
    });
}

macro_rules! deaths {
    ($($name:ident: $how:literal),* $(,)?) => {$(
        #[test]
        fn $name() {
            a_killed_rank_is_named($how);
        }
    )*};
}

deaths! {
    who_waits_in_a_fence_is_told: "fence-direct-allocated",
    who_waits_in_a_fence_of_created_memory_is_told: "fence-direct-created",
    who_waits_in_a_deferred_fence_is_told: "fence-deferred-allocated",
    who_waits_in_a_fence_with_a_hook_is_told: "fence-direct-hooked-allocated",
    who_waits_for_completion_with_a_hook_is_told: "wait-direct-hooked-allocated",
    who_waits_for_exposure_with_a_hook_is_told: "complete-direct-hooked-allocated",
    who_waits_for_a_lock_with_a_hook_is_told: "lock-direct-hooked-allocated",
    who_waits_in_a_deferred_fence_with_a_hook_is_told: "fence-deferred-hooked-allocated",
    who_waits_for_completion_is_told: "wait-direct-allocated",
    who_waits_for_completion_at_created_memory_is_told: "wait-direct-created",
    who_waits_for_completion_by_messages_is_told: "wait-deferred-allocated",
    who_waits_for_exposure_is_told: "complete-direct-allocated",
    who_waits_for_exposure_by_messages_is_told: "complete-deferred-allocated",
    who_waits_for_a_lock_is_told: "lock-direct-allocated",
    who_waits_for_a_lock_of_created_memory_is_told: "lock-direct-created",
    who_waits_for_a_lock_by_messages_is_told: "lock-deferred-allocated",
}
