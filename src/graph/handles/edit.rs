//! Inspects and edits a graph: visits, rewires, cuts and copies.

use crate::graph::arena::{self, Arena, Ix, NONE, aliasing, describe, order};
use crate::graph::handles::function::Function;
use crate::graph::handles::ndarray::copied;
use crate::graph::handles::variable::{Variable, new_flags};
use crate::graph::lifetime::liveness;
use crate::graph::settings::context::Context;
use crate::{Error, Result};

impl Variable {
    /// The functions above this variable, each after its producers.
    pub fn functions(&self) -> Vec<Function> {
        arena::with(|a| {
            let order = order::depth_first(a, &[self.ix()], |_, _| true);
            order.into_iter().map(|f| Function::counted(a, f)).collect()
        })
    }

    /// The functions that a backward run from this variable visits, in its order.
    ///
    /// ```
    /// use kinnor::graph::{Function, Variable, apply};
    ///
    /// let x = Variable::new([2])?.with_need_grad(true);
    /// let h = apply("sin", &[&x], &[])?.remove(0);
    /// let y = apply("exp", &[&h], &[])?.remove(0);
    /// let names = |f: Vec<Function>| f.iter().map(Function::type_name).collect::<Vec<_>>();
    /// assert_eq!(names(y.functions()), ["Sin", "Exp"]);
    /// assert_eq!(names(y.functions_backward()), ["Exp", "Sin"]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    pub fn functions_backward(&self) -> Vec<Function> {
        arena::with(|a| {
            if a.parent(self.ix()) == NONE {
                return Vec::new();
            }
            let order = order::backward_order(a, self.ix());
            order.into_iter().map(|f| Function::counted(a, f)).collect()
        })
    }

    /// The functions that must run again to recompute the data of this variable, in order: its parent, and functions
    /// above whose outputs were cleared.
    pub fn functions_to_recompute(&self) -> Vec<Function> {
        arena::with(|a| {
            let order = liveness::to_restore(a, &[self.ix()]);
            order.into_iter().map(|f| Function::counted(a, f)).collect()
        })
    }

    /// Calls `f` with each function above this variable, each after its producers.
    ///
    /// # Errors
    /// The first error of `f`, which ends the visit.
    pub fn visit(&self, mut f: impl FnMut(&Function) -> Result<()>) -> Result<()> {
        self.functions().iter().try_for_each(&mut f)
    }

    /// Connects this variable to `f`, as the output of `f` on the same data and gradient. Requires that the output
    /// was cut off or its variable was freed.
    ///
    /// ```
    /// use kinnor::graph::{ForwardOptions, Variable, apply};
    ///
    /// let x = Variable::from_values([1], &[0.0])?;
    /// let y = apply("exp", &[&x], &[])?.remove(0);
    /// let f = y.parent().ok_or(kinnor::Error::Graph("it has one".into()))?;
    /// y.clear_parent();
    /// y.set_parent(&f)?;
    /// y.forward(&ForwardOptions::default())?;
    /// assert_eq!(y.data().to_vec()?, [1.0]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Graph`] if no output of `f` has this data, if another variable is that output, or if `f` is computed
    /// from this variable.
    pub fn set_parent(&self, f: &Function) -> Result<()> {
        arena::with(|a| {
            let (v, f) = (self.ix(), f.ix());
            if a.parent(v) == f {
                return Ok(());
            }
            let own = describe::describe(a, v);
            let refused = |a: &Arena, but: &str| {
                let name = a.op(f).name();
                Err(Error::Graph(format!(
                    "parent: expected a function that may compute {own}, got {name}, {but}"
                )))
            };
            let tensor = a.tensor(v);
            let Some(o) = a.output_tensors(f).position(|output| output == tensor) else {
                return refused(a, "which computes other data: see rewire_on");
            };
            if a.live_output(f, o).is_some_and(|other| other != v && a.parent(other) == f) {
                return refused(
                    a,
                    "which computes another variable on that data: set the parent of that one to None first",
                );
            }
            let above = order::up_to(a, &[f], |_, _| true);
            if above.iter().any(|f| a.inputs(*f).contains(&v)) {
                return refused(a, "which is computed from it");
            }
            a.set_parent(v, f, o);
            Ok(())
        })
    }

    /// Replaces `other` in the graph: the parent of `other` now computes this variable, and `other` loses its parent.
    /// Consumers of this variable are set up again.
    ///
    /// # Errors
    /// [`Error::Graph`] if `other` has no parent or is computed from this variable, [`Error::Shape`] if the shapes
    /// differ.
    pub fn rewire_on(&self, other: &Self) -> Result<()> {
        let (own, theirs) = (self.shape(), other.shape());
        if own != theirs {
            return Err(Error::shape("rewire_on", format!("a variable of shape {own}"), [&theirs]));
        }
        arena::with(|a| {
            let (to, from) = (self.ix(), other.ix());
            let f = a.parent(from);
            if f == NONE {
                return Err(Error::Graph(format!(
                    "rewire_on: expected a variable that a function computes, got {}, which has no parent",
                    describe::describe(a, from)
                )));
            }
            if to == from {
                return Ok(());
            }
            if !readers(a, to, from).is_empty() {
                return Err(Error::Graph(format!(
                    "rewire_on: expected a variable that is not computed from this one, got {}, which would be \
                     computed from itself",
                    describe::describe(a, from)
                )));
            }
            a.take_place_of(to, from);
            Ok(())
        })
    }

    /// True if an assignment to a slice may write into the memory of this variable: no function reads its values, the
    /// gradient of its parent does not either, and no input of its parent shares the memory.
    pub fn may_be_overwritten(&self) -> bool {
        arena::with(|a| {
            let v = self.ix();
            let parent = a.parent(v);
            let shares = |i| a.facts(parent).alias(i).is_some_and(|alias| !alias.modifies);
            let is_view = parent != NONE && (0..a.inputs(parent).len()).any(shares);
            !is_view && a.consumers(v).next().is_none() && aliasing::may_modify(a, v)
        })
    }

    /// Allows the parent to work on a copy. It changes its input in place only because nothing needs the input now.
    /// If something needs the input when the graph runs, the parent changes a copy.
    pub fn may_take_copy(&self) {
        arena::with(|a| {
            let f = a.parent(self.ix());
            if f != NONE {
                a.let_take_copy(f);
            }
        });
    }

    /// Splits this variable. The returned variable takes over its parent and consumers, on the same data and
    /// gradient. This variable keeps neither parent nor consumers. The first half of an assignment by index.
    /// [`Variable::rewire_on`] is the second.
    pub fn split_off(&self) -> Self {
        arena::with(|a| {
            let copy = a.split_off(self.ix(), new_flags());
            Self::adopt(a, copy)
        })
    }

    /// Detaches this variable from its parent: it becomes a leaf with its current values.
    pub fn clear_parent(&self) {
        arena::with(|a| a.detach(self.ix()));
    }

    /// Detaches this variable and every variable above it from its parent.
    pub fn clear_all_graph_links(&self) {
        arena::with(|a| {
            let functions = order::depth_first(a, &[self.ix()], |_, _| true);
            for f in &functions {
                a.hold_function(*f);
            }
            for f in &functions {
                for o in 0..a.n_outputs(*f) {
                    if let Some(v) = a.live_output(*f, o)
                        && a.parent(v) == *f
                    {
                        a.detach(v);
                    }
                }
            }
            for f in functions {
                a.release_function(f);
            }
        });
    }

    /// A new variable with copies of the data, and of the gradient if `copy_grad` is set. The copies keep their
    /// types. `context` is ignored, since there is only one device.
    ///
    /// ```
    /// use kinnor::graph::{Variable, settings::Context};
    ///
    /// let x = Variable::from_values([1], &[2.0])?.with_need_grad(true);
    /// let copy = x.create_deep_copy(&Context::default(), true)?;
    /// x.data().copy_from_slice(&[3.0])?;
    /// assert!(copy != x && copy.need_grad());
    /// assert_eq!(copy.data().to_vec()?, [2.0]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Cleared`] if there is no data to copy, [`Error::Memory`].
    pub fn create_deep_copy(&self, context: &Context, copy_grad: bool) -> Result<Self> {
        let _ = context;
        let copy = Self::new(self.shape())?;
        if let Some(on) = self.need_grad_flag() {
            copy.set_need_grad(on);
        }
        copy.set_data(&copied(&self.data())?)?;
        if copy_grad {
            copy.set_grad(&copied(&self.grad())?)?;
        }
        Ok(copy)
    }
}

/// The functions above `end` that take `v`.
fn readers(a: &mut Arena, v: Ix, end: Ix) -> Vec<Ix> {
    if a.consumers(v).next().is_none() {
        return Vec::new();
    }
    let above = order::depth_first(a, &[end], |_, _| true);
    above.into_iter().filter(|f| a.inputs(*f).contains(&v)).collect()
}
