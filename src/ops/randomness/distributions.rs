//! Dropout, and operations that create random arrays.

use half::{bf16, f16};

use crate::array::DType;
use crate::kernels::Float;
use crate::kernels::random::PhiloxKey;
use crate::ops::arrangement::array::lengths;
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::contract::elementwise::sloped;
use crate::ops::randomness::generator_state::Drawing;
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::of::<Dropping>(),
    Entry::of::<Rand>(),
    Entry::of::<Randn>(),
    Entry::of::<Randint>(),
    Entry::of::<RandBinomial>(),
    Entry::of::<RandGamma>(),
    Entry::of::<RandBeta>(),
];

op! {
    /// Dropout: sets elements to zero at random and scales up the others. `y = x / (1 - p)` with probability `1 - p`,
    /// else 0. It is always active: leave it out for inference.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     p: Probability of zero, at least 0 and less than 1.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `p` is out of range.
    ///
    /// Source:
    ///     Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 1.0, 1.0, 1.0])
    ///     >>> np.isin(F.dropout(x, 0.5).data, (0.0, 2.0))
    ///     array([ True,  True,  True,  True])
    /// ```
    Dropout = dropout(x; p: f64 = 0.5, seed: i64 = -1)
}

/// [`Dropout`] with the random numbers of its last run.
type Dropping = Drawing<Dropout>;

/// The dropout factors of the last run of a [`Dropping`]. Takes the output of that run as input, so that it runs
/// afterwards.
#[derive(Clone)]
struct DropoutMask(Dropping);
only_in_gradients! {
    DropoutMask = "dropout_mask", " The factors of a dropout.";
}

/// Writes or adds `f` of the elements that dropout keeps, and zero for the others.
#[inline(always)]
fn put_undropped<T: Float, const N: usize>(
    (key, p): (PhiloxKey, f64),
    y: &mut [T],
    accumulate: bool,
    x: [&[T]; N],
    f: impl Fn([T; N]) -> T + Sync + Copy,
) {
    let dropped = (p * 4_294_967_296.0) as u32;
    key.put(
        y,
        accumulate,
        x,
        #[inline(always)]
        move |x, word| {
            let v = f(x);
            if word >= dropped { v } else { T::ZERO }
        },
    );
}

impl Compute for Dropping {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if (0.0..1.0).contains(&self.of.p) {
            return like(x);
        }
        Err(Error::argument("dropout", "p", "from 0 up to but not including 1", self.of.p))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y) = (run.x(0), run.y(0));
        let key = self.draw(run, self.of.seed, y.len());
        let scale = T::of(1.0 / (1.0 - self.of.p));
        put_undropped(
            (key, self.of.p),
            y,
            false,
            [x],
            #[inline(always)]
            move |[x]| x * scale,
        );
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, scale) = (run.gy(0), T::of(1.0 / (1.0 - self.of.p)));
        let key = self.drawn(run)?;
        if let Some(crate::ops::Grad { data, accumulate }) = run.gx(0) {
            put_undropped(
                (key, self.of.p),
                data,
                accumulate,
                [gy],
                #[inline(always)]
                move |[g]| g * scale,
            );
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let mask = Sym::apply(DropoutMask(self.clone()), &[s.y(0)]);
        vec![Some(sloped(s.gy(0), mask))]
    }

    // `backward` draws the random numbers of `forward` again.
    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    // The output only orders the rule after `forward`, which saves the random numbers.
    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::OUTPUTS
    }

    const IS_RANDOM: bool = true;
}

impl Compute for DropoutMask {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (y, p) = (run.y(0), self.0.of.p);
        let scale = T::of(1.0 / (1.0 - p));
        put_undropped(
            (self.0.last()?, p),
            y,
            false,
            [],
            #[inline(always)]
            move |[]| scale,
        );
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

op! {
    /// Random numbers with a uniform distribution.
    ///
    /// Args:
    ///     low: Start of the range.
    ///     high: End of the range, which is excluded.
    ///     shape: Shape of the array.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     ArgumentError: If `high` is not larger than `low`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor.functions as F
    ///     >>> x = F.rand(low=-1.0, high=1.0, shape=(1000,))
    ///     >>> x.forward()
    ///     >>> bool(-1.0 <= x.d.min() < -0.9 and 0.9 < x.d.max() < 1.0)
    ///     True
    /// ```
    Rand = rand(; low: f64 = 0.0, high: f64 = 1.0, shape: Vec<i64> = Vec::new(), seed: i64 = -1)
}

op! {
    /// Random numbers with a normal distribution.
    ///
    /// Args:
    ///     mu: Mean.
    ///     sigma: Standard deviation, zero or more.
    ///     shape: Shape of the array.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     ArgumentError: If `sigma` is negative or not finite.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor.functions as F
    ///     >>> x = F.randn(mu=5.0, sigma=0.1, shape=(1000,))
    ///     >>> x.forward()
    ///     >>> print(f"{x.d.mean():.1f} {x.d.std():.1f}")
    ///     5.0 0.1
    /// ```
    Randn = randn(; mu: f64 = 0.0, sigma: f64 = 1.0, shape: Vec<i64> = Vec::new(), seed: i64 = -1)
}

op! {
    /// Random whole numbers with a uniform distribution.
    ///
    /// Args:
    ///     low: Start of the range.
    ///     high: End of the range, which is excluded.
    ///     shape: Shape of the array.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Whole numbers, of shape `shape`.
    ///
    /// Raises:
    ///     ArgumentError: If `high` is not larger than `low`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor.functions as F
    ///     >>> x = F.randint(low=0, high=3, shape=(1000,))
    ///     >>> x.forward()
    ///     >>> np.unique(x.d)
    ///     array([0, 1, 2])
    /// ```
    Randint = randint(; low: i64 = 0, high: i64 = 1, shape: Vec<i64> = Vec::new(), seed: i64 = -1)
}

op! {
    /// Random numbers with a binomial distribution: the number of successes in `n` trials of probability `p`.
    ///
    /// Args:
    ///     n: Number of trials.
    ///     p: Probability of success, from 0 to 1.
    ///     shape: Shape of the array.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     ArgumentError: If `n` is negative or `p` is out of range.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor.functions as F
    ///     >>> x = F.rand_binomial(n=2, p=0.5, shape=(1000,))
    ///     >>> x.forward()
    ///     >>> np.unique(x.d)
    ///     array([0., 1., 2.], dtype=float32)
    /// ```
    RandBinomial = rand_binomial(; n: i64 = 1, p: f64 = 0.5, shape: Vec<i64> = Vec::new(), seed: i64 = -1)
}

op! {
    /// Random numbers with a gamma distribution.
    ///
    /// Args:
    ///     k: Shape of the distribution.
    ///     theta: Scale.
    ///     shape: Shape of the array.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     ArgumentError: If a parameter is not positive.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor.functions as F
    ///     >>> x = F.rand_gamma(k=9.0, theta=0.5, shape=(10000,))
    ///     >>> x.forward()
    ///     >>> bool(4.4 < x.d.mean() < 4.6)  # k * theta is 4.5
    ///     True
    /// ```
    RandGamma = rand_gamma(; k: f64 = 0.5, theta: f64 = 1.0, shape: Vec<i64> = Vec::new(), seed: i64 = -1)
}

op! {
    /// Random numbers with a beta distribution.
    ///
    /// Args:
    ///     alpha: Weight towards 1.
    ///     beta: Weight towards 0.
    ///     shape: Shape of the array.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     ArgumentError: If a parameter is not positive.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor.functions as F
    ///     >>> x = F.rand_beta(alpha=2.0, beta=2.0, shape=(10000,))
    ///     >>> x.forward()
    ///     >>> bool(0.48 < x.d.mean() < 0.52)  # alpha / (alpha + beta) is 0.5
    ///     True
    /// ```
    RandBeta = rand_beta(; alpha: f64 = 0.5, beta: f64 = 0.5, shape: Vec<i64> = Vec::new(), seed: i64 = -1)
}

/// Returns an error unless a parameter is positive.
fn check_positive(op: &str, name: &str, value: f64) -> Result<()> {
    let fits = value > 0.0 && value.is_finite();
    if fits { Ok(()) } else { Err(Error::argument(op, name, "a positive number", value)) }
}

/// Implements operations without inputs: `check` tests their arguments, and `draw` fills the array.
macro_rules! draws {
    ($($ty:ident = $name:literal, $output:expr, $check:expr, $draw:expr;)+) => {$(
        impl Compute for $ty {
            fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
                let check: fn(&Self) -> Result<()> = $check;
                check(self)?;
                let shape = lengths($name, &self.shape)?;
                shape.checked_size()?;
                one(shape)
            }

            fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
                let key = run.random(self.seed, run.y_shape(0).size());
                let draw: fn(&Self, PhiloxKey, &mut Run<'_, T>) = $draw;
                draw(self, key, run);
                Ok(())
            }

            const HAS_BACKWARD: bool = false;

            fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
                Vec::new()
            }

            fn output(&self, _: usize) -> Option<DType> {
                $output
            }

            const IS_RANDOM: bool = true;
        }
    )+};
}

/// The least number that rounds to `high` or more in a narrower type, if there is one: the exclusive end of a range.
pub(super) fn rounded_up_from(high: f64, narrow: Option<DType>) -> f64 {
    // The number before a 16-bit number, which is a sign and a magnitude.
    let before = |bits: u16| match bits {
        0 | 0x8000 => 0x8001,
        1..0x8000 => bits - 1,
        _ => bits + 1,
    };
    let (before, end) = match narrow {
        Some(DType::F16) => {
            let end = f16::from_f64(high);
            (f16::from_bits(before(end.to_bits())).to_f64(), end.to_f64())
        }
        Some(DType::BF16) => {
            let end = bf16::from_f64(high);
            (bf16::from_bits(before(end.to_bits())).to_f64(), end.to_f64())
        }
        _ => return high,
    };
    if end.is_finite() { 0.5 * (before + end) } else { before }
}

/// Returns an error if a range is empty.
fn check_range<N: Copy + PartialOrd + std::fmt::Display>(op: &str, low: N, high: N) -> Result<()> {
    if low < high {
        Ok(())
    } else {
        Err(Error::argument(op, "high", format!("larger than low ({low})"), high))
    }
}

draws! {
    Rand = "rand", None, |op| check_range("rand", op.low, op.high),
        |op, key, run| {
            let limit = rounded_up_from(op.high, run.narrow());
            key.uniform_below(op.low, op.high, limit, run.y(0));
        };
    Randn = "randn", None, |op| {
            let fits = op.sigma >= 0.0 && op.sigma.is_finite();
            let refused = || Error::argument("randn", "sigma", "a finite number, zero or more", op.sigma);
            if fits { Ok(()) } else { Err(refused()) }
        },
        |op, key, run| key.normal(op.mu, op.sigma, run.y(0));
    Randint = "randint", Some(DType::I64), |op| check_range("randint", op.low, op.high),
        |op, key, run| key.integers(op.low, op.high, run.y_index(0));
    RandBinomial = "rand_binomial", None, |op| {
            if op.n < 0 {
                return Err(Error::argument("rand_binomial", "n", "zero or more", op.n));
            }
            let fits = (0.0..=1.0).contains(&op.p);
            if fits { Ok(()) } else { Err(Error::argument("rand_binomial", "p", "from 0 to 1", op.p)) }
        },
        |op, key, run| key.binomial(op.n as u64, op.p, run.y(0));
    RandGamma = "rand_gamma", None,
        |op| check_positive("rand_gamma", "k", op.k).and(check_positive("rand_gamma", "theta", op.theta)),
        |op, key, run| key.gamma(op.k, op.theta, run.y(0));
    RandBeta = "rand_beta", None,
        |op| check_positive("rand_beta", "alpha", op.alpha).and(check_positive("rand_beta", "beta", op.beta)),
        |op, key, run| key.beta(op.alpha, op.beta, run.y(0));
}
