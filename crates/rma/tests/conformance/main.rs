//! One contract for every transport, style and flavour: against the sequential model, and for misuse.

#![cfg(not(loom))]

mod drive;
mod misuse;
mod model;

use proptest::prelude::*;
use unisono_rma::{Flavor, Job, Style};

/// Ends the test program, with a word, when it hangs.
fn watch() {
    use std::sync::Once;
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(300));
            eprintln!("a test has hung for five minutes");
            std::process::abort();
        });
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn messages_between_threads_agree_with_the_model_deferred(program in model::program()) {
        watch();
        drive::compare(&program, Job::threads(program.size), Style::Deferred, Flavor::Allocated);
    }

    #[test]
    fn messages_between_threads_agree_with_the_model_naive(program in model::program()) {
        watch();
        drive::compare(&program, Job::threads(program.size), Style::Naive, Flavor::Created);
    }
}
