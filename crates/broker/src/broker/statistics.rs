//! Statistics of a broker, as each client may see them.

use super::{Addressee, Broker};
use crate::log::OwnedKind;
use crate::name_owner::NameOwner;
use crate::permissions::ClientGrant;
use crate::task::ClientId;
use std::collections::BTreeMap;
use unisono_eventchannel::{ConsumerId, InboxAccount, InboxCounters, TopicId, shown_group};
use unisono_events_wire::shown;
use unisono_events_wire::{ClassStatistics, ConsumerStatistics, OTHERS, Statistics};
use unisono_linux::clock::Instant;

/// A client that asks for statistics, with the rule that limits its view.
#[derive(Clone, Copy, Debug)]
struct StatisticsViewer<'a> {
    owner: &'a NameOwner,
    grant: &'a ClientGrant,
}

/// Topics with a counter of their own; the others share one.
const MAX_TOPICS: usize = 64;

impl StatisticsViewer<'_> {
    fn sees_topic(&self, name: &str) -> bool {
        self.grant.may_subscribe(name) || self.grant.may_publish(name)
    }
}

impl Broker {
    /// Returns the statistics since the broker began, unrestricted.
    pub fn statistics(&self, now: Instant) -> Statistics {
        self.statistics_seen_by(now, None)
    }

    /// Returns whether rules limit the actions and the view of each client.
    pub fn has_permissions(&self) -> bool {
        self.access.permissions.is_some()
    }

    /// Returns the view of a client, or `None` if it is unrestricted. With permissions root and the broker's
    /// own user see all; without them every client does.
    fn viewer(&self, client: ClientId) -> Option<StatisticsViewer<'_>> {
        let connected = self.clients.get(&client)?;
        let sees_all = self.access.permissions.is_none() || self.is_operator(connected.peer);
        (!sees_all).then(|| StatisticsViewer { owner: &connected.owner, grant: &connected.grant })
    }

    /// Returns the statistics in a viewer's view: its own consumers, and names of topics that it may publish
    /// or subscribe to.
    fn statistics_seen_by(&self, now: Instant, viewer: Option<StatisticsViewer<'_>>) -> Statistics {
        let hierarchy = self.channel.hierarchy();
        let waiting = |class| {
            let theirs = self.link.paths.values().filter(|path| path.class == class);
            theirs.map(|path| self.channel.waiting(path.consumer) as u64).sum()
        };
        let classes = self.link.accounts.iter().map(|(id, account)| ClassStatistics {
            name: hierarchy.class(*id).name.clone(),
            share: hierarchy.share(*id),
            messages: account.messages,
            bytes: account.bytes,
            lost: account.lost,
            late: account.late,
            waiting: waiting(*id),
            delay_us: account.delay_us(),
        });
        let mut accounts: Vec<_> =
            self.channel.inboxes().filter(|account| self.is_of_programs(account)).collect();
        accounts.sort_unstable_by_key(|account| account.inbox);
        let seen_topic = |name: String| match viewer.is_none_or(|viewer| viewer.sees_topic(&name)) {
            true => name,
            false => OTHERS.to_owned(),
        };
        let departed = self.channel.departed();
        let mut missed_by_topic: BTreeMap<String, u64> = BTreeMap::new();
        let all = accounts.iter().flat_map(|account| account.misses);
        let all = all.map(|(topic, missed)| (self.shown_topic(*topic), *missed));
        let gone = departed.misses.iter().map(|(name, missed)| (or_others(name), *missed));
        for (topic, missed) in all.chain(gone) {
            add(missed_by_topic.entry(seen_topic(topic)).or_default(), missed);
        }
        let mut published_by_topic = BTreeMap::new();
        for (name, published) in self.channel.published().filter(|(_, published)| *published > 0) {
            add(published_by_topic.entry(seen_topic(or_others(name))).or_default(), published);
        }
        let mut log = self.log_statistics();
        if let (Some(log), Some(viewer)) = (&mut log, viewer) {
            log.consumers.retain(|name, _| self.is_consumer_of(name, viewer));
        }
        accounts.retain(|account| viewer.is_none_or(|viewer| self.is_account_of(account, viewer)));
        let refusals = self.access.refusals();
        Statistics {
            at_ns: now.as_nanos(),
            clients: self.clients.len() as u64,
            paths: self.link.paths.len() as u64,
            direct: self.direct_links(),
            granted_bytes: self.granted(),
            kept_bytes: self.channel.kept() as u64,
            named_bytes: self.channel.named() as u64,
            held_bytes: self.held(),
            sent_away: self.counters.sent_away,
            refused: refusals.values().fold(0, |sum: u64, count| sum.saturating_add(*count)),
            refusals,
            audit_lost: self.audit.as_ref().map_or(0, |trail| trail.lost),
            classes: classes.collect(),
            log,
            consumers: accounts.iter().map(|account| self.of_consumer(account)).collect(),
            left_out: 0,
            departed: counted(&departed.counters),
            missed_by_topic: keep_greatest(missed_by_topic, MAX_TOPICS),
            published_by_topic: keep_greatest(published_by_topic, MAX_TOPICS),
        }
    }

    /// Returns whether a resumable consumer is the viewer's, or shared with it.
    fn is_consumer_of(&self, name: &str, viewer: StatisticsViewer<'_>) -> bool {
        match self.access.lists(name) {
            true => viewer.grant.names.contains(name),
            false => self.name_owner(OwnedKind::Consumer, name).as_ref() == Some(viewer.owner),
        }
    }

    /// Returns whether a consumer of an inbox is the viewer's; for a group without consumers, whether the
    /// group is.
    fn is_account_of(&self, account: &InboxAccount<'_>, viewer: StatisticsViewer<'_>) -> bool {
        let owner = |consumer: &ConsumerId| match self.addressees.by_consumer.get(consumer)? {
            Addressee::Program { client, .. } => self.clients.get(client).map(|client| &client.owner),
            Addressee::Mqtt(session) => self.mqtt.owner(*session).map(|(owner, _)| owner),
            Addressee::Path(_) => None,
        };
        account.members.iter().any(|member| owner(member) == Some(viewer.owner))
            || account.members.is_empty()
                && account.group.is_some_and(|group| self.names.is_of(group, viewer.owner))
    }

    fn is_of_programs(&self, account: &InboxAccount<'_>) -> bool {
        let is_path = |consumer: &ConsumerId| {
            matches!(self.addressees.by_consumer.get(consumer), Some(Addressee::Path(_)))
        };
        !account.members.iter().any(is_path)
    }

    fn shown_topic(&self, topic: TopicId) -> String {
        self.topic_name(topic).map_or_else(|| OTHERS.to_owned(), |name| or_others(name))
    }

    /// Returns the name of a consumer's program, and whether it is paused.
    fn program(&self, consumer: ConsumerId) -> Option<(String, bool)> {
        match self.addressees.by_consumer.get(&consumer)? {
            Addressee::Program { client, .. } => {
                let connected = self.clients.get(client)?;
                Some((connected.name.to_string(), connected.paused))
            }
            Addressee::Mqtt(session) => {
                let (name, paused) = self.mqtt.standing(*session)?;
                Some((shown(name), paused))
            }
            Addressee::Path(_) => None,
        }
    }

    fn of_consumer(&self, account: &InboxAccount<'_>) -> ConsumerStatistics {
        /// Programs of a group listed by name; more do not fit into a line of a table.
        const MAX_NAMES: usize = 16;
        let programs: Vec<_> = account.members.iter().filter_map(|member| self.program(*member)).collect();
        let misses = account.misses.iter().map(|(topic, missed)| (self.shown_topic(*topic), *missed));
        let mut missed_by_topic = BTreeMap::new();
        for (topic, missed) in misses {
            add(missed_by_topic.entry(topic).or_default(), missed);
        }
        let paused = !programs.is_empty() && programs.iter().all(|(_, paused)| *paused);
        let mut names = programs.into_iter().map(|(name, _)| name);
        let (name, programs) = match account.group {
            Some(group) => (shown(shown_group(group)), Some(names.take(MAX_NAMES).collect())),
            None => (names.next().unwrap_or_default(), None),
        };
        ConsumerStatistics {
            name,
            programs,
            class: self.channel.hierarchy().class(account.class).name.clone(),
            members: account.members.len() as u64,
            missed_by_topic: keep_greatest(missed_by_topic, 32),
            waiting: account.waiting as u64,
            paused,
            ..counted(&account.counters)
        }
    }

    /// Returns the client's view of the statistics as a text that fits into a frame; with very many
    /// consumers, it has only the first ones. Also returns the number of steps that this took: one for each
    /// consumer and each topic on which it missed deadlines, whether or not the client sees it, one for each
    /// path and each topic, and one for 64 bytes of text.
    pub(super) fn statistics_as_json(&self, now: Instant, client: ClientId) -> (String, usize) {
        /// The longest text, in bytes: a frame may have 256 KiB without its payload
        /// ([`Limits::largest_frame`]).
        const MAX_ANSWER_BYTES: usize = 192 << 10;
        let mut statistics = self.statistics_seen_by(now, self.viewer(client));
        let missed: usize = self.channel.inboxes().map(|account| 1 + account.misses.len()).sum();
        let mut work = missed + self.channel.departed().misses.len() + self.link.paths.len();
        work += self.channel.published().count();
        let mut by_topic = true;
        loop {
            let text =
                serde_json::to_string(&statistics).expect("has a text because it is numbers and names");
            work += text.len() / 64;
            if text.len() <= MAX_ANSWER_BYTES {
                return (text, work);
            }
            if std::mem::take(&mut by_topic) {
                // the consumer's sum of missed deadlines is still reported
                statistics.consumers.iter_mut().for_each(|consumer| consumer.missed_by_topic.clear());
                continue;
            }
            let shown = statistics.consumers.len() / 2;
            statistics.left_out += (statistics.consumers.len() - shown) as u64;
            statistics.consumers.truncate(shown);
            if statistics.consumers.is_empty() {
                statistics.classes.truncate(statistics.classes.len() / 2);
            }
        }
    }
}

fn counted(counters: &InboxCounters) -> ConsumerStatistics {
    ConsumerStatistics {
        matched: counters.matched,
        delivered: counters.delivered,
        dropped_full: counters.dropped_full,
        dropped_late: counters.dropped_late,
        dropped_large: counters.dropped_large,
        given_up: counters.given_up,
        lost: counters.lost(),
        missed: counters.missed,
        repeated: counters.repeated,
        blocked: counters.blocked,
        ..ConsumerStatistics::default()
    }
}

/// Adds to a counter, up to its largest value: programs report counts of any size, so a sum could overflow.
fn add(counter: &mut u64, more: u64) {
    *counter = counter.saturating_add(more);
}

fn or_others(name: &str) -> String {
    if name.is_empty() { OTHERS.to_owned() } else { name.to_owned() }
}

/// Keeps the greatest counters; the others are added up into one.
fn keep_greatest(counters: BTreeMap<String, u64>, most: usize) -> BTreeMap<String, u64> {
    let mut sorted: Vec<_> = counters.into_iter().collect();
    sorted.sort_by(|(_, one), (_, other)| other.cmp(one));
    let others = sorted.iter().skip(most).fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    sorted.truncate(most);
    let mut kept: BTreeMap<String, u64> = sorted.into_iter().collect();
    if others > 0 {
        add(kept.entry(OTHERS.to_owned()).or_default(), others);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_counters_stay_and_the_sum_is_the_same() {
        let counters: BTreeMap<String, u64> = (1..=10).map(|number| (format!("t{number}"), number)).collect();
        let kept = keep_greatest(counters.clone(), 3);
        assert_eq!(kept.keys().map(String::as_str).collect::<Vec<_>>(), [OTHERS, "t10", "t8", "t9"]);
        assert_eq!(kept.values().sum::<u64>(), 55);
        assert_eq!(keep_greatest(counters.clone(), 10), counters);
    }
}
