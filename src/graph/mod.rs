//! The computation graph: variables, the functions that connect them, and runs.
//!
//! Reverse-mode differentiation in one paragraph: a forward run computes each function after its producers. A
//! backward run visits the same functions in reverse order. Each function receives the gradients of its outputs and
//! computes the gradients of its inputs. If a variable feeds several functions, their contributions are summed. `run`
//! follows NNabla, with a gradient in every variable. `autodiff` follows PyTorch, with gradients of leaves, or
//! returned. Other folders manage memory: `lifetime` frees and restores it, `budget` limits it. `plan` makes decisions
//! once for many runs.
//!
//! The folders are layers, and imports point downwards. From the bottom up:
//!
//! - `settings`, `arena` (nodes behind one lock), `handles` (types that users hold), `step` (one function), `lifetime`
//! - `construct` (turns an operation into a node), `plan`, then `run`, `autodiff` and `report`
//!
//! `budget` has a part for eager functions below `construct`, and one for static graphs above
//! `plan`. `docs/maintainers/architecture.md` explains the words and invariants, and walks through two runs.
//!
//! [`Variable`] and [`Function`] are counted handles. No kernel, no user code and no destructor of an operation runs
//! under the lock. Nothing recurses: graphs may be a million functions deep.

mod arena;
pub mod autodiff;
mod budget;
mod construct;
mod handles;
mod lifetime;
mod plan;
mod report;
mod run;
pub mod settings;
mod step;

#[doc(hidden)]
pub use crate::kernels::stop::{Interrupt, set_check as interrupt_check};
pub use autodiff::route::Edge;
pub use autodiff::symbolic::grad;
pub use budget::eager::pool::set_memory_budget;
pub use construct::connect::{apply, connect, connect_detached};
pub use construct::node::Outputs;
pub use handles::callbacks::{Detach, FunctionHook};
pub use handles::function::Function;
pub use handles::gradient_hooks::{GradientHook, HookHandle, When, live_variables};
pub use handles::ndarray::{NdArray, copied};
pub use handles::segment::{Notes, births, is_born_since, note_read, swap_notes, taken_from_outside};
pub use handles::user::{User, UserRule};
pub use handles::variable::Variable;
pub use lifetime::clear_record::{ClearFlags, ClearRecord, record_clear_flags, recorded_clear_flags};
pub use lifetime::liveness::check_errors_at_drop;
#[doc(hidden)]
pub use plan::cache::{memory_changed, plans_made};
pub use report::{Fate, Optimised, Report, ReportStep, ReportValue, report};
pub use run::backward::{BackwardOptions, CommunicatorCallback, Seed};
pub use run::forward::{Closed, ForwardOptions, forward_all, set_up_all};
pub use run::timings::{Timing, take_timings, time_runs};
#[doc(hidden)]
pub use step::anomaly::set_source_line;
pub use step::forward::{evaluate, evaluate_into};

/// Creates what a thread needs before its first run, see [`crate::array::begin_thread`].
#[cfg(feature = "python")]
pub(crate) fn begin_thread() {
    crate::ops::begin_thread();
    handles::segment::begin_thread();
    budget::eager::pool::begin_thread();
    run::timings::begin_thread();
    drop(std::thread::current());
}
