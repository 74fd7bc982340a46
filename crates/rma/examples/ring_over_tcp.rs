//! Ranks on any hosts, in a ring over TCP: each puts a number into the window of its right neighbor, one
//! fence per step. On two hosts, with the same key (`openssl rand -hex 16`) and addresses that reach each
//! other:
//!
//! ```sh
//! a$ UNISONO_JOB=$KEY UNISONO_SIZE=2 UNISONO_RANK=0 ring_over_tcp 10.0.0.1:7000 10.0.0.1:7000 10000
//! b$ UNISONO_JOB=$KEY UNISONO_SIZE=2 UNISONO_RANK=1 ring_over_tcp 10.0.0.1:7000 10.0.0.2:0 10000
//! ```
//! The arguments are the address of rank 0, the address at which this rank listens, and the number of steps.
#![allow(clippy::print_stdout, reason = "an example speaks")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use unisono_rma::wire::tcp::JobListener;
use unisono_rma::{Assert, Job, JobMembership, Rank, Spec};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, own, steps] = arguments.as_slice() else {
        return Err("usage: ring_over_tcp ROOT-ADDRESS OWN-ADDRESS STEPS".into());
    };
    let (root, own, steps): (SocketAddr, SocketAddr, u64) = (root.parse()?, own.parse()?, steps.parse()?);
    let place = JobMembership::from_environment()?.ok_or("set UNISONO_RANK, UNISONO_SIZE and UNISONO_JOB")?;

    let ends = JobListener::bind(place, own)?.connect_through(root, Duration::from_secs(30))?;
    let mut job = Job::over(ends);
    let (rank, size) = (u64::from(job.rank().0), job.size() as u64);
    let right = Rank(((rank + 1) % size) as u32);
    let mut window = job.allocate(8, Spec::new().unit(8))?;
    println!("rank {rank} of {size} has met the others");

    let start = Instant::now();
    let mut left = [0_u64];
    window.fence(Assert::NO_PRECEDE)?;
    for step in 0..steps {
        window.put(&[rank * steps + step], right, 0)?;
        window.fence(Assert::NONE)?;
        window.load(0, &mut left)?;
        let expected = ((rank + size - 1) % size) * steps + step;
        if left != [expected] {
            return Err(format!("step {step}: {left:?} came from the left, not {expected}").into());
        }
        // no rank writes again before all ranks have read
        window.fence(Assert::NONE)?;
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / (2 * steps.max(1)) as f64;
    println!("rank {rank} of {size}: {steps} steps of a put and two fences, {each:.1} us a fence");
    window.fence(Assert::NO_SUCCEED)?;
    window.free()?;
    job.finalize()?;
    Ok(())
}
