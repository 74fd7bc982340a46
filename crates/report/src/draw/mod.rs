//! Draws charts: numbers in, SVG out. [`crate::chart_figure`] decides which charts are drawn.
//!
//! One file for each concept: [`scale`] computes positions, [`axis`] labels them, [`text`] keeps labels from
//! overlapping, [`style`] gives each variant a color and a marker, [`svg`] and [`path`] write SVG;
//! [`line`](mod@line), [`strip`], [`bars`] and [`map`] are the charts.

pub(crate) mod axis;
pub(crate) mod bars;
pub(crate) mod legend;
pub(crate) mod line;
pub(crate) mod map;
pub(crate) mod path;
pub(crate) mod scale;
pub(crate) mod strip;
pub(crate) mod style;
pub(crate) mod svg;
pub(crate) mod text;

#[cfg(test)]
mod tests;
