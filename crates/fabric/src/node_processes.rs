//! Manages the processes of the nodes for the deployment: starts them, sends them orders, receives their
//! reports, and detects that a process has ended.

use crate::error::Error;
use crate::fabric::Fabric;
use crate::home_processors::HomeProcessors;
use crate::orders::{NodeOrder, NodeReport};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use unisono_btin::NodeId;
use unisono_linux::affinity::Tid;
use unisono_linux::fork::{ChildEnd, ForkedChild, fork};
use unisono_linux::process::readable;

struct NodeProcess {
    node: NodeId,
    child: ForkedChild,
    line: UnixStream,
    /// The bytes of a report whose end has not arrived yet.
    partial: Vec<u8>,
    gone: bool,
}

pub(crate) struct NodeProcesses(Vec<NodeProcess>);

#[derive(Debug)]
pub(crate) enum NodeNews {
    Report(NodeReport),
    Ended(ChildEnd),
}

impl NodeProcesses {
    /// Starts a process for each node, which runs `serve` in the node's namespace with the other end of the
    /// node's line.
    pub(crate) fn start(
        nodes: &[NodeId],
        fabric: &Fabric,
        homes: &HomeProcessors,
        serve: impl Fn(NodeId, UnixStream) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut processes = Self(Vec::with_capacity(nodes.len()));
        for id in nodes {
            let (line, orders) = UnixStream::pair().map_err(Error::io("make a line to a node"))?;
            let body = || {
                homes.pin(*id);
                let served = fabric
                    .node(*id)
                    .enter()
                    .map_err(Error::io("enter the node"))
                    .and_then(|()| serve(*id, orders));
                match served {
                    Ok(()) => 0,
                    Err(error) => {
                        eprintln!("unisono: node {}: {error}", id.0);
                        1
                    }
                }
            };
            let child = fork(body).map_err(Error::io("start a node's process"))?;
            line.set_nonblocking(true).map_err(Error::io("prepare a line to a node"))?;
            processes.0.push(NodeProcess { node: *id, child, line, partial: Vec::new(), gone: false });
        }
        Ok(processes)
    }

    /// Sends an order to the nodes for which `to` returns true. Returns the number of these nodes.
    pub(crate) fn send_order(
        &mut self,
        order: &NodeOrder,
        to: impl Fn(NodeId) -> bool,
    ) -> Result<usize, Error> {
        let mut line = serde_json::to_vec(order).expect("serializes because it holds numbers and text alone");
        line.push(b'\n');
        let mut sent = 0;
        for process in self.0.iter_mut().filter(|process| !process.gone && to(process.node)) {
            match process.line.write_all(&line) {
                Ok(()) => sent += 1,
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {} // `receive_reports` will report it
                Err(error) => return Err(Error::io(format!("talk to node {}", process.node.0))(error)),
            }
        }
        Ok(sent)
    }

    /// Receives the reports of nodes. Waits for the first report, but no longer than `timeout`, and only
    /// until `also` is readable.
    pub(crate) fn receive_reports(
        &mut self,
        timeout: Duration,
        also: BorrowedFd<'_>,
    ) -> Result<Vec<(NodeId, NodeNews)>, Error> {
        let present: Vec<usize> = (0..self.0.len()).filter(|at| !self.0[*at].gone).collect();
        let lines = present.iter().map(|at| self.0[*at].line.as_fd());
        let lines: Vec<_> = lines.chain([also]).collect();
        let ready = readable(&lines, Some(timeout)).map_err(Error::io("wait for the nodes"))?;
        let mut received = Vec::new();
        for (at, _) in present.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            self.0[at].listen(&mut received)?;
        }
        Ok(received)
    }

    /// Returns the running process of a node, if there is one.
    pub(crate) fn process(&self, node: NodeId) -> Option<Tid> {
        self.0
            .iter()
            .find(|process| process.node == node && !process.gone)
            .map(|process| process.child.process())
    }
}

impl NodeProcess {
    fn listen(&mut self, received: &mut Vec<(NodeId, NodeNews)>) -> Result<(), Error> {
        let mut bytes = [0; 64 * 1024];
        loop {
            let read = match self.line.read(&mut bytes) {
                // the process ended with an order unread
                Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(0),
                read => read,
            };
            match read {
                Ok(0) => {
                    self.gone = true;
                    let ended = self.child.kill(); // the process has closed its socket and receives no more orders
                    received.push((self.node, NodeNews::Ended(ended)));
                    return Ok(());
                }
                Ok(length) => self.partial.extend(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(Error::io(format!("listen to node {}", self.node.0))(error)),
            }
        }
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let report = serde_json::from_slice(&line).map_err(|error| {
                Error::Barrier(format!("node {} is not understood: {error}", self.node.0))
            })?;
            received.push((self.node, NodeNews::Report(report)));
        }
        Ok(())
    }
}

impl Drop for NodeProcesses {
    fn drop(&mut self) {
        // all are signalled before the drop waits for any, so that they end at the same time
        for process in &mut self.0 {
            process.child.signal_to_end();
        }
    }
}
