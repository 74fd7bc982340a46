//! Chooses a color and a marker for each variant, the same ones in every chart of a report.
//!
//! There are eight colors that the color-blind can tell apart (after Okabe and Ito, darkened or lightened
//! until each has a contrast of 4.5 to 1 against the page) and eight shapes, so 64 looks; the first eight
//! differ in both. In all studies of a topic a look means one variant. A variant that occurs under the same
//! name in another topic keeps its look there. Within a study colors repeat only after eight variants. The
//! colors themselves are in `style.css`, once for light and once for dark pages.
//!
//! Reference: M. Okabe, K. Ito, *Color Universal Design*, 2008.

use super::svg::MarkerShape;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VariantLook {
    /// The class that sets the color: `c0` to `c7`.
    pub(crate) class: &'static str,
    pub(crate) shape: MarkerShape,
}

const COLOURS: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
const SHAPES: [MarkerShape; 8] = MarkerShape::ALL;
const APPEARANCES: usize = COLOURS.len() * SHAPES.len();

/// The `nth` look. Each round of eight has all colors and all shapes, paired differently from the earlier
/// rounds.
fn nth(nth: usize) -> VariantLook {
    let (round, at) = (nth / COLOURS.len() % SHAPES.len(), nth % COLOURS.len());
    VariantLook { class: COLOURS[at], shape: SHAPES[(at + round) % SHAPES.len()] }
}

/// Looks of variants that most studies have, so that they stay the same from report to report.
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

/// The looks of a study's variants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    of: BTreeMap<String, usize>,
}

impl Looks {
    /// `None` if no variant of the study has this name.
    pub(crate) fn known(&self, name: &str) -> Option<VariantLook> {
        self.of.get(name).copied().map(nth)
    }

    /// The look of a variant; for an unknown name the first look.
    pub(crate) fn look(&self, name: &str) -> VariantLook {
        self.known(name).unwrap_or_else(|| nth(0))
    }

    /// The `index`-th look that no variant of the study has, for lines that are no variant.
    pub(crate) fn spare(&self, index: usize) -> VariantLook {
        let free = (0..APPEARANCES).filter(|look| !self.of.values().any(|used| used == look));
        nth(free.cycle().nth(index % APPEARANCES).unwrap_or(index))
    }
}

/// Assigns looks to the variants of one study after another.
#[derive(Debug, Default)]
pub(crate) struct LooksOfReport {
    /// The look of each name that readers see.
    given: BTreeMap<String, usize>,
    topic: String,
    /// The looks used in this topic, with the name of the variant.
    taken: BTreeMap<usize, String>,
}

impl LooksOfReport {
    /// `variants`: pairs of the name in the records and the name that readers see.
    pub(crate) fn of_study(&mut self, topic: &str, variants: &[(&str, String)]) -> Looks {
        if self.topic != topic {
            (self.topic, self.taken) = (topic.to_owned(), BTreeMap::new());
        }
        let mut looks = Looks::default();
        let known = |name: &str| KNOWN.iter().find(|(known, _)| *known == name).map(|(_, look)| *look);
        for (variant, name) in variants {
            let had = self.given.get(name).copied().or_else(|| known(variant));
            let is_free = |look: &usize| {
                self.taken.get(look).is_none_or(|taken| taken == name)
                    && !looks.of.values().any(|used| used == look)
            };
            if let Some(look) = had.filter(is_free) {
                looks.of.insert((*variant).to_owned(), look);
                self.give(name, look);
            }
        }
        for (variant, name) in variants {
            if looks.of.contains_key(*variant) {
                continue;
            }
            let look = self.free(&looks);
            looks.of.insert((*variant).to_owned(), look);
            self.give(name, look);
        }
        looks
    }

    fn give(&mut self, name: &str, look: usize) {
        self.given.insert(name.to_owned(), look);
        self.taken.insert(look, name.to_owned());
    }

    /// A look that is free in the topic, with the color that the study uses least.
    fn free(&self, looks: &Looks) -> usize {
        let of_study = |look: usize| looks.of.values().any(|used| *used == look);
        let times = |look: usize| {
            looks.of.values().filter(|used| *used % COLOURS.len() == look % COLOURS.len()).count()
        };
        let free = (0..APPEARANCES).filter(|look| !self.taken.contains_key(look) && !of_study(*look));
        let least = free.min_by_key(|look| times(*look));
        let again = || (0..APPEARANCES).filter(|look| !of_study(*look)).min_by_key(|look| times(*look));
        least.or_else(again).unwrap_or(looks.of.len() % APPEARANCES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(names: &[&'a str]) -> Vec<(&'a str, String)> {
        names.iter().map(|name| (*name, (*name).to_owned())).collect()
    }

    #[test]
    fn no_two_of_64_variants_of_a_topic_look_alike_and_eight_of_a_study_differ_in_colour() {
        let names: Vec<String> = (0..APPEARANCES).map(|i| format!("variant {i}")).collect();
        let mut of_report = LooksOfReport::default();
        let mut seen: Vec<VariantLook> = Vec::new();
        for study in names.chunks(8) {
            let looks = of_report.of_study("topic", &named(&study.iter().map(|n| &**n).collect::<Vec<_>>()));
            let own: Vec<VariantLook> = study.iter().map(|name| looks.look(name)).collect();
            for (i, look) in own.iter().enumerate() {
                assert!(own[..i].iter().all(|other| other.class != look.class), "{look:?} {own:?}");
                assert!(!seen.contains(look), "{look:?}");
            }
            seen.extend(own);
        }
        let more = of_report.of_study("topic", &named(&["one", "more"]));
        assert_ne!(more.look("one"), more.look("more"), "looks repeat, but not within a study");
    }

    #[test]
    fn a_name_keeps_its_look_in_every_study_and_topic() {
        let mut of_report = LooksOfReport::default();
        let first = of_report.of_study("gang", &named(&["other", "gang", "few-spins"]));
        let second = of_report.of_study("gang", &named(&["gang", "batch", "more", "few-spins"]));
        let third = of_report.of_study("monitor", &named(&["more", "gang", "other"]));
        for name in ["gang", "few-spins"] {
            assert_eq!(first.look(name), second.look(name), "{name}");
        }
        for (name, before) in [("gang", &first), ("other", &first), ("more", &second)] {
            assert_eq!(before.look(name), third.look(name), "{name}");
        }
        assert_ne!(first.look("other"), second.look("more"), "one look means one variant");
    }

    #[test]
    fn what_is_no_variant_looks_like_none() {
        let looks = LooksOfReport::default().of_study("t", &named(&["gang", "spread", "c"]));
        for index in 0..20 {
            assert!(["gang", "spread", "c"].iter().all(|name| looks.look(name) != looks.spare(index)));
        }
        assert_ne!(looks.spare(0), looks.spare(1));
    }
}
