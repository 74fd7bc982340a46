//! Writes a systemd unit that applies a policy at boot, and again when its device comes back.
//!
//! ```text
//!   the device appears --> wanted by its .device unit --> ExecStart: unisono queue apply
//!   the device goes    --> BindsTo stops the unit     --> ExecStop:  unisono queue clear
//! ```
//! Each direction of a device has a unit: `unisono-queue-DEVICE.service` for outgoing packets, and
//! `unisono-queue-DEVICE-in.service` for incoming packets. A start fails if a control group of a match does
//! not exist yet; systemd tries again. This module only writes texts and paths; the command-line program
//! checks the policy and calls systemd. Reference: systemd.unit(5), systemd.service(5), systemd.syntax(7),
//! systemd-escape(1).

use crate::journal::LinkSide;
use unisono_fairqueue::TrafficDirection;
use unisono_linux::unit_file::{UnitFile, argument, program};

/// The first line of our units. Other files are neither replaced nor removed.
const MARK: &str = "# Written by `unisono queue install`; removed by `unisono queue uninstall`.";
/// The names of devices are shorter than this (`IFNAMSIZ`, which counts a final zero).
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

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not the name of a device; list the devices: ip link")]
pub struct BadDeviceName(String);

/// Returns the unit of one direction of a device. Fails if no device can have that name.
pub fn unit(side: &LinkSide) -> Result<UnitFile, BadDeviceName> {
    Ok(UnitFile {
        name: unit_name(side)?,
        wanted_by: device_unit(&side.device),
        mark: MARK,
        written_by: "unisono queue install",
        owner: format!("{side} has"),
        install: format!("unisono queue install POLICY {}", side.options()),
    })
}

fn unit_name(side: &LinkSide) -> Result<String, BadDeviceName> {
    let device = side.device.as_str();
    let is_part = |name: char| !name.is_whitespace() && !name.is_control() && !matches!(name, '/' | ':');
    if device.is_empty()
        || device.len() >= MAX_NAME
        || matches!(device, "." | "..")
        || !device.chars().all(is_part)
    {
        return Err(BadDeviceName(device.to_owned()));
    }
    // an escaped name has no `-`, so the name of no other device ends like this suffix
    let direction = if side.direction == TrafficDirection::In { "-in" } else { "" };
    Ok(format!("unisono-queue-{}{direction}.service", escaped(device)))
}

/// Returns the name of the unit that systemd makes for a network device.
fn device_unit(device: &str) -> String {
    format!("sys-subsystem-net-devices-{}.device", escaped(device))
}

/// Escapes a text as systemd-escape(1) does inside a name.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use unisono_linux::unit_file::UnitFileError;

    fn device_unit_of(device: &str, policy: &str) -> DeviceUnit {
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
        let text = device_unit_of("eth0", nasty).text();
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
        let text = DeviceUnit { side, ..device_unit_of("eth0", "/a") }.text();
        assert!(text.contains("queue clear --dev \"eth0\" --direction in\n"), "{text}");
    }

    #[test]
    fn what_is_no_device_makes_no_file() {
        for device in ["", ".", "..", "a/b", "../x", "a b", "sixteen-letters-", "a\nb", "a:b"] {
            assert!(matches!(unit_name(&LinkSide::out(device)), Err(BadDeviceName(_))), "{device:?}");
        }
    }

    #[test]
    fn systemd_finds_nothing_wrong_with_a_unit() {
        let root = tempfile::tempdir().expect("there is room");
        let made = device_unit_of("br-lan.7", "/etc/my policy/50% $x.toml");
        let file = unit(&made.side).expect("a device may be called so");
        let path = file.write(root.path(), &made.text()).expect("there is room");
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
        let file = unit(&LinkSide::out("eth0")).expect("a device may be called so");
        let write = |policy| file.write(root.path(), &device_unit_of("eth0", policy).text());
        let path = write("/a").expect("there is room");
        write("/b").expect("it is ours");
        assert!(fs::read_to_string(&path).expect("it is there").contains("\"/b\""));
        let wants = path.with_file_name("sys-subsystem-net-devices-eth0.device.wants");
        let link = fs::read_link(wants.join("unisono-queue-eth0.service")).expect("it is enabled");
        assert_eq!(link, Path::new("/etc/systemd/system/unisono-queue-eth0.service"));
        file.remove(root.path()).expect("it is ours");
        assert!(!path.exists() && !wants.exists());
        let missing = file.remove(root.path()).expect_err("it is gone").to_string();
        assert!(
            missing.starts_with("eth0 has no unit") && missing.ends_with("POLICY --dev eth0"),
            "{missing}"
        );
        fs::write(&path, "[Unit]\n").expect("there is room");
        assert!(matches!(write("/a"), Err(UnitFileError::Theirs { .. })));
        assert!(matches!(file.remove(root.path()), Err(UnitFileError::Theirs { .. })));
    }
}
