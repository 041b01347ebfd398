//! The computation graph: variables, the functions that connect them, and the runs through it.
//!
//! Reverse-mode differentiation in one paragraph: a forward run computes each function after those that feed it; a backward run
//! visits the same functions the other way round and hands each one the gradient of its outputs, from which it makes the
//! gradients of its inputs; where a variable feeds several functions their contributions add up. `run` does it as NNabla
//! has it, with a gradient in every variable; `autodiff` as PyTorch has it, with gradients of leaves, or returned.
//! Everything else here is about memory: what may be given back and how it comes back (`memory`), and what need not be
//! decided anew in each run (`plan`).
//!
//! The folders are layers, and imports point downwards: `settings`, `arena` (nodes behind one lock), `handles` (what users
//! hold), `step` (one function), `memory`, `build` (an operation becomes a node), `plan`, then `run`, `autodiff` and
//! `report`. `docs/architecture.md` has the words, the invariants and two walks.
//!
//! [`Variable`] and [`Function`] are counted handles. No kernel, no user's code and no destructor of an operation runs under
//! the lock. Nothing recurses: graphs may be a million deep.

mod arena;
pub mod autodiff;
mod build;
mod handles;
mod memory;
mod plan;
mod report;
mod run;
pub mod settings;
mod step;

#[doc(hidden)]
pub use crate::kernels::stop::{Interrupt, set_check as interrupt_check};
pub use arena::liveness::check_errors_at_drop;
pub use autodiff::route::Edge;
pub use autodiff::symbolic::grad;
pub use build::connect::{apply, connect, connect_detached};
pub use build::node::Outputs;
pub use handles::callbacks::{Detach, FunctionHook};
pub use handles::function::Function;
pub use handles::gradient_hooks::{GradientHook, HookHandle, When, live_variables};
pub use handles::ndarray::{NdArray, copied};
pub use handles::segment::{Notes, births, is_born_since, note_read, swap_notes, taken_from_outside};
pub use handles::user::{User, UserRule};
pub use handles::variable::Variable;
pub use memory::clear_record::{ClearFlags, ClearRecord, record_clear_flags, recorded_clear_flags};
pub use memory::eviction::pool::set_memory_budget;
#[doc(hidden)]
pub use plan::cache::{memory_changed, plans_made};
pub use report::{Fate, Optimised, Report, ReportStep, ReportValue, report};
pub use run::backward::{BackwardOptions, CommunicatorCallback, Seed};
pub use run::forward::{Closed, ForwardOptions, forward_all};
pub use run::timings::{Timing, take_timings, time_runs};
#[doc(hidden)]
pub use step::anomaly::set_source_line;
pub use step::forward::{evaluate, evaluate_into};

/// Makes what a thread needs before its first run, see [`crate::array::begin_thread`].
#[cfg(feature = "python")]
pub(crate) fn begin_thread() {
    crate::ops::begin_thread();
    handles::segment::begin_thread();
    memory::eviction::pool::begin_thread();
    run::timings::begin_thread();
    drop(std::thread::current());
}
