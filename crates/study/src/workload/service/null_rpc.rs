//! Null RPC (section 3.2, Table 1): the client sends an empty request, the server an empty answer.

use super::serving::{Send, serve_requests};
use super::{Conversation, NextMessage, ServiceScene, distributed};
use std::io;
use std::time::Duration;
use unisono_linux::clock;
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
    let mut answer = Vec::new();
    for mut server in conversations {
        while clock::now() < scene.until {
            let sent = clock::now();
            server.send(&[])?;
            if server.receive(&mut answer, scene.until)? != NextMessage::Message {
                break;
            }
            if sent >= scene.from {
                times.record(clock::now().since(sent).into());
            }
        }
    }
    let seconds = Duration::from(scene.until.since(scene.from)).as_secs_f64();
    let calls = Figure::new("calls_per_s", times.len() as f64 / seconds, "1/s");
    Ok(distributed("response_us", times.distribution(1e3), "us").into_iter().chain([calls]).collect())
}
