//! Permissions of clients: one TOML file of rules, and one of tokens.
//!
//! ```toml
//! [[allow]]                                  # the first rule that names a client is the client's
//! who = ["unix:plant", "token:line1", "mqtt:sensor", "certificate:line1.example"]
//! publish = ["plant/line1/#"]
//! subscribe = ["plant/#"]
//! rate = 1000                                # events in a second
//! size = 65536                               # bytes of a payload
//! memory = 16777216                          # bytes of all its queues and kept events
//! connections = 4                            # at a time; left out: half of the broker's
//! sessions = 4                               # of MQTT, connected or away; left out: as many as connections
//! names = ["jobs", "billing"]                # groups, resume names and writers that these clients share
//! block = true                               # its consumers may have any supplier wait for them
//! share = 4                                  # of consumers that share out their time; left out: 1
//! paths = true                               # may open paths to addresses
//! join = true                                # may publish for suppliers of other brokers, as a join does
//! class = "control"                          # of the policy, for MQTT clients and programs that name none
//!
//! [[allow]]
//! who = ["anonymous"]                        # over TCP, without token and certificate; `*`: anybody
//! subscribe = ["public/#"]
//! ```
//! Without a file every client may do everything that the broker's limits allow. With a file, a client that
//! no rule names is refused. A name that rules list under `names` is for the clients of these rules alone;
//! any other name belongs to the identity that made it.
//!
//! ```toml
//! [[token]]
//! name = "line1"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"   # of SECRET
//! expires = "2027-01-01T00:00:00Z"
//! ```
//! `printf %s SECRET | sha256sum` prints such a hash.
//!
//! A token is a long random secret, so one round of SHA-256 keeps it as safe as many would. The broker
//! compares hashes: the time of a comparison reveals nothing about the secret.
//!
//! Pure: the caller reads files and clocks. Cost: one search of the rules for each connection, one of the
//! patterns for each topic and subscription, and two comparisons for each event.

mod read;
mod refusal;

pub use read::PermissionsError;
pub(crate) use refusal::RefusalKind;

use crate::sorted_map::SortedMap;
use read::in_place_of;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use unisono_eventchannel::TopicPattern;
use unisono_linux::clock::{Duration, Instant};
use unisono_text::Position;

/// A client's identity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ClientIdentity {
    /// A user of this host, as the kernel reports.
    Unix(u32),
    /// The client knows the token of this name.
    Token(Arc<str>),
    /// The client knows the token of this name, and sent it as user and password of MQTT.
    Mqtt(Arc<str>),
    /// The client has the key of a certificate with this name.
    Certificate(Arc<str>),
    /// A client over TCP that showed neither token nor certificate.
    Anonymous,
}

impl fmt::Display for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(user) => write!(f, "unix:{user}"),
            Self::Token(name) => write!(f, "token:{name}"),
            Self::Mqtt(name) => write!(f, "mqtt:{name}"),
            Self::Certificate(name) => write!(f, "certificate:{name}"),
            Self::Anonymous => f.write_str("anonymous"),
        }
    }
}

/// A client that a rule names.
#[derive(Clone, PartialEq, Eq, Debug)]
enum RuleSubject {
    Anybody,
    One(ClientIdentity),
}

/// The rights of a client.
#[derive(Clone, PartialEq, Debug)]
pub struct ClientGrant {
    publish: Vec<TopicPattern>,
    subscribe: Vec<TopicPattern>,
    /// Events per second.
    pub(crate) rate: Option<u64>,
    /// Bytes of the largest payload.
    pub(crate) size: usize,
    /// Bytes of all queues of the client.
    pub(crate) memory: u64,
    /// `None`: the default for a rule without this field (half of the broker's connections).
    pub(crate) connections: Option<usize>,
    /// Sessions of MQTT, connected or away. `None`: as many as connections.
    pub(crate) sessions: Option<usize>,
    /// Names of groups, of consumers that resume and of writers that the clients of the rule share.
    pub(crate) names: BTreeSet<String>,
    /// Whether its consumers may block suppliers.
    pub(crate) block: bool,
    /// The greatest share of a topic that it publishes on.
    pub(crate) share: u32,
    pub(crate) paths: bool,
    /// Whether it may publish for suppliers of other brokers.
    pub(crate) join: bool,
    /// The class of its consumers that do not choose one.
    pub(crate) class: Option<Arc<str>>,
}

impl ClientGrant {
    pub(crate) fn all() -> Self {
        let all: TopicPattern = "#".parse().expect("a pattern because it is MQTT's own example");
        Self {
            publish: vec![all.clone()],
            subscribe: vec![all],
            rate: None,
            size: usize::MAX,
            memory: u64::MAX,
            connections: Some(usize::MAX),
            sessions: Some(usize::MAX),
            names: BTreeSet::new(),
            block: true,
            share: u32::MAX,
            paths: true,
            join: true,
            class: None,
        }
    }

    /// Makes the rights of a client that may do nothing any more: the rule for it was removed while it was
    /// away.
    pub(crate) fn none() -> Self {
        Self {
            publish: Vec::new(),
            subscribe: Vec::new(),
            block: false,
            share: 1,
            paths: false,
            join: false,
            ..Self::all()
        }
    }

    pub(crate) fn may_publish(&self, topic: &str) -> bool {
        // no rule can grant the broker's own topics
        self.publish.iter().any(|pattern| pattern.matches(topic))
    }

    /// Returns whether all topics of a pattern are allowed.
    pub(crate) fn may_subscribe(&self, asked: &str) -> bool {
        self.subscribe.iter().any(|allowed| covers(&allowed.to_string(), asked))
    }
}

/// Returns whether every name that `asked` matches is matched by `allowed`.
fn covers(allowed: &str, asked: &str) -> bool {
    // a pattern that begins with a wildcard matches no name that begins with `$`
    if asked.starts_with('$') && allowed.starts_with(['+', '#']) {
        return false;
    }
    let (mut allowed, mut asked) = (allowed.split('/'), asked.split('/'));
    loop {
        match (allowed.next(), asked.next()) {
            (Some("#"), _) | (None, None) => return true,
            // `a/#` matches `a` as well, which `a/+` does not
            (_, Some("#")) | (None, _) | (_, None) => return false,
            (Some("+"), Some(_)) => {}
            (Some(allowed), Some(asked)) if allowed == asked => {}
            _ => return false,
        }
    }
}

/// The rules of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Permissions {
    rules: Vec<(Vec<RuleSubject>, Arc<ClientGrant>)>,
    /// Classes that the rules name, and where.
    classes: Vec<(Position, String)>,
    /// Tokens that the rules name, and where.
    tokens: Vec<(Position, String)>,
}

impl Permissions {
    /// Returns the rights of a client; `None`: no rule names it.
    pub(crate) fn grant(&self, who: &ClientIdentity) -> Option<Arc<ClientGrant>> {
        let names = |subject: &RuleSubject| match subject {
            RuleSubject::Anybody => true,
            RuleSubject::One(one) => one == who,
        };
        let rule = self.rules.iter().find(|(subjects, _)| subjects.iter().any(names));
        rule.map(|(_, grant)| Arc::clone(grant))
    }
}

impl Permissions {
    /// Compares the classes of the rules with the classes of a policy that have no classes below them.
    ///
    /// # Errors
    /// The first class that the policy lacks, with its position in the file.
    pub fn check_classes(&self, known: &[&str]) -> Result<(), PermissionsError> {
        match self.classes.iter().find(|(_, name)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((at, name)) => {
                let what = format!(
                    "`{name}` is no class of the policy, or has classes below it; {} (the policy is the first \
                     argument of unisono events serve)",
                    in_place_of(name, "classes", known)
                );
                Err(PermissionsError { at: *at, what })
            }
        }
    }

    /// Returns a warning for each name of a token in the rules that no token has: no client can be the one
    /// that the rule names. It is no error, because a reload that revokes a token must not fail for its rule.
    pub fn without_token(&self, tokens: Option<&Tokens>) -> Vec<PermissionsError> {
        let known = tokens.map(Tokens::names).unwrap_or_default();
        let known: Vec<&str> = known.into_iter().collect();
        let unknown = self.tokens.iter().filter(|(_, name)| !known.contains(&name.as_str()));
        let warning = |(at, name): &(Position, String)| {
            let instead = match tokens {
                Some(_) => in_place_of(name, "tokens", &known),
                None => "the broker has no file of tokens (--tokens FILE)".to_owned(),
            };
            PermissionsError { at: *at, what: format!("`{name}` is the name of no token; {instead}") }
        };
        unknown.map(warning).collect()
    }

    /// Returns whether a rule lists this name; the name is then for the clients of such rules alone.
    fn lists(&self, name: &str) -> bool {
        self.rules.iter().any(|(_, grant)| grant.names.contains(name))
    }

    /// Returns whether a rule names this client itself; `*` does not count.
    fn names(&self, who: &ClientIdentity) -> bool {
        let one = RuleSubject::One(who.clone());
        self.rules.iter().any(|(subjects, _)| subjects.contains(&one))
    }
}

/// A client's token, as the file of tokens knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    pub(crate) fn from_secret(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }
}

/// The tokens of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tokens {
    by_hash: HashMap<[u8; 32], KnownToken>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct KnownToken {
    name: Arc<str>,
    /// The time on the monotonic clock, and the text in the file.
    expires: Option<(Instant, String)>,
}

impl Tokens {
    fn names(&self) -> BTreeSet<&str> {
        self.by_hash.values().map(|token| &*token.name).collect()
    }

    /// Returns the name of a token and its expiry time.
    ///
    /// # Errors
    /// The token is unknown or has expired; the text is for the client that sent it.
    pub(crate) fn name(
        &self,
        now: Instant,
        token: &TokenHash,
    ) -> Result<(Arc<str>, Option<Instant>), String> {
        let known =
            self.by_hash.get(&token.0).ok_or("the token is not one of the broker's; ask for another")?;
        match &known.expires {
            Some((at, text)) if *at <= now => {
                Err(format!("the token `{}` expired at {text}; ask for another", known.name))
            }
            expires => Ok((Arc::clone(&known.name), expires.as_ref().map(|(at, _)| *at))),
        }
    }
}

/// Maximum number of patterns in a refusal.
const MAX_LISTED_PATTERNS: usize = 8;

/// The rights of all clients, and counters of refusals.
#[derive(Debug, Default)]
pub(crate) struct AccessControl {
    pub(crate) permissions: Option<Permissions>,
    pub(crate) tokens: Option<Tokens>,
    refusals: SortedMap<RefusalKind, u64>,
    /// Whether a reason was counted since the present request began.
    has_reason: bool,
}

impl AccessControl {
    pub(crate) fn count(&mut self, kind: RefusalKind) {
        self.add(kind, 1);
        self.has_reason = true;
    }

    /// Adds refusals that a program reports, which belong to no request. It may report any number, so the sum
    /// must not overflow.
    pub(crate) fn add(&mut self, kind: RefusalKind, events: u64) {
        if events > 0 {
            let count = self.refusals.get_or_insert_with(kind, || 0);
            *count = count.saturating_add(events);
        }
    }

    /// Begins a request: reasons that were counted earlier are not its own.
    pub(crate) fn begin_request(&mut self) {
        self.has_reason = false;
    }

    /// Ends a request that is refused. The number of refusals is the sum of their reasons, so a refusal for
    /// which none was counted gets one here.
    pub(crate) fn end_refused(&mut self) {
        if !std::mem::take(&mut self.has_reason) {
            self.count(RefusalKind::Request);
            self.has_reason = false;
        }
    }

    /// Counts a refusal; returns its text.
    pub(crate) fn refuse<E: fmt::Display>(&mut self, error: &E) -> String
    where
        for<'a> RefusalKind: From<&'a E>,
    {
        self.count(RefusalKind::from(error));
        error.to_string()
    }

    /// Returns the end of a refusal's text: the topics that the client's rule lets it publish on, if there
    /// are rules.
    pub(crate) fn publish_rule(&self, grant: &ClientGrant) -> String {
        self.rule(&grant.publish)
    }

    /// Returns the end of a refusal's text: the topics that the client's rule lets it subscribe to, if there
    /// are rules.
    pub(crate) fn subscribe_rule(&self, grant: &ClientGrant) -> String {
        self.rule(&grant.subscribe)
    }

    fn rule(&self, allowed: &[TopicPattern]) -> String {
        if self.permissions.is_none() {
            return String::new();
        }
        let (listed, more) = allowed.split_at(allowed.len().min(MAX_LISTED_PATTERNS));
        let listed: Vec<String> = listed.iter().map(|pattern| format!("`{pattern}`")).collect();
        match (listed.is_empty(), more.len()) {
            (true, _) => "; its rule allows none".to_owned(),
            (false, 0) => format!("; its rule allows {}", listed.join(", ")),
            (false, more) => format!("; its rule allows {} and {more} more", listed.join(", ")),
        }
    }

    /// Returns the counters by name.
    pub(crate) fn refusals(&self) -> BTreeMap<String, u64> {
        self.refusals.iter().map(|(kind, count)| (kind.name().to_owned(), *count)).collect()
    }

    /// Returns whether there are neither permissions nor tokens: then clients without credentials count as
    /// one identity like any other.
    pub(crate) fn is_open(&self) -> bool {
        self.permissions.is_none() && self.tokens.is_none()
    }

    /// Returns the rights that a connected client has by rules that were read since, or `None` if no rule
    /// names it.
    pub(crate) fn grant_again(&self, who: &ClientIdentity) -> Option<Arc<ClientGrant>> {
        match &self.permissions {
            Some(permissions) => permissions.grant(who),
            None => Some(Arc::new(ClientGrant::all())),
        }
    }

    /// Returns whether a rule lists this name.
    pub(crate) fn lists(&self, name: &str) -> bool {
        self.permissions.as_ref().is_some_and(|permissions| permissions.lists(name))
    }

    /// Chooses the client's name among the names in its certificate: the first one with a rule of its own.
    pub(crate) fn certified(&self, names: &[Arc<str>]) -> Option<ClientIdentity> {
        let mut identities = names.iter().map(|name| ClientIdentity::Certificate(Arc::clone(name)));
        let first = identities.clone().next();
        let Some(permissions) = &self.permissions else { return first };
        identities.find(|who| permissions.names(who)).or(first)
    }

    /// Returns the rights of a client.
    ///
    /// # Errors
    /// No rule names it.
    pub(crate) fn grant(&mut self, who: &ClientIdentity) -> Result<Arc<ClientGrant>, String> {
        let Some(permissions) = &self.permissions else { return Ok(Arc::new(ClientGrant::all())) };
        permissions.grant(who).ok_or_else(|| {
            self.count(RefusalKind::Identity);
            format!("no rule of the permissions names {who}; add it to one")
        })
    }
}

/// The events that a client's rate still allows, kept as a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RateBudget {
    /// The time up to which its events are paid for.
    paid: Instant,
}

impl RateBudget {
    /// Charges one event at `rate` events per second; the events of a whole second may come at once.
    ///
    /// # Errors
    /// The time until the next event may come.
    pub(crate) fn take(&mut self, now: Instant, rate: u64) -> Result<(), Duration> {
        let paid = self.paid.max(now - Duration::SECOND) + cost(rate);
        match paid - now {
            wait if wait > Duration::ZERO => Err(wait),
            _ => {
                self.paid = paid;
                Ok(())
            }
        }
    }

    /// Returns whether a whole second's events may come at once.
    pub(crate) fn is_whole(&self, now: Instant) -> bool {
        self.paid <= now - Duration::SECOND
    }

    /// Refunds the last event, which comes again because a queue is full.
    pub(crate) fn refund(&mut self, rate: u64) {
        self.paid -= cost(rate);
    }
}

/// Returns the time that one event takes at `rate` events per second.
fn cost(rate: u64) -> Duration {
    Duration::SECOND / rate.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pattern_covers_another_one_as_far_as_it_reaches() {
        for (allowed, asked) in [
            ("#", "a/+/#"),
            ("a/#", "a"),
            ("a/#", "a/#"),
            ("a/+", "a/b"),
            ("a/+/c", "a/+/c"),
            ("+/+", "a/+"),
            ("$x/#", "$x/y"),
        ] {
            assert!(covers(allowed, asked), "{allowed} {asked}");
        }
        for (allowed, asked) in [
            ("a/+", "a/#"),
            ("a/b", "a/+"),
            ("a", "a/#"),
            ("a/+", "a"),
            ("#", "$x/y"),
            ("+/y", "$x/y"),
            ("a/#", "#"),
        ] {
            assert!(!covers(allowed, asked), "{allowed} {asked}");
        }
    }

    fn pattern() -> impl Strategy<Value = String> {
        let levels = prop::collection::vec(prop::sample::select(vec!["a", "b", "+"]), 0..4);
        (levels, any::<bool>()).prop_map(|(levels, end)| {
            let mut levels: Vec<_> = levels;
            if end || levels.is_empty() {
                levels.push("#");
            }
            levels.join("/")
        })
    }

    proptest! {
        #[test]
        fn what_is_covered_matches_no_name_that_the_cover_does_not(
            allowed in pattern(), asked in pattern(), name in prop::collection::vec("[ab]", 1..5),
        ) {
            let name = name.join("/");
            let matches = |text: &str| text.parse::<TopicPattern>().expect("a pattern").matches(&name);
            if covers(&allowed, &asked) && matches(&asked) {
                prop_assert!(matches(&allowed), "{} {} {}", allowed, asked, name);
            }
        }
    }

    #[test]
    fn a_rate_lets_a_second_s_events_come_at_once_and_no_more() {
        let mut budget = RateBudget::default();
        let start = Instant::from_secs(10);
        let taken = (0..100).filter(|_| budget.take(start, 10).is_ok()).count();
        assert_eq!(taken, 10);
        assert_eq!(budget.take(start, 10), Err(Duration::from_millis(100)));
        assert_eq!(budget.take(start + Duration::from_millis(100), 10), Ok(()));
    }

    #[test]
    fn tokens_are_known_by_their_hash_until_they_expire() {
        let text = "[[token]]\nname = \"t\"\nsha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n\
                    expires = \"2027-01-01T00:00:00Z\"\n";
        let expires = "2027-01-01T00:00:00Z".parse::<jiff::Timestamp>().expect("a time").as_second();
        // 5 s before it expires
        let tokens = Tokens::parse(text, Instant::from_nanos(1000), expires - 5).expect("it is sound");
        assert_eq!(
            tokens.name(Instant::from_nanos(1000), &TokenHash::from_secret(b"test")),
            Ok(("t".into(), Some(Instant::from_micros(5_000_001))))
        );
        assert!(
            tokens
                .name(Instant::from_micros(5_000_001), &TokenHash::from_secret(b"test"))
                .expect_err("expired")
                .contains("expired at 2027")
        );
        assert!(
            tokens
                .name(Instant::from_nanos(1000), &TokenHash::from_secret(b"tests"))
                .expect_err("unknown")
                .contains("not one of")
        );
    }
}
