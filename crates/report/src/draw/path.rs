//! The `d` attribute of an SVG path in few bytes: relative coordinates, tenths of a pixel, no optional
//! characters.
//!
//! A page of all studies has more than ten thousand points, so the bytes per point decide the size of the
//! page.

use std::fmt::Write as _;

/// Path data under construction.
#[derive(Debug, Default)]
pub(crate) struct PathData {
    data: String,
    /// The position of the pen, in tenths of a pixel.
    pen: (i64, i64),
    /// The command that further pairs of numbers would continue.
    goes_on: Option<char>,
}

/// Converts to tenths of a pixel; values that are not finite become 0.
fn tenths(value: f64) -> i64 {
    let value = if value.is_finite() { value.clamp(-1e6, 1e6) } else { 0.0 };
    (value * 10.0).round() as i64
}

impl PathData {
    /// Lifts the pen and puts it down at a point.
    pub(crate) fn move_to(&mut self, to: (f64, f64)) {
        let command = if self.data.is_empty() { 'M' } else { 'm' };
        self.go(command, to);
        // further pairs after a move would be lines
        self.goes_on = None;
    }

    pub(crate) fn line_to(&mut self, to: (f64, f64)) {
        let (x, y) = (tenths(to.0), tenths(to.1));
        let (dx, dy) = (x - self.pen.0, y - self.pen.1);
        match (dx, dy) {
            (_, 0) => self.along('h', dx),
            (0, _) => self.along('v', dy),
            _ => self.go('l', to),
        }
        self.pen = (x, y);
    }

    /// Draws a dot at the pen's position: a line without length and with round ends.
    pub(crate) fn dot(&mut self) {
        self.along('h', 0);
    }

    pub(crate) fn close(mut self) -> String {
        self.data.push('z');
        self.data
    }

    pub(crate) fn end(self) -> String {
        self.data
    }

    fn along(&mut self, command: char, by: i64) {
        self.command(command);
        self.number(by);
        self.goes_on = Some(command);
    }

    fn go(&mut self, command: char, to: (f64, f64)) {
        let (x, y) = (tenths(to.0), tenths(to.1));
        self.command(command);
        self.number(x - self.pen.0);
        self.number(y - self.pen.1);
        self.pen = (x, y);
        self.goes_on = Some(command);
    }

    fn command(&mut self, command: char) {
        if self.goes_on != Some(command) {
            self.data.push(command);
        }
    }

    fn number(&mut self, tenths: i64) {
        if tenths >= 0 && self.data.ends_with(|last: char| last.is_ascii_digit()) {
            self.data.push(' ');
        }
        let sign = if tenths < 0 { "-" } else { "" };
        let (whole, rest) = (tenths.unsigned_abs() / 10, tenths.unsigned_abs() % 10);
        // writing to a String cannot fail
        let _infallible = match (whole, rest) {
            (whole, 0) => write!(self.data, "{sign}{whole}"),
            (0, rest) => write!(self.data, "{sign}.{rest}"),
            _ => write!(self.data, "{sign}{whole}.{rest}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_relative_and_rounding_does_not_add_up() {
        let mut path = PathData::default();
        path.move_to((57.24, 326.21));
        path.line_to((93.3, 321.5));
        path.line_to((129.5, 322.04));
        path.line_to((129.5, 300.0));
        path.line_to((140.0, 300.0));
        assert_eq!(path.end(), "M57.2 326.2l36.1-4.7 36.2 .5v-22h10.5");
        let mut path = PathData::default();
        path.move_to((0.0, 0.0));
        for step in 1_i32..=30 {
            path.line_to((f64::from(step) * 0.33, f64::from(step)));
        }
        assert_eq!(path.pen, (99, 300), "30 steps of 0.33 are 9.9");
    }

    #[test]
    fn dots_are_moves_and_lines_without_length() {
        let mut path = PathData::default();
        for point in [(5.0, 5.0), (5.0, 8.5), (f64::NAN, -1.0)] {
            path.move_to(point);
            path.dot();
        }
        assert_eq!(path.end(), "M5 5h0m0 3.5h0m-5-9.5h0");
    }
}
