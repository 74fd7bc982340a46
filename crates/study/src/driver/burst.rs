//! Streams of bursty parallel requests under a regime: the paper's last condition, changing demand.
//!
//! Each program is one stream; the figure is the latency from a request's arrival to its answer.

use super::launch::App;
use super::{Context, NoOutcome, Outcome, figures, pair};
use crate::settings::Settings;

/// The settings this driver reads.
pub const READS: &[&str] = &["threads", "regime", "slice_ms", "mechanism", "others", "bursts_per_s", "burst"];

/// Makes one run.
///
/// # Errors
/// Why there are no figures.
pub fn run(context: Context, settings: &Settings, seconds: f64, seed: u64) -> Result<Outcome, NoOutcome> {
    let settings = Settings { program: Some("burst".into()), ..settings.clone() };
    let mut apps = vec![App::first(context, &settings, seed)?];
    for other in 1..=settings.others.unwrap_or(1) as u64 {
        apps.push(App::other(context, &settings, seed.wrapping_add(other))?);
    }
    let (measured, more) = pair::under(context, &settings, apps, seconds)?;
    let mut outcome = Outcome { figures: Vec::new(), warnings: Vec::new() };
    outcome.figures.extend(measured.iter().flat_map(|m| figures::of_program("", m)));
    outcome.figures.extend(more);
    Ok(outcome)
}
