//! Which thread's budget pays for which memory, so that threads with budgets of their own do not count each other's.
//!
//! What a thread takes while it pays from an account is counted there until it is freed, whoever frees it. All other
//! memory is everybody's.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU8, Ordering::SeqCst};

use parking_lot::Mutex;

use super::{allocator, shortage};

/// Bytes of live buffers that a thread pays for.
#[derive(Default)]
pub(crate) struct Account(AtomicIsize);

/// Who pays for a buffer.
pub(super) enum Payer {
    /// Nobody: it is on its way back.
    Nobody,
    Everybody,
    One(Arc<Account>),
}

/// What everybody pays for, counted from the first account on.
static SHARED: AtomicIsize = AtomicIsize::new(0);
/// What an allocation has to look at, all at once: nothing, as a rule.
static LOOK: AtomicU8 = AtomicU8::new(0);
/// There are accounts.
const ACCOUNTS: u8 = 1;
/// Some allocations are to fail, see [`shortage`].
const SHORTAGE: u8 = 2;
/// Accounts of threads that have ended: what is left of them is everybody's.
static CLOSED: Mutex<Vec<Arc<Account>>> = Mutex::new(Vec::new());

thread_local! {
    static PAYS: RefCell<Option<Arc<Account>>> = const { RefCell::new(None) };
}

/// Registers the thread-local with a destructor.
pub(super) fn begin_thread() {
    let _ = PAYS.try_with(|_| ());
}

impl Payer {
    /// Who pays for what this thread allocates; none where that is to fail.
    #[inline]
    pub(super) fn current() -> Option<Self> {
        match LOOK.load(SeqCst) {
            0 => Some(Self::Everybody),
            look => Self::look(look),
        }
    }

    fn look(look: u8) -> Option<Self> {
        if look & SHORTAGE != 0 && shortage::strikes() {
            return None;
        }
        if look & ACCOUNTS == 0 {
            return Some(Self::Everybody);
        }
        let account = PAYS.try_with(|pays| pays.borrow().clone()).unwrap_or(None);
        Some(account.map_or(Self::Everybody, Self::One))
    }

    #[inline]
    pub(super) fn add(&self, bytes: isize) {
        match self {
            Self::Everybody if LOOK.load(SeqCst) & ACCOUNTS != 0 => SHARED.fetch_add(bytes, SeqCst),
            Self::One(account) => account.0.fetch_add(bytes, SeqCst),
            _ => 0,
        };
    }
}

/// Has allocations look whether they are to fail, or not.
pub(super) fn look_for_shortage(on: bool) {
    let _ = if on { LOOK.fetch_or(SHORTAGE, SeqCst) } else { LOOK.fetch_and(!SHORTAGE, SeqCst) };
}

/// Whether an allocation that nobody pays for is to fail.
pub(super) fn is_short() -> bool {
    LOOK.load(SeqCst) & SHORTAGE != 0 && shortage::strikes()
}

/// Has this thread pay from an account from now on, or from none; returns what it paid from before.
pub(crate) fn pay_from(account: Option<Arc<Account>>) -> Option<Arc<Account>> {
    PAYS.try_with(|pays| pays.replace(account)).unwrap_or(None)
}

/// While it lives, its thread pays from an account.
pub(crate) struct Paying {
    before: Option<Arc<Account>>,
    thread: PhantomData<*const ()>,
}

impl Drop for Paying {
    fn drop(&mut self) {
        pay_from(self.before.take());
    }
}

impl Account {
    /// A new one, which holds until it is [closed](Account::close).
    pub(crate) fn open() -> Arc<Self> {
        if LOOK.fetch_or(ACCOUNTS, SeqCst) & ACCOUNTS == 0 {
            SHARED.fetch_add(allocator::live(), SeqCst);
        }
        Arc::default()
    }

    /// From now on everybody counts what it has paid for.
    pub(crate) fn close(self: &Arc<Self>) {
        CLOSED.lock().push(Arc::clone(self));
    }

    /// Has this thread pay from it for a while.
    pub(crate) fn pay(self: &Arc<Self>) -> Paying {
        Paying { before: pay_from(Some(Arc::clone(self))), thread: PhantomData }
    }

    /// Bytes of all live buffers, but for those that other accounts pay for and those that are free as soon as runs of
    /// other threads have ended.
    pub(crate) fn seen(&self) -> usize {
        let mut closed = CLOSED.lock();
        closed.retain(|account| account.0.load(SeqCst) != 0);
        let left: isize = closed.iter().map(|account| account.0.load(SeqCst)).sum();
        (self.0.load(SeqCst) + SHARED.load(SeqCst) + left).max(0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Account;
    use crate::array::Buffer;

    #[test]
    fn each_sees_its_own_and_what_is_everybodys() {
        const BYTES: usize = 64 << 20; // more than other tests have at a time
        let about = |bytes: usize, expected: usize| bytes.abs_diff(expected) < BYTES / 2;
        let (a, b) = (Account::open(), Account::open());
        let start = a.seen();
        let shared = Buffer::new(BYTES).expect("memory");
        let paying = a.pay();
        let own = Buffer::new(BYTES).expect("memory");
        drop(paying);
        assert!(about(a.seen(), start + 2 * BYTES) && about(b.seen(), start + BYTES));
        drop(shared);
        assert!(about(a.seen(), start + BYTES) && about(b.seen(), start));
        a.close();
        assert!(about(b.seen(), start + BYTES));
        drop(own);
        assert!(about(b.seen(), start));
        b.close();
    }
}
