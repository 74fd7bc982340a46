//! The patterns that match a topic, so that an event need not search for them.
//!
//! The *route* of a topic is the set of patterns that match it. If they are few, the topic itself stores
//! them. If all topics stored many patterns, the memory would grow with topics times patterns. So the long
//! routes of all topics have a common bound: the least recently used route is dropped first, and is searched
//! again at its next use. To have another topic's route dropped, a client has to cause as many searches as
//! there are routes. Cost: a look-up and a logarithm for an event on a topic that many patterns match.

use crate::number_map::NumberMap;
use std::collections::BTreeMap;

/// The maximum number of patterns that a topic itself stores. Chosen, not measured.
const MAX_SHORT: usize = 64;
/// The maximum number of patterns in all long routes together: 4 MiB. One route has at most as many patterns
/// as a channel has subscriptions, 65,536. Chosen, not measured.
const MAX_LONG: usize = 1 << 20;

/// The patterns that match a topic. The caller stores them with the topic; they are searched again after
/// patterns have changed.
#[derive(Clone, Debug, Default)]
pub struct TopicRoute {
    /// The patterns, if they are few.
    short: Vec<u32>,
    /// The number of the long route; 0: there is none.
    long: u64,
    generation: u64,
}

impl TopicRoute {
    /// The maximum number of bytes of a route, without its long route.
    pub(crate) const MAX_BYTES: usize = MAX_SHORT * size_of::<u32>();
}

#[derive(Debug)]
struct LongRoute {
    patterns: Vec<u32>,
    used: u64,
}

/// The long routes of all topics.
#[derive(Debug, Default)]
pub(super) struct LongRoutes {
    routes: NumberMap<u64, LongRoute>,
    /// The numbers of the routes by their last use.
    order: BTreeMap<u64, u64>,
    /// Patterns of all routes.
    patterns: usize,
    /// The number of uses so far. It also gives new routes their numbers.
    uses: u64,
}

impl LongRoutes {
    /// Returns the patterns of a route. Calls `find` if they are not known for this generation.
    pub(super) fn patterns_of<'a>(
        &'a mut self,
        route: &'a mut TopicRoute,
        generation: u64,
        find: impl FnOnce() -> Vec<u32>,
    ) -> &'a [u32] {
        let is_known =
            route.generation == generation && (route.long == 0 || self.routes.contains_key(&route.long));
        if !is_known {
            self.replace(route, find());
            route.generation = generation;
        }
        match route.long {
            0 => &route.short,
            number => self.used(number),
        }
    }

    fn replace(&mut self, route: &mut TopicRoute, mut patterns: Vec<u32>) {
        self.remove(route.long);
        patterns.shrink_to_fit();
        if patterns.len() <= MAX_SHORT {
            (route.short, route.long) = (patterns, 0);
            return;
        }
        while self.patterns + patterns.len() > MAX_LONG
            && let Some(number) = self.order.first_key_value().map(|(_, number)| *number)
        {
            self.remove(number);
        }
        self.uses += 1;
        (route.short, route.long) = (Vec::new(), self.uses);
        self.patterns += patterns.len();
        self.order.insert(self.uses, self.uses);
        self.routes.insert(self.uses, LongRoute { patterns, used: self.uses });
    }

    fn remove(&mut self, number: u64) {
        if let Some(route) = self.routes.remove(&number) {
            self.patterns -= route.patterns.len();
            self.order.remove(&route.used);
        }
    }

    fn used(&mut self, number: u64) -> &[u32] {
        let Some(route) = self.routes.get_mut(&number) else { return &[] };
        if route.used != self.uses {
            self.uses += 1;
            self.order.remove(&route.used);
            self.order.insert(self.uses, number);
            route.used = self.uses;
        }
        &route.patterns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_take_a_bounded_number_of_patterns_and_the_ones_in_use_stay() {
        let mut long = LongRoutes::default();
        let mut routes = vec![TopicRoute::default(); 300];
        let patterns = |topic: usize| -> Vec<u32> { (0..[1, 64, 65, 65_536][topic % 4]).collect() };
        let mut searches = vec![0; 300];
        for _ in 0..2 {
            for (topic, route) in routes.iter_mut().enumerate() {
                let found = long.patterns_of(route, 1, || patterns(topic)).len();
                assert_eq!(found, patterns(topic).len(), "topic {topic}");
                assert!(route.short.capacity() * size_of::<u32>() <= TopicRoute::MAX_BYTES);
                let all: usize = long.routes.values().map(|route| route.patterns.capacity()).sum();
                assert!(all == long.patterns && all <= MAX_LONG && long.order.len() == long.routes.len());
            }
            // `hot` is used again after every use of another route
            let mut hot = TopicRoute::default();
            for route in &mut routes {
                long.patterns_of(&mut hot, 1, || {
                    searches[0] += 1;
                    patterns(3)
                });
                long.patterns_of(route, 1, || patterns(3));
            }
        }
        assert_eq!(searches[0], 2, "once for each new route");
        let mut route = TopicRoute::default();
        for generation in 1..4 {
            assert_eq!(long.patterns_of(&mut route, generation, || patterns(2)).len(), 65);
            assert_eq!(long.patterns_of(&mut route, generation, || panic!("it is known")).len(), 65);
        }
        assert_eq!(long.patterns_of(&mut route, 4, || patterns(0)).len(), 1);
        assert_eq!(route.long, 0);
    }
}
