//! The pages of `unisono events serve --web` and `--metrics`: live counters for browsers and for monitoring
//! programs. All files of the page are in the program.

use super::metrics::openmetrics;
use super::top;
use crate::machine_output;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use unisono_broker::StatisticsWindow;
use unisono_enforce::metrics::{PageAnswer, PageRequest, ScrapeListener};
use unisono_events_client::Statistics;

/// The pages at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PageSet {
    /// `/metrics` and `/healthz`.
    Metrics,
    All,
}

/// Whether the pages show the names of consumers and topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NameDisplay {
    Shown,
    Hidden,
}

/// Whether a page is for clients that name this host by its address or as `localhost` only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HostCheck {
    None,
    /// The page of another site could give its own name the address 127.0.0.1, and would be let in as part of
    /// that site (DNS rebinding).
    Address,
}

/// Time that a client waits for the broker to compute the answer in its main loop.
const STATISTICS_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time between the two readings of a rate, so that several viewers do not shorten it.
const MIN_RATE_INTERVAL: Duration = Duration::from_millis(900);

const HTML: &str = "text/html; charset=utf-8";
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The answers to requests for pages.
pub(super) struct WebPages<'a> {
    window: &'a StatisticsWindow,
    set: PageSet,
    names: NameDisplay,
    host_check: HostCheck,
    readings: Mutex<Readings>,
}

/// The readings that rates are computed from.
#[derive(Default)]
struct Readings {
    /// At least [`MIN_RATE_INTERVAL`] before `last`, unless there was one reading only.
    earlier: Option<Statistics>,
    last: Option<Statistics>,
}

impl Readings {
    /// Adds a reading; returns the one to compare it with.
    fn add(&mut self, now: &Statistics) -> &Statistics {
        let is_due = self.last.as_ref().is_none_or(|last| {
            u128::from(now.at_ns.saturating_sub(last.at_ns)) >= MIN_RATE_INTERVAL.as_nanos()
        });
        if is_due {
            self.earlier = self.last.replace(now.clone());
        }
        let first = self.last.get_or_insert_with(|| now.clone());
        self.earlier.get_or_insert_with(|| first.clone())
    }
}

/// The address of the page.
pub(super) fn place(listener: &ScrapeListener) -> String {
    listener.address().map_or_else(|| listener.to_string(), |address| format!("http://{address}/"))
}

impl<'a> WebPages<'a> {
    pub(super) fn new(
        window: &'a StatisticsWindow,
        set: PageSet,
        names: NameDisplay,
        listener: &ScrapeListener,
    ) -> Self {
        let is_loopback = listener.address().is_some_and(|address| address.ip().is_loopback());
        let host_check =
            if set == PageSet::All && is_loopback { HostCheck::Address } else { HostCheck::None };
        Self { window, set, names, host_check, readings: Mutex::default() }
    }

    pub(super) fn page(&self, request: &PageRequest) -> PageAnswer {
        if self.host_check == HostCheck::Address && !request.host.as_deref().is_none_or(is_own_address) {
            return PageAnswer::wrong_host("ask for the address itself, such as http://127.0.0.1:9471/");
        }
        match (&*request.path, self.set) {
            ("/metrics", _) => PageAnswer::metrics(self.statistics().map(openmetrics)),
            ("/healthz", _) => match self.statistics() {
                Ok(_) => PageAnswer::new("text/plain; charset=utf-8", "ok\n"),
                Err(why) => PageAnswer::failure(&why),
            },
            ("/", PageSet::All) => PageAnswer::new(HTML, PAGE),
            ("/page.css", PageSet::All) => PageAnswer::new("text/css; charset=utf-8", STYLE),
            ("/page.js", PageSet::All) => PageAnswer::new("text/javascript; charset=utf-8", SCRIPT),
            ("/statistics.json", PageSet::All) => match self.statistics_as_json() {
                Ok(json) => PageAnswer::new("application/json", json),
                Err(why) => PageAnswer::failure(&why),
            },
            (_, PageSet::Metrics) => PageAnswer::not_found("here are /metrics and /healthz"),
            (_, PageSet::All) => PageAnswer::not_found("here are /, /statistics.json, /metrics and /healthz"),
        }
    }

    fn statistics(&self) -> Result<Statistics, String> {
        let statistics = self.window.ask(STATISTICS_TIMEOUT).ok_or("the broker does not answer")?;
        Ok(match self.names {
            NameDisplay::Shown => statistics,
            NameDisplay::Hidden => statistics.without_names(),
        })
    }

    fn statistics_as_json(&self) -> Result<String, String> {
        let now = self.statistics()?;
        // no panic can leave the readings half changed
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let value = top::as_json(&now, readings.add(&now));
        let json = value.and_then(|value| machine_output::json("unisono-events-top-1", &value));
        json.map_err(|error| error.to_string())
    }
}

/// Whether a client has asked for `localhost` or an address, and not for another name, which a foreign site
/// could direct to this host (DNS rebinding). Browsers always name a host; monitoring programs that speak
/// HTTP 1.0 do not.
fn is_own_address(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_site_gets_nothing_by_a_name_of_its_own_for_this_host() {
        for host in ["127.0.0.1:9471", "localhost", "localhost:9471", "LOCALHOST", "[::1]:9471"] {
            assert!(is_own_address(host), "{host}");
        }
        for host in ["evil.example", "evil.example:9471", "localhost.evil.example", "", "[evil]"] {
            assert!(!is_own_address(host), "{host}");
        }
    }

    #[test]
    fn rates_are_between_readings_far_enough_apart_however_many_ask() {
        let reading = |millis: u64| Statistics { at_ns: millis * 1_000_000, ..Statistics::default() };
        let mut readings = Readings::default();
        let since: Vec<u64> = [0, 100, 1000, 1100, 1900, 2100, 2200]
            .map(|millis| readings.add(&reading(millis)).at_ns / 1_000_000)
            .to_vec();
        assert_eq!(since, [0, 0, 0, 0, 1000, 1000, 1000]);
    }
}
