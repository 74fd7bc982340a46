//! The hand-over of the log to the process that serves after this broker, as the broker's state machine sees
//! it. `server/take_over.rs` passes the sockets.

use super::super::Broker;
use crate::log::LogError;
use crate::permissions::RefusalKind;
use crate::task::{ClientId, Task};
use unisono_events_wire::{Frame, TakeOverReport, TakeOverStep};

impl Broker {
    /// Handles a step of a process that is to serve after this broker.
    pub(in crate::broker) fn ask_to_take_over(&mut self, client: ClientId, step: TakeOverStep) {
        let Some(connected) = self.clients.get(&client) else { return };
        if self.is_operator(connected.peer) {
            return self.tasks.push_back(Task::TakeOver { client, step });
        }
        let why = format!(
            "only root and the broker's own user, at the path of its socket, may take over; {} may not",
            connected.who
        );
        self.take_over_refused(client, why);
    }

    /// Answers a step that was carried out; `sockets` were passed before.
    pub fn taken_over(&mut self, client: ClientId, sockets: usize) {
        self.audit_take_over(client, None);
        let sockets = u32::try_from(sockets).unwrap_or(u32::MAX);
        let log = self.durable.as_ref().map(|durable| durable.log.absolute_path());
        self.answer(client, &Frame::TakenOver(TakeOverReport { refused: None, sockets, log }));
    }

    /// Answers a step that was not carried out: the broker serves on.
    pub fn take_over_refused(&mut self, client: ClientId, why: String) {
        self.access.count(RefusalKind::TakeOver);
        self.audit_take_over(client, Some(&why));
        self.tasks.push_back(Task::Note { text: format!("the take-over is refused: {why}") });
        let report = TakeOverReport { refused: Some(why), ..TakeOverReport::default() };
        self.answer(client, &Frame::TakenOver(report));
    }

    /// Saves the floors that have risen, and lets another process open the log. All syncs must have ended.
    /// Nothing may be given to the broker before [`lock_log_again`](Self::lock_log_again).
    ///
    /// # Errors
    /// The log stays locked.
    pub fn unlock_log(&mut self) -> Result<(), LogError> {
        self.set_idle();
        self.durable.as_mut().map_or(Ok(()), |durable| durable.log.unlock())
    }

    /// Takes the log back, after the process that was to serve has failed.
    ///
    /// # Errors
    /// That process has written to the log: this broker's memory of the log is out of date.
    pub fn lock_log_again(&mut self) -> Result<(), LogError> {
        self.durable.as_mut().map_or(Ok(()), |durable| durable.log.lock_again())
    }
}
