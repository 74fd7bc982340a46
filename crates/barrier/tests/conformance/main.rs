//! The contract of a barrier, run with every algorithm and every wait policy, in both forms.
//!
//! The process form runs here in two ways: `shared` opens its participants through separate mappings of one
//! region in one process, so that the whole contract is checked over shared words and shared futexes;
//! `killed` and `processes` use real processes.

#![cfg(not(loom))]

mod contract;
mod processes;
mod watchdog;

use unisono_barrier::{Algorithm, Group, GroupSpec, Participant, Wait};

/// The memory of a group.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Threads,
    Shared,
}

/// The algorithm, wait policy and form under test.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) algorithm: Algorithm,
    pub(crate) wait: Wait,
    pub(crate) form: Form,
}

impl Subject {
    pub(crate) fn group(self, participants: usize, capacity: usize) -> Group {
        let spec = GroupSpec::new(participants)
            .and_then(|spec| spec.capacity(capacity))
            .expect("a small group")
            .algorithm(self.algorithm)
            .wait(self.wait);
        match self.form {
            Form::Threads => spec.for_threads(),
            Form::Shared => spec.for_processes(),
        }
        .expect("this host maps memory")
    }

    /// Returns the same group, opened again; in the shared form, through a mapping of its own.
    pub(crate) fn reopened(self, group: &Group) -> Group {
        match group.path() {
            None => group.clone(),
            Some(path) => Group::open(&path).expect("our own group opens"),
        }
    }

    pub(crate) fn participants(self, participants: usize) -> Vec<Participant> {
        let group = self.group(participants, participants);
        (0..participants)
            .map(|id| self.reopened(&group).participant(id).expect("every place is free"))
            .collect()
    }

    /// Returns the number of episodes to run. With more threads than cores, a thread that spins keeps its
    /// core until the scheduler's next tick.
    pub(crate) fn episodes(self, participants: usize) -> u32 {
        match (self.wait, participants) {
            (_, 1 | 2) => 2_000,
            (Wait::Spin, _) => 6,
            (Wait::SpinBlock | Wait::Yield, _) => 150,
            _ => 300,
        }
    }
}

macro_rules! mount {
    ($($algorithm:ident = $which:ident),*) => { $(
        mod $algorithm {
            mount!(@wait $which spin = Spin, yielding = Yield, block = Block, spin_block = SpinBlock,
                adaptive = Adaptive);
        } )*
    };
    (@wait $which:ident $($wait:ident = $how:ident),*) => { $(
        mod $wait {
            mount!(@form $which $how threads = Threads);
            mount!(@form $which $how shared = Shared);
            mod processes {
                mount!(@tests processes $which $how Shared:
                    a_killed_process_is_named_within_a_second);
            }
        } )*
    };
    (@form $which:ident $how:ident $name:ident = $form:ident) => {
        mod $name {
            mount!(@tests contract $which $how $form:
                nobody_goes_on_before_everybody_has_come_and_one_leads,
                writes_before_the_barrier_are_seen_after_it,
                work_between_arriving_and_waiting_holds_nobody_up,
                a_timed_out_wait_can_be_resumed,
                a_panic_is_reported_to_everybody_by_name,
                who_goes_away_without_leave_is_named_but_its_last_episode_stands,
                members_leave_between_episodes,
                all_may_leave_after_the_same_episode,
                members_join_between_episodes,
                members_come_and_go_at_once);
        }
    };
    (@tests $module:ident $which:ident $how:ident $form:ident: $($test:ident),*) => { $(
        #[test]
        fn $test() {
            let subject = crate::Subject {
                algorithm: unisono_barrier::Algorithm::$which,
                wait: unisono_barrier::Wait::$how,
                form: crate::Form::$form,
            };
            crate::watchdog::guarded(stringify!($test), || crate::$module::$test(subject));
        } )*
    };
}

mount!(
    central = Central,
    competitive = Competitive,
    per_core = PerCore,
    combining_tree = CombiningTree,
    static_tree = StaticTree,
    dissemination = Dissemination,
    tournament = Tournament,
    mcs_tree = McsTree
);
