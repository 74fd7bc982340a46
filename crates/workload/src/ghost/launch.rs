//! Starts the ranks: this program again, with each rank's number in the environment.

use super::Exchange;
use crate::Error;
use crate::competitor::KilledChildren;
use std::path::Path;
use std::process::{Command, Stdio};
use unisono_rma::{Key, environment};

/// Starts the exchange as processes of `unisono` with these arguments, and waits for all of them. If one
/// fails, the others are ended. The ranks are killed when the calling thread ends.
pub fn launch(unisono: &Path, arguments: &[String], exchange: &Exchange) -> Result<(), Error> {
    exchange.check()?;
    let refused = |error: unisono_rma::Error| Error::Exchange(error.to_string());
    let key = Key::random().map_err(refused)?;
    let mut ranks = KilledChildren(Vec::new());
    for rank in 0..exchange.processes {
        let child = Command::new(unisono)
            .args(arguments)
            .env(environment::RANK, rank.to_string())
            .env(environment::SIZE, exchange.processes.to_string())
            .env(environment::KEY, key.to_string())
            .stdin(Stdio::null())
            .spawn();
        ranks.0.push(child.map_err(|source| Error::Start {
            participant: rank,
            threads: exchange.processes,
            source,
        })?);
    }
    // if a rank dies, the others notice it and end with an error themselves
    let mut failed = None;
    for (rank, child) in ranks.0.iter_mut().enumerate() {
        let status =
            child.wait().map_err(|error| Error::Exchange(format!("cannot wait for rank {rank}: {error}")))?;
        if !status.success() && failed.is_none() {
            failed = Some(Error::Exchange(format!("rank {rank} of the exchange: {status}")));
        }
    }
    failed.map_or(Ok(()), Err)
}
