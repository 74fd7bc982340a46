//! Compares the simulator with closed forms, a fluid reference, the measurements of the example study, and
//! itself.

use proptest::prelude::*;
use unisono_gang::policy::Backfill;
use unisono_gang::simulate::{
    CpuQuota, JobArrivals, KernelModel, Meets, ProgramResult, Report, Sharing, SimulatedMachine,
    SimulatedProgram, SimulatedWait, SimulationSpec, WaitCosts, simulate,
};
use unisono_linux::clock::{Duration, Instant};

const GANG: Sharing = Sharing::Gang { slice: Duration::from_millis(20), backfill: Backfill::Never };
const KERNELS: [KernelModel; 2] = [KernelModel::Cfs, KernelModel::Eevdf];

fn machine(cores: usize, kernel: KernelModel) -> SimulatedMachine {
    SimulatedMachine { cores, cache_cores: 16, kernel, costs: WaitCosts::EXAMPLE_HOST }
}

fn barriers(threads: usize, interval_us: u64) -> SimulatedProgram {
    SimulatedProgram::barriers("p", threads, Duration::from_micros(interval_us), Duration::ZERO)
}

fn run(machine: &SimulatedMachine, programs: &[SimulatedProgram], how: Sharing, ms: u64) -> Report {
    simulate(machine, programs, how, Duration::from_millis(ms), 1).expect("a simulation")
}

fn used(result: &ProgramResult) -> f64 {
    result.work_s + result.spin_s + result.overhead_s
}

#[track_caller]
fn near(value: f64, expected: f64, part: f64) {
    assert!((value - expected).abs() <= expected * part, "{value} instead of {expected}");
}

#[test]
fn a_thread_on_each_core_passes_a_barrier_each_interval() {
    for kernel in KERNELS {
        let report = run(&machine(16, kernel), &[barriers(16, 50)], Sharing::Spread, 100);
        // four transfers of a cache line
        near(report.gangs[0].barriers_per_s, 1e9 / 50_248.0, 0.001);
        assert_eq!(report.gangs[0].blocks, 0);
    }
}

#[test]
fn two_spinning_threads_on_one_core_pass_a_barrier_each_slice() {
    for kernel in KERNELS {
        let program = SimulatedProgram { wait: SimulatedWait::Spin, ..barriers(2, 0) };
        let report = run(&machine(1, kernel), &[program], Sharing::Spread, 1000);
        // both kernels' slices on one core end at the next tick of 4 ms
        near(report.gangs[0].barriers_per_s, 250.0, 0.02);
    }
}

#[test]
fn blocking_threads_on_one_core_pay_for_both_computations_a_block_and_a_switch() {
    for kernel in KERNELS {
        let program = SimulatedProgram { wait: SimulatedWait::Block, ..barriers(2, 100) };
        let report = run(&machine(1, kernel), &[program], Sharing::Spread, 1000);
        near(report.gangs[0].barriers_per_s, 1e9 / (200_000.0 + 7_400.0 + 1_500.0), 0.01);
    }
}

#[test]
fn a_thread_that_wakes_with_time_in_hand_does_not_wait_for_the_tick() {
    // the loops are ahead of their share whenever a thread of the program wakes; at a tick of 4 ms, both
    // threads of a core would pass two barriers
    let program = SimulatedProgram { wait: SimulatedWait::Block, ..barriers(4, 100) };
    let programs = [program, SimulatedProgram::computing("loops", 2)];
    let report = run(&machine(2, KernelModel::Eevdf), &programs, Sharing::Spread, 1000);
    let (rate, looped) = (report.gangs[0].barriers_per_s, used(&report.gangs[1]));
    assert!(rate > 2.0 * 500.0, "{rate}");
    assert!(looped > 2.0 / 3.0, "{looped} of 2 s: a third of each core is theirs");
}

#[test]
fn an_odd_thread_goes_round_the_cores_so_that_each_of_three_gets_two_thirds_of_a_core() {
    let host = machine(2, KernelModel::Eevdf);
    let three: Vec<_> = (0..3).map(|_| SimulatedProgram::computing("loop", 1)).collect();
    for loops in run(&host, &three, Sharing::Linux, 6000).gangs {
        near(used(&loops), 4.0, 0.1);
    }
    // the two threads of the pair spin for each other: they share a core for a part of the time, whatever the
    // start
    let pair = SimulatedProgram { wait: SimulatedWait::Spin, ..barriers(2, 200) };
    let programs = [pair, SimulatedProgram::computing("loop", 1)];
    for seed in 1..=5 {
        let report = simulate(&host, &programs, Sharing::Linux, Duration::from_secs(3), seed).expect("runs");
        let rate = report.gangs[0].barriers_per_s;
        assert!((2.0 * 249.0..0.9 * 2498.0).contains(&rate), "{rate} barriers/s from start {seed}");
    }
}

#[test]
fn a_thread_that_pauses_takes_its_computation_its_sleep_and_a_wake_up() {
    for meets in [Meets::AtBarriers, Meets::Never] {
        let program = SimulatedProgram { pause: Duration::from_millis(1), meets, ..barriers(4, 300) };
        let report = run(&machine(4, KernelModel::Eevdf), &[program], Sharing::Spread, 1000);
        let threads = if meets == Meets::Never { 4.0 } else { 1.0 };
        near(report.gangs[0].barriers_per_s, threads * 1e9 / (1_300_000.0 + 7_400.0 * 2.0 / 3.0), 0.01);
    }
}

#[test]
fn the_example_host_is_predicted_in_both_modes_of_plain_linux() {
    // docs/example-report, study granularity: medians of barriers/s of the program with the varied interval.
    // Its machine has 2 cores; the other program's interval is 0.
    let stacked = [(0, 16_880.0), (10, 12_500.0), (100, 3_760.0)];
    let spread = [(0, 7_649_280.0), (10, 46_070.0), (100, 4_870.0)];
    let host = machine(2, KernelModel::Eevdf);
    for (interval, measured) in stacked {
        let report = run(&host, &[barriers(2, interval), barriers(2, 0)], Sharing::Linux, 300);
        assert!(report.gangs[0].unstacked < 0.6, "stacked: {}", report.gangs[0].unstacked);
        near(report.gangs[0].barriers_per_s, measured, 0.05);
    }
    for (interval, measured) in spread {
        let report = run(&host, &[barriers(2, interval), barriers(2, 0)], Sharing::Spread, 300);
        near(report.gangs[0].barriers_per_s, measured, 0.10);
    }
}

#[test]
fn plain_linux_stacks_from_some_starts_and_spreads_from_others() {
    let host = machine(2, KernelModel::Eevdf);
    let programs = [barriers(2, 15_000), barriers(2, 0)];
    let of = |seed| {
        let report =
            simulate(&host, &programs, Sharing::Linux, Duration::from_millis(200), seed).expect("runs");
        report.gangs[1].unstacked
    };
    let spreads: Vec<f64> = (1..=20).map(of).collect();
    let stacked = spreads.iter().filter(|spread| **spread < 0.6).count();
    assert!((1..20).contains(&stacked), "{spreads:?}");
}

#[test]
fn threads_of_a_gang_run_at_the_same_moments() {
    // a thread that ran without the others would spin
    for kernel in KERNELS {
        let gang = || SimulatedProgram { wait: SimulatedWait::Spin, ..barriers(8, 100) };
        let programs = [gang(), gang(), gang()];
        let gangs = run(&machine(8, kernel), &programs, GANG, 600);
        assert!(gangs.spinning < 1e-9, "{}", gangs.spinning);
        let (most, least) = (used(&gangs.gangs[0]), used(&gangs.gangs[2]));
        assert!((most - least).abs() <= 8.0 * 0.020, "{most} and {least}: within a slice of 8 cores");
        let plain = run(&machine(8, kernel), &programs, Sharing::Linux, 600);
        assert!(plain.spinning > 0.3, "{}: without gangs they spin", plain.spinning);
    }
}

#[test]
fn a_fixed_priority_runs_before_everything_else() {
    for kernel in KERNELS {
        let urgent = SimulatedProgram { priority: Some(10), ..SimulatedProgram::computing("u", 2) };
        let programs = [SimulatedProgram::computing("o", 2), urgent];
        let report = run(&machine(2, kernel), &programs, Sharing::Linux, 100);
        assert!(used(&report.gangs[1]) > 0.199 && used(&report.gangs[0]) < 0.001, "{report:?}");
    }
}

#[test]
fn a_partition_and_a_batch_give_each_program_its_share_without_waiting() {
    let host = machine(4, KernelModel::Eevdf);
    let partition = run(&host, &[barriers(2, 50), barriers(2, 50)], Sharing::Partition, 200);
    let batch = run(&host, &[barriers(4, 50), barriers(4, 50)], Sharing::Batch, 200);
    for result in &partition.gangs {
        near(result.barriers_per_s, 20_000.0, 0.02);
    }
    for result in &batch.gangs {
        near(result.barriers_per_s, 10_000.0, 0.02);
    }
}

#[test]
fn a_pausing_program_and_a_computing_one_share_turns_in_paired_gangs() {
    let pausing = SimulatedProgram { pause: Duration::from_millis(10), ..barriers(4, 300) };
    let programs = [pausing, SimulatedProgram::computing("c", 4)];
    let slice = Duration::from_millis(20);
    let host = machine(4, KernelModel::Eevdf);
    let alone = run(&host, &programs, Sharing::Gang { slice, backfill: Backfill::Never }, 1000);
    let paired = run(&host, &programs, Sharing::PairedGang { slice }, 1000);
    assert!(
        paired.utilization > alone.utilization + 0.1,
        "{} {}",
        paired.utilization,
        alone.utilization
    );
}

#[test]
fn jobs_that_arrive_together_wait_for_each_other() {
    let latency = |together| {
        let jobs = Some(JobArrivals { barriers: 100, every: Duration::from_millis(20), together });
        let programs = [SimulatedProgram { jobs, ..barriers(2, 100) }];
        let report = run(&machine(2, KernelModel::Eevdf), &programs, Sharing::Spread, 400);
        assert!(report.gangs[0].jobs >= 18, "{}", report.gangs[0].jobs);
        report.gangs[0].latency_s.expect("jobs were done")
    };
    // a job of 100 barriers of 100 us
    near(latency(1).max, 0.010, 0.05);
    near(latency(4).max, 0.040, 0.05);
}

#[test]
fn a_core_whose_threads_are_done_takes_one_from_a_core_that_has_two() {
    // four threads on two cores, two with 100 ms of work and two with 10 ms: from some starts the long
    // threads share one core, which takes 200 ms unless the idle core takes one of them
    let computing = |name: &str, ms: u64| SimulatedProgram {
        work: Some(Duration::from_millis(ms)),
        ..SimulatedProgram::computing(name, 1)
    };
    let programs = [computing("a", 100), computing("b", 10), computing("c", 100), computing("d", 10)];
    for kernel in KERNELS {
        for seed in 1..=20 {
            let report =
                simulate(&machine(2, kernel), &programs, Sharing::Linux, Duration::from_millis(1000), seed)
                    .expect("runs");
            assert!(report.makespan_s < 0.125, "{kernel}, seed {seed}: {} s", report.makespan_s);
        }
    }
}

#[test]
fn busy_cores_balance_their_loads() {
    // no core is ever idle, so only the balance of busy cores can split four threads evenly
    let programs = [SimulatedProgram::computing("three", 3), SimulatedProgram::computing("one", 1)];
    for kernel in KERNELS {
        for seed in 1..=20 {
            let report =
                simulate(&machine(2, kernel), &programs, Sharing::Linux, Duration::from_millis(1000), seed)
                    .expect("runs");
            near(used(&report.gangs[1]), 0.5, 0.15);
        }
    }
}

#[test]
fn threads_of_a_gang_stay_on_their_cores_and_those_of_plain_linux_do_not() {
    // three threads on two cores, 10 ms of work between two barriers. Thread i of a gang stays on core i
    // modulo 2, so two of them take 20 ms. Otherwise the core that finishes first takes the third thread, and
    // all finish after 15 to 18 ms.
    for kernel in KERNELS {
        let programs = [SimulatedProgram { wait: SimulatedWait::Block, ..barriers(3, 10_000) }];
        let gang = run(&machine(2, kernel), &programs, GANG, 2000);
        near(gang.gangs[0].barriers_per_s, 50.0, 0.03);
        assert_eq!(gang.migrations, 0, "{kernel}");
        let linux = run(&machine(2, kernel), &programs, Sharing::Linux, 2000);
        let rate = linux.gangs[0].barriers_per_s;
        assert!((55.0..67.0).contains(&rate), "{kernel}: {rate}");
    }
}

/// Computes processor sharing as a fluid, one microsecond at a time: the time that each thread has got, in
/// seconds.
fn fluid(threads: &[(u64, f64)], end_us: u64) -> Vec<f64> {
    let mut got = vec![0.0; threads.len()];
    for now in 0..end_us {
        let here = |(arrives, _): &&(u64, f64)| *arrives <= now;
        let all: f64 = threads.iter().filter(here).map(|(_, weight)| weight).sum();
        for (got, (_, weight)) in got.iter_mut().zip(threads).filter(|(_, thread)| here(thread)) {
            *got += weight / all * 1e-6;
        }
    }
    got
}

fn any_sharing() -> impl Strategy<Value = Sharing> {
    let slice = Duration::from_millis(5);
    prop_oneof![
        Just(Sharing::Linux),
        Just(Sharing::Spread),
        Just(Sharing::Partition),
        Just(Sharing::Batch),
        Just(Sharing::PairedGang { slice }),
        Just(Sharing::Gang { slice, backfill: Backfill::Offer }),
        Just(Sharing::Gang { slice, backfill: Backfill::Never }),
    ]
}

prop_compose! {
    fn any_program()(
        threads in 1usize..7,
        (interval, variance) in (
            prop_oneof![Just(0u64), 1_000..2_000_000u64],
            prop_oneof![Just(0u64), 1..300_000u64],
        ),
        light in 0u32..4,
        pause in prop_oneof![3 => Just(0u64), 1 => 1..3_000_000u64],
        meets in prop_oneof![3 => Just(Meets::AtBarriers), 1 => Just(Meets::Never)],
        wait in prop_oneof![
            Just(SimulatedWait::Spin), Just(SimulatedWait::Block), Just(SimulatedWait::SpinBlock(Duration::from_micros(50)))
        ],
        work in prop_oneof![2 => Just(None), 1 => (1_000_000..30_000_000u64).prop_map(|ns| Some(Duration::from_nanos(ns)))],
        (nice, priority) in (-20i8..20, prop_oneof![5 => Just(None), 1 => (1u8..99).prop_map(Some)]),
        quota in prop_oneof![3 => Just(None), 1 => (1..40u64).prop_map(Some)],
        arrives in 0..20_000_000u64,
    ) -> SimulatedProgram {
        let interval = if meets == Meets::Never { interval.max(10_000) } else { interval };
        SimulatedProgram {
            light_barriers: light,
            pause: Duration::from_nanos(pause),
            meets,
            wait,
            work: work.filter(|_| interval + variance > 10_000),
            nice,
            priority,
            quota: quota.map(|ms| CpuQuota { quota: Duration::from_millis(ms), period: Duration::from_millis(20) }),
            arrives: Instant::from_nanos(arrives),
            ..SimulatedProgram::barriers("p", threads, Duration::from_nanos(interval), Duration::from_nanos(variance))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_nanosecond_of_every_core_is_charged_once_and_the_seed_decides_all(
        cores in 1usize..9,
        programs in proptest::collection::vec(any_program(), 1..4),
        how in any_sharing(),
        is_cfs in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let how = if programs.len() > cores && how == Sharing::Partition { Sharing::Linux } else { how };
        let machine = machine(cores, KERNELS[usize::from(!is_cfs)]);
        let length = Duration::from_millis(60);
        let report = simulate(&machine, &programs, how, length, seed).expect("runs");
        let sum = report.utilization + report.spinning + report.overhead + report.idle;
        prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}: {report:?}");
        for (result, program) in report.gangs.iter().zip(&programs) {
            let Some(quota) = program.quota else { continue };
            prop_assert!(result.most_in_period_s <= quota.quota.as_secs_f64() + 1e-12, "{result:?}");
        }
        prop_assert_eq!(&report, &simulate(&machine, &programs, how, length, seed).expect("runs"));
    }

    #[test]
    fn threads_on_one_core_get_what_a_fluid_would_give_them_within_a_slice_and_a_tick(
        threads in proptest::collection::vec((0u64..50_000, -5i8..6), 1..6),
        is_cfs in any::<bool>(),
    ) {
        let mut host = machine(1, KERNELS[usize::from(!is_cfs)]);
        host.costs.switch = Duration::ZERO;
        let programs: Vec<SimulatedProgram> = threads.iter().map(|(arrives, nice)| SimulatedProgram {
            arrives: Instant::from_micros(*arrives), nice: *nice, ..SimulatedProgram::computing("c", 1)
        }).collect();
        let report = run(&host, &programs, Sharing::Spread, 400);
        // a step of nice is a factor of 1.25
        let weights: Vec<(u64, f64)> =
            threads.iter().map(|(arrives, nice)| (*arrives, 1.25f64.powi(-i32::from(*nice)))).collect();
        // CFS: a period of 1 ms per thread, at least 5 ms, and a debit of a period at the start
        let slice = if is_cfs { 2.0 * 0.005f64.max(0.001 * threads.len() as f64) } else { 0.0007 };
        for (result, fluid) in report.gangs.iter().zip(fluid(&weights, 400_000)) {
            let bound = slice + 0.004 + 0.01 * fluid;
            prop_assert!((used(result) - fluid).abs() <= bound, "{} instead of {fluid}", used(result));
        }
    }
}

#[test]
fn a_quota_is_used_up_and_not_exceeded() {
    for kernel in KERNELS {
        let quota = Some(CpuQuota { quota: Duration::from_millis(100), period: Duration::from_millis(100) });
        let program = SimulatedProgram { quota, ..SimulatedProgram::computing("c", 4) };
        let report = run(&machine(4, kernel), &[program], Sharing::Linux, 1000);
        near(used(&report.gangs[0]), 1.0, 0.01);
        assert!(
            report.gangs[0].most_in_period_s <= 0.1 && report.gangs[0].throttled_periods >= 9,
            "{report:?}"
        );
    }
}

fn spec(json: &str) -> Result<Report, unisono_gang::Error> {
    let spec: SimulationSpec = serde_json::from_str(json).expect("a specification");
    spec.understand()?.run(&mut |_| true)
}

#[test]
fn two_equal_gangs_take_twice_as_long_as_one() {
    let report =
        spec(r#"{"cores":2,"switch":"0","gangs":[{"threads":2,"work":"1s","count":2}]}"#).expect("runs");
    near(report.makespan_s, 2.0, 0.001);
    near(report.utilization, 1.0, 0.001);
    near(report.gangs[1].stretch.expect("ended"), 2.0, 0.02);
}

#[test]
fn a_heavier_gang_is_done_earlier() {
    let json = r#"{"cores":4,"gangs":[{"name":"a","threads":4,"work":"1s"},
                   {"name":"b","threads":4,"work":"1s","weight":3}]}"#;
    let report = spec(json).expect("runs");
    let ended = |gang: usize| report.gangs[gang].finished_s.expect("ended");
    assert!(ended(1) < 1.4 && ended(0) > 1.9, "{report:?}");
}

#[test]
fn backfill_uses_the_cores_that_a_narrow_gang_leaves_idle() {
    let gangs = r#""gangs":[{"threads":3,"work":"1s"},{"threads":2,"work":"1s"}]"#;
    let with = spec(&format!(r#"{{"cores":4,{gangs}}}"#)).expect("runs");
    let without = spec(&format!(r#"{{"cores":4,"backfill":false,{gangs}}}"#)).expect("runs");
    assert!(with.makespan_s < without.makespan_s, "{with:?} {without:?}");
    assert!(with.gangs.iter().any(|gang| gang.backfilled_s > 0.0));
}

#[test]
fn a_thousand_cores_are_simulated_and_all_work_is_done() {
    let json = r#"{"cores":1000,"gangs":[{"threads":700,"work":"100ms","count":5},
                   {"threads":150,"work":"50ms","count":20,"arrives":"1ms"}]}"#;
    let report = spec(json).expect("runs");
    let work = 5.0 * 700.0 * 0.1 + 20.0 * 150.0 * 0.05;
    near(report.utilization * report.makespan_s * 1000.0, work, 1e-6);
    assert!(report.gangs.iter().all(|gang| gang.finished_s.is_some()));
}

#[test]
fn wrong_specifications_are_refused_with_the_programs_name() {
    let refused = |json: &str| spec(json).expect_err(json).to_string();
    assert!(refused(r#"{"cores":2,"gangs":[{"name":"x","threads":0,"work":"1s"}]}"#).starts_with("x: "));
    assert!(refused(r#"{"cores":0,"gangs":[{"threads":1,"work":"1s"}]}"#).contains("1 to 1024"));
    assert!(refused(r#"{"cores":2,"gangs":[{"name":"x","threads":1}]}"#).contains("never ends"));
    assert!(refused(r#"{"cores":2,"scheduler":"magic","gangs":[]}"#).contains("paired"));
    assert!(refused(r#"{"cores":2,"kernel":"cfs","gangs":[]}"#).contains("cfs-2.6.32"));
    assert!(
        refused(r#"{"cores":2,"gangs":[{"threads":1,"interval":"1us","job":3}],"seconds":1}"#)
            .contains("every")
    );
}
