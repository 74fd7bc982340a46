//! All tests that need a real host, in one program: each module lists its tests with what they need.

use std::process::ExitCode;
use unisono_host_tests::Test;

mod advise_answers;
mod doctor;
mod events_address;
mod events_commands;
mod events_full_disk;
mod events_joined;
mod events_languages;
mod events_memory;
mod events_order;
mod events_rumqttc;
mod events_served;
mod events_soak;
mod events_user;
mod fit;
mod gang;
mod gang_daemon;
mod gang_hostile;
mod gang_rules;
mod gang_shared;
mod gang_slurm;
mod gang_told;
mod gang_watched;
mod harness;
mod interposed_shared;
mod joined;
mod mechanism;
mod middleware_study;
mod monitor;
mod mpi;
mod mpi_bridges;
mod mpi_end;
mod mpi_hosts;
mod mpi_matrix;
mod mpi_private;
mod mpi_progress;
mod mpi_start;
mod mpi_statistics;
mod mpi_stock;
mod mpi_waits;
mod one_sided;
mod queue;
mod queue_bpf;
mod queue_change;
mod queue_cpu;
mod queue_in;
mod queue_interposed;
mod queue_interposed_device;
mod queue_interposed_process;
mod queue_lifecycle;
mod queue_match;
mod queue_shared;
mod queue_show;
mod queue_study;
mod queue_switch;
mod report;
mod run;
mod run_hosts;
mod sched_ext;
mod servers;
mod tree_devices;
mod wire;

/// The modules with tests, in the order in which they start.
const MODULES: &[(&str, &[Test])] = &[
    ("advise_answers", advise_answers::TESTS),
    ("doctor", doctor::TESTS),
    ("events_address", events_address::TESTS),
    ("events_commands", events_commands::TESTS),
    ("events_full_disk", events_full_disk::TESTS),
    ("events_joined", events_joined::TESTS),
    ("events_languages", events_languages::TESTS),
    ("events_memory", events_memory::TESTS),
    ("events_order", events_order::TESTS),
    ("events_rumqttc", events_rumqttc::TESTS),
    ("events_served", events_served::TESTS),
    ("events_soak", events_soak::TESTS),
    ("events_user", events_user::TESTS),
    ("fit", fit::TESTS),
    ("gang", gang::TESTS),
    ("gang_daemon", gang_daemon::TESTS),
    ("gang_hostile", gang_hostile::TESTS),
    ("gang_rules", gang_rules::TESTS),
    ("gang_slurm", gang_slurm::TESTS),
    ("gang_told", gang_told::TESTS),
    ("gang_watched", gang_watched::TESTS),
    ("harness", harness::TESTS),
    ("mechanism", mechanism::TESTS),
    ("middleware_study", middleware_study::TESTS),
    ("monitor", monitor::TESTS),
    ("mpi", mpi::TESTS),
    ("mpi_bridges", mpi_bridges::TESTS),
    ("mpi_end", mpi_end::TESTS),
    ("mpi_hosts", mpi_hosts::TESTS),
    ("mpi_matrix", mpi_matrix::TESTS),
    ("mpi_private", mpi_private::TESTS),
    ("mpi_progress", mpi_progress::TESTS),
    ("mpi_start", mpi_start::TESTS),
    ("mpi_statistics", mpi_statistics::TESTS),
    ("mpi_stock", mpi_stock::TESTS),
    ("mpi_waits", mpi_waits::TESTS),
    ("one_sided", one_sided::TESTS),
    ("queue", queue::TESTS),
    ("queue_bpf", queue_bpf::TESTS),
    ("queue_change", queue_change::TESTS),
    ("queue_cpu", queue_cpu::TESTS),
    ("queue_in", queue_in::TESTS),
    ("queue_interposed", queue_interposed::TESTS),
    ("queue_interposed_device", queue_interposed_device::TESTS),
    ("queue_interposed_process", queue_interposed_process::TESTS),
    ("queue_lifecycle", queue_lifecycle::TESTS),
    ("queue_match", queue_match::TESTS),
    ("queue_show", queue_show::TESTS),
    ("queue_study", queue_study::TESTS),
    ("queue_switch", queue_switch::TESTS),
    ("report", report::TESTS),
    ("run", run::TESTS),
    ("run_hosts", run_hosts::TESTS),
    ("sched_ext", sched_ext::TESTS),
    ("servers", servers::TESTS),
    ("tree_devices", tree_devices::TESTS),
    ("wire", wire::TESTS),
];

fn main() -> ExitCode {
    if let Some(code) = events_memory::play_role() {
        return code;
    }
    unisono_host_tests::main(if harness::wants_samples() { harness::SAMPLES } else { MODULES })
}
