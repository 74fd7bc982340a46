//! Null RPC (section 3.2, Table 1): the client sends an empty request, the server an empty answer.

use super::requests::request_until;
use super::serving::{SendAnswer, serve_requests};
use super::{ConversationEnd, ConversationScene, Conversations};
use crate::Error;
use std::io;
use unisono_measure::Histogram;
use unisono_measure::record::Figure;

/// Runs one process's part.
///
/// # Errors
/// The other end does not appear within the scene's timeout, or the communication breaks.
pub fn run(scene: &ConversationScene, end: ConversationEnd) -> Result<Vec<Figure>, Error> {
    let conversations = scene.open(end)?;
    let begun = scene.begin(end)?;
    let done = match end {
        ConversationEnd::Server => serve(&begun, conversations),
        ConversationEnd::Client => call(&begun, conversations),
    };
    done.map_err(|error| Error::Exchange(format!("null RPC over {:?}: {error}", scene.carrier)))
}

/// # Errors
/// The communication breaks.
pub fn serve(scene: &ConversationScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    for client in conversations {
        serve_requests(scene, client, &|request: &[u8], send: SendAnswer<'_>| send(request))?;
    }
    Ok(Vec::new())
}

/// # Errors
/// The communication breaks.
pub fn call(scene: &ConversationScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    let mut times = Histogram::new();
    let mut answered = 0;
    for server in conversations {
        let asked = request_until(scene, server, b"", 0)?;
        times.merge(&asked.times);
        answered += asked.answered;
    }
    let calls = Figure::new("calls_per_s", answered as f64 / scene.seconds(), "1/s");
    let response = times.distribution(1e3).map(|times| Figure::from_distribution("response_us", "us", times));
    Ok(response.into_iter().chain([calls]).collect())
}
