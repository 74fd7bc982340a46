//! Reads the files of permissions and of tokens. An error names the line and the column.

use super::{ClientGrant, ClientIdentity, KnownToken, Permissions, RuleSubject, Tokens};
use crate::mqtt::SHARE;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use toml::Spanned;
use unisono_eventchannel::TopicPattern;
use unisono_linux::clock::{Duration, Instant};
use unisono_text::{Position, nearest};

/// Why a text is no file of permissions or tokens: where, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {what}")]
pub struct PermissionsError {
    pub at: Position,
    pub what: String,
}

fn wrong<T>(text: &str, place: &Spanned<T>, what: impl Into<String>) -> PermissionsError {
    PermissionsError { at: Position::at_offset(text, place.span().start), what: what.into() }
}

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, PermissionsError> {
    toml::from_str(text).map_err(|error| PermissionsError {
        at: Position::at_offset(text, error.span().map_or(0, |span| span.start)),
        what: with_nearest_key(error.message()),
    })
}

/// Adds to an error about an unknown key, which lists the known ones between backquotes, the key that was
/// probably meant, or the form of a rule for all other clients.
fn with_nearest_key(what: &str) -> String {
    let mut quoted = what.split('`').skip(1).step_by(2);
    match (what.starts_with("unknown field"), quoted.next()) {
        (true, Some(key)) => match nearest(key, quoted) {
            Some(meant) => format!("unknown field `{key}`; did you mean `{meant}`?"),
            None if what.ends_with("expected `allow`") => format!(
                "{what}: a client that no [[allow]] names is refused; a last one with who = [\"*\"] is for all \
                 others"
            ),
            None => what.to_owned(),
        },
        _ => what.to_owned(),
    }
}

/// Maximum number of known names in an error.
const MAX_LISTED: usize = 16;

/// Returns the remedy for an unknown name: the similar name among the known names, or a list of all known
/// names.
pub(super) fn in_place_of(unknown: &str, kind: &str, known: &[&str]) -> String {
    if let Some(meant) = nearest(unknown, known.iter().copied()) {
        return format!("did you mean `{meant}`?");
    }
    let (listed, more) = known.split_at(known.len().min(MAX_LISTED));
    match (listed, more.len()) {
        ([], _) => format!("there are no {kind}"),
        (_, 0) => format!("the {kind} are {}", listed.join(", ")),
        (_, more) => format!("the {kind} are {}, and {more} more", listed.join(", ")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPermissions {
    #[serde(default)]
    allow: Vec<WrittenRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    who: Vec<Spanned<String>>,
    #[serde(default)]
    publish: Vec<Spanned<String>>,
    #[serde(default)]
    subscribe: Vec<Spanned<String>>,
    rate: Option<Spanned<u64>>,
    size: Option<usize>,
    memory: Option<u64>,
    connections: Option<usize>,
    sessions: Option<usize>,
    #[serde(default)]
    names: Vec<Spanned<String>>,
    #[serde(default)]
    block: bool,
    share: Option<u32>,
    #[serde(default)]
    paths: bool,
    #[serde(default)]
    join: bool,
    class: Option<Spanned<String>>,
}

impl Permissions {
    /// Reads the rules of a file; `user` finds the number of a user by its name.
    ///
    /// # Errors
    /// The text is not a valid file of rules.
    pub fn parse(text: &str, user: &dyn Fn(&str) -> Option<u32>) -> Result<Self, PermissionsError> {
        let written: WrittenPermissions = read(text)?;
        // a file that a full disk or an editor has cut would lock out all clients, also the operator who
        // mends it
        if written.allow.is_empty() {
            let what = "there is no rule, so nobody could connect; write at least one [[allow]]";
            return Err(PermissionsError { at: Position::at_offset(text, 0), what: what.to_owned() });
        }
        let (mut rules, mut classes, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for rule in written.allow {
            for who in &rule.who {
                if let Some(("token" | "mqtt", name)) = who.get_ref().split_once(':') {
                    tokens.push((Position::at_offset(text, who.span().start), name.to_owned()));
                }
            }
            let subjects = rule.who.iter().map(|who| subject(text, who, user));
            let subjects = subjects.collect::<Result<_, _>>()?;
            if let Some(rate) = &rule.rate
                && *rate.get_ref() == 0
            {
                return Err(wrong(text, rate, "a rate of 0; leave `publish` out of the rule instead"));
            }
            let grant = ClientGrant {
                publish: patterns(text, &rule.publish)?,
                subscribe: patterns(text, &rule.subscribe)?,
                rate: rule.rate.map(Spanned::into_inner),
                size: rule.size.unwrap_or(usize::MAX),
                memory: rule.memory.unwrap_or(u64::MAX),
                connections: rule.connections,
                sessions: rule.sessions.or(rule.connections),
                names: names(text, &rule.names)?,
                block: rule.block,
                share: rule.share.unwrap_or(1).max(1),
                paths: rule.paths,
                join: rule.join,
                class: rule.class.as_ref().map(|class| class.get_ref().as_str().into()),
            };
            if let Some(class) = rule.class {
                classes.push((Position::at_offset(text, class.span().start), class.into_inner()));
            }
            rules.push((subjects, Arc::new(grant)));
        }
        Ok(Self { rules, classes, tokens })
    }
}

fn patterns(text: &str, written: &[Spanned<String>]) -> Result<Vec<TopicPattern>, PermissionsError> {
    let pattern = |pattern: &Spanned<String>| {
        pattern.get_ref().parse().map_err(|error| wrong(text, pattern, format!("{error}")))
    };
    written.iter().map(pattern).collect()
}

fn names(text: &str, written: &[Spanned<String>]) -> Result<BTreeSet<String>, PermissionsError> {
    let name = |name: &Spanned<String>| match name.get_ref().as_str() {
        "" => Err(wrong(text, name, "an empty name; write a group, a resume name or a writer")),
        odd if odd.contains('*') || odd.starts_with(SHARE) => {
            let what = format!(
                "`{odd}` is no name; write each name out, and of $share/NAME/FILTER write NAME alone"
            );
            Err(wrong(text, name, what))
        }
        plain => Ok(plain.to_owned()),
    };
    written.iter().map(name).collect()
}

fn subject(
    text: &str,
    who: &Spanned<String>,
    user: &dyn Fn(&str) -> Option<u32>,
) -> Result<RuleSubject, PermissionsError> {
    let identity = match who.get_ref().split_once(':') {
        None if who.get_ref() == "*" => return Ok(RuleSubject::Anybody),
        None if who.get_ref() == "anonymous" => ClientIdentity::Anonymous,
        Some(("unix", name)) => {
            let number = name.parse().ok().or_else(|| user(name));
            let unknown = || {
                let what = format!("this host has no user `{name}`; write a name of /etc/passwd or a number");
                wrong(text, who, what)
            };
            ClientIdentity::Unix(number.ok_or_else(unknown)?)
        }
        Some(("token", name)) => ClientIdentity::Token(name.into()),
        Some(("mqtt", name)) => ClientIdentity::Mqtt(name.into()),
        Some(("certificate", name)) => ClientIdentity::Certificate(name.into()),
        _ => {
            let what = format!(
                "`{}` names nobody; write unix:USER, token:NAME, mqtt:USER, certificate:NAME, anonymous or *",
                who.get_ref()
            );
            return Err(wrong(text, who, what));
        }
    };
    Ok(RuleSubject::One(identity))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTokens {
    #[serde(default)]
    token: Vec<WrittenToken>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenToken {
    name: String,
    sha256: Spanned<String>,
    expires: Option<Spanned<String>>,
}

impl Tokens {
    /// Reads the tokens of a file; `now` is the monotonic clock, `clock` the time of day in seconds since
    /// 1970.
    ///
    /// # Errors
    /// The text is not a valid file of tokens.
    pub fn parse(text: &str, now: Instant, clock: i64) -> Result<Self, PermissionsError> {
        let written: WrittenTokens = read(text)?;
        let mut tokens = Self::default();
        for token in written.token {
            let hash = hash(token.sha256.get_ref()).ok_or_else(|| {
                wrong(
                    text,
                    &token.sha256,
                    "no SHA-256; write 64 hexadecimal digits: printf %s SECRET | sha256sum",
                )
            })?;
            let expires = match token.expires {
                None => None,
                Some(at) => {
                    let time: jiff::Timestamp = at
                        .get_ref()
                        .parse()
                        .map_err(|_| wrong(text, &at, "no time; write it as 2027-01-01T00:00:00Z"))?;
                    let left = u64::try_from(time.as_second().saturating_sub(clock)).unwrap_or(0);
                    Some((now + Duration::from_secs(left), at.into_inner()))
                }
            };
            let known = KnownToken { name: token.name.into(), expires };
            if tokens.by_hash.insert(hash, known).is_some() {
                return Err(wrong(text, &token.sha256, "two tokens of one secret; remove one"));
            }
        }
        Ok(tokens)
    }
}

fn hash(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let user = |name: &str| (name == "plant").then_some(7);
        for (text, says) in [
            ("[[allow]]\nwho = [\"unix:nobody-here\"]", "2:8: this host has no user `nobody-here`"),
            ("[[allow]]\nwho = [\"*\"]\npublish = [\"a\", \"b/#/c\"]", "3:17: `b/#/c`: column 3"),
            ("[[allow]]\nwho = [\"somebody\"]", "2:8: `somebody` names nobody"),
            ("[[allow]]\nwho = [\"*\"]\nrate = 0", "3:8: a rate of 0"),
            (
                "[[allow]]\nwho = [\"*\"]\npublishes = []",
                "3:1: unknown field `publishes`; did you mean `publish`?",
            ),
            ("[[allow]]\npublish = []", "1:1: missing field `who`"),
            (
                "default = \"deny-all\"\n[[allow]]\nwho = [\"*\"]",
                "1:1: unknown field `default`, expected `allow`: a client that no [[allow]] names is refused",
            ),
            ("", "1:1: there is no rule"),
            ("allow = []", "1:1: there is no rule"),
            ("[[allow]]\nwho = [\"*\"]\nnames = [\"a\", \"\"]", "3:15: an empty name"),
            (
                "[[allow]]\nwho = [\"*\"]\nnames = [\"jobs-*\"]",
                "3:10: `jobs-*` is no name; write each name out",
            ),
            ("[[allow]]\nwho = [\"*\"]\nblock = [\"a\"]", "3:9: invalid type: sequence"),
        ] {
            let error = Permissions::parse(text, &user).expect_err(text).to_string();
            assert!(error.starts_with(says), "{error}");
        }
        for (text, says) in [
            ("[[token]]\nname = \"t\"\nsha256 = \"12\"", "3:10: no SHA-256"),
            ("[[token]]\nname = \"t\"\nsha256 = \"$H\"\nexpires = \"soon\"", "4:11: no time"),
        ] {
            let error = Tokens::parse(&text.replace("$H", &"a".repeat(64)), Instant::ZERO, 0)
                .expect_err(text)
                .to_string();
            assert!(error.starts_with(says), "{error}");
        }
        let text = "[[allow]]\nwho = [\"unix:plant\", \"unix:9\"]\nsubscribe = [\"a/#\"]";
        let permissions = Permissions::parse(text, &user).expect("it is sound");
        for (user, may) in [(7, true), (9, true), (8, false)] {
            let grant = permissions.grant(&ClientIdentity::Unix(user));
            assert_eq!(grant.is_some_and(|grant| grant.may_subscribe("a/b") && !grant.may_publish("a")), may);
        }
    }

    #[test]
    fn a_rule_for_a_token_that_does_not_exist_is_told_with_the_names_that_do() {
        let rules =
            "[[allow]]\nwho = [\"token:lin1\", \"mqtt:line1\",\n  \"mqtt:sensor\"]\npublish = [\"a\"]";
        let permissions = Permissions::parse(rules, &|_| None).expect("it is sound");
        let said = |tokens: Option<&Tokens>| {
            let warnings = permissions.without_token(tokens).into_iter();
            warnings.map(|warning| warning.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(said(None).len(), 3, "no client can show a token");
        assert!(said(None)[0].starts_with("2:8: `lin1`"), "{:?}", said(None));
        let text = format!("[[token]]\nname = \"line1\"\nsha256 = \"{}\"", "a".repeat(64));
        let tokens = Tokens::parse(&text, Instant::ZERO, 0).expect("it is sound");
        let said = said(Some(&tokens));
        let [similar, other] = &said[..] else { panic!("{said:?}") };
        assert!(similar.starts_with("2:8: `lin1` is the name of no token"), "{similar}");
        assert!(similar.ends_with("did you mean `line1`?"), "{similar}");
        assert!(other.starts_with("3:3: `sensor` ") && other.ends_with("the tokens are line1"), "{other}");
    }

    #[test]
    fn of_many_known_names_an_error_lists_the_first_ones() {
        let names: Vec<String> = (0..20).map(|number| format!("class-{number}")).collect();
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let said = in_place_of("zzz", "classes", &known);
        assert!(said.ends_with("class-15, and 4 more"), "{said}");
        assert_eq!(in_place_of("zzz", "classes", &[]), "there are no classes");
    }
}
