//! Adds settings for a container to the bundle that an engine passes to its OCI runtime.
//!
//! The limits of a container are in its `config.json` before the container exists (`linux.resources.cpu`),
//! and so is the environment of its first program. So the variables are added there, and the image does not
//! change. A variable that the image or the user set is never changed.
//!
//! Pure functions. When not to use it: if a control group around the container has a quota (such as a
//! Kubernetes pod's), because that is not in the configuration. The load of the host is not considered.
//!
//! Reference: OCI runtime specification 1.1, config.md and config-linux.md.

use crate::decide::{HostState, Setting, decide};
use crate::effective::effective;
use crate::program_traits::ProgramTraits;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use unisono_linux::affinity::CpuSet;
use unisono_linux::cgroup::CgroupVersion;
use unisono_linux::quota::{GroupRelation, ProcessorLimits, Quota};

/// The period of a quota for which the configuration has none, in microseconds: the kernel's default.
const DEFAULT_PERIOD_US: u64 = 100_000;

/// The options of runc, crun, youki and runsc before the subcommand that have the next word as their value.
const GLOBAL_OPTIONS: [&str; 7] =
    ["root", "log", "log-format", "criu", "rootless", "cgroup-manager", "debug-log"];

/// Returns the bundle of the container that an OCI runtime creates with these arguments, or `None` for other
/// subcommands. Without `--bundle`, the bundle is the current directory.
pub fn created_bundle(arguments: &[OsString]) -> Option<PathBuf> {
    let mut words = arguments.iter();
    let subcommand = loop {
        let word = words.next()?;
        if !word.to_string_lossy().starts_with('-') {
            break word;
        }
        // Go's flags have one hyphen or two
        let name = word.to_string_lossy().trim_start_matches('-').to_owned();
        if GLOBAL_OPTIONS.contains(&name.as_str()) {
            words.next();
        }
    };
    if subcommand != "create" && subcommand != "run" {
        return None;
    }
    let rest: Vec<&OsString> = words.collect();
    let joined = rest.iter().find_map(|word| {
        let text = word.to_str()?;
        let value = ["--bundle=", "-bundle=", "-b="].iter().find_map(|option| text.strip_prefix(option));
        // crun also takes the value right after the letter
        let value = value.or_else(|| text.strip_prefix("-b").filter(|rest| rest.starts_with(['/', '.'])));
        value.map(PathBuf::from)
    });
    let is_option = |word: &OsStr| word == "--bundle" || word == "-bundle" || word == "-b";
    let apart = rest.windows(2).find(|pair| is_option(pair[0])).map(|pair| PathBuf::from(pair[1]));
    Some(apart.or(joined).unwrap_or_else(|| ".".into()))
}

/// Adds to a container's configuration the variables that its first program needs. `host` has the limits of
/// the OCI runtime's process. Returns the variables added.
pub fn fit_container(config: &mut Value, host: &ProcessorLimits) -> Vec<Setting> {
    let limits = container_limits(config, host);
    let state = HostState { effective: effective(&limits), limits, others: None, ranks: None };
    let Some(process) = config.get_mut("process").and_then(Value::as_object_mut) else { return Vec::new() };
    let environment = process.entry("env").or_insert(Value::Null);
    if environment.is_null() {
        *environment = Value::Array(Vec::new());
    }
    let Some(environment) = environment.as_array_mut() else { return Vec::new() };
    let user = |name: &str| {
        let words = environment.iter().filter_map(Value::as_str).filter_map(|word| word.split_once('='));
        words.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next_back()
    };
    // the program's file is not read: it is in the image, where symbolic links may lead out of the
    // container's root
    let plan = decide(&state, &ProgramTraits::default(), user);
    let words = plan.set.iter().map(|set| Value::from(format!("{}={}", set.name, set.value)));
    environment.extend(words);
    plan.set
}

/// Returns the limits that the container will have.
fn container_limits(config: &Value, host: &ProcessorLimits) -> ProcessorLimits {
    let cpu = config.pointer("/linux/resources/cpu");
    // files of version 2 by their names; the runtime writes them last
    let unified = |name: &str| config.pointer("/linux/resources/unified")?.get(name)?.as_str();
    let number = |name: &str| cpu?.get(name)?.as_i64().and_then(|number| u64::try_from(number).ok());
    let cpus = unified("cpuset.cpus").or_else(|| cpu?.get("cpus")?.as_str());
    let cpuset: Option<CpuSet> =
        cpus.and_then(|cpus| cpus.trim().parse().ok()).filter(|set: &CpuSet| !set.is_empty());
    let of_resources = || {
        let time_us = number("quota").filter(|time_us| *time_us > 0)?;
        Some((time_us, number("period").filter(|period| *period > 0).unwrap_or(DEFAULT_PERIOD_US)))
    };
    let bandwidth = match unified("cpu.max") {
        Some(text) => cpu_max(text),
        None => of_resources(),
    };
    let quota = bandwidth.map(|(time_us, period_us)| Quota {
        time_us,
        period_us,
        group: "the container".into(),
        of: GroupRelation::Own,
        version: CgroupVersion::V2,
    });
    // the container's cpuset replaces the affinity of the runtime's process
    let affinity = cpuset.clone().unwrap_or_else(|| host.affinity.clone());
    ProcessorLimits { affinity, cpuset, quota, online: host.online, unread: Vec::new() }
}

/// Parses the time and the period of a text for `cpu.max`: `50000 100000`, `50000` or `max`.
fn cpu_max(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok().filter(|number| *number > 0));
    let time_us = numbers.next()??;
    Some((time_us, numbers.next().unwrap_or(Some(DEFAULT_PERIOD_US))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn host() -> ProcessorLimits {
        let affinity = "0-7".parse().expect("a list");
        ProcessorLimits { affinity, cpuset: None, quota: None, online: 8, unread: Vec::new() }
    }

    fn fitted(cpu: Value, env: &[&str]) -> Vec<String> {
        let mut config =
            json!({"process": {"env": env, "args": ["sh"]}, "linux": {"resources": {"cpu": cpu}}});
        fit_container(&mut config, &host());
        let env = config["process"]["env"].as_array().expect("an array");
        env.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    #[test]
    fn a_container_with_a_quota_or_a_cpuset_gets_the_variables_and_keeps_its_own() {
        let two = fitted(json!({"quota": 200_000, "period": 100_000}), &["PATH=/bin", "GOMAXPROCS=1"]);
        assert_eq!(two[..2], ["PATH=/bin", "GOMAXPROCS=1"]);
        assert!(two.contains(&"OMP_NUM_THREADS=2".to_owned()), "{two:?}");
        assert_eq!(two.iter().filter(|word| word.starts_with("GOMAXPROCS=")).count(), 1);
        let default_period = fitted(json!({"quota": 300_000}), &[]);
        assert!(default_period.contains(&"OMP_NUM_THREADS=3".to_owned()), "{default_period:?}");
        // only the runtimes that count the machine are wrong under a cpuset
        let bound = fitted(json!({"cpus": "2-3"}), &[]);
        assert!(!bound.iter().any(|word| word.starts_with("OMP_NUM_THREADS")), "{bound:?}");
        assert_eq!(fitted(json!({}), &["A=1"]), ["A=1"], "no limit, nothing to set");
        assert_eq!(fitted(json!({"quota": -1}), &[]), Vec::<String>::new(), "-1: no quota");
    }

    #[test]
    fn limits_given_by_the_names_of_files_count_and_prevail() {
        let resources = |resources: Value| {
            // an engine may write null for an unset field
            let mut config =
                json!({"process": {"env": null, "args": ["sh"]}, "linux": {"resources": resources}});
            let set = fit_container(&mut config, &host());
            assert_eq!(config["process"]["env"].as_array().map_or(0, Vec::len), set.len());
            set.into_iter().find(|set| set.name == "OMP_NUM_THREADS").map(|set| set.value)
        };
        assert_eq!(resources(json!({"unified": {"cpu.max": "200000 100000"}})).as_deref(), Some("2"));
        assert_eq!(resources(json!({"unified": {"cpu.max": "300000"}})).as_deref(), Some("3"));
        let both = json!({"cpu": {"quota": 100_000}, "unified": {"cpu.max": "max"}});
        assert_eq!(resources(both), None);
        assert_eq!(resources(json!({"cpu": {"quota": 100_000}})).as_deref(), Some("1"));
        let cpus = json!({"unified": {"cpu.max": "200000 100000", "cpuset.cpus": "1\n"}});
        assert_eq!(resources(cpus), None, "the affinity is one processor already");
        for odd in ["", "0 1", "-1", "x 100000", "1 0"] {
            assert_eq!(resources(json!({"unified": {"cpu.max": odd}})), None, "{odd:?}");
        }
    }

    #[test]
    fn only_the_creation_of_a_container_has_a_bundle() {
        let bundle = |line: &str| {
            created_bundle(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
                .map(|path| path.display().to_string())
        };
        let docker = "--root /run/runc --log /l --log-format json --systemd-cgroup create --bundle /b --pid-file /p id";
        assert_eq!(bundle(docker).as_deref(), Some("/b"));
        assert_eq!(bundle("--log=create run -b /b id").as_deref(), Some("/b"));
        assert_eq!(bundle("create --bundle=/c id").as_deref(), Some("/c"));
        assert_eq!(bundle("-root /run/runsc -log-format json create -bundle /d id").as_deref(), Some("/d"));
        assert_eq!(bundle("run -b/e id").as_deref(), Some("/e"));
        assert_eq!(bundle("create id").as_deref(), Some("."));
        for other in ["--root create start id", "delete --force id", "--version", "features"] {
            assert_eq!(bundle(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_configuration_says_no_word_of_it_is_lost(
            quota in any::<i64>(), period in any::<i64>(), cpus in "[0-9,-]{0,6}",
            env in prop::collection::vec("[A-Z]{1,4}=[a-z0-9]{0,3}", 0..5),
        ) {
            let cpu = json!({"quota": quota, "period": period, "cpus": cpus});
            let words: Vec<&str> = env.iter().map(String::as_str).collect();
            let after = fitted(cpu, &words);
            prop_assert_eq!(&after[..words.len()], &words[..]);
        }
    }

    #[test]
    fn a_configuration_without_a_process_stays_as_it_is() {
        for config in [json!({}), json!({"process": 1}), json!({"process": {"env": "A=1"}}), json!([])] {
            let mut after = config.clone();
            assert_eq!(fit_container(&mut after, &host()), Vec::new());
            assert_eq!(after, config);
        }
    }
}
