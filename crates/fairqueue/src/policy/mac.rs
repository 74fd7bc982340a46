//! Addresses of Ethernet devices.

use std::fmt;
use std::str::FromStr;

/// The address of an Ethernet device; never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// Returns the address with these bytes, or `None` for zeroes, which no device has.
    pub fn new(bytes: [u8; 6]) -> Option<Self> {
        (bytes != [0; 6]).then_some(Self(bytes))
    }

    pub fn bytes(self) -> [u8; 6] {
        self.0
    }
}

impl FromStr for MacAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (mut bytes, mut parts) = ([0; 6], text.split(':'));
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(())?;
            let is_hex = part.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex).ok_or(())?;
        }
        Self::new(bytes).filter(|_| parts.next().is_none()).ok_or(())
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_six_bytes_and_is_not_zero() {
        let address: MacAddress = "02:00:5E:10:00:fF".parse().expect("six bytes");
        assert_eq!((address.bytes()[5], address.to_string().as_str()), (255, "02:00:5e:10:00:ff"));
        for text in [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "2:00:5e:10:00:01",
            "+2:00:5e:10:00:01",
            "00:00:00:00:00:00",
        ] {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }
}
