//! Chooses a color and a marker for each variant, the same ones in every chart of a report.
//!
//! There are eight colors that the color-blind can distinguish (after Okabe and Ito, darkened or lightened
//! until each has a contrast of 4.5 to 1 against the page) and eight shapes, so 64 styles; the first eight
//! differ in both. In all studies of a topic a style belongs to a single variant. A variant that occurs under
//! the same name in another topic keeps its style there. Within a study colors repeat only after eight
//! variants; the variants that one chart shows differ in color as long as they are at most eight. The colors
//! themselves are in `style.css`, once for light and once for dark pages.
//!
//! Reference: M. Okabe, K. Ito, *Color Universal Design*, 2008.

use super::svg::MarkerShape;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VariantStyle {
    /// The class that sets the color: `c0` to `c7`.
    pub(crate) class: &'static str,
    pub(crate) shape: MarkerShape,
}

const COLOURS: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
const SHAPES: [MarkerShape; 8] = MarkerShape::ALL;
const STYLES: usize = COLOURS.len() * SHAPES.len();

/// Returns the `nth` style. Each round of eight has all colors and all shapes, paired differently from the
/// earlier rounds.
fn nth_style(nth: usize) -> VariantStyle {
    let (round, at) = (nth / COLOURS.len() % SHAPES.len(), nth % COLOURS.len());
    VariantStyle { class: COLOURS[at], shape: SHAPES[(at + round) % SHAPES.len()] }
}

/// Returns a color that is not among these; the last one if all are.
pub(crate) fn unused_class(used: &[&str]) -> &'static str {
    COLOURS.into_iter().find(|class| !used.contains(class)).unwrap_or(COLOURS[COLOURS.len() - 1])
}

/// Styles of variants that most studies have, so that these variants look the same in every report.
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

/// The styles of a study's variants.
#[derive(Clone, Debug, Default)]
pub(crate) struct VariantStyles {
    by_name: BTreeMap<String, usize>,
}

impl VariantStyles {
    /// Returns the style of a variant; `None` if no variant of the study has this name.
    pub(crate) fn known(&self, name: &str) -> Option<VariantStyle> {
        self.by_name.get(name).copied().map(nth_style)
    }

    /// Returns the style of a variant; for an unknown name the first style.
    pub(crate) fn style(&self, name: &str) -> VariantStyle {
        self.known(name).unwrap_or_else(|| nth_style(0))
    }

    /// Returns the `index`-th style that no variant of the study has, for lines that are no variant.
    pub(crate) fn unassigned(&self, index: usize) -> VariantStyle {
        let free = (0..STYLES).filter(|style| !self.by_name.values().any(|used| used == style));
        nth_style(free.cycle().nth(index % STYLES).unwrap_or(index))
    }
}

/// Assigns styles to the variants of one study after another.
#[derive(Debug, Default)]
pub(crate) struct ReportStyles {
    /// The style of each name that readers see.
    given: BTreeMap<String, usize>,
    topic: String,
    /// The styles used in this topic, with the name of the variant.
    taken: BTreeMap<usize, String>,
}

impl ReportStyles {
    /// Assigns styles to the variants of a study. `variants`: pairs of the name in the records and the name
    /// that readers see. `charts`: the variants of each chart that does not show all variants; variants of
    /// the same chart get different colors first.
    pub(crate) fn assign_study(
        &mut self,
        topic: &str,
        variants: &[(&str, String)],
        charts: &[&[String]],
    ) -> VariantStyles {
        if self.topic != topic {
            (self.topic, self.taken) = (topic.to_owned(), BTreeMap::new());
        }
        let mut styles = VariantStyles::default();
        let known = |name: &str| KNOWN.iter().find(|(known, _)| *known == name).map(|(_, style)| *style);
        for (variant, name) in variants {
            let had = self.given.get(name).copied().or_else(|| known(variant));
            let is_free = |style: &usize| {
                self.taken.get(style).is_none_or(|taken| taken == name)
                    && !styles.by_name.values().any(|used| used == style)
            };
            if let Some(style) = had.filter(is_free) {
                styles.by_name.insert((*variant).to_owned(), style);
                self.assign(name, style);
            }
        }
        let charts_of = |variant: &str| -> Vec<&[String]> {
            charts.iter().copied().filter(|chart| chart.iter().any(|name| name == variant)).collect()
        };
        let mut left: Vec<&(&str, String)> =
            variants.iter().filter(|(variant, _)| !styles.by_name.contains_key(*variant)).collect();
        // a variant of many charts has the least choice
        left.sort_by_key(|(variant, _)| std::cmp::Reverse(charts_of(variant).len()));
        for (variant, name) in left {
            let beside: Vec<&str> = charts_of(variant).into_iter().flatten().map(String::as_str).collect();
            let style = self.free_style(&styles, &beside);
            styles.by_name.insert((*variant).to_owned(), style);
            self.assign(name, style);
        }
        styles
    }

    fn assign(&mut self, name: &str, style: usize) {
        self.given.insert(name.to_owned(), style);
        self.taken.insert(style, name.to_owned());
    }

    /// Finds a style that is free in the topic, with the color that is used least by the variants beside it,
    /// and among such colors least in the study.
    fn free_style(&self, styles: &VariantStyles, beside: &[&str]) -> usize {
        let is_used = |style: usize| styles.by_name.values().any(|used| *used == style);
        let times = |style: usize| {
            let alike =
                styles.by_name.iter().filter(|(_, used)| *used % COLOURS.len() == style % COLOURS.len());
            let names: Vec<&str> = alike.map(|(name, _)| name.as_str()).collect();
            (names.iter().filter(|name| beside.contains(name)).count(), names.len())
        };
        let free = (0..STYLES).filter(|style| !self.taken.contains_key(style) && !is_used(*style));
        let least = free.min_by_key(|style| times(*style));
        let again = || (0..STYLES).filter(|style| !is_used(*style)).min_by_key(|style| times(*style));
        least.or_else(again).unwrap_or(styles.by_name.len() % STYLES)
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
        let names: Vec<String> = (0..STYLES).map(|i| format!("variant {i}")).collect();
        let mut of_report = ReportStyles::default();
        let mut seen: Vec<VariantStyle> = Vec::new();
        for study in names.chunks(8) {
            let styles =
                of_report.assign_study("topic", &named(&study.iter().map(|n| &**n).collect::<Vec<_>>()), &[]);
            let own: Vec<VariantStyle> = study.iter().map(|name| styles.style(name)).collect();
            for (i, style) in own.iter().enumerate() {
                assert!(own[..i].iter().all(|other| other.class != style.class), "{style:?} {own:?}");
                assert!(!seen.contains(style), "{style:?}");
            }
            seen.extend(own);
        }
        let more = of_report.assign_study("topic", &named(&["one", "more"]), &[]);
        assert_ne!(more.style("one"), more.style("more"), "looks repeat, but not within a study");
    }

    #[test]
    fn a_name_keeps_its_look_in_every_study_and_topic() {
        let mut of_report = ReportStyles::default();
        let first = of_report.assign_study("gang", &named(&["other", "gang", "few-spins"]), &[]);
        let second = of_report.assign_study("gang", &named(&["gang", "batch", "more", "few-spins"]), &[]);
        let third = of_report.assign_study("monitor", &named(&["more", "gang", "other"]), &[]);
        for name in ["gang", "few-spins"] {
            assert_eq!(first.style(name), second.style(name), "{name}");
        }
        for (name, before) in [("gang", &first), ("other", &first), ("more", &second)] {
            assert_eq!(before.style(name), third.style(name), "{name}");
        }
        assert_ne!(first.style("other"), second.style("more"), "one look means one variant");
    }

    #[test]
    fn what_is_no_variant_looks_like_none() {
        let styles = ReportStyles::default().assign_study("t", &named(&["gang", "spread", "c"]), &[]);
        for index in 0..20 {
            assert!(
                ["gang", "spread", "c"].iter().all(|name| styles.style(name) != styles.unassigned(index))
            );
        }
        assert_ne!(styles.unassigned(0), styles.unassigned(1));
    }

    #[test]
    fn the_variants_of_a_chart_differ_in_colour_though_the_study_has_more() {
        let names: Vec<String> = (0..24).map(|i| format!("v{i}")).collect();
        // every third variant, and one variant in all charts
        let chart = |first: usize| -> Vec<String> {
            names.iter().skip(first).step_by(3).take(7).chain([&names[23]]).cloned().collect()
        };
        let charts = [chart(0), chart(1), chart(2)];
        let views: Vec<&[String]> = charts.iter().map(Vec::as_slice).collect();
        let variants = named(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let styles = ReportStyles::default().assign_study("t", &variants, &views);
        for chart in &charts {
            let mut classes: Vec<&str> = chart.iter().map(|name| styles.style(name).class).collect();
            classes.sort_unstable();
            classes.dedup();
            assert_eq!(classes.len(), chart.len(), "{chart:?}");
        }
    }
}
