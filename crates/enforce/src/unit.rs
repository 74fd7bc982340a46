//! Writes a systemd unit that applies a policy at boot, and again when its device comes back.
//!
//! ```text
//!   the device appears --> wanted by its .device unit --> ExecStart: unisono queue apply
//!   the device goes    --> BindsTo stops the unit     --> ExecStop:  unisono queue clear
//! ```
//! Each direction of a device has a unit: `unisono-queue-DEVICE.service` for outgoing packets, and
//! `unisono-queue-DEVICE-in.service` for incoming packets. A start fails if a control group of a match does
//! not exist yet; systemd tries again. This module makes only text and paths; the program checks the policy
//! and calls systemd. Reference: systemd.unit(5), systemd.service(5), systemd.syntax(7), systemd-escape(1).

use crate::journal::LinkSide;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use unisono_fairqueue::TrafficDirection;
use unisono_linux::next_step::next_step;
use unisono_linux::unit_file::{argument, program};

/// The first line of our units. Other files are neither replaced nor removed.
const MARK: &str = "# Written by `unisono queue install`; removed by `unisono queue uninstall`.";
/// The directory of an administrator's units.
const DIRECTORY: &str = "etc/systemd/system";
/// Names of devices are shorter (`IFNAMSIZ`).
const MAX_NAME: usize = 16;

#[derive(Clone, Debug)]
pub struct DeviceUnit {
    /// An absolute path.
    pub program: String,
    /// An absolute path.
    pub policy: String,
    pub side: LinkSide,
    /// Options of `unisono queue apply`.
    pub options: Vec<String>,
}

/// Why a unit is not installed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    #[error("{0:?} is not the name of a device; list the devices: ip link")]
    Name(String),
    /// A file of this name belongs to another program.
    #[error("{} was not written by `unisono queue install`; move it away first", .0.display())]
    Theirs(PathBuf),
    #[error("{device} has no unit ({} does not exist), so nothing was changed; install one: unisono queue install POLICY --dev {device}", path.display())]
    NotInstalled {
        device: String,
        /// The path that the unit would have.
        path: PathBuf,
    },
    #[error("cannot {what} {}: {source}; {}", path.display(), next_step(source))]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

pub fn unit_name(side: &LinkSide) -> Result<String, UnitError> {
    let device = side.device.as_str();
    let is_part = |name: char| !name.is_whitespace() && !name.is_control() && !matches!(name, '/' | ':');
    if device.is_empty()
        || device.len() >= MAX_NAME
        || matches!(device, "." | "..")
        || !device.chars().all(is_part)
    {
        return Err(UnitError::Name(device.to_owned()));
    }
    // an escaped name of a device has no `-`
    let direction = if side.direction == TrafficDirection::In { "-in" } else { "" };
    Ok(format!("unisono-queue-{}{direction}.service", escaped(device)))
}

/// The unit that systemd makes for a network device.
fn device_unit(device: &str) -> String {
    format!("sys-subsystem-net-devices-{}.device", escaped(device))
}

/// Escapes like systemd-escape(1) inside a name.
fn escaped(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':');
    text.bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("\\x{byte:02x}") })
        .collect()
}

impl DeviceUnit {
    pub fn text(&self) -> String {
        let Self { program: path, policy, side: LinkSide { device, direction }, options } = self;
        let direction = direction.name();
        let (unit, program) = (device_unit(device), program(path));
        let apply: Vec<String> = ["queue", "apply", policy, "--dev", device, "--direction", direction]
            .into_iter()
            .chain(options.iter().map(String::as_str))
            .map(argument)
            .collect();
        let (apply, clear) = (apply.join(" "), argument(device));
        let shown = device.replace('%', "%%");
        format!(
            "{MARK}\n\
             [Unit]\n\
             Description=Shares of the link at {shown}\n\
             BindsTo={unit}\n\
             After={unit}\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             RemainAfterExit=yes\n\
             ExecStart={program} {apply}\n\
             ExecReload={program} {apply}\n\
             # a device that has gone has nothing to put back\n\
             ExecStop=-{program} queue clear --dev {clear} --direction {direction}\n\
             # a control group that the policy names may come later\n\
             Restart=on-failure\n\
             RestartSec=10\n\
             \n\
             [Install]\n\
             WantedBy={unit}\n"
        )
    }

    /// Writes the unit below a root directory and enables it. Returns the unit's path. On an error an older
    /// unit is still there.
    pub fn install(&self, root: &Path) -> Result<PathBuf, UnitError> {
        let (path, link) = places(root, &self.side)?;
        match fs::read_to_string(&path) {
            Ok(text) if !text.starts_with(MARK) => return Err(UnitError::Theirs(path)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("read", &path)(error));
            }
            _ => {}
        }
        for directory in [&path, &link].into_iter().filter_map(|file| file.parent()) {
            fs::create_dir_all(directory).map_err(failed("make", directory))?;
        }
        // completely or not at all
        let beside = path.with_extension("service.new");
        fs::write(&beside, self.text()).map_err(failed("write", &beside))?;
        fs::rename(&beside, &path).map_err(failed("write", &path))?;
        let target = Path::new("/").join(DIRECTORY).join(unit_name(&self.side)?);
        match std::os::unix::fs::symlink(target, &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("make", &link)(error)),
            _ => Ok(path),
        }
    }
}

/// Removes a device's unit below a root directory. Returns its path.
pub fn uninstall(root: &Path, side: &LinkSide) -> Result<PathBuf, UnitError> {
    let path = installed(root, side)?;
    let (_, link) = places(root, side)?;
    for file in [&link, &path] {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", file)(error));
            }
            _ => {}
        }
    }
    // other units may be wanted by the device, too
    let _ = link.parent().map(fs::remove_dir);
    Ok(path)
}

/// The path of a device's unit.
pub fn installed(root: &Path, side: &LinkSide) -> Result<PathBuf, UnitError> {
    let (path, _) = places(root, side)?;
    match fs::read_to_string(&path) {
        Ok(text) if text.starts_with(MARK) => Ok(path),
        Ok(_) => Err(UnitError::Theirs(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(UnitError::NotInstalled { device: side.to_string(), path })
        }
        Err(error) => Err(failed("read", &path)(error)),
    }
}

/// The unit, and the link that enables it.
fn places(root: &Path, side: &LinkSide) -> Result<(PathBuf, PathBuf), UnitError> {
    let (directory, name) = (root.join(DIRECTORY), unit_name(side)?);
    let link = directory.join(format!("{}.wants", device_unit(&side.device))).join(&name);
    Ok((directory.join(name), link))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> UnitError {
    let path = path.to_owned();
    move |source| UnitError::File { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn unit(device: &str, policy: &str) -> DeviceUnit {
        DeviceUnit {
            program: "/bin/true".to_owned(),
            policy: policy.to_owned(),
            side: LinkSide::out(device),
            options: vec!["--backend".to_owned(), "interposed".to_owned()],
        }
    }

    /// Parses a command line as systemd does: words in quotes, escapes, specifiers, variables.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut letters) = (Vec::new(), None::<String>, line.chars().peekable());
        let mut is_quoted = false;
        while let Some(letter) = letters.next() {
            match letter {
                '"' => (is_quoted, word) = (!is_quoted, Some(word.unwrap_or_default())),
                ' ' if !is_quoted => words.extend(word.take()),
                '\\' if letters.peek() == Some(&'x') => {
                    let digits: String = letters.by_ref().skip(1).take(2).collect();
                    let byte = u8::from_str_radix(&digits, 16).expect("two digits");
                    word.get_or_insert_default().push(char::from(byte));
                }
                '\\' | '%' | '$' => word.get_or_insert_default().extend(letters.next()),
                letter => word.get_or_insert_default().push(letter),
            }
        }
        words.extend(word);
        words
    }

    #[test]
    fn any_path_comes_out_of_a_command_line_as_it_went_in() {
        let nasty = "/etc/my policy/50%n $HOME \\x \"q\" 'q'\t;\n[Service].toml";
        let text = unit("eth0", nasty).text();
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("it is there");
        let wanted = ["/bin/true", "queue", "apply", nasty, "--dev", "eth0", "--direction", "out"];
        assert_eq!(words(line)[..8], wanted);
        assert_eq!(words(line)[8..], ["--backend", "interposed"]);
        assert_eq!(text.lines().filter(|line| line.starts_with("[Service]")).count(), 1, "{text}");
    }

    #[test]
    fn names_are_escaped_as_systemd_does_it() {
        for device in ["eth0", "br-lan.7", "a_b", "wlp3s0f0u1", "ö\u{301}", "x%y$z", "we\\ird", "@a,b=c"] {
            let name = unit_name(&LinkSide::out(device)).expect("a device may be called so");
            let escape = |arguments: &[&str]| {
                let output = Command::new("systemd-escape").args(arguments).output().ok()?;
                output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            };
            let path = format!("/sys/subsystem/net/devices/{device}");
            let Some(wanted) = escape(&["--path", "--suffix=device", &path]) else {
                eprintln!("skipped: no systemd-escape here: apt-get install systemd");
                return;
            };
            assert_eq!(device_unit(device), wanted);
            assert_eq!(
                Some(name),
                escape(&["--suffix=service", device]).map(|name| format!("unisono-queue-{name}"))
            );
        }
    }

    #[test]
    fn both_directions_of_a_device_have_units_of_their_own() {
        let side = LinkSide { direction: TrafficDirection::In, ..LinkSide::out("eth0") };
        assert_eq!(unit_name(&side).expect("it is one"), "unisono-queue-eth0-in.service");
        let other = unit_name(&LinkSide::out("eth0-in")).expect("a device may be called so");
        assert_ne!(unit_name(&side).expect("it is one"), other);
        let text = DeviceUnit { side, ..unit("eth0", "/a") }.text();
        assert!(text.contains("queue clear --dev \"eth0\" --direction in\n"), "{text}");
    }

    #[test]
    fn what_is_no_device_makes_no_file() {
        for device in ["", ".", "..", "a/b", "../x", "a b", "sixteen-letters-", "a\nb", "a:b"] {
            assert!(matches!(unit_name(&LinkSide::out(device)), Err(UnitError::Name(_))), "{device:?}");
        }
    }

    #[test]
    fn systemd_finds_nothing_wrong_with_a_unit() {
        let root = tempfile::tempdir().expect("there is room");
        let path =
            unit("br-lan.7", "/etc/my policy/50% $x.toml").install(root.path()).expect("there is room");
        let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
        let Ok(output) = verify else {
            eprintln!("skipped: no systemd-analyze here: apt-get install systemd");
            return;
        };
        let messages = String::from_utf8_lossy(&output.stderr);
        let ours = messages.lines().filter(|line| line.contains("unisono-queue"));
        assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new(), "{messages}");
        assert!(output.status.success(), "{messages}");
    }

    #[test]
    fn a_unit_is_installed_replaced_and_removed_and_one_of_others_stays() {
        let root = tempfile::tempdir().expect("there is room");
        let path = unit("eth0", "/a").install(root.path()).expect("there is room");
        unit("eth0", "/b").install(root.path()).expect("it is ours");
        assert!(fs::read_to_string(&path).expect("it is there").contains("\"/b\""));
        let wants = path.with_file_name("sys-subsystem-net-devices-eth0.device.wants");
        let link = fs::read_link(wants.join("unisono-queue-eth0.service")).expect("it is enabled");
        assert_eq!(link, Path::new("/etc/systemd/system/unisono-queue-eth0.service"));
        uninstall(root.path(), &LinkSide::out("eth0")).expect("it is ours");
        assert!(!path.exists() && !wants.exists());
        assert!(matches!(
            uninstall(root.path(), &LinkSide::out("eth0")),
            Err(UnitError::NotInstalled { .. })
        ));
        fs::write(&path, "[Unit]\n").expect("there is room");
        assert!(matches!(unit("eth0", "/a").install(root.path()), Err(UnitError::Theirs(_))));
        assert!(matches!(uninstall(root.path(), &LinkSide::out("eth0")), Err(UnitError::Theirs(_))));
    }
}
