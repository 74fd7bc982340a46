//! The reader of the gang daemon's rules: no text makes it panic, accepted values are in bounds, and an error
//! names a position in the text.
#![no_main]

use unisono_gang::service::rules::{GangRules, RuleFits};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match GangRules::parse(text, &|name| (name == "alice").then_some(1000)) {
        Ok(rules) => {
            for rule in &rules.rules {
                match &rule.fits {
                    RuleFits::Groups(path) => assert!(!path.is_empty()),
                    RuleFits::Programs { program, user } => assert!(program.is_some() || user.is_some()),
                }
            }
            // for any patterns, names are compared in bounded time
            let _ = rules.of_process(&"a".repeat(255), 1000);
        }
        Err(error) => {
            assert!(!error.what.is_empty() && error.column >= 1);
            assert!((1..=text.split('\n').count()).contains(&error.line));
        }
    }
});
