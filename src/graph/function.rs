//! Handles on functions: what `nbla::CgFunction` is in NNabla's C++.

use std::hash::{Hash, Hasher};

use super::arena::{self, Arena, Ix};
use super::back_step::BackStep;
use super::execute::{self, MemoPtr, Step};
use super::{NdArray, Variable, mode};
use crate::array::{RunGuard, Shape};
use crate::ops::{Alias, Op, Value};
use crate::{Error, Result};

/// A handle on a function of a graph: an operation with its inputs and outputs. Handles on one function are equal.
pub struct Function(Ix);

impl Function {
    /// A handle that counts anew.
    pub(super) fn counted(a: &mut Arena, f: Ix) -> Self {
        a.functions[f].count += 1;
        Self(f)
    }

    pub(super) fn ix(&self) -> Ix {
        self.0
    }

    /// The operation.
    pub fn op(&self) -> Op {
        arena::with(|a| a.op(self.0).clone())
    }

    /// Name of the type of the operation: `LeakyReLU`.
    pub fn type_name(&self) -> String {
        self.op().type_name().to_string()
    }

    /// The constant arguments, as NNabla's `info.args` has them.
    pub fn arguments(&self) -> Vec<(&'static str, Value)> {
        let shapes: Vec<_> = self.inputs().iter().map(Variable::shape).collect();
        self.op().info(&shapes.iter().collect::<Vec<_>>())
    }

    /// The inputs that were given.
    pub fn inputs(&self) -> Vec<Variable> {
        arena::with(|a| {
            let inputs = a.functions[self.0].inputs.clone();
            let counted = |v: Ix| {
                a.variables[v].count += 1;
                Variable::adopt(a, v)
            };
            inputs.into_iter().map(counted).collect()
        })
    }

    /// The outputs. One that nobody held is a bare variable on the same data and gradient.
    pub fn outputs(&self) -> Vec<Variable> {
        arena::with(|a| {
            let n = a.functions[self.0].outputs.len();
            let counted = |o| {
                let v = a.output(self.0, o);
                Variable::adopt(a, v)
            };
            (0..n).map(counted).collect()
        })
    }

    /// The longest path to it from a variable without parent.
    pub fn rank(&self) -> u32 {
        arena::with(|a| a.functions[self.0].rank)
    }

    /// Whether gradients flow through it, as of its making or the last forward run.
    pub fn need_grad(&self) -> bool {
        arena::with(|a| a.functions[self.0].need_grad)
    }

    /// The context in which it computes.
    pub fn context(&self) -> mode::Context {
        mode::context(arena::with(|a| a.functions[self.0].context))
    }

    /// Marks of the user's, by key.
    pub fn tags(&self) -> Vec<(String, String)> {
        arena::with(|a| a.functions[self.0].tags.clone())
    }

    /// Replaces the marks.
    pub fn set_tags(&self, tags: Vec<(String, String)>) {
        arena::with(|a| a.functions[self.0].tags = tags);
    }

    /// The output that shares memory with input `i`, if one does.
    pub fn alias(&self, i: usize) -> Option<Alias> {
        self.op().alias(i)
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

/// Running a function by hand, on variables of the caller's choice.
impl Function {
    fn memo(&self) -> MemoPtr {
        arena::with(|a| MemoPtr(&raw mut a.functions[self.0].memo))
    }

    /// Gives `y` the shapes that the operation makes of `x`, and shares memory where it works in place.
    ///
    /// # Errors
    /// When the operation refuses the shapes, or the number of outputs differs.
    pub fn set_up_on(&self, x: &[&Variable], y: &[&Variable]) -> Result<()> {
        let op = self.op();
        let arrays: Vec<NdArray> = x.iter().map(|v| v.data()).collect();
        let shapes = execute::shapes_of(&op, &arrays)?;
        if shapes.len() != y.len() {
            return Err(Error::Graph(format!(
                "{}: expected {} outputs, got {}",
                op.name(),
                shapes.len(),
                y.len()
            )));
        }
        for (v, shape) in y.iter().zip(shapes) {
            v.reset_shape(shape, true)?;
        }
        for (i, v) in x.iter().enumerate() {
            if let Some(alias) = op.alias(i) {
                let data = NdArray { shape: y[alias.output].shape(), storage: v.data().storage };
                y[alias.output].set_data(&data)?;
            }
        }
        Ok(())
    }

    /// Computes `y` from `x`; shapes are set up first. A `recompute` run repeats the last one: the same random numbers,
    /// no side effects.
    ///
    /// # Errors
    /// As [`Function::set_up_on`], and whatever the operation fails with.
    pub fn forward_on(&self, x: &[&Variable], y: &[&Variable], recompute: bool) -> Result<()> {
        let op = self.op();
        let memo = self.memo();
        // SAFETY: the handle keeps the slot, and the interpreter lock or the caller keeps others out.
        if recompute && op.is_random() && !unsafe { &*memo.0 }.state.has_key() {
            return Err(Error::Graph(format!(
                "recompute of {}: expected a forward run before it; call setup_recompute and forward first",
                op.name()
            )));
        }
        self.set_up_on(x, y)?;
        let compute = arena::with(|a| mode::compute(a.functions[self.0].context));
        let _guard = RunGuard::new();
        let before = mode::set_recomputing(recompute);
        let mut step =
            Step::on_arrays(op, compute, x.iter().map(|v| v.data()), y.iter().map(|v| v.data()), memo);
        let done = step.forward(recompute);
        mode::set_recomputing(before);
        done
    }

    /// Computes the gradients of `x` from those of `y`: those that need one, adding where `accumulate` says so or says
    /// nothing.
    ///
    /// Of `y` it takes as many as it has outputs: what is one function in NNabla may be several here, of which the first
    /// is called with the outputs of all.
    ///
    /// # Errors
    /// [`Error::Shape`] when the first of `y` are not what the operation makes of `x`, and whatever it fails with.
    pub fn backward_on(&self, x: &[&Variable], y: &[&Variable], accumulate: &[bool]) -> Result<()> {
        let (op, memo) = (self.op(), self.memo());
        let mut y = y;
        if op.on_arrays().is_none() {
            // A kernel believes the shapes.
            let inputs: Vec<NdArray> = x.iter().map(|v| v.data()).collect();
            let expected = execute::shapes_of(&op, &inputs)?;
            y = &y[..y.len().min(expected.len())];
            let got: Vec<Shape> = y.iter().map(|v| v.shape()).collect();
            if got[..] != expected[..] {
                let expected: Vec<_> = expected.iter().map(Shape::to_string).collect();
                let expected = format!("outputs of shapes {}", expected.join(", "));
                return Err(Error::shape(format!("backward of {}", op.name()), expected, &got));
            }
        }
        let compute = arena::with(|a| mode::compute(a.functions[self.0].context));
        let _guard = RunGuard::new();
        let xs: Vec<_> = x.iter().map(|v| (v.array(), v.need_grad())).collect();
        let ys: Vec<_> = y.iter().map(|v| v.array()).collect();
        BackStep::by_hand(op, compute, &xs, &ys, accumulate, memo).backward()
    }
}
