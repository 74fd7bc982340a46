//! `unisono queue show`: what each class gets, live.

use super::{failure, units};
use crate::exit::Failure;
use crate::output;
use serde_json::json;
use std::fmt::Write;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use unisono_enforce::Place;
use unisono_enforce::journal::Journal;
use unisono_fairqueue::{Live, LiveClass, Pace};
use unisono_measure::units::duration;

/// Watch what each class gets: rates, shares, drops, what waits
///
/// Two readings give rates; a new table every interval until Ctrl-C, in place on a terminal. The kernel does not say how long
/// packets wait: its column is empty there.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue show --dev eth0
  unisono queue show --dev eth0 --once            one table
  unisono queue show --dev eth0 --json            JSON Lines, one object an interval")]
pub(crate) struct Args {
    /// The device; may be left out where only one has a policy
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
    /// One table instead of one after the other
    #[arg(long)]
    once: bool,
    /// Between two readings
    #[arg(long, default_value = "1s", value_parser = duration)]
    interval: Duration,
    /// JSON: what each class has got and gets now
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let device = match &args.dev {
        Some(device) => device.clone(),
        None => the_only_one()?,
    };
    let mut place = Place::of(&device).map_err(failure::of)?;
    let mut read = || {
        let live = place.live();
        failure::warn(place.notes());
        live.map_err(failure::of)
    };
    let mut earlier = read()?;
    let redraw = !args.json && !args.once && std::io::stdout().is_terminal();
    loop {
        std::thread::sleep(args.interval);
        let live = read()?;
        let paces = live.paces(&earlier);
        if args.json {
            output::answer(&json(&live, &paces))?;
        } else if redraw {
            // from the upper left corner, what is below erased
            output::answer(&format!("\x1b[H\x1b[J{}", table(&live, &paces)))?;
        } else {
            output::answer(&table(&live, &paces))?;
        }
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        earlier = live;
    }
}

fn the_only_one() -> anyhow::Result<String> {
    let all = Journal::all().map_err(|error| failure::of(error.into()))?;
    let names: Vec<String> = all.into_iter().map(|(device, _)| device).collect();
    match &names[..] {
        [one] => Ok(one.clone()),
        [] => Err(Failure::Usage(
            "no device here has a policy; apply one: unisono queue apply POLICY --dev DEV".to_owned(),
        )
        .into()),
        several => Err(Failure::Usage(format!(
            "several devices have a policy; name one: --dev {}",
            several.join("|")
        ))
        .into()),
    }
}

fn json(live: &Live, paces: &[Pace]) -> String {
    let class = |(class, pace): (&LiveClass, &Pace)| {
        json!({
            "name": class.name,
            "parent": class.parent,
            "guarantee": class.guarantee,
            "rate": pace.rate,
            "share": pace.share,
            "dropped_per_s": pace.dropped,
            "packets": class.packets,
            "bytes": class.bytes,
            "dropped": class.dropped,
            "waiting": class.backlog,
            "delay": class.delay,
        })
    };
    let classes: Vec<_> = live.classes.iter().zip(paces).map(class).collect();
    json!({
        "backend": live.backend,
        "device": live.device,
        "at_ns": live.at_ns,
        "rate": live.rate,
        "classes": classes,
    })
    .to_string()
}

fn table(live: &Live, paces: &[Pace]) -> String {
    const BAR: usize = 20;
    let mut table = format!(
        "{:<24} {:>11} {:>11} {:>6}  {:<BAR$} {:>7} {:>9} {:>9}\n",
        format!("{} ({})", live.device, live.backend),
        "sure of",
        "gets",
        "share",
        "",
        "drops/s",
        "waiting",
        "delay"
    );
    for (class, pace) in live.classes.iter().zip(paces) {
        let mut depth = 0;
        let mut above = class.parent.as_deref();
        while let Some(parent) = above.and_then(|name| live.classes.iter().find(|class| class.name == name)) {
            depth += 1;
            above = parent.parent.as_deref();
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share is between 0 and 1"
        )]
        let bar = "#".repeat((pace.share * BAR as f64).round() as usize);
        let line = format!(
            "{:<24} {:>11} {:>11} {:>5.1}%  {bar:<BAR$} {:>7.0} {:>9} {:>9}",
            format!("{}{}", "  ".repeat(depth), class.name),
            units::rate(class.guarantee),
            units::rate(pace.rate),
            pace.share * 100.0,
            pace.dropped,
            units::size(class.backlog.bytes),
            class.delay.map(|delay| units::time(delay.mean_ns)).unwrap_or_default(),
        );
        let _ = writeln!(table, "{}", line.trim_end());
    }
    let all: f64 = live
        .classes
        .iter()
        .zip(paces)
        .filter(|(class, _)| class.parent.is_none())
        .map(|(_, pace)| pace.rate)
        .sum();
    let _ =
        write!(table, "{:<24} {:>11} {:>11}", "the link", units::rate(live.rate as f64), units::rate(all));
    table
}
