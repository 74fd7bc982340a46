//! C sources are formatted as `.clang-format` at the root defines. Without clang-format the check is skipped,
//! and the summary reports that. Generated headers are not checked.

use super::sources::Sources;
use crate::step::StepVerdict;
use std::process::{Command, Stdio};

pub(super) fn check(sources: &Sources) -> StepVerdict {
    let mut version = Command::new("clang-format");
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if !version.status().is_ok_and(|status| status.success()) {
        return StepVerdict::skipped("clang-format is not installed: apt-get install clang-format");
    }
    let paths = written_by_people(sources);
    let mut format = Command::new("clang-format");
    format.args(["--dry-run", "--Werror"]).args(&paths).current_dir(&sources.root).stdin(Stdio::null());
    match format.output() {
        Ok(output) if output.status.success() => StepVerdict::passed(1),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let lines = said.lines().filter(|line| line.contains("error:") || line.contains("warning:"));
            let failures: Vec<String> = lines.map(str::to_owned).collect();
            let failed = failures.len().max(1) as u64;
            StepVerdict { failed, failures, ..StepVerdict::default() }
        }
        Err(error) => StepVerdict::failed(format!("clang-format: {error}")),
    }
}

fn written_by_people(sources: &Sources) -> Vec<&str> {
    let c = sources
        .files
        .iter()
        .filter(|file| file.has_ending(".c") || file.has_ending(".h") || file.has_ending(".cc"));
    c.filter(|file| !file.is_generated()).map(|file| file.path.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_a_program_made_are_left_alone() {
        let files = [
            ("a.h", "/* Made by cbindgen; do not edit.\n"),
            ("b.c", "int main(void);\n"),
            ("c.rs", "fn main() {}\n"),
        ];
        assert_eq!(written_by_people(&Sources::from_texts(&files)), ["b.c"]);
    }
}
