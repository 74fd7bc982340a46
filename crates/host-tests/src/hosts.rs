//! Network namespaces of one machine as hosts: two or three with a cable between each pair, or up to eight at
//! one switch.
//!
//! Their names contain the process number of the test, so that tests that run at the same time do not clash.
//! Hosts that a killed test has left behind are removed by the next test that makes hosts.

use crate::{Skipped, require};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Hosts named a, b and so on, and their cables. Dropping this removes them.
#[derive(Debug)]
pub struct Hosts {
    names: Vec<String>,
    /// The namespace of their switch, if they have one.
    switch: Option<String>,
    scratch: tempfile::TempDir,
}

/// Runs `ip ARGUMENTS` and returns its output.
///
/// # Errors
/// The command and its error message.
pub fn ip(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
}

impl Hosts {
    /// Makes two hosts.
    ///
    /// # Errors
    /// [`Skipped`] without root, without `ip`, or if the kernel refuses.
    pub fn new() -> Result<Self, Skipped> {
        Self::with_names(&["a", "b"])
    }

    /// Makes three hosts, the third with a cable to each of the others.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn three() -> Result<Self, Skipped> {
        let hosts = Self::with_names(&["a", "b", "c"])?;
        let made = hosts.add_third();
        made.map_err(|why| Skipped::because(format!("no third network namespace here: {why}")))?;
        Ok(hosts)
    }

    /// Makes up to eight hosts with a cable each to one switch.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// With more than eight hosts.
    pub fn at_a_switch(count: usize) -> Result<Self, Skipped> {
        let mut hosts = Self::named(&["a", "b", "c", "d", "e", "f", "g", "h"][..count])?;
        let switch = name("switch", std::process::id());
        hosts.switch = Some(switch.clone());
        let made = hosts.make_at_switch(&switch);
        made.map_err(|why| Skipped::because(format!("no network namespaces or no bridge here: {why}")))?;
        Ok(hosts)
    }

    fn named(names: &[&str]) -> Result<Self, Skipped> {
        require::root()?;
        require::program("ip", "apt-get install iproute2")?;
        remove_leftovers();
        let scratch =
            tempfile::tempdir().map_err(|error| Skipped::because(format!("no scratch: {error}")))?;
        let id = std::process::id();
        Ok(Self { names: names.iter().map(|host| name(host, id)).collect(), switch: None, scratch })
    }

    fn with_names(names: &[&str]) -> Result<Self, Skipped> {
        let (hosts, id) = (Self::named(names)?, std::process::id());
        let made = hosts.make(&format!("ua{id}"), &format!("ub{id}"));
        made.map_err(|why| Skipped::because(format!("no network namespaces here: {why}")))?;
        Ok(hosts)
    }

    fn make(&self, near: &str, far: &str) -> Result<(), String> {
        let [a, b] = [&self.names[0], &self.names[1]];
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        ip(&["link", "add", near, "netns", a, "type", "veth", "peer", "name", far, "netns", b])?;
        for (host, cable, number) in [(a, near, 0), (b, far, 1)] {
            ip(&["-n", host, "link", "set", cable, "name", "cable"])?;
            ip(&["-n", host, "addr", "add", &format!("{}/24", Self::address(number)), "dev", "cable"])?;
            let v6 = format!("fd77::{}/64", number + 1);
            // `nodad`: without duplicate address detection, which takes a second; a kernel without IPv6
            // refuses this command
            let _ = ip(&["-n", host, "-6", "addr", "add", &v6, "dev", "cable", "nodad"]);
            ip(&["-n", host, "link", "set", "cable", "up"])?;
            ip(&["-n", host, "link", "set", "lo", "up"])?;
        }
        // the kernel may take a second to notice that both ends are up
        for _ in 0..100 {
            let is_up = |host: &&String| {
                ip(&["-n", host, "link", "show", "cable"]).is_ok_and(|said| said.contains("state UP"))
            };
            if self.names.iter().filter(is_up).count() == 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn make_at_switch(&self, switch: &str) -> Result<(), String> {
        ip(&["netns", "add", switch])?;
        ip(&["-n", switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", switch, "link", "set", "bridge", "up"])?;
        for (number, host) in self.names.iter().enumerate() {
            let port = format!("p{number}");
            ip(&["netns", "add", host])?;
            ip(&[
                "link", "add", "cable", "netns", host, "type", "veth", "peer", "name", &port, "netns", switch,
            ])?;
            ip(&["-n", switch, "link", "set", &port, "master", "bridge", "up"])?;
            ip(&["-n", host, "addr", "add", &format!("{}/24", Self::address(number)), "dev", "cable"])?;
            ip(&["-n", host, "link", "set", "cable", "up"])?;
            ip(&["-n", host, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn add_third(&self) -> Result<(), String> {
        let third = &self.names[2];
        ip(&["netns", "add", third])?;
        ip(&["-n", third, "link", "set", "lo", "up"])?;
        for (other, peer) in [(0, "to-a"), (1, "to-b")] {
            let host = &self.names[other];
            ip(&[
                "link", "add", "to-c", "netns", host, "type", "veth", "peer", "name", peer, "netns", third,
            ])?;
            for (name, cable, end) in [(host, "to-c", other), (third, peer, 2)] {
                let address = format!("{}/24", Self::address_towards(end, if end == 2 { other } else { 2 }));
                ip(&["-n", name, "addr", "add", &address, "dev", cable])?;
                ip(&["-n", name, "link", "set", cable, "up"])?;
            }
        }
        Ok(())
    }

    /// Returns the address of a host on its cable to another host.
    #[must_use]
    pub fn address_towards(host: usize, other: usize) -> String {
        match (host, other) {
            (0 | 1, 0 | 1) => Self::address(host),
            _ => format!("10.77.{}.{}", 1 + host.min(other), host + 1),
        }
    }

    /// Returns the name of a host's network namespace.
    #[must_use]
    pub fn name(&self, host: usize) -> &str {
        &self.names[host]
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns a host's address.
    #[must_use]
    pub fn address(host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// Returns a command that runs `program` on a host.
    #[must_use]
    pub fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]).arg(program);
        command
    }

    /// Writes a script that replaces `ssh`, and returns its path: `SCRIPT [OPTIONS] ADDRESS COMMAND...` runs
    /// the command on the host with this address, under that host's name.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn remote_shell(&self) -> PathBuf {
        let path = self.scratch.path().join("remote-shell");
        let cases: String = self
            .names
            .iter()
            .enumerate()
            .map(|(number, host)| format!("{}) host={host};; ", Self::address(number)))
            .collect();
        let script = format!(
            "#!/bin/sh\n\
             while [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n\
             case $1 in {cases} *) echo \"$1 is no host\" >&2; exit 255;; esac\n\
             shift\n\
             exec ip netns exec $host unshare --uts sh -c \"hostname $host; $*\"\n"
        );
        std::fs::write(&path, script).expect("a script in the scratch directory");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("it becomes a program");
        path
    }

    /// Cuts the cable between the first two hosts.
    ///
    /// # Panics
    /// If that fails.
    pub fn cut(&self) {
        ip(&["-n", &self.names[0], "link", "set", "cable", "down"]).expect("cut");
    }

    /// Reconnects the cable.
    ///
    /// # Panics
    /// If that fails.
    pub fn mend(&self) {
        ip(&["-n", &self.names[0], "link", "set", "cable", "up"]).expect("mended");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in self.names.iter().chain(&self.switch) {
            // the cables are removed with the hosts; removing a host that was never made fails
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn name(host: &str, id: u32) -> String {
    format!("unisono-{host}-{id}")
}

/// Removes the hosts of tests that have ended.
fn remove_leftovers() {
    let listed = ip(&["netns", "list"]).unwrap_or_default();
    for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        let id = name.strip_prefix("unisono-").and_then(|rest| rest.rsplit_once('-'));
        let Some(id) = id.and_then(|(_, id)| id.parse::<u32>().ok()) else { continue };
        if !Path::new("/proc").join(id.to_string()).exists() {
            // another test may remove it at the same time
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_test_left_is_removed() {
        if require::root().is_err() || require::program("ip", "").is_err() {
            eprintln!("skipped: it needs root and ip");
            return;
        }
        let mut gone = Command::new("true").spawn().expect("true starts");
        gone.wait().expect("it ends");
        let (dead, alive) = (name("a", gone.id()), name("a", std::process::id()));
        if let Err(why) = ip(&["netns", "add", &dead]).and_then(|_| ip(&["netns", "add", &alive])) {
            eprintln!("skipped: no network namespaces here: {why}");
            return;
        }
        remove_leftovers();
        let listed = ip(&["netns", "list"]).expect("a list");
        let left = |name: &str| listed.lines().any(|line| line.split_whitespace().next() == Some(name));
        let found = (left(&dead), left(&alive));
        ip(&["netns", "delete", &alive]).expect("it goes");
        assert_eq!(found, (false, true), "{listed}");
    }
}
