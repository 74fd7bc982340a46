//! The peers in C and C++ agree with Rust: draws, keys, counts. A test is skipped, with the reason, if its
//! compiler is missing.

use rand_pcg::Pcg32;
use std::path::Path;
use std::time::Duration;
use unisono_study::peer::{PeerBench, PeerBuilds, PeerFile, PeerKind, catalogue};
use unisono_workload::barrier_choice::BarrierChoice;
use unisono_workload::kernel::{clustering, stencil};
use unisono_workload::{Options, arrival::truncated_normal};

fn bench() -> Vec<PeerFile> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
    // peers in other languages only, because there is no `unisono` program here
    let built = |name: &str| catalogue::peers().any(|peer| peer.name == name);
    let bench = PeerBench::prepare(&cache, PeerBuilds::Short, Path::new("unisono"), &mut |_| (), built)
        .expect("a cache");
    for missing in &bench.unavailable {
        eprintln!("skipped {}: {}; {}", missing.name, missing.reason, missing.remedy);
    }
    bench.programs
}

#[test]
fn peers_measure_barrier_and_all_participants_agree() {
    let programs = bench();
    for program in programs.iter().filter(|program| program.kind == PeerKind::Barrier) {
        for threads in [1, 2, 3] {
            let options = Options {
                threads,
                interval: Duration::from_micros(5),
                variance: Duration::from_micros(10),
                seconds: 0.05,
                warm_up: Duration::from_millis(10),
                seed: 42,
                ..Options::default()
            };
            let measured = program.measure(&options).expect("a measurement");
            assert_eq!(measured.implementation, program.name);
            assert_eq!(measured.threads, threads);
            assert_eq!((measured.interval_ns, measured.variance_ns, measured.seed), (5_000, 10_000, 42));
            assert_eq!(measured.iterations, vec![measured.iterations[0]; threads]);
            assert!(measured.episodes > 0 && measured.ns_per_barrier.mean > 5_000.0, "{measured:?}");
            assert_eq!(measured.ns_per_barrier.n, measured.episodes);
            assert!(measured.end_ns - measured.start_ns >= 50_000_000);
            assert!((measured.barriers_per_s * measured.elapsed_s - measured.episodes as f64).abs() < 1.0);
        }
    }
}

#[test]
fn peers_draw_the_same_arrival_times() {
    let mut generator = Pcg32::new(99, 0);
    let expected: Vec<f64> = (0..200).map(|_| truncated_normal(&mut generator, 1e6)).collect();
    for program in bench().iter().filter(|program| program.kind == PeerKind::Barrier) {
        let options = Options { variance: Duration::from_millis(1), seed: 99, ..Options::default() };
        let output = program.command(&options).args(["--draws", "200"]).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let drawn: Vec<f64> = text.lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(drawn.len(), expected.len());
        for (drawn, expected) in drawn.iter().zip(&expected) {
            assert!((drawn - expected).abs() < 1e-6, "{}: {drawn}, not {expected}", program.name);
        }
    }
}

#[test]
fn peers_refuse_what_they_do_not_know_with_exit_code_2() {
    // an exchange is started by its MPI, which has exit codes of its own
    for program in bench().into_iter().filter(|program| program.kind != PeerKind::Exchange) {
        let mut command = program.command(&Options::default());
        let status = command.args(["--nonsense", "1"]).output().expect("it runs").status;
        assert_eq!(status.code(), Some(2), "{}", program.name);
    }
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn kernels_in_c_compute_what_ours_do() {
    // more iterations than a batch has rounds, but few enough for runtimes that spin when threads outnumber
    // cores
    for (size, iterations) in [(33, 70)] {
        let options = |threads| Options {
            threads,
            size: Some(size),
            iterations: Some(iterations),
            seed: 5,
            ..Options::default()
        };
        let stencil =
            stencil::run_unisono(&BarrierChoice::default(), &options(1)).expect("measured").checksum;
        let clustering =
            clustering::run_unisono(&BarrierChoice::default(), &options(1)).expect("measured").checksum;
        assert!(stencil.is_some() && clustering.is_some());
        for program in bench().iter().filter(|program| program.kind == PeerKind::Kernel) {
            let expected = if program.name.starts_with("stencil") { stencil } else { clustering };
            // more threads than cores only if waiters sleep; with spinning waiters the test would take
            // minutes
            for threads in [1, if program.name.ends_with("passive") { 3 } else { 2 }] {
                let measured = program.measure(&options(threads)).expect("a measurement");
                assert_eq!(measured.implementation, program.name);
                // the JSON reader may be off by one in the last place
                let (checksum, expected) = measured.checksum.zip(expected).expect("two checksums");
                let off = (checksum - expected).abs() / expected;
                assert!(off < 1e-15, "{} with {threads} threads: {checksum}, not {expected}", program.name);
                assert_eq!(measured.iterations, vec![iterations; threads]);
            }
        }
    }
}
