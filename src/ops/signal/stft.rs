//! Short-time Fourier transforms of real signals. The gradient of each is the adjoint of the other.

use crate::array::Shape;
use crate::kernels::{Float, scratch};
use crate::ops::signal::frames::Frames;
use crate::ops::{Backward, Compute, Entry, InputShapes, Op, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<STFT>(), Entry::of::<ISTFT>()];

op! {
    /// Short-time Fourier transform: frequencies of overlapping frames of signals, each multiplied by a window.
    ///
    /// Args:
    ///     x: Signals, shape (batch, samples).
    ///     window_size: Samples of the window, which is centred in a frame.
    ///     stride: Samples from a part to the next.
    ///     fft_size: Samples of a frame, at least `window_size`.
    ///     window_type: `hanning`, `hamming` or `rectangular`.
    ///     center: Pad the signals by half of `fft_size` at either end, so that frame `i` is centred at sample
    ///         `i * stride`.
    ///     pad_mode: The padding: `reflect` for the mirrored signal, `constant` for zeros.
    ///     as_istft_backward: Compute the gradient of `istft` from the gradient `x` of its output. `pad_mode` is
    ///         ignored then.
    ///
    /// Returns:
    ///     Real parts and imaginary parts, each of shape (batch, fft_size // 2 + 1, frames).
    ///
    /// Raises:
    ///     ArgumentError: If a size is out of range or a mode has another name.
    ///     ShapeError: If `x` has not two axes, or its signals are too short.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.sin(2 * np.pi * np.arange(64) / 8)[None])
    ///     >>> real, imaginary = F.stft(x, window_size=16, stride=8, fft_size=16)
    ///     >>> real.shape
    ///     (1, 9, 9)
    ///     >>> np.hypot(real.data, imaginary.data)[0, :, 4].argmax().item()  # 2 periods in a frame
    ///     2
    /// ```
    STFT = stft(x; window_size: i64, stride: i64, fft_size: i64, window_type: String = "hanning", center: bool = true,
        pad_mode: String = "reflect", as_istft_backward: bool = false)
}

op! {
    /// Inverse short-time Fourier transform: signals from the frequencies of their overlapping frames.
    ///
    /// Args:
    ///     y_r: Real parts, shape (batch, fft_size // 2 + 1, frames).
    ///     y_i: Imaginary parts, of the same shape.
    ///     window_size: Samples of the window, which is centred in a frame.
    ///     stride: Samples from one frame to the next. It must divide `fft_size`.
    ///     fft_size: Samples of a frame, at least `window_size`.
    ///     window_type: `hanning`, `hamming` or `rectangular`.
    ///     center: Remove half of `fft_size` at either end, which `stft` added as padding.
    ///     pad_mode: Used only with `as_stft_backward`.
    ///     as_stft_backward: Compute the gradient of `stft` from the gradients of its outputs.
    ///
    /// Returns:
    ///     Signals, shape (batch, samples).
    ///
    /// Raises:
    ///     ArgumentError: If a size is out of range or a mode has another name.
    ///     ShapeError: If the inputs differ in shape, or have the wrong number of frequencies.
    ///     ValueError: If some samples are in no window.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.sin(np.arange(64.0))[None])
    ///     >>> frames = F.stft(x, window_size=16, stride=8, fft_size=16)
    ///     >>> y = F.istft(*frames, window_size=16, stride=8, fft_size=16)
    ///     >>> np.allclose(y.data, x.data, atol=1e-5)
    ///     True
    /// ```
    ISTFT = istft(y_r, y_i; window_size: i64, stride: i64, fft_size: i64, window_type: String = "hanning",
        center: bool = true, pad_mode: String = "reflect", as_stft_backward: bool = false)
}

op! {
    /// Like `istft` for signals of a given length: the gradient of `stft`, whose frames may not cover the last samples.
    ///
    /// Args:
    ///     y_r: Real parts, shape (batch, fft_size // 2 + 1, frames).
    ///     y_i: Imaginary parts, of the same shape.
    ///     back: The arguments window_size, stride and fft_size of `stft`.
    ///     window_type: As given to `stft`.
    ///     center: As given to `stft`.
    ///     pad_mode: As given to `stft`.
    ///     inverse: True if `stft` computed the gradient of `istft`.
    ///     samples: Samples of a signal.
    ///
    /// Returns:
    ///     Signals, shape (batch, samples).
    StftBack = stft_back(y_r, y_i; back: Vec<i64>, window_type: String, center: bool, pad_mode: String, inverse: bool,
        samples: i64)
}

impl STFT {
    /// Checks the arguments. Returns the frames of the transform.
    fn frames(&self) -> Result<Frames> {
        let sizes = [self.window_size, self.stride, self.fft_size];
        Frames::new("stft", sizes, &self.window_type, self.center, &self.pad_mode, self.as_istft_backward)
    }

    /// Number of signals, samples and frames for an input.
    fn sizes(&self, frames: &Frames, x: &Shape) -> Result<(usize, usize, usize)> {
        let expected = || {
            let least =
                if self.center { format!(", more than {} each", self.fft_size / 2) } else { String::new() };
            Error::shape(
                "stft",
                format!("signals of shape (batch, samples){least}, that a part fits in"),
                [x],
            )
        };
        match x[..] {
            [count, samples] => Ok((count, samples, frames.frames(samples).ok_or_else(expected)?)),
            _ => Err(expected()),
        }
    }
}

impl Compute for STFT {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let how = self.frames()?;
        let (count, samples, frames) = self.sizes(&how, x.get(0))?;
        how.scales("stft", samples, frames)?;
        let mut shapes = one([count, how.bins(), frames])?;
        shapes.push(shapes[0].clone());
        Ok(shapes)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let how = self.frames()?;
        let sizes = self.sizes(&how, run.x_shape(0))?;
        let scales = how.scales("stft", sizes.1, sizes.2)?;
        how.analyse(run.x(0), sizes, &scales, run.y(0), run.y(1));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let how = self.frames()?;
        let sizes = self.sizes(&how, run.x_shape(0))?;
        let scales = how.scales("stft", sizes.1, sizes.2)?;
        let (re, im) = (run.gy(0), run.gy(1));
        if let Some(gx) = run.gx(0) {
            gx.through(|g| how.synthesise(re, im, sizes, &scales, g));
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let back = StftBack {
            back: vec![self.window_size, self.stride, self.fft_size],
            window_type: self.window_type.clone(),
            center: self.center,
            pad_mode: self.pad_mode.clone(),
            inverse: self.as_istft_backward,
            samples: s.x(0).shape()[1] as i64,
        };
        vec![Some(Sym::apply(back, &[s.gy(0), s.gy(1)]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

/// Number of signals, samples and frames for frequencies.
fn sizes(
    op: &str,
    how: &Frames,
    re: &Shape,
    im: &Shape,
    samples: Option<usize>,
) -> Result<(usize, usize, usize)> {
    match re[..] {
        [count, bins, frames] if re == im && bins == how.bins() => {
            match samples.or_else(|| how.samples(frames)) {
                Some(samples) => Ok((count, samples, frames)),
                None => Err(Error::shape(op, "parts that make a signal", [re, im])),
            }
        }
        _ => {
            let expected = format!("real and imaginary parts of one shape (batch, {}, parts)", how.bins());
            Err(Error::shape(op, expected, [re, im]))
        }
    }
}

/// Implements operations with frequencies as inputs and signals as output.
macro_rules! synthesis {
    ($ty:ident, $name:literal, $samples:expr) => {
        impl Compute for $ty {
            fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
                let how = self.frames()?;
                let (count, samples, frames) = sizes($name, &how, x.get(0), x.get(1), ($samples)(self))?;
                how.scales($name, samples, frames)?;
                one([count, samples])
            }

            fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
                let how = self.frames()?;
                let sizes = sizes($name, &how, run.x_shape(0), run.x_shape(1), ($samples)(self))?;
                let scales = how.scales($name, sizes.1, sizes.2)?;
                how.synthesise(run.x(0), run.x(1), sizes, &scales, run.y(0));
                Ok(())
            }

            fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
                let how = self.frames()?;
                let sizes = sizes($name, &how, run.x_shape(0), run.x_shape(1), ($samples)(self))?;
                let scales = how.scales($name, sizes.1, sizes.2)?;
                let (gy, n) = (run.gy(0), run.x_shape(0).size());
                scratch::with(2 * n, |both: &mut [T]| {
                    let (re, im) = both.split_at_mut(n);
                    how.analyse(gy, sizes, &scales, re, im);
                    run.gx(0).into_iter().for_each(|gx| gx.put_all(re));
                    run.gx(1).into_iter().for_each(|gx| gx.put_all(im));
                });
                Ok(())
            }

            fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
                let found = Sym::apply_op(Op::new(self.back()), &[s.gy(0)]);
                (0..2).map(|i| s.wants(i).then_some(found[i])).collect()
            }

            fn reads(&self, _: usize) -> Reads {
                Reads::NOTHING
            }
        }
    };
}
synthesis!(ISTFT, "istft", |_: &Self| None);
synthesis!(StftBack, "stft_back", |op: &Self| Some(op.samples as usize));

impl ISTFT {
    /// Checks the arguments. Returns the frames of the transform.
    fn frames(&self) -> Result<Frames> {
        let sizes = [self.window_size, self.stride, self.fft_size];
        Frames::new("istft", sizes, &self.window_type, self.center, &self.pad_mode, !self.as_stft_backward)
    }

    /// The forward transform with the same arguments, for the gradient.
    fn back(&self) -> STFT {
        STFT {
            window_size: self.window_size,
            stride: self.stride,
            fft_size: self.fft_size,
            window_type: self.window_type.clone(),
            center: self.center,
            pad_mode: self.pad_mode.clone(),
            as_istft_backward: !self.as_stft_backward,
        }
    }
}

impl StftBack {
    /// Window size, stride and size of the transform. 0 for a missing argument.
    fn sizes(&self) -> [i64; 3] {
        std::array::from_fn(|i| self.back.get(i).copied().unwrap_or(0))
    }

    /// Checks the arguments. Returns the frames of the transform.
    fn frames(&self) -> Result<Frames> {
        Frames::new("stft_back", self.sizes(), &self.window_type, self.center, &self.pad_mode, self.inverse)
    }

    /// The forward transform with the same arguments, for the gradient.
    fn back(&self) -> STFT {
        let [window_size, stride, fft_size] = self.sizes();
        STFT {
            window_size,
            stride,
            fft_size,
            window_type: self.window_type.clone(),
            center: self.center,
            pad_mode: self.pad_mode.clone(),
            as_istft_backward: self.inverse,
        }
    }
}
