//! Tests what the gang daemon shows to people and to monitoring programs, and the unit that starts it at
//! boot.

use crate::gang_shared::served::{Program, SPIN, Served};
use crate::gang_shared::{gangs, kill, unisono};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use unisono_host_tests::processes::until;
use unisono_host_tests::{TestOutcome, host_tests};
use unisono_linux::process::Signal;

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts a daemon with two gangs, and waits until they have had some turns.
fn two_gangs(one: &Program, two: &Program) -> Served {
    let served = Served::start(&[]);
    served.told(&["add", "--pid", &one.pid(), "--name", "one", "--weight", "2"]);
    served.told(&["add", "--pid", &two.pid(), "--name", "two"]);
    until("turns", || served.gang("two")["turns"].as_u64() > Some(20));
    served
}

fn top_shows_what_each_gang_used_since_the_last_table() -> TestOutcome {
    gangs()?;
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    let served = two_gangs(&one, &two);
    let table = text(&served.ask(&["top", "--once", "--interval", "600ms"]));
    let head = table.lines().find(|line| line.trim_start().starts_with("state")).expect("a head");
    let head: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(head[9..11], ["cores", "turn"], "{table}");
    let turn = |name: &str| {
        let end = format!("{name} (process ");
        let line = table.lines().find(|line| line.contains(&end)).unwrap_or_else(|| panic!("{table}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        (
            words[7].parse::<f64>().expect("cores"),
            words[8].parse::<f64>().expect("a part of the time"),
        )
    };
    let ((first, long), (second, short)) = (turn("one"), turn("two"));
    // together they have all the time, two to one
    assert!((90.0..=110.0).contains(&(long + short)) && long > short * 1.3, "{table}");
    assert!(first > 0.0 && second > 0.0, "{table}");
    served.end();
    Ok(())
}

fn top_prints_lines_of_json_until_it_is_interrupted() -> TestOutcome {
    gangs()?;
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    let served = two_gangs(&one, &two);
    let mut top = served.command(&["top", "--json", "--interval", "50ms"]).spawn().expect("unisono starts");
    let mut lines = BufReader::new(top.stdout.take().expect("piped")).lines();
    let turns: Vec<u64> = (0..3)
        .map(|_| {
            let line = lines.next().expect("a line").expect("text");
            let view: Value = serde_json::from_str(&line).expect("JSON");
            view["gangs"][0]["turns"].as_u64().expect("a number")
        })
        .collect();
    assert!(turns.is_sorted() && turns[0] < turns[2], "{turns:?}");
    kill(top.id().cast_signed(), Signal::Interrupt);
    assert_eq!(top.wait().expect("it ends").signal(), Some(2), "as the shell expects it");
    served.end();
    Ok(())
}

fn top_and_metrics_say_how_to_start_a_daemon_that_is_not_there() -> TestOutcome {
    let directory = tempfile::tempdir().expect("a directory");
    for words in [["top", "--once"].as_slice(), &["metrics"], &["list"]] {
        let mut command = unisono(&["gang"]);
        command.args(words).arg("--socket").arg(directory.path().join("nobody"));
        let output = command.output().expect("unisono starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains("sudo unisono gang daemon"),
            "{words:?}: {output:?}"
        );
    }
    Ok(())
}

fn a_monitoring_program_reads_the_same_figures_as_list() -> TestOutcome {
    gangs()?;
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    let served = two_gangs(&one, &two);
    let place = served.directory.path().join("metrics");
    let listen = ["metrics", "--listen", place.to_str().expect("letters")];
    let mut metrics = served.command(&listen).spawn().expect("unisono starts");
    let mut said = BufReader::new(metrics.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    assert!(line.contains("answering"), "{line}");
    let scrape = || {
        let mut stream = UnixStream::connect(&place).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let value = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {text}")).trim().parse::<f64>().expect("a number")
    };
    let turns = "unisono_gang_turns_total{gang=\"two\",user=\"0\"}";
    let before = served.gang("two")["turns"].as_f64().expect("a number");
    let answer = scrape();
    let after = served.gang("two")["turns"].as_f64().expect("a number");
    assert!((before..=after).contains(&value(&answer, turns)), "{before} to {after}: {answer}");
    assert_eq!(value(&answer, "unisono_gang_gangs"), 2.0);
    assert_eq!(value(&answer, "unisono_gang_weight{gang=\"one\",user=\"0\"}"), 2.0);
    assert!(answer.trim_end().ends_with("# EOF"), "{answer}");
    let printed = text(&served.ask(&["metrics"]));
    assert!(value(&printed, turns) >= after, "{printed}");
    served.told(&["remove", "two"]);
    assert!(!scrape().contains(turns), "a gang that was removed has no figures");
    kill(metrics.id().cast_signed(), Signal::Interrupt);
    assert!(metrics.wait().expect("it ends").success());
    served.end();
    Ok(())
}

/// Returns the words of the line of a unit that begins with `key`.
fn words_of(unit: &str, key: &str) -> Vec<String> {
    let line = unit.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("{unit}"));
    line.split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect()
}

fn install(root: &Path, words: &[&str]) -> Output {
    let mut command = unisono(&["gang", "install", "--root"]);
    command.arg(root).args(words).output().expect("unisono starts")
}

fn what_the_installed_unit_starts_is_the_daemon_and_what_it_runs_at_the_end_restores() -> TestOutcome {
    gangs()?;
    let directory = tempfile::tempdir().expect("a directory");
    let (root, socket) = (directory.path().join("root"), directory.path().join("socket"));
    let place = socket.to_str().expect("letters");
    let said = text(&install(&root, &["--socket", place, "--slice", "7ms", "--mode", "666"]));
    let unit = fs::read_to_string(said.trim()).expect("it says where the unit is");
    assert!(root.join("etc/systemd/system/multi-user.target.wants/unisono-gang.service").is_symlink());
    let words = words_of(&unit, "ExecStart=");
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let mut daemon = command.spawn().expect("the unit names a program");
    let list = || unisono(&["gang", "list", "--json", "--socket", place]).output().expect("unisono starts");
    until("an answer", || list().status.success());
    let view: Value = serde_json::from_slice(&list().stdout).expect("JSON");
    assert_eq!(view["slice_ms"].as_f64(), Some(7.0));
    kill(daemon.id().cast_signed(), Signal::Terminate);
    assert!(daemon.wait().expect("it ends").success());
    let after = words_of(&unit, "ExecStopPost=");
    assert!(Command::new(&after[0]).args(&after[1..]).output().expect("it starts").status.success());
    let mut command = unisono(&["gang", "uninstall", "--root"]);
    text(&command.arg(&root).output().expect("unisono starts"));
    assert!(!Path::new(said.trim()).exists());
    let again = command.output().expect("unisono starts");
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    Ok(())
}

fn a_unit_that_others_wrote_is_neither_replaced_nor_removed() -> TestOutcome {
    let root = tempfile::tempdir().expect("a directory");
    let unit = root.path().join("etc/systemd/system/unisono-gang.service");
    fs::create_dir_all(unit.parent().expect("a directory")).expect("room");
    fs::write(&unit, "[Unit]\n").expect("room");
    let refused = install(root.path(), &[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let refused = unisono(&["gang", "uninstall", "--root"]).arg(root.path()).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(fs::read_to_string(&unit).expect("it stays"), "[Unit]\n");
    let printed = text(&unisono(&["gang", "install", "--print"]).output().expect("unisono starts"));
    assert!(printed.contains("ExecStart=") && printed.contains("Type=notify"), "{printed}");
    Ok(())
}

host_tests![needs Machine;
    top_shows_what_each_gang_used_since_the_last_table within 120,
    top_prints_lines_of_json_until_it_is_interrupted within 120,
    top_and_metrics_say_how_to_start_a_daemon_that_is_not_there,
    a_monitoring_program_reads_the_same_figures_as_list within 120,
    what_the_installed_unit_starts_is_the_daemon_and_what_it_runs_at_the_end_restores within 120,
    a_unit_that_others_wrote_is_neither_replaced_nor_removed,
];
