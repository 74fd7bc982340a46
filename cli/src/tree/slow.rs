//! Shows on standard error the progress of plans, simulations and measurements that take more than two
//! seconds.

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

    /// Shows that `done` of `all` roots are measured. Returns true if the bar has just appeared.
    pub(super) fn planning(&mut self, done: usize, all: usize) -> bool {
        let template = "planning: {bar:30} root {pos} of {len}, {eta} left; Ctrl-C takes the best so far";
        self.show(template, done as u64, Some(all as u64), "")
    }

    /// Shows that messages have made `hops` hops in the simulation of this scheme. The total is unknown.
    pub(super) fn count(&mut self, scheme: &str, hops: u64) {
        self.show("simulating {msg}: {human_pos} hops, {elapsed}", hops, None, scheme);
    }

    /// Shows that `done` of `all` runs are over, and that the next run is of this kind.
    pub(super) fn run(&mut self, done: u32, all: u32, kind: &str) {
        let template = "measuring: {bar:30} run {pos} of {len}, {eta} left; {msg}";
        self.show(template, done.into(), Some(all.into()), kind);
    }

    fn show(&mut self, template: &str, position: u64, length: Option<u64>, message: &str) -> bool {
        let is_first = self.bar.is_none() && self.since.elapsed() > Duration::from_secs(2);
        if is_first {
            let style = ProgressStyle::with_template(template)
                .expect("the template is valid because it is a constant of this file");
            self.bar = Some(ProgressBar::no_length().with_style(style));
        }
        if let Some(bar) = &self.bar {
            if let Some(length) = length {
                bar.set_length(length);
            }
            bar.set_position(position);
            bar.set_message(message.to_owned());
        }
        is_first
    }

    /// Removes the bar. Returns true if there was one.
    pub(super) fn end(self) -> bool {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.bar.is_some()
    }
}
