//! What a run calls of its caller's: hooks, the release of a lock, the look for an interrupt.

use crate::array::RunGuard;
use crate::graph::handles::function::Function;
use crate::kernels::stop;
use crate::{Error, Result};

/// A call of the user's before or after each function.
pub type FunctionHook<'a> = &'a dyn Fn(&Function) -> Result<()>;

/// Runs what it is given, perhaps with a lock of the caller's released meanwhile.
pub type Detach<'a> = &'a dyn Fn(&mut (dyn FnMut() + Send));

/// Elements of work from which it pays to release a lock of the caller's: some microseconds.
const WORTH_DETACHING: usize = 1 << 14;

/// What is handed to [`Detach`], which wants something that could be sent to another thread.
struct Carry<F>(F);

// SAFETY: `detach` calls it once, before it returns, on the thread that it was called from.
unsafe impl<F> Send for Carry<F> {}

impl<F: FnMut() -> Result<()>> Carry<F> {
    fn call(&mut self) -> Result<()> {
        (self.0)()
    }
}

/// Runs `f`, with the caller's lock released where that pays and nobody's code is called.
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

/// Counts functions, has no other thread wait longer than one of them takes, and asks now and then whether to go on.
pub(crate) struct Pace<'a> {
    steps: u32,
    guard: Option<&'a RunGuard>,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(guard: Option<&'a RunGuard>) -> Self {
        Self { steps: 0, guard }
    }

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
