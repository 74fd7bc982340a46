//! Processors, cores, caches and memory nodes, as sysfs describes them.
//!
//! A [`Topology`] is a plain value that is read once. Facts that a container or an old kernel hides are
//! replaced by the most modest assumption (each processor a core of its own, one package, one node) and
//! listed in [`Topology::assumed`], so that a guess is not mistaken for a fact. It is used for a barrier's
//! tree, for spreading a gang over cores, and by `unisono doctor`.
//!
//! Cost: about ten small files per processor. It does not follow hot-plugging: read it again.
//!
//! Reference: Linux Documentation/ABI/stable/sysfs-devices-system-cpu,
//! Documentation/ABI/testing/sysfs-devices-system-cpu (cache), sysfs-devices-node.

use crate::affinity::{self, CpuSet, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;
use unisono_text::counted;

/// The machine's processors and their shared resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Online processors, in ascending order.
    pub cpus: Vec<Cpu>,
    /// Distinct caches, by level, then by first processor.
    pub caches: Vec<Cache>,
    /// Memory nodes that have processors.
    pub nodes: Vec<MemoryNode>,
    /// Facts that the machine did not describe and that were assumed, a short phrase each.
    pub assumed: BTreeSet<&'static str>,
}

/// A processor (a hardware thread).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub number: usize,
    pub package: usize,
    /// All hardware threads of the processor's core, itself included.
    pub siblings: CpuSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The level of the cache; level 1 is nearest to the core.
    pub level: u8,
    pub kind: CacheKind,
    pub bytes: u64,
    /// The processors that share the cache.
    pub shared_by: CpuSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheKind {
    Data,
    Instruction,
    Unified,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNode {
    pub number: usize,
    /// The processors next to the node's memory.
    pub cpus: CpuSet,
}

impl Topology {
    /// Reads this machine's topology; without sysfs, only the processors that this thread may use.
    pub fn read() -> Self {
        let topology = Self::read_below(Path::new("/"));
        if !topology.cpus.is_empty() {
            return topology;
        }
        let usable = affinity::allowed(Tid::SELF).unwrap_or_else(|_| CpuSet::single(0));
        let cpus = usable.iter().map(|number| Cpu { number, package: 0, siblings: CpuSet::single(number) });
        Self { cpus: cpus.collect(), assumed: BTreeSet::from(["processors", "cores"]), ..topology }
    }

    /// Reads a topology from `ROOT/sys/devices/system`; empty if the directory is missing.
    pub fn read_below(root: &Path) -> Self {
        let base = root.join("sys/devices/system");
        let mut topology = Self::default();
        let mut caches = BTreeMap::new();
        for number in online(&base.join("cpu")).iter() {
            let directory = base.join(format!("cpu/cpu{number}"));
            let cpu = topology.read_cpu(number, &directory.join("topology"));
            topology.cpus.push(cpu);
            for index in numbered(&directory.join("cache"), "index") {
                if let Some(cache) = cache(number, &directory.join(format!("cache/index{index}"))) {
                    let first = cache.shared_by.iter().next();
                    caches.insert((cache.level, first, cache.kind), cache);
                }
            }
        }
        topology.caches = caches.into_values().collect();
        topology.nodes = nodes(&base.join("node"), &topology.numbers());
        if topology.caches.is_empty() {
            topology.assumed.insert("caches");
        }
        topology
    }

    fn read_cpu(&mut self, number: usize, directory: &Path) -> Cpu {
        // `thread_siblings_list` is the older name of `core_cpus_list`
        let siblings = list(&directory.join("core_cpus_list"))
            .or_else(|| list(&directory.join("thread_siblings_list")))
            .filter(|siblings| siblings.contains(number))
            .unwrap_or_else(|| {
                self.assumed.insert("cores");
                CpuSet::single(number)
            });
        // -1 if the firmware does not report it
        let package = text(&directory.join("physical_package_id")).and_then(|text| text.parse().ok());
        if package.is_none() {
            self.assumed.insert("packages");
        }
        Cpu { number, package: package.unwrap_or(0), siblings }
    }

    /// Returns the numbers of all processors.
    pub fn numbers(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.number).collect()
    }

    /// Returns the hardware threads of each core, ascending by first thread.
    pub fn cores(&self) -> Vec<CpuSet> {
        let online = self.numbers();
        let mut cores: Vec<CpuSet> = Vec::new();
        for cpu in &self.cpus {
            if !cores.iter().any(|core| core.contains(cpu.number)) {
                cores.push(cpu.siblings.intersection(&online));
            }
        }
        cores
    }

    /// Returns the part of the machine that consists of `allowed` processors.
    #[must_use]
    pub fn within(&self, allowed: &CpuSet) -> Self {
        let cut = |cpus: &CpuSet| cpus.intersection(allowed);
        Self {
            cpus: (self.cpus.iter())
                .filter(|cpu| allowed.contains(cpu.number))
                .map(|cpu| Cpu { siblings: cut(&cpu.siblings), ..cpu.clone() })
                .collect(),
            caches: (self.caches.iter())
                .map(|cache| Cache { shared_by: cut(&cache.shared_by), ..cache.clone() })
                .filter(|cache| !cache.shared_by.is_empty())
                .collect(),
            nodes: (self.nodes.iter())
                .map(|node| MemoryNode { cpus: cut(&node.cpus), ..node.clone() })
                .filter(|node| !node.cpus.is_empty())
                .collect(),
            assumed: self.assumed.clone(),
        }
    }
}

impl fmt::Display for Topology {
    /// Writes one line: `2 cores, 2 processors, 1 package, 1 node; L1 48 KiB, L2 1 MiB, L3 32 MiB for 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packages: BTreeSet<_> = self.cpus.iter().map(|cpu| cpu.package).collect();
        write!(
            f,
            "{}, {}, {}, {}",
            counted(self.cores().len(), "core"),
            counted(self.cpus.len(), "processor"),
            counted(packages.len().max(1), "package"),
            counted(self.nodes.len().max(1), "memory node"),
        )?;
        let mut separator = "; ";
        let mut seen = BTreeSet::new();
        for cache in self.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction) {
            let sharers = cache.shared_by.len();
            if seen.insert((cache.level, cache.bytes, sharers)) {
                write!(f, "{separator}L{} {}", cache.level, size(cache.bytes))?;
                if sharers > 1 {
                    write!(f, " for {sharers}")?;
                }
                separator = ", ";
            }
        }
        if !self.assumed.is_empty() {
            let assumed: Vec<_> = self.assumed.iter().copied().collect();
            write!(f, " (not described, assumed: {})", assumed.join(", "))?;
        }
        Ok(())
    }
}

fn online(directory: &Path) -> CpuSet {
    list(&directory.join("online")).unwrap_or_else(|| numbered(directory, "cpu").into_iter().collect())
}

fn cache(number: usize, directory: &Path) -> Option<Cache> {
    let kind = match text(&directory.join("type"))?.as_str() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        "Unified" => CacheKind::Unified,
        _ => return None,
    };
    Some(Cache {
        level: text(&directory.join("level"))?.parse().ok()?,
        kind,
        bytes: bytes(&text(&directory.join("size"))?)?,
        shared_by: list(&directory.join("shared_cpu_list")).unwrap_or_else(|| CpuSet::single(number)),
    })
}

fn nodes(directory: &Path, online: &CpuSet) -> Vec<MemoryNode> {
    let node = |number| {
        let cpus = list(&directory.join(format!("node{number}/cpulist")))?.intersection(online);
        (!cpus.is_empty()).then_some(MemoryNode { number, cpus })
    };
    numbered(directory, "node").into_iter().filter_map(node).collect()
}

/// Returns the numbers N of a directory's entries `PREFIXn`, ascending.
fn numbered(directory: &Path, prefix: &str) -> BTreeSet<usize> {
    let Ok(entries) = fs::read_dir(directory) else { return BTreeSet::new() };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok();
    entries.flatten().filter_map(number).filter(|number| *number < CpuSet::LIMIT).collect()
}

fn list(path: &Path) -> Option<CpuSet> {
    text(path)?.parse().ok().filter(|list: &CpuSet| !list.is_empty())
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Parses `48K`, `1024K`, `32M`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory with the given files; removed when dropped.
    struct FakeRoot(PathBuf);

    impl FakeRoot {
        fn with(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("unisono-topology-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join("sys/devices/system").join(path);
                fs::create_dir_all(path.parent().expect("a parent")).expect("directory");
                fs::write(path, text).expect("file");
            }
            Self(root)
        }
    }

    impl Drop for FakeRoot {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn hardware_threads_of_one_core_are_siblings() {
        let root = FakeRoot::with(
            "smt",
            &[
                ("cpu/online", "0-3\n"),
                ("cpu/cpu0/topology/core_cpus_list", "0,2\n"),
                ("cpu/cpu1/topology/core_cpus_list", "1,3\n"),
                ("cpu/cpu2/topology/core_cpus_list", "0,2\n"),
                ("cpu/cpu3/topology/thread_siblings_list", "1,3\n"),
                ("cpu/cpu0/topology/physical_package_id", "0\n"),
                ("cpu/cpu0/cache/index0/type", "Data\n"),
                ("cpu/cpu0/cache/index0/level", "1\n"),
                ("cpu/cpu0/cache/index0/size", "48K\n"),
                ("cpu/cpu0/cache/index0/shared_cpu_list", "0,2\n"),
                ("cpu/cpu1/cache/index3/type", "Unified\n"),
                ("cpu/cpu1/cache/index3/level", "3\n"),
                ("cpu/cpu1/cache/index3/size", "32768K\n"),
                ("cpu/cpu1/cache/index3/shared_cpu_list", "0-3\n"),
                ("node/node0/cpulist", "0-1\n"),
                ("node/node1/cpulist", "2-3\n"),
                ("node/node2/cpulist", "\n"),
            ],
        );
        let topology = Topology::read_below(&root.0);
        let cores: Vec<_> = topology.cores().iter().map(ToString::to_string).collect();
        assert_eq!(cores, ["0,2", "1,3"]);
        assert_eq!(topology.nodes.len(), 2, "a node without processors does not count");
        assert_eq!(topology.assumed, BTreeSet::from(["packages"]), "cpu1 to cpu3 name no package");
        assert_eq!(
            topology.within(&CpuSet::single(3)).to_string(),
            "1 core, 1 processor, 1 package, 1 memory node; L3 32 MiB (not described, assumed: packages)"
        );
    }

    #[test]
    fn a_machine_that_describes_nothing_has_no_processors_but_says_what_it_lacks() {
        let topology = Topology::read_below(Path::new("/nonexistent"));
        assert!(topology.cpus.is_empty());
        assert!(topology.assumed.contains("caches"));
    }

    #[test]
    fn without_the_list_of_online_processors_their_directories_count() {
        let root = FakeRoot::with("bare", &[("cpu/cpu0/x", ""), ("cpu/cpu1/x", ""), ("cpu/cpufreq/x", "")]);
        let topology = Topology::read_below(&root.0);
        assert_eq!(topology.numbers().to_string(), "0-1");
        assert_eq!(topology.cores().len(), 2);
        assert!(topology.assumed.contains("cores"));
    }

    #[test]
    fn nonsense_in_a_file_is_not_believed() {
        let root = FakeRoot::with(
            "nonsense",
            &[
                ("cpu/online", "0-1"),
                ("cpu/cpu0/topology/core_cpus_list", "1"),
                ("cpu/cpu1/topology/core_cpus_list", "nonsense"),
                ("cpu/cpu0/cache/index0/type", "Data"),
                ("cpu/cpu0/cache/index0/level", "1"),
                ("cpu/cpu0/cache/index0/size", "99999999999999999999G"),
            ],
        );
        let topology = Topology::read_below(&root.0);
        assert_eq!(topology.cores().len(), 2, "siblings that leave out the processor itself are wrong");
        assert!(topology.caches.is_empty());
    }

    #[test]
    fn this_machine_has_every_processor_that_this_thread_may_use() {
        let allowed = affinity::allowed(Tid::SELF).expect("own affinity");
        let topology = Topology::read();
        assert_eq!(topology.numbers().intersection(&allowed), allowed);
        assert!(!topology.cores().is_empty());
    }
}
