//! Linear quantization of a range with a minimum and a maximum that are tracked or learned.

use crate::array::Shape;
use crate::kernels::broadcast_blocks::BroadcastBlocks;
use crate::kernels::map;
use crate::kernels::reduce::ReducedRows;
use crate::kernels::scratch::{List, SavedMemory};
use crate::kernels::simd::vectorised;
use crate::kernels::{Float, Number};
use crate::ops::quantization::levels::{check, round_away};
use crate::ops::{
    Backward, Compute, Declared, Entry, Grad, Input, InputShapes, Kind, Reads, Run, Shapes, Spec, Sym,
    Symbols, Value, like, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<MinMaxQuantize>()];

op! {
    /// Quantization to evenly spaced levels between two numbers `m` and `M`:
    /// `y = round((min(max(x, m), M) - m) / scale) * scale + m`, with `scale = (qr_max - qr_min) / (ql_max - ql_min)`.
    ///
    /// `m` and `M` are `qr_min` and `qr_max`, moved such that zero is a level: `m = (ql_min - zero) * scale` and
    /// `M = (ql_max - zero) * scale`, where `zero = round(ql_min - qr_min / scale)` within `ql_min` and `ql_max`. The
    /// range is at least `eps` wide. The values stay floating-point numbers: quantization is simulated.
    ///
    /// With `x_min_max` each forward run writes the range of `x` into `qr_min` and `qr_max`, or with `ema` also moves
    /// them towards it: `qr_min = decay * qr_min + (1 - decay) * min(x)`. With neither, `qr_min` and `qr_max` have
    /// gradients: the sums of the gradients of elements below `m` and above `M`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     qr_min: Smallest number. Its shape is the shape of `x` with length one along axes that share it.
    ///     qr_max: Largest number, of the same shape.
    ///     ql_min: Smallest level, of the same shape, usually 0.
    ///     ql_max: Largest level, of the same shape, usually 255.
    ///     decay: Weight of the old `qr_min` and `qr_max` in an update, from 0 to 1.
    ///     x_min_max: Take the range from `x`.
    ///     ema: Track the range of `x` by moving averages. Without `x_min_max`, use the averages without an update.
    ///     ste_fine_grained: No gradient flows to `x` where it is out of range; if off, the gradient passes everywhere.
    ///     eps: Least width of the range, positive.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `decay` or `eps` is out of range.
    ///     ShapeError: If the other inputs differ in shape or do not broadcast to `x`.
    ///
    /// Source:
    ///     Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
    ///     2017, arXiv:1712.05877.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.2, 0.3, 2.0])
    ///     >>> low = nn.NdArray.from_numpy_array([0.0])
    ///     >>> high = nn.NdArray.from_numpy_array([1.0])
    ///     >>> first = nn.NdArray.from_numpy_array([0.0])
    ///     >>> last = nn.NdArray.from_numpy_array([4.0])
    ///     >>> F.min_max_quantize(x, low, high, first, last).data
    ///     array([0.  , 0.25, 0.25, 1.  ], dtype=float32)
    /// ```
    MinMaxQuantize = min_max_quantize(x, qr_min, qr_max, ql_min, ql_max; decay: f64 = 0.999, x_min_max: bool = false,
        ema: bool = false, ste_fine_grained: bool = true, eps: f64 = 0.01)
}

/// The range of values and the distance between levels.
#[derive(Clone, Copy)]
struct Range {
    /// The smallest value.
    least: f64,
    /// The largest value.
    most: f64,
    /// The distance between levels.
    scale: f64,
}

/// Values saved by a forward run: the range for each parameter.
#[derive(Default)]
struct Ranges(SavedMemory<Range>);

/// The position of an element relative to its range. It decides which gradient the element contributes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeSide {
    Below,
    Within,
    Above,
}

impl RangeSide {
    /// True if `x` is on this side of the range from `least` to `most`.
    #[inline(always)]
    fn has<T: Float>(self, x: T, least: T, most: T) -> bool {
        match self {
            Self::Below => x < least,
            Self::Within => x >= least && x <= most,
            Self::Above => x > most,
        }
    }
}

/// Ones where `x` is on a side of the range in the forward run that wrote `y`, zeros elsewhere.
#[derive(Clone)]
struct MinMaxMask {
    /// The least width of a range.
    eps: f64,
    /// The side on which the mask is one.
    side: RangeSide,
}

impl Declared for MinMaxMask {
    const SPEC: Spec = Spec {
        name: "min_max_mask",
        type_name: "MinMaxMask",
        raw_doc: " Ones where an input of a quantization is on a side of its range.",
        inputs: &[
            Input { name: "x", kind: Kind::float },
            Input { name: "qr_min", kind: Kind::float },
            Input { name: "qr_max", kind: Kind::float },
            Input { name: "ql_min", kind: Kind::float },
            Input { name: "ql_max", kind: Kind::float },
            Input { name: "y", kind: Kind::float },
        ],
        args: &[],
    };
    /// Refuses: only gradients make this operation.
    fn bind(_: &[Value]) -> Result<Self> {
        Err(Error::NotImplemented("min_max_mask: is made by gradients only".into()))
    }
    fn values(&self) -> Vec<Value> {
        Vec::new()
    }
}

/// The range between `low` and `high`, adjusted so that zero is a level from `first` to `last`.
fn range<T: Float>(low: T, high: T, first: T, last: T, eps: f64) -> Range {
    // In the element type, in which the levels are computed.
    let high = if high - low < T::of(eps) { low + T::of(eps) } else { high };
    let scale = (high - low) / (last - first);
    let zero = first - low / scale;
    let zero = if zero <= first {
        first
    } else if zero >= last {
        last
    } else {
        round_away(zero)
    };
    Range {
        least: ((first - zero) * scale).real(),
        most: ((last - zero) * scale).real(),
        scale: scale.real(),
    }
}

/// The range for each element of `qr_min`, `qr_max`, `ql_min` and `ql_max`.
fn ranges<T: Float>([low, high, first, last]: [&[T]; 4], eps: f64) -> List<Range> {
    (0..low.len()).map(|i| range(low[i], high[i], first[i], last[i], eps)).collect()
}

/// Writes or adds `f(x, more, range)` for each element of `x` and of another array of the same shape. The range is
/// (minimum, maximum, distance of levels).
#[inline(always)]
fn each<T: Float>(
    y: &mut [T],
    accumulate: bool,
    (x, more, shape): (&[T], &[T], &Shape),
    ranges: (&[Range], &Shape),
    f: impl Fn(T, T, [T; 3]) -> T + Sync + Copy,
) {
    BroadcastBlocks::new(shape, [ranges.1]).blocks_mut(y, |piece, y| {
        let (ranges, x, more) = (&ranges.0[piece.of(0)], &x[piece.range.clone()], &more[piece.range]);
        let of = |r: &Range| [r.least, r.most, r.scale].map(T::of);
        let put = |y: &mut T, v: T| *y = if accumulate { *y + v } else { v };
        if let [one] = ranges {
            let range = of(one);
            vectorised(
                #[inline(always)]
                move || {
                    for ((y, x), more) in y.iter_mut().zip(x).zip(more) {
                        put(y, f(*x, *more, range));
                    }
                },
            );
        } else {
            let all = y.iter_mut().zip(x).zip(more).zip(ranges);
            all.for_each(|(((y, x), more), range)| put(y, f(*x, *more, of(range))));
        }
    });
}

impl MinMaxQuantize {
    /// Moves `qr_min` and `qr_max` towards the range of `x`.
    fn follow<T: Float>(&self, run: &mut Run<'_, T>) {
        let (x, shape, own) = (run.x(0), run.x_shape(0), run.x_shape(1));
        if x.is_empty() {
            return;
        }
        let axes: List<usize> = (0..own.ndim()).filter(|i| own[*i] == 1).collect();
        let rows = ReducedRows::new(x, shape, &axes);
        for (i, smallest) in [(1, true), (2, false)] {
            for (q, (found, _)) in run.overwrite(i).iter_mut().zip(&*rows.extremes(smallest)) {
                let share = T::of(self.decay);
                *q = if self.ema { share * *q + T::of(1.0 - self.decay) * *found } else { *found };
            }
        }
        // Neither the range nor the stored maximum is narrower than `eps`.
        let low = run.x(1);
        for (high, low) in run.overwrite(2).iter_mut().zip(low) {
            if *high - *low < T::of(self.eps) {
                *high = *low + T::of(self.eps);
            }
        }
    }
}

impl Compute for MinMaxQuantize {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let op = "min_max_quantize";
        if !(0.0..=1.0).contains(&self.decay) {
            return Err(Error::argument(op, "decay", "from 0 to 1", self.decay));
        }
        if self.eps.is_nan() || self.eps <= 0.0 {
            return Err(Error::argument(op, "eps", "a positive number", self.eps));
        }
        let parameters = [1, 2, 3, 4].map(|i| x.get(i));
        check(op, x.get(0), &parameters)?;
        if parameters.iter().any(|p| *p != parameters[0]) {
            return Err(Error::shape(op, "qr_min, qr_max, ql_min and ql_max of one shape", parameters));
        }
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let again = run.is_recomputation() && run.state::<Ranges>().0.len() == run.x_shape(1).size();
        if !again {
            if self.x_min_max {
                self.follow(run);
            }
            let found = ranges([1, 2, 3, 4].map(|i| run.x(i)), self.eps);
            run.state::<Ranges>().0.set(found.iter().copied());
        }
        let (x, own, y) = ((run.x(0), run.x(0), run.x_shape(0)), run.x_shape(1), run.y(0));
        let ranges = &*run.state::<Ranges>().0;
        each(
            y,
            false,
            x,
            (ranges, own),
            #[inline(always)]
            |x, _, [least, most, scale]| {
                let x = if x < least { least } else { x };
                let x = if x > most { most } else { x };
                let level = (x - least) / scale;
                let whole = level.floor();
                let whole = if level - whole >= T::of(0.5) { whole + T::ONE } else { whole };
                whole * scale + least
            },
        );
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, shape, own) = (run.gy(0), run.x_shape(0), run.x_shape(1));
        let learns = !self.x_min_max && !self.ema;
        let mut of_side = |i: usize, side: RangeSide| {
            let Some(Grad { data, accumulate }) = run.gx(i) else { return };
            let x = (run.x(0), gy, shape);
            let ranges = (&*run.state::<Ranges>().0, own);
            let masked =
                |x: T, g: T, [least, most, _]: [T; 3]| if side.has(x, least, most) { g } else { T::ZERO };
            if side == RangeSide::Within {
                each(data, accumulate, x, ranges, masked);
            } else {
                crate::kernels::scratch::with(gy.len(), |all| {
                    each(all, false, x, ranges, masked);
                    crate::kernels::reduce::sum_to(all, shape, own, data, accumulate, T::of);
                });
            }
        };
        if learns {
            of_side(1, RangeSide::Below);
            of_side(2, RangeSide::Above);
        }
        if self.ste_fine_grained {
            of_side(0, RangeSide::Within);
        } else if let Some(gx) = run.gx(0) {
            gx.put_all(gy);
        }
        let first = if learns { 3 } else { 1 };
        (first..5).filter_map(|i| run.gx(i)).for_each(|Grad { data, accumulate }| {
            if !accumulate {
                map::put(data, false, |_| T::ZERO);
            }
        });
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let mask = |side| {
            let of = [s.x(0), s.x(1), s.x(2), s.x(3), s.x(4), s.y(0)];
            let mask = Sym::apply(MinMaxMask { eps: self.eps, side }, &of);
            Sym::select(mask, s.gy(0), Sym::Const(0.0))
        };
        let learns = !self.x_min_max && !self.ema;
        let own = s.x(1).shape();
        vec![
            s.wants(0).then(|| if self.ste_fine_grained { mask(RangeSide::Within) } else { s.gy(0) }),
            (learns && s.wants(1)).then(|| mask(RangeSide::Below).sum_to(&own)),
            (learns && s.wants(2)).then(|| mask(RangeSide::Above).sum_to(&own)),
            None,
            None,
        ]
    }

    // `backward` also reads the ranges, which `forward` saves.
    fn reads(&self, gx: usize) -> Reads {
        let learns = !self.x_min_max && !self.ema;
        match gx {
            0 if self.ste_fine_grained => Reads::inputs(0b1),
            1 | 2 if learns => Reads::inputs(0b1),
            _ => Reads::NOTHING,
        }
    }

    // The output only orders the rule after `forward`, which overwrites ranges.
    fn symbol_reads(&self, gx: usize) -> Reads {
        if self.reads(gx) == Reads::NOTHING { Reads::NOTHING } else { Reads { inputs: 0b11111, outputs: 1 } }
    }

    // `qr_min` and `qr_max`.
    /// True for `qr_min` and `qr_max`, which `forward` moves.
    fn overwrites(&self, i: usize) -> bool {
        self.x_min_max && matches!(i, 1 | 2)
    }
}

impl Compute for MinMaxMask {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let ranges = ranges([1, 2, 3, 4].map(|i| run.x(i)), self.eps);
        let (x, own, side) = ((run.x(0), run.x(0), run.x_shape(0)), run.x_shape(1), self.side);
        each(
            run.y(0),
            false,
            x,
            (&ranges, own),
            #[inline(always)]
            |x, _, [least, most, _]| if side.has(x, least, most) { T::ONE } else { T::ZERO },
        );
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None; 6]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
