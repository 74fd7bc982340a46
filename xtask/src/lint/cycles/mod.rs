//! Modules and files form no cycle: code that two of them share belongs in a third one, below both.

mod c;
mod graph;
mod python;
mod rust;

use super::sources::Sources;

pub(super) fn check(sources: &Sources) -> Vec<String> {
    [rust::check, c::check, python::check].into_iter().flat_map(|check| check(sources)).collect()
}
