//! The hosts of a job, and the command that starts a helper on each.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use unisono_text::shell_word;

/// A host and its ranks: `NAME`, `NAME:RANKS` or `NAME=ADDRESS:RANKS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRanks {
    /// The host's name for the launch command.
    pub name: String,
    /// The address that the other hosts use for this host. `None`: they use the name.
    pub address: Option<String>,
    /// The number of ranks on this host, at least 1.
    pub ranks: usize,
}

impl FromStr for HostRanks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |problem: &str| {
            Err(format!(
                "{text:?}: {problem}; write NAME:RANKS or NAME=ADDRESS:RANKS, such as node1:4 or node1=10.0.0.1:4"
            ))
        };
        // an IPv6 address contains colons, and is in brackets
        let count = text.rfind(']').map_or(0, |bracket| bracket);
        let (who, ranks) = match text[count..].rfind(':').map(|colon| colon + count) {
            Some(colon) => (&text[..colon], text[colon + 1..].parse::<usize>()),
            None => (text, Ok(1)),
        };
        let Ok(ranks) = ranks else { return wrong("the number of ranks is no number") };
        let (name, address) = match who.split_once('=') {
            Some((name, address)) => (name, Some(address.trim_matches(['[', ']']).to_owned())),
            None => (who, None),
        };
        if name.is_empty() || address.as_deref() == Some("") {
            return wrong("a name is missing");
        }
        // the name becomes a word of the launch command and must not look like an option
        if name.starts_with('-') || name.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
            return wrong("that is no host's name");
        }
        if ranks == 0 {
            return wrong("a host without ranks");
        }
        Ok(Self { name: name.to_owned(), address, ranks })
    }
}

impl HostRanks {
    /// Returns an address of the host with this port, as resolved on the local host.
    fn resolved(&self, port: u16) -> std::io::Result<SocketAddr> {
        let host = self.address.as_deref().unwrap_or(&self.name);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(address, port));
        }
        let all: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
        let outside = all.iter().find(|address| !address.ip().is_loopback());
        outside.or(all.first()).copied().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

/// Returns the address on which rank 0 of a job on these hosts listens. Fails, with a remedy, if the first
/// host has no address, or if its address is a loopback address and another host's address is not.
pub(crate) fn root(hosts: &[HostRanks], port: u16) -> Result<SocketAddr, String> {
    let Some((first, others)) = hosts.split_first() else { return Err("a job needs a host".to_owned()) };
    let remedy = format!("write {}=ADDRESS:{}", first.name, first.ranks);
    let root = first
        .resolved(port)
        .map_err(|error| format!("cannot find the address of host {}: {error}; {remedy}", first.name))?;
    let stays = |host: &HostRanks| host.resolved(port).is_ok_and(|address| address.ip().is_loopback());
    if root.ip().is_loopback() && !others.iter().all(stays) {
        let address = root.ip();
        return Err(format!("host {} is {address} here, which no other host reaches; {remedy}", first.name));
    }
    Ok(root)
}

/// A command that runs another command on a host: words in which `{host}` stands for the host's name,
/// `{ranks}` for the number of its ranks, and the word `{args}` for the words of the other command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchCommand {
    words: Vec<String>,
    /// Whether a shell on the host parses the words again.
    shell: bool,
}

impl FromStr for LaunchCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let template = match text {
            // batch mode, because without a terminal the user could not answer a password prompt
            "ssh" => "ssh -T -o BatchMode=yes {host} {args}",
            // a single task on as many processors as there are ranks; the task starts the ranks itself
            "srun" => "srun --nodes=1 --ntasks=1 --cpus-per-task={ranks} --overlap --nodelist={host} {args}",
            other => other,
        };
        let words: Vec<String> = template.split_whitespace().map(str::to_owned).collect();
        if words.iter().filter(|word| *word == "{args}").count() != 1
            || words[0] == "{args}" && words.len() > 1
        {
            return Err(format!(
                "{text:?} is no launch command; write ssh, srun, or a command with the word {{args}} at the end, \
                 such as 'ssh -p 2222 {{host}} {{args}}'"
            ));
        }
        Ok(Self { shell: text == "ssh" || words[0].ends_with("/ssh"), words })
    }
}

impl LaunchCommand {
    /// Returns the words of the command that runs `command` on a host.
    pub(crate) fn expand(&self, host: &HostRanks, command: &[OsString]) -> Vec<OsString> {
        let mut words = Vec::new();
        for word in &self.words {
            if word == "{args}" {
                words.extend(command.iter().map(|word| if self.shell { quoted(word) } else { word.clone() }));
            } else {
                let word = word.replace("{host}", &host.name).replace("{ranks}", &host.ranks.to_string());
                words.push(word.into());
            }
        }
        words
    }
}

/// Quotes a word for a shell.
fn quoted(word: &OsString) -> OsString {
    word.to_str().map_or_else(|| word.clone(), |text| shell_word(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_perhaps_an_address_and_its_ranks() {
        let host = |text: &str| text.parse::<HostRanks>();
        let made = |name: &str, address: Option<&str>, ranks| {
            Ok(HostRanks { name: name.into(), address: address.map(str::to_owned), ranks })
        };
        assert_eq!(host("a"), made("a", None, 1));
        assert_eq!(host("a:2"), made("a", None, 2));
        assert_eq!(host("me@a=10.0.0.1:2"), made("me@a", Some("10.0.0.1"), 2));
        assert_eq!(host("a=[fd77::1]:3"), made("a", Some("fd77::1"), 3));
        assert_eq!(host("a=[fd77::1]"), made("a", Some("fd77::1"), 1));
        for wrong in ["", ":2", "a:", "a:0", "a:x", "a:-1", "=b:2", "a=:2", "-oProxyCommand=x:2", "a b:2"] {
            assert!(host(wrong).is_err_and(|why| why.contains("NAME:RANKS")), "{wrong}");
        }
    }

    #[test]
    fn a_launch_command_has_the_host_and_the_helpers_words_in_it() {
        let host: HostRanks = "b:3".parse().expect("a host");
        let command = ["/opt/my tools/unisono".into(), "run".into()];
        let words = |text: &str| {
            let launch: LaunchCommand = text.parse().expect("a launch command");
            launch.expand(&host, &command).join(" ".as_ref()).into_string().expect("text")
        };
        assert_eq!(words("ssh"), "ssh -T -o BatchMode=yes b '/opt/my tools/unisono' run");
        let ssh: LaunchCommand = "ssh".parse().expect("a launch command");
        let with_empty = ssh.expand(&host, &["run".into(), OsString::new()]);
        assert_eq!(with_empty.last(), Some(&"''".into()), "without quotes the shell would drop it");
        assert!(words("srun").contains("--cpus-per-task=3 --overlap --nodelist=b /opt/my tools/unisono run"));
        assert_eq!(words("ip netns exec {host} {args}"), "ip netns exec b /opt/my tools/unisono run");
        for wrong in ["", "rsh {host}", "{args} {args}", "{args} {host}"] {
            assert!(wrong.parse::<LaunchCommand>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rank_zero_listens_where_the_other_hosts_reach_it() {
        let hosts = |texts: &[&str]| -> Vec<HostRanks> {
            texts.iter().map(|text| text.parse().expect("a host")).collect()
        };
        assert_eq!(root(&hosts(&["a=10.0.0.1:2", "b:2"]), 7000), Ok("10.0.0.1:7000".parse().expect("one")));
        assert!(root(&hosts(&["a=127.0.0.1", "b=127.0.0.2"]), 7000).is_ok(), "both here");
        let lost = root(&hosts(&["a=127.0.1.1:2", "b=10.0.0.2"]), 7000).expect_err("b cannot reach a");
        assert!(lost.contains("127.0.1.1") && lost.contains("a=ADDRESS:2"), "{lost}");
        let unknown =
            root(&hosts(&["no-such-host.invalid:2", "b=10.0.0.2"]), 7000).expect_err("nobody knows it");
        assert!(unknown.contains("no-such-host.invalid=ADDRESS:2"), "{unknown}");
    }
}
