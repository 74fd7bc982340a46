//! Busy loops beside a measurement: the load of other users.
//!
//! Each loop is a process of its own, because the scheduler shares a processor equally among the processes of
//! a session. By default each is placed on one processor, in turn. They end when [`Competitors`] is dropped,
//! and the kernel ends them if their parent is killed.
//!
//! Start them from a thread that lives at least as long (see [`unisono_linux::parent_death`]).

use super::Error;
use super::options::Pin;
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[derive(Debug)]
pub struct Competitors {
    children: KilledChildren,
}

/// Child processes; killed when dropped.
#[derive(Debug)]
pub(crate) struct KilledChildren(pub(crate) Vec<Child>);

/// The maximum number of loops. With more loops a study would measure the scheduler's queues, not a competing
/// user.
pub(crate) const MAX_COMPETITORS: usize = 1024;

impl Competitors {
    /// Starts `unisono workload busy-loop` `count` times; `unisono` is the path of the program.
    pub fn start(unisono: &Path, count: usize, pin: &Pin) -> Result<Self, Error> {
        if count > MAX_COMPETITORS {
            return Err(Error::Options(format!("{count} competitors are more than {MAX_COMPETITORS}")));
        }
        let placement = pin.placement()?;
        let mut competitors = Self { children: KilledChildren(Vec::new()) };
        for index in 0..count {
            let mut command = Command::new(unisono);
            command.args(["workload", "busy-loop", "--parent", &std::process::id().to_string()]);
            if !placement.is_empty() {
                command.args(["--cpu", &placement[index % placement.len()].to_string()]);
            }
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            competitors.children.0.push(child.map_err(|error| {
                Error::Options(format!("cannot start competitor {index} ({}): {error}", unisono.display()))
            })?);
        }
        Ok(competitors)
    }

    pub fn children(&self) -> &[Child] {
        &self.children.0
    }
}

impl Drop for KilledChildren {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // killing a process that has ended does no harm, and `drop` cannot report an error
            child.kill().ok();
            child.wait().ok();
        }
    }
}
