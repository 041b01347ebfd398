//! Sums, means and products along axes.

use smallvec::SmallVec;

use crate::ops::reductions::cumulative::CumProd;

use crate::Result;
use crate::array::{Element, Shape};
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::reduce::{Fold, ProductFold, ReducedRows};
use crate::kernels::scaled::product_gradient;
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::{Float, Stored, reduce, strided};
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
pub(crate) fn spread<E: Stored>(
    gx: Grad<'_, E>,
    gy: &[E],
    kept: &Shape,
    shape: &Shape,
    map: impl Fn(E::Wide) -> E::Wide + Sync + Copy,
) {
    let Grad { data, accumulate } = gx;
    if accumulate {
        let add = move |g: &mut E, gy: E| *g = E::narrowed(g.wide() + map(gy.wide()));
        strided::broadcast_with(gy, kept, shape, data, add);
    } else {
        let gy: List<E> = gy.iter().map(|gy| E::narrowed(map(gy.wide()))).collect();
        strided::broadcast(&gy, kept, shape, data);
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

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let axes = ascending("sum", run.x_shape(0), self.axis.as_deref())?;
        reduce::sum(run.x(0), run.x_shape(0), &axes, run.y(0));
        Ok(())
    }

    fn is_stored_back(&self, _: &InputShapes<'_>) -> bool {
        true
    }

    fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
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

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let axes = ascending("mean", run.x_shape(0), self.axis.as_deref())?;
        let n = self.count(run.x_shape(0))?;
        reduce::mean(run.x(0), run.x_shape(0), &axes, n, run.y(0));
        Ok(())
    }

    fn is_stored_back(&self, _: &InputShapes<'_>) -> bool {
        true
    }

    fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
        let kept = reduced("mean", run.x_shape(0), self.axis.as_deref(), true)?;
        let (gy, shape) = (run.gy(0), run.x_shape(0));
        let n = E::Wide::of(self.count(shape)?);
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

/// The product in double precision.
struct WideProducts;

impl<T: Float> Fold<T> for WideProducts {
    type Part = f64;
    #[inline(always)]
    fn none(&self) -> f64 {
        1.0
    }
    #[inline(always)]
    fn with(&self, product: f64, x: T, _: usize) -> f64 {
        product * x.real()
    }
    #[inline(always)]
    fn join(&self, a: f64, b: f64) -> f64 {
        a * b
    }
}

/// Adds the gradients of the products in `rows`, which leave the range, or have a factor of zero.
fn add_product_gradients<T: Float>(
    (x, shape, axes): (&[T], &Shape, &[usize]),
    gy: &[T],
    rows: &[usize],
    gx: &mut [T],
) {
    let n: usize = axes.iter().map(|a| shape[*a]).product();
    // The offsets of the elements of a row. Those of other rows are moved by the place of their first element.
    let offsets: List<usize> = (0..n).map(|k| place(shape, axes, 0, k)).collect();
    let is_dense = offsets.iter().enumerate().all(|(k, offset)| k == *offset);
    let mut copy = List::repeat(T::ZERO, if is_dense { 0 } else { n });
    for i in rows.iter().copied() {
        let first = place(shape, axes, i, 0);
        copy.iter_mut().zip(offsets.iter()).for_each(|(copy, offset)| *copy = x[first + offset]);
        let row = if is_dense { &x[first..first + n] } else { &copy };
        product_gradient(row, gy[i], |k, g| {
            let to = &mut gx[first + offsets[k]];
            *to = *to + g;
        });
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
        // The products to divide by each element. Zero for rows whose gradients are all zero, or are not found so.
        let mut whole = Zeros::new(gy.len());
        let mut lost = List::<usize>::with_capacity(0);
        let (least, most) = if is_double::<T>() { (1e-300, f64::MAX) } else { (1e-37, T::MAX.real()) };
        // The gradients of such a product vanish in float32, whatever the element is.
        let vanishes = |all: f64| !is_double::<T>() && all.abs() < 1e-100;
        ReducedRows::new(x, shape, &axes).fold(&WideProducts, |i, product| {
            let all = gy[i].real() * product;
            let fits = |v: f64, least: f64, most: f64| v.abs() >= least && v.abs() <= most;
            match fits(product, 1e-300, f64::MAX) {
                true if fits(all, least, most) => whole[i] = T::of(all),
                true if gy[i] == T::ZERO || vanishes(all) => {}
                _ => lost.push(i),
            }
        });
        spread_each(
            Grad { data: &mut *gx.data, accumulate: gx.accumulate },
            ([x], shape),
            ([&whole], &kept),
            #[inline(always)]
            |[x], [all]| {
                let g = all / x;
                if all == T::ZERO { T::ZERO } else { g }
            },
        );
        if !lost.is_empty() {
            add_product_gradients((x, shape, &axes), gy, &lost, gx.data);
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
