//! `unisono completions SHELL`: prints the script by which a shell completes commands. At each Tab the script
//! runs this program, which also offers names that exist at that moment: network devices, gangs of the
//! daemon, topics of the broker.

use clap::CommandFactory;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_events_client::{ClientOptions, Reception, SubscriptionSpec};
use unisono_gang::service::client;
use unisono_gang::service::request::{ServiceReply, ServiceRequest};
use unisono_gang::service::server::SOCKET;

/// The environment variable that the script sets when it asks this program for completions; its value is the
/// name of the shell.
const VARIABLE: &str = "UNISONO_COMPLETE";
/// Time for which [`topics`] waits for the broker's answer, and for which it receives events, to learn their
/// topics. Chosen, not measured: a user tolerates such a delay after Tab.
const LISTENING: Duration = Duration::from_millis(300);
/// Maximum number of topics that are offered.
const MAX_TOPICS: usize = 100;

/// Print the completion script of a shell
///
/// The script asks this program at each Tab. It completes commands, options and their values, and names that
/// exist at that moment: network devices, gangs of the daemon, topics of your broker.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  unisono completions bash > /etc/bash_completion.d/unisono
  unisono completions zsh  > ~/.zfunc/_unisono
  unisono completions fish > ~/.config/fish/completions/unisono.fish")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell).expect("a shell because the parser takes no other name");
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "unisono", "unisono", "unisono", &mut script)?;
    crate::output::answer(String::from_utf8(script)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// If a shell's script started this program, prints the completions and exits; otherwise returns.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(crate::Cli::command).var(VARIABLE).bin("unisono").complete();
}

/// Returns the network devices of this network namespace.
pub(crate) fn devices() -> Vec<CompletionCandidate> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    entries.map(|entry| CompletionCandidate::new(entry.file_name())).collect()
}

/// Returns the gangs of the daemon; none if no daemon answers.
pub(crate) fn gangs() -> Vec<CompletionCandidate> {
    gangs_at(Path::new(SOCKET))
}

fn gangs_at(socket: &Path) -> Vec<CompletionCandidate> {
    match client::ask(socket, &ServiceRequest::List {}) {
        Ok(ServiceReply::Gangs(view)) => {
            view.gangs.iter().map(|gang| CompletionCandidate::new(gang.name.to_string())).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns topics of the user's broker: those with a kept event, and those with an event that is published
/// within [`LISTENING`]; at most [`MAX_TOPICS`].
pub(crate) fn topics() -> Vec<CompletionCandidate> {
    let mut topics = BTreeSet::new();
    let end = Instant::now() + LISTENING;
    if let Ok(mut client) = ClientOptions::new().answered_within(LISTENING).connect_default()
        && client.subscribe(&SubscriptionSpec::new("#")).is_ok()
    {
        while let Some(left) = end.checked_duration_since(Instant::now())
            && let Ok(received) = client.receive(Some(left))
            && topics.len() < MAX_TOPICS
        {
            if let Some(Reception::Event(event)) = received {
                topics.insert(event.topic.to_string());
            }
        }
    }
    topics.into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// Returns the completions that are offered for the last word.
    fn offered(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = ["unisono"].iter().chain(words).map(OsString::from).collect();
        let last = words.len() - 1;
        let offered = clap_complete::engine::complete(&mut crate::Cli::command(), words, last, None);
        let offered = offered.expect("candidates").into_iter();
        offered.map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    /// The list of gangs as a daemon answers it.
    const GANGS: &str = r#"{"gangs":{"process":7,"slice_ms":8.0,"cores":2,"switches":0,"switching_percent":0.0,
        "lengthened":1,"gangs":[{"name":"solver","target":{"process":{"number":9,"started":1}},"user":0,
        "weight":100,"state":"running","width":2,"threads":2,"turns":0,"had_s":0.0,"cpu_s":null}]}}"#;

    #[test]
    fn shells_complete_the_gangs_of_the_daemon_and_none_without_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("daemon");
        assert!(gangs_at(&socket).is_empty());
        let listener = UnixListener::bind(&socket).expect("a socket");
        let daemon = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let mut request = String::new();
            BufReader::new(&client).read_line(&mut request).expect("a request");
            writeln!(client, "{}", GANGS.replace('\n', "")).expect("the client reads");
            request
        });
        let offered = gangs_at(&socket);
        assert_eq!(daemon.join().expect("it answered"), "{\"list\":{}}\n");
        let names: Vec<_> = offered.iter().map(|gang| gang.get_value().to_string_lossy()).collect();
        assert_eq!(names, ["solver"]);
    }

    #[test]
    fn shells_complete_commands_values_and_devices() {
        for (words, value) in [
            (&["gang", "res"][..], "restore"),
            (&["gang", "run", "--mechanism", ""], "real-time"),
            (&["barrier", "--wait", ""], "spin-block"),
            (&["barrier", "--algorithm", "d"], "dissemination"),
            (&["study", "gran"], "granularity"),
            (&["study", "--show", "gran"], "granularity"),
            (&["report", "records", "--text", "a"], "all"),
            (&["report", "records", "--text", "ga"], "gang"),
            (&["report", "records", "--text", "gran"], "granularity"),
            (&["report", "records", "--text", "queue-s"], "queue-shares"),
            (&["tree", "convert", "--from", ""], "graphml"),
            (&["queue", "show", "--dev", ""], "lo"),
            (&["queue", "apply", "policy.toml", "--dev", "l"], "lo"),
        ] {
            assert!(offered(words).iter().any(|name| name == value), "{words:?}: {:?}", offered(words));
        }
        assert!(!offered(&[""]).iter().any(|name| name == "workload"), "a hidden command");
    }
}
