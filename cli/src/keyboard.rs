//! What ends a live view: `q`, Esc, or a signal. The terminal is as before afterwards.

use rustix::stdio::{stdin, stdout};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::time::{Duration, Instant};
use unisono_linux::{interrupt, poll, terminal};

const ESCAPE: u8 = 0x1b;

/// Keys reach this program at once and are not shown, until this is dropped. Ctrl-C stays a signal, which has
/// to be caught before: it would end the program with the terminal as it is now.
pub(crate) struct Keys {
    before: Termios,
}

impl Keys {
    /// None: standard input is no terminal, or others are in the foreground of it.
    pub(crate) fn begin() -> Option<Self> {
        let before = tcgetattr(stdin()).ok().filter(|_| terminal::is_foreground(stdin()))?;
        let mut single = before.clone();
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(stdin(), OptionalActions::Now, &single).ok()?;
        Some(Self { before })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before); // the terminal may be gone
    }
}

/// Waits until the next reading is due; whether somebody has ended the view meanwhile.
pub(crate) fn is_enough(keys: Option<&Keys>, interval: Duration) -> bool {
    let until = Instant::now() + interval;
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
                // the terminal is gone
                Ok(0) | Err(_) => return true,
                // other keys begin with an Escape, too
                Ok(length) if pressed[..length].ends_with(&[ESCAPE]) || pressed[..length].contains(&b'q') => {
                    return true;
                }
                Ok(_) => {}
            }
        }
    }
}

/// How many characters a line of the terminal has that standard output is.
pub(crate) fn columns() -> Option<usize> {
    let size = tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
