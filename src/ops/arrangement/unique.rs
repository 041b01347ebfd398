//! `unique`: the distinct elements or slices of an array.

use std::cmp::Ordering;

use crate::array::{DType, Shape};
use crate::kernels::Float;
use crate::kernels::scratch::List;
use crate::ops::{Compares, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Unique>()];

op! {
    /// The distinct elements of an array. Their number depends on the values of `x`, which must be known when the
    /// function is built. Each NaN is distinct.
    ///
    /// The gradient of a distinct element goes to its first occurrence.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     flatten: Compare single elements; if off, compare the slices of `x` along `axis`.
    ///     axis: Axis of the slices. Required if `flatten` is False, otherwise ignored.
    ///     sorted: Return them in ascending order (slices in lexicographic order); if off, in order of their first
    ///         occurrence.
    ///     with_index: Return the index of the first occurrence of each.
    ///     with_inverse: Return, for each element of `x`, its index in the result.
    ///     with_counts: Return the number of occurrences of each.
    ///
    /// Returns:
    ///     Array with one axis, or with the axes of `x` if `flatten` is False. Then the requested index arrays, in the
    ///     order of the arguments, each with one axis.
    ///
    /// Raises:
    ///     ArgumentError: If `flatten` is False and there is no `axis`.
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([3.0, 1.0, 3.0, 2.0])
    ///     >>> y, counts = F.unique(x, with_counts=True)
    ///     >>> y.data
    ///     array([1., 2., 3.], dtype=float32)
    ///     >>> counts.data
    ///     array([1, 1, 2])
    /// ```
    Unique = unique(x; flatten: bool = true, axis: Option<i64> = None, sorted: bool = true, with_index: bool = false,
        with_inverse: bool = false, with_counts: bool = false)
}

op! {
    /// Puts `gy` at the first occurrence of each distinct element, zeros elsewhere: the gradient of `unique`.
    ///
    /// Args:
    ///     gy: The values to put.
    ///     x: The elements.
    ///     flatten: As in `unique`.
    ///     axis: As in `unique`.
    ///     sorted: As in `unique`.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    UniquePut = unique_put(gy, x; flatten: bool, axis: Option<i64>, sorted: bool)
}

op! {
    /// Reads an array at the first occurrence of each distinct element of another: the gradient of `unique_put`.
    ///
    /// Args:
    ///     from: Array to read.
    ///     x: The elements, in the shape of `from`.
    ///     flatten: As in `unique`.
    ///     axis: As in `unique`.
    ///     sorted: As in `unique`.
    ///     shape: Shape of the output.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    UniqueTake = unique_take(from, x; flatten: bool, axis: Option<i64>, sorted: bool, shape: Vec<i64>)
}

/// The key of every NaN.
const NAN: u64 = u64::MAX;

/// A key that sorts like the number. Both zeros have the same key, and NaN comes last.
fn ordered(v: f64) -> u64 {
    let bits = (v + 0.0).to_bits();
    match bits >> 63 {
        _ if v.is_nan() => NAN,
        0 => bits | 1 << 63,
        _ => !bits,
    }
}

/// The parts of an array that are compared: element `k` of part `i` in block `o` is at `(o * n + i) * inner + k`.
struct UniqueParts {
    /// The number of blocks.
    outer: usize,
    /// The number of parts.
    n: usize,
    /// The number of adjacent elements of a part.
    inner: usize,
}

impl UniqueParts {
    /// The parts of an array of shape `x`: its elements if `flatten`, else its slices along `axis`.
    fn new(x: &Shape, flatten: bool, axis: Option<i64>) -> Result<Self> {
        match axis {
            _ if flatten => Ok(Self { outer: 1, n: x.size(), inner: 1 }),
            None => Err(Error::argument("unique", "axis", "an axis where `flatten` is False", Value::None)),
            Some(axis) => {
                let axis = x.axis("unique", axis)?;
                Ok(Self { outer: x.size_to(axis), n: x[axis], inner: x.size_from(axis + 1) })
            }
        }
    }

    /// Offsets of the elements of part `i`.
    fn places(&self, i: usize) -> impl Iterator<Item = usize> {
        let (n, inner) = (self.n, self.inner);
        (0..self.outer).flat_map(move |o| (0..inner).map(move |k| (o * n + i) * inner + k))
    }

    /// Number of distinct parts.
    fn count(&self, x: &[f64]) -> usize {
        if self.outer * self.inner != 1 {
            return self.groups(x, true).first.len();
        }
        let mut keys: List<u64> = x.iter().map(|v| ordered(*v)).collect();
        keys.sort_unstable();
        let differ = |pair: &[u64]| pair[0] != pair[1] || pair[0] == NAN;
        usize::from(!keys.is_empty()) + keys.windows(2).filter(|pair| differ(pair)).count()
    }

    /// The indices of the parts in ascending order. Equal parts are in order of index.
    fn order<T: Float>(&self, x: &[T]) -> List<usize> {
        if self.outer * self.inner == 1 {
            let mut all: List<(u64, usize)> = x.iter().map(|v| ordered(v.real())).zip(0..).collect();
            all.sort_unstable();
            return all.iter().map(|(_, i)| *i).collect();
        }
        let is_nan = |v: T| v.partial_cmp(&v).is_none();
        let order = |a: T, b: T| a.partial_cmp(&b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)));
        let compare = |i: &usize, j: &usize| {
            let first = self.pairs(x, *i, *j).map(|(a, b)| order(a, b)).find(|order| order.is_ne());
            first.unwrap_or(Ordering::Equal).then(i.cmp(j))
        };
        let mut at: List<usize> = (0..self.n).collect();
        at.sort_unstable_by(compare);
        at
    }

    /// Pairs of corresponding elements of two parts.
    fn pairs<T: Copy>(&self, x: &[T], i: usize, j: usize) -> impl Iterator<Item = (T, T)> {
        self.places(i).zip(self.places(j)).map(|(p, q)| (x[p], x[q]))
    }

    /// Groups equal parts.
    fn groups<T: Float>(&self, x: &[T], sorted: bool) -> Groups {
        let at = self.order(x);
        let (mut first, mut inverse) = (List::with_capacity(0), List::repeat(0, self.n));
        for (place, i) in at.iter().enumerate() {
            if place == 0 || self.pairs(x, at[place - 1], *i).any(|(a, b)| a != b) {
                first.push(*i);
            }
            inverse[*i] = first.len() - 1;
        }
        if !sorted {
            let mut ranks: List<usize> = (0..first.len()).collect();
            ranks.sort_unstable_by_key(|group| first[*group]);
            let mut renamed = List::repeat(0, first.len());
            ranks.iter().enumerate().for_each(|(to, group)| renamed[*group] = to);
            inverse.iter_mut().for_each(|group| *group = renamed[*group]);
            first.sort_unstable();
        }
        Groups { first, inverse }
    }

    /// Like [`UniqueParts::groups`], but returns an error unless there are `n` groups, as when the shapes were
    /// inferred.
    fn expect<T: Float>(&self, x: &[T], sorted: bool, n: usize) -> Result<Groups> {
        let groups = self.groups(x, sorted);
        match groups.first.len() {
            found if found == n => Ok(groups),
            found => Err(Error::Value(format!(
                "unique: expected {n} different elements as on building, got {found}"
            ))),
        }
    }
}

/// The groups of equal parts of an array.
struct Groups {
    /// For each group, the index of its first part.
    first: List<usize>,
    /// For each part, the number of its group.
    inverse: List<usize>,
}

impl Unique {
    /// The parts that are compared, after a check of the axis.
    fn parts(&self, x: &Shape) -> Result<UniqueParts> {
        UniqueParts::new(x, self.flatten, self.axis)
    }

    /// Number of groups, from the shape of the first output.
    fn found(&self, y: &Shape) -> Result<usize> {
        if self.flatten { Ok(y[0]) } else { Ok(y[y.axis("unique", self.axis.unwrap_or(0))?]) }
    }
}

impl Compute for Unique {
    const SHAPED_BY: Option<usize> = Some(0);
    const HAS_BACKWARD: bool = false;
    const COMPARES: Compares = Compares::Moved;

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let shape = x.get(0);
        let parts = self.parts(shape)?;
        let values = x.values.ok_or_else(|| {
            let expected = "values to be known on building (its outputs depend on them)";
            Error::Graph(format!("unique: expected {expected}, got none"))
        })?;
        let found = parts.count(values);
        let mut y = if self.flatten { Shape::from([found]) } else { shape.clone() };
        if !self.flatten {
            let axis = y.axis("unique", self.axis.unwrap_or(0))?;
            y[axis] = found;
        }
        let mut shapes = one(y)?;
        for (asked, n) in [(self.with_index, found), (self.with_inverse, parts.n), (self.with_counts, found)]
        {
            if asked {
                shapes.push(Shape::from([n]));
            }
        }
        Ok(shapes)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, parts) = (run.x(0), self.parts(run.x_shape(0))?);
        let found = self.found(run.y_shape(0))?;
        let groups = parts.expect(x, self.sorted, found)?;
        take(x, &parts, &groups, run.y(0));
        let mut o = 1;
        for (asked, what) in [self.with_index, self.with_inverse, self.with_counts].into_iter().zip(0..) {
            if !asked {
                continue;
            }
            let y = run.y_index(o);
            match what {
                0 => y.iter_mut().zip(&*groups.first).for_each(|(y, i)| *y = *i as i64),
                1 => y.iter_mut().zip(&*groups.inverse).for_each(|(y, i)| *y = *i as i64),
                _ => {
                    y.fill(0);
                    groups.inverse.iter().for_each(|group| y[*group] += 1);
                }
            }
            o += 1;
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let put = UniquePut { flatten: self.flatten, axis: self.axis, sorted: self.sorted };
        vec![Some(Sym::apply(put, &[s.gy(0), s.x(0)]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }

    fn output(&self, o: usize) -> Option<DType> {
        (o > 0).then_some(DType::I64)
    }
}

/// Copies the first part of each group.
fn take<T: Float>(x: &[T], parts: &UniqueParts, groups: &Groups, y: &mut [T]) {
    let to = UniqueParts { n: groups.first.len(), ..*parts };
    for (group, i) in groups.first.iter().enumerate() {
        to.places(group).zip(parts.places(*i)).for_each(|(to, from)| y[to] = x[from]);
    }
}

impl Compute for UniquePut {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(x.get(1).clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (gy, x, parts) = (run.x(0), run.x(1), UniqueParts::new(run.x_shape(1), self.flatten, self.axis)?);
        let found = gy.len() / (parts.outer * parts.inner).max(1);
        let groups = parts.expect(x, self.sorted, if gy.is_empty() { 0 } else { found })?;
        let from = UniqueParts { n: groups.first.len(), ..parts };
        let y = run.y(0);
        y.fill(T::ZERO);
        for (group, i) in groups.first.iter().enumerate() {
            from.places(group).zip(parts.places(*i)).for_each(|(from, to)| y[to] = gy[from]);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let Self { flatten, axis, sorted } = *self;
        let shape = s.x(0).shape().iter().map(|d| *d as i64).collect();
        vec![Some(Sym::apply(UniqueTake { flatten, axis, sorted, shape }, &[s.gy(0), s.x(1)])), None]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::INPUTS } else { Reads::NOTHING }
    }
}

impl Compute for UniqueTake {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(self.shape.iter().map(|d| *d as usize).collect::<Shape>())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (from, x, parts) =
            (run.x(0), run.x(1), UniqueParts::new(run.x_shape(1), self.flatten, self.axis)?);
        let y = run.y(0);
        let found = if y.is_empty() { 0 } else { y.len() / (parts.outer * parts.inner).max(1) };
        take(from, &parts, &parts.expect(x, self.sorted, found)?, y);
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let put = UniquePut { flatten: self.flatten, axis: self.axis, sorted: self.sorted };
        vec![Some(Sym::apply(put, &[s.gy(0), s.x(1)])), None]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::inputs(2) } else { Reads::NOTHING }
    }
}
