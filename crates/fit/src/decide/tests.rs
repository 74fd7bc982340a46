//! Tests of the decision: a host, a program, and what is set.

use super::*;
use crate::effective::effective;
use crate::program_traits::{Go, Java};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::affinity::CpuSet;
use unisono_linux::cgroup::CgroupVersion;
use unisono_linux::quota::{GroupRelation, Quota};

fn quota(processors: u64, of: GroupRelation) -> Quota {
    Quota {
        time_us: processors * 100_000,
        period_us: 100_000,
        group: "/job".into(),
        of,
        version: CgroupVersion::V2,
    }
}

/// Makes a host with eight processors, of which the program may use `allowed`.
fn host(allowed: usize, quota: Option<Quota>, others: Option<usize>) -> HostState {
    let affinity: CpuSet = (0..allowed).collect();
    let limits = ProcessorLimits { affinity, quota, online: 8, ..ProcessorLimits::default() };
    HostState { effective: effective(&limits), limits, others, ranks: None }
}

fn openmp() -> ProgramTraits {
    ProgramTraits {
        name: "solver".into(),
        libraries: vec!["libgomp.so.1".into(), "libc.so.6".into()],
        ..ProgramTraits::default()
    }
}

fn set(observed: &HostState, program: &ProgramTraits, user: &[(&str, &str)]) -> Vec<String> {
    let user: BTreeMap<_, _> = user.iter().copied().collect();
    let plan = decide(observed, program, |name| user.get(name).map(|value| (*value).to_owned()));
    let all = plan.set.iter().chain(&plan.options);
    all.map(|setting| format!("{}={}", setting.name, setting.value)).collect()
}

/// Returns the settings without the numbers of threads that every program gets.
fn set_beside_the_table(observed: &HostState, program: &ProgramTraits, user: &[(&str, &str)]) -> Vec<String> {
    let in_table =
        |one: &String| RUNTIME_VARIABLES.iter().any(|variable| one.split('=').next() == Some(variable.name));
    set(observed, program, user).into_iter().filter(|one| !in_table(one)).collect()
}

#[test]
fn a_variable_that_env_sets_before_the_program_stays() {
    let one = host(8, Some(quota(1, GroupRelation::Own)), Some(0));
    let program = ProgramTraits { assignments: vec!["OPENBLAS_NUM_THREADS=3".into()], ..openmp() };
    let all = set(&one, &program, &[]);
    assert!(all.contains(&"OMP_NUM_THREADS=1".into()), "{all:?}");
    assert!(!all.iter().any(|one| one.starts_with("OPENBLAS_NUM_THREADS")), "{all:?}");
    let remarks = decide(&one, &program, |_| None).remarks;
    assert!(remarks[0].starts_with("OPENBLAS_NUM_THREADS=3 is yours and stays"), "{remarks:?}");
}

#[test]
fn a_quota_of_one_processor_means_one_thread_for_every_runtime_whatever_the_first_program_is() {
    let one = host(8, Some(quota(1, GroupRelation::Own)), Some(0));
    let mut expected: Vec<String> =
        RUNTIME_VARIABLES.iter().map(|variable| format!("{}={}", variable.name, variable.value(1))).collect();
    expected.push("GOMAXPROCS=1".into());
    let go = ProgramTraits { go: Some(Go { minor: 24, reads_quota: false }), ..ProgramTraits::default() };
    let java = ProgramTraits { java: Some(Java { feature: 17, update: 15 }), ..ProgramTraits::default() };
    for program in [ProgramTraits::default(), openmp(), go, java] {
        assert_eq!(set(&one, &program, &[]), expected, "{program:?}");
    }
}

#[test]
fn runtimes_that_count_right_are_told_nothing() {
    assert_eq!(set(&host(8, None, Some(0)), &ProgramTraits::default(), &[]), Vec::<String>::new());
    let expected = [
        "NUMEXPR_NUM_THREADS=2",
        "PYTHON_CPU_COUNT=2",
        "JULIA_CPU_THREADS=2",
        "LLAMA_ARG_THREADS=2",
        "PYTEST_XDIST_AUTO_NUM_WORKERS=2",
    ];
    assert_eq!(set(&host(2, None, Some(0)), &ProgramTraits::default(), &[]), expected);
    let half = host(8, Some(quota(5, GroupRelation::Own)), Some(0));
    let all = set(&half, &ProgramTraits::default(), &[]);
    assert!(!all.iter().any(|one| one.starts_with("R_DATATABLE")), "it takes four of eight by itself");
}

#[test]
fn an_older_python_is_said_not_to_read_its_variable() {
    let said = |minor| {
        let program = ProgramTraits { python: Some(minor), ..ProgramTraits::default() };
        decide(&host(8, Some(quota(1, GroupRelation::Own)), Some(0)), &program, |_| None).remarks
    };
    let old = said(11);
    assert!(old.len() == 1 && old[0].starts_with("os.cpu_count() of Python 3.11 stays "), "{old:?}");
    assert_eq!(said(13), Vec::<String>::new());
}

#[test]
fn ranks_share_the_processors_of_their_host() {
    let ranks = |count, cpus: &str, observed: HostState| HostState {
        ranks: Some(LocalRanks { count, cpus: cpus.parse().expect("a list") }),
        ..observed
    };
    let threads = |observed: &HostState| {
        let all = set(observed, &openmp(), &[("PMI_RANK", "0")]);
        all.into_iter().find(|one| one.starts_with("OMP_NUM_THREADS"))
    };
    let idle = || host(8, None, Some(0));
    assert_eq!(threads(&ranks(2, "0-7", idle())).as_deref(), Some("OMP_NUM_THREADS=4"));
    assert_eq!(threads(&ranks(16, "0-7", idle())).as_deref(), Some("OMP_NUM_THREADS=1"));
    assert_eq!(threads(&ranks(1, "0-7", idle())), None);
    // the launcher bound each of two ranks to four processors, or to four that both share
    assert_eq!(threads(&ranks(2, "0-7", host(4, None, Some(0)))), None);
    assert_eq!(threads(&ranks(4, "0-7", host(4, None, Some(0)))).as_deref(), Some("OMP_NUM_THREADS=2"));
    let quota = host(8, Some(quota(4, GroupRelation::Own)), Some(0));
    assert_eq!(threads(&ranks(2, "0-7", quota)).as_deref(), Some("OMP_NUM_THREADS=2"));
}

#[test]
fn an_openmp_team_that_fills_free_processors_is_bound() {
    assert_eq!(
        set(&host(8, None, Some(0)), &openmp(), &[]),
        ["OMP_PROC_BIND=spread", "OMP_PLACES=threads"]
    );
    assert!(set(&host(8, None, None), &openmp(), &[]).is_empty(), "nobody knows whether they are free");
    assert!(
        set(&host(8, None, Some(0)), &openmp(), &[("OMP_NUM_THREADS", "4")]).is_empty(),
        "half of them"
    );
    assert!(set(&host(8, None, Some(0)), &openmp(), &[("OMP_PLACES", "cores")]).is_empty());
    assert!(
        set(&host(8, None, Some(0)), &openmp(), &[("PMI_RANK", "0")]).is_empty(),
        "mpiexec places ranks"
    );
    let mixed =
        ProgramTraits { libraries: vec!["libgomp.so.1".into(), "libopenblas.so.0".into()], ..openmp() };
    assert!(
        set(&host(8, None, Some(0)), &mixed, &[]).is_empty(),
        "OpenBLAS's threads would inherit a processor"
    );
}

#[test]
fn beside_threads_of_others_a_team_is_spread_and_another_programs_threads_sleep_while_they_wait() {
    let bound = ["OPENBLAS_NUM_THREADS=7", "OMP_PROC_BIND=spread", "OMP_PLACES=threads"];
    assert_eq!(set(&host(8, None, Some(1)), &openmp(), &[]), bound);
    assert_eq!(set(&host(8, None, Some(1)), &openmp(), &[("GOMP_SPINCOUNT", "5")]), bound);
    let passive = ["OPENBLAS_NUM_THREADS=7", "OMP_WAIT_POLICY=passive", "KMP_BLOCKTIME=0"];
    let python = ProgramTraits { name: "python3".into(), ..ProgramTraits::default() };
    assert_eq!(set(&host(8, None, Some(1)), &python, &[]), passive);
    assert_eq!(set(&host(8, None, Some(1)), &openmp(), &[("OMP_PLACES", "cores")]), passive);
    let half = |others| set(&host(8, None, Some(others)), &openmp(), &[("OMP_NUM_THREADS", "4")]);
    assert_eq!(half(4), Vec::<String>::new(), "there is room");
    assert_eq!(half(5), &passive[1..], "a number that is the user's holds for OpenBLAS, too");
}

#[test]
fn the_reason_claims_no_library_that_the_program_does_not_link() {
    let reasons = |libraries: &[&str]| {
        let libraries = libraries.iter().map(|one| (*one).to_owned()).collect();
        let program = ProgramTraits { libraries, ..ProgramTraits::default() };
        let plan = decide(&host(8, None, Some(3)), &program, |_| None);
        plan.set.into_iter().map(|setting| setting.why).collect::<Vec<_>>()
    };
    let python = reasons(&["libc.so.6"]);
    assert!(
        python[0].starts_with("OpenBLAS, if loaded, beside 3 threads of others on 8"),
        "{python:?}"
    );
    assert!(python[1].starts_with("OpenMP, if loaded, with 8 threads beside 3"), "{python:?}");
    let blas = reasons(&["libopenblas.so.0"]);
    assert!(blas[0].starts_with("OpenBLAS beside 3 threads"), "{blas:?}");
    let openmp = reasons(&["libopenblas.so.0", "libgomp.so.1"]);
    assert!(openmp[1].starts_with("OpenMP with 8 threads"), "{openmp:?}");
}

#[test]
fn openblas_gets_the_processors_that_others_leave_and_at_least_one() {
    let blas = |allowed, others| {
        let all = set(&host(allowed, None, others), &ProgramTraits::default(), &[]);
        all.into_iter().find(|one| one.starts_with("OPENBLAS"))
    };
    assert_eq!(blas(8, Some(3)).as_deref(), Some("OPENBLAS_NUM_THREADS=5"));
    assert_eq!(blas(2, Some(9)).as_deref(), Some("OPENBLAS_NUM_THREADS=1"));
    assert_eq!([blas(8, Some(0)), blas(8, None), blas(1, Some(1))], [None, None, None]);
    let half = host(8, Some(quota(4, GroupRelation::Own)), Some(4));
    assert!(set(&half, &ProgramTraits::default(), &[]).contains(&"OPENBLAS_NUM_THREADS=4".into()));
}

#[test]
fn more_threads_than_there_is_quota_for_stay_the_users_but_wait_passively() {
    let one = host(8, Some(quota(1, GroupRelation::Own)), Some(0));
    let user = [("OMP_NUM_THREADS", "8")];
    let found = set(&one, &openmp(), &user);
    assert!(
        found.contains(&"OMP_WAIT_POLICY=passive".into()) && !found.iter().any(|s| s.starts_with("OMP_NUM"))
    );
    let plan = decide(&one, &openmp(), |name| (name == user[0].0).then(|| user[0].1.to_owned()));
    assert_eq!(
        plan.remarks,
        ["OMP_NUM_THREADS=8 is yours and stays, on 1 processor, because a quota of 1 holds in /job"]
    );
}

#[test]
fn go_is_told_where_it_does_not_count_right_itself() {
    let built = |minor, reads_quota| ProgramTraits {
        go: Some(Go { minor, reads_quota }),
        ..ProgramTraits::default()
    };
    let set = set_beside_the_table;
    let (own, around) = (
        host(8, Some(quota(2, GroupRelation::Own)), None),
        host(8, Some(quota(2, GroupRelation::Ancestor)), None),
    );
    assert_eq!(set(&own, &built(24, false), &[]), ["GOMAXPROCS=2"]);
    assert!(set(&own, &built(25, true), &[]).is_empty());
    assert_eq!(set(&own, &built(25, false), &[]), ["GOMAXPROCS=2"], "turned off by its module");
    assert_eq!(set(&around, &built(26, true), &[]), ["GOMAXPROCS=2"], "another group's quota");
    let one = host(8, Some(quota(1, GroupRelation::Own)), None);
    assert_eq!(set(&one, &built(25, true), &[]), ["GOMAXPROCS=1"], "Go never counts less than two");
    assert_eq!(set(&own, &ProgramTraits::default(), &[]), ["GOMAXPROCS=2"], "a shell may start Go");
    assert!(
        set(&host(4, None, Some(0)), &built(10, false), &[]).is_empty(),
        "no quota, nothing to tell"
    );
}

#[test]
fn go_that_reads_the_whole_quota_is_told_its_part_of_it() {
    let program = ProgramTraits { go: Some(Go { minor: 26, reads_quota: true }), ..ProgramTraits::default() };
    let mut part = host(4, Some(quota(2, GroupRelation::Own)), None);
    part.effective = Effective { processors: 1, limited_by: LimitedBy::Partition };
    assert_eq!(set_beside_the_table(&part, &program, &[]), ["GOMAXPROCS=1"]);
}

#[test]
fn java_gets_an_option_where_it_does_not_read_the_quota_itself() {
    let java =
        |feature, update| ProgramTraits { java: Some(Java { feature, update }), ..ProgramTraits::default() };
    let (own, around) = (
        host(8, Some(quota(2, GroupRelation::Own)), None),
        host(8, Some(quota(2, GroupRelation::Ancestor)), None),
    );
    let options = |observed: &HostState, program: &ProgramTraits, user: &[(&str, &str)]| {
        let all = set_beside_the_table(observed, program, user);
        assert!(!all.iter().any(|one| one.contains("JAVA")), "Java prints its variables");
        all.into_iter().filter(|one| one.starts_with('-')).collect::<Vec<_>>()
    };
    let expected = ["-XX:ActiveProcessorCount=2"];
    assert!(options(&own, &java(17, 15), &[]).is_empty());
    assert_eq!(options(&own, &java(11, 15), &[]), expected);
    assert_eq!(options(&around, &java(17, 15), &[]), expected);
    assert!(options(&around, &java(24, 0), &[]).is_empty());
    assert_eq!(options(&around, &java(17, 15), &[("JAVA_TOOL_OPTIONS", "-Xmx1g")]), expected);
    let yours = ("JAVA_TOOL_OPTIONS", "-XX:ActiveProcessorCount=8");
    assert!(options(&around, &java(17, 15), &[yours]).is_empty());
}

#[test]
fn ranks_yield_where_there_are_more_of_them_than_processors() {
    let mpiexec = ProgramTraits { mpi: true, ..ProgramTraits::default() };
    let yielding = |count| {
        let cpus = (0..8).collect();
        let observed = HostState { ranks: Some(LocalRanks { count, cpus }), ..host(8, None, Some(0)) };
        let all = set_beside_the_table(&observed, &mpiexec, &[]);
        all.into_iter().filter(|one| !one.starts_with("GOMAXPROCS")).collect::<Vec<_>>()
    };
    assert_eq!(yielding(16), ["OMPI_MCA_mpi_yield_when_idle=1", "MPIR_CVAR_POLLS_BEFORE_YIELD=1"]);
    assert!(yielding(8).is_empty());
}

#[test]
fn llama_counts_the_cores_of_the_machine_and_is_told_the_allowed_ones() {
    let llama = ProgramTraits { name: "llama-server".into(), ..ProgramTraits::default() };
    assert!(set(&host(2, None, Some(0)), &llama, &[]).contains(&"LLAMA_ARG_THREADS=2".into()));
}

proptest! {
    #[test]
    fn what_the_user_set_is_never_overridden_and_no_number_exceeds_the_processors(
        allowed in 1_usize..9, share in proptest::option::of(1_u64..9), own in any::<bool>(),
        others in proptest::option::of(0_usize..9), mpi in any::<bool>(), kind in 0..5,
        user in proptest::collection::btree_map(
            proptest::sample::select(vec![
                "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES",
                "GOMAXPROCS", "NUMEXPR_NUM_THREADS", "ERL_AFLAGS", "KMP_BLOCKTIME", "RAYON_NUM_THREADS", "LLAMA_ARG_THREADS",
                "OMPI_MCA_mpi_yield_when_idle",
            ]),
            proptest::sample::select(vec!["", "1", "8,2", "16", "nonsense", "-1"]), 0..6,
        ),
    ) {
        let whose = if own { GroupRelation::Own } else { GroupRelation::Ancestor };
        let observed = host(allowed, share.map(|share| quota(share, whose)), others);
        let program = match kind {
            0 => ProgramTraits::default(),
            1 => openmp(),
            2 => ProgramTraits { go: Some(Go { minor: 24, reads_quota: false }), ..ProgramTraits::default() },
            3 => ProgramTraits { java: Some(Java { feature: 8, update: 0 }), ..ProgramTraits::default() },
            _ => ProgramTraits { name: "llama-cli".into(), libraries: vec!["libtbb.so.12".into()], ..ProgramTraits::default() },
        };
        let program = ProgramTraits { mpi, ..program };
        let ranks = mpi.then(|| LocalRanks { count: 4, cpus: observed.limits.affinity.clone() });
        let observed = HostState { ranks, ..observed };
        let plan = decide(&observed, &program, |name| user.get(name).map(|value| (*value).to_owned()));
        let names: BTreeSet<_> = plan.set.iter().map(|setting| setting.name).collect();
        prop_assert_eq!(names.len(), plan.set.len(), "no name twice");
        for setting in &plan.set {
            prop_assert!(!user.contains_key(setting.name), "{} is the user's", setting.name);
            prop_assert!(!setting.why.is_empty());
            if setting.name.contains("THREADS") || setting.name == "GOMAXPROCS" {
                let threads: usize = setting.value.parse().expect("a number");
                prop_assert!((1..=observed.effective.processors).contains(&threads));
            }
        }
    }
}
