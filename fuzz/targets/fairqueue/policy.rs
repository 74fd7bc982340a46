//! Fuzzes the reader of policies: no text makes it panic, and a scheduler takes every accepted policy.
#![no_main]

use unisono_fairqueue::{Policy, Scheduler};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Policy::parse(text) {
        Ok(policy) => {
            assert!(policy.hierarchy.is_leaf(policy.default));
            for rule in &policy.rules {
                assert!(policy.hierarchy.is_leaf(rule.class));
            }
            let _ = Scheduler::<()>::new(policy.hierarchy);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
