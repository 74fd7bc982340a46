//! Which colour and which marker belongs to a variant: the same one in every chart of a report.
//!
//! Eight colours that stay apart for the colour-blind (after Okabe and Ito, darkened or lightened until
//! each has a contrast of 4.5 to 1 against the page), each with a shape of its own, so that nothing depends
//! on colour alone. The colours themselves are in `style.css`, once for light and once for dark pages.
//!
//! Reference: M. Okabe, K. Ito, *Color Universal Design*, 2008.

use super::svg::MarkerShape;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VariantLook {
    /// Sets the colour: `c0` to `c7`.
    pub(crate) class: &'static str,
    pub(crate) shape: MarkerShape,
}

const LOOKS: [VariantLook; 8] = [
    VariantLook { class: "c0", shape: MarkerShape::Circle },
    VariantLook { class: "c1", shape: MarkerShape::Square },
    VariantLook { class: "c2", shape: MarkerShape::Triangle },
    VariantLook { class: "c3", shape: MarkerShape::Diamond },
    VariantLook { class: "c4", shape: MarkerShape::Drop },
    VariantLook { class: "c5", shape: MarkerShape::Plus },
    VariantLook { class: "c6", shape: MarkerShape::Hexagon },
    VariantLook { class: "c7", shape: MarkerShape::Cross },
];

/// Variants that most studies have keep their looks from report to report.
const KNOWN: [(&str, usize); 9] = [
    ("gang", 0),
    ("gangs", 0),
    ("spread", 1),
    ("spread-linux", 1),
    ("linux", 2),
    ("plain", 2),
    ("plain-linux", 2),
    ("batch", 3),
    ("priorities", 4),
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    of: BTreeMap<String, usize>,
}

impl Looks {
    /// Gives looks to variants (or figures) in their order within a study. With more than eight, looks
    /// repeat.
    pub(crate) fn of_study<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut looks = Looks::default();
        let names: Vec<&str> = names.collect();
        for name in &names {
            if let Some((_, look)) = KNOWN.iter().find(|(known, _)| known == name) {
                looks.of.insert((*name).to_owned(), *look);
            }
        }
        for name in names {
            if looks.of.contains_key(name) {
                continue;
            }
            let free = (0..LOOKS.len()).find(|look| !looks.of.values().any(|used| used == look));
            let look = free.unwrap_or(looks.of.len() % LOOKS.len());
            looks.of.insert(name.to_owned(), look);
        }
        looks
    }

    /// The first look for an unknown name.
    pub(crate) fn look(&self, name: &str) -> VariantLook {
        LOOKS[self.of.get(name).copied().unwrap_or(0) % LOOKS.len()]
    }
}

/// The look of the `index`-th figure of a chart of bars.
pub(crate) fn nth(index: usize) -> VariantLook {
    LOOKS[index % LOOKS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_eight_variants_look_alike() {
        let names = ["a", "gang", "b", "linux", "c", "d", "e", "f"];
        let looks = Looks::of_study(names.into_iter());
        for (i, a) in names.iter().enumerate() {
            for b in &names[..i] {
                assert_ne!(looks.look(a), looks.look(b), "{a} and {b}");
            }
        }
    }

    #[test]
    fn well_known_variants_look_the_same_in_every_study() {
        let first = Looks::of_study(["other", "gang"].into_iter());
        let second = Looks::of_study(["gang", "batch", "more"].into_iter());
        assert_eq!(first.look("gang"), second.look("gang"));
    }
}
