//! A systemd unit that starts the daemon at boot, and again when it fails.
//!
//! This module makes only text and files; the program calls systemd. After any end of the daemon,
//! `ExecStopPost` undoes the remaining changes, also if its guardian was killed with it. Reference:
//! systemd.service(5).

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use unisono_linux::next_step::next_step;
use unisono_linux::unit_file::{argument, program};

/// The unit's name.
pub const NAME: &str = "unisono-gang.service";
/// The rules file of the unit's daemon.
pub const RULES: &str = "/etc/unisono/gangs.toml";
/// The first line of units that this module writes. Any other file is neither replaced nor removed.
const MARK: &str = "# Written by `unisono gang install`; removed by `unisono gang uninstall`.";
/// The directory of an administrator's units.
const DIRECTORY: &str = "etc/systemd/system";

/// Restrictions of the daemon, which runs as root. It can still write files of control groups of all users,
/// set classes and processors of their threads, and access `/proc` and `/run/unisono`. These options are left
/// out because they would prevent some of that: `ProtectControlGroups`, `ProtectProc`, `ProcSubset`,
/// `PrivateUsers`, `RestrictRealtime`.
const SANDBOX: &str = "\
# files of users' control groups, their owners' rights, priorities, names of others' programs; nothing else of root
CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_CHOWN CAP_SETUID CAP_SYS_NICE CAP_SYS_PTRACE CAP_KILL
NoNewPrivileges=yes
RuntimeDirectory=unisono
RuntimeDirectoryPreserve=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateDevices=yes
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectKernelTunables=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077
";

/// Options of the daemon that name an output file.
const WRITES: [&str; 2] = ["--socket", "--trace"];

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GangUnitError {
    #[error("{} is the unit of another program; move it away first", .0.display())]
    Theirs(PathBuf),
    #[error("there is no unit ({} does not exist), so nothing was changed", .0.display())]
    NotInstalled(PathBuf),
    #[error("cannot {what} {}: {source}; {}", path.display(), next_step(source))]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

/// The unit's text. `path` is the absolute path of the program, `options` are options of
/// `unisono gang daemon`.
pub fn text(path: &str, options: &[String]) -> String {
    let command = program(path);
    let words = ["gang".to_owned(), "daemon".to_owned()];
    let words: Vec<String> = words.iter().chain(options).map(|word| argument(word)).collect();
    let writes = options.windows(2).filter(|pair| WRITES.contains(&pair[0].as_str()));
    let directories = writes.filter_map(|pair| Path::new(&pair[1]).parent()?.to_str());
    let writes: String = directories.map(|path| format!("ReadWritePaths=-{}\n", program(path))).collect();
    format!(
        "{MARK}\n\
         [Unit]\n\
         Description=Gangs of programs that take turns\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStart={command} {}\n\
         ExecReload=/bin/kill -HUP $MAINPID\n\
         # however it ended: programs that it had stopped go on\n\
         ExecStopPost={command} gang restore\n\
         # the guardian lives in the same group, and ends by itself\n\
         KillMode=mixed\n\
         WatchdogSec=30\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         {SANDBOX}{writes}\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        words.join(" ")
    )
}

/// Writes the unit below a root directory and enables it. Returns its path. On an error an older unit is
/// still in place.
pub fn install(root: &Path, text: &str) -> Result<PathBuf, GangUnitError> {
    let (path, link) = places(root);
    match is_ours(&path) {
        Err(GangUnitError::NotInstalled(_)) => {}
        other => other?,
    }
    for directory in [&path, &link].into_iter().filter_map(|file| file.parent()) {
        fs::create_dir_all(directory).map_err(failed("make", directory))?;
    }
    // atomically: the complete file or none
    let beside = path.with_extension("service.new");
    fs::write(&beside, text).map_err(failed("write", &beside))?;
    fs::rename(&beside, &path).map_err(failed("write", &path))?;
    match std::os::unix::fs::symlink(Path::new("/").join(DIRECTORY).join(NAME), &link) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("make", &link)(error)),
        _ => Ok(path),
    }
}

/// Removes the unit below a root directory. Returns its former path.
pub fn uninstall(root: &Path) -> Result<PathBuf, GangUnitError> {
    let (path, link) = places(root);
    is_ours(&path)?;
    for file in [&link, &path] {
        match fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("remove", file)(error)),
            _ => {}
        }
    }
    Ok(path)
}

/// Fails unless the unit exists and was written by this module.
pub fn installed(root: &Path) -> Result<(), GangUnitError> {
    is_ours(&places(root).0)
}

fn is_ours(path: &Path) -> Result<(), GangUnitError> {
    match fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) => Ok(()),
        Ok(_) => Err(GangUnitError::Theirs(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(GangUnitError::NotInstalled(path.to_owned()))
        }
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// The paths of the unit, and of the link that enables it.
fn places(root: &Path) -> (PathBuf, PathBuf) {
    let directory = root.join(DIRECTORY);
    (directory.join(NAME), directory.join("multi-user.target.wants").join(NAME))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GangUnitError {
    let path = path.to_owned();
    move |source| GangUnitError::File { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_comes_and_goes_and_one_of_others_stays() {
        let root = tempfile::tempdir().expect("a directory");
        assert!(matches!(uninstall(root.path()), Err(GangUnitError::NotInstalled(_))));
        let unit = text("/usr/bin/unisono", &["--mode".to_owned(), "666".to_owned()]);
        assert!(
            unit.contains("ExecStart=\"/usr/bin/unisono\" \"gang\" \"daemon\" \"--mode\" \"666\"\n"),
            "{unit}"
        );
        let traced = text("/usr/bin/unisono", &["--trace", "/var/log/gangs/turns.json"].map(String::from));
        assert!(traced.contains("\nReadWritePaths=-\"/var/log/gangs\"\n"), "{traced}");
        for _ in 0..2 {
            let path = install(root.path(), &unit).expect("there is room");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), unit);
            assert!(places(root.path()).1.is_symlink());
        }
        let path = uninstall(root.path()).expect("it is there");
        assert!(!path.exists() && !places(root.path()).1.is_symlink());
        fs::write(&path, "[Unit]\n").expect("there is room");
        assert!(matches!(install(root.path(), &unit), Err(GangUnitError::Theirs(_))));
        assert!(matches!(uninstall(root.path()), Err(GangUnitError::Theirs(_))));
        assert_eq!(fs::read_to_string(&path).expect("it stays"), "[Unit]\n");
    }
}
