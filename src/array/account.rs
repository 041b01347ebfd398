//! Accounting of memory by thread, so that each memory budget counts only its own allocations.
//!
//! Memory that a thread allocates under an account is charged to that account until it is freed, by any thread. All
//! other memory is shared.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU8, Ordering::SeqCst};

use parking_lot::Mutex;

use super::shortage;

/// Bytes of live buffers that are charged to a thread.
#[derive(Default)]
pub(crate) struct Account(AtomicIsize);

/// The account that a buffer is charged to.
pub(super) enum Payer {
    /// None: the buffer is about to be freed.
    Nobody,
    /// No account: the memory is shared.
    Everybody,
    /// The account of a thread.
    One(Arc<Account>),
}

/// Bytes charged to no account, counted since the first account was opened.
static SHARED: AtomicIsize = AtomicIsize::new(0);
/// Flags that every allocation tests together: [`ACCOUNTS`] and [`SHORTAGE`]. Zero in ordinary programs.
static LOOK: AtomicU8 = AtomicU8::new(0);
/// Flag: at least one account exists.
const ACCOUNTS: u8 = 1;
/// Flag: some allocations must fail, see [`shortage`].
const SHORTAGE: u8 = 2;
/// Accounts of threads that have ended. Their remaining bytes are shared.
static CLOSED: Mutex<Vec<Arc<Account>>> = Mutex::new(Vec::new());

thread_local! {
    /// The account that pays for the allocations of this thread. None if they are shared.
    static PAYS: RefCell<Option<Arc<Account>>> = const { RefCell::new(None) };
}

/// Registers the thread-local with a destructor.
pub(super) fn begin_thread() {
    let _ = PAYS.try_with(|_| ());
}

impl Payer {
    /// The account for allocations of this thread. None if the allocation must fail.
    #[inline]
    pub(super) fn current() -> Option<Self> {
        match LOOK.load(SeqCst) {
            0 => Some(Self::Everybody),
            look => Self::look(look),
        }
    }

    /// The account that pays on this thread; None if a test makes this allocation fail.
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

    /// Adds bytes to the account.
    #[inline]
    pub(super) fn add(&self, bytes: isize) {
        match self {
            Self::Everybody if LOOK.load(SeqCst) & ACCOUNTS != 0 => SHARED.fetch_add(bytes, SeqCst),
            Self::One(account) => account.0.fetch_add(bytes, SeqCst),
            _ => 0,
        };
    }
}

/// Sets whether allocations ask [`shortage`] if they must fail.
pub(super) fn look_for_shortage(on: bool) {
    let _ = if on { LOOK.fetch_or(SHORTAGE, SeqCst) } else { LOOK.fetch_and(!SHORTAGE, SeqCst) };
}

/// True if an allocation without an account must fail.
pub(super) fn is_short() -> bool {
    LOOK.load(SeqCst) & SHORTAGE != 0 && shortage::strikes()
}

/// Charges allocations of this thread to `account` from now on, or to none. Returns the previous account.
pub(crate) fn pay_from(account: Option<Arc<Account>>) -> Option<Arc<Account>> {
    PAYS.try_with(|pays| pays.replace(account)).unwrap_or(None)
}

/// Charges allocations of its thread to an account while it lives.
pub(crate) struct Paying {
    /// The account that paid before, and pays again afterwards.
    before: Option<Arc<Account>>,
    /// Makes the guard `!Send`: it is dropped on the thread that it charges.
    thread: PhantomData<*const ()>,
}

impl Drop for Paying {
    fn drop(&mut self) {
        pay_from(self.before.take());
    }
}

impl Account {
    /// Opens an account. When the first account opens, the bytes of all live buffers become shared bytes; `live` counts
    /// them.
    pub(super) fn open_with(live: impl FnOnce() -> isize) -> Arc<Self> {
        if LOOK.fetch_or(ACCOUNTS, SeqCst) & ACCOUNTS == 0 {
            SHARED.fetch_add(live(), SeqCst);
        }
        Arc::default()
    }

    /// Closes the account. Its remaining bytes become shared.
    pub(crate) fn close(self: &Arc<Self>) {
        CLOSED.lock().push(Arc::clone(self));
    }

    /// Charges allocations of this thread to this account until the guard is dropped.
    pub(crate) fn pay(self: &Arc<Self>) -> Paying {
        Paying { before: pay_from(Some(Arc::clone(self))), thread: PhantomData }
    }

    /// Bytes of all live buffers. Excludes buffers charged to other accounts, and buffers that only runs of other
    /// threads delay.
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
    fn an_account_counts_its_own_buffers_and_shared_ones() {
        const BYTES: usize = 64 << 20; // more than other tests allocate
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
