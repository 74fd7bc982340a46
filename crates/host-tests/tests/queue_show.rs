//! Tests `unisono queue show` on a terminal: what ends it, and that its lines fit.

use crate::queue_shared::{DEVICE, THREE, apply, on_a_host};
use rustix::fd::OwnedFd;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::OpenOptions;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
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

host_tests![needs Queues;q_escape_and_ctrl_c_end_the_live_view_and_the_terminal_is_as_before within 60];
