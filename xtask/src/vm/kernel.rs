//! Provides another kernel with its modules: the kernel that a suite of Debian has for virtual machines,
//! fetched by apt. The kernel is kept; to get a newer one, remove the directory.

use super::apt::Apt;
use anyhow::{Context, ensure};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The suite of Debian with the newest kernel.
pub(super) const NEWEST_SUITE: &str = "unstable";
/// The package that depends on the newest version of a suite's kernel.
const NEWEST: &str = "linux-image-cloud-amd64";
const UNPACKED: &str = "kernel";

pub(super) struct UnpackedKernel {
    pub(super) release: String,
    pub(super) image: PathBuf,
    modules: PathBuf,
}

impl UnpackedKernel {
    /// Returns the kernel of a suite that is kept below a directory; fetches the newest one if there is none.
    pub(super) fn get(directory: &Path, suite: &str) -> anyhow::Result<Self> {
        let directory = directory.join(suite);
        let unpacked = directory.join(UNPACKED);
        if !unpacked.exists() {
            println!("fetching a kernel into {}", directory.display());
            fetch(&directory, suite)
                .with_context(|| format!("the kernel of Debian {suite} cannot be fetched"))?;
        }
        Self::find(&unpacked).with_context(|| format!("no kernel in {}; remove it", unpacked.display()))
    }

    /// Finds the kernel among unpacked files. Debian 13 and older have it in `/boot`.
    fn find(unpacked: &Path) -> Option<Self> {
        let all = ["usr/lib/modules", "lib/modules"];
        let all = all.iter().filter_map(|place| fs::read_dir(unpacked.join(place)).ok());
        all.flatten().flatten().find_map(|entry| {
            let modules = entry.path();
            let release = entry.file_name().into_string().ok()?;
            let images = [modules.join("vmlinuz"), unpacked.join(format!("boot/vmlinuz-{release}"))];
            let image = images.into_iter().find(|image| image.exists())?;
            Some(Self { release, image, modules })
        })
    }

    /// Returns the files of these modules, each after its dependencies.
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
        // the name of a module and the name of its file may differ in dashes and underscores
        let files = [".ko", ".ko.xz"].map(|end| format!("{name}{end}").replace('-', "_"));
        let is_it = |path: &Path| {
            path.file_name().is_some_and(|found| files.contains(&found.to_string_lossy().replace('-', "_")))
        };
        let path = find(&self.modules.join("kernel"), &is_it).with_context(|| format!("no module {name}"))?;
        let module = content(&path)?;
        for needed in needs(&module) {
            self.module(&needed, done, all)?;
        }
        all.push(module);
        Ok(())
    }
}

/// Returns the content of a module's file, which may be compressed.
fn content(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return fs::read(path).with_context(|| format!("read {}", path.display()));
    }
    let xz = Command::new("xz").args(["--decompress", "--stdout"]).arg(path).output();
    let xz = xz.context("start xz (apt-get install xz-utils)")?;
    ensure!(xz.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&xz.stderr));
    Ok(xz.stdout)
}

/// Returns the dependencies of a module, according to its file.
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

fn fetch(directory: &Path, suite: &str) -> anyhow::Result<()> {
    let apt = Apt::new(directory, suite)?;
    let newest = apt.show(NEWEST)?;
    let image = dependencies(&newest).find(|name| name.starts_with("linux-image-"));
    let image = image.with_context(|| format!("{NEWEST} does not say which kernel it needs"))?;
    let shown = apt.show(image)?;
    let packages = kernel_packages(image, &shown);
    apt.unpack(&packages, UNPACKED)
}

/// Returns the packages with the files of a kernel, from apt's description of its package `image`: since
/// Debian 14 the kernel and its modules are in packages of their own.
fn kernel_packages<'a>(image: &'a str, shown: &'a str) -> Vec<&'a str> {
    let is_part = |name: &&str| name.starts_with("linux-binary-") || name.starts_with("linux-modules-");
    let parts: Vec<_> = dependencies(shown).filter(is_part).collect();
    if parts.is_empty() { vec![image] } else { parts }
}

/// Returns the words of the dependencies in apt's description of a package; the names are among them.
fn dependencies(shown: &str) -> impl Iterator<Item = &str> {
    let depends = shown.lines().find_map(|line| line.strip_prefix("Depends: ")).unwrap_or_default();
    depends.split([',', ' '])
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

    #[test]
    fn a_kernel_is_one_package_or_two() {
        let older = "Package: linux-image-6.12-cloud-amd64\nDepends: kmod, linux-base (>= 4.3)\n";
        assert_eq!(kernel_packages("linux-image-6.12-cloud-amd64", older), ["linux-image-6.12-cloud-amd64"]);
        let newer = "Depends: dracut, linux-binary-7.2 (= 7.2-1), linux-modules-7.2 (= 7.2-1)\n";
        assert_eq!(kernel_packages("linux-image-7.2", newer), ["linux-binary-7.2", "linux-modules-7.2"]);
    }
}
