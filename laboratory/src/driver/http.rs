//! Runs the paper's web workload over HTTP (section 3.3): a server on hyper, and the client wrk, which keeps
//! a fixed number of requests in flight.

use super::stage::{LinkStage, SENDER};
use super::web::{START_TIMEOUT, await_listener, program};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;
use unisono_measure::record::Figure;
use unisono_study::child::{self, StudyChild};
use unisono_study::driver::NoResult;
use unisono_study::driver::run_host::RunHost;
use unisono_study::peer::PeerFile;
use unisono_workload::conversation::Serving;

pub(super) const PORT: u16 = 5080;

/// A Lua script with which wrk writes its results at the end: counts, and then times in microseconds.
const SCRIPT: &str = "done = function(summary, latency, requests)\n  local e = summary.errors\n  \
     local said = io.open(os.getenv(\"UNISONO_SAID\"), \"w\")\n  \
     said:write(string.format(\"%d %d %d %d %d\", summary.requests, \
     e.connect + e.read + e.write + e.status + e.timeout, summary.duration, \
     latency:percentile(50), latency:percentile(99)))\n  said:close()\nend\n";

/// A load of web requests.
pub(super) struct HttpLoad<'a> {
    pub(super) server: &'a PeerFile,
    pub(super) serving: Serving,
    pub(super) clients: u16,
    pub(super) file_bytes: usize,
    pub(super) passes: u32,
}

impl HttpLoad<'_> {
    /// Rounds up to whole seconds, because wrk accepts only these.
    pub(super) fn seconds(seconds: f64) -> f64 {
        seconds.ceil().max(1.0)
    }

    pub(super) fn run(
        &self,
        host: &RunHost<'_>,
        stage: Option<&LinkStage>,
        seconds: f64,
        interrupted: child::Interrupted,
    ) -> Result<Vec<Figure>, NoResult> {
        let wrk = program("wrk", "wrk")?;
        let script = host.files.write("said.lua", SCRIPT)?;
        let serving = match self.serving {
            Serving::OneThread => "event-driven",
            Serving::ThreadPerRequest => "thread-per-request",
        };
        let here = stage.map_or(Ipv4Addr::LOCALHOST, |_| SENDER);
        let address = format!("{here}:{PORT}");
        let mut command = self.server.plain_command();
        command.args([serving, &address]);
        let mut server = StudyChild::start(command)?;
        if let Err(error) = await_listener(here, PORT) {
            return Err(server.failure().map_or(error, NoResult::from));
        }
        let seconds = Self::seconds(seconds);
        let path = host.files.path("said");
        let failed = |error: std::io::Error| NoResult::Failed(format!("wrk: {error}"));
        let mut command = Command::new(wrk);
        command.env("UNISONO_SAID", &path);
        command.args(["--threads", "1", "--connections", &self.clients.to_string()]);
        command.args(["--duration", &format!("{seconds}s"), "--timeout", "10s", "--script"]).arg(script);
        command.arg(format!("http://{address}/{}/{}", self.file_bytes, self.passes));
        let clients = || Ok(StudyChild::start(command)?);
        let clients = match stage {
            Some(stage) => stage.at_the_receiver(clients),
            None => clients(),
        }?;
        let longest = Duration::from_secs_f64(seconds) + START_TIMEOUT * 2;
        child::wait_all(&mut [clients], longest, interrupted)?;
        figures(&std::fs::read_to_string(&path).map_err(failed)?)
    }
}

fn figures(said: &str) -> Result<Vec<Figure>, NoResult> {
    let numbers: Option<Vec<f64>> = said.split(' ').map(|word| word.parse().ok()).collect();
    let Some(&[requests, errors, us, median, p99]) = numbers.as_deref() else {
        return Err(NoResult::Failed(format!("wrk did not say its figures: {}", said.trim())));
    };
    if requests == 0.0 {
        return Err(NoResult::Failed(
            "no request of wrk was answered in time; let the run take longer".to_owned(),
        ));
    }
    if errors > 0.0 {
        return Err(NoResult::Failed(format!("{errors} of {requests} requests of wrk failed")));
    }
    Ok(vec![
        Figure::new("response_us", median, "us"),
        Figure::new("response_p99_us", p99, "us"),
        Figure::new("requests_per_s", requests * 1e6 / us.max(1.0), "1/s"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_becomes_figures_and_failed_requests_fail_the_run() {
        let figures = figures("500 0 1000000 900 4000").expect("figures");
        let values: Vec<f64> = figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [900.0, 4000.0, 500.0]);
        for bad in ["", "500 1 1000000 900 4000", "0 0 1000000 0 0", "1 x"] {
            assert!(super::figures(bad).is_err(), "{bad}");
        }
    }
}
