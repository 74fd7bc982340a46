//! Tables that are printed again at every interval, in place on a terminal. `q`, Esc or a signal ends them,
//! and the terminal then has its earlier settings.

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
    once: bool,
    /// The time between two readings
    #[arg(long, default_value = "1s", value_parser = units::duration)]
    interval: Duration,
}

/// The form of a live view. On a terminal, each table replaces the one before.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum LiveOutput {
    Table,
    Json,
}

impl LiveViewFlags {
    /// Prints the results of `table`, first after one interval, until the user ends the view or the reader
    /// closes the output. `table` gets the maximum number of characters in a line.
    pub(crate) fn show(
        &self,
        output: LiveOutput,
        mut table: impl FnMut(usize) -> anyhow::Result<String>,
    ) -> anyhow::Result<ExitCode> {
        let redraw = output == LiveOutput::Table && !self.once && std::io::stdout().is_terminal();
        // signals are caught before the terminal is changed, so that no signal ends the program in between
        let keys = if redraw { interrupt::catch().map(|()| KeyInput::start())? } else { None };
        while !wait_for_end(keys.as_ref(), self.interval) {
            let table = table(terminal_columns().filter(|_| redraw).unwrap_or(usize::MAX))?;
            if redraw {
                output::clear_screen()?;
            }
            if !output::is_read(&table)? || self.once {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

const ESCAPE: u8 = 0x1b;

/// Until this is dropped, keys reach the program at once and are not echoed. Ctrl-C stays a signal. The
/// caller must catch it first, because it would end the program and leave the terminal changed.
struct KeyInput {
    before: Termios,
}

impl KeyInput {
    /// `None` if standard input is no terminal, or if this process is not in the terminal's foreground.
    fn start() -> Option<Self> {
        let before = tcgetattr(stdin()).ok().filter(|_| terminal::is_foreground(stdin()))?;
        let mut single = before.clone();
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // Ctrl-C discards earlier keys, including a key that poll has just announced: a blocking read would
        // then wait on, although the signal has already come
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

/// Waits until the next reading is due. Returns true if the view was ended meanwhile.
fn wait_for_end(keys: Option<&KeyInput>, interval: Duration) -> bool {
    let until = Instant::now() + interval;
    let mut was_empty = false;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if interrupt::caught().is_some() {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        // a signal interrupts both waits
        if keys.is_none() {
            std::thread::sleep(left);
        } else if poll::readable([stdin()], Some(left)).is_ok_and(|ready| ready == [true]) {
            let mut pressed = [0; 16];
            match rustix::io::read(stdin(), &mut pressed) {
                // a closed terminal is readable again and again, but has no bytes
                Ok(0) if !was_empty => was_empty = true,
                Ok(0) | Err(_) => return true,
                // sequences of other keys begin with an Escape, too
                Ok(length) if pressed[..length].ends_with(&[ESCAPE]) || pressed[..length].contains(&b'q') => {
                    return true;
                }
                Ok(_) => was_empty = false,
            }
        }
    }
}

/// The width of the terminal in characters.
fn terminal_columns() -> Option<usize> {
    let size = tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|terminal_columns| *terminal_columns > 0)
}
