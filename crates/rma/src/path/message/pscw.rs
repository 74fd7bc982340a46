//! Post-start-complete-wait: a zero-byte message from each target, and otherwise only data.
//!
//! ```text
//!   target:  post --"posted"--> ......................................... wait until the counter is zero
//!   origin:  start (nothing)   put put (queued)   complete: wait for "posted", send, the last one marked
//! ```
//! Post sets the counter to the number of origins, and each mark decrements it. An origin without operations
//! for a target of its group sends the mark alone. NO_CHECK removes the wait and the message.
//!
//! Cost: one message for each pair, and the operations. In the naive form start waits for the posts,
//! operations are sent when issued, and complete sends a "done". Reference: the paper, section 4.2.

use super::{EngineState, MessageEngine};
use crate::model::{Assert, Error, Rank};
use crate::wire::packet::{Header, PacketFlags, PacketKind};

impl MessageEngine {
    pub(crate) fn post(&self, window: u32, origins: &[Rank], assert: Assert) -> Result<(), Error> {
        self.await_unlocks(None)?;
        let mut core = self.core();
        let rank = core.rank;
        core.port(window).exposed_done -= origins.len() as i64;
        if assert.has(Assert::NO_CHECK) {
            return Ok(());
        }
        for origin in origins {
            if *origin == rank {
                core.port(window).peers[rank.index()].posts += 1;
            } else {
                core.send(*origin, &Header::new(PacketKind::Post, window), &[])?;
            }
        }
        core.transport.flush()?;
        Ok(())
    }

    /// Waits for the posts of all targets.
    pub(crate) fn await_posts(&self, window: u32, targets: &[Rank]) -> Result<(), Error> {
        self.wait_for_with_timeout(|core| {
            let port = core.port(window);
            let came = targets.iter().all(|target| port.peers[target.index()].posts > 0);
            if came {
                for target in targets {
                    port.peers[target.index()].posts -= 1;
                }
            }
            Ok(came.then_some(()))
        })
    }

    /// Ends an access epoch. The posts have arrived, or the caller promised that they are not needed.
    pub(crate) fn complete(&self, window: u32, targets: &[Rank]) -> Result<(), Error> {
        let answered = |core: &mut EngineState| {
            let port = core.port(window);
            if targets.iter().any(|target| port.peers[target.index()].outstanding != 0) {
                return Ok(None);
            }
            port.refused.take().map_or(Ok(Some(())), Err)
        };
        self.await_unlocks(None)?;
        {
            let mut core = self.core();
            let rank = core.rank;
            for target in targets {
                let port = core.port(window);
                if *target == rank {
                    port.exposed_done += 1;
                    continue;
                }
                let queue = std::mem::take(&mut port.peers[target.index()].queue);
                if queue.is_empty() {
                    let done = Header { flags: PacketFlags::LAST, ..Header::new(PacketKind::Done, window) };
                    core.send(*target, &done, &[])?;
                } else {
                    core.send_all(window, *target, queue, PacketFlags::LAST, 0)?;
                }
            }
            core.transport.flush()?;
            // Most epochs have no answer to wait for, and a poll for packets that are not there takes time.
            if answered(&mut core)?.is_some() {
                return Ok(());
            }
        }
        self.wait_for(answered)
    }

    pub(crate) fn wait_exposed(&self, window: u32) -> Result<(), Error> {
        self.wait_for_with_timeout(|core| Ok((core.port(window).exposed_done == 0).then_some(())))
    }

    pub(crate) fn test_exposed(&self, window: u32) -> Result<bool, Error> {
        let mut core = self.core();
        core.progress()?;
        if core.port(window).exposed_done == 0 {
            return Ok(true);
        }
        core.check_gone()?;
        Ok(false)
    }
}
