//! Sends the events that follow one another to the same program, without a task and a reading of the clock
//! for each.

use super::Server;
use super::turn::{DeliveryTurn, STEP_BYTES};
use unisono_linux::clock;

impl Server {
    /// Sends further events after a delivery, as long as they are for the same program and small. Returns
    /// their number.
    pub(super) fn deliver_run(&mut self, turn: &mut DeliveryTurn) -> usize {
        self.work(); // the first event, which may be large, goes before them
        let Some(mut run) = self.broker.begin_run() else { return 0 };
        let Some(client) = self.clients.get_mut(&run.client) else { return 0 };
        let now = clock::now();
        let (most, mut delivered, mut bytes, mut sent) = (turn.longest_run(), 0, 0, Ok(()));
        while delivered < most
            && bytes < STEP_BYTES
            && sent.is_ok()
            && let Some((head, body)) = self.broker.next_of_run(now, &mut run)
        {
            delivered += 1;
            bytes += body.as_payload().length();
            sent = client.send(&mut self.broker, run.client, (head, Some(body)));
        }
        if delivered > 0 {
            turn.spend_run(delivered);
            self.note_sent(run.client, &sent);
        }
        delivered
    }
}
