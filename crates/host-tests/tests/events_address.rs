//! Tests which broker a program finds that names none: its user's, or the host's, but never another user's.
//! Each test has a /tmp and a /run of its own.

use std::process::Command;
use unisono_host_tests::processes::text;
use unisono_host_tests::{TestOutcome, host_tests, program, require};
use unisono_linux::privilege::NOBODY;

/// Runs a script, with the program as `$0`, in a mount namespace where /tmp and /run are empty. Returns its
/// output.
fn script(lines: &str) -> Result<String, unisono_host_tests::Skipped> {
    require::root()?;
    require::unshare(&["--mount", "--pid", "--fork"])?;
    let alone = "set -e; mount -t tmpfs -o mode=1777 none /tmp; mount -t tmpfs -o mode=755 none /run; \
                 unset XDG_RUNTIME_DIR; says() { \"$@\" 2>&1 || true; }; \
                 serves() { \"$0\" events serve \"$@\" 2>/dev/null & broker=$!; }; \
                 until_there() { until [ -S \"$1\" ]; do sleep 0.01; done; }";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c"])
        .arg(format!("{alone}; {lines}"))
        .arg(program::unisono())
        .output()
        .expect("unshare starts");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    Ok(text(&output.stdout))
}

fn a_broker_without_a_runtime_directory_has_one_in_tmp_of_its_own() -> TestOutcome {
    let said = script(
        "serves; until_there /tmp/unisono-0/events; stat -c %a:%u /tmp/unisono-0; \
         says \"$0\" events publish t x --json; kill -9 $broker; wait $broker || true; says \"$0\" events publish t x",
    )?;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[..2],
        ["700:0", r#"{"format":"unisono-events-publish-1","sequence":1,"outcome":"taken","consumers":0}"#],
        "{said}"
    );
    // the process that tidies up after the broker may have removed the socket already
    let (begins, ends) =
        ("unisono: no broker at /tmp/unisono-0/events: ", ", and none at /run/unisono/events; ");
    assert!(lines[2].starts_with(begins) && lines[2].contains(ends), "{said}");
    Ok(())
}

fn a_directory_that_another_user_has_made_is_used_by_neither_end() -> TestOutcome {
    let said = script(&format!(
        "mkdir /tmp/unisono-0; chown {NOBODY} /tmp/unisono-0; says \"$0\" events publish t x; says \"$0\" events serve"
    ))?;
    let why = "/tmp/unisono-0 belongs to user 65534; remove it, or set XDG_RUNTIME_DIR";
    let expected = format!(
        "unisono: cannot use /tmp/unisono-0/events: {why}\nunisono: cannot listen at /tmp/unisono-0/events: {why}\n"
    );
    assert_eq!(said, expected);
    Ok(())
}

fn who_has_no_broker_uses_the_hosts_and_is_told_what_its_group_is() -> TestOutcome {
    require::program("setpriv", "apt-get install util-linux")?;
    let other = format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
    let said = script(&format!(
        "mkdir /run/unisono; serves --listen /run/unisono/events --mode 660; until_there /run/unisono/events; \
         says \"$0\" events publish t x --json; cp \"$0\" /run/program; chmod 755 /run/program; \
         says {other} /run/program events publish t x; chgrp users /run/unisono/events; \
         says {other} /run/program events publish t x; chmod 600 /run/unisono/events; \
         says {other} /run/program events publish t x"
    ))?;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[0], r#"{"format":"unisono-events-publish-1","sequence":1,"outcome":"taken","consumers":0}"#,
        "{said}"
    );
    let root = "root alone may connect (mode 660); ask for another group: SocketGroup= of the socket's unit";
    let join = "join it: sudo usermod -aG users $USER, then log in again";
    let group = format!("its group `users` may connect (mode 660); {join}");
    let owner = "its owner alone may connect (mode 600); ask for `unisono events serve --mode 660`";
    for (line, why) in lines[1..].iter().zip([root, &group, owner]) {
        assert!(line.contains("cannot use /run/unisono/events: ") && line.ends_with(why), "{said}");
    }
    assert_eq!(lines.len(), 4, "{said}");
    Ok(())
}

host_tests![needs Nothing;
    a_broker_without_a_runtime_directory_has_one_in_tmp_of_its_own within 120,
    a_directory_that_another_user_has_made_is_used_by_neither_end within 120,
    who_has_no_broker_uses_the_hosts_and_is_told_what_its_group_is within 120,
];
