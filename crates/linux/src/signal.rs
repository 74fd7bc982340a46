//! Signals by name: signal(7).

/// The signals that Unisono sends or forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The terminal went away.
    Hangup,
    Interrupt,
    Quit,
    /// A request to end.
    Terminate,
    /// For the program's own use.
    User1,
    /// For the program's own use.
    User2,
    /// A timer of alarm(2), which also outlives an exec.
    Alarm,
    /// The terminal has another size.
    WindowChange,
    /// Ends a process without its help.
    Kill,
    /// Stops a process.
    Stop,
    Suspend,
    Continue,
}

impl Signal {
    /// What ends, stops or interrupts a process from outside, and can be caught: whoever runs programs for a
    /// user passes these on.
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

    /// The kernel's number.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Signal::Hangup => libc::SIGHUP,
            Signal::Interrupt => libc::SIGINT,
            Signal::Quit => libc::SIGQUIT,
            Signal::Terminate => libc::SIGTERM,
            Signal::User1 => libc::SIGUSR1,
            Signal::User2 => libc::SIGUSR2,
            Signal::Alarm => libc::SIGALRM,
            Signal::WindowChange => libc::SIGWINCH,
            Signal::Kill => libc::SIGKILL,
            Signal::Stop => libc::SIGSTOP,
            Signal::Suspend => libc::SIGTSTP,
            Signal::Continue => libc::SIGCONT,
        }
    }
}
