//! Runs a command as a systemd service: notifies systemd that the service is ready and alive, installs units
//! and calls systemctl. Reference: sd_notify(3), systemd.service(5) on `WatchdogSec`.

use crate::exit::Failure;
use anyhow::Context;
use sd_notify::NotifyState;
use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use unisono_enforce::metrics::{ScrapeListener, serve_scrapes};
use unisono_linux::interrupt;
use unisono_linux::unit_file::{UnitFile, UnitFileError};

/// Notifies systemd of this service's state. Without systemd it does nothing.
pub(crate) struct ServiceNotices {
    /// The socket of the service manager. It is connected when the service starts, because a broker that has
    /// become another user may not be able to reach it any more.
    manager: Option<UnixDatagram>,
    /// Interval of the watchdog's notifications, if there is a watchdog.
    watchdog_interval: Option<Duration>,
    last_notified: Cell<Instant>,
}

impl ServiceNotices {
    /// Connects to the service manager, if there is one; sends nothing yet.
    pub(crate) fn connect() -> Self {
        // half of the time, as sd_watchdog_enabled(3) asks
        let watchdog_interval = sd_notify::watchdog_enabled().map(|timeout| timeout / 2);
        let manager = std::env::var_os("NOTIFY_SOCKET").and_then(|address| connect_manager(&address).ok());
        Self { manager, watchdog_interval, last_notified: Cell::new(Instant::now()) }
    }

    /// Announces that the service can be used.
    pub(crate) fn ready(&self) {
        self.notify(&NotifyState::Ready);
        // a manager that reads nothing for a while misses notices, and does not stop the service
        if let Some(manager) = &self.manager {
            let _ = manager.set_nonblocking(true);
        }
    }

    /// Announces that the service is alive. It may be called in every iteration of the main loop; it sends
    /// only once per interval.
    pub(crate) fn alive(&self) {
        if self
            .watchdog_interval
            .is_some_and(|watchdog_interval| self.last_notified.get().elapsed() >= watchdog_interval)
        {
            self.last_notified.set(Instant::now());
            self.notify(&NotifyState::Watchdog);
        }
    }

    fn notify(&self, state: &NotifyState<'_>) {
        if let Some(manager) = &self.manager {
            // a service manager that receives no notification handles that by its own rules
            let _ = manager.send(format!("{state}\n").as_bytes());
        }
    }
}

impl Drop for ServiceNotices {
    fn drop(&mut self) {
        self.notify(&NotifyState::Stopping);
    }
}

/// Connects to a socket by its path, or by its abstract name if the name begins with `@`.
fn connect_manager(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let manager = UnixDatagram::unbound()?;
    manager.connect_addr(&address)?;
    Ok(manager)
}

/// Writes a unit and, unless it is for another host, starts it. Returns its path.
pub(crate) fn install(unit: &UnitFile, text: &str, root: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = unit.write(root_of(root, NO_SYSTEMD_TO_START)?, text).map_err(refused)?;
    if root.is_none() {
        systemctl(&["daemon-reload"])?;
        systemctl(&["restart", &unit.name])?;
    }
    Ok(path)
}

/// Removes a unit and, unless it is of another host, first stops it. Returns its former path.
pub(crate) fn uninstall(unit: &UnitFile, root: Option<&Path>) -> anyhow::Result<PathBuf> {
    let directory = root_of(root, NO_SYSTEMD_TO_STOP)?;
    unit.installed(directory).map_err(refused)?;
    if root.is_none() {
        systemctl(&["stop", &unit.name])?;
    }
    let path = unit.remove(directory).map_err(refused)?;
    if root.is_none() {
        systemctl(&["daemon-reload"])?;
    }
    Ok(path)
}

fn refused(error: UnitFileError) -> anyhow::Error {
    match error {
        UnitFileError::File { .. } => error.into(),
        other => Failure::Usage(other.to_string()).into(),
    }
}

/// Answers scrapes of monitoring programs at an address or socket until a signal ends the command.
pub(crate) fn answer_scrapes(
    place: &str,
    answer: impl Fn() -> Result<String, String> + Sync,
) -> anyhow::Result<ExitCode> {
    let listener = listen_for_scrapes(place)?;
    interrupt::catch_for_server()?;
    eprintln!("unisono: answering at {listener}; Ctrl-C ends it");
    serve_scrapes(&listener, answer, || interrupt::caught().is_some())?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn listen_for_scrapes(place: &str) -> anyhow::Result<ScrapeListener> {
    ScrapeListener::bind(place).map_err(|error| {
        let problem = format!(
            "cannot listen at {place}: {error}; name an ADDRESS:PORT of this host that is free, or a path"
        );
        Failure::Usage(problem).into()
    })
}

/// This directory exists if the host was started by systemd.
const SYSTEMD_DIRECTORY: &str = "/run/systemd/system";

const NO_SYSTEMD_TO_START: &str =
    "this host was not started by systemd; --print shows the unit, and --root DIR writes it for another host";
const NO_SYSTEMD_TO_STOP: &str =
    "this host was not started by systemd, so no unit runs here; --root DIR removes the unit of another host";

/// Returns the root directory for units: the given directory, or this host's root if systemd runs the host;
/// otherwise fails with `without_systemd`.
fn root_of<'a>(root: Option<&'a Path>, without_systemd: &str) -> anyhow::Result<&'a Path> {
    if root.is_none() && !Path::new(SYSTEMD_DIRECTORY).exists() {
        return Err(Failure::Host(without_systemd.to_owned()).into());
    }
    Ok(root.unwrap_or(Path::new("/")))
}

pub(crate) fn utf8(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::Usage(format!("{} is not UTF-8, so a unit cannot name it; rename it", path.display())).into()
    })
}

fn systemctl(arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("systemctl")
        .args(arguments)
        .status()
        .context("cannot start systemctl; --print shows the unit, to install it by hand")?;
    anyhow::ensure!(
        status.success(),
        "systemctl {} failed; see: journalctl -xe, systemctl status {}",
        arguments.join(" "),
        arguments.last().unwrap_or(&"")
    );
    Ok(())
}
