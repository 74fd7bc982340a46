//! Names by number. They are stored in one string, so that the names of a million nodes take little more
//! memory than their text.

use crate::{End, Port, SwitchId};
use std::fmt;

/// Names numbered from 0; may be empty.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Names {
    text: String,
    ends: Vec<usize>,
}

impl Names {
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn get(&self, number: usize) -> Option<&str> {
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|number| self.get(number).unwrap_or_default())
    }

    /// Returns the number that has this name, or `None` if no number or several numbers have it.
    pub fn only(&self, name: &str) -> Option<usize> {
        let mut found = self.iter().enumerate().filter(|(_, known)| *known == name);
        let (first, second) = (found.next(), found.next());
        first.filter(|_| second.is_none()).map(|(number, _)| number)
    }
}

/// Returns the host in the label of a node: InfiniBand's labels are a host and its adapter, such as
/// "gpu001 mlx5_0".
pub fn host_of_label(label: &str) -> &str {
    label.split(' ').next().unwrap_or(label)
}

impl<T: AsRef<str>> FromIterator<T> for Names {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut all = Self::default();
        for name in names {
            all.push(name.as_ref());
        }
        all
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<const N: usize> PartialEq<[&str; N]> for Names {
    fn eq(&self, other: &[&str; N]) -> bool {
        self.len() == N && self.iter().zip(other).all(|(a, b)| a == *b)
    }
}

/// The switches' own names of ports, such as `swp51`. Most ports have only a number.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PortNames {
    ends: Vec<End>,
    names: Names,
}

impl PortNames {
    /// Makes a table from ports, in any order, and a name for each. If a port occurs twice, its later name
    /// counts.
    pub fn new(ends: Vec<End>, names: Names) -> Self {
        if ends.is_sorted_by(|a, b| a < b) {
            return Self { ends, names };
        }
        let mut order: Vec<usize> = (0..ends.len()).collect();
        order.sort_by_key(|at| ends[*at]);
        let mut sorted = Self::default();
        for (place, at) in order.iter().enumerate() {
            if order.get(place + 1).is_none_or(|next| ends[*next] != ends[*at]) {
                sorted.ends.push(ends[*at]);
                sorted.names.push(names.get(*at).unwrap_or_default());
            }
        }
        sorted
    }

    /// Returns the name of a port, or `None` if it has only a number.
    pub fn get(&self, end: End) -> Option<&str> {
        self.names.get(self.ends.binary_search(&end).ok()?)
    }

    /// Returns a port for display: its name, or else its number.
    pub fn shown(&self, switch: SwitchId, port: Port) -> String {
        self.get(End { switch, port }).map_or_else(|| port.0.to_string(), str::to_owned)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (End, &str)> {
        self.ends.iter().copied().zip(self.names.iter())
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number_and_by_themselves_if_nothing_else_is_called_so() {
        let names: Names = ["leaf", "", "spine", "leaf"].into_iter().collect();
        assert_eq!(names, ["leaf", "", "spine", "leaf"]);
        assert_eq!((names.get(1), names.get(2), names.get(4)), (Some(""), Some("spine"), None));
        assert_eq!((names.only("spine"), names.only("leaf"), names.only("x")), (Some(2), None, None));
    }

    #[test]
    fn a_port_is_called_by_its_name_or_by_its_number() {
        let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
        let named = ["swp2", "eth4", "swp1"].into_iter().collect();
        let names = PortNames::new(vec![end(2, 1), end(0, 4), end(2, 1)], named);
        assert_eq!(names.iter().collect::<Vec<_>>(), [(end(0, 4), "eth4"), (end(2, 1), "swp1")]);
        assert_eq!(names.shown(SwitchId(2), Port(1)), "swp1");
        assert_eq!(names.shown(SwitchId(2), Port(2)), "2");
    }
}
