//! Times have types of their own: parameters and results that are times have the type `Instant` or
//! `Duration`, so that a count cannot be mistaken for a time.
//!
//! Where the interface of the kernel or of C uses `u64` (crates/linux, abi), the type stays `u64`.

use super::code::Code;
use super::sources::{SourceFile, Sources};

pub(super) fn check(sources: &Sources) -> Vec<String> {
    sources.rust().filter(|file| is_ours(file)).flat_map(file_problems).collect()
}

fn is_ours(file: &SourceFile) -> bool {
    file.path.contains("/src/")
        && !file.has_ending("/tests.rs")
        && !["crates/linux/", "abi/"].iter().any(|folder| file.path.starts_with(folder))
}

fn file_problems(file: &SourceFile) -> Vec<String> {
    let code = match Code::read(&file.text, &["of a crate"]) {
        Ok(code) => code,
        Err(error) => return vec![format!("{}: {error}", file.path)],
    };
    let is_time = |name: &str| {
        ["now", "_now", "deadline"].contains(&name)
            || ["_ns", "_deadline", "_until"].iter().any(|end| name.ends_with(end))
    };
    let times = code.bare_numbers.into_iter().filter(|(name, _)| is_time(name));
    times
        .map(|(name, line)| {
            format!("{}:{line}: {name} is a time; make it an Instant or a Duration", file.path)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_time_is_a_problem_where_shipped_code_takes_or_returns_it() {
        let text = "struct A { at_ns: u64 }\nimpl A { fn a(&self, now: u64) {} }\nfn b<T>(x: u64, wait_ns: u64) {}\n\
                    fn c(now: Instant, now_then: u64) {}\nfn now() -> u64 { 0 }\nfn used_ns() -> Duration { x() }\n\
                    #[cfg(test)]\nmod tests { fn d(now: u64) {} }";
        let files =
            [("crates/a/src/a.rs", text), ("crates/linux/src/a.rs", text), ("crates/a/tests/a.rs", text)];
        let found = [("now", 2), ("wait_ns", 3), ("now", 5)];
        let found = found.map(|(name, at)| {
            format!("crates/a/src/a.rs:{at}: {name} is a time; make it an Instant or a Duration")
        });
        assert_eq!(check(&Sources::from_texts(&files)), found);
    }
}
