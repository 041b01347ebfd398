//! Handles on functions, like `nbla::CgFunction` in NNabla's C++.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::graph::arena::{self, Arena, Ix, order};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::variable::Variable;
use crate::graph::settings::context::{self, Context};
use crate::ops::{Alias, Op, State, Value};
use crate::{Error, Result};

/// A handle on a function of a graph: an operation with its inputs and outputs. Handles on one function are equal.
pub struct Function(pub(crate) Ix);

impl Function {
    /// A new handle with its own count.
    pub(crate) fn counted(a: &mut Arena, f: Ix) -> Self {
        a.hold_function(f);
        Self(f)
    }

    /// The slot of the function.
    pub(crate) fn ix(&self) -> Ix {
        self.0
    }

    /// A number that is unique among all functions of the process, past and present.
    pub fn number(&self) -> u64 {
        u64::from(self.0) | arena::with(|a| u64::from(a.function_generation(self.0))) << 32
    }

    /// The operation.
    pub fn op(&self) -> Op {
        arena::with(|a| a.op(self.0).clone())
    }

    /// The type name of the operation, such as `LeakyReLU`.
    pub fn type_name(&self) -> String {
        self.op().type_name().to_string()
    }

    /// The constant arguments, like `info.args` in NNabla.
    pub fn arguments(&self) -> Vec<(&'static str, Value)> {
        let shapes: Vec<_> = self.inputs().iter().map(Variable::shape).collect();
        self.op().info(&shapes.iter().collect::<Vec<_>>())
    }

    /// The inputs that were passed, including inactive ones.
    pub fn inputs(&self) -> Vec<Variable> {
        arena::with(|a| {
            let inputs = a.all_inputs(self.0);
            let counted = |(v, _): (Ix, bool)| {
                a.hold(v);
                Variable::adopt(a, v)
            };
            inputs.into_iter().map(counted).collect()
        })
    }

    /// The outputs. For an output whose variable was freed, returns a new variable on the same data and gradient.
    pub fn outputs(&self) -> Vec<Variable> {
        arena::with(|a| {
            let n = a.n_outputs(self.0);
            let counted = |o| {
                let v = a.output(self.0, o);
                Variable::adopt(a, v)
            };
            (0..n).map(counted).collect()
        })
    }

    /// The count of random numbers that its runs have drawn. None if it draws none.
    ///
    /// # Errors
    /// [`Error::Graph`] while it runs.
    pub fn random_position(&self) -> Result<Option<u64>> {
        self.with_state(|state| state.position())
    }

    /// Sets [`Function::random_position`], so that a function with a seed of its own continues its sequence there.
    ///
    /// # Errors
    /// [`Error::Graph`] while it runs, or if it draws no random numbers.
    pub fn set_random_position(&self, position: u64) -> Result<()> {
        self.with_state(|state| state.set_position(position))?.ok_or_else(|| {
            let name = self.type_name();
            Error::Graph(format!(
                "random_position: expected a function that draws random numbers, got {name}"
            ))
        })
    }

    /// The counts and values that its runs keep for later runs, besides random numbers. None if its results depend
    /// only on its inputs. Empty before the first run.
    ///
    /// # Errors
    /// [`Error::Graph`] while it runs.
    pub fn progress(&self) -> Result<Option<Vec<u8>>> {
        self.with_op_and_state(|op, state| op.progress(state))
    }

    /// Continues from a result of [`Function::progress`].
    ///
    /// # Errors
    /// [`Error::Graph`] while it runs, or if the bytes are not of such a function.
    pub fn resume(&self, progress: &[u8]) -> Result<()> {
        // Made, and the old one dropped, while the arena is not locked.
        let mut kept = State::default();
        if !self.op().resume(&mut kept, progress) {
            let name = self.type_name();
            let expected = format!("expected the progress of a function like {name}, got other bytes");
            return Err(Error::Graph(format!("progress: {expected}")));
        }
        self.with_op_and_state(|_, state| state.swap_values(&mut kept))
    }

    /// Calls `f` with the state of a function that draws random numbers. Returns None for others.
    fn with_state<R>(&self, f: impl FnOnce(&mut State) -> R) -> Result<Option<R>> {
        self.with_op_and_state(|op, state| op.facts().is_random.then(|| f(state)))
    }

    /// Calls `f` with the operation and its state.
    fn with_op_and_state<R>(&self, f: impl FnOnce(&Op, &mut State) -> R) -> Result<R> {
        arena::with(|a| {
            let op = a.op(self.0).clone();
            if a.is_busy(self.0) {
                return Err(Error::Graph(format!(
                    "{}: expected a function that does not run now",
                    op.name()
                )));
            }
            Ok(f(&op, &mut a.provenance_mut(self.0).state))
        })
    }

    /// The length of the longest path to it from a variable without parent.
    pub fn rank(&self) -> u32 {
        arena::with(|a| a.function_rank(self.0))
    }

    /// True if gradients flow through it, as of its creation or the last forward run.
    pub fn need_grad(&self) -> bool {
        arena::with(|a| a.passes_gradients(self.0))
    }

    /// The context in which it computes.
    pub fn context(&self) -> Context {
        context::context(self.context_number())
    }

    /// The number of the context in which it computes. Equal contexts have the same number.
    pub(crate) fn context_number(&self) -> u16 {
        arena::with(|a| a.context(self.0))
    }

    /// User tags, by key.
    pub fn tags(&self) -> Vec<(String, String)> {
        arena::with(|a| a.tags(self.0).to_vec())
    }

    /// Replaces the tags.
    pub fn set_tags(&self, tags: Vec<(String, String)>) {
        arena::with(|a| a.set_tags(self.0, tags));
    }

    /// The functions of a backward run that starts here, in its order. Each comes with the indices of those gradients
    /// in `grads` that are complete after it has run: no later function adds to them.
    ///
    /// ```
    /// use kinnor::graph::{Function, Variable, apply};
    ///
    /// let x = Variable::new([2])?.with_need_grad(true);
    /// let w = Variable::new([2])?.with_need_grad(true);
    /// let h = apply("mul2", &[&x, &w], &[])?.remove(0);
    /// let y = apply("add2", &[&h, &w], &[])?.remove(0);
    /// let last = y.parent().ok_or(kinnor::Error::Graph("it has one".into()))?;
    /// let run = last.completed_gradients(&[w.grad(), h.grad()]);
    /// let found: Vec<_> = run.iter().map(|(f, complete)| (f.type_name(), complete.clone())).collect();
    /// assert_eq!(found, [("Add2".to_string(), vec![1]), ("Mul2".to_string(), vec![0])]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    pub fn completed_gradients(&self, grads: &[NdArray]) -> Vec<(Self, Vec<usize>)> {
        let numbers: HashMap<_, _> =
            grads.iter().enumerate().map(|(n, grad)| (Arc::as_ptr(&grad.storage), n)).collect();
        arena::with(|a| {
            let order = order::backward_order_from(a, self.0);
            let mut last = vec![None; grads.len()];
            for (at, f) in order.iter().enumerate() {
                for v in a.inputs(*f).iter().filter(|v| a.need_grad(**v)) {
                    let grad = a.existing_grad(a.tensor(*v));
                    if let Some(n) = grad.and_then(|grad| numbers.get(&Arc::as_ptr(grad))) {
                        last[*n] = Some(at);
                    }
                }
            }
            let mut run: Vec<_> = order.into_iter().map(|f| (Self::counted(a, f), Vec::new())).collect();
            for (n, at) in last.into_iter().enumerate() {
                if let Some(at) = at {
                    run[at].1.push(n);
                }
            }
            run
        })
    }

    /// The output that shares memory with input `i`, if any.
    pub fn alias(&self, i: usize) -> Option<Alias> {
        self.op().facts().alias(i)
    }
}

impl Clone for Function {
    fn clone(&self) -> Self {
        arena::with(|a| Self::counted(a, self.0))
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        arena::with(|a| a.release_function(self.0));
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
