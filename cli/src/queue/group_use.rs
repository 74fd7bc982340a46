//! Reads how much the control groups of a policy use the processors and disks, for `unisono queue show`.

use super::units;
use crate::columns::cut;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;
use unisono_enforce::cpu;
use unisono_enforce::journal::{Journal, LinkSide};
use unisono_fairqueue::{GroupShare, Live, Pace, Policy, TrafficDirection};

/// The counters of all control groups at one moment.
#[derive(Default)]
pub(super) struct GroupReading {
    /// What enforces `[cpu]`, and the nanoseconds that each group has used.
    pub(super) cpu: Option<(&'static str, Vec<GroupCounter>)>,
    /// The bytes that each group has read and written.
    pub(super) disk: Option<Vec<GroupCounter>>,
}

/// A control group and its counter. `None`: the group does not exist.
pub(super) struct GroupCounter {
    pub(super) share: GroupShare,
    class: String,
    pub(super) counted: Option<u64>,
}

impl GroupReading {
    /// Reads the counters. The reading is empty if no backend enforces shares of control groups.
    pub(super) fn read(side: &LinkSide) -> Result<Self, unisono_enforce::Error> {
        if side.direction == TrafficDirection::In {
            return Ok(Self::default());
        }
        let held = Journal::for_side(side)?.read::<Value>()?;
        let held = held.filter(|held| held.backend == unisono_enforce::kernel::HTB_BACKEND);
        let held = held.map(|held| Policy::parse(&held.policy)).transpose()?;
        let core = cpu::keeper_of(&side.device)?;
        let core = core.map(|running| Policy::parse(&running.policy)).transpose()?;
        let counters = |policy: &Policy, read: Vec<(GroupShare, Option<u64>)>| -> Vec<_> {
            let counter = |(share, counted): (GroupShare, _)| {
                let class = policy.hierarchy.class(share.class).name.clone();
                GroupCounter { share, class, counted }
            };
            read.into_iter().map(counter).collect()
        };
        let by_core = core.as_ref().map(|policy| ("core", policy));
        let cpu = match by_core.or(held.as_ref().map(|policy| ("controller", policy))) {
            Some((by, policy)) if policy.cpu.is_some() => Some((by, counters(policy, cpu::used(policy)?))),
            _ => None,
        };
        let disk = match held.as_ref().filter(|policy| policy.io.is_some()) {
            Some(policy) => Some(counters(policy, unisono_enforce::disk_bytes(policy)?)),
            None => None,
        };
        Ok(Self { cpu, disk })
    }

    /// Returns the groups' use since an earlier reading.
    pub(super) fn since(&self, earlier: &Self, passed: Duration) -> GroupUses {
        let seconds = passed.as_secs_f64();
        let cpu = self.cpu.as_ref().map(|(by, now)| {
            let before = earlier.cpu.as_ref().map_or(&[][..], |(_, before)| before);
            (*by, uses(now, before, 1e9 * seconds))
        });
        let disk =
            self.disk.as_ref().map(|now| uses(now, earlier.disk.as_deref().unwrap_or_default(), seconds));
        GroupUses { cpu, disk }
    }
}

/// The use of processors and disks by each control group. Unit of processors: 1 is one whole processor; unit
/// of disks: bytes per second.
#[derive(Default)]
pub(super) struct GroupUses {
    cpu: Option<(&'static str, Vec<GroupUse>)>,
    disk: Option<Vec<GroupUse>>,
}

struct GroupUse {
    cgroup: String,
    class: String,
    weight: f64,
    counted: Option<u64>,
    gets: f64,
    /// The share of this group in the use of all groups, from 0 to 1.
    part: f64,
}

fn uses(now: &[GroupCounter], before: &[GroupCounter], unit: f64) -> Vec<GroupUse> {
    let before = |cgroup: &str| before.iter().find(|group| group.share.cgroup == cgroup)?.counted;
    let gets = |group: &GroupCounter| {
        let both = group.counted.zip(before(&group.share.cgroup));
        both.map_or(0, |(now, then)| now.saturating_sub(then)) as f64 / unit
    };
    let all: f64 = now.iter().map(gets).sum();
    let group_use = |group: &GroupCounter| GroupUse {
        cgroup: group.share.cgroup.clone(),
        class: group.class.clone(),
        weight: group.share.weight.to_f64(),
        counted: group.counted,
        gets: gets(group),
        part: if all > 0.0 { gets(group) / all } else { 0.0 },
    };
    now.iter().map(group_use).collect()
}

impl GroupUses {
    pub(super) fn cpu_json(&self) -> Option<Value> {
        let (by, groups) = self.cpu.as_ref()?;
        Some(json!({ "kept_by": by, "groups": groups_json(groups, ("used_ns", "processors")) }))
    }

    pub(super) fn disk_json(&self) -> Option<Value> {
        let groups = self.disk.as_ref()?;
        Some(json!({ "groups": groups_json(groups, ("bytes", "bytes_per_s")) }))
    }

    /// Returns a table for each resource, and if there are both, a table of the three shares side by side.
    pub(super) fn table(&self, live: &Live, paces: &[Pace], width: usize) -> String {
        // the three columns of numbers take 27 characters, the names the rest
        let name = width.saturating_sub(27).clamp(8, 36);
        let mut text = String::new();
        if let Some((by, groups)) = &self.cpu {
            resource_table(&mut text, name, &format!("processors (by the {by})"), groups, |gets| {
                format!("{gets:.2}")
            });
        }
        if let Some(groups) = &self.disk {
            resource_table(&mut text, name, "disks (by the controller)", groups, |gets| {
                format!("{}/s", units::size(gets as u64))
            });
        }
        if let (Some((_, cpu)), Some(disk)) = (&self.cpu, &self.disk) {
            let _ = write!(text, "\n{:<name$} {:>7} {:>11} {:>6}", "shares", "link", "processors", "disks");
            for group in cpu {
                let link = live.classes.iter().zip(paces).find(|(class, _)| class.name == group.class);
                let link = link.map_or(0.0, |(_, pace)| pace.share);
                let disk = disk.iter().find(|other| other.cgroup == group.cgroup);
                let disk = disk.map_or_else(|| "-".to_owned(), |disk| percent(disk.part));
                let (cgroup, link, cpu) = (cut(&group.cgroup, name), percent(link), percent(group.part));
                let _ = write!(text, "\n{cgroup:<name$} {link:>7} {cpu:>11} {disk:>6}");
            }
        }
        text
    }
}

fn groups_json(groups: &[GroupUse], (counted, gets): (&str, &str)) -> Vec<Value> {
    let group = |group: &GroupUse| {
        json!({
            "cgroup": group.cgroup, "weight": group.weight, counted: group.counted,
            gets: group.gets, "share": group.part,
        })
    };
    groups.iter().map(group).collect()
}

fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

fn resource_table(text: &mut String, name: usize, title: &str, groups: &[GroupUse], gets: fn(f64) -> String) {
    let _ = write!(text, "\n{:<name$} {:>7} {:>11} {:>6}", cut(title, name), "weight", "gets", "share");
    for group in groups {
        let (cgroup, gets, share) = (cut(&group.cgroup, name), gets(group.gets), percent(group.part));
        let _ = write!(text, "\n{cgroup:<name$} {:>7} {gets:>11} {share:>6}", group.weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_fairqueue::{LinkFraming, LiveClass, Rate};

    #[test]
    fn the_shares_are_what_was_used_between_two_readings() {
        let text = "rate = \"1mbit\"\n[class.a]\nmatch = [{ cgroup = \"/a\" }]\n[class.b]\nmatch = [{ cgroup = \"/b\" }]\n\
                    [cpu]\na = 3\nb = 1\n[io]\na = 2\nb = 5\n";
        let policy = Policy::parse(text).expect("it is sound");
        let counters =
            |shares: &Option<unisono_fairqueue::GroupShares>, counted: [Option<u64>; 2]| -> Vec<_> {
                let shares = shares.iter().flat_map(|shares| shares.shares.clone());
                let counter = |(share, counted): (GroupShare, _)| {
                    let class = policy.hierarchy.class(share.class).name.clone();
                    GroupCounter { share, class, counted }
                };
                shares.zip(counted).map(counter).collect()
            };
        let reading = |cpu, disk| GroupReading {
            cpu: Some(("core", counters(&policy.cpu, cpu))),
            disk: Some(counters(&policy.io, disk)),
        };
        let before = reading([Some(5), None], [Some(1000), Some(0)]);
        let now = reading([Some(1_000_000_005), Some(7)], [Some(5_001_000), Some(15_000_000)]);
        let uses = now.since(&before, Duration::from_secs(2));
        let (_, cpu) = uses.cpu.as_ref().expect("it is there");
        assert!((cpu[0].gets - 0.5).abs() < 1e-9 && (cpu[0].part - 1.0).abs() < 1e-9);
        assert_eq!(cpu[1].part, 0.0, "its group has just come");
        let class = |name: &str| LiveClass { name: name.to_owned(), guarantee: 5e5, ..LiveClass::default() };
        let live = Live {
            backend: "kernel".to_owned(),
            device: "eth0".to_owned(),
            direction: TrafficDirection::Out,
            at_ns: 0,
            rate: Rate::new(1_000_000).expect("above zero"),
            framing: LinkFraming::default(),
            classes: vec![class("a"), class("b")],
        };
        let pace = |share| Pace { share, ..Pace::default() };
        let table = uses.table(&live, &[pace(0.6), pace(0.4)], usize::MAX);
        let lines: Vec<&str> = table.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "processors (by the core)              weight        gets  share",
                "/a                                         3        0.50 100.0%",
                "/b                                         1        0.00   0.0%",
                "disks (by the controller)             weight        gets  share",
                "/a                                         2   2.4 MiB/s  25.0%",
                "/b                                         5   7.2 MiB/s  75.0%",
                "shares                                  link  processors  disks",
                "/a                                     60.0%      100.0%  25.0%",
                "/b                                     40.0%        0.0%  75.0%",
            ],
            "{table}"
        );
        assert!(uses.disk_json().expect("it is there").to_string().contains("\"bytes\":5001000"));
    }
}
