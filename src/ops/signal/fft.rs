//! Fourier transforms of complex arrays.

use crate::array::Shape;
use crate::kernels::{Float, spectrum};
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<FFT>(), Entry::of::<IFFT>()];

op! {
    /// Discrete Fourier transform of complex numbers along the last axes:
    /// `y[k] = sum(x[t] exp(-2 pi i (k1 t1 / n1 + ...)))`.
    ///
    /// Args:
    ///     x: Signals, shape (batch..., n1, ..., 2), with `signal_ndim` axes of lengths `n1`, ..., and real and
    ///         imaginary parts along the last one.
    ///     signal_ndim: Number of axes of a signal, one at least.
    ///     normalized: Divide by the root of the number of elements of a signal.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `signal_ndim` is less than one.
    ///     ShapeError: If `x` has too few axes, or the last one is not of length 2.
    ///
    /// Source:
    ///     Cooley and Tukey, 1965, implemented by `rustfft`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])  # an impulse
    ///     >>> F.fft(x, 1).data[..., 0]  # real parts
    ///     array([[1., 1., 1., 1.]], dtype=float32)
    /// ```
    FFT = fft(x; signal_ndim: i64, normalized: bool = false)
}

op! {
    /// Inverse discrete Fourier transform of complex numbers along the last axes:
    /// `y[t] = sum(x[k] exp(2 pi i (k1 t1 / n1 + ...))) / (n1 ...)`.
    ///
    /// Args:
    ///     x: Frequencies, shape (batch..., n1, ..., 2), with `signal_ndim` axes of lengths `n1`, ..., and real and
    ///         imaginary parts along the last one.
    ///     signal_ndim: Number of axes of a signal, one at least.
    ///     normalized: Divide by the root of the number of elements of a signal, instead of by that number.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `signal_ndim` is less than one.
    ///     ShapeError: If `x` has too few axes, or the last one is not of length 2.
    ///
    /// Source:
    ///     Cooley and Tukey, 1965, implemented by `rustfft`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[4.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])
    ///     >>> F.ifft(x, 1).data[..., 0]
    ///     array([[1., 1., 1., 1.]], dtype=float32)
    /// ```
    IFFT = ifft(x; signal_ndim: i64, normalized: bool = false)
}

/// Number of elements of a signal.
fn signal(op: &str, x: &Shape, signal_ndim: i64) -> Result<usize> {
    if signal_ndim < 1 {
        return Err(Error::argument(op, "signal_ndim", "one or more", signal_ndim));
    }
    match x.ndim().checked_sub(1 + signal_ndim as usize) {
        Some(first) if x[x.ndim() - 1] == 2 => Ok(x[first..x.ndim() - 1].iter().product()),
        _ => {
            let expected = format!("{signal_ndim} axes of signals before one of length 2");
            Err(Error::shape(op, expected, [x]))
        }
    }
}

/// Transforms `y` in place and multiplies it by a factor.
fn transform<T: Float>(y: &mut [T], shape: &Shape, signal_ndim: i64, inverse: bool, factor: f64) {
    let last = shape.ndim() - 1;
    for axis in last - signal_ndim as usize..last {
        let inner = shape[axis + 1..last].iter().product();
        spectrum::along(y, (shape.size_to(axis), shape[axis], inner), inverse);
    }
    if factor != 1.0 {
        let factor = T::of(factor);
        for y in y.iter_mut() {
            *y = *y * factor;
        }
    }
}

/// Implements a transform whose gradient is the transform `$other` times a power of the size.
macro_rules! transforms {
    ($ty:ident, $name:literal, $other:ident, $inverse:literal, $power:literal) => {
        impl $ty {
            /// The normalization factor for signals of `n` elements.
            fn factor(&self, n: usize) -> f64 {
                (n.max(1) as f64).powf(if self.normalized { -0.5 } else { $power })
            }
        }

        impl Compute for $ty {
            fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
                signal($name, x.get(0), self.signal_ndim)?;
                like(x)
            }

            fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
                let shape = run.x_shape(0);
                let factor = self.factor(signal($name, shape, self.signal_ndim)?);
                let y = run.y_after(0);
                transform(y, shape, self.signal_ndim, $inverse, factor);
                Ok(())
            }

            fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
                let (shape, gy) = (run.x_shape(0), run.gy(0));
                let factor = self.factor(signal($name, shape, self.signal_ndim)?);
                if let Some(gx) = run.gx(0) {
                    gx.through(|g| {
                        g.copy_from_slice(gy);
                        transform(g, shape, self.signal_ndim, !$inverse, factor);
                    });
                }
                Ok(())
            }

            fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
                let other = $other { signal_ndim: self.signal_ndim, normalized: self.normalized };
                let n = signal($name, &s.gy(0).shape(), self.signal_ndim).unwrap_or(1);
                let (own, others) = (self.factor(n), other.factor(n));
                let back = Sym::apply(other, &[s.gy(0)]);
                vec![Some(if self.normalized { back } else { back * Sym::Const(own / others) })]
            }

            fn reads(&self, _: usize) -> Reads {
                Reads::NOTHING
            }
        }
    };
}
transforms!(FFT, "fft", IFFT, false, 0.0);
transforms!(IFFT, "ifft", FFT, true, -1.0);
