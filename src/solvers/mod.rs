//! Solvers: updates of parameters from their gradients. Knows storages and the arithmetic of a step, but no graphs
//! (except `variables`) and no Python.
//!
//! A new solver is one `op!` declaration of its arguments, with the learning rate first. One [`Rule`] impl gives its
//! states and a formula on numbers. [`SOLVERS`] lists it. Its Python class, stub and documentation follow from the
//! declaration.

mod adam;
mod adaptive;
mod gradients;
mod momentum;
mod solver;
mod states;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod variables;

pub use adam::{AMSBound, AMSGRAD, AdaBelief, AdaBound, Adam, AdamW, Adamax, Lamb};
pub use adaptive::{Adadelta, Adagrad, RMSprop, RMSpropGraves};
pub use momentum::{Lars, Lion, Momentum, Nesterov, Sgd, SgdW};
pub use solver::{Existing, Hooks, Pair, Solver, Source};
pub use states::{ParameterState, SolverState};

use std::array::from_fn;
use std::cell::Cell;
use std::ptr::null_mut;

use crate::array::DType;
use crate::kernels::update::{self, Cells, Squares};
use crate::kernels::{Float, Number};
use crate::ops::{Declared, Spec, Value};
use crate::{Error, Result};

/// Inputs of a formula besides the element, its gradient and its states.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The current learning rate.
    pub rate: f64,
    /// The current learning rate divided by the initial one.
    pub schedule: f64,
    /// Number of this step for the parameter, starting at 1.
    pub t: f64,
    /// Rate of weight decay, if it is part of the step.
    pub decay: f64,
    /// L2 norms over the parameter of the values that [`Rule::measured`] returns.
    pub norms: [f64; 2],
}

impl Step {
    /// `1 - beta^t`: the weight collected by an average that started at zero.
    fn progress(&self, beta: f64) -> f64 {
        1.0 - power(beta, self.t)
    }
}

/// `base.powf(exponent)`. Remembers the last two, which are mostly the same for all parameters of a solver.
fn power(base: f64, exponent: f64) -> f64 {
    thread_local! {
        /// Base, exponent and power of the last two calls that computed one.
        static LAST: Cell<[[f64; 3]; 2]> = const { Cell::new([[1.0; 3]; 2]) };
    }
    let last = LAST.get();
    let known =
        last.iter().find(|[b, e, _]| b.to_bits() == base.to_bits() && e.to_bits() == exponent.to_bits());
    if let Some([_, _, power]) = known {
        return *power;
    }
    let power = base.powf(exponent);
    LAST.set([[base, exponent, power], last[0]]);
    power
}

/// A solver as its author writes it, with `S` states for each element.
pub trait Rule<const S: usize>: Declared {
    /// Names of the states, as in NNabla's files.
    const STATES: [&'static str; S];

    /// The step of one element: returns the new value from gradient, value and states, and updates the states.
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; S]) -> N;

    /// True if the formula reads [`Step::norms`].
    const NORMS: bool = false;

    /// The values whose norms are [`Step::norms`], from gradient, value and states. Runs over the whole parameter
    /// before the formula. May update the states, unless it runs `AGAIN`.
    fn measured<N: Number, const AGAIN: bool>(&self, step: &Step) -> impl Fn(N, N, &mut [N; S]) -> [N; 2] {
        let _ = step;
        |g, w, _| [g, w]
    }

    /// Number of states that these arguments need: a prefix of [`Rule::STATES`].
    fn n_states(&self) -> usize {
        S
    }

    /// The default rate of weight decay, if decay is part of the step.
    fn decay(&self) -> Option<f64> {
        None
    }
}

/// The exponential moving average: `beta` times the old value plus `1 - beta` times the new.
#[inline(always)]
fn average<N: Number>(beta: f64) -> impl Fn(N, N) -> N + Copy {
    let (keep, take) = (N::all(beta), N::all(1.0 - beta));
    move |old, new| keep * old + take * new
}

/// The value, gradient and optimizer states of one parameter during an update.
struct StateMemory<'a> {
    /// The number of elements.
    n: usize,
    /// The gradient.
    g: Cells,
    /// The value.
    w: Cells,
    /// The first element of each state.
    states: &'a [*mut u8],
    /// Type of the states.
    dtype: DType,
}

impl<'a> StateMemory<'a> {
    /// Wraps the memory of gradient, value and states. The states have the type that the step computes in.
    ///
    /// # Safety
    /// Each must have `n` elements that no one else accesses while this value lives.
    unsafe fn new(n: usize, g: Cells, w: Cells, states: &'a [*mut u8], dtype: DType) -> Self {
        Self { n, g, w, states, dtype }
    }
}

/// The methods of a [`Rule`] that [`Solver`] calls, without its type parameters.
trait Stepper: Send + Sync {
    /// The declaration of the rule.
    fn spec(&self) -> &'static Spec;
    /// The values of its arguments.
    fn values(&self) -> Vec<Value>;
    /// The names of its states.
    fn states(&self) -> &'static [&'static str];
    /// The default rate of weight decay, if decay is part of the step.
    fn decay(&self) -> Option<f64>;
    /// Updates the value and the states of one parameter.
    fn step(&self, step: Step, memory: &StateMemory<'_>);
}

/// A [`Rule`] with its arguments.
struct BoundRule<R, const S: usize>(R);

impl<R: Rule<S>, const S: usize> BoundRule<R, S> {
    /// One step of a parameter, in the type `T`.
    fn run<T: Float>(&self, mut step: Step, memory: &StateMemory<'_>) {
        let StateMemory { n, g, w, states, dtype } = *memory;
        assert!(dtype == T::DTYPE, "states of the type that the step computes in");
        let s: [*mut T; S] = from_fn(|k| states.get(k).map_or(null_mut(), |s| s.cast()));
        // SAFETY: guaranteed when the memory was wrapped.
        unsafe {
            if R::NORMS {
                let measured = || self.0.measured::<T, false>(&step);
                let squares = update::squares(n, g, w, s, measured, || self.0.measured::<T, true>(&step));
                step.norms = squares.map(Squares::norm);
            }
            update::step(n, g, w, s, || self.0.formula::<T>(&step));
        }
    }
}

impl<R: Rule<S>, const S: usize> Stepper for BoundRule<R, S> {
    fn spec(&self) -> &'static Spec {
        const { &R::SPEC }
    }
    fn values(&self) -> Vec<Value> {
        self.0.values()
    }
    fn states(&self) -> &'static [&'static str] {
        const { &R::STATES }.get(..self.0.n_states()).unwrap_or(&[])
    }
    fn decay(&self) -> Option<f64> {
        self.0.decay()
    }
    fn step(&self, step: Step, memory: &StateMemory<'_>) {
        if memory.dtype == DType::F64 {
            self.run::<f64>(step, memory);
        } else {
            self.run::<f32>(step, memory);
        }
    }
}

/// One row of the registry: how to make a solver from its arguments.
pub struct SolverEntry {
    /// The declaration. It has no inputs, and its first argument is the learning rate.
    pub spec: &'static Spec,
    /// Makes the rule from the values of its arguments.
    make: fn(&[Value]) -> Result<Box<dyn Stepper>>,
}

impl SolverEntry {
    /// The entry of a rule.
    const fn of<R: Rule<S>, const S: usize>() -> Self {
        Self { spec: const { &R::SPEC }, make: |values| Ok(Box::new(BoundRule(R::bind(values)?))) }
    }

    /// Makes a solver from its arguments, in order. Missing ones have their defaults.
    ///
    /// # Errors
    /// [`Error::Type`] for too many arguments, [`Error::Argument`] for one of the wrong type or range.
    pub fn solver<P: Source>(&self, values: &[Value]) -> Result<Solver<P>> {
        let args = self.spec.args;
        if values.len() > args.len() {
            return Err(Error::Type(format!(
                "{}: expected at most {} arguments, got {}",
                self.spec.name,
                args.len(),
                values.len()
            )));
        }
        let mut all = values.to_vec();
        all.extend(args[values.len()..].iter().map(|a| a.default.map_or(Value::None, |default| default())));
        let rule = (self.make)(&all)?;
        for (arg, value) in args.iter().zip(rule.values()) {
            if let Value::Float(v) = value {
                check(self.spec.name, arg.name, v)?;
                if arg.name.starts_with("beta") && v >= 1.0 {
                    return Err(Error::argument(self.spec.name, arg.name, "less than 1", v));
                }
            }
        }
        Ok(Solver::new(rule))
    }
}

/// Refuses a negative, infinite or NaN rate, factor or norm.
fn check(op: &str, arg: &str, v: f64) -> Result<()> {
    if v.is_finite() && v >= 0.0 {
        return Ok(());
    }
    Err(Error::argument(op, arg, "a finite number that is not negative", v))
}

/// Every solver: the single source for Python, stubs, docs and tests.
pub const SOLVERS: &[SolverEntry] = &[
    SolverEntry::of::<Sgd, 0>(),
    SolverEntry::of::<SgdW, 1>(),
    SolverEntry::of::<Momentum, 1>(),
    SolverEntry::of::<Lars, 1>(),
    SolverEntry::of::<Nesterov, 1>(),
    SolverEntry::of::<Adadelta, 2>(),
    SolverEntry::of::<Adagrad, 1>(),
    SolverEntry::of::<AdaBelief, 3>(),
    SolverEntry::of::<RMSprop, 1>(),
    SolverEntry::of::<RMSpropGraves, 3>(),
    SolverEntry::of::<Adam, 2>(),
    SolverEntry::of::<AdamW, 2>(),
    SolverEntry::of::<AdaBound, 2>(),
    SolverEntry::of::<Adamax, 2>(),
    SolverEntry::of::<AMSGRAD, 3>(),
    SolverEntry::of::<AMSBound, 3>(),
    SolverEntry::of::<Lamb, 2>(),
    SolverEntry::of::<Lion, 1>(),
];

/// Finds a solver by its Python name.
pub fn find(name: &str) -> Option<&'static SolverEntry> {
    SOLVERS.iter().find(|e| e.spec.name == name)
}
