//! Differentiated services code points: the six bits of an IP header by which networks sort packets.
//!
//! Reference: RFC 2474 (class selectors), 2597 (assured forwarding), 3246 (expedited forwarding), 8622 (lower
//! effort).

use std::fmt;

/// A differentiated services code point, from 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Dscp(u8);

/// The names that follow no pattern; `cs0` to `cs7` and `af11` to `af43` are computed.
const NAMED: [(&str, u8); 3] = [("ef", 46), ("le", 1), ("va", 44)];

impl Dscp {
    /// Returns the code point with this number, if it is below 64.
    pub fn new(number: u8) -> Option<Self> {
        (number < 64).then_some(Self(number))
    }

    /// Returns the code point in the field that IPv4 calls type of service and IPv6 calls traffic class. The
    /// field's other two bits are for ECN.
    pub fn of_field(field: u8) -> Self {
        Self(field >> 2)
    }

    pub fn number(self) -> u8 {
        self.0
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..64).map(Self)
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::all().find(|point| point.name().as_deref() == Some(name))
    }

    fn name(self) -> Option<String> {
        let (class, drop) = (self.0 >> 3, (self.0 & 7) >> 1);
        match NAMED.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => Some((*name).to_owned()),
            None if self.0 & 7 == 0 => Some(format!("cs{class}")),
            None if self.0 & 1 == 0 && (1..=4).contains(&class) => Some(format!("af{class}{drop}")),
            None => None,
        }
    }
}

impl fmt::Display for Dscp {
    /// Writes the code point as a policy does: its name in quotes, or its number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "\"{name}\""),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_standards() {
        let number = |name: &str| Dscp::named(name).map(Dscp::number);
        assert_eq!([number("cs0"), number("cs1"), number("cs7")], [Some(0), Some(8), Some(56)]);
        assert_eq!([number("af11"), number("af23"), number("af43")], [Some(10), Some(22), Some(38)]);
        assert_eq!([number("ef"), number("le"), number("va")], [Some(46), Some(1), Some(44)]);
        assert_eq!([number("af44"), number("cs8"), number("af53"), number("EF")], [None; 4]);
        assert_eq!(Dscp::of_field(0xb8 | 3), Dscp(46));
        assert_eq!((Dscp::new(63).map(Dscp::number), Dscp::new(64)), (Some(63), None));
    }
}
