//! A rank: a process with its process group and its two pipes.

use crate::error::Error;
use crate::hosts::HostRanks;
use crate::lines::{LinePrefixer, Prefix};
use crate::order::{HelperOrder, JobPart, RemotePart, WindowTable};
use crate::remote::Remote;
use crate::standard_input::{self, InputSource};
use crate::termination::ExitOutcome;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_linux::affinity::{self, CpuSet};
use unisono_linux::parent_death::end_with_starter;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::{self, Family, Signal, readable};
use unisono_linux::process_group::ProcessGroup;
use unisono_rma::{STATS, environment};

#[derive(Debug)]
pub(crate) struct Assignment<'a> {
    pub(crate) rank: usize,
    pub(crate) part: &'a JobPart,
    /// The number of ranks that this process starts.
    pub(crate) count: usize,
    pub(crate) cpu: Option<usize>,
    pub(crate) prefix: Prefix,
    pub(crate) windows: WindowTable,
    /// The processors that the launcher itself may use.
    pub(crate) allowed: &'a CpuSet,
}

#[derive(Debug)]
pub(crate) struct RankProcess {
    pub(crate) child: Child,
    pub(crate) descriptor: PinnedProcess,
    group: ProcessGroup,
    pub(crate) cpu: Option<usize>,
    pub(crate) started: Instant,
    /// How the process ended and after what time, once it has ended.
    pub(crate) ended: Option<(ExitOutcome, Duration)>,
    /// The pipes of standard output and standard error.
    pub(crate) streams: [Stream; 2],
    /// The remote host, if this process is the launch command of a host and not a rank.
    pub(crate) remote: Option<Remote>,
}

impl RankProcess {
    /// Starts a rank. The calling thread has to outlive the rank.
    pub(crate) fn start(command: &[OsString], order: &Assignment<'_>) -> Result<Self, Error> {
        let Assignment { rank, part, count, cpu, prefix, windows, allowed } = *order;
        let size = part.size;
        let [program, arguments @ ..] = command else {
            return Err(Error::Input("no program was given; write: unisono run -n 4 ./program".into()));
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env(environment::RANK, rank.to_string())
            .env(environment::SIZE, size.to_string())
            .env(environment::KEY, &part.key)
            .stdin(standard_input::stdio_for(
                rank,
                if part.remote.is_some() { InputSource::Launcher } else { InputSource::Own },
            ))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if windows == WindowTable::Printed {
            command.env(STATS, "1");
        }
        if let Some(RemotePart { root, .. }) = &part.remote {
            let here = format!("{}-{}", part.first, part.first + count - 1);
            command.env(environment::ROOT, root).env(environment::HERE, here);
        }
        end_with_starter(&mut command);
        let started = Instant::now();
        let bound = || format!("bind rank {rank} to processor {}", cpu.unwrap_or(0));
        // the affinity is set before the start, because a child inherits it: so the rank runs on its
        // processor from its first instruction
        if let Some(cpu) = cpu {
            affinity::restrict_own(&CpuSet::single(cpu)).map_err(Error::system(bound()))?;
        }
        let child = process::start(&mut command, Vec::new(), Family::OwnGroup);
        if cpu.is_some() {
            affinity::restrict_own(allowed).map_err(Error::system(bound()))?;
        }
        let mut child =
            child.map_err(Error::start(Path::new(program), format!("start rank {rank} of {size}")))?;
        if part.remote.is_none()
            && let Some(stdin) = child.stdin.take()
        {
            standard_input::pass_on(stdin)?;
        }
        let lines = || Some(LinePrefixer::new(prefix, rank, size));
        Self::watch(child, started, cpu, [lines(), lines()])
    }

    /// Starts the launch command of a host.
    pub(crate) fn launch(words: &[OsString], host: &HostRanks, order: &HelperOrder) -> Result<Self, Error> {
        let [program, arguments @ ..] = words else {
            return Err(Error::Input("the launch command is empty".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        end_with_starter(&mut command);
        let started = Instant::now();
        let child = process::start(&mut command, Vec::new(), Family::OwnGroup);
        let mut child =
            child.map_err(Error::start(Path::new(program), "start the launch command".to_owned()))?;
        let to = child.stdin.take();
        let mut process =
            Self::watch(child, started, None, [None, Some(LinePrefixer::new(Prefix::None, 0, 1))])?;
        if let Some(to) = to {
            let typed: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            process.remote = Some(Remote::new(host, typed.join(" "), to, order)?);
        }
        Ok(process)
    }

    fn watch(
        mut child: Child,
        started: Instant,
        cpu: Option<usize>,
        lines: [Option<LinePrefixer>; 2],
    ) -> Result<Self, Error> {
        let held = || Error::system(format!("hold on to process {}", child.id()));
        let descriptor = PinnedProcess::of_child(&child).map_err(held())?;
        let group = ProcessGroup::of_child(&child).map_err(held())?;
        let [first, second] = lines;
        let stream =
            |pipe: Option<OwnedFd>, lines: Option<LinePrefixer>| Stream { pipe: pipe.map(File::from), lines };
        let streams = [
            stream(child.stdout.take().map(OwnedFd::from), first),
            stream(child.stderr.take().map(OwnedFd::from), second),
        ];
        Ok(Self { child, descriptor, group, cpu, started, ended: None, streams, remote: None })
    }

    /// Sends a signal to the rank and its descendants, or to all ranks of the host. It is not an error if
    /// they have ended.
    pub(crate) fn relay_signal(&self, signal: Signal) {
        match &self.remote {
            Some(remote) => remote.send_signal(signal),
            None => self.signal(signal),
        }
    }

    /// Sends a signal to the process (a rank or a launch command) and to its descendants on this host.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = self.group.send_signal(signal); // all of the group may belong to another user now
    }

    /// Waits for the process if it has ended by now, and returns how it ended.
    pub(crate) fn collect(&mut self) -> io::Result<Option<ExitOutcome>> {
        if self.ended.is_some() {
            return Ok(None);
        }
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        let how = ExitOutcome::from_status(status);
        let how = self.remote.as_ref().map_or(how, |remote| remote.outcome(how));
        self.ended = Some((how, self.started.elapsed()));
        Ok(Some(how))
    }
}

/// A pipe to which a rank writes.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The pipe; `None` at its end, or when the reader of the output is gone.
    pub(crate) pipe: Option<File>,
    /// Divides the output into lines. `None`: bytes are passed on as they come.
    lines: Option<LinePrefixer>,
}

impl Stream {
    /// Reads once, without blocking: the bytes that poll(2) reported may already be gone.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.is_readable() {
            return out;
        }
        let Some(pipe) = &mut self.pipe else { return out };
        match pipe.read(buffer) {
            Ok(count) if count > 0 => match &mut self.lines {
                Some(lines) => lines.feed(&buffer[..count], &mut out),
                None => out.extend_from_slice(&buffer[..count]),
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => {
                self.pipe = None;
                self.finish(&mut out);
            }
        }
        out
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(lines) = &mut self.lines {
            lines.finish(out);
        }
    }

    fn is_readable(&self) -> bool {
        let ready = |pipe: &File| readable(&[pipe.as_fd()], Some(Duration::ZERO));
        self.pipe.as_ref().is_some_and(|pipe| ready(pipe).is_ok_and(|ready| ready == [true]))
    }

    /// Reads the remaining bytes of the pipe and closes it, without waiting for other processes that hold its
    /// write end.
    pub(crate) fn drain(&mut self, buffer: &mut [u8]) -> Vec<u8> {
        let mut out = self.take_what_is_there(buffer);
        self.pipe = None;
        self.finish(&mut out);
        out
    }

    /// Reads the bytes that are in the pipe now. If other processes keep writing to it, reads up to a limit.
    pub(crate) fn take_what_is_there(&mut self, buffer: &mut [u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..MAX_READS {
            if !self.is_readable() {
                break;
            }
            out.append(&mut self.read(buffer));
        }
        out
    }
}

/// The number of reads, each of the buffer's size, that empty the largest pipe that an ordinary user can have
/// (1 MiB).
const MAX_READS: usize = 16;
