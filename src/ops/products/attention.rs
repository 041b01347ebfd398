//! `scaled_dot_product_attention`: attention with masks and dropout.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::Shape;
use crate::kernels::attention::{Attention, Given, Mask, WantedAttention};
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::map::all_finite;
use crate::kernels::random::PhiloxKey;
use crate::kernels::scratch::SavedMemory;
use crate::kernels::{Float, Number};
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::contract::elementwise::sloped;
use crate::ops::linear_algebra::inverse::matmul;
use crate::ops::products::batch_matmul::BatchMatmul;
use crate::ops::reductions::extreme::largest;
use crate::ops::reductions::softmax::{Normalised, Softmax};
use crate::ops::{
    Backward, Compute, Declared, Entry, Grad, InputShapes, Reads, Run, Shapes, Spec, Sym, Symbols, Value,
    like, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Attending>()];

op! {
    /// Scaled dot-product attention for each head, with a softmax over the keys: `y = softmax(scale q k' + mask) v`.
    ///
    /// The matrix of weights is never stored: memory grows with the number of queries and of keys, not with their
    /// product. This holds for the backward run too, unless its gradient is differentiated again.
    ///
    /// Args:
    ///     query: Queries, shape (batch..., queries, width).
    ///     key: Keys, shape (batch..., keys, width).
    ///     value: Values, shape (batch..., keys, depth).
    ///     mask: Added to the products; its shape broadcasts to (batch..., queries, keys). Negative infinity hides a
    ///         key. If all keys are hidden from a query, its output and its gradients are zero.
    ///     causal: Hide from each query the keys that come after it.
    ///     dropout: Probability of setting a weight to zero, at least 0 and less than 1. Other weights are divided by
    ///         `1 - dropout`.
    ///     scale: Factor of the products, `1 / sqrt(width)` by default.
    ///     seed: Seed of a separate random sequence for `dropout`; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of shape (batch..., queries, depth).
    ///
    /// Raises:
    ///     ArgumentError: If `dropout` is out of range.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Source:
    ///     Vaswani et al., Attention Is All You Need, 2017, arXiv:1706.03762; Dao et al., FlashAttention, 2022,
    ///     arXiv:2205.14135.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> q = k = v = nn.NdArray.from_numpy_array([[[1.0, 0.0], [0.0, 1.0]]])  # one sequence of two steps
    ///     >>> F.scaled_dot_product_attention(q, k, v).data.round(3)
    ///     array([[[0.67, 0.33],
    ///             [0.33, 0.67]]], dtype=float32)
    ///     >>> F.scaled_dot_product_attention(q, k, v, causal=True).data.round(3)
    ///     array([[[1.  , 0.  ],
    ///             [0.33, 0.67]]], dtype=float32)
    /// ```
    ScaledDotProductAttention = scaled_dot_product_attention(query, key, value, mask: optional; causal: bool = false,
        dropout: f64 = 0.0, scale: Option<f64> = None, seed: i64 = -1)
}

/// The operation with its state: the random numbers of its last forward run.
#[derive(Clone)]
pub(crate) struct Attending {
    /// The operation with its arguments.
    of: ScaledDotProductAttention,
    /// The key of the random numbers of the last run, if it has run.
    last: Arc<Mutex<Option<PhiloxKey>>>,
}

impl Declared for Attending {
    const SPEC: Spec = ScaledDotProductAttention::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        Ok(Self { of: ScaledDotProductAttention::bind(values)?, last: Arc::default() })
    }
    fn values(&self) -> Vec<Value> {
        self.of.values()
    }
}

/// The dropout factors of the last run of an [`Attending`]. Takes the output of that run as input, so that it runs
/// afterwards.
#[derive(Clone)]
struct KeptWeights {
    /// The attention whose dropout factors are drawn again.
    weights: Attending,
    /// The shape of the attention weights.
    shape: Shape,
}
only_in_gradients! {
    KeptWeights = "kept_weights", " The dropout factors of attention weights.";
}

op! {
    /// Causal mask: replaces the product of a query and a key by a number if the key comes after the query.
    ///
    /// Args:
    ///     x: Products, shape (batch..., queries, keys).
    ///     value: The replacement.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    HideLater = hide_later(x; value: f64)
}

op! {
    /// Sums of rows with weights, in gradients only: `y = w x`, or `y = w' x` if `transposed`. A weight of zero
    /// contributes nothing, also if its row has infinities or NaN.
    ///
    /// Args:
    ///     w: Weights, shape (batch..., queries, keys).
    ///     x: Rows, shape (batch..., keys, size), or (batch..., queries, size) if `transposed`.
    ///     transposed: Sum over the queries.
    ///
    /// Returns:
    ///     Array of shape (batch..., queries, size), or (batch..., keys, size) if `transposed`.
    Weighed = weighed(w, x; transposed: bool)
}

impl Weighed {
    /// The product of matrices that it is if all rows are finite.
    fn product(&self) -> BatchMatmul {
        BatchMatmul { transpose_a: self.transposed, transpose_b: false }
    }

    /// Adds the rows of `x` to `y`, each with the weights that are not zero, for each matrix `w` of this shape.
    fn add_rows<T: Float>(w: &[T], shape: &Shape, transposed: bool, x: &[T], y: &mut [T]) {
        let n = shape.ndim();
        let (batch, queries, keys) = (shape.size_to(n - 2), shape[n - 2], shape[n - 1]);
        let (rows, sums) = if transposed { (queries, keys) } else { (keys, queries) };
        let size = x.len() / (batch * rows).max(1);
        for (at, weight) in w.iter().enumerate().filter(|(_, weight)| **weight != T::ZERO) {
            let (i, query, key) = (at / (queries * keys), at / keys % queries, at % keys);
            let (row, sum) = if transposed { (query, key) } else { (key, query) };
            let (row, sum) =
                (&x[(i * rows + row) * size..][..size], &mut y[(i * sums + sum) * size..][..size]);
            sum.iter_mut().zip(row).for_each(|(sum, x)| *sum = *sum + *weight * *x);
        }
    }
}

/// Values saved by a forward run.
struct KeptScores<T> {
    /// The largest score of each query of each head, then the sum of exponentials of each.
    sums: SavedMemory<T>,
    /// The key of the random numbers of dropout, if any were drawn.
    key: Option<PhiloxKey>,
}

impl<T: Copy> Default for KeptScores<T> {
    fn default() -> Self {
        Self { sums: SavedMemory::default(), key: None }
    }
}

impl Attending {
    /// The sizes for inputs of these shapes.
    fn sizes(&self, q: &Shape, k: &Shape, v: &Shape) -> Result<Attention> {
        let fail = || {
            let expected = "query, key and value of shapes (batch..., queries, width), (batch..., keys, width) and \
                (batch..., keys, depth)";
            Error::shape("scaled_dot_product_attention", expected, [q, k, v])
        };
        let n = q.ndim();
        if n < 2 || k.ndim() != n || v.ndim() != n {
            return Err(fail());
        }
        let alike = q[..n - 2] == k[..n - 2] && q[..n - 2] == v[..n - 2];
        if !alike || q[n - 1] != k[n - 1] || k[n - 2] != v[n - 2] {
            return Err(fail());
        }
        let width = q[n - 1];
        Ok(Attention {
            heads: q.size_to(n - 2),
            queries: q[n - 2],
            keys: k[n - 2],
            width,
            depth: v[n - 1],
            scale: self.scale(width),
            causal: self.of.causal,
            dropped: None,
        })
    }

    /// The factor of the scores: the argument, or 1 / sqrt(width).
    fn scale(&self, width: usize) -> f64 {
        self.of.scale.unwrap_or_else(|| 1.0 / (width.max(1) as f64).sqrt())
    }

    /// The shape of the attention weights.
    fn weights(q: &Shape, k: &Shape) -> Shape {
        let mut shape = q.clone();
        let n = q.ndim();
        shape[n - 1] = k[n - 2];
        shape
    }

    /// A mask in the form that kernels read.
    fn mask<'a, T: Float>(mask: &'a [T], shape: &Shape, weights: &Shape) -> Mask<'a, T> {
        let n = weights.ndim();
        let (lead, strides) = (n - shape.ndim(), shape.strides());
        let stride =
            |axis: usize| if axis < lead || shape[axis - lead] == 1 { 0 } else { strides[axis - lead] };
        let first = |head: usize| {
            let (mut rest, mut at) = (head, 0);
            for axis in (0..n - 2).rev() {
                at += rest % weights[axis] * stride(axis);
                rest /= weights[axis];
            }
            at
        };
        let firsts = (0..weights.size_to(n - 2)).map(first).collect();
        Mask { data: mask, firsts, row: stride(n - 2), column: stride(n - 1) }
    }

    /// The key of the random numbers of the last forward run.
    fn last(&self) -> Result<PhiloxKey> {
        self.last.lock().ok_or_else(|| {
            let expected = "a forward run before the backward run";
            Error::Graph(format!("scaled_dot_product_attention: expected {expected}, got none"))
        })
    }
}

impl Compute for Attending {
    const IS_RANDOM: bool = true;

    fn is_random(&self) -> bool {
        self.of.dropout > 0.0
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (q, k, v) = (x.get(0), x.get(1), x.get(2));
        self.sizes(q, k, v)?;
        if !(0.0..1.0).contains(&self.of.dropout) {
            let expected = "from 0 up to but not including 1";
            return Err(Error::argument(
                "scaled_dot_product_attention",
                "dropout",
                expected,
                self.of.dropout,
            ));
        }
        let weights = Self::weights(q, k);
        weights.checked_size()?;
        if let Some(mask) = x.find(3)
            && BroadcastLayout::shape(mask, &weights).as_ref() != Some(&weights)
        {
            let expected = format!("a mask whose shape broadcasts to {weights}");
            return Err(Error::shape("scaled_dot_product_attention", expected, [mask]));
        }
        let mut shape = q.clone();
        shape[q.ndim() - 1] = v[v.ndim() - 1];
        one(shape)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        let keys = x.get(1)[x.get(1).ndim() - 2];
        keys * (x.get(0).size() + y.size())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let mut sizes = self.sizes(run.x_shape(0), run.x_shape(1), run.x_shape(2))?;
        let weights = Self::weights(run.x_shape(0), run.x_shape(1));
        if self.of.dropout > 0.0 {
            let key = run.random(self.of.seed, sizes.words());
            *self.last.lock() = Some(key);
            sizes.dropped = Some((self.of.dropout, key));
        }
        let mask = run.has(3).then(|| Self::mask(run.x(3), run.x_shape(3), &weights));
        let (x, y) = ([run.x(0), run.x(1), run.x(2)], run.y(0));
        let kept = run.state::<KeptScores<T>>();
        kept.key = sizes.dropped.map(|(_, key)| key);
        kept.sums.resize(2 * sizes.heads * sizes.queries, T::ZERO);
        sizes.forward(x, mask.as_ref(), y, &mut kept.sums);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let mut sizes = self.sizes(run.x_shape(0), run.x_shape(1), run.x_shape(2))?;
        let weights = Self::weights(run.x_shape(0), run.x_shape(1));
        let mask = run.has(3).then(|| Self::mask(run.x(3), run.x_shape(3), &weights));
        let (q, k, v, y, gy) = (run.x(0), run.x(1), run.x(2), run.y(0), run.gy(0));
        let mut adding = |i: usize| run.gx(i).map(Grad::adding);
        let wanted = WantedAttention { q: adding(0), k: adding(1), v: adding(2), mask: adding(3) };
        let kept = run.state::<KeptScores<T>>();
        if kept.sums.len() != 2 * sizes.heads * sizes.queries {
            let expected = "a forward run before the backward run";
            return Err(Error::Graph(format!("scaled_dot_product_attention: expected {expected}, got none")));
        }
        if self.of.dropout > 0.0 {
            sizes.dropped = Some((self.of.dropout, kept.key.map_or_else(|| self.last(), Ok)?));
        }
        sizes.backward(&Given { q, k, v, mask, y, sums: &kept.sums, gy }, wanted);
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (q, k, v, gy) = (s.x(0), s.x(1), s.x(2), s.gy(0));
        let shape = Self::weights(&q.shape(), &k.shape());
        let (last, scale) = (shape.ndim() - 1, Sym::Const(self.scale(q.shape()[shape.ndim() - 1])));
        let later =
            |x: Sym, value: f64| if self.of.causal { Sym::apply(HideLater { value }, &[x]) } else { x };
        let (zero, none) = (Sym::Const(0.0), Sym::Const(f64::NEG_INFINITY));
        let masked = s.has(3).then(|| s.x(3).eq(none).broadcast(&shape));
        // Products and weights of hidden keys become `value`, also if the rows of query or key are not numbers.
        let hide = |x: Sym, value: f64| {
            later(masked.map_or(x, |masked| Sym::select(masked, Sym::Const(value), x)), value)
        };
        // Queries for which the mask hides every key. Their rows are replaced by zeros before and after each product.
        let hidden = (s.has(3) && shape[last] > 0).then(|| {
            let mask = if self.of.causal { s.x(3).broadcast(&shape) } else { s.x(3) };
            let mask = if mask.shape().ndim() == 0 { mask.reshape(&[1]) } else { mask };
            let mask = later(mask, f64::NEG_INFINITY);
            largest(mask, mask.shape().ndim() - 1).eq(none)
        });
        let seen = |x: Sym| hidden.map_or(x, |hidden| Sym::select(hidden.broadcast(&x.shape()), zero, x));
        // Scaled before the product, as in the kernel, so that large numbers overflow later.
        let (q, gy) = (seen(q) * scale, seen(gy));
        let mut products = matmul(q, false, k, true);
        if s.has(3) {
            products = products + s.x(3);
        }
        let softmax = Normalised(Softmax { axis: Some(last as i64) });
        // A row that is not a number is one at its hidden keys too.
        let weights = hide(seen(Sym::apply(softmax, &[seen(hide(products, f64::NEG_INFINITY))])), 0.0);
        let kept = (self.of.dropout > 0.0)
            .then(|| Sym::apply(KeptWeights { weights: self.clone(), shape: shape.clone() }, &[s.y(0)]));
        let drop = |x: Sym| kept.map_or(x, |kept| sloped(x, kept));
        let slopes = hide(drop(matmul(gy, false, v, true)), 0.0);
        let slopes = hide(seen(weights * (slopes - (slopes * weights).sum(&[last], true))), 0.0);
        let weigh = |w: Sym, transposed: bool, rows: Sym| match self.of.causal || s.has(3) {
            true => Sym::apply(Weighed { transposed }, &[w, rows]),
            false => matmul(w, transposed, rows, false),
        };
        vec![
            s.wants(0).then(|| seen(weigh(slopes, false, k * scale))),
            s.wants(1).then(|| weigh(slopes, true, q)),
            s.wants(2).then(|| weigh(drop(weights), true, gy)),
            (s.has(3) && s.wants(3)).then(|| slopes.sum_to(&s.x(3).shape())),
        ]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::ALL
    }
}

impl Compute for KeptWeights {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(self.shape.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let shape = &self.shape;
        let n = shape.ndim();
        let attention = Attention {
            heads: shape.size_to(n - 2),
            queries: shape[n - 2],
            keys: shape[n - 1],
            width: 0,
            depth: 0,
            scale: 0.0,
            causal: false,
            dropped: Some((self.weights.of.dropout, self.weights.last()?)),
        };
        let (y, factor) = (run.y(0), T::of(1.0 / (1.0 - self.weights.of.dropout)));
        attention.each_kept(|i, kept| y[i] = if kept { factor } else { T::ZERO });
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

impl Compute for Weighed {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        self.product().shapes(x)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        self.product().multiplications(x, y)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        if all_finite(run.x(1)) {
            return self.product().forward(run);
        }
        let y = run.y(0);
        y.fill(T::ZERO);
        Self::add_rows(run.x(0), run.x_shape(0), self.transposed, run.x(1), y);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, w, shape) = (run.gy(0), run.x(0), run.x_shape(0));
        if all_finite(gy) {
            return self.product().backward(run);
        }
        if let Some(gx) = run.gx(1) {
            Self::add_rows(w, shape, !self.transposed, gy, gx.adding());
        }
        if let Some(gw) = run.gx(0).map(Grad::adding) {
            let (x, n, batch) = (run.x(1), shape.ndim(), shape.size_to(shape.ndim() - 2).max(1));
            let (queries, keys) = (shape[n - 2], shape[n - 1]);
            let (of_query, of_key) = if self.transposed { (x, gy) } else { (gy, x) };
            let size = of_key.len() / (batch * keys).max(1);
            for (at, gw) in gw.iter_mut().enumerate() {
                let (i, query, key) = (at / (queries * keys), at / keys % queries, at % keys);
                let of_query = &of_query[(i * queries + query) * size..][..size];
                let of_key = &of_key[(i * keys + key) * size..][..size];
                *gw = *gw + of_query.iter().zip(of_key).map(|(a, b)| *a * *b).sum::<T>();
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (w, x, gy) = (s.x(0), s.x(1), s.gy(0));
        let (of_query, of_key) = if self.transposed { (x, gy) } else { (gy, x) };
        let to_rows = Self { transposed: !self.transposed };
        vec![
            s.wants(0).then(|| matmul(of_query, false, of_key, true)),
            s.wants(1).then(|| Sym::apply(to_rows, &[w, gy])),
        ]
    }

    fn reads(&self, gx: usize) -> Reads {
        self.product().reads(gx)
    }
}

impl Compute for HideLater {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let shape = run.x_shape(0);
        let (queries, keys) = (shape[shape.ndim() - 2], shape[shape.ndim() - 1]);
        let (y, value) = (run.y_after(0), T::of(self.value));
        for (row, y) in y.chunks_exact_mut(keys.max(1)).enumerate() {
            y[(row % queries + 1).min(keys)..].fill(value);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(Self { value: 0.0 }, &[s.gy(0)]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
