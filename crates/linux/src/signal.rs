//! Signals by name: signal(7).

/// The signals that Unisono sends or forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The terminal was closed.
    Hangup,
    Interrupt,
    Quit,
    Terminate,
    /// For the program's own use.
    User1,
    /// For the program's own use.
    User2,
    /// A timer of alarm(2), which also survives an exec.
    Alarm,
    /// The terminal has another size.
    WindowChange,
    /// Ends a process without its cooperation.
    Kill,
    Stop,
    Suspend,
    Continue,
}

impl Signal {
    /// The signals that end, stop or interrupt a process from outside and can be caught. A program that runs
    /// other programs for a user passes these signals on.
    pub const FROM_OUTSIDE: [Signal; 10] = [
        Signal::Interrupt,
        Signal::Terminate,
        Signal::Hangup,
        Signal::Quit,
        Signal::User1,
        Signal::User2,
        Signal::Alarm,
        Signal::WindowChange,
        Signal::Suspend,
        Signal::Continue,
    ];

    pub(crate) fn named(self) -> rustix::process::Signal {
        use rustix::process::Signal as Named;
        match self {
            Signal::Hangup => Named::HUP,
            Signal::Interrupt => Named::INT,
            Signal::Quit => Named::QUIT,
            Signal::Terminate => Named::TERM,
            Signal::User1 => Named::USR1,
            Signal::User2 => Named::USR2,
            Signal::Alarm => Named::ALARM,
            Signal::WindowChange => Named::WINCH,
            Signal::Kill => Named::KILL,
            Signal::Stop => Named::STOP,
            Signal::Suspend => Named::TSTP,
            Signal::Continue => Named::CONT,
        }
    }

    pub fn number(self) -> i32 {
        self.named().as_raw()
    }
}
