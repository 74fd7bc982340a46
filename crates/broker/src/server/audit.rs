//! Writes a server's audit entries to a file.

use super::Server;
use crate::audit::{AuditError, AuditFile};
use std::fmt;
use unisono_linux::clock;

/// The audit file, and the function to call when a write fails.
pub(super) struct AuditSink {
    file: AuditFile,
    failed: Box<dyn Fn(&AuditError) + Send>,
    /// Whether the last write failed: only the first failure in a row is reported.
    is_failing: bool,
}

impl fmt::Debug for AuditSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditSink").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Server {
    /// Appends the entries of a broker with a trail ([`Broker::with_audit`](crate::Broker::with_audit)) to
    /// this file while it serves. `failed` is called for the first failed write of each row of failures; the
    /// broker continues, and counts the lost entries.
    pub fn audit_to(&mut self, file: AuditFile, failed: Box<dyn Fn(&AuditError) + Send>) {
        self.audit = Some(AuditSink { file, failed, is_failing: false });
    }

    /// Writes the entries made since the last turn.
    pub(super) fn write_audit(&mut self) {
        let Some(sink) = &mut self.audit else { return };
        let entries = self.broker.audit_entries();
        if entries.is_empty() {
            return;
        }
        match sink.file.append(clock::now(), &entries) {
            Ok(()) => sink.is_failing = false,
            Err(error) => {
                self.broker.count_lost_audit_entries(entries.len());
                if !std::mem::replace(&mut sink.is_failing, true) {
                    (sink.failed)(&error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Broker;
    use crate::limits::Limits;
    use crate::task::ClientId;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use unisono_events_wire::ChannelWait;
    use unisono_events_wire::transport::TransportPeer;
    use unisono_fairqueue::{ClassSpec, Hierarchy};

    #[test]
    fn entries_that_cannot_be_written_are_counted_and_the_first_is_told() {
        let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
        let broker = Broker::new(tree.expect("it is sound"), Limits::default()).with_audit();
        let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors are left");
        let reports = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reports);
        let failed = move |error: &AuditError| {
            assert!(matches!(error, AuditError::Write { .. }), "{error}");
            counter.fetch_add(1, Ordering::Relaxed);
        };
        server.audit_to(AuditFile::full(), Box::new(failed));
        for number in 0..3 {
            let client = ClientId(number);
            assert!(server.broker.connected(clock::now(), client, TransportPeer::User(number)));
            server.broker.gone(clock::now(), client);
            server.write_audit();
        }
        assert_eq!(reports.load(Ordering::Relaxed), 1);
        assert_eq!(server.broker.statistics(clock::now()).audit_lost, 3);
    }
}
