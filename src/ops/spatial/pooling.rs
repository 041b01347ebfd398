//! Sum and average pooling, and `unpooling`.

use crate::array::{Element, Shape};
use crate::kernels::channel_sums::means;
use crate::kernels::pooling::{Divisor, PoolingAxis, Windows, add_sum_gradient, sum};
use crate::kernels::{Float, Movable, Stored, reduce, strided};
use crate::ops::reductions::reduction::spread;
use crate::ops::spatial::layout::pools;
use crate::ops::{
    Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, arrangement::array, one,
    op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::of::<AveragePooling>(),
    Entry::of::<SumPooling>(),
    Entry::of::<GlobalAveragePooling>(),
    Entry::of::<Unpooling>(),
];

op! {
    /// Average pooling: the mean over windows along the last axes.
    ///
    /// Args:
    ///     x: Input, shape (..., spatial...), or (..., spatial..., channels) if `channel_last`.
    ///     kernel: Size of the windows along each spatial axis; one to three axes.
    ///     stride: Step of the windows along each spatial axis, `kernel` by default.
    ///     ignore_border: Leave out windows that exceed the end of the padded input. If off, every element is in a
    ///         window, and `pad` is added at the start only.
    ///     pad: Zeros added at both ends of each spatial axis; none by default.
    ///     channel_last: The last axis is the channels and is not pooled.
    ///     including_pad: Count the zeros of `pad` as elements. If off, the average of a window with only padding is
    ///         NaN.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each spatial axis having `(in + 2 * pad - kernel) // stride + 1` elements, or
    ///     `ceil((in + pad) / stride)` without `ignore_border`.
    ///
    /// Raises:
    ///     ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
    ///     ShapeError: If `x` has too few axes, or no window fits.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0, 5.0, 3.0]]])
    ///     >>> F.average_pooling(x, (2,)).data
    ///     array([[[1.5, 4. ]]], dtype=float32)
    /// ```
    AveragePooling = average_pooling(x;
        kernel: Vec<i64>,
        stride: Option<Vec<i64>> = None,
        ignore_border: bool = true,
        pad: Option<Vec<i64>> = None,
        channel_last: bool = false,
        including_pad: bool = true,
    )
}

impl AveragePooling {
    /// The number that each sum is divided by.
    fn divisor(op: &Self) -> Divisor {
        if op.including_pad { Divisor::Padded } else { Divisor::Inside }
    }
}

op! {
    /// Sum pooling: the sum over windows along the last axes.
    ///
    /// Args:
    ///     x: Input, shape (..., spatial...), or (..., spatial..., channels) if `channel_last`.
    ///     kernel: Size of the windows along each spatial axis; one to three axes.
    ///     stride: Step of the windows along each spatial axis, `kernel` by default.
    ///     ignore_border: Leave out windows that exceed the end of the padded input. If off, every element is in a
    ///         window, and `pad` is added at the start only.
    ///     pad: Zeros added at both ends of each spatial axis; none by default.
    ///     channel_last: The last axis is the channels and is not pooled.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each spatial axis having `(in + 2 * pad - kernel) // stride + 1` elements, or
    ///     `ceil((in + pad) / stride)` without `ignore_border`.
    ///
    /// Raises:
    ///     ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
    ///     ShapeError: If `x` has too few axes, or no window fits.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0, 5.0, 3.0]]])
    ///     >>> F.sum_pooling(x, (2,)).data
    ///     array([[[3., 8.]]], dtype=float32)
    /// ```
    SumPooling = sum_pooling(x;
        kernel: Vec<i64>,
        stride: Option<Vec<i64>> = None,
        ignore_border: bool = true,
        pad: Option<Vec<i64>> = None,
        channel_last: bool = false,
    )
}

impl SumPooling {
    /// None: the result is the sum.
    fn divisor(_: &Self) -> Divisor {
        Divisor::One
    }
}

op! {
    /// The gradient of `sum_pooling` and `average_pooling`: each number is added to the elements of its window.
    ///
    /// Args:
    ///     gy: Gradient of the output of the pooling.
    ///     shape: Shape of its input.
    ///     kernel: As given to the pooling.
    ///     stride: As given to the pooling.
    ///     ignore_border: As given to the pooling.
    ///     pad: As given to the pooling.
    ///     channel_last: As given to the pooling.
    ///     average: True for the gradient of `average_pooling`.
    ///     including_pad: As given to `average_pooling`.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    PoolingDataGrad = pooling_data_grad(gy;
        shape: Vec<i64>,
        kernel: Vec<i64>,
        stride: Option<Vec<i64>>,
        ignore_border: bool,
        pad: Option<Vec<i64>>,
        channel_last: bool,
        average: bool,
        including_pad: bool,
    )
}

pools!(AveragePooling SumPooling PoolingDataGrad);

impl PoolingDataGrad {
    /// The number that a sum is divided by.
    fn divisor(&self) -> Divisor {
        match (self.average, self.including_pad) {
            (false, _) => Divisor::One,
            (true, true) => Divisor::Padded,
            (true, false) => Divisor::Inside,
        }
    }
}

/// Implements sum and average pooling, which differ in the divisor.
macro_rules! summing {
    ($($ty:ident)+) => {$(
        impl Compute for $ty {
            fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
                one(self.pool().windows(x.get(0))?.1)
            }

            const IS_STORED: bool = true;
            const IS_STORED_HALF: bool = true;

            fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
                let (windows, _) = self.pool().windows(run.x_shape(0))?;
                sum(&windows, run.x(0), run.y(0), Self::divisor(self));
                Ok(())
            }

            fn is_stored_back(&self, _: &InputShapes<'_>) -> bool {
                true
            }

            fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
                let (windows, _) = self.pool().windows(run.x_shape(0))?;
                if let Some(gx) = run.gx(0) {
                    add_sum_gradient(&windows, run.gy(0), gx.adding(), Self::divisor(self));
                }
                Ok(())
            }

            fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
                let Self { kernel, stride, ignore_border, pad, channel_last, .. } = self.clone();
                let (shape, divisor) = (s.x(0).shape().iter().map(|d| *d as i64).collect(), Self::divisor(self));
                let (average, including_pad) = (divisor != Divisor::One, divisor == Divisor::Padded);
                let op = PoolingDataGrad {
                    shape, kernel, stride, ignore_border, pad, channel_last, average, including_pad,
                };
                vec![Some(Sym::apply(op, &[s.gy(0)]))]
            }

            fn reads(&self, _: usize) -> Reads {
                Reads::NOTHING
            }

            fn open(&self, arg: &str, _: &InputShapes<'_>) -> Value {
                self.pool().open(arg)
            }
        }
    )+};
}
summing!(AveragePooling SumPooling);

impl Compute for PoolingDataGrad {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(array::lengths("pooling_data_grad", &self.shape)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (windows, _) = self.pool().windows(run.y_shape(0))?;
        let gx = run.y(0);
        gx.fill(T::ZERO);
        add_sum_gradient(&windows, run.x(0), gx, Self::divisor(self));
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let Self { kernel, stride, ignore_border, pad, channel_last, average, including_pad, .. } =
            self.clone();
        let gy = s.gy(0);
        vec![Some(if average {
            let op = AveragePooling { kernel, stride, ignore_border, pad, channel_last, including_pad };
            Sym::apply(op, &[gy])
        } else {
            Sym::apply(SumPooling { kernel, stride, ignore_border, pad, channel_last }, &[gy])
        })]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Average over all axes but the first two.
    ///
    /// Args:
    ///     x: Input, shape (n, c, ...).
    ///
    /// Returns:
    ///     Array of shape (n, c, 1, 1).
    ///
    /// Raises:
    ///     ShapeError: If `x` has fewer than two axes, or no elements to average.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[[1.0, 2.0], [3.0, 4.0]]]])
    ///     >>> F.global_average_pooling(x).data
    ///     array([[[[2.5]]]], dtype=float32)
    /// ```
    GlobalAveragePooling = global_average_pooling(x)
}

impl GlobalAveragePooling {
    /// The shape with length one along the spatial axes.
    fn kept(x: &Shape) -> Shape {
        (0..x.ndim()).map(|i| if i < 2 { x[i] } else { 1 }).collect()
    }
}

impl Compute for GlobalAveragePooling {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let x = x.get(0);
        if x.ndim() < 2 || x.size_from(2) == 0 {
            let expected = "an input of shape (n, c, ...) with at least one element in each channel";
            return Err(Error::shape("global_average_pooling", expected, [x]));
        }
        one([x[0], x[1], 1, 1])
    }

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let n = run.x_shape(0).size_from(2);
        means(run.x(0), n, run.y(0));
        Ok(())
    }

    fn is_stored_back(&self, _: &InputShapes<'_>) -> bool {
        true
    }

    fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
        let (shape, gy) = (run.x_shape(0), run.gy(0));
        let (kept, n) = (Self::kept(shape), E::Wide::of(shape.size_from(2) as f64));
        if let Some(gx) = run.gx(0) {
            spread(gx, gy, &kept, shape, move |g| g / n);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape();
        let kept = Self::kept(&shape);
        let each = s.gy(0) / Sym::Const(shape.size_from(2) as f64);
        vec![Some(each.reshape(&kept).broadcast(&shape))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Repeats each element over a window along the last axes: the reverse of a pooling.
    ///
    /// Args:
    ///     x: Input, shape (..., spatial...), or (..., spatial..., channels) if `channel_last`.
    ///     kernel: Size of the windows along each spatial axis.
    ///     channel_last: The last axis is the channels and is not repeated.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each spatial axis being `kernel` times as long.
    ///
    /// Raises:
    ///     ArgumentError: If `kernel` is empty or holds a number below one.
    ///     ShapeError: If `x` has too few axes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0]]])
    ///     >>> F.unpooling(x, (2,)).data
    ///     array([[[1., 1., 2., 2.]]], dtype=float32)
    /// ```
    Unpooling = unpooling(x; kernel: Vec<i64>, channel_last: bool = false)
}

impl Unpooling {
    /// The shape of `x` with an axis of length one after each spatial axis, and the same with the window sizes as
    /// lengths.
    fn split(&self, x: &Shape) -> Result<(Shape, Shape)> {
        let n = self.kernel.len();
        if n == 0 || self.kernel.iter().any(|k| !(1..1 << 31).contains(k)) {
            let got = format!("{:?}", self.kernel);
            return Err(Error::argument("unpooling", "kernel", "numbers of one or more", got));
        }
        let Some(first) = x.ndim().checked_sub(n + usize::from(self.channel_last)) else {
            let expected = format!("an input with the {n} axes of `kernel`");
            return Err(Error::shape("unpooling", expected, [x]));
        };
        let with = |window: &dyn Fn(usize) -> usize| -> Shape {
            let spatial = (0..n).flat_map(|i| [x[first + i], window(i)]);
            x[..first].iter().copied().chain(spatial).chain(x[first + n..].iter().copied()).collect()
        };
        let full = with(&|i| self.kernel[i] as usize);
        full.checked_size()?;
        Ok((with(&|_| 1), full))
    }

    /// The windows that the elements of `x` become. None if there are more axes than pooling supports.
    fn windows(&self, x: &Shape) -> Option<Windows> {
        let first = x.ndim() - self.kernel.len() - usize::from(self.channel_last);
        let axis = |(i, kernel): (usize, &i64)| {
            let (output, kernel) = (x[first + i], *kernel as usize);
            PoolingAxis { input: output * kernel, output, kernel, stride: kernel, pad: 0 }
        };
        let axes: Vec<PoolingAxis> = self.kernel.iter().enumerate().map(axis).collect();
        (axes.len() <= 3).then(|| Windows::new(x.size_to(first), &axes, x.size_from(first + axes.len())))
    }
}

impl Compute for Unpooling {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let x = x.get(0);
        self.split(x)?;
        let first = x.ndim() - self.kernel.len() - usize::from(self.channel_last);
        let mut y = x.clone();
        self.kernel.iter().enumerate().for_each(|(i, k)| y[first + i] *= *k as usize);
        one(y)
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (split, full) = self.split(run.x_shape(0))?;
        strided::broadcast(run.x(0), &split, &full, run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (split, full) = self.split(run.x_shape(0))?;
        let (windows, gy) = (self.windows(run.x_shape(0)), run.gy(0));
        match (run.gx(0), windows) {
            (Some(gx), Some(windows)) => gx.through(|gx| sum(&windows, gy, gx, Divisor::One)),
            (Some(gx), None) => reduce::sum_to(gy, &full, &split, gx.data, gx.accumulate, T::of),
            (None, _) => {}
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape();
        let Ok((split, full)) = self.split(&shape) else { return Vec::new() };
        vec![Some(s.gy(0).reshape(&full).sum_to(&split).reshape(&shape))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

#[cfg(test)]
mod tests;
