//! Callbacks of a run: hooks, the release of a caller's lock, the check for interrupts.

use crate::array::RunGuard;
use crate::graph::handles::function::Function;
use crate::kernels::stop;
use crate::{Error, Result};

/// A user hook, called before or after each function.
pub type FunctionHook<'a> = &'a dyn Fn(&Function) -> Result<()>;

/// Calls its argument, and may release a lock of the caller meanwhile.
pub type Detach<'a> = &'a dyn Fn(&mut (dyn FnMut() + Send));

/// The amount of work, in elements, from which releasing the caller's lock pays: some microseconds.
const WORTH_DETACHING: usize = 1 << 14;

/// The argument of [`Detach`], which requires a `Send` type.
struct Carry<F>(F);

// SAFETY: `detach` calls it once, before it returns, on the calling thread.
unsafe impl<F> Send for Carry<F> {}

impl<F: FnMut() -> Result<()>> Carry<F> {
    /// Calls the function.
    fn call(&mut self) -> Result<()> {
        (self.0)()
    }
}

/// Calls `f`. Releases the caller's lock meanwhile if that pays and `f` calls no user code.
pub(crate) fn detached(
    detach: Option<Detach<'_>>,
    work: usize,
    hooked: bool,
    mut f: impl FnMut() -> Result<()>,
) -> Result<()> {
    let Some(detach) = detach.filter(|_| work >= WORTH_DETACHING && !hooked) else { return f() };
    let mut carried = Carry(&mut f);
    let mut done = Ok(());
    detach(&mut || done = carried.call());
    done
}

/// Counts functions, limits how long other threads wait to one function, and periodically checks for interrupts.
pub(crate) struct Pace<'a> {
    /// The number of functions counted so far.
    steps: u32,
    /// The guard of the run, which is renewed for each function. None if the run has none.
    guard: Option<&'a RunGuard>,
}

impl<'a> Pace<'a> {
    /// Counts from zero.
    pub(crate) fn new(guard: Option<&'a RunGuard>) -> Self {
        Self { steps: 0, guard }
    }

    /// Counts a step; each 64th asks whether the run was interrupted.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> Result<()> {
        self.guard.inspect(|guard| guard.renew());
        self.steps += 1;
        if !self.steps.is_multiple_of(64) {
            return Ok(());
        }
        stop::ask().map_err(Error::Foreign)
    }
}
