//! Runs an unmodified web server (the distribution's nginx) under load from wrk.

use super::stage::{LinkStage, SENDER};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unisono_linux::programs::on_path;
use unisono_measure::record::Figure;
use unisono_study::child::StudyChild;
use unisono_study::driver::NoResult;
use unisono_study::driver::run_host::RunHost;

const PORT: u16 = 8080;
/// The size of the requested file: the largest of the paper's web workload (section 3.3).
const FILE_BYTES: usize = 1_300_000;
/// The timeout for the server to listen.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn program(name: &str, package: &str) -> Result<PathBuf, NoResult> {
    on_path(name).ok_or_else(|| {
        NoResult::Skipped(format!(
            "there is no {name} on PATH; install it (Debian: apt-get install {package})"
        ))
    })
}

pub(super) fn await_listener(address: Ipv4Addr, port: u16) -> Result<(), NoResult> {
    let by = Instant::now() + START_TIMEOUT;
    while let Err(error) = TcpStream::connect((address, port)) {
        if Instant::now() > by {
            return Err(NoResult::Failed(format!("the web server does not listen: {error}")));
        }
        std::thread::sleep(unisono_study::child::POLL_INTERVAL);
    }
    Ok(())
}

/// The server, at the end to whose outgoing link the policy applies, and its clients at the other end.
pub(super) struct WebLoad {
    _server: StudyChild,
    clients: std::process::Child,
}

impl WebLoad {
    /// Starts the server and its clients. The clients keep `connections` requests in flight for `time`.
    pub(super) fn start(
        host: &RunHost<'_>,
        stage: &LinkStage,
        connections: u32,
        time: Duration,
    ) -> Result<Self, NoResult> {
        let (nginx, wrk) = (program("nginx", "nginx-light")?, program("wrk", "wrk")?);
        let failed = |what: &str, error: std::io::Error| NoResult::Failed(format!("{what}: {error}"));
        let directory = host.files.path("web");
        std::fs::create_dir_all(&directory)
            .and_then(|()| std::fs::write(directory.join("file"), vec![0x5a; FILE_BYTES]))
            .map_err(|error| failed("the web server's file", error))?;
        let config = host.files.write("nginx.conf", &config(&directory.display().to_string()))?;
        let mut command = Command::new(nginx);
        command.arg("-p").arg(&directory).arg("-c").arg(config).args(["-e", "stderr"]);
        let server = StudyChild::start(command)?;
        await_listener(SENDER, PORT)?;
        let mut command = Command::new(wrk);
        let seconds = time.as_secs_f64().ceil().max(1.0);
        command
            .args(["--threads", "1", "--connections", &connections.to_string()])
            .args(["--duration", &format!("{seconds}s"), &format!("http://{SENDER}:{PORT}/file")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let clients = stage.at_the_receiver(|| command.spawn().map_err(|error| failed("wrk", error)))?;
        Ok(Self { _server: server, clients })
    }

    /// Waits for the clients and returns their results.
    pub(super) fn end(mut self) -> Result<Vec<Figure>, NoResult> {
        let mut said = String::new();
        if let Some(mut out) = self.clients.stdout.take() {
            use std::io::Read;
            out.read_to_string(&mut said).map_err(|error| NoResult::Failed(format!("wrk: {error}")))?;
        }
        let rate = requests_per_s(&said)
            .ok_or_else(|| NoResult::Failed(format!("wrk did not say its requests per second: {said}")))?;
        Ok(vec![Figure::new("web_requests_per_s", rate, "1/s")])
    }
}

impl Drop for WebLoad {
    fn drop(&mut self) {
        // the client has ended by itself, unless the run has failed
        let _already_gone = self.clients.kill();
        let _reaped = self.clients.wait();
    }
}

fn config(directory: &str) -> String {
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {directory}/pid;\nerror_log stderr;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  client_body_temp_path {directory}/body;\n  proxy_temp_path {directory}/proxy;\n  \
         fastcgi_temp_path {directory}/fastcgi;\n  uwsgi_temp_path {directory}/uwsgi;\n  scgi_temp_path {directory}/scgi;\n  \
         server {{ listen {PORT}; root {directory}; }}\n}}\n"
    )
}

fn requests_per_s(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_wrk_prints() {
        let said = "Running 1s test @ http://10.98.0.1:8080/file\n  1 threads and 4 connections\n  10 requests in 1.10s, 12.40MB read\nRequests/sec:      9.08\nTransfer/sec:     11.26MB\n";
        assert_eq!(requests_per_s(said), Some(9.08));
        assert_eq!(requests_per_s("unable to connect"), None);
    }
}
