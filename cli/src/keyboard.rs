//! Ends a live view by `q`, Esc or a signal, and restores the terminal.

use rustix::stdio::{stdin, stdout};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::time::{Duration, Instant};
use unisono_linux::{interrupt, poll, terminal};

const ESCAPE: u8 = 0x1b;

/// Until this is dropped, keys reach the program at once and are not shown. Ctrl-C stays a signal. The caller
/// has to catch it first, because it would end the program and leave the terminal changed.
pub(crate) struct Keys {
    before: Termios,
}

impl Keys {
    /// None if standard input is no terminal, or another process is in its foreground.
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

/// Waits until the next reading is due. True if the view was ended meanwhile.
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

/// The width of the terminal in characters.
pub(crate) fn columns() -> Option<usize> {
    let size = tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
