//! Selection of elements by a mask: bool_fill, bool_gather, bool_scatter, nonzero.

use crate::array::{DType, Shape};
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::map::GRAIN;
use crate::kernels::{Float, Movable, stop};
use crate::ops::contract::facts::{ALL_INTEGERS, is_whole, range_of};
use crate::ops::{
    Alias, Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] =
    &[Entry::of::<BoolFill>(), Entry::of::<BoolGather>(), Entry::of::<BoolScatter>(), Entry::of::<NonZero>()];

op! {
    /// Replaces elements by a number where a mask is not zero.
    ///
    /// Args:
    ///     data: Input of any shape.
    ///     mask: Mask of the elements to replace. Its shape broadcasts to the shape of `data`.
    ///     value: The number.
    ///
    /// Returns:
    ///     Array of the shape of `data`.
    ///
    /// Raises:
    ///     ShapeError: If `mask` does not broadcast to the shape of `data`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> mask = nn.NdArray.from_numpy_array([0.0, 1.0, 0.0])
    ///     >>> F.bool_fill(x, mask, -1.0).data
    ///     array([ 1., -1.,  3.], dtype=float32)
    /// ```
    BoolFill = bool_fill(data, mask; value: f64 = 0.0)
}

impl Compute for BoolFill {
    const IN_PLACE: bool = true;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (data, mask) = (x.get(0), x.get(1));
        if BroadcastLayout::shape(data, mask).as_ref() == Some(data) {
            return one(data.clone());
        }
        Err(Error::shape("bool_fill", "a mask that broadcasts to the shape of data", [data, mask]))
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (broadcast, value) =
            (BroadcastLayout::new(run.x_shape(0), run.x_shape(1)), run.constant(self.value));
        let f = move |x, mask: T| if mask.is_zero() { x } else { value };
        run.map_pairs(&broadcast, f);
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        if let Some(gx) = run.gx(0) {
            let (mask, gy) = (run.x(1), run.gy(0));
            let broadcast = BroadcastLayout::new(run.x_shape(0), run.x_shape(1));
            let f = |gy: T, mask: T, []: [T; 0]| if mask.is_zero() { gy } else { T::ZERO };
            broadcast.put([gy, mask], [], gx.data, gx.accumulate, f);
        }
        if let Some(gx) = run.gx(1) {
            gx.put(|_| T::ZERO);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![s.wants(0).then(|| Sym::apply(Self { value: 0.0 }, &[s.gy(0), s.x(1)])), None]
    }

    fn moves(&self, i: usize) -> bool {
        i == 0
    }

    fn makes_reals(&self) -> Option<[i64; 2]> {
        (!is_whole(self.value)).then_some(ALL_INTEGERS)
    }

    fn constants(&self) -> [i64; 2] {
        range_of([self.value])
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::inputs(2) } else { Reads::NOTHING }
    }
}

/// Returns an error unless the shape of `mask` is a prefix of the shape of `x`.
fn check_mask(op: &str, x: &Shape, mask: &Shape) -> Result<()> {
    if mask.ndim() <= x.ndim() && x[..mask.ndim()] == mask[..] {
        return Ok(());
    }
    Err(Error::shape(op, "a mask whose shape is the leading part of that of input", [x, mask]))
}

/// The positions where a mask is not zero.
fn chosen<T: Float>(mask: &[T]) -> impl Iterator<Item = usize> {
    let chooses = |(i, m): &(usize, &T)| {
        if i.is_multiple_of(GRAIN) {
            stop::poll();
        }
        **m != T::ZERO
    };
    mask.iter().enumerate().filter(chooses).map(|(i, _)| i)
}

/// Returns an error unless a mask selects `n` positions, as when the shapes were inferred.
fn check_count<T: Float>(op: &str, mask: &[T], n: usize) -> Result<()> {
    match chosen(mask).count() {
        found if found == n => Ok(()),
        found => Err(Error::Value(format!(
            "{op}: expected {n} elements other than zero as on building, got {found}"
        ))),
    }
}

/// Number of nonzero elements, which decides the shape of an output.
fn count(op: &str, x: &InputShapes<'_>) -> Result<usize> {
    let values = x.values.ok_or_else(|| {
        Error::Graph(format!(
            "{op}: expected values to be known on building (its output depends on them), got none"
        ))
    })?;
    Ok(chosen(values).count())
}

op! {
    /// The elements or slices of an array that a mask selects, in order. The shape of the result depends on the values
    /// of the mask, which must be known when the function is built.
    ///
    /// Args:
    ///     input: Input of any shape.
    ///     mask: Mask (not zero to select). Its shape is a prefix of the shape of `input`.
    ///
    /// Returns:
    ///     Array of shape (n, ...), where n is the number of selected elements.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not fit.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> mask = nn.NdArray.from_numpy_array([[1.0, 0.0], [1.0, 1.0]])
    ///     >>> F.bool_gather(x, mask).data
    ///     array([1., 3., 4.], dtype=float32)
    /// ```
    BoolGather = bool_gather(input, mask)
}

op! {
    /// Like `bool_gather` with a known number of selected elements: the gradient of `bool_scatter`.
    ///
    /// Args:
    ///     input: Input of any shape.
    ///     mask: As in `bool_gather`.
    ///     n: Number of selected elements.
    ///
    /// Returns:
    ///     Array of shape (n, ...).
    BoolTake = bool_take(input, mask; n: i64)
}

/// Copies the selected blocks of `n` elements to consecutive positions.
fn take<T: Float>(x: &[T], mask: &[T], n: usize, y: &mut [T]) {
    for (i, at) in chosen(mask).enumerate() {
        y[i * n..][..n].copy_from_slice(&x[at * n..][..n]);
    }
}

/// Copies consecutive blocks of `n` elements to the selected positions.
fn put<T: Float>(x: &[T], mask: &[T], n: usize, y: &mut [T]) {
    for (i, at) in chosen(mask).enumerate() {
        y[at * n..][..n].copy_from_slice(&x[i * n..][..n]);
    }
}

/// Implements [`Compute`] for taking the elements or rows that a mask selects.
macro_rules! take_by_mask {
    ($ty:ident, $shaped_by:expr, $count:expr) => {
        impl Compute for $ty {
            fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
                let (input, mask) = (x.get(0), x.get(1));
                check_mask("bool_gather", input, mask)?;
                let n: usize = $count(self, x)?;
                one([n].iter().chain(&input[mask.ndim()..]).copied().collect::<Shape>())
            }

            fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
                let (x, mask, y) = (run.x(0), run.x(1), run.y(0));
                check_count("bool_gather", mask, run.y_shape(0)[0])?;
                take(x, mask, run.y_shape(0).size_from(1), y);
                Ok(())
            }

            fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
                let (gy, n) = (run.gy(0), run.y_shape(0).size_from(1));
                if let Some(gx) = run.gx(0) {
                    let mask = run.x(1);
                    check_count("bool_gather", mask, run.y_shape(0)[0])?;
                    gx.through(|g| {
                        g.fill(T::ZERO);
                        put(gy, mask, n, g);
                    });
                }
                if let Some(gx) = run.gx(1) {
                    gx.put(|_| T::ZERO);
                }
                Ok(())
            }

            fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
                let scatter = || {
                    let op = crate::ops::Op::with_inputs(BoolScatter {}, 0b011);
                    Sym::apply_op(op, &[s.gy(0), s.x(1)])[0]
                };
                vec![s.wants(0).then(scatter), None]
            }

            fn moves(&self, i: usize) -> bool {
                i == 0
            }

            fn reads(&self, gx: usize) -> Reads {
                if gx == 0 { Reads::inputs(2) } else { Reads::NOTHING }
            }

            const SHAPED_BY: Option<usize> = $shaped_by;
        }
    };
}
take_by_mask!(BoolGather, Some(1), |_: &BoolGather, x: &InputShapes<'_>| count("bool_gather", x));
take_by_mask!(BoolTake, None, |op: &BoolTake, _: &InputShapes<'_>| Ok::<_, Error>(op.n as usize));

op! {
    /// Writes elements or slices in order to the positions that a mask selects, in zeros or in an array.
    ///
    /// Args:
    ///     input: The slices to write, shape (n, ...), one for each selected position.
    ///     mask: Mask of the positions (not zero to select).
    ///     output: Array to write to in place. Zeros by default.
    ///
    /// Returns:
    ///     Array of shape (*mask.shape, ...), or `output`.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not fit.
    ///     ValueError: If the mask does not select n positions.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([7.0, 8.0])
    ///     >>> mask = nn.NdArray.from_numpy_array([[1.0, 0.0], [0.0, 1.0]])
    ///     >>> F.bool_scatter(x, mask).data
    ///     array([[7., 0.],
    ///            [0., 8.]], dtype=float32)
    /// ```
    BoolScatter = bool_scatter(input, mask, output: optional)
}

impl Compute for BoolScatter {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (input, mask) = (x.get(0), x.get(1));
        let Some((_, inner)) = input.split_first() else {
            return Err(Error::shape("bool_scatter", "an input of shape (n, ...)", [input, mask]));
        };
        let shape: Shape = mask.iter().chain(inner).copied().collect();
        match x.find(2) {
            Some(output) if *output != shape => {
                Err(Error::shape("bool_scatter", format!("output of shape {shape}"), [input, mask, output]))
            }
            _ => one(shape),
        }
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, mask) = (run.x(0), run.x(1));
        check_count("bool_scatter", mask, run.x_shape(0)[0])?;
        let y = run.y_after(2);
        put(x, mask, run.x_shape(0).size_from(1), y);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, inner) = (run.gy(0), run.x_shape(0).size_from(1));
        if let Some(gx) = run.gx(0) {
            let mask = run.x(1);
            check_count("bool_scatter", mask, run.x_shape(0)[0])?;
            gx.through(|g| take(gy, mask, inner, g));
        }
        if let Some(gx) = run.gx(1) {
            gx.put(|_| T::ZERO);
        }
        if let Some(gx) = run.gx(2) {
            let mask = run.x(1);
            gx.put(|i| if mask[i / inner] == T::ZERO { gy[i] } else { T::ZERO });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (gy, mask) = (s.gy(0), s.x(1));
        let input = || Sym::apply(BoolTake { n: s.x(0).shape()[0] as i64 }, &[gy, mask]);
        let output = || {
            let (shape, own) = (gy.shape(), mask.shape());
            let lifted: Vec<usize> =
                (0..shape.ndim()).map(|i| if i < own.ndim() { own[i] } else { 1 }).collect();
            Sym::apply(BoolFill { value: 0.0 }, &[gy, mask.reshape(&lifted)])
        };
        vec![s.wants(0).then(input), None, s.wants(2).then(output)]
    }

    fn moves(&self, i: usize) -> bool {
        i != 1
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 1 { Reads::NOTHING } else { Reads::inputs(2) }
    }

    fn alias(&self, i: usize) -> Option<Alias> {
        (i == 2).then_some(Alias { output: 0, modifies: true })
    }
}

op! {
    /// The indices of the nonzero elements, row by row. The shape of the result depends on the values of `x`, which
    /// must be known when the function is built. Its gradient is zero.
    ///
    /// Args:
    ///     x: Input with one axis at least.
    ///
    /// Returns:
    ///     Indices, shape (number of axes, number of nonzero elements).
    ///
    /// Raises:
    ///     ShapeError: If `x` is a scalar.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[0.0, 5.0], [6.0, 0.0]])
    ///     >>> F.nonzero(x).data  # rows, then columns
    ///     array([[0, 1],
    ///            [1, 0]])
    /// ```
    NonZero = nonzero(x)
}

impl Compute for NonZero {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        match x.get(0).ndim() {
            0 => Err(Error::shape("nonzero", "an axis at least", [x.get(0)])),
            ndim => one([ndim, count("nonzero", x)?]),
        }
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, n, strides) = (run.x(0), run.y_shape(0)[1], run.x_shape(0).strides());
        check_count("nonzero", x, n)?;
        let (y, shape) = (run.y_index(0), run.x_shape(0));
        for (i, at) in chosen(x).enumerate() {
            if i % GRAIN == 0 {
                stop::poll();
            }
            for axis in 0..shape.ndim() {
                y[axis * n + i] = (at / strides[axis] % shape[axis]) as i64;
            }
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        run.gx(0).into_iter().for_each(|gx: Grad<'_, T>| gx.put(|_| T::ZERO));
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::I64)
    }

    const SHAPED_BY: Option<usize> = Some(0);
}
