//! What a broker has done, for those who ask.

use super::Broker;
use crate::account::{ClassStatistics, Statistics};

impl Broker {
    /// What it has done.
    #[must_use]
    pub fn statistics(&self, now: u64) -> Statistics {
        let hierarchy = self.scheduler.hierarchy();
        let classes = self.accounts.iter().map(|(id, account)| ClassStatistics {
            name: hierarchy.class(*id).name.clone(),
            share: hierarchy.share(*id),
            messages: account.messages,
            bytes: account.bytes,
            dropped: account.dropped,
            lost: account.lost,
            late: account.late,
            waiting: self.scheduler.waiting(*id).packets,
            delay_us: account.delay.distribution(1e3),
        });
        Statistics {
            at_ns: now,
            clients: self.clients.len() as u64,
            channels: self.channels.len() as u64,
            sent_away: self.sent_away,
            classes: classes.collect(),
        }
    }

    /// The same as a text that fits into a packet; of a great many classes without their delays.
    pub(super) fn statistics_as_json(&self, now: u64) -> String {
        const LONGEST: usize = 64 << 10;
        let mut statistics = self.statistics(now);
        let text = |statistics: &Statistics| {
            serde_json::to_string(statistics).expect("has a text because it is numbers and names")
        };
        let whole = text(&statistics);
        if whole.len() <= LONGEST {
            return whole;
        }
        for class in &mut statistics.classes {
            class.delay_us = None;
        }
        while text(&statistics).len() > LONGEST {
            statistics.classes.truncate(statistics.classes.len() / 2);
        }
        text(&statistics)
    }
}
