//! Sums, means and products along axes.

use smallvec::SmallVec;

use crate::ops::reductions::cumulative::CumProd;

use crate::Result;
use crate::array::Shape;
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::reduce::{Fold, ProductFold, ReducedRows};
use crate::kernels::scaled::Scaled;
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::{Float, reduce, strided};
use crate::ops::contract::derivative::{ByKernel, by_kernel};
use crate::ops::contract::elementwise::is_double;
use crate::ops::reductions::extreme::place;
use crate::ops::{Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Sum>(), Entry::of::<Mean>(), Entry::of::<Prod>()];

/// The axes that `axis` names, in ascending order, which is also the order of elements along several axes.
pub(crate) fn ascending(op: &str, shape: &Shape, axis: Option<&[i64]>) -> Result<SmallVec<[usize; 4]>> {
    let mut axes = shape.axes(op, axis)?;
    axes.sort_unstable();
    Ok(axes)
}

/// The shape of `shape` reduced along `axis`.
pub(crate) fn reduced(op: &str, shape: &Shape, axis: Option<&[i64]>, keepdims: bool) -> Result<Shape> {
    let axes = shape.axes(op, axis)?;
    let dims = shape.iter().enumerate();
    Ok(match keepdims {
        true => dims.map(|(i, d)| if axes.contains(&i) { 1 } else { *d }).collect(),
        false => dims.filter(|(i, _)| !axes.contains(i)).map(|(_, d)| *d).collect(),
    })
}

/// All axes in order, with `axes` moved to the end.
fn axes_last(ndim: usize, axes: &[usize]) -> Vec<usize> {
    (0..ndim).filter(|i| !axes.contains(i)).chain(axes.iter().copied()).collect()
}

/// `x` as a matrix with the elements along `axes` as rows.
pub(crate) fn to_rows(x: Sym, axes: &[usize]) -> Sym {
    let shape = x.shape();
    let n: usize = axes.iter().map(|a| shape[*a]).product();
    let kept: usize = (0..shape.ndim()).filter(|i| !axes.contains(i)).map(|i| shape[i]).product();
    x.transpose(&axes_last(shape.ndim(), axes)).reshape(&[kept, n])
}

/// Undoes [`to_rows`]: restores an array of shape `shape`.
pub(crate) fn from_rows(rows: Sym, shape: &Shape, axes: &[usize]) -> Sym {
    let order = axes_last(shape.ndim(), axes);
    let dims: Vec<usize> = order.iter().map(|a| shape[*a]).collect();
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, a)| back[*a] = i);
    rows.reshape(&dims).transpose(&back)
}

/// Writes or adds `map(g)` for each element, with the gradient `g` of the result that it contributes to.
pub(crate) fn spread<T: Float>(
    gx: Grad<'_, T>,
    gy: &[T],
    kept: &Shape,
    shape: &Shape,
    map: impl Fn(T) -> T + Sync + Copy,
) {
    let Grad { data, accumulate } = gx;
    if accumulate {
        strided::broadcast_with(gy, kept, shape, data, move |g, gy| *g = *g + map(gy));
    } else {
        strided::broadcast_with(gy, kept, shape, data, move |g, gy| *g = map(gy));
    }
}

/// Writes or adds `f` for each element. `f` gets the element of `N` arrays like the gradient, and the element of `M`
/// arrays of results that it contributes to. It must be `#[inline(always)]`.
#[inline(always)]
pub(crate) fn spread_each<T: Float, const N: usize, const M: usize>(
    Grad { data, accumulate }: Grad<'_, T>,
    (x, shape): ([&[T]; N], &Shape),
    (y, kept): ([&[T]; M], &Shape),
    f: impl Fn([T; N], [T; M]) -> T + Sync + Copy,
) {
    assert!(shape.size() == data.len());
    BroadcastLayout::new(shape, kept).put_many(x, y, data, accumulate, f);
}

/// The gradient of the result, broadcast to the elements that contribute to it.
pub(crate) fn spread_symbol(op: &str, s: &Symbols, axis: Option<&[i64]>) -> Sym {
    let shape = s.x(0).shape();
    let kept = reduced(op, &shape, axis, true).unwrap_or_default();
    s.gy(0).reshape(&kept).broadcast(&shape)
}

op! {
    /// Sum along axes.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: Axis or axes to sum over, all of them by default; negative ones count from the end.
    ///     keepdims: Keep the axes, with length one.
    ///
    /// Returns:
    ///     Array of the shape of `x` without `axis`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> F.sum(x).data
    ///     array(10., dtype=float32)
    ///     >>> F.sum(x, axis=0).data
    ///     array([4., 6.], dtype=float32)
    /// ```
    Sum = sum(x; axis as axes: Option<Vec<i64>> = None, keepdims as keep_dims: bool = false)
}

impl Compute for Sum {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(reduced("sum", x.get(0), self.axis.as_deref(), self.keepdims)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axes = ascending("sum", run.x_shape(0), self.axis.as_deref())?;
        reduce::sum(run.x(0), run.x_shape(0), &axes, run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let kept = reduced("sum", run.x_shape(0), self.axis.as_deref(), true)?;
        let (gy, shape) = (run.gy(0), run.x_shape(0));
        if let Some(gx) = run.gx(0) {
            spread(gx, gy, &kept, shape, |g| g);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(spread_symbol("sum", s, self.axis.as_deref()))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Mean along axes. The mean of no elements is NaN.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: Axis or axes to average over, all of them by default; negative ones count from the end.
    ///     keepdims: Keep the axes, with length one.
    ///
    /// Returns:
    ///     Array of the shape of `x` without `axis`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> F.mean(x).data
    ///     array(2.5, dtype=float32)
    ///     >>> F.mean(x, axis=1, keepdims=True).data
    ///     array([[1.5],
    ///            [3.5]], dtype=float32)
    /// ```
    Mean = mean(x; axis as axes: Option<Vec<i64>> = None, keepdims as keep_dims: bool = false)
}

impl Mean {
    /// Number of elements in one mean.
    fn count(&self, shape: &Shape) -> Result<f64> {
        Ok(shape.axes("mean", self.axis.as_deref())?.iter().map(|a| shape[*a]).product::<usize>() as f64)
    }
}

impl Compute for Mean {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(reduced("mean", x.get(0), self.axis.as_deref(), self.keepdims)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axes = ascending("mean", run.x_shape(0), self.axis.as_deref())?;
        let n = self.count(run.x_shape(0))?;
        reduce::mean(run.x(0), run.x_shape(0), &axes, n, run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let kept = reduced("mean", run.x_shape(0), self.axis.as_deref(), true)?;
        let (gy, shape) = (run.gy(0), run.x_shape(0));
        let n = T::of(self.count(shape)?);
        if let Some(gx) = run.gx(0) {
            spread(gx, gy, &kept, shape, move |g| g / n);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let n = self.count(&s.x(0).shape()).unwrap_or(1.0);
        let gx = spread_symbol("mean", s, self.axis.as_deref());
        vec![Some(if n == 0.0 { gx } else { gx * Sym::Const(1.0 / n) })]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Product along axes. Its gradient is exact even if elements are zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: Axis or axes to multiply over, all of them by default; negative ones count from the end.
    ///     keepdims: Keep the axes, with length one.
    ///
    /// Returns:
    ///     Array of the shape of `x` without `axis`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> F.prod(x, axis=0).data
    ///     array([3., 8.], dtype=float32)
    /// ```
    Prod = prod(x; axis as axes: Option<Vec<i64>> = None, keepdims as keep_dims: bool = false)
}

/// Counts zeros and multiplies the other elements.
struct ZerosApart;

impl<T: Float> Fold<T> for ZerosApart {
    type Part = (T, usize);
    fn none(&self) -> (T, usize) {
        (T::ONE, 0)
    }
    fn with(&self, (product, zeros): (T, usize), x: T, _: usize) -> (T, usize) {
        if x == T::ZERO { (product, zeros + 1) } else { (product * x, zeros) }
    }
    fn join(&self, a: (T, usize), b: (T, usize)) -> (T, usize) {
        (a.0 * b.0, a.1 + b.1)
    }
}

impl Compute for Prod {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(reduced("prod", x.get(0), self.axis.as_deref(), self.keepdims)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axes = ascending("prod", run.x_shape(0), self.axis.as_deref())?;
        let y = run.y(0);
        ReducedRows::new(run.x(0), run.x_shape(0), &axes).fold(&ProductFold, |i, product| y[i] = product);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (shape, x, gy) = (run.x_shape(0), run.x(0), run.gy(0));
        let axes = ascending("prod", shape, self.axis.as_deref())?;
        let kept = reduced("prod", shape, self.axis.as_deref(), true)?;
        let Some(gx) = run.gx(0) else { return Ok(()) };
        // For each row: the product to divide by each nonzero element, and the product of the others if one element is
        // zero.
        let (mut whole, mut others) = (Zeros::new(gy.len()), Zeros::new(gy.len()));
        // Rows whose product overflows or underflows. The product of the other elements may still be in range.
        let mut lost = List::<usize>::with_capacity(0);
        let least = T::of(if is_double::<T>() { 1e-300 } else { 1e-37 });
        let fits = |v: T| v.abs() >= least && v.abs() < T::INFINITY;
        ReducedRows::new(x, shape, &axes).fold(&ZerosApart, |i, (product, zeros)| {
            let all = gy[i] * product;
            match zeros {
                _ if !fits(product) || !(fits(all) || gy[i] == T::ZERO) => lost.push(i),
                0 => whole[i] = all,
                1 => others[i] = all,
                _ => {}
            }
        });
        let broadcast = BroadcastLayout::new(shape, &kept);
        broadcast.put([x, &whole], [], gx.data, gx.accumulate, |x, all, []| {
            if x == T::ZERO || all == T::ZERO { T::ZERO } else { all / x }
        });
        broadcast.put(
            [x, &others],
            [],
            gx.data,
            true,
            |x, others, []| if x == T::ZERO { others } else { T::ZERO },
        );
        let n: usize = axes.iter().map(|a| shape[*a]).product();
        let mut after = List::repeat(Scaled::ONE, if lost.is_empty() { 0 } else { n });
        for i in lost.iter().copied() {
            let at = |k: usize| place(shape, &axes, i, k);
            let mut product = Scaled::ONE;
            for (k, after) in after.iter_mut().enumerate().rev() {
                *after = product;
                product = product * Scaled::new(x[at(k)].real());
            }
            product = Scaled::new(gy[i].real());
            for (k, after) in after.iter().enumerate() {
                let at = at(k);
                gx.data[at] = gx.data[at] + T::of((product * *after).value());
                product = product * Scaled::new(x[at].real());
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        by_kernel(self, s, |_| true)
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

impl ByKernel for Prod {
    fn is_linear(&self, _: usize) -> bool {
        false
    }

    fn formula(&self, s: &Symbols) -> Option<Sym> {
        let shape = s.x(0).shape();
        let axes = ascending("prod", &shape, self.axis.as_deref()).unwrap_or_default();
        let x = to_rows(s.x(0), &axes);
        let others = |reverse| Sym::apply(CumProd { axis: Some(1), exclusive: true, reverse }, &[x]);
        let others = from_rows(others(false) * others(true), &shape, &axes);
        Some(spread_symbol("prod", s, self.axis.as_deref()) * others)
    }
}
