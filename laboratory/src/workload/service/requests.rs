//! Requests of web clients (section 3.3, Figure 5): each client requests a file, or an answer that the server
//! computes from a file, as soon as it has got the previous answer.
//!
//! HTTP headers are omitted, because they would be the same text over every carrier.

use super::{ServiceScene, distributed};
use std::hint::black_box;
use std::io;
use unisono_measure::Histogram;
use unisono_measure::record::Figure;
use unisono_workload::conversation::requests::{AnsweredRequests, request_until};
use unisono_workload::conversation::serving::{SendAnswer, serve_requests};
use unisono_workload::conversation::{Conversation, Conversations};

pub(super) fn serve(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            conversations.into_iter().map(|client| scope.spawn(|| answer_all(scene, client))).collect();
        clients.into_iter().try_for_each(|client| {
            client.join().unwrap_or_else(|_| Err(io::Error::other("a server's thread panicked")))
        })
    })?;
    Ok(Vec::new())
}

fn answer_all(scene: &ServiceScene, client: Box<dyn Conversation>) -> io::Result<()> {
    let file = vec![0x5a; scene.ends.message_bytes];
    serve_requests(&scene.ends, client, &|_: &[u8], send: SendAnswer<'_>| {
        for _ in 0..scene.passes {
            black_box(file.iter().fold(0_u64, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte)));
        }
        send(&file)
    })
}

pub(super) fn ask(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    let asked: Vec<AnsweredRequests> = std::thread::scope(|scope| {
        let ask = |server| {
            scope.spawn(move || request_until(&scene.ends, server, b"GET", scene.ends.message_bytes))
        };
        let clients: Vec<_> = conversations.into_iter().map(ask).collect();
        let join = |client: std::thread::ScopedJoinHandle<'_, io::Result<AnsweredRequests>>| {
            client.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
        };
        clients.into_iter().map(join).collect::<io::Result<_>>()
    })?;
    let mut all = Histogram::new();
    asked.iter().for_each(|asked| all.merge(&asked.times));
    let answered: u64 = asked.iter().map(|asked| asked.answered).sum();
    let requests = Figure::new("requests_per_s", answered as f64 / scene.ends.seconds(), "1/s");
    Ok(distributed("response_us", all.distribution(1e3), "us").into_iter().chain([requests]).collect())
}
