//! Accounts for the buffers of connections: memory that grows without a request, if a program sends large
//! frames or does not read.
//!
//! ```text
//!   the memory of all users     +  buffers  <=  the limit of all
//!   a user's account: queues, credit, kept events, names + buffers  <=  the limit of the user
//!        ^ share of a connection: taken before a buffer grows, given back when it shrinks or ends
//! ```
//! A connection as such is not charged: its fixed memory (about 400 KiB) is bounded by the number of
//! connections.
//!
//! Cost: an addition when a buffer grows beyond its fixed size; nothing for other frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The limit and the use of all users' memory.
#[derive(Debug)]
pub struct AllMemory {
    /// Bytes of buffers.
    buffers: AtomicU64,
    /// Bytes of all other memory, from the broker's ledger.
    others: AtomicU64,
    most: u64,
}

impl AllMemory {
    pub fn new(most: u64) -> Self {
        Self { buffers: AtomicU64::new(0), others: AtomicU64::new(0), most }
    }

    pub fn buffers(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed)
    }

    /// Sets the bytes of all memory in the ledger other than buffers.
    pub fn set_others(&self, bytes: u64) {
        self.others.store(bytes, Ordering::Relaxed);
    }
}

/// Adds `bytes` to `used`. Returns false, and adds nothing, if that would exceed the limit.
fn take(used: &AtomicU64, bytes: u64, (others, most): (&AtomicU64, u64)) -> bool {
    let others = others.load(Ordering::Relaxed);
    let more = |used: u64| Some(used + bytes).filter(|all| all.saturating_add(others) <= most);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// The limit and the use of one user's buffers.
#[derive(Debug)]
pub struct BufferAccount {
    /// Bytes of buffers.
    used: AtomicU64,
    /// Bytes of all other memory of the user, from the broker's ledger.
    others: AtomicU64,
    most: u64,
    all: Arc<AllMemory>,
}

impl BufferAccount {
    pub fn new(most: u64, all: Arc<AllMemory>) -> Self {
        Self { used: AtomicU64::new(0), others: AtomicU64::new(0), most, all }
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Sets the user's bytes in the ledger other than buffers.
    pub fn set_others(&self, bytes: u64) {
        self.others.store(bytes, Ordering::Relaxed);
    }

    /// Charges `bytes` more to the account. Returns false, and charges nothing, if that would exceed the
    /// limit of the user or the limit of all users.
    fn take(&self, bytes: u64) -> bool {
        if !take(&self.used, bytes, (&self.others, self.most)) {
            return false;
        }
        let fits = take(&self.all.buffers, bytes, (&self.all.others, self.all.most));
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.all.buffers.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The part of a user's account that one connection has taken; returned on drop.
#[derive(Debug, Default)]
pub struct BufferShare {
    /// The user's account. `None`: the buffers are not counted.
    account: Option<Arc<BufferAccount>>,
    taken: u64,
}

impl BufferShare {
    pub fn new(account: Arc<BufferAccount>) -> Self {
        Self { account: Some(account), taken: 0 }
    }

    /// Makes another, empty share of the same account.
    pub fn beside(&self) -> Self {
        Self { account: self.account.clone(), taken: 0 }
    }

    /// Sets the bytes of the connection's buffers. Returns false, and changes nothing, if that would exceed
    /// the limit of the user or the limit of all users: the buffers may not grow.
    #[must_use]
    pub fn resize(&mut self, bytes: usize) -> bool {
        let (Some(account), bytes) = (&self.account, bytes as u64) else { return true };
        match bytes.checked_sub(self.taken) {
            Some(0) => {}
            Some(more) if account.take(more) => {}
            Some(_) => return false,
            None => account.release(self.taken - bytes),
        }
        self.taken = bytes;
        true
    }
}

impl Drop for BufferShare {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.release(self.taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_grow_as_far_as_the_ledger_leaves_room_and_come_back() {
        let account = Arc::new(BufferAccount::new(1000, Arc::new(AllMemory::new(u64::MAX))));
        let (mut one, mut other) =
            (BufferShare::new(Arc::clone(&account)), BufferShare::new(Arc::clone(&account)));
        assert!(one.resize(600) && !other.resize(500) && other.resize(400));
        assert_eq!(account.used(), 1000);
        assert!(one.resize(100) && !one.resize(700) && account.used() == 500);
        account.set_others(450);
        assert!(!one.resize(200), "queues count, too");
        assert!(one.resize(150));
        drop(one);
        assert_eq!(account.used(), 400);
        drop(other);
        assert_eq!(account.used(), 0);
        assert!(BufferShare::default().resize(usize::MAX));
    }

    #[test]
    fn buffers_of_several_users_have_a_bound_together() {
        let all = Arc::new(AllMemory::new(1000));
        let share = || BufferShare::new(Arc::new(BufferAccount::new(600, Arc::clone(&all))));
        let (mut one, mut other) = (share(), share());
        assert!(one.resize(600) && !other.resize(500) && other.resize(400));
        assert_eq!(all.buffers(), 1000);
        assert!(one.resize(100) && other.resize(600) && all.buffers() == 700);
        all.set_others(250);
        assert!(!one.resize(200), "memory in the ledger counts, too");
        assert!(one.resize(150));
        drop((one, other));
        assert_eq!(all.buffers(), 0);
    }
}
