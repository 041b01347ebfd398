//! The context of a run: its callbacks, and which checks it makes.

use crate::Result;
use crate::array::RunGuard;
use crate::graph::arena::{self, Ix};
use crate::graph::handles::callbacks::{FunctionHook, Pace};
use crate::graph::handles::function::Function;
use crate::graph::lifetime::clear_record;
use crate::graph::run::backward::CommunicatorCallback;
use crate::graph::run::timings::Timer;
use crate::graph::settings::modes;

/// The context of a run.
pub(crate) struct RunContext<'a> {
    /// A hook that is called before each function.
    pre_hook: Option<FunctionHook<'a>>,
    /// A hook that is called after each function.
    post_hook: Option<FunctionHook<'a>>,
    /// Callbacks that are called for each function that has run.
    callbacks: &'a [&'a dyn CommunicatorCallback],
    /// Keeps buffers in place during the run. Without it, steps pin the buffers that they use.
    pub(crate) guard: Option<&'a RunGuard>,
    /// The plan has run before, and may use more memory at a time than single steps do.
    optimise: bool,
    /// Clears are recorded for a test, see [`clear_record`].
    recording: bool,
    /// Times the steps, if timing is on.
    pub(crate) timer: Timer,
    /// True if results are checked for non-finite numbers.
    pub(crate) anomaly: bool,
}

impl<'a> RunContext<'a> {
    /// The context of a run with these hooks (before and after each function) and callbacks. Reads the modes of the
    /// thread.
    pub(crate) fn new(
        hooks: [Option<FunctionHook<'a>>; 2],
        callbacks: &'a [&'a dyn CommunicatorCallback],
        guard: Option<&'a RunGuard>,
        optimise: bool,
    ) -> Self {
        let [pre_hook, post_hook] = hooks;
        let (recording, anomaly) = (clear_record::is_recording(), modes::detect_anomaly());
        let timer = Timer::new();
        Self { pre_hook, post_hook, callbacks, guard, optimise, recording, timer, anomaly }
    }

    /// True if the run calls user code.
    pub(crate) fn is_hooked(&self) -> bool {
        self.pre_hook.is_some() || self.post_hook.is_some() || !self.callbacks.is_empty()
    }

    /// True if functions may be fused, since nothing inspects each one. Callbacks may be called for them in order
    /// afterwards.
    pub(crate) fn may_fuse(&self) -> bool {
        let looked_at = self.pre_hook.is_some() || self.post_hook.is_some() || self.recording || self.anomaly;
        self.optimise && !looked_at
    }

    /// Counts steps, and limits how long other threads wait to one step.
    pub(crate) fn pace(&self) -> Pace<'a> {
        Pace::new(self.guard)
    }

    /// A handle on a function, if a callback needs it.
    pub(crate) fn handle(&self, f: Ix) -> Option<Function> {
        self.is_hooked().then(|| arena::with(|a| Function::counted(a, f)))
    }

    /// Calls the hook before a function runs. `handle` is the function.
    pub(crate) fn before(&self, handle: Option<&Function>) -> Result<()> {
        self.pre_hook.zip(handle).map_or(Ok(()), |(hook, f)| hook(f))
    }

    /// Calls the hook after a function has run. `handle` is the function.
    pub(crate) fn after(&self, handle: Option<&Function>) -> Result<()> {
        self.post_hook.zip(handle).map_or(Ok(()), |(hook, f)| hook(f))
    }

    /// Calls the callbacks for a function whose releases have been cleared. Records the clears if requested.
    pub(crate) fn finished(&self, f: Ix, handle: Option<&Function>) -> Result<()> {
        if self.recording {
            arena::with(|a| clear_record::record(a, f));
        }
        self.callbacks
            .iter()
            .zip(handle.iter().cycle())
            .try_for_each(|(callback, f)| callback.on_finish_function_backward(f))
    }

    /// Calls the callbacks for functions that ran together, such as a fused pass.
    pub(crate) fn finished_together(&self, functions: &[Ix]) -> Result<()> {
        if self.callbacks.is_empty() {
            return Ok(());
        }
        functions.iter().try_for_each(|f| self.finished(*f, self.handle(*f).as_ref()))
    }
}
