//! Host lists in the syntax of Slurm, such as `gpu[001-004,7],login`; and the hosts of a partition, which
//! Slurm itself lists.
//!
//! A range keeps the width of its first number: `[08-11]` is 08, 09, 10, 11. A name with several brackets
//! stands for all combinations of their numbers. Reference: Slurm, scontrol(1), `show hostnames`; sinfo(1).

use std::process::{Command, Stdio};

/// Maximum number of names that one part of a list may stand for. Chosen, not measured: ten times the nodes
/// of the largest networks that are planned.
const MAX_NAMES: usize = 1 << 20;

/// Splits a list at the commas outside of brackets.
pub(super) fn parts(list: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    list.split(move |letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .map(str::trim)
    .collect()
}

/// Returns the names that a part of a list stands for; a part without brackets stands for itself.
pub(super) fn expand(part: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = part.split_once('[') else { return Ok(vec![part.to_owned()]) };
    let unclosed =
        || format!("{part:?} has a bracket without its other half; write a list as in gpu[001-004,7]");
    let (inside, after) = rest.split_once(']').ok_or_else(unclosed)?;
    let numbers = inside.split(',').map(|range| numbers(range.trim()).ok_or(range));
    let mut names = Vec::new();
    let ends = expand(after)?;
    for range in numbers {
        let (range, width) = range
            .map_err(|range| format!("{range:?} in {part:?} is neither a number nor a range like 001-004"))?;
        for number in range {
            for end in &ends {
                if names.len() == MAX_NAMES {
                    return Err(format!("{part:?} stands for more than {MAX_NAMES} names"));
                }
                names.push(format!("{before}{number:0width$}{end}"));
            }
        }
    }
    Ok(names)
}

/// Asks Slurm's `sinfo` for the list of a partition's hosts.
pub(super) fn of_partition(partition: &str) -> Result<String, String> {
    let mut sinfo = Command::new("sinfo");
    sinfo.args(["--noheader", "--format=%N"]).arg(format!("--partition={partition}")).stdin(Stdio::null());
    let output = sinfo.output().map_err(|error| {
        format!("partition={partition}: Slurm's sinfo does not start here ({error}); name the hosts, as gpu[001-004]")
    })?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let lists: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match (output.status.success(), lists.is_empty()) {
        (true, false) => Ok(lists.join(",")),
        (true, true) => Err(format!(
            "partition={partition}: Slurm knows no such partition, or it has no hosts; see sinfo -s"
        )),
        (false, _) => Err(format!(
            "partition={partition}: sinfo failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// Parses a range of numbers. Returns it with the number of digits to which each number is padded.
fn numbers(range: &str) -> Option<(std::ops::RangeInclusive<u64>, usize)> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(first) || !is_number(last) {
        return None;
    }
    let (from, until): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (from <= until).then_some((from..=until, first.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(list: &str) -> Result<Vec<String>, String> {
        let names: Result<Vec<Vec<String>>, String> = parts(list).into_iter().map(expand).collect();
        Ok(names?.concat())
    }

    #[test]
    fn brackets_stand_for_numbers_of_the_width_of_the_first() {
        let names = |list: &str| all(list).expect("it is a list").join(" ");
        assert_eq!(names("gpu[001-003,7], login"), "gpu001 gpu002 gpu003 gpu7 login");
        assert_eq!(names("n[08-11]-ib"), "n08-ib n09-ib n10-ib n11-ib");
        assert_eq!(names("r[1-2]n[3,5]"), "r1n3 r1n5 r2n3 r2n5");
        assert_eq!(names("0,3,5-9"), "0 3 5-9");
    }

    #[test]
    fn a_list_that_is_none_is_refused_with_the_form() {
        for (list, said) in [
            ("gpu[1-", "as in gpu[001-004,7]"),
            ("gpu[a-b]", "\"a-b\" in \"gpu[a-b]\" is neither"),
            ("gpu[3-1]", "neither a number nor a range"),
            ("gpu[]", "neither a number nor a range"),
            ("gpu[+1]", "neither a number nor a range"),
            ("x[0-999999]y[0-9]", "more than 1048576 names"),
        ] {
            let why = all(list).expect_err(list);
            assert!(why.contains(said), "{why}");
        }
    }
}
