//! What a broker has done, for those who ask.

use super::{Addressee, Broker};
use crate::account::{ClassStatistics, ConsumerStatistics, Statistics};
use unisono_eventchannel::ConsumerId;
use unisono_linux::clock::Nanos;

impl Broker {
    /// What it has done.
    #[must_use]
    pub fn statistics(&self, now: Nanos) -> Statistics {
        let hierarchy = self.channel.hierarchy();
        let waiting = |class| {
            let theirs = self.paths.values().filter(|path| path.class == class);
            theirs.map(|path| self.channel.waiting(path.consumer) as u64).sum()
        };
        let classes = self.accounts.iter().map(|(id, account)| ClassStatistics {
            name: hierarchy.class(*id).name.clone(),
            share: hierarchy.share(*id),
            messages: account.messages,
            bytes: account.bytes,
            lost: account.lost,
            late: account.late,
            waiting: waiting(*id),
            delay_us: account.delay.distribution(1e3),
        });
        let mut consumers: Vec<_> = self
            .addressees
            .iter()
            .filter_map(|(id, addressee)| match addressee {
                Addressee::Program { client, .. } => {
                    let connected = self.clients.get(client)?;
                    Some((*id, &*connected.name, connected.paused))
                }
                Addressee::Mqtt(session) => {
                    let (name, paused) = self.mqtt.standing(*session)?;
                    Some((*id, name, paused))
                }
                Addressee::Path(_) => None,
            })
            .collect();
        consumers.sort_unstable();
        Statistics {
            at_ns: now.0,
            clients: self.clients.len() as u64,
            paths: self.paths.len() as u64,
            direct: self.direct_links(),
            sent_away: self.sent_away,
            refused: self.refused,
            refusals: self.access.refusals(),
            classes: classes.collect(),
            log: self.log_statistics(),
            consumers: consumers
                .into_iter()
                .filter_map(|(id, name, paused)| self.of_consumer(id, name, paused))
                .collect(),
        }
    }

    fn of_consumer(&self, id: ConsumerId, name: &str, paused: bool) -> Option<ConsumerStatistics> {
        let counters = self.channel.counters(id)?;
        let topic_name = |topic| self.topic_name(topic).map_or_else(String::new, |name| name.to_string());
        Some(ConsumerStatistics {
            name: name.to_owned(),
            matched: counters.matched,
            delivered: counters.delivered,
            dropped_full: counters.dropped_full,
            dropped_late: counters.dropped_late,
            missed: counters.missed,
            missed_by_topic: self
                .channel
                .misses(id)
                .map(|(topic, missed)| (topic_name(topic), missed))
                .collect(),
            repeated: counters.repeated,
            blocked: counters.blocked,
            waiting: self.channel.waiting(id) as u64,
            paused,
        })
    }

    /// The same as a text that fits into a frame; of a great many consumers the first ones.
    pub(super) fn statistics_as_json(&self, now: Nanos) -> String {
        const LONGEST: usize = 192 << 10;
        let mut statistics = self.statistics(now);
        let mut by_topic = true;
        loop {
            let text =
                serde_json::to_string(&statistics).expect("has a text because it is numbers and names");
            if text.len() <= LONGEST {
                return text;
            }
            if std::mem::take(&mut by_topic) {
                // the sum is told all the same
                statistics.consumers.iter_mut().for_each(|consumer| consumer.missed_by_topic.clear());
                continue;
            }
            statistics.consumers.truncate(statistics.consumers.len() / 2);
            if statistics.consumers.is_empty() {
                statistics.classes.truncate(statistics.classes.len() / 2);
            }
        }
    }
}
