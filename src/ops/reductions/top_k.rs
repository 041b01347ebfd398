//! The k largest elements of each sample: `top_k_data` selects data, `top_k_grad` selects gradients.

use crate::array::{DType, Shape};
use crate::kernels::order::Choice;
use crate::kernels::scratch::{List, SavedMemory};
use crate::kernels::{Float, Number, map};
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::indexing::scatter::ScatterAdd;
use crate::ops::{
    Backward, Compares, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<TopKData>(), Entry::of::<TopKGrad>()];

op! {
    /// The `k` largest elements of each sample.
    ///
    /// With `reduce`, the gradient goes to the selected elements. Without, it passes straight through to all.
    ///
    /// Args:
    ///     x: Input of any shape; the axes from `base_axis` on make one sample.
    ///     k: Number of elements, from 1 to the size of a sample.
    ///     abs: Compare by absolute value.
    ///     reduce: Return the elements in descending order; if off, return them in place, with zeros elsewhere.
    ///     base_axis: First axis of a sample; a negative one counts from the end.
    ///     largest: Select the largest elements; if off, the smallest, in ascending order.
    ///     with_index: Return the index of each element in its sample too, in the same order.
    ///
    /// Returns:
    ///     Array of shape `(*x.shape[:base_axis], k)`, or of the shape of `x` without `reduce`. With `with_index`, also
    ///     whole numbers of the former shape.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///     ArgumentError: If `k` is out of range.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[4.0, 1.0, 3.0], [2.0, 5.0, 6.0]])
    ///     >>> F.top_k_data(x, 2).data
    ///     array([[4., 3.],
    ///            [6., 5.]], dtype=float32)
    /// ```
    TopKData = top_k_data(x; k: i64, abs: bool = false, reduce: bool = true, base_axis: i64 = 1, largest: bool = true,
        with_index: bool = false)
}

op! {
    /// Identity that keeps only the `k` largest elements of the gradient of each sample. The others become zero.
    ///
    /// Args:
    ///     x: Input of any shape; the axes from `base_axis` on make one sample.
    ///     k: Number of elements of the gradient to keep, from 1 to the size of a sample.
    ///     abs: Compare by absolute value.
    ///     base_axis: First axis of a sample; a negative one counts from the end.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///     ArgumentError: If `k` is out of range.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.Variable.from_numpy_array([[1.0, 2.0, 3.0]], need_grad=True)
    ///     >>> y = F.top_k_grad(x, 1)
    ///     >>> y.forward()
    ///     >>> y.backward(nn.NdArray.from_numpy_array([[0.5, 0.9, 0.1]]))
    ///     >>> x.g
    ///     array([[0. , 0.9, 0. ]], dtype=float32)
    /// ```
    TopKGrad = top_k_grad(x; k: i64, abs: bool = false, base_axis: i64 = 1)
}

/// The first axis of a sample, and its number of elements. An error if `k` is out of range.
fn sample(op: &str, x: &Shape, base_axis: i64, k: i64) -> Result<(usize, usize)> {
    let base = x.axis(op, base_axis)?;
    let n = x.size_from(base);
    if k < 1 || k as u64 > n as u64 {
        return Err(Error::argument(op, "k", format!("from 1 to the size of a sample, which is {n}"), k));
    }
    Ok((base, n))
}

/// The indices of the selected elements.
#[derive(Clone)]
struct TopKIndex(TopKData);

/// The selected elements in place, zeros elsewhere.
#[derive(Clone)]
struct TopKOnly {
    /// The elements to keep.
    choice: Choice,
    /// The number of elements of a sample.
    n: usize,
}
only_in_gradients! {
    TopKIndex = "top_k_index", " The indices of the largest elements.";
    TopKOnly = "top_k_only", " The largest elements, with zeros elsewhere.";
}

impl TopKData {
    /// The elements to choose.
    fn choice(&self) -> Choice {
        Choice { k: self.k as usize, abs: self.abs, largest: self.largest }
    }

    /// Shape of the selected elements.
    fn chosen(&self, x: &Shape) -> Result<Shape> {
        let (base, _) = sample("top_k_data", x, self.base_axis, self.k)?;
        Ok(x[..base].iter().copied().chain([self.k as usize]).collect())
    }
}

impl Compute for TopKData {
    const COMPARES: Compares = Compares::Moved;

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let chosen = self.chosen(x.get(0))?;
        let mut shapes = Shapes::new();
        shapes.push(if self.reduce { chosen.clone() } else { x.get(0).clone() });
        if self.with_index {
            shapes.push(chosen);
        }
        Ok(shapes)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y) = (run.x(0), run.y(0));
        let (_, n) = sample("top_k_data", run.x_shape(0), self.base_axis, self.k)?;
        let k = self.k as usize;
        let index = self.with_index.then(|| run.y_index(1));
        let places = run.state::<SavedMemory<usize>>();
        places.resize(x.len() / n * k, 0);
        self.choice().places(x, n, places);
        let places = &**places;
        if self.reduce {
            map::fill(y, |i| x[i / k * n + places[i]]);
        } else {
            y.fill(T::ZERO);
            places.iter().enumerate().map(|(i, at)| i / k * n + at).for_each(|at| y[at] = x[at]);
        }
        if let Some(index) = index {
            map::fill(index, |i| places[i] as i64);
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        let (_, n) = sample("top_k_data", run.x_shape(0), self.base_axis, self.k)?;
        let Some(gx) = run.gx(0) else { return Ok(()) };
        if !self.reduce {
            gx.put_all(gy);
            return Ok(());
        }
        let (gx, k) = (gx.adding(), self.k as usize);
        for (i, (at, g)) in run.state::<SavedMemory<usize>>().iter().zip(gy).enumerate() {
            let to = &mut gx[i / k * n + at];
            *to = *to + *g;
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        if !self.reduce {
            return vec![Some(s.gy(0))];
        }
        let shape = s.x(0).shape();
        let Ok((_, n)) = sample("top_k_data", &shape, self.base_axis, self.k) else { return vec![None] };
        let samples = shape.size() / n;
        let index = Sym::apply(TopKIndex(self.clone()), &[s.x(0)]);
        let flat = [samples, self.k as usize];
        let zeros = Sym::Const(0.0).broadcast(&Shape::from([samples, n]));
        let put =
            Sym::apply(ScatterAdd { axis: Some(1) }, &[zeros, index.reshape(&flat), s.gy(0).reshape(&flat)]);
        vec![Some(put.reshape(&shape))]
    }

    // `backward` reads the places of the selected elements, which `forward` saves.
    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        if self.reduce { Reads::INPUTS } else { Reads::NOTHING }
    }

    fn output(&self, o: usize) -> Option<DType> {
        (o == 1).then_some(DType::I64)
    }
}

impl Compute for TopKIndex {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        crate::ops::one(self.0.chosen(x.get(0))?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y) = (run.x(0), run.y_index(0));
        let (_, n) = sample("top_k_data", run.x_shape(0), self.0.base_axis, self.0.k)?;
        let mut places = List::repeat(0, y.len());
        self.0.choice().places(x, n, &mut places);
        y.iter_mut().zip(&*places).for_each(|(y, at)| *y = *at as i64);
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::I64)
    }
}

impl TopKOnly {
    /// Calls `put` with the position of each selected element.
    fn each<T: Float>(&self, x: &[T], mut put: impl FnMut(usize)) {
        let k = self.choice.k;
        let mut places = List::repeat(0, x.len() / self.n.max(1) * k);
        self.choice.places(x, self.n, &mut places);
        places.iter().enumerate().for_each(|(i, at)| put(i / k * self.n + at));
    }
}

impl Compute for TopKOnly {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y) = (run.x(0), run.y(0));
        y.fill(T::ZERO);
        self.each(x, |at| y[at] = x[at]);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (x, gy) = (run.x(0), run.gy(0));
        if let Some(gx) = run.gx(0) {
            let gx = gx.adding();
            self.each(x, |at| gx[at] = gx[at] + gy[at]);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        // Elements that are not selected have a zero output and a zero gradient.
        let chosen = Sym::apply(TopKMask(self.clone()), &[s.x(0)]);
        vec![Some(Sym::select(chosen, s.gy(0), Sym::Const(0.0)))]
    }
}

/// Ones at the selected elements, zeros elsewhere.
#[derive(Clone)]
struct TopKMask(TopKOnly);
only_in_gradients! {
    TopKMask = "top_k_mask", " Ones at the largest elements.";
}

impl Compute for TopKMask {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y) = (run.x(0), run.y(0));
        y.fill(T::ZERO);
        self.0.each(x, |at| y[at] = T::ONE);
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

impl Compute for TopKGrad {
    fn moves(&self, _: usize) -> bool {
        true
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        sample("top_k_grad", x.get(0), self.base_axis, self.k)?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        run.y(0).copy_from_slice(run.x(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        let (_, n) = sample("top_k_grad", run.x_shape(0), self.base_axis, self.k)?;
        if let Some(gx) = run.gx(0) {
            let gx = gx.adding();
            self.only(n).each(gy, |at| gx[at] = gx[at] + gy[at]);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let gy = s.gy(0);
        let Ok((_, n)) = sample("top_k_grad", &gy.shape(), self.base_axis, self.k) else { return vec![None] };
        vec![Some(Sym::apply(self.only(n), &[gy]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

impl TopKGrad {
    /// The operation that keeps the selected elements of samples of `n` elements.
    fn only(&self, n: usize) -> TopKOnly {
        TopKOnly { choice: Choice { k: self.k as usize, abs: self.abs, largest: true }, n }
    }
}
