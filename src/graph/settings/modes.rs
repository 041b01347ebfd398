//! Modes of building a graph: gradients, eager execution, recomputation, and the context. A setter changes the
//! default of the process, a scope changes the mode of its thread.

use crate::Result;
use crate::environment;
pub use crate::ops::contract::dialect::{Dialect, is_nnabla};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering;

/// The modes that scopes change.
#[allow(clippy::struct_excessive_bools)] // independent modes
#[derive(Clone, Copy)]
pub struct ScopedModes {
    /// See [`grad_enabled`].
    grad: bool,
    /// Overrides the process's default of [`auto_forward`], if set.
    auto_forward: Option<bool>,
    /// Overrides the process's default of [`recompute`], if set.
    recompute: Option<bool>,
    /// The number of the context. Overrides the process's default, if set.
    context: Option<u16>,
    /// See [`in_recomputing`].
    recomputing: bool,
    /// The memory budget in bytes, if any. See [`memory_budget`].
    memory_budget: Option<usize>,
    /// See [`detect_anomaly`].
    anomaly: bool,
    /// See [`noting`].
    noting: bool,
}

/// A mode that scopes change, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// See [`grad_enabled`].
    Grad(bool),
    /// See [`auto_forward`].
    AutoForward(Option<bool>),
    /// See [`recompute`].
    Recompute(Option<bool>),
    /// See [`current_context`].
    Context(Option<u16>),
    /// See [`memory_budget`].
    MemoryBudget(Option<usize>),
    /// See [`detect_anomaly`].
    Anomaly(bool),
}

impl Mode {
    /// True if both are values of the same mode.
    pub fn is_alike(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl ScopedModes {
    /// The modes outside all scopes.
    pub const DEFAULT: Self = Self {
        grad: true,
        auto_forward: None,
        recompute: None,
        context: None,
        recomputing: false,
        memory_budget: None,
        anomaly: false,
        noting: false,
    };

    /// Sets one mode.
    pub fn set(&mut self, mode: Mode) {
        self.replace(mode);
    }

    /// The memory limit of a training step in bytes, if any. See [`memory_budget`].
    pub fn memory_budget(&self) -> Option<usize> {
        self.memory_budget
    }

    /// Sets a mode and returns its former value.
    fn replace(&mut self, mode: Mode) -> Mode {
        use std::mem::replace;
        match mode {
            Mode::Grad(on) => Mode::Grad(replace(&mut self.grad, on)),
            Mode::AutoForward(on) => Mode::AutoForward(replace(&mut self.auto_forward, on)),
            Mode::Recompute(on) => Mode::Recompute(replace(&mut self.recompute, on)),
            Mode::Context(number) => Mode::Context(replace(&mut self.context, number)),
            Mode::MemoryBudget(bytes) => Mode::MemoryBudget(replace(&mut self.memory_budget, bytes)),
            Mode::Anomaly(on) => Mode::Anomaly(replace(&mut self.anomaly, on)),
        }
    }
}

thread_local! {
    /// The modes of this thread. A mode that is None has the value of the process.
    static SCOPED: Cell<ScopedModes> = const { Cell::new(ScopedModes::DEFAULT) };
}

/// The modes of this thread.
pub fn scoped() -> ScopedModes {
    SCOPED.get()
}

/// Sets the modes of this thread, except the memory budget, which requires [`crate::graph::set_memory_budget`].
pub fn set_scoped(modes: ScopedModes) {
    SCOPED.set(ScopedModes { memory_budget: SCOPED.get().memory_budget, ..modes });
}

/// Sets one mode of this thread and returns the previous value.
pub fn set_mode(mode: Mode) -> Mode {
    let mut scoped = SCOPED.get();
    let old = scoped.replace(mode);
    SCOPED.set(scoped);
    old
}

/// The default of the process for [`auto_forward`].
static AUTO_FORWARD: AtomicBool = AtomicBool::new(false);

/// The default of the process for [`recompute`].
static RECOMPUTE: AtomicBool = AtomicBool::new(false);

/// The number of the context of the process, for threads that set none of their own.
static CONTEXT: AtomicU16 = AtomicU16::new(0);

/// Replaces one field of the modes of this thread and returns its previous value.
fn swap<T>(field: impl FnOnce(&mut ScopedModes) -> &mut T, value: T) -> T {
    let mut scoped = SCOPED.get();
    let old = std::mem::replace(field(&mut scoped), value);
    SCOPED.set(scoped);
    old
}

/// The modes in which a function is built, read together.
#[allow(clippy::struct_excessive_bools)] // independent modes
#[derive(Clone, Copy)]
pub(crate) struct Modes {
    /// See [`grad_enabled`].
    pub(crate) grad: bool,
    /// See [`auto_forward`].
    pub(crate) auto_forward: bool,
    /// See [`recompute`].
    pub(crate) recompute: bool,
    /// See [`detect_anomaly`].
    pub(crate) anomaly: bool,
    /// The number of the context.
    pub(crate) context: u16,
    /// The memory budget in bytes, if any. See [`memory_budget`].
    pub(crate) memory_budget: Option<usize>,
    /// See [`noting`].
    pub(crate) noting: bool,
}

/// The modes of this thread; modes without a scope have the value of the process.
#[inline]
pub(crate) fn now() -> Modes {
    let scoped = SCOPED.get();
    Modes {
        grad: scoped.grad,
        auto_forward: scoped.auto_forward.unwrap_or_else(|| AUTO_FORWARD.load(Ordering::Relaxed)),
        recompute: scoped.recompute.unwrap_or_else(|| RECOMPUTE.load(Ordering::Relaxed)),
        anomaly: scoped.anomaly,
        context: scoped.context.unwrap_or_else(|| CONTEXT.load(Ordering::Relaxed)),
        memory_budget: scoped.memory_budget,
        noting: scoped.noting,
    }
}

/// True if reads and outputs of functions without a graph are recorded.
pub fn noting() -> bool {
    SCOPED.get().noting
}

/// Sets whether this thread records reads and outputs of functions without a graph.
pub(crate) fn set_noting(on: bool) {
    swap(|s| &mut s.noting, on);
}

/// True if new functions take part in differentiation.
pub fn grad_enabled() -> bool {
    SCOPED.get().grad
}

/// Sets [`grad_enabled`] for this thread and returns the previous value.
pub fn set_grad_enabled(on: bool) -> bool {
    swap(|s| &mut s.grad, on)
}

/// Restores the modes of this thread when it is dropped.
pub(crate) struct Scope(ScopedModes);

impl Scope {
    /// Enters a scope in which functions run eagerly, with a graph if `grad` is set.
    pub(crate) fn at_once(grad: bool) -> Self {
        let before = SCOPED.get();
        SCOPED.set(ScopedModes { grad, auto_forward: Some(true), ..before });
        Self(before)
    }

    /// Functions recompute values for a backward run, without side effects, if `on` is set.
    pub(crate) fn recomputing(on: bool) -> Self {
        let before = SCOPED.get();
        SCOPED.set(ScopedModes { recomputing: on, ..before });
        Self(before)
    }

    /// Enters a scope in which functions are built in this context.
    pub(crate) fn context(number: u16) -> Self {
        let before = SCOPED.get();
        SCOPED.set(ScopedModes { context: Some(number), ..before });
        Self(before)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        SCOPED.set(self.0);
    }
}

/// True if functions run eagerly, that is, as soon as they are built.
#[inline]
pub fn auto_forward() -> bool {
    SCOPED.get().auto_forward.unwrap_or_else(|| AUTO_FORWARD.load(Ordering::Relaxed))
}

/// Sets the default of [`auto_forward`] for the process.
pub fn set_auto_forward(on: bool) {
    AUTO_FORWARD.store(on, Ordering::Relaxed);
}

/// Sets or removes the override of [`auto_forward`] for this thread. Returns the previous one.
pub fn scope_auto_forward(on: Option<bool>) -> Option<bool> {
    swap(|s| &mut s.auto_forward, on)
}

/// True if the data of new variables may be dropped after use and recomputed.
pub fn recompute() -> bool {
    SCOPED.get().recompute.unwrap_or_else(|| RECOMPUTE.load(Ordering::Relaxed))
}

/// Sets the default of [`recompute`] for the process.
pub fn set_recompute(on: bool) {
    RECOMPUTE.store(on, Ordering::Relaxed);
}

/// Sets or removes the override of [`recompute`] for this thread. Returns the previous one.
pub fn scope_recompute(on: Option<bool>) -> Option<bool> {
    swap(|s| &mut s.recompute, on)
}

/// True if this thread is recomputing values for a backward run.
pub fn in_recomputing() -> bool {
    SCOPED.get().recomputing
}

/// Sets [`in_recomputing`] and returns the previous value. Functions that run meanwhile have no side effects.
pub fn set_recomputing(on: bool) -> bool {
    swap(|s| &mut s.recomputing, on)
}

/// The memory limit of a training step for the arrays of a graph, in bytes, if any.
pub fn memory_budget() -> Option<usize> {
    SCOPED.get().memory_budget
}

/// Sets [`memory_budget`] for this thread and returns the previous value.
pub(crate) fn swap_memory_budget(bytes: Option<usize>) -> Option<usize> {
    swap(|s| &mut s.memory_budget, bytes)
}

/// True if runs of this thread stop at the first non-finite number, and functions record where they are built.
pub fn detect_anomaly() -> bool {
    SCOPED.get().anomaly
}

/// Sets [`detect_anomaly`] for this thread and returns the previous value.
pub fn set_detect_anomaly(on: bool) -> bool {
    swap(|s| &mut s.anomaly, on)
}

/// Sets the dialect of the process, and with it the default of [`execution_order`] and [`check_saved`].
pub fn set_dialect(dialect: Dialect) {
    dialect.set();
    EXECUTION_ORDER.store(AS_DIALECT, Ordering::Relaxed);
    CHECK_SAVED.store(AS_DIALECT, Ordering::Relaxed);
}

/// The order of the functions of a forward run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExecutionOrder {
    /// By rank, as NNabla documents.
    Rank,
    /// Depth first, as NNabla actually does.
    DepthFirst,
}

/// The value of a setting that follows the dialect.
const AS_DIALECT: u8 = u8::MAX;

/// An [`ExecutionOrder`], or [`AS_DIALECT`].
static EXECUTION_ORDER: AtomicU8 = AtomicU8::new(AS_DIALECT);

/// The order of forward runs: as set by [`set_execution_order`], otherwise as the dialect determines.
pub fn execution_order() -> ExecutionOrder {
    match EXECUTION_ORDER.load(Ordering::Relaxed) {
        AS_DIALECT if is_nnabla() => ExecutionOrder::DepthFirst,
        order if order == ExecutionOrder::DepthFirst as u8 => ExecutionOrder::DepthFirst,
        _ => ExecutionOrder::Rank,
    }
}

/// Sets [`execution_order`] for the process.
pub fn set_execution_order(order: ExecutionOrder) {
    EXECUTION_ORDER.store(order as u8, Ordering::Relaxed);
}

/// The reaction of a backward run to a value that a gradient reads and that changed since the forward run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CheckSaved {
    /// Uses the new value, as NNabla does.
    Ignore,
    /// Uses the new value and warns.
    Warn,
    /// Returns an error.
    Raise,
}

/// A [`CheckSaved`], or [`AS_DIALECT`].
static CHECK_SAVED: AtomicU8 = AtomicU8::new(AS_DIALECT);

/// The reaction of backward runs to values that changed since the forward run: as set by [`set_check_saved`],
/// otherwise as the dialect determines.
pub fn check_saved() -> CheckSaved {
    match CHECK_SAVED.load(Ordering::Relaxed) {
        AS_DIALECT if is_nnabla() => CheckSaved::Ignore,
        what if what == CheckSaved::Ignore as u8 => CheckSaved::Ignore,
        what if what == CheckSaved::Raise as u8 => CheckSaved::Raise,
        _ => CheckSaved::Warn,
    }
}

/// Sets [`check_saved`] for the process.
pub fn set_check_saved(what: CheckSaved) {
    CHECK_SAVED.store(what as u8, Ordering::Relaxed);
}

/// The execution mode of plans: optimized, with identical results, or plain, function by function.
static PLAN: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Value of [`PLAN`]: neither the user nor the environment was asked yet.
const UNKNOWN: u8 = 0;

/// Value of [`PLAN`]: function by function.
const PLAIN: u8 = 1;

/// Value of [`PLAN`]: optimized.
const OPTIMISED: u8 = 2;

/// True if new plans run function by function: as set by [`set_plan_is_plain`], otherwise by the environment
/// (`KINNOR_PLAN=plain`).
pub fn plan_is_plain() -> bool {
    match PLAN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let plain = plan_of_environment().is_ok_and(|plan| plan.is_some_and(|(how, _)| how == PLAIN));
            set_plan_is_plain(plain);
            plain
        }
        known => known == PLAIN,
    }
}

/// The execution mode of plans, and whether they are printed, if the environment sets it.
pub(crate) fn plan_of_environment() -> Result<Option<(u8, bool)>> {
    let known = |plan: &str| match plan {
        "plain" => Some((PLAIN, false)),
        "optimised" => Some((OPTIMISED, false)),
        "print" => Some((OPTIMISED, true)),
        _ => None,
    };
    Ok(environment::setting("KINNOR_PLAN", "plain, optimised or print", known)?)
}

/// True if plans print their instructions when these are listed (`KINNOR_PLAN=print`).
pub(crate) fn plan_is_printed() -> bool {
    /// Whether the environment asks to print plans.
    static PRINTED: OnceLock<bool> = OnceLock::new();
    let asked = || plan_of_environment().is_ok_and(|plan| plan.is_some_and(|(_, printed)| printed));
    *PRINTED.get_or_init(asked)
}

/// Sets whether new plans run function by function, for the process.
pub fn set_plan_is_plain(on: bool) {
    PLAN.store(if on { PLAIN } else { OPTIMISED }, Ordering::Relaxed);
}

/// The number of the context in which functions are built.
pub fn current_context() -> u16 {
    SCOPED.get().context.unwrap_or_else(|| CONTEXT.load(Ordering::Relaxed))
}

/// Sets the default context of the process.
pub fn set_default_context(number: u16) {
    CONTEXT.store(number, Ordering::Relaxed);
}

/// Sets or removes the override of the context for this thread. Returns the previous one.
pub fn scope_context(number: Option<u16>) -> Option<u16> {
    swap(|s| &mut s.context, number)
}
