//! Optional timing of the functions that run on a thread.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::array::take_step_peak;
use crate::graph::arena::{self, Ix};
use crate::graph::handles::function::Function;

/// True while runs of all threads are timed.
static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The timings of this thread since [`take_timings`].
    static TAKEN: RefCell<Vec<Timing>> = const { RefCell::new(Vec::new()) };
}

/// Registers the thread-local with a destructor.
#[cfg(feature = "python")]
pub(crate) fn begin_thread() {
    let _ = TAKEN.try_with(|_| ());
}

/// The timing of one step of a run: of one function, or of several fused ones.
pub struct Timing {
    /// The functions, in execution order.
    pub functions: Vec<Function>,
    /// True if they ran backward.
    pub is_backward: bool,
    /// The start time, after the hook before the step.
    pub began: Instant,
    /// The end time, before the hook after the step.
    pub ended: Instant,
    /// Peak memory of all arrays of the program during the step, in bytes. Up to 64 KiB may be missing.
    pub peak: usize,
}

/// Starts or stops timing the steps of runs, on all threads.
///
/// ```
/// use kinnor::graph::{ForwardOptions, Variable, apply, take_timings, time_runs};
///
/// let x = Variable::from_values([2], &[1.0, 2.0])?;
/// let y = apply("sin", &[&x], &[])?.remove(0);
/// time_runs(true);
/// y.forward(&ForwardOptions::default())?;
/// time_runs(false);
/// let taken = take_timings();
/// assert_eq!(taken.len(), 1);
/// assert!(taken[0].functions.iter().all(|f| f.type_name() == "Sin"));
/// assert!(take_timings().is_empty());
/// # Ok::<(), kinnor::Error>(())
/// ```
pub fn time_runs(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// The timings of this thread since the last call, in order of end time.
pub fn take_timings() -> Vec<Timing> {
    TAKEN.take()
}

/// True if the steps of a run are timed, as set when the run began.
#[derive(Clone, Copy)]
pub(crate) struct Timer(bool);

impl Timer {
    /// Reads whether timing is on.
    pub(crate) fn new() -> Self {
        Self(ON.load(Ordering::Relaxed))
    }

    /// The start time of a step, if it is timed.
    #[inline]
    pub(crate) fn begin(self) -> Option<Instant> {
        self.0.then(|| {
            take_step_peak();
            Instant::now()
        })
    }
}

/// Records the timing of a step with these functions, which ends now, if it is timed.
#[inline]
pub(crate) fn end(began: Option<Instant>, functions: &[Ix], is_backward: bool) {
    if let Some(began) = began {
        record(began, functions, is_backward);
    }
}

/// Records the time of functions that ran from `began` until now.
#[cold]
fn record(began: Instant, functions: &[Ix], is_backward: bool) {
    let ended = Instant::now();
    let functions = arena::with(|a| functions.iter().map(|f| Function::counted(a, *f)).collect());
    let timing = Timing { functions, is_backward, began, ended, peak: take_step_peak() };
    TAKEN.with_borrow_mut(|taken| taken.push(timing));
}
