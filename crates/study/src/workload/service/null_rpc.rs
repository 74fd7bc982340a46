//! Null RPC (section 3.2, Table 1): the client sends an empty request, the server an empty answer.

use super::asking::ask_until;
use super::serving::{Send, serve_requests};
use super::{Conversation, ServiceScene, distributed};
use std::io;
use std::time::Duration;
use unisono_measure::Histogram;
use unisono_measure::record::Figure;

pub(super) fn serve(
    scene: &ServiceScene,
    conversations: Vec<Box<dyn Conversation>>,
) -> io::Result<Vec<Figure>> {
    for client in conversations {
        serve_requests(scene, client, &|request: &[u8], send: Send<'_>| send(request))?;
    }
    Ok(Vec::new())
}

pub(super) fn call(
    scene: &ServiceScene,
    conversations: Vec<Box<dyn Conversation>>,
) -> io::Result<Vec<Figure>> {
    let mut times = Histogram::new();
    let mut answered = 0;
    for server in conversations {
        let asked = ask_until(scene, server, b"", 0)?;
        times.merge(&asked.times);
        answered += asked.answered;
    }
    let seconds = Duration::from(scene.until.since(scene.from)).as_secs_f64();
    let calls = Figure::new("calls_per_s", answered as f64 / seconds, "1/s");
    Ok(distributed("response_us", times.distribution(1e3), "us").into_iter().chain([calls]).collect())
}
