//! Writes SVG: a canvas with a size. Text is always escaped, and numbers are always finite.
//!
//! A chart that is visible at once is drawn twice, for a phone and for a wide window, and the style sheet
//! shows the drawing that fits. A drawing scaled down from a desktop screen to a phone would be unreadable. A
//! folded chart is drawn once, at the width of a phone, because most of a page's bytes are such charts.

use super::path::PathData;
use super::text::LEADING;
use crate::escape::Escaped;
use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewPort {
    /// A screen at least 360 pixels wide.
    Phone,
    /// A tablet, a desktop screen, paper.
    Wide,
    Folded,
}

impl ViewPort {
    /// The drawings of a chart that is visible at once, in their order in the page.
    pub(crate) const OF_OPEN: [ViewPort; 2] = [ViewPort::Phone, ViewPort::Wide];

    pub(crate) fn width(self) -> f64 {
        match self {
            ViewPort::Phone | ViewPort::Folded => 328.0,
            ViewPort::Wide => 704.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            ViewPort::Phone => "phone",
            ViewPort::Wide => "wide",
            ViewPort::Folded => "folded",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Average,
    End,
}

impl Anchor {
    fn attribute(self) -> &'static str {
        match self {
            Anchor::Start => "",
            Anchor::Average => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Canvas {
    window: ViewPort,
    body: String,
}

/// Returns a coordinate with one decimal; values that are not finite become 0.
pub(crate) fn at(value: f64) -> String {
    let value = if value.is_finite() { value.clamp(-1e6, 1e6) } else { 0.0 };
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// The two ends of a straight line.
pub(crate) type Stroke = ((f64, f64), (f64, f64));

impl Canvas {
    pub(crate) fn new(window: ViewPort) -> Self {
        Self { window, body: String::new() }
    }

    pub(crate) fn width(&self) -> f64 {
        self.window.width()
    }

    pub(crate) fn is_narrow(&self) -> bool {
        self.window != ViewPort::Wide
    }

    /// Draws a straight line; `class` must be a literal of this crate.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.strokes(class, &[(from, to)]);
    }

    /// Draws straight lines of one class.
    pub(crate) fn strokes(&mut self, class: &str, lines: &[Stroke]) {
        if lines.is_empty() {
            return;
        }
        let mut path = PathData::default();
        for (from, to) in lines {
            path.move_to(*from);
            path.line_to(*to);
        }
        let _ = write!(self.body, r#"<path class="{class}" d="{}"/>"#, path.end());
    }

    pub(crate) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{}" y="{}" width="{}" height="{}"/>"#,
            at(corner.0),
            at(corner.1),
            at(size.0.max(0.0)),
            at(size.1.max(0.0))
        );
    }

    /// Draws a line through points; the style sheet fills a closed line.
    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)], closed: bool) {
        if points.is_empty() {
            return;
        }
        let fill = if closed { r#"fill-opacity=".1""# } else { r#"fill="none" stroke="currentColor""# };
        let _ = write!(self.body, r#"<path class="{class}" {fill} d=""#);
        let mut path = PathData::default();
        for (i, point) in points.iter().enumerate() {
            if i == 0 { path.move_to(*point) } else { path.line_to(*point) }
        }
        self.body.push_str(&if closed { path.close() } else { path.end() });
        self.body.push_str("\"/>");
    }

    /// Draws small round dots of one class.
    pub(crate) fn dots(&mut self, points: &[(f64, f64)]) {
        let mut path = PathData::default();
        for point in points {
            path.move_to(*point);
            path.dot();
        }
        let _ = write!(self.body, r#"<path class="dots" d="{}"/>"#, path.end());
    }

    pub(crate) fn text(&mut self, class: &str, position: (f64, f64), anchor: Anchor, text: &str) {
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{}" y="{}"{}>{}</text>"#,
            at(position.0),
            at(position.1),
            anchor.attribute(),
            Escaped(text)
        );
    }

    /// Starts a group of texts of one class and anchor, until [`Canvas::end`].
    pub(crate) fn begin_texts(&mut self, class: &str, anchor: Anchor) {
        let _ = write!(self.body, r#"<g class="{class}"{}>"#, anchor.attribute());
    }

    pub(crate) fn text_of_group(&mut self, position: (f64, f64), text: &str) {
        let (x, y) = (at(position.0), at(position.1));
        let _ = write!(self.body, r#"<text x="{x}" y="{y}">{}</text>"#, Escaped(text));
    }

    /// Writes the lines of a text, the first at `position`.
    pub(crate) fn lines(&mut self, class: &str, position: (f64, f64), anchor: Anchor, lines: &[String]) {
        for (i, line) in lines.iter().enumerate() {
            self.text(class, (position.0, position.1 + i as f64 * LEADING), anchor, line);
        }
    }

    /// Draws a marker of the given shape. On a wide page, browsers show `format_value` when the pointer rests
    /// on the marker. The page holds the shape itself once ([`marks`]).
    pub(crate) fn marker(
        &mut self,
        shape: MarkerShape,
        size: MarkerSize,
        centre: (f64, f64),
        format_value: &str,
    ) {
        let (x, y) = (at(centre.0), at(centre.1));
        let class = match size {
            MarkerSize::Run => r#" class="run""#,
            MarkerSize::Median => "",
        };
        let _ = write!(self.body, r##"<use{class} href="#{}" x="{x}" y="{y}""##, size.id(shape));
        if format_value.is_empty() || self.window != ViewPort::Wide {
            self.body.push_str("/>");
        } else {
            let _ = write!(self.body, "><title>{}</title></use>", Escaped(format_value));
        }
    }

    /// Draws the outline of a marker, larger than the markers of runs.
    pub(crate) fn outline(&mut self, class: &str, shape: MarkerShape, centre: (f64, f64), size: f64) {
        let _ = write!(self.body, r#"<path class="{class}" d="{}"/>"#, shape.outline(centre, size));
    }

    pub(crate) fn begin(&mut self, class: &str) {
        let _ = write!(self.body, r#"<g class="{class}">"#);
    }

    pub(crate) fn end(&mut self) {
        self.body.push_str("</g>");
    }

    /// Completes the drawing. `id` becomes a slug; title and description are for screen readers. If a chart
    /// is drawn twice, the phone's drawing holds both, and the wide drawing refers to them.
    pub(crate) fn finish(self, height: f64, id: &str, title: &str, description: &str) -> String {
        let id = crate::escape::slug(id);
        let spoken = if self.is_narrow() {
            let (title, description) = (Escaped(title), Escaped(description));
            format!(r#"<title id="{id}-t">{title}</title><desc id="{id}-d">{description}</desc>"#)
        } else {
            String::new()
        };
        format!(
            concat!(
                // the size is for browsers without the style sheet
                r#"<svg class="chart {class}" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" "#,
                r#"aria-labelledby="{id}-t {id}-d">{spoken}{body}</svg>"#,
                "\n"
            ),
            class = self.window.class(),
            width = at(self.window.width()),
            height = at(height),
            id = id,
            spoken = spoken,
            body = self.body
        )
    }
}

/// Defines all markers. A page has the definitions once, before its first drawing.
pub(crate) fn marks() -> String {
    let mut marks = String::from(r#"<svg class="marks" width="0" height="0" aria-hidden="true"><defs>"#);
    for size in [MarkerSize::Run, MarkerSize::Median] {
        for shape in MarkerShape::ALL {
            let outline = shape.outline((0.0, 0.0), size.radius());
            let _ = write!(marks, r#"<path id="{}" d="{outline}"/>"#, size.id(shape));
        }
    }
    marks + "</defs></svg>"
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerSize {
    /// The marker of a run.
    Run,
    /// The marker of a median, also used in legends.
    Median,
}

impl MarkerSize {
    fn radius(self) -> f64 {
        match self {
            MarkerSize::Run => 3.2,
            MarkerSize::Median => 4.0,
        }
    }

    /// Returns an id that no slug can equal, because slugs have no underscore.
    fn id(self, shape: MarkerShape) -> String {
        let size = match self {
            MarkerSize::Run => "r",
            MarkerSize::Median => "m",
        };
        format!("_{size}{}", shape as usize)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerShape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Drop,
    Plus,
    Hexagon,
    Cross,
}

impl MarkerShape {
    pub(crate) const ALL: [MarkerShape; 8] = [
        MarkerShape::Circle,
        MarkerShape::Square,
        MarkerShape::Triangle,
        MarkerShape::Diamond,
        MarkerShape::Drop,
        MarkerShape::Plus,
        MarkerShape::Hexagon,
        MarkerShape::Cross,
    ];

    /// Returns path data with a radius of about `size`.
    fn outline(self, (x, y): (f64, f64), size: f64) -> String {
        let polygon = |points: &[(f64, f64)]| {
            let mut path = PathData::default();
            for (i, (dx, dy)) in points.iter().enumerate() {
                let corner = (x + dx * size, y + dy * size);
                if i == 0 { path.move_to(corner) } else { path.line_to(corner) }
            }
            path.close()
        };
        match self {
            MarkerShape::Circle => {
                format!(
                    "M{} {}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z",
                    at(x - size),
                    at(y),
                    r = at(size),
                    d = at(2.0 * size)
                )
            }
            MarkerShape::Square => polygon(&[(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)]),
            MarkerShape::Triangle => polygon(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
            MarkerShape::Drop => polygon(&[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)]),
            MarkerShape::Diamond => polygon(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]),
            MarkerShape::Hexagon => {
                polygon(&[(-0.55, -1.0), (0.55, -1.0), (1.1, 0.0), (0.55, 1.0), (-0.55, 1.0), (-1.1, 0.0)])
            }
            MarkerShape::Plus => polygon(&[
                (-0.4, -1.15),
                (0.4, -1.15),
                (0.4, -0.4),
                (1.15, -0.4),
                (1.15, 0.4),
                (0.4, 0.4),
                (0.4, 1.15),
                (-0.4, 1.15),
                (-0.4, 0.4),
                (-1.15, 0.4),
                (-1.15, -0.4),
                (-0.4, -0.4),
            ]),
            MarkerShape::Cross => polygon(&[
                (-1.1, -0.55),
                (-0.55, -1.1),
                (0.0, -0.55),
                (0.55, -1.1),
                (1.1, -0.55),
                (0.55, 0.0),
                (1.1, 0.55),
                (0.55, 1.1),
                (0.0, 0.55),
                (-0.55, 1.1),
                (-1.1, 0.55),
                (-0.55, 0.0),
            ]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_says_what_it_is_and_escapes_what_it_says() {
        let mut canvas = Canvas::new(ViewPort::Phone);
        canvas.text("tick", (1.0, f64::NAN), Anchor::End, "<script>");
        canvas.marker(MarkerShape::Circle, MarkerSize::Median, (5.0, 5.0), "run 1 & 2");
        insta::assert_snapshot!(canvas.finish(20.0, "A chart!", "a \"title\"", "what it shows"));
    }
}
