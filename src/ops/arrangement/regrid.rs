//! Operations that rearrange each axis on its own. An implementation describes the axes; kernels and gradients follow.

use std::sync::Arc;

use crate::array::Shape;
use crate::kernels::regrid::{Regrid, RegridAxis};
use crate::kernels::{Float, Movable};
use crate::ops::contract::facts::{ALL_INTEGERS, is_whole, range_of};
use crate::ops::{
    Backward, Compute, Declared, Entry, Grad, InputShapes, Reads, Run, Shapes, Spec, Sym, Symbols, Value, one,
};
use crate::{Error, Result};

/// An operation whose output is its input with each axis rearranged.
pub(crate) trait Rearrange: Declared {
    /// Describes the axes of the output.
    ///
    /// # Errors
    /// If the arguments do not fit an input of this shape.
    fn axes(&self, x: &Shape) -> Result<Vec<RegridAxis>>;

    /// The value of an argument that was left open, as [`Compute::open`].
    fn open(&self, arg: &str, x: &Shape) -> Value {
        let _ = (arg, x);
        Value::None
    }

    /// The value of output elements that no input element maps to.
    fn outside(&self) -> f64 {
        0.0
    }
}

/// Adapts a [`Rearrange`] to [`Compute`].
#[derive(Clone)]
pub(crate) struct Rearranged<C>(pub(crate) C);

impl<C: Declared> Declared for Rearranged<C> {
    const SPEC: Spec = C::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        C::bind(values).map(Rearranged)
    }
    fn values(&self) -> Vec<Value> {
        self.0.values()
    }
}

impl<C: Rearrange> Rearranged<C> {
    /// The mapping from output elements to input elements.
    fn grid(&self, x: &Shape) -> Result<Regrid> {
        Ok(Regrid::new(x.clone(), self.0.axes(x)?))
    }
}

impl<C: Rearrange> Compute for Rearranged<C> {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(self.grid(x.get(0))?.shape())
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let outside = run.constant(self.0.outside());
        self.grid(run.x_shape(0))?.gather(run.x(0), outside, run.y(0));
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn moves_back(&self, x: &InputShapes<'_>) -> bool {
        self.grid(x.get(0)).is_ok_and(|grid| grid.is_injective())
    }

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (grid, gy) = (self.grid(run.x_shape(0))?, run.gy(0));
        if let Some(gx) = run.gx(0).map(Grad::adding) {
            grid.scatter_add(gy, gx);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape();
        let grid = self.grid(&shape).ok();
        vec![grid.map(|grid| Sym::apply(PutBack { grid: Arc::new(grid), shape }, &[s.gy(0)]))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn makes_reals(&self) -> Option<[i64; 2]> {
        (!is_whole(self.0.outside())).then_some(ALL_INTEGERS)
    }

    fn constants(&self) -> [i64; 2] {
        range_of([self.0.outside()])
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        self.0.open(arg, x.get(0))
    }
}

/// Reads elements from positions along each axis, zero outside. Used in the gradient of [`PutBack`].
#[derive(Clone)]
struct TakeOut {
    /// For each axis, the positions to read.
    grid: Arc<Regrid>,
    /// The shape of the input.
    shape: Shape,
}

/// Adds each element to the position that it was read from. Used in the gradient of [`TakeOut`].
#[derive(Clone)]
pub(crate) struct PutBack {
    /// For each axis, the positions that were read.
    pub(crate) grid: Arc<Regrid>,
    /// Shape of the output.
    pub(crate) shape: Shape,
}

/// Declares operations of one input that only gradients use.
macro_rules! only_in_gradients {
    ($($ty:ident = $name:literal, $doc:literal;)+) => {$(
        impl $crate::ops::Declared for $ty {
            const SPEC: $crate::ops::Spec = $crate::ops::Spec {
                name: $name,
                type_name: stringify!($ty),
                raw_doc: $doc,
                inputs: &[$crate::ops::Input { name: "x", kind: $crate::ops::Kind::float }],
                args: &[],
            };
            /// Refuses: only gradients make this operation.
            fn bind(_: &[$crate::ops::Value]) -> $crate::Result<Self> {
                Err($crate::Error::NotImplemented(concat!($name, ": is made by gradients only").into()))
            }
            fn values(&self) -> Vec<$crate::ops::Value> {
                Vec::new()
            }
        }
    )+};
}
pub(crate) use only_in_gradients;

only_in_gradients! {
    TakeOut = "take_out", " Elements read from positions along each axis.";
    PutBack = "put_back", " Elements added to positions along each axis.";
}

/// Returns an error if an array has another size than the gradient was made for.
fn check(op: &str, x: &Shape, expected: &Shape) -> Result<()> {
    if x.size() == expected.size() {
        return Ok(());
    }
    let expected = format!("an array of shape {expected}, as when the gradient was made");
    Err(Error::shape(op, expected, [x]))
}

impl Compute for TakeOut {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        check("take_out", x.get(0), &self.shape)?;
        one(self.grid.shape())
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        self.grid.gather(run.x(0), T::ZERO, run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        if let Some(gx) = run.gx(0).map(Grad::adding) {
            self.grid.scatter_add(gy, gx);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(PutBack { grid: self.grid.clone(), shape: self.shape.clone() }, &[s.gy(0)]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

impl Compute for PutBack {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        check("put_back", x.get(0), &self.grid.shape())?;
        one(self.shape.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let y = run.y(0);
        y.fill(T::ZERO);
        self.grid.scatter_add(run.x(0), y);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        if let Some(gx) = run.gx(0) {
            gx.through(|g| self.grid.gather(gy, T::ZERO, g));
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(TakeOut { grid: self.grid.clone(), shape: self.shape.clone() }, &[s.gy(0)]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

impl Entry {
    /// The registry entry of a [`Rearrange`].
    pub(crate) const fn rearrange<C: Rearrange>() -> Self {
        Self::of::<Rearranged<C>>()
    }
}

impl Sym {
    /// Applies a [`Rearrange`] to a symbol.
    pub(crate) fn rearrange(op: impl Rearrange, x: Self) -> Self {
        Self::apply(Rearranged(op), &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Op;
    use crate::ops::testing::{Tensor, check_gradient};

    #[test]
    fn taking_out_and_putting_back_have_true_gradients() {
        let shape = Shape::from([3, 2]);
        let axes =
            vec![RegridAxis::default().then(2, -2, 2).then_outside(1).then(1, 0, 2), RegridAxis::whole(2)];
        let grid = Arc::new(Regrid::new(shape.clone(), axes));
        check_gradient(
            &Op::new(TakeOut { grid: grid.clone(), shape: shape.clone() }),
            &[Tensor::sample([3, 2], 1)],
            &[true],
        );
        check_gradient(&Op::new(PutBack { grid, shape }), &[Tensor::sample([5, 2], 1)], &[true]);
    }
}
