//! Tables that are shown again at every interval, in place on a terminal. `q`, Esc or a signal ends them, and
//! the terminal is then as it was.

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

/// What a live view prints. A terminal shows one table in the place of the one before.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum LiveOutput {
    Table,
    Json,
}

impl LiveViewFlags {
    /// Prints what `text` answers, first after one interval, until somebody ends the view or nobody reads it
    /// any more. The argument of `text` is how many characters a line may have.
    pub(crate) fn show(
        &self,
        output: LiveOutput,
        mut text: impl FnMut(usize) -> anyhow::Result<String>,
    ) -> anyhow::Result<ExitCode> {
        let redraw = output == LiveOutput::Table && !self.once && std::io::stdout().is_terminal();
        // signals are caught before the terminal is changed, so that none ends the program in between
        let keys = if redraw { interrupt::catch().map(|()| Keys::begin())? } else { None };
        while !is_enough(keys.as_ref(), self.interval) {
            let text = text(columns().filter(|_| redraw).unwrap_or(usize::MAX))?;
            if redraw {
                output::start_again()?;
            }
            if !output::is_read(&text)? || self.once {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

const ESCAPE: u8 = 0x1b;

/// Until this is dropped, keys reach the program at once and are not shown. Ctrl-C stays a signal. The caller
/// has to catch it first, because it would end the program and leave the terminal changed.
struct Keys {
    before: Termios,
}

impl Keys {
    /// None if standard input is no terminal, or another process is in its foreground.
    fn begin() -> Option<Self> {
        let before = tcgetattr(stdin()).ok().filter(|_| terminal::is_foreground(stdin()))?;
        let mut single = before.clone();
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // Ctrl-C takes away the keys before it, also one that poll has just announced: a read that waited for
        // it would miss the signal, which has come already
        single.special_codes[SpecialCodeIndex::VMIN] = 0;
        single.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &single).ok()?;
        Some(Self { before })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before); // the terminal may be gone
    }
}

/// Waits until the next reading is due. True if the view was ended meanwhile.
fn is_enough(keys: Option<&Keys>, interval: Duration) -> bool {
    let until = Instant::now() + interval;
    let mut in_vain = false;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if interrupt::caught().is_some() {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        // a signal interrupts both
        if keys.is_none() {
            std::thread::sleep(left);
        } else if poll::readable([stdin()], Some(left)).is_ok_and(|ready| ready == [true]) {
            let mut pressed = [0; 16];
            match rustix::io::read(stdin(), &mut pressed) {
                // a terminal that is gone announces nothing again and again
                Ok(0) if !in_vain => in_vain = true,
                Ok(0) | Err(_) => return true,
                // other keys begin with an Escape, too
                Ok(length) if pressed[..length].ends_with(&[ESCAPE]) || pressed[..length].contains(&b'q') => {
                    return true;
                }
                Ok(_) => in_vain = false,
            }
        }
    }
}

/// The width of the terminal in characters.
fn columns() -> Option<usize> {
    let size = tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
