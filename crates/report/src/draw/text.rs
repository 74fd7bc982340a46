//! Estimates the width of texts, and fits texts into a width.
//!
//! The reader's system font is unknown when the chart is drawn. Widths are therefore computed for DejaVu
//! Sans, the widest common system font, so texts that do not overlap in DejaVu Sans do not overlap in other
//! fonts.

/// Font size of ticks and labels, in pixels.
pub(crate) const SIZE: f64 = 12.0;

/// Returns an upper estimate of a text's width in pixels.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

/// Returns an upper estimate of the width of a text in bold.
pub(crate) fn bold(text: &str, size: f64) -> f64 {
    width(text, size * 1.14)
}

fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' => 0.28,
        ' ' | '\u{a0}' | '.' | ',' | ':' | ';' | '|' | '/' | 'I' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '-' | '[' | ']' | '"' | '!' => 0.42,
        's' | 'z' | 'c' | 'J' => 0.56,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.99,
        '+' | '<' | '>' | '=' | '\u{d7}' | '~' | '\u{2212}' => 0.84,
        'A'..='Z' => 0.76,
        'a'..='z' | '0'..='9' => 0.64,
        c if c.is_ascii() => 0.7,
        _ => 1.05,
    }
}

/// Distance between the baselines of a text's lines, in pixels.
pub(crate) const LEADING: f64 = 13.0;

/// Splits a text into lines of at most `room` pixels, at least one line. Nothing is left out: a word longer
/// than a line continues in the next line.
pub(crate) fn wrap(text: &str, room: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split([' ', '\n', '\t']).filter(|word| !word.is_empty()) {
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if width(&longer, size) <= room {
            line = longer;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            let is_full = !line.is_empty() && width(&line, size) + em(c) * size > room;
            if is_full {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.push(line);
    lines
}

/// Returns the height of all lines after the first.
pub(crate) fn extra_height(lines: &[String]) -> f64 {
    lines.len().saturating_sub(1) as f64 * LEADING
}

/// Moves positions apart so that neighbors are at least `gap` from each other. They stay within `low..=high`
/// as far as there is room, keep their order, and move as little as possible.
pub(crate) fn spread_positions(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // blocks of touching labels: (first in order, count, center); overlapping blocks merge
    let mut blocks: Vec<(usize, usize, f64)> = Vec::new();
    for (at, index) in order.iter().enumerate() {
        let mut block = (at, 1usize, clamp_block(wanted[*index], 1, gap, low, high));
        while let Some(last) = blocks.last().copied() {
            let half = |count: usize| (count as f64) * gap / 2.0;
            if last.2 + half(last.1) <= block.2 - half(block.1) {
                break;
            }
            blocks.pop();
            let count = last.1 + block.1;
            let centre = (last.2 * last.1 as f64 + block.2 * block.1 as f64) / count as f64;
            block = (last.0, count, clamp_block(centre, count, gap, low, high));
        }
        blocks.push(block);
    }
    let mut placed = vec![0.0; wanted.len()];
    for (first, count, centre) in blocks {
        for i in 0..count {
            placed[order[first + i]] = centre + (i as f64 - (count as f64 - 1.0) / 2.0) * gap;
        }
    }
    placed
}

fn clamp_block(centre: f64, count: usize, gap: f64, low: f64, high: f64) -> f64 {
    let half = (count as f64 - 1.0) * gap / 2.0;
    if low + half <= high - half { centre.clamp(low + half, high - half) } else { low + half }
}

/// Chooses labels that do not overlap. `labels` are ascending pairs of center and width; the first label is
/// kept, then each label that starts at least `gap` after the last kept one.
pub(crate) fn visible_labels(labels: &[(f64, f64)], gap: f64) -> Vec<bool> {
    let mut end = f64::NEG_INFINITY;
    labels
        .iter()
        .map(|(centre, width)| {
            let free = centre - width / 2.0 >= end + gap;
            if free {
                end = centre + width / 2.0;
            }
            free || end == f64::NEG_INFINITY
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_that_do_not_touch_stay_where_they_are() {
        assert_eq!(spread_positions(&[10.0, 50.0, 90.0], 14.0, 0.0, 100.0), [10.0, 50.0, 90.0]);
    }

    #[test]
    fn labels_that_touch_move_apart_evenly() {
        assert_eq!(spread_positions(&[50.0, 50.0], 14.0, 0.0, 100.0), [43.0, 57.0]);
        assert_eq!(spread_positions(&[2.0, 1.0], 10.0, 0.0, 100.0), [10.0, 0.0]);
    }

    #[test]
    fn a_long_text_goes_on_in_the_next_line() {
        assert_eq!(wrap("plain Linux", 500.0, SIZE), ["plain Linux"]);
        assert_eq!(wrap("one two three", 60.0, SIZE), ["one two", "three"]);
        assert_eq!(wrap("pthread_barrier", 60.0, SIZE).concat(), "pthread_barrier", "a word of many lines");
        assert_eq!(wrap("", 60.0, SIZE), [""]);
    }

    proptest! {
        #[test]
        fn labels_never_overlap_and_keep_their_order(
            wanted in proptest::collection::vec(-50f64..400.0, 0..12),
        ) {
            let placed = spread_positions(&wanted, 14.0, 0.0, 300.0);
            for a in 0..wanted.len() {
                prop_assert!((-0.001..=300.001).contains(&placed[a]), "{placed:?}");
                for b in 0..a {
                    prop_assert!((placed[a] - placed[b]).abs() >= 13.999, "{wanted:?} {placed:?}");
                    if wanted[a] < wanted[b] {
                        prop_assert!(placed[a] < placed[b]);
                    }
                }
            }
        }

        #[test]
        fn thinned_labels_do_not_overlap(
            mut labels in proptest::collection::vec((0f64..300.0, 1f64..60.0), 1..12),
        ) {
            labels.sort_by(|a, b| a.0.total_cmp(&b.0));
            let kept: Vec<_> =
                labels.iter().zip(visible_labels(&labels, 6.0)).filter(|(_, keep)| *keep).map(|(label, _)| label).collect();
            prop_assert!(!kept.is_empty());
            for pair in kept.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 / 2.0 + 5.99 <= pair[1].0 - pair[1].1 / 2.0);
            }
        }

        #[test]
        fn wrapped_lines_fit_and_leave_nothing_out(text in "[^\\s]{0,40}( [^\\s]{1,30}){0,9}", room in 30f64..300.0) {
            let lines = wrap(&text, room, SIZE);
            prop_assert!(lines.iter().all(|line| width(line, SIZE) <= room));
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
