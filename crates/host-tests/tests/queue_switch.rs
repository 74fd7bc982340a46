//! Tests that a policy moves to another backend: `unisono queue apply` with another backend, another way or
//! another queue of the kernel.

use crate::queue_shared::{
    DEVICE, THREE, applied, cleared, file, looks, name, on_a_host, queue_apply, seen, unisono,
};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use unisono_enforce::backends;
use unisono_enforce::journal::{Journal, LinkSide};
use unisono_host_tests::processes::text;
use unisono_host_tests::{TestOutcome, host_tests, program, require};

const INTERPOSED: [&str; 2] = ["--backend", "interposed"];
const KERNEL: [&str; 2] = ["--backend", "kernel"];
const AF_XDP: [&str; 6] = ["--backend", "interposed", "--way", "af-xdp", "--wait", "block"];

fn in_force() -> &'static str {
    backends::in_force(&LinkSide::out(DEVICE)).expect("a policy holds").kind().name
}

/// Returns the backend's part of the journal: the options of a queue, or the classes of the kernel.
fn before() -> serde_json::Value {
    let journal = Journal::for_device(DEVICE).expect("proc is mounted");
    journal.read::<serde_json::Value>().expect("it is sound").expect("a policy holds").before
}

fn no_journal_is_aside() {
    let journal = Journal::for_device(DEVICE).expect("proc is mounted");
    assert!(!journal.path().with_extension("aside").exists());
}

fn each_place_takes_over_from_each_other_and_clear_leaves_the_device_as_it_was() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    let untouched = looks();
    applied(&policy, &KERNEL)?;
    let with_classes = seen();
    for _ in 0..2 {
        applied(&policy, &INTERPOSED)?;
        assert_eq!(in_force(), "interposed");
        assert!(!seen().contains("htb"), "{}", seen());
        no_journal_is_aside();
        applied(&policy, &KERNEL)?;
        assert_eq!(in_force(), "kernel");
        assert_eq!(seen(), with_classes);
        assert!(!looks().contains("unisono0") && !looks().contains("unisono_interpose"), "{}", looks());
        no_journal_is_aside();
    }
    cleared(&["--dev", DEVICE]);
    assert_eq!(looks(), untouched);
    Ok(())
}

fn another_way_is_taken_and_what_is_not_asked_for_stays() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    let untouched = looks();
    applied(&policy, &AF_XDP)?;
    let with_af_xdp = before()["options"].clone();
    let guard =
        || Journal::for_device(DEVICE).expect("proc is mounted").read::<serde_json::Value>().expect("sound");
    let held = guard().map(|record| record.author.process);
    // neither command asks for a change of the queue's options
    applied(&policy, &[])?;
    applied(&policy, &AF_XDP)?;
    assert_eq!(guard().map(|record| record.author.process), held);
    assert_eq!((in_force(), &before()["options"]), ("interposed", &with_af_xdp));
    applied(&policy, &["--way", "tun"])?;
    let with_tun = before()["options"].clone();
    assert_ne!(with_tun["way"], with_af_xdp["way"]);
    assert_eq!(with_tun["patience"], with_af_xdp["patience"]);
    cleared(&["--dev", DEVICE]);
    assert_eq!(looks(), untouched);
    Ok(())
}

fn our_scheduler_in_the_kernel_takes_over_and_is_taken_over_from() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    let untouched = looks();
    applied(&policy, &["--kernel-queue", "bpf"])?;
    for (options, place) in [
        (&["--kernel-queue", "htb"][..], "kernel"),
        (&["--kernel-queue", "bpf"], "kernel-bpf"),
        (&INTERPOSED, "interposed"),
        (&["--kernel-queue", "bpf"], "kernel-bpf"),
    ] {
        applied(&policy, options)?;
        assert_eq!(in_force(), place);
    }
    cleared(&["--dev", DEVICE]);
    assert_eq!(looks(), untouched);
    Ok(())
}

fn a_place_that_cannot_begin_leaves_the_one_before_in_force_and_both_are_said() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let (policy, other) = (file(THREE), file("rate = \"9mbit\"\n[class.a]\n"));
    let untouched = looks();
    applied(&policy, &KERNEL)?;
    let with_classes = looks();
    // another device already has the name of the queue's own device
    let index =
        Journal::for_device(DEVICE).expect("proc is mounted").path().file_stem().map(|stem| stem.to_owned());
    let index = index.and_then(|stem| Some(stem.to_str()?.rsplit_once('-')?.1.to_owned())).expect("a number");
    let taken = format!("unisono{index}");
    let ip = |words: &[&str]| assert!(Command::new("ip").args(words).status().expect("ip starts").success());
    ip(&["link", "add", &taken, "type", "veth", "peer", "name", "elsewhere"]);
    let refused = queue_apply(&other, &INTERPOSED);
    ip(&["link", "del", &taken]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("TAP"), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("the policy before is in force on cable"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!((in_force(), looks()), ("kernel", with_classes));
    no_journal_is_aside();
    // the same between two ways; the previous queue has to begin again, with its own options
    applied(&policy, &AF_XDP)?;
    let options = before()["options"].clone();
    let refused = queue_apply(&other, &["--way", "tun", "--cpu", "100000"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("the policy before is in force on cable"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!((in_force(), &before()["options"]), ("interposed", &options));
    cleared(&["--dev", DEVICE]);
    assert_eq!(looks(), untouched);
    Ok(())
}

/// Returns the files in the directory of journals. There may be some before the test, because a test that was
/// skipped half way leaves a journal of a namespace that no longer exists.
fn files() -> BTreeSet<OsString> {
    fs::read_dir("/run/unisono/queue")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect()
}

fn a_switch_that_is_killed_anywhere_leaves_one_policy_whole_and_clear_leaves_nothing() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    let (untouched, others) = (looks(), files());
    let ways = [(KERNEL, INTERPOSED), (INTERPOSED, KERNEL)];
    for (turn, (from, to)) in ways.into_iter().cycle().take(24).enumerate() {
        applied(&policy, &from)?;
        let mut command = Command::new(program::unisono());
        command.args(["queue", "apply", name(&policy), "--dev", DEVICE]).args(to);
        let mut switch = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        thread::sleep(Duration::from_millis(turn as u64 * 6));
        switch.kill().expect("it is ours");
        switch.wait().expect("it is ours");
        assert!(
            unisono(&["queue", "show", "--once", "--interval", "5ms", "--dev", DEVICE]).status.success(),
            "turn {turn}"
        );
        no_journal_is_aside();
        let place = in_force();
        assert_eq!(seen().contains("htb"), place == "kernel", "turn {turn}: {place}, {}", seen());
        cleared(&["--dev", DEVICE]);
        assert_eq!(looks(), untouched, "turn {turn}");
        assert!(files().is_subset(&others), "turn {turn}: {:?} beside {others:?}", files());
    }
    Ok(())
}

host_tests![needs OwnQueues;
    each_place_takes_over_from_each_other_and_clear_leaves_the_device_as_it_was within 120,
    another_way_is_taken_and_what_is_not_asked_for_stays within 120,
    our_scheduler_in_the_kernel_takes_over_and_is_taken_over_from within 120,
    a_place_that_cannot_begin_leaves_the_one_before_in_force_and_both_are_said within 120,
    a_switch_that_is_killed_anywhere_leaves_one_policy_whole_and_clear_leaves_nothing within 300,
];
