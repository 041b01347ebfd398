//! How long the functions that run on a thread take, if somebody wants to know.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::array::take_step_peak;
use crate::graph::arena::{self, Ix};
use crate::graph::handles::function::Function;

static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    static TAKEN: RefCell<Vec<Timing>> = const { RefCell::new(Vec::new()) };
}

/// Registers the thread-local with a destructor.
#[cfg(feature = "python")]
pub(crate) fn begin_thread() {
    let _ = TAKEN.try_with(|_| ());
}

/// What one step of a run took: that of one function, or of several that ran as one pass.
pub struct Timing {
    /// The functions, in the order in which they ran.
    pub functions: Vec<Function>,
    /// Whether they ran backward.
    pub is_backward: bool,
    /// When it began, after the hook before it.
    pub began: Instant,
    /// When it ended, before the hook after it.
    pub ended: Instant,
    /// The most bytes that the arrays of the program had meanwhile; less than 64 KiB may be missing.
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
/// assert_eq!(taken[0].functions[0].type_name(), "Sin");
/// assert!(take_timings().is_empty());
/// # Ok::<(), kinnor::Error>(())
/// ```
pub fn time_runs(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// What was timed on this thread since it was last asked for, in the order in which it ended.
pub fn take_timings() -> Vec<Timing> {
    TAKEN.take()
}

/// Whether the steps of a run are timed, as it was asked for when the run began.
#[derive(Clone, Copy)]
pub(crate) struct Timer(bool);

impl Timer {
    pub(crate) fn new() -> Self {
        Self(ON.load(Ordering::Relaxed))
    }

    /// When a step begins, if it is timed.
    #[inline]
    pub(crate) fn begin(self) -> Option<Instant> {
        self.0.then(|| {
            take_step_peak();
            Instant::now()
        })
    }
}

/// Notes the step that began then, if it is timed, and ends now: these functions ran in it.
#[inline]
pub(crate) fn end(began: Option<Instant>, functions: &[Ix], is_backward: bool) {
    if let Some(began) = began {
        record(began, functions, is_backward);
    }
}

#[cold]
fn record(began: Instant, functions: &[Ix], is_backward: bool) {
    let ended = Instant::now();
    let functions = arena::with(|a| functions.iter().map(|f| Function::counted(a, *f)).collect());
    let timing = Timing { functions, is_backward, began, ended, peak: take_step_peak() };
    TAKEN.with_borrow_mut(|taken| taken.push(timing));
}
