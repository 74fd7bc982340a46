//! Tests programs that `unisono queue run` starts in a class: their packets, their exit code, their control
//! group.

use crate::queue_shared::{DEVICE, applied, cleared, file, on_a_host, unisono};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use unisono_enforce::backends::in_force;
use unisono_enforce::journal::LinkSide;
use unisono_host_tests::processes::words;
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, require};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, hierarchies};
use unisono_linux::process_stat::is_gone;

/// A script that sends five datagrams and exits with a code of its own.
const SENDER: &str = "for i in 1 2 3 4 5; do echo x > /dev/udp/10.77.0.2/9; done; exit 7";

fn packets(class: &str) -> u64 {
    let mut backend = in_force(&LinkSide::out(DEVICE)).expect("a policy is in force");
    let live = backend.live().expect("it counts");
    live.classes.into_iter().find(|there| there.name == class).expect("it is in the policy").packets
}

/// Returns the number of groups of programs below a group.
fn runs(group: &Path) -> usize {
    let entries = fs::read_dir(group).expect("it is there").flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("run-")).count()
}

fn a_program_runs_in_the_class_that_is_named_and_its_group_goes_with_it() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    require::program("bash", "apt-get install bash")?;
    let all = hierarchies().expect("proc is mounted");
    let tree = CgroupHierarchy::of_version(&all, CgroupVersion::V2)
        .ok_or_else(|| Skipped::because("no control groups of version 2 are mounted"))?;
    let above = groups::name("run");
    let group = tree.root.join(&above).join("video");
    let policy = file(&format!(
        "rate = \"50mbit\"\ndefault = \"rest\"\n[class.video]\nmatch = [{{ cgroup = \"/{above}/video\" }}]\n[class.other]\n"
    ));
    // with `--backend kernel` the group must exist before; with the other backend `run` makes it
    for (backend, exists) in [("kernel", true), ("interposed", false)] {
        if exists {
            fs::create_dir_all(&group)
                .map_err(|error| Skipped::because(format!("no control group: {error}")))?;
        }
        applied(&policy, &["--backend", backend])?;
        let output = unisono(&["queue", "run", "--class", "video", "--", "bash", "-c", SENDER]);
        assert_eq!(output.status.code(), Some(7), "{backend}: {}", words(&output));
        while packets("video") < 5 {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(runs(&group), 0, "{backend}");
        // a process that outlives the program stays in the class, and a later run removes its group
        let left =
            unisono(&["queue", "run", "--class", "video", "bash", "-c", "sleep 60 >&- 2>&- & echo $!"]);
        assert_eq!(left.status.code(), Some(0), "{}", words(&left));
        assert!(words(&left).contains("stay in the class"), "{}", words(&left));
        assert_eq!(runs(&group), 1);
        let child = String::from_utf8_lossy(&left.stdout).trim().to_owned();
        unisono(&["queue", "run", "--class", "video", "kill", "-9", &child]);
        while !is_gone(&child) {
            thread::sleep(Duration::from_millis(5));
        }
        unisono(&["queue", "run", "--class", "video", "true"]);
        assert_eq!(runs(&group), 0);
        for (class, said) in
            [("other", "match by control group alone"), ("vidoe", "the policy has other, rest, video")]
        {
            let refused = unisono(&["queue", "run", "--class", class, "true"]);
            assert_eq!(refused.status.code(), Some(2), "{}", words(&refused));
            assert!(words(&refused).contains(said), "{}", words(&refused));
        }
        cleared(&[]);
        fs::remove_dir(&group).expect("it is empty");
    }
    fs::remove_dir(tree.root.join(&above)).expect("it is empty");
    Ok(())
}

fn apply_makes_the_groups_that_run_proposes() -> TestOutcome {
    let _hosts = on_a_host()?;
    let all = hierarchies().expect("proc is mounted");
    let tree = CgroupHierarchy::of_version(&all, CgroupVersion::V2)
        .ok_or_else(|| Skipped::because("no control groups of version 2 are mounted"))?;
    let name = groups::name("proposed");
    let group = tree.root.join("unisono").join(&name);
    let text = |of_class: &str| {
        file(&format!(
            "rate = \"50mbit\"\ndefault = \"rest\"\n[class.{name}]\n{of_class}\n[class.rest]\n"
        ))
    };
    let plain = text("");
    applied(&plain, &[])?;
    let refused = unisono(&["queue", "run", "--class", &name, "true"]);
    let proposed = format!("{{ cgroup = \"/unisono/{name}\" }}");
    assert!(words(&refused).contains(&proposed), "{}", words(&refused));
    let policy = text(&format!("match = [{proposed}]"));
    let path = policy.path().to_str().expect("a plain name");
    let checked = unisono(&["queue", "apply", path, "--check", "--dev", DEVICE]);
    assert!(
        checked.status.success() && !group.exists(),
        "a check changes nothing: {}",
        words(&checked)
    );
    applied(&policy, &[])?;
    assert!(group.is_dir());
    let ran = unisono(&["queue", "run", "--class", &name, "--", "true"]);
    assert_eq!(ran.status.code(), Some(0), "{}", words(&ran));
    cleared(&[]);
    fs::remove_dir(&group).expect("it is empty");
    Ok(())
}

host_tests![needs Queues;
    apply_makes_the_groups_that_run_proposes within 60,
    a_program_runs_in_the_class_that_is_named_and_its_group_goes_with_it within 120,
];
