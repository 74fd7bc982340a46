//! A systemd unit that starts the daemon at boot, and again when it fails.
//!
//! After any end of the daemon, `ExecStopPost` undoes the remaining changes, also if its guardian was killed
//! with it. Reference: systemd.service(5).

use std::path::Path;
use unisono_linux::unit_file::{UnitFile, argument, program};

/// The unit's name.
pub const NAME: &str = "unisono-gang.service";
/// The rules file of the unit's daemon.
pub const RULES: &str = "/etc/unisono/gangs.toml";
/// The first line of units that this module writes. Any other file is neither replaced nor removed.
const MARK: &str = "# Written by `unisono gang install`; removed by `unisono gang uninstall`.";
const WANTED_BY: &str = "multi-user.target";

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

/// Returns the daemon's unit, which the command `install` writes.
pub fn unit(install: &'static str) -> UnitFile {
    UnitFile {
        name: NAME.to_owned(),
        wanted_by: WANTED_BY.to_owned(),
        mark: MARK,
        written_by: install,
        owner: "there is".to_owned(),
        install: install.to_owned(),
    }
}

/// Returns the unit's text. `path` is the absolute path of the program, `options` are options of
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
         WantedBy={WANTED_BY}\n",
        words.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use unisono_linux::unit_file::UnitFileError;

    #[test]
    fn a_unit_comes_and_goes_and_one_of_others_stays() {
        let root = tempfile::tempdir().expect("a directory");
        assert!(matches!(
            unit("unisono gang install").remove(root.path()),
            Err(UnitFileError::NotInstalled { .. })
        ));
        let plain = text("/usr/bin/unisono", &["--mode".to_owned(), "666".to_owned()]);
        assert!(
            plain.contains("ExecStart=\"/usr/bin/unisono\" \"gang\" \"daemon\" \"--mode\" \"666\"\n"),
            "{plain}"
        );
        let traced = text("/usr/bin/unisono", &["--trace", "/var/log/gangs/turns.json"].map(String::from));
        assert!(traced.contains("\nReadWritePaths=-\"/var/log/gangs\"\n"), "{traced}");
        for _ in 0..2 {
            let path = unit("unisono gang install").write(root.path(), &plain).expect("there is room");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), plain);
            assert!(path.with_file_name("multi-user.target.wants").join(NAME).is_symlink());
        }
        let path = unit("unisono gang install").remove(root.path()).expect("it is there");
        assert!(!path.exists() && !path.with_file_name("multi-user.target.wants").exists());
        fs::write(&path, "[Unit]\n").expect("there is room");
        assert!(matches!(
            unit("unisono gang install").write(root.path(), &plain),
            Err(UnitFileError::Theirs { .. })
        ));
        assert!(matches!(
            unit("unisono gang install").remove(root.path()),
            Err(UnitFileError::Theirs { .. })
        ));
        assert_eq!(fs::read_to_string(&path).expect("it stays"), "[Unit]\n");
    }
}
