//! Keeps freed memory alive while a run of a graph may still use it.
//!
//! A run takes pointers, not counts: counting every buffer of every function costs more than a small kernel. Instead a
//! buffer that is freed while runs are under way waits until all of those have ended.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Buffer;

static ACTIVE: AtomicU64 = AtomicU64::new(0);
static LIMBO: Mutex<Limbo> = Mutex::new(Limbo { next: 0, runs: Vec::new(), waiting: Vec::new() });

struct Limbo {
    next: u64,
    runs: Vec<u64>,
    waiting: Vec<(u64, Buffer)>,
}

/// While it lives, memory that was readable when it was made stays allocated.
pub struct RunGuard(u64);

impl RunGuard {
    /// Says that a run begins.
    pub fn new() -> Self {
        let mut limbo = LIMBO.lock();
        limbo.next += 1;
        let id = limbo.next;
        limbo.runs.push(id);
        ACTIVE.fetch_add(1, Ordering::SeqCst);
        Self(id)
    }
}

impl Default for RunGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let mut limbo = LIMBO.lock();
        ACTIVE.fetch_sub(1, Ordering::SeqCst);
        limbo.runs.retain(|id| *id != self.0);
        if limbo.waiting.is_empty() {
            return;
        }
        let oldest = limbo.runs.iter().min().copied().unwrap_or(u64::MAX);
        let (freed, waiting) =
            std::mem::take(&mut limbo.waiting).into_iter().partition(|(at, _)| *at < oldest);
        limbo.waiting = waiting;
        drop(limbo);
        drop::<Vec<_>>(freed);
    }
}

/// Frees a buffer once no run that could have seen it is under way.
pub(crate) fn release(buffer: Buffer) {
    if ACTIVE.load(Ordering::SeqCst) == 0 {
        return;
    }
    let mut limbo = LIMBO.lock();
    let id = limbo.next;
    limbo.waiting.push((id, buffer));
}
