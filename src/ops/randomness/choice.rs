//! `random_choice`: samples from weighted populations.

use crate::array::{DType, Shape};
use crate::kernels::Float;
use crate::kernels::random::PhiloxKey;
use crate::kernels::scratch::{List, SavedMemory, Zeros};
use crate::ops::arrangement::array::lengths;
use crate::ops::indexing::scatter::ScatterAdd;
use crate::ops::randomness::generator_state::Drawing;
use crate::ops::{
    Backward, Compute, Declared, Entry, Grad, Input, InputShapes, Kind, Reads, Run, Shapes, Spec, Sym,
    Symbols, Value, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Choosing>()];

op! {
    /// Random samples from populations: elements of the last axis of `x`, drawn with probabilities in proportion to
    /// their weights.
    ///
    /// The gradient of a sample goes to the element that was drawn and to its weight.
    ///
    /// Args:
    ///     x: Populations, shape (..., n).
    ///     w: Weights of the same shape, not negative, with a positive sum.
    ///     shape: Shape of the samples of each population; one sample if empty.
    ///     replace: An element may be drawn several times; if off, at most once.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of shape (..., *shape).
    ///
    /// Raises:
    ///     ShapeError: If `x` and `w` differ in shape or have no axis.
    ///     ArgumentError: If a length of `shape` is negative or there are more samples than elements to draw.
    ///     ValueError: If a weight is negative or NaN, or too few are positive; when it runs.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([10.0, 20.0, 30.0])
    ///     >>> w = nn.NdArray.from_numpy_array([1.0, 0.0, 1.0])
    ///     >>> samples = F.random_choice(x, w, shape=(100,)).data
    ///     >>> np.unique(samples)
    ///     array([10., 30.], dtype=float32)
    /// ```
    RandomChoice = random_choice(x, w; shape: Vec<i64> = [], replace: bool = true, seed: i64 = -1)
}

/// [`RandomChoice`] with the random numbers of its last run.
type Choosing = Drawing<RandomChoice>;

/// Sizes of populations and samples.
struct ChoiceSizes {
    /// The number of populations, along the leading axes.
    populations: usize,
    /// Elements of a population.
    n: usize,
    /// The number of samples from each population.
    samples: usize,
    /// The shape of the output.
    shape: Shape,
}

impl Choosing {
    /// Checks the arguments and returns the sizes.
    fn sizes(&self, x: &Shape) -> Result<ChoiceSizes> {
        let Some((n, leading)) = x.split_last() else {
            return Err(Error::shape("random_choice", "populations along a last axis", [x]));
        };
        let samples = match self.of.shape.is_empty() {
            true => Shape::from([1]),
            false => lengths("random_choice", &self.of.shape)?,
        };
        let shape: Shape = leading.iter().chain(samples.iter()).copied().collect();
        Ok(ChoiceSizes { populations: leading.iter().product(), n: *n, samples: samples.size(), shape })
    }

    /// Random numbers needed for all samples.
    fn numbers(&self, sizes: &ChoiceSizes) -> usize {
        sizes.populations * if self.of.replace { sizes.samples } else { sizes.n }
    }

    /// The index in its population of each sample.
    fn chosen<T: Float>(&self, key: PhiloxKey, w: &[T], sizes: &ChoiceSizes) -> Result<List<usize>> {
        let &ChoiceSizes { populations, n, samples, .. } = sizes;
        let fail = |what: &str| Err(Error::Value(format!("random_choice: expected {what}")));
        let mut drawn = Zeros::<f64>::new(self.numbers(sizes));
        key.uniform(0.0, 1.0, &mut drawn);
        let mut chosen = List::with_capacity(populations * samples);
        let mut sums: List<f64> = List::with_capacity(n);
        let mut order: List<(f64, usize)> = List::with_capacity(n);
        for p in 0..populations {
            let w = &w[p * n..][..n];
            if let Some(bad) = w.iter().find(|w| !(w.real() >= 0.0 && w.real() < f64::INFINITY)) {
                return fail(&format!("weights of zero or more, got {}", bad.real()));
            }
            if self.of.replace {
                sums.clear();
                let mut sum = 0.0;
                for w in w {
                    sum += w.real();
                    sums.push(sum);
                }
                if samples > 0 && sum <= 0.0 {
                    return fail("at least one positive weight in each population, got none");
                }
                for u in &drawn[p * samples..][..samples] {
                    // The last element of positive weight, if rounding leads beyond it.
                    let at = sums.partition_point(|s| *s <= u * sum);
                    let last = || w.iter().rposition(|w| w.real() > 0.0).unwrap_or(0);
                    chosen.push(if at < n { at } else { last() });
                }
                continue;
            }
            // Sampling without replacement gives the order of random numbers with exponential distributions.
            order.clear();
            for (i, (w, u)) in w.iter().zip(&drawn[p * n..]).enumerate().filter(|(_, (w, _))| w.real() > 0.0)
            {
                order.push((-(1.0 - u).ln() / w.real(), i));
            }
            if order.len() < samples {
                let got = order.len();
                return fail(&format!("at least {samples} positive weights in each population, got {got}"));
            }
            order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            order[..samples].iter().for_each(|(_, i)| chosen.push(*i));
        }
        Ok(chosen)
    }
}

/// The indices that a [`Choosing`] drew in its last run, whose output is `y`.
#[derive(Clone)]
struct Chosen(Choosing);

impl Declared for Chosen {
    const SPEC: Spec = Spec {
        name: "chosen",
        type_name: "Chosen",
        raw_doc: " The indices of the elements that were drawn.",
        inputs: &[Input { name: "w", kind: Kind::float }, Input { name: "y", kind: Kind::float }],
        args: &[],
    };
    /// Refuses: only gradients make this operation.
    fn bind(_: &[Value]) -> Result<Self> {
        Err(Error::NotImplemented("chosen: is made by gradients only".into()))
    }
    fn values(&self) -> Vec<Value> {
        Vec::new()
    }
}

impl Compute for Chosen {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let sizes = self.0.sizes(x.get(0))?;
        one([sizes.populations, sizes.samples])
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let sizes = self.0.sizes(run.x_shape(0))?;
        let chosen = self.0.chosen(self.0.last()?, run.x(0), &sizes)?;
        run.y_index(0).iter_mut().zip(&*chosen).for_each(|(y, i)| *y = *i as i64);
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None, None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::I64)
    }
}

/// The indices chosen by a forward run.
#[derive(Default)]
struct Kept(SavedMemory<usize>);

impl Compute for Choosing {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let op = "random_choice";
        if x.get(0) != x.get(1) {
            return Err(Error::shape(op, "weights of the shape of the populations", [x.get(0), x.get(1)]));
        }
        let sizes = self.sizes(x.get(0))?;
        if !self.of.replace && sizes.samples > sizes.n {
            let expected = format!("at most {} samples where none is drawn again", sizes.n);
            return Err(Error::argument(op, "shape", expected, format!("{:?}", self.of.shape)));
        }
        one(sizes.shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let sizes = self.sizes(run.x_shape(0))?;
        let (x, y) = (run.x(0), run.y(0));
        let key = self.draw(run, self.of.seed, self.numbers(&sizes));
        let chosen = self.chosen(key, run.x(1), &sizes)?;
        let per = sizes.samples.max(1);
        y.iter_mut().zip(&*chosen).enumerate().for_each(|(i, (y, at))| *y = x[i / per * sizes.n + at]);
        run.state::<Kept>().0.set(chosen.iter().copied());
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, sizes) = (run.gy(0), self.sizes(run.x_shape(0))?);
        let per = sizes.samples.max(1);
        for i in 0..2 {
            let Some(gx) = run.gx(i).map(Grad::adding) else { continue };
            for (i, (at, g)) in run.state::<Kept>().0.iter().zip(gy).enumerate() {
                let to = &mut gx[i / per * sizes.n + at];
                *to = *to + *g;
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(1).shape();
        let Ok(sizes) = self.sizes(&shape) else { return Vec::new() };
        let index = Sym::apply(Chosen(self.clone()), &[s.x(1), s.y(0)]);
        let zeros = Sym::Const(0.0).broadcast(&Shape::from([sizes.populations, sizes.n]));
        let gy = s.gy(0).reshape(&[sizes.populations, sizes.samples]);
        let put = Sym::apply(ScatterAdd { axis: Some(1) }, &[zeros, index, gy]).reshape(&shape);
        vec![Some(put), Some(put)]
    }

    fn moves(&self, i: usize) -> bool {
        i == 0
    }

    // `backward` reads the chosen places, which `forward` saves.
    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    // The output only orders the rule after `forward`, which saves the random numbers.
    fn symbol_reads(&self, _: usize) -> Reads {
        Reads { inputs: 0b10, outputs: 1 }
    }

    const IS_RANDOM: bool = true;
}
