//! Manual runs of functions, on arrays that need not belong to the graph.

use smallvec::SmallVec;

use crate::array::{RunGuard, Shape};
use crate::graph::arena::{self, Arena, Ix, order, tensors};
use crate::graph::handles::function::Function;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::variable::Variable;
use crate::graph::settings::context::{self, Precision};
use crate::graph::settings::modes::Scope;
use crate::graph::step::backward::BackwardStep;
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::operand::ProvenancePtr;
use crate::graph::step::{setup, shapes};
use crate::{Error, Result};

/// A function locked for a manual run.
struct Alone(Ix);

impl Alone {
    /// Locks a function for a direct call.
    fn begin(f: &Function) -> Result<Self> {
        arena::with(|a| a.begin_run(&[f.0]))?;
        Ok(Self(f.0))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        arena::with(|a| a.end_run(&[self.0]));
    }
}

/// The tensors of variables.
fn tensors_of(a: &Arena, of: &[&Variable]) -> SmallVec<[Ix; 4]> {
    of.iter().map(|v| a.tensor(v.ix())).collect()
}

/// The shapes of tensors.
fn shapes(a: &Arena, of: &[Ix]) -> SmallVec<[Shape; 3]> {
    of.iter().map(|tensor| a.shape(*tensor).clone()).collect()
}

impl Function {
    /// True if these are the function's inputs in its graph and, as far as they are given, its outputs.
    fn is_own(&self, a: &Arena, x: &[&Variable], y: &[&Variable]) -> bool {
        let (own_x, own_y) = tensors(a, self.0);
        own_x == tensors_of(a, x) && own_y[..] == tensors_of(a, y)[..y.len().min(own_y.len())]
    }

    /// The saved state for a manual forward run. If `again` is set, the state of the latest run to recompute, manual
    /// or in the graph.
    fn provenance_of_forward(&self, x: &[&Variable], y: &[&Variable], again: bool) -> ProvenancePtr {
        // A replaced state is dropped after the arena is unlocked.
        let (provenance, _before) = arena::with(|a| {
            if self.is_own(a, x, y) {
                return (ProvenancePtr::to(a.provenance_mut(self.0)), None);
            }
            let (provenance, before) = a.begin_manual(self.0, again);
            (ProvenancePtr::to(provenance), before)
        });
        provenance
    }

    /// Saves the shapes of a manual forward run that succeeded.
    fn note_shapes(&self, x: &[&Variable], y: &[&Variable]) {
        arena::with(|a| {
            if !self.is_own(a, x, y) {
                let shapes = shapes(a, &tensors_of(a, x));
                a.note_manual(self.0, shapes);
            }
        });
    }

    /// The saved state that a manual backward run reads: of the forward run on these arrays, otherwise of the last
    /// manual run with these shapes, otherwise of the graph.
    fn provenance_of_backward(&self, x: &[&Variable], y: &[&Variable]) -> Result<ProvenancePtr> {
        arena::with(|a| {
            let own = self.is_own(a, x, y);
            let given = shapes(a, &tensors_of(a, x));
            if own {
                order::check_shapes(a, self.0, "backward")?;
            } else if let Some(provenance) = a.manual_provenance(self.0, &given) {
                return Ok(ProvenancePtr::to(provenance));
            }
            let stale = a.has_other_shapes(self.0);
            let fits = shapes(a, &tensors(a, self.0).0) == given;
            if !own && (!fits || stale) && !a.provenance(self.0).state.is_empty() {
                let text =
                    "expected arrays of the shapes of its last forward run; call forward() on these first";
                return Err(Error::Graph(format!("backward of {}: {text}", a.op(self.0).name())));
            }
            Ok(ProvenancePtr::to(a.provenance_mut(self.0)))
        })
    }

    /// Gives `y` the shapes that the operation returns for `x`, and shares memory if the operation works in place.
    ///
    /// # Errors
    /// If the operation refuses the shapes, or the number of outputs differs. [`Error::Graph`] if the function is
    /// running, or if two of `y` are one variable. [`Error::Shape`] if one of `y` is one of `x` and has another
    /// shape.
    pub fn set_up_on(&self, x: &[&Variable], y: &[&Variable]) -> Result<()> {
        let _alone = Alone::begin(self)?;
        self.shape_outputs(&self.of_active(x), y)
    }

    /// The precision of its context.
    fn precision(&self) -> Precision {
        arena::with(|a| context::precision(a.context(self.0)))
    }

    /// Gives the output variables the shapes that the operation computes from the inputs.
    fn shape_outputs(&self, x: &[&Variable], y: &[&Variable]) -> Result<()> {
        let op = self.op();
        let asked = arena::with(|a| a.reshapes());
        let arrays: Vec<NdArray> = x.iter().map(|v| v.data()).collect();
        let shapes = shapes::shapes_of(&op, &arrays, self.precision())?;
        if shapes.len() != y.len() {
            return Err(Error::Graph(format!(
                "{}: expected {} outputs, got {}",
                op.name(),
                shapes.len(),
                y.len()
            )));
        }
        for (o, (v, shape)) in y.iter().zip(&shapes).enumerate() {
            if y[..o].contains(v) {
                let name = op.name();
                return Err(Error::Graph(format!(
                    "{name}: expected different outputs, got one as output {o} too"
                )));
            }
            let taken = x.iter().position(|x| x == v);
            if let Some(i) = taken.filter(|i| arrays[*i].shape != *shape) {
                let expected = format!("an output {o} of shape {shape}, which is not input {i}");
                return Err(Error::shape(op.name(), expected, [&arrays[i].shape]));
            }
        }
        let own = arena::with(|a| -> Result<bool> {
            let own = self.is_own(a, x, y);
            if own {
                setup::set_up(a, self.0, shapes.clone(), asked)?;
            }
            Ok(own)
        })?;
        for (v, shape) in y.iter().zip(shapes).filter(|_| !own) {
            v.reset_shape(shape, true)?;
        }
        for (i, v) in x.iter().enumerate() {
            if let Some(alias) = op.facts().alias(i) {
                let data = NdArray { shape: y[alias.output].shape(), storage: v.data().storage };
                y[alias.output].set_data(&data)?;
            }
        }
        Ok(())
    }

    /// Computes `y` from `x`, after setting up shapes. A `recompute` run repeats the last one with the same random
    /// numbers and without side effects.
    ///
    /// # Errors
    /// As [`Function::set_up_on`], and errors of the operation.
    pub fn forward_on(&self, x: &[&Variable], y: &[&Variable], recompute: bool) -> Result<()> {
        let (op, x) = (self.op(), &*self.of_active(x));
        let _alone = Alone::begin(self)?;
        self.shape_outputs(x, y)?;
        let provenance = self.provenance_of_forward(x, y, recompute);
        if recompute && op.facts().is_random && !provenance.state.has_key() {
            return Err(Error::Graph(format!(
                "recompute of {}: expected a forward run before it; call setup_recompute and forward first",
                op.name()
            )));
        }
        let compute = self.precision();
        let _guard = RunGuard::new();
        let _recomputing = Scope::recomputing(recompute);
        let mut step = ForwardStep::on_arrays(
            op,
            compute,
            x.iter().map(|v| v.data()),
            y.iter().map(|v| v.data()),
            provenance,
        );
        step.forward(recompute)?;
        self.note_shapes(x, y);
        Ok(())
    }

    /// Computes the gradients of those `x` that need one from the gradients of `y`. Accumulates unless `accumulate`
    /// is false for the input.
    ///
    /// Reads only as many of `y` as the function has outputs. One function in NNabla may be several here, and the
    /// first is called with the outputs of all.
    ///
    /// # Errors
    /// [`Error::Shape`] if the first of `y` do not have the shapes that the operation returns for `x`.
    /// [`Error::Graph`] if the function is running or shapes changed since it ran forward. Errors of the operation.
    pub fn backward_on(&self, x: &[&Variable], y: &[&Variable], accumulate: &[bool]) -> Result<()> {
        let (op, x, accumulate) = (self.op(), &*self.of_active(x), &*self.of_active(accumulate));
        let _alone = Alone::begin(self)?;
        let mut y = y;
        if op.on_arrays().is_none() {
            // Kernels rely on the shapes.
            let inputs: Vec<NdArray> = x.iter().map(|v| v.data()).collect();
            let expected = shapes::shapes_of(&op, &inputs, self.precision())?;
            y = &y[..y.len().min(expected.len())];
            let got: Vec<Shape> = y.iter().map(|v| v.shape()).collect();
            if got[..] != expected[..] {
                let expected: Vec<_> = expected.iter().map(Shape::to_string).collect();
                let expected = format!("outputs of shapes {}", expected.join(", "));
                return Err(Error::shape(format!("backward of {}", op.name()), expected, &got));
            }
        }
        let provenance = self.provenance_of_backward(x, y)?;
        let compute = self.precision();
        let _guard = RunGuard::new();
        let xs: Vec<_> = x.iter().map(|v| (v.array(), v.need_grad())).collect();
        let ys: Vec<_> = y.iter().map(|v| v.array()).collect();
        BackwardStep::by_hand(op, compute, &xs, &ys, accumulate, provenance).backward()
    }
}
