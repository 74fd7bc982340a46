//! Writes SVG: a canvas with a size; text is always escaped, and numbers are always finite.
//!
//! Every chart is drawn twice, for a phone and for a wide window, and the style sheet shows the one that
//! fits. A drawing scaled down from a desk to a phone would be unreadable.

use super::text::LEADING;
use crate::escape::Escaped;
use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewPort {
    /// 360 pixels and a little more.
    Phone,
    /// A tablet, a desk, paper.
    Wide,
}

impl ViewPort {
    /// In the order in which they are in the page.
    pub(crate) const ALL: [ViewPort; 2] = [ViewPort::Phone, ViewPort::Wide];

    pub(crate) fn width(self) -> f64 {
        match self {
            ViewPort::Phone => 328.0,
            ViewPort::Wide => 704.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            ViewPort::Phone => "phone",
            ViewPort::Wide => "wide",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Debug)]
pub(crate) struct Canvas {
    window: ViewPort,
    body: String,
}

/// A coordinate with one decimal, also for values that are not finite.
pub(crate) fn at(value: f64) -> String {
    let value = if value.is_finite() { value.clamp(-1e6, 1e6) } else { 0.0 };
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

impl Canvas {
    pub(crate) fn new(window: ViewPort) -> Self {
        Self { window, body: String::new() }
    }

    pub(crate) fn width(&self) -> f64 {
        self.window.width()
    }

    pub(crate) fn is_phone(&self) -> bool {
        self.window == ViewPort::Phone
    }

    /// A straight line; `class` must be a literal of this crate.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{}" y1="{}" x2="{}" y2="{}"/>"#,
            at(from.0),
            at(from.1),
            at(to.0),
            at(to.1)
        );
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

    /// A line through points; closed and filled if the class says so in the style sheet.
    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)], closed: bool) {
        if points.is_empty() {
            return;
        }
        let fill = if closed { r#"fill-opacity=".1""# } else { r#"fill="none" stroke="currentColor""# };
        let _ = write!(self.body, r#"<path class="{class}" {fill} d=""#);
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(self.body, "{}{} {}", if i == 0 { "M" } else { "L" }, at(*x), at(*y));
        }
        self.body.push_str(if closed { "Z\"/>" } else { "\"/>" });
    }

    pub(crate) fn text(&mut self, class: &str, position: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{}" y="{}"{anchor}>{}</text>"#,
            at(position.0),
            at(position.1),
            Escaped(text)
        );
    }

    /// A marker of the given shape; `says` is shown by browsers when the pointer rests on it.
    /// Lines of a text, the first at `position`.
    pub(crate) fn lines(&mut self, class: &str, position: (f64, f64), anchor: Anchor, lines: &[String]) {
        for (i, line) in lines.iter().enumerate() {
            self.text(class, (position.0, position.1 + i as f64 * LEADING), anchor, line);
        }
    }

    pub(crate) fn marker(
        &mut self,
        class: &str,
        shape: MarkerShape,
        centre: (f64, f64),
        size: f64,
        says: &str,
    ) {
        let _ = write!(self.body, r#"<path class="{class}" d="{}">"#, shape.outline(centre, size));
        if !says.is_empty() {
            let _ = write!(self.body, "<title>{}</title>", Escaped(says));
        }
        self.body.push_str("</path>");
    }

    pub(crate) fn begin(&mut self, class: &str) {
        let _ = write!(self.body, r#"<g class="{class}">"#);
    }

    pub(crate) fn end(&mut self) {
        self.body.push_str("</g>");
    }

    /// `id` is a slug; title and description are for readers who do not see the drawing.
    pub(crate) fn finish(self, height: f64, id: &str, title: &str, description: &str) -> String {
        let class = self.window.class();
        let id = format!("{}-{class}", crate::escape::slug(id));
        format!(
            concat!(
                // the size and the fill below are for readers without the style sheet
                r#"<svg class="chart {class}" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" "#,
                r#"aria-labelledby="{id}-t {id}-d"><title id="{id}-t">{title}</title>"#,
                r#"<desc id="{id}-d">{description}</desc>{body}</svg>"#,
                "\n"
            ),
            class = class,
            width = at(self.window.width()),
            height = at(height),
            id = id,
            title = Escaped(title),
            description = Escaped(description),
            body = self.body
        )
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
    /// Path data of about `size` in radius.
    fn outline(self, (x, y): (f64, f64), size: f64) -> String {
        let polygon = |points: &[(f64, f64)]| {
            let mut data = String::new();
            for (i, (dx, dy)) in points.iter().enumerate() {
                let _ = write!(
                    data,
                    "{}{} {}",
                    if i == 0 { "M" } else { "L" },
                    at(x + dx * size),
                    at(y + dy * size)
                );
            }
            data + "Z"
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
        canvas.marker("dot", MarkerShape::Circle, (5.0, 5.0), 3.0, "run 1 & 2");
        insta::assert_snapshot!(canvas.finish(20.0, "A chart!", "a \"title\"", "what it shows"));
    }
}
