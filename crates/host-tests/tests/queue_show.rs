//! Tests `unisono queue show`: what ends it on a terminal, that its lines fit, and what it says while a
//! policy is being applied.

use crate::queue_shared::{DEVICE, THREE, apply, journal, on_a_host};
use rustix::fd::OwnedFd;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use unisono_enforce::Backend as _;
use unisono_enforce::journal::Journal;
use unisono_host_tests::{TestOutcome, host_tests, program, require};
use unisono_linux::poll;

const COLUMNS: u16 = 60;

/// Opens a pseudo-terminal. Returns this end, and the end for programs.
fn terminal() -> (OwnedFd, std::fs::File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals left");
    grantpt(&ours).expect("it is ours");
    unlockpt(&ours).expect("it is ours");
    let name = ptsname(&ours, Vec::new()).expect("it has one").into_string().expect("a plain name");
    tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 })
        .expect("it is ours");
    (ours, OpenOptions::new().read(true).write(true).open(name).expect("it is ours"))
}

/// Starts `unisono queue show` with a controlling terminal of its own, so that Ctrl-C reaches it.
fn show(theirs: &std::fs::File) -> Child {
    let end = || theirs.try_clone().expect("descriptors are left");
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait"]).arg(program::unisono()).args(["queue", "show", "--interval", "20ms"]);
    command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts")
}

/// Reads until `wanted` was read. Returns everything that was read.
fn read_until(ours: &OwnedFd, wanted: &str) -> String {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        let mut piece = [0; 4096];
        let length = rustix::io::read(ours, &mut piece).expect("the program runs");
        seen.extend_from_slice(&piece[..length]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// Waits for the end of the program, and reads what it writes to the terminal meanwhile.
fn wait(mut child: Child, ours: &OwnedFd) -> ExitStatus {
    loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return status;
        }
        if poll::readable([rustix::fd::AsFd::as_fd(ours)], Some(Duration::from_millis(10)))
            .expect("a terminal")
            == [true]
        {
            let _ = rustix::io::read(ours, &mut [0; 4096]);
        }
    }
}

fn how_it_is(terminal: &std::fs::File) -> String {
    let Termios { input_modes, output_modes, control_modes, local_modes, .. } =
        tcgetattr(terminal).expect("a terminal");
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?}")
}

fn q_escape_and_ctrl_c_end_the_live_view_and_the_terminal_is_as_before() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::program("setsid", "apt-get install util-linux")?;
    drop(apply(THREE)?);
    for key in [&b"q"[..], b"\x1b", b"\x03"] {
        let (ours, theirs) = terminal();
        let before = how_it_is(&theirs);
        let child = show(&theirs);
        let seen = read_until(&ours, "the link");
        assert_ne!(how_it_is(&theirs), before, "keys come one by one");
        let table = seen.rsplit("\x1b[J").next().expect("there is one");
        let fits = |line: &str| line.trim_end().chars().count() <= usize::from(COLUMNS);
        assert!(table.contains(DEVICE) && table.lines().all(fits), "{table}");
        rustix::io::write(&ours, b"x").expect("it reads");
        rustix::io::write(&ours, key).expect("it reads");
        let status = wait(child, &ours);
        assert!(status.success(), "{key:?}: {status}");
        assert_eq!(how_it_is(&theirs), before, "{key:?}");
    }
    Ok(())
}

/// Reads lines until one contains `wanted`. Returns the others.
fn lines_until(lines: &mut impl Iterator<Item = io::Result<String>>, wanted: &str) -> Vec<String> {
    let lines = lines.map(|line| line.expect("it writes text"));
    lines.take_while(|line| !line.contains(wanted)).collect()
}

/// Puts the policy's journal into the phase in which `apply` has it while it works, and back.
fn set_phase(from: &str, to: &str) {
    let text = fs::read_to_string(journal()).expect("a policy holds");
    let phase = |phase: &str| format!("\"phase\":\"{phase}\"");
    assert!(text.contains(&phase(from)), "{text}");
    // at once, as a journal always appears
    let other = journal().with_extension("other");
    fs::copy(journal(), &other).expect("root may");
    fs::write(&other, text.replacen(&phase(from), &phase(to), 1)).expect("root may");
    fs::rename(other, journal()).expect("root may");
}

fn a_policy_that_is_being_applied_is_said_to_be_and_shown_when_it_is_in_force() -> TestOutcome {
    const APPLYING: &str = "a policy is being applied to cable";
    let _hosts = on_a_host()?;
    let mut kernel = apply(THREE)?;
    let show = |options: &[&str]| {
        let mut command = Command::new(program::unisono());
        command.args(["queue", "show", "--interval", "20ms"]).args(options);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let lines_of = |child: &mut Child| BufReader::new(child.stdout.take().expect("piped")).lines();
    let notes_of = |child: &mut Child| BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut watching = show(&[]);
    let mut tables = lines_of(&mut watching);
    lines_until(&mut tables, "the link");

    // another command holds the lock, and the policy is half way
    let lock = Journal::for_device(DEVICE).expect("it is there").lock().expect("no command is at work");
    set_phase("holds", "changing");
    lines_until(&mut tables, APPLYING);
    let mut late = [show(&["--once"]), show(&["--once", "--json"])];
    for child in &mut late {
        lines_until(&mut notes_of(child), APPLYING);
        assert!(child.try_wait().expect("it is ours").is_none(), "it waits");
    }
    assert!(lines_until(&mut tables, APPLYING).iter().all(|line| !line.contains("gold")));

    set_phase("changing", "holds");
    drop(lock);
    let of_both = lines_until(&mut tables, "the link");
    assert!(of_both.iter().any(|line| line.starts_with("gold")), "{of_both:?}");
    for mut child in late {
        let shown: Vec<String> = lines_of(&mut child).map(|line| line.expect("text")).collect();
        assert!(child.wait().expect("it is ours").success());
        assert!(shown.iter().any(|line| line.contains("gold")), "{shown:?}");
    }
    watching.kill().expect("it is ours");
    watching.wait().expect("it is ours");
    kernel.remove().expect("it is there");
    Ok(())
}

host_tests![needs OwnQueues;
    q_escape_and_ctrl_c_end_the_live_view_and_the_terminal_is_as_before within 60,
    a_policy_that_is_being_applied_is_said_to_be_and_shown_when_it_is_in_force within 60,
];
