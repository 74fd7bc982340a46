//! A web server on hyper: serves files of any size, and answers computed from a file.
//!
//! ```text
//!   program event-driven|thread-per-request ADDRESS
//!   GET /BYTES           a file of this size
//!   GET /BYTES/PASSES    the same file, after the server has read all of it PASSES times
//! ```
//! With `event-driven`, the runtime's threads, one for each processor, do all the work. With
//! `thread-per-request`, the runtime reads requests and sends answers, and a new thread computes each answer,
//! as in the paper.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::LazyLock;

/// The size of the largest file that can be requested.
const MAX_BODY_BYTES: usize = 16 << 20;

/// All files are prefixes of this one.
static FILE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![0x5a; MAX_BODY_BYTES]));

#[derive(Clone, Copy, PartialEq)]
enum HyperServing {
    EventDriven,
    ThreadPerRequest,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let serving = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["event-driven", _] => HyperServing::EventDriven,
        ["thread-per-request", _] => HyperServing::ThreadPerRequest,
        _ => {
            eprintln!("usage: event-driven|thread-per-request ADDRESS");
            return ExitCode::from(2);
        }
    };
    match serve(serving, &words[1]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", words[1]);
            ExitCode::FAILURE
        }
    }
}

fn serve(serving: HyperServing, address: &str) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let answer = service_fn(move |request| respond(serving, request));
            // it is not an error if a client leaves in the middle of an answer
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    })
}

async fn respond(
    serving: HyperServing,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    Ok(match serving {
        HyperServing::EventDriven => answer(&path),
        HyperServing::ThreadPerRequest => {
            let (done, answered) = tokio::sync::oneshot::channel();
            let started = std::thread::Builder::new().spawn(move || done.send(answer(&path)).ok());
            match (started, answered.await) {
                (Ok(_), Ok(response)) => response,
                _ => refusal(StatusCode::SERVICE_UNAVAILABLE),
            }
        }
    })
}

fn answer(path: &str) -> Response<Full<Bytes>> {
    let mut words = path.trim_start_matches('/').split('/');
    let bytes = words.next().and_then(|word| word.parse::<usize>().ok()).filter(|bytes| *bytes <= MAX_BODY_BYTES);
    let passes = words.next().map_or(Some(0), |word| word.parse::<u32>().ok());
    let (Some(bytes), Some(passes), None) = (bytes, passes, words.next()) else {
        return refusal(StatusCode::NOT_FOUND);
    };
    let file = FILE.slice(..bytes);
    for _ in 0..passes {
        black_box(file.iter().fold(0_u64, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte)));
    }
    Response::new(Full::new(file))
}

fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
