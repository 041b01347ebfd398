//! Operations that consist of several layers: the trait for authors, and the adapter for the engine.

use crate::Result;
use crate::array::Shape;
use crate::kernels::Float;
use crate::ops::fused::steps::FusedSteps;
use crate::ops::{Backward, Compute, Declared, InputShapes, Reads, Run, Shapes, Spec, Sym, Symbols, Value};

/// An operation that consists of several layers.
pub(crate) trait Fuse: Declared {
    /// The layers that the arguments describe.
    ///
    /// # Errors
    /// If an argument is out of range. Inputs are not checked here.
    fn steps(&self) -> Result<FusedSteps>;

    /// The input from which derived data, such as a packed weight, is cached. See [`Compute::CACHED_INPUT`].
    const WEIGHT: Option<usize>;

    /// The arguments as shown in `info.args`. See [`Compute::info`].
    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)>;
}

/// Adapts a [`Fuse`] to [`Compute`].
#[derive(Clone)]
pub(crate) struct Fused<C> {
    /// The operation with its arguments.
    op: C,
    /// The layers that it consists of.
    steps: FusedSteps,
}

impl<C: Fuse> Declared for Fused<C> {
    const SPEC: Spec = C::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        let op = C::bind(values)?;
        let steps = op.steps()?;
        Ok(Self { op, steps })
    }
    fn values(&self) -> Vec<Value> {
        self.op.values()
    }
}

impl<C: Fuse> Compute for Fused<C> {
    const CACHED_INPUT: Option<usize> = C::WEIGHT;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        self.steps.shapes(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        self.steps.forward(run)
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        self.steps.backward(run)
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        self.steps.gradient(s)
    }

    fn reads(&self, gx: usize) -> Reads {
        self.steps.reads(gx)
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        self.steps.symbol_reads()
    }

    fn overwrites(&self, i: usize) -> bool {
        self.steps.overwrites(i)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        if self.steps.convolution.is_some() { y.size() * x.get(1).size_from(1) } else { 0 }
    }

    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        self.op.info(x)
    }
}
