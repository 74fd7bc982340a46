//! One-sided communication over TCP between hosts: two network namespaces joined by a cable that can be
//! cut, made and removed by each test.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use unisono_host_tests::{Outcome, Skipped, host_tests, program, require};

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Two hosts, called a and b, and their cable.
struct Hosts {
    names: [String; 2],
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {}: {said}", arguments.join(" "))) }
}

impl Hosts {
    fn new() -> Result<Self, Skipped> {
        require::root()?;
        require::program("ip", "apt-get install iproute2")?;
        // names of this process, so that runs do not meet
        let id = std::process::id();
        let hosts = Self { names: [format!("unisono-a-{id}"), format!("unisono-b-{id}")] };
        let made = hosts.make(&format!("ua{id}"), &format!("ub{id}"));
        made.map_err(|why| Skipped::because(format!("no network namespaces here: {why}")))?;
        Ok(hosts)
    }

    fn make(&self, near: &str, far: &str) -> Result<(), String> {
        let [a, b] = [&self.names[0], &self.names[1]];
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        ip(&["link", "add", near, "netns", a, "type", "veth", "peer", "name", far, "netns", b])?;
        for (host, cable, number) in [(a, near, 1), (b, far, 2)] {
            ip(&["-n", host, "link", "set", cable, "name", "cable"])?;
            ip(&["-n", host, "addr", "add", &format!("10.77.0.{number}/24"), "dev", "cable"])?;
            let v6 = format!("fd77::{number}/64");
            // without duplicate address detection, which takes a second; a kernel without IPv6 has none
            let _ = ip(&["-n", host, "-6", "addr", "add", &v6, "dev", "cable", "nodad"]);
            ip(&["-n", host, "link", "set", "cable", "up"])?;
        }
        Ok(())
    }

    /// Rank 0 on host a, rank 1 on host b.
    fn ring(&self, addresses: [&str; 2], steps: &str) -> [Child; 2] {
        let ring: PathBuf = program::example("unisono-rma", "ring_over_tcp");
        [0, 1].map(|rank| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &self.names[rank]]).arg(&ring);
            command.args([addresses[0], addresses[rank], steps]);
            command.env("UNISONO_JOB", KEY).env("UNISONO_SIZE", "2").env("UNISONO_RANK", rank.to_string());
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("ip starts")
        })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // the cable goes with them; one that was not made cannot be removed
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn passes(ranks: [Child; 2]) {
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().expect("it ends");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.contains("us a fence"), "rank {rank}: {out}{err}");
    }
}

fn ranks_on_two_hosts_share_windows_over_ipv4() -> Outcome {
    let hosts = Hosts::new()?;
    passes(hosts.ring(["10.77.0.1:7000", "10.77.0.2:0"], "500"));
    Ok(())
}

fn ranks_on_two_hosts_share_windows_over_ipv6() -> Outcome {
    require::path("/proc/net/if_inet6", "this kernel has no IPv6")?;
    let hosts = Hosts::new()?;
    passes(hosts.ring(["[fd77::1]:7000", "[fd77::2]:0"], "500"));
    Ok(())
}

fn a_cut_cable_is_noticed_by_both_hosts_and_the_other_rank_named() -> Outcome {
    let hosts = Hosts::new()?;
    let mut ranks = hosts.ring(["10.77.0.1:7000", "10.77.0.2:0"], "100000000");
    for rank in &mut ranks {
        // the first line comes when they have met
        let out = rank.stdout.as_mut().expect("piped");
        let mut byte = [0];
        while out.read(&mut byte).expect("reads") == 1 && byte != *b"\n" {}
    }
    ip(&["-n", &hosts.names[0], "link", "set", "cable", "down"]).expect("cut");
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "rank {rank} goes on alone");
        // by heartbeats: the kernel would take ten seconds, and call it "timed out"
        assert!(
            said.contains(&format!("{}", 1 - rank)) && said.contains("does not answer"),
            "{rank}: {said}"
        );
    }
    Ok(())
}

host_tests![
    ranks_on_two_hosts_share_windows_over_ipv4 within 600,
    ranks_on_two_hosts_share_windows_over_ipv6 within 600,
    a_cut_cable_is_noticed_by_both_hosts_and_the_other_rank_named within 600,
];
