//! Drawing, without knowing what: numbers in, SVG out. What is drawn is decided in [`crate::figure`].
//!
//! One file per concept: [`scale`] places values, [`axis`] labels them, [`text`] keeps labels apart,
//! [`look`] tells variants apart, [`svg`] writes; [`line`], [`strip`] and [`bars`] are the charts.

pub(crate) mod axis;
pub(crate) mod bars;
pub(crate) mod legend;
pub(crate) mod line;
pub(crate) mod look;
pub(crate) mod scale;
pub(crate) mod strip;
pub(crate) mod svg;
pub(crate) mod text;

#[cfg(test)]
mod tests;
