//! Tables that are printed again at every interval, in place on a terminal: below a title with host and time,
//! and above a line that explains the keys. `q`, Esc or a signal ends the view, and the terminal then gets
//! its earlier settings back; `h` and `?` explain the columns. No colors are used, whether or not NO_COLOR is
//! set.

use crate::columns::{cut, fold};
use crate::machine_output::TableForm;
use crate::output;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_linux::{interrupt, poll, terminal};
use unisono_measure::units;

#[derive(clap::Args)]
pub(crate) struct LiveViewFlags {
    /// Print one table and end
    #[arg(long)]
    pub(crate) once: bool,
    /// The time between two readings
    #[arg(long, default_value = "1s", value_parser = units::duration)]
    interval: Duration,
}

/// The words around a live view.
pub(crate) struct LiveViewText {
    /// The command.
    pub(crate) title: &'static str,
    /// The meaning of the columns.
    pub(crate) help: &'static str,
}

impl LiveViewFlags {
    /// Prints the results of `table`, the first one after one interval, until the user ends the view or the
    /// reader closes the output. `table` is called with the maximum number of characters in a line.
    pub(crate) fn show(
        &self,
        output: TableForm,
        text: &LiveViewText,
        mut table: impl FnMut(usize) -> anyhow::Result<String>,
    ) -> anyhow::Result<ExitCode> {
        let is_terminal = output == TableForm::Text && std::io::stdout().is_terminal();
        let redraw = is_terminal && !self.once;
        // signals are caught before the terminal's settings change, so that no signal ends the program while
        // they are changed
        let keys = if redraw { interrupt::catch().map(|()| KeyInput::start())? } else { None };
        let (mut shown, mut shows_help) = (String::new(), false);
        let mut due = Instant::now() + self.interval;
        loop {
            match wait_for_event(keys.as_ref(), due) {
                ViewEvent::End => break,
                ViewEvent::Help => shows_help = !shows_help,
                ViewEvent::Due => {
                    due = Instant::now() + self.interval;
                    shown = table(if output == TableForm::Text { table_width() } else { usize::MAX })?;
                }
            }
            let is_read = if redraw {
                output::clear_screen()?;
                let body = if shows_help { text.help } else { &shown };
                let size = terminal_size().unwrap_or((80, 24));
                output::is_read(&frame(&title(text.title), body, self.interval, size))?
            } else {
                output::is_read(&shown)?
            };
            if !is_read || self.once || output == TableForm::Csv {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the number of characters that a line of standard output may have: the width of its terminal, or
/// the number in COLUMNS; elsewhere any number, so that programs get whole lines.
pub(crate) fn table_width() -> usize {
    let set = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
    let own = || terminal_size().map(|(columns, _)| columns);
    let own = if std::io::stdout().is_terminal() { own() } else { None };
    own.or_else(set).unwrap_or(usize::MAX)
}

/// Returns the number of lines that fit a terminal below a title and above the line that explains the keys;
/// any number elsewhere.
pub(crate) fn body_rows() -> usize {
    let rows = || terminal_size().map_or(usize::MAX, |(_, rows)| body_room(rows));
    if std::io::stdout().is_terminal() { rows() } else { usize::MAX }
}

fn body_room(rows: usize) -> usize {
    rows.saturating_sub(4).max(1)
}

/// Returns the title: the command, the host and the time.
fn title(command: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{command}   {}   {}", host.trim(), jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S"))
}

/// Returns a screen of `columns` times `rows` characters: title, body, and the line that explains the keys.
/// The last row stays empty, because a line end there would scroll the screen.
fn frame(title: &str, body: &str, interval: Duration, (columns, rows): (usize, usize)) -> String {
    let keys = format!("q quit   h help   every {:.1} s", interval.as_secs_f64());
    let body = fold(body.trim_end(), columns);
    let lines: Vec<&str> = body.lines().collect();
    let room = body_room(rows);
    let mut screen = vec![cut(title, columns)];
    if lines.len() > room {
        let kept = room.saturating_sub(1);
        screen.extend(lines[..kept].iter().map(|line| (*line).to_owned()));
        screen.push(cut(
            &format!("({} more lines; the terminal has {rows} rows)", lines.len() - kept),
            columns,
        ));
    } else {
        screen.extend(lines.iter().map(|line| (*line).to_owned()));
    }
    screen.extend([String::new(), cut(&keys, columns)]);
    screen.join("\n")
}

const ESCAPE: u8 = 0x1b;

/// A terminal that delivers each key at once and does not echo it, until this is dropped. Ctrl-C still sends
/// its signal. The caller must catch that signal first; otherwise it would end the program and leave the
/// terminal's settings changed.
struct KeyInput {
    before: Termios,
}

impl KeyInput {
    /// Changes the terminal's settings. Returns `None` if standard input is no terminal, or if this process
    /// is not in the terminal's foreground.
    fn start() -> Option<Self> {
        let before = tcgetattr(stdin()).ok().filter(|_| terminal::is_foreground(stdin()))?;
        let mut single = before.clone();
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // The read must not block: Ctrl-C discards earlier keys, including a key that poll has just
        // announced, and a blocking read would then wait although the signal has already arrived.
        single.special_codes[SpecialCodeIndex::VMIN] = 0;
        single.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &single).ok()?;
        Some(Self { before })
    }
}

impl Drop for KeyInput {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before); // the terminal may be gone
    }
}

/// Why the wait ended: the view is drawn again, or ends.
#[derive(Debug, PartialEq)]
enum ViewEvent {
    /// The next reading is due.
    Due,
    Help,
    End,
}

/// Waits until the next reading is due at `until`, or until a key or a signal ends the wait.
fn wait_for_event(keys: Option<&KeyInput>, until: Instant) -> ViewEvent {
    let mut was_empty = false;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if interrupt::caught().is_some() {
            return ViewEvent::End;
        }
        if left.is_zero() {
            return ViewEvent::Due;
        }
        // both waits below return when a signal arrives
        if keys.is_none() {
            // unlike std::thread::sleep, poll returns when a signal arrives
            if poll::readable([], Some(left)).is_err() {
                return ViewEvent::End;
            }
        } else if poll::readable([stdin()], Some(left)).is_ok_and(|ready| ready == [true]) {
            let mut pressed = [0; 16];
            match rustix::io::read(stdin(), &mut pressed) {
                // a closed terminal is always readable and delivers no bytes, so two empty reads in a row
                // mean the end
                Ok(0) if !was_empty => was_empty = true,
                Ok(0) | Err(_) => return ViewEvent::End,
                // other keys send sequences that begin with an Escape; only the key Esc ends with one
                Ok(length) if pressed[..length].ends_with(&[ESCAPE]) || pressed[..length].contains(&b'q') => {
                    return ViewEvent::End;
                }
                Ok(length) if pressed[..length].iter().any(|key| matches!(key, b'h' | b'?')) => {
                    return ViewEvent::Help;
                }
                Ok(_) => was_empty = false,
            }
        }
    }
}

/// Returns the columns and rows of the terminal. It is read before each frame, so that the next frame fits a
/// terminal that was resized.
fn terminal_size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(stdout()).ok()?;
    Some((usize::from(size.ws_col), usize::from(size.ws_row)))
        .filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_its_terminal_and_names_the_keys() {
        let body =
            "a line that is longer than some terminals are wide, and that has several words\n".repeat(40);
        for (columns, rows) in [(80, 24), (40, 10), (200, 60), (20, 4)] {
            let frame = frame(&title("unisono gang top"), &body, Duration::from_millis(500), (columns, rows));
            let lines: Vec<&str> = frame.lines().collect();
            assert!(lines.len() < rows.max(5), "{columns} x {rows}:\n{frame}");
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{columns} x {rows}:\n{frame}");
            assert!(
                lines[0].starts_with("unisono gang top")
                    && lines.last().is_some_and(|keys| keys.starts_with("q quit"))
            );
            assert!(!frame.contains('\u{1b}'), "no colors");
        }
        let short = frame("t", "one\ntwo", Duration::from_secs(1), (80, 24));
        assert_eq!(short, "t\none\ntwo\n\nq quit   h help   every 1.0 s");
    }
}
