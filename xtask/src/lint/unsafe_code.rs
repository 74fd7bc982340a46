//! Unsafe code is allowed only in the crates whose subject requires it; all others forbid it. (Clippy checks
//! that each block has a SAFETY comment and contains a single operation.)

use super::sources::Sources;

const ALLOWED: [&str; 6] =
    ["crates/intrinsics/", "crates/linux/", "crates/sync/", "crates/rma/", "crates/broker/peers/", "abi/"];
const FORBID: &str = "#![forbid(unsafe_code)]";

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let is_root = |path: &str| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    sources
        .rust()
        .filter(|file| is_root(&file.path) && !ALLOWED.iter().any(|allowed| file.path.starts_with(allowed)))
        .filter(|file| !file.text.lines().any(|line| line.trim() == FORBID))
        .map(|file| format!("{}:1: write {FORBID}; unsafe code belongs to {}", file.path, ALLOWED.join(", ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_code_is_a_problem() {
        let files = [
            ("crates/linux/src/lib.rs", "//! may\n"),
            ("crates/gang/src/lib.rs", "//! may not\n"),
            ("cli/src/main.rs", "#![forbid(unsafe_code)]\n"),
        ];
        let problems = check(&Sources::from_texts(&files));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("crates/gang/src/lib.rs:1:"));
    }
}
