//! Tests one-sided communication over TCP between hosts: two network namespaces connected by a cable that the
//! test can cut.

use std::io::Read;
use std::process::{Child, Stdio};
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::{TestOutcome, host_tests, program, require};

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Starts rank 0 on host a and rank 1 on host b.
fn ring(hosts: &Hosts, addresses: [&str; 2], steps: &str) -> [Child; 2] {
    let ring = program::example("ring_over_tcp");
    [0, 1].map(|rank| {
        let mut command = hosts.command(rank, &ring);
        command.args([addresses[0], addresses[rank], steps]);
        command.env("UNISONO_JOB", KEY).env("UNISONO_SIZE", "2").env("UNISONO_RANK", rank.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("ip starts")
    })
}

fn passes(ranks: [Child; 2]) {
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().expect("it ends");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.contains("us a fence"), "rank {rank}: {out}{err}");
    }
}

fn ranks_on_two_hosts_share_windows_over_ipv4() -> TestOutcome {
    let hosts = Hosts::new()?;
    passes(ring(&hosts, ["10.77.0.1:7000", "10.77.0.2:0"], "500"));
    Ok(())
}

fn ranks_on_two_hosts_share_windows_over_ipv6() -> TestOutcome {
    require::path("/proc/net/if_inet6", "this kernel has no IPv6")?;
    let hosts = Hosts::new()?;
    passes(ring(&hosts, ["[fd77::1]:7000", "[fd77::2]:0"], "500"));
    Ok(())
}

fn a_cut_cable_is_noticed_by_both_hosts_and_the_other_rank_named() -> TestOutcome {
    let hosts = Hosts::new()?;
    let mut ranks = ring(&hosts, ["10.77.0.1:7000", "10.77.0.2:0"], "100000000");
    for rank in &mut ranks {
        // the first line comes when the ranks are connected
        let out = rank.stdout.as_mut().expect("piped");
        let mut byte = [0];
        while out.read(&mut byte).expect("reads") == 1 && byte != *b"\n" {}
    }
    hosts.cut();
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "rank {rank} goes on alone");
        // noticed by heartbeats: the kernel would take ten seconds, and report "timed out"
        assert!(
            said.contains(&format!("{}", 1 - rank)) && said.contains("does not answer"),
            "{rank}: {said}"
        );
    }
    Ok(())
}

host_tests![needs Nothing;
    ranks_on_two_hosts_share_windows_over_ipv4 within 600,
    ranks_on_two_hosts_share_windows_over_ipv6 within 600,
    a_cut_cable_is_noticed_by_both_hosts_and_the_other_rank_named within 600,
];
