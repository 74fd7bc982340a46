//! The progress of plans, simulations and measurements that take more than two seconds, on standard error.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

pub(super) struct Slow {
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Slow {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), bar: None }
    }

    /// So many roots of so many are measured; answers whether that is shown for the first time.
    pub(super) fn tell(&mut self, done: usize, all: usize) -> bool {
        let is_first = self.bar.is_none() && self.since.elapsed() > Duration::from_secs(2);
        if is_first {
            let style = ProgressStyle::with_template(
                "planning: {bar:30} root {pos} of {len}, {eta} left; Ctrl-C takes the best so far",
            )
            .expect("the template is valid because it is a constant");
            self.bar = Some(ProgressBar::new(all as u64).with_style(style));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        }
        is_first
    }

    /// So often messages have crossed cables in the simulation of this scheme; nobody knows how often they
    /// will.
    pub(super) fn count(&mut self, scheme: &str, crossings: u64) {
        if self.bar.is_none() && self.since.elapsed() > Duration::from_secs(2) {
            let style =
                ProgressStyle::with_template("simulating {msg}: {human_pos} cables crossed, {elapsed}")
                    .expect("the template is valid because it is a constant");
            self.bar = Some(ProgressBar::no_length().with_style(style));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(scheme.to_owned());
            bar.set_position(crossings);
        }
    }

    /// So many runs of so many are over; the next is of this kind.
    pub(super) fn run(&mut self, done: u32, all: u32, kind: &str) {
        if self.bar.is_none() && self.since.elapsed() > Duration::from_secs(2) {
            let style =
                ProgressStyle::with_template("measuring: {bar:30} run {pos} of {len}, {eta} left; {msg}")
                    .expect("the template is valid because it is a constant");
            self.bar = Some(ProgressBar::new(all.into()).with_style(style));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done.into());
            bar.set_message(kind.to_owned());
        }
    }

    /// Takes the bar away; answers whether there was one.
    pub(super) fn end(self) -> bool {
        let was_shown = self.bar.is_some();
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        was_shown
    }
}
