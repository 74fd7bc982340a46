//! Provides a newer kernel with its modules: Debian unstable's kernel for virtual machines, fetched by apt.
//! The kernel is kept; to get a newer one, remove the directory.

use super::apt::Apt;
use anyhow::{Context, ensure};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that depends on the newest version of this kernel.
const NEWEST: &str = "linux-image-cloud-amd64";
const UNPACKED: &str = "kernel";

pub(super) struct UnpackedKernel {
    pub(super) release: String,
    pub(super) image: PathBuf,
    modules: PathBuf,
}

impl UnpackedKernel {
    /// Returns the kernel that is kept in a directory; fetches the newest one if there is none.
    pub(super) fn get(directory: &Path) -> anyhow::Result<Self> {
        let unpacked = directory.join(UNPACKED);
        if !unpacked.exists() {
            println!("fetching a kernel into {}", directory.display());
            fetch(directory).context("no newer kernel can be fetched")?;
        }
        Self::find(&unpacked).with_context(|| format!("no kernel in {}; remove it", unpacked.display()))
    }

    fn find(unpacked: &Path) -> Option<Self> {
        let all = fs::read_dir(unpacked.join("usr/lib/modules")).ok()?;
        all.flatten().find_map(|entry| {
            let modules = entry.path();
            let release = entry.file_name().into_string().ok()?;
            let image = modules.join("vmlinuz");
            image.exists().then_some(Self { release, image, modules })
        })
    }

    /// Returns the files of these modules, each after the modules on which it depends.
    pub(super) fn modules(&self, names: &[&str]) -> anyhow::Result<Vec<Vec<u8>>> {
        let (mut done, mut ordered) = (HashSet::new(), Vec::new());
        for name in names {
            self.module(name, &mut done, &mut ordered)?;
        }
        Ok(ordered)
    }

    fn module(&self, name: &str, done: &mut HashSet<String>, all: &mut Vec<Vec<u8>>) -> anyhow::Result<()> {
        if !done.insert(name.to_owned()) {
            return Ok(());
        }
        let file = format!("{name}.ko.xz");
        // the name of a module and the name of its file may differ in dashes and underscores
        let is_it = |path: &Path| {
            path.file_name()
                .is_some_and(|found| found.to_string_lossy().replace('-', "_") == file.replace('-', "_"))
        };
        let path = find(&self.modules.join("kernel"), &is_it).with_context(|| format!("no module {name}"))?;
        let xz = Command::new("xz").args(["--decompress", "--stdout"]).arg(&path).output();
        let xz = xz.context("start xz (apt-get install xz-utils)")?;
        ensure!(xz.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&xz.stderr));
        for needed in needs(&xz.stdout) {
            self.module(&needed, done, all)?;
        }
        all.push(xz.stdout);
        Ok(())
    }
}

/// Returns the modules on which a module depends, according to its file.
fn needs(module: &[u8]) -> Vec<String> {
    const DEPENDS: &[u8] = b"\0depends=";
    let begin = module.windows(DEPENDS.len()).position(|window| window == DEPENDS);
    let Some(list) = begin.map(|at| &module[at + DEPENDS.len()..]) else { return Vec::new() };
    let end = list.iter().position(|byte| *byte == 0).unwrap_or(0);
    let names = String::from_utf8_lossy(&list[..end]);
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn find(directory: &Path, is_it: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).find_map(|path| {
        if path.is_dir() { find(&path, is_it) } else { Some(path).filter(|path| is_it(path)) }
    })
}

fn fetch(directory: &Path) -> anyhow::Result<()> {
    let apt = Apt::new(directory, "unstable")?;
    let shown = apt.show(NEWEST)?;
    let depends = shown.lines().find_map(|line| line.strip_prefix("Depends: ")).unwrap_or_default();
    let release = depends.split([',', ' ']).find_map(|word| word.strip_prefix("linux-image-"));
    let release = release.with_context(|| format!("{NEWEST} does not say which kernel it needs"))?;
    let packages = ["binary", "modules"].map(|part| format!("linux-{part}-{release}"));
    apt.unpack(&packages.each_ref().map(String::as_str), UNPACKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_in_its_information() {
        assert_eq!(needs(b"license=GPL\0depends=libcrc32c,nf_tables\0name=x\0"), ["libcrc32c", "nf_tables"]);
        assert!(needs(b"license=GPL\0depends=\0name=x\0").is_empty());
        assert!(needs(b"nothing").is_empty());
    }
}
