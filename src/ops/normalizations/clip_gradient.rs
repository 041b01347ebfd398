//! Identity functions that clip the gradient.

use crate::array::Shape;
use crate::kernels::broadcast_blocks::BroadcastBlocks;
use crate::kernels::simd::vectorised;
use crate::kernels::{Float, Number};
use crate::ops::normalizations::norm::powers;
use crate::ops::normalizations::weight_normalization::NormNormalization;
use crate::ops::{Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<ClipGradByValue>(), Entry::of::<ClipGradByNorm>()];

op! {
    /// Identity that clips its gradient to a range: `gx = max` where `gy > max`, else `min` where `gy < min`, else
    /// `gy`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     min: Lower bound of each element of the gradient, of the shape of `x`.
    ///     max: Upper bound, of the same shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`. The bounds have no gradient.
    ///
    /// Raises:
    ///     ShapeError: If the bounds have another shape.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> low, high = nn.Variable.from_numpy_array([-1.0, -1.0]), nn.Variable.from_numpy_array([1.0, 1.0])
    ///     >>> y = F.clip_grad_by_value(x, low, high)
    ///     >>> y.forward()
    ///     >>> y.backward(nn.NdArray.from_numpy_array([-5.0, 0.5]))
    ///     >>> x.g
    ///     array([-1. ,  0.5], dtype=float32)
    /// ```
    ClipGradByValue = clip_grad_by_value(x, min, max)
}

op! {
    /// Identity that scales its gradient to a norm: `gx = clip_norm * gy / norm(gy)`, and zero where `gy` is zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     clip_norm: Euclidean norm of the gradient.
    ///     axes: Axes of the norm, all by default.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> y = F.clip_grad_by_norm(x, clip_norm=1.0)
    ///     >>> y.forward()
    ///     >>> y.backward(nn.NdArray.from_numpy_array([3.0, 4.0]))
    ///     >>> x.g.round(3)
    ///     array([0.6, 0.8], dtype=float32)
    /// ```
    ClipGradByNorm = clip_grad_by_norm(x; clip_norm: f64 = 1.0, axes: Option<Vec<i64>> = None)
}

impl Compute for ClipGradByValue {
    fn moves(&self, i: usize) -> bool {
        i == 0
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (x0, min, max) = (x.get(0), x.get(1), x.get(2));
        if min != x0 || max != x0 {
            return Err(Error::shape("clip_grad_by_value", "bounds of the shape of `x`", [x0, min, max]));
        }
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        run.y(0).copy_from_slice(run.x(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        if let Some(gx) = run.gx(0) {
            let (min, max) = (run.x(1), run.x(2));
            gx.put_of(
                [gy, min, max],
                #[inline(always)]
                |[g, min, max]| {
                    let raised = if g < min { min } else { g };
                    if g > max { max } else { raised }
                },
            );
        }
        (1..3).filter_map(|i| run.gx(i)).for_each(|gx| gx.put(|_| T::ZERO));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (g, min, max) = (s.gy(0), s.x(1), s.x(2));
        let raised = Sym::select(g.lt(min), min, g);
        vec![Some(Sym::select(g.gt(max), max, raised)), None, None]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::inputs(0b110) } else { Reads::NOTHING }
    }
}

impl ClipGradByNorm {
    /// The axes of the norms, and the shape of the norms.
    fn norms(&self, x: &Shape) -> Result<(smallvec::SmallVec<[usize; 4]>, Shape)> {
        let axes = x.axes("clip_grad_by_norm", self.axes.as_deref())?;
        let shape = x.iter().enumerate().map(|(i, d)| if axes.contains(&i) { 1 } else { *d }).collect();
        Ok((axes.iter().copied().collect(), shape))
    }
}

impl Compute for ClipGradByNorm {
    fn moves(&self, _: usize) -> bool {
        true
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        self.norms(x.get(0))?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        run.y(0).copy_from_slice(run.x(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, shape) = (run.gy(0), run.x_shape(0));
        let (axes, norms) = self.norms(shape)?;
        let Some(Grad { data, accumulate }) = run.gx(0) else { return Ok(()) };
        let squares = powers(gy, shape, &axes, 2.0, 0.0);
        let factor = |square: f64| T::of(if square == 0.0 { 0.0 } else { self.clip_norm / square.sqrt() });
        let is_plain = squares.all_plain() && (0..squares.len()).all(|i| factor(squares.sum(i)) <= T::MAX);
        BroadcastBlocks::new(shape, [&norms]).blocks_mut(data, |piece, to| {
            let (places, gy) = (piece.of(0), &gy[piece.range]);
            let put = |to: &mut T, g: T| *to = if accumulate { *to + g } else { g };
            if !is_plain {
                // The norms may exceed the range of the element type.
                let places = places.cycle().take(gy.len());
                for ((to, g), i) in to.iter_mut().zip(gy).zip(places) {
                    let [unit, root] = squares.root(i);
                    put(to, T::of(if root == 0.0 { 0.0 } else { g.real() / unit / root * self.clip_norm }));
                }
            } else if let [one] = squares.sums(places.clone()) {
                let factor = factor(*one);
                vectorised(
                    #[inline(always)]
                    move || {
                        for (to, g) in to.iter_mut().zip(gy) {
                            put(to, *g * factor);
                        }
                    },
                );
            } else {
                let all = to.iter_mut().zip(gy).zip(squares.sums(places));
                all.for_each(|((to, g), square)| put(to, *g * factor(*square)));
            }
        });
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let g = s.gy(0);
        let Ok((axes, _)) = self.norms(&g.shape()) else { return vec![None] };
        let axes = Some(axes.iter().map(|a| *a as i64).collect());
        let direction = Sym::apply(NormNormalization { p: None, axes, eps: 0.0 }, &[g]);
        vec![Some(direction * Sym::Const(self.clip_norm))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
