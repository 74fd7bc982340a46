//! A legend above the plot that wraps: marker and name of each series.

use super::style::VariantStyle;
use super::svg::{Anchor, Canvas, MarkerSize};
use super::text::{SIZE, extra_height, width, wrap};

const LINE: f64 = 20.0;
const MARK: f64 = 16.0;
const GAP: f64 = 14.0;

/// Draws the entries from `(left, top)` on. Returns the height used.
pub(crate) fn draw(canvas: &mut Canvas, left: f64, top: f64, entries: &[(VariantStyle, &str)]) -> f64 {
    if entries.is_empty() {
        return 0.0;
    }
    let right = canvas.width();
    let (mut x, mut y) = (left, top + SIZE);
    for (style, name) in entries {
        let name = wrap(name, right - left - MARK, SIZE);
        let room = MARK + name.iter().map(|line| width(line, SIZE)).fold(0.0, f64::max);
        if x > left && x + room > right {
            x = left;
            y += LINE;
        }
        canvas.begin(style.class);
        canvas.marker(style.shape, MarkerSize::Median, (x + 5.0, y - 4.0), "");
        canvas.end();
        canvas.lines("name", (x + MARK, y), Anchor::Start, &name);
        x += room + GAP;
        // a name of several lines takes all of them
        y += extra_height(&name);
    }
    y - top + 10.0
}
