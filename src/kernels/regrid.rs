//! Rearrangement of each axis separately: slicing, padding, flipping, shifting, tiling, repeating.

use std::ops::Range;

use smallvec::SmallVec;

use super::Movable;
use super::map::GRAIN;
use super::row_copies;
use super::scratch::List;
use super::threads::{self, Shared};
use crate::array::{Element, Shape};

/// A regular run of positions along a new axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Position of its first element on the old axis and the step to the next. `None` if outside of the old axis.
    pub from: Option<(usize, isize)>,
    /// Number of elements.
    pub n: usize,
}

/// A new axis as a list of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegridAxis(SmallVec<[Piece; 3]>);

impl RegridAxis {
    /// The unchanged axis of length `n`.
    pub fn whole(n: usize) -> Self {
        Self::default().then(0, 1, n)
    }

    /// Appends `n` elements at `from`, `from + step`, and so on.
    pub fn then(mut self, from: usize, step: isize, n: usize) -> Self {
        if n > 0 {
            self.0.push(Piece { from: Some((from, step)), n });
        }
        self
    }

    /// Appends `n` elements outside of the old axis.
    pub fn then_outside(mut self, n: usize) -> Self {
        if n > 0 {
            self.0.push(Piece { from: None, n });
        }
        self
    }

    /// Appends an element for each position. Regular runs are merged.
    pub fn then_each(mut self, positions: impl IntoIterator<Item = usize>) -> Self {
        for at in positions {
            if let Some(Piece { from: Some((from, step)), n }) = self.0.last_mut() {
                let next = at as isize - *from as isize;
                if *n == 1 {
                    *step = next;
                }
                if next == *step * *n as isize {
                    *n += 1;
                    continue;
                }
            }
            self = self.then(at, 1, 1);
        }
        self
    }

    /// The length of the axis.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.n).sum()
    }

    /// The positions of a range.
    fn part(&self, range: &Range<usize>) -> Self {
        let (mut part, mut at) = (Self::default(), 0);
        for piece in &self.0 {
            let (start, end) = (range.start.max(at), range.end.min(at + piece.n));
            if start < end {
                let from = |(first, step): (usize, isize)| {
                    ((first as isize + (start - at) as isize * step) as usize, step)
                };
                part.0.push(Piece { n: end - start, from: piece.from.map(from) });
            }
            at += piece.n;
        }
        part
    }

    /// True if no position of the old axis, of length `n`, is taken twice.
    fn is_injective(&self, n: usize) -> bool {
        let taken = self.0.iter().filter(|piece| piece.from.is_some());
        if taken.clone().count() <= 1 {
            return taken.clone().all(|piece| piece.n == 1 || piece.from.is_some_and(|(_, step)| step != 0));
        }
        let mut is_taken = vec![false; n];
        taken.filter_map(|piece| Some((piece.from?, piece.n))).all(|((from, step), n)| {
            (0..n).all(|i| {
                !std::mem::replace(&mut is_taken[(from as isize + i as isize * step) as usize], true)
            })
        })
    }

    /// True if the axis is copied as a whole.
    fn is_whole(&self, n: usize) -> bool {
        *self == Self::whole(n)
    }
}

/// A rearrangement of an array: one new axis for each old one.
#[derive(Clone, Debug)]
pub struct Regrid {
    /// The shape of the old array.
    from: Shape,
    /// One for each axis of the old and of the new array.
    axes: Vec<RegridAxis>,
}

impl Regrid {
    /// A new array with these axes, from an array of shape `from`.
    pub fn new(from: Shape, axes: Vec<RegridAxis>) -> Self {
        debug_assert_eq!(from.ndim(), axes.len());
        Self { from, axes }
    }

    /// Shape of the new array.
    pub fn shape(&self) -> Shape {
        self.axes.iter().map(RegridAxis::len).collect()
    }

    /// Computes the new array `y` from `x`, with `outside` where no element of `x` is selected.
    pub fn gather<T: Element>(&self, x: &[T], outside: T, y: &mut [T]) {
        let first = self.axes.iter().position(|axis| axis.len() != 1).filter(|_| y.len() > GRAIN);
        let Some(first) = first else { return self.gather_part(x, outside, y) };
        let (n, step) = (self.axes[first].len(), y.len() / self.axes[first].len().max(1));
        let to = Shared::new(y.as_mut_ptr());
        threads::ranges(n, (GRAIN / step.max(1)).max(1), |range| {
            // SAFETY: each part of `y` is used once.
            let y = unsafe {
                std::slice::from_raw_parts_mut(to.get().add(range.start * step), range.len() * step)
            };
            let mut part = self.clone();
            part.axes[first] = self.axes[first].part(&range);
            part.gather_part(x, outside, y);
        });
    }

    /// Computes all of `y` as [`Regrid::gather`] does, on this thread.
    fn gather_part<T: Element>(&self, x: &[T], outside: T, y: &mut [T]) {
        if let Some((start, step, n)) = self.short_rows().filter(|_| !y.is_empty()) {
            return row_copies::copy_short(&x[start..], step, y, n, n, y.len() / n);
        }
        self.runs(|to, n, from| {
            let y = &mut y[to..to + n];
            match from {
                None => y.fill(outside),
                Some((from, 1)) => row_copies::copy(&x[from..from + n], y),
                Some((from, -1)) if n > 0 => {
                    let x = x[from + 1 - n..=from].iter().rev();
                    y.iter_mut().zip(x).for_each(|(y, x)| *y = *x);
                }
                Some((from, step)) => {
                    y.iter_mut()
                        .enumerate()
                        .for_each(|(i, y)| *y = x[(from as isize + i as isize * step) as usize]);
                }
            }
        });
    }

    /// Adds each element of `gy` to the element of `gx` that it was selected from.
    pub fn scatter_add<T: Movable>(&self, gy: &[T], gx: &mut [T]) {
        // An unchanged outermost axis can be split between threads, because different parts add to different
        // elements.
        let first = self.axes.iter().position(|axis| axis.len() != 1).filter(|_| gy.len() > GRAIN);
        let whole = first
            .filter(|i| self.from.iter().take(*i).all(|n| *n == 1) && self.axes[*i].is_whole(self.from[*i]));
        let Some(first) = whole else { return self.scatter_part(gy, gx) };
        let n = self.from[first];
        let (step, step_x) = (gy.len() / n, gx.len() / n);
        let to = Shared::new(gx.as_mut_ptr());
        threads::ranges(n, (GRAIN / step.max(1)).max(1), |range| {
            // SAFETY: each part of `gx` is used once.
            let gx = unsafe {
                std::slice::from_raw_parts_mut(to.get().add(range.start * step_x), range.len() * step_x)
            };
            let mut part = self.clone();
            part.from = self
                .from
                .iter()
                .enumerate()
                .map(|(i, n)| if i == first { range.len() } else { *n })
                .collect();
            part.axes[first] = RegridAxis::whole(range.len());
            part.scatter_part(&gy[range.start * step..range.end * step], gx);
        });
    }

    /// Adds the gradients of one part of the output to the input. Many additions to one element are summed in
    /// float64.
    fn scatter_part<T: Movable>(&self, gy: &[T], gx: &mut [T]) {
        if size_of::<T>() != size_of::<f32>() || self.most_uses() <= row_copies::MANY {
            return self.scatter_into(gy, gx, T::plus);
        }
        let mut sums: List<f64> = gx.iter().map(|g| g.real()).collect();
        self.scatter_into(gy, &mut sums, |sum, gy| sum + gy.real());
        gx.iter_mut().zip(&*sums).for_each(|(g, sum)| *g = T::of(*sum));
    }

    /// True if no element of the old array becomes several of the new one.
    pub fn is_injective(&self) -> bool {
        self.axes.iter().zip(self.from.iter()).all(|(axis, n)| axis.is_injective(*n))
    }

    /// An element of the old array becomes no more elements of the new one than this.
    fn most_uses(&self) -> usize {
        let of_piece = |piece: &Piece| match piece.from {
            None => 0,
            Some((_, 0)) => piece.n,
            Some(_) => 1,
        };
        let of_axis = |axis: &RegridAxis| axis.0.iter().map(of_piece).sum::<usize>();
        self.axes.iter().map(of_axis).fold(1, usize::saturating_mul)
    }

    /// Adds the gradients of one part of the output by `add`.
    #[inline(always)]
    fn scatter_into<T: Movable, S: Movable>(&self, gy: &[T], gx: &mut [S], add: impl Fn(S, T) -> S) {
        self.runs(|to, n, from| {
            let gy = &gy[to..to + n];
            match from {
                None => {}
                Some((from, 1)) => {
                    gx[from..from + n].iter_mut().zip(gy).for_each(|(g, gy)| *g = add(*g, *gy));
                }
                Some((from, step)) => gy.iter().enumerate().for_each(|(i, gy)| {
                    let g = &mut gx[(from as isize + i as isize * step) as usize];
                    *g = add(*g, *gy);
                }),
            }
        });
    }

    /// Writes `y(i)` to the position from which element `i` of the new array is selected.
    pub fn put<T: Element>(&self, x: &mut [T], y: impl Fn(usize) -> T) {
        self.runs(|to, n, from| {
            if let Some((from, step)) = from {
                (0..n).for_each(|i| x[(from as isize + i as isize * step) as usize] = y(to + i));
            }
        });
    }

    /// If the new array consists of short equidistant rows: the start of the first, their distance, and their length.
    fn short_rows(&self) -> Option<(usize, usize, usize)> {
        let stretch = |axis: &RegridAxis| match axis.0[..] {
            [Piece { from: Some((first, 1)), n }] => Some((first, n)),
            _ => None,
        };
        // The axis that is cut, and the elements inside of it.
        let cut = self.axes.iter().zip(self.from.iter()).rposition(|(axis, n)| !axis.is_whole(*n))?;
        let inner: usize = self.from[cut + 1..].iter().product();
        let (first, n) = stretch(&self.axes[cut])?;
        let (mut start, step) = (first * inner, self.from[cut] * inner);
        let (mut stride, mut is_whole) = (step, true);
        for (axis, len) in self.axes[..cut].iter().zip(self.from.iter()).rev() {
            let (first, n) = stretch(axis)?;
            if !is_whole && n > 1 {
                return None;
            }
            is_whole &= n == *len;
            start += first * stride;
            stride *= len;
        }
        (n * inner <= row_copies::SHORT).then_some((start, step, n * inner))
    }

    /// Calls `f(to, n, from)` for the runs of elements that make up the new array.
    fn runs(&self, mut f: impl FnMut(usize, usize, Option<(usize, isize)>)) {
        let whole = self.axes.iter().zip(self.from.iter()).rev().take_while(|(axis, n)| axis.is_whole(**n));
        // At least one axis is walked.
        let split = (self.axes.len() - whole.count()).max(1);
        if self.axes.is_empty() {
            return f(0, 1, Some((0, 1)));
        }
        let shape = self.shape();
        if shape.size() > 0 {
            let walk = Walk { axes: &self.axes[..split], to: &shape.strides(), from: &self.from.strides() };
            walk.from(0, 0, 0, &mut f);
        }
    }
}

/// The axes to walk. The elements inside of the last one move as a block.
struct Walk<'a> {
    /// The new axes, outermost first.
    axes: &'a [RegridAxis],
    /// The strides of the new array.
    to: &'a [usize],
    /// The strides of the old array.
    from: &'a [usize],
}

impl Walk<'_> {
    /// Calls `f` with place, length and source of each block below these places, by recursion over the axes.
    fn from(
        &self,
        axis: usize,
        mut to: usize,
        from: usize,
        f: &mut impl FnMut(usize, usize, Option<(usize, isize)>),
    ) {
        let block = self.to[axis];
        for piece in &self.axes[axis].0 {
            let n = piece.n * block;
            match piece.from {
                None => f(to, n, None),
                Some((start, step)) => {
                    let last = axis + 1 == self.axes.len();
                    let start_at = from + start * self.from[axis];
                    if last && (step == 1 || block == 1) {
                        f(to, n, Some((start_at, step)));
                    } else {
                        for i in 0..piece.n {
                            let at =
                                (start_at as isize + i as isize * step * self.from[axis] as isize) as usize;
                            match last {
                                true => f(to + i * block, block, Some((at, 1))),
                                false => self.from(axis + 1, to + i * block, at, f),
                            }
                        }
                    }
                }
            }
            to += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_grouped_into_few_pieces() {
        let axis = RegridAxis::default().then_each([2, 1, 0, 1, 2, 2, 2]);
        assert_eq!(axis.len(), 7);
        assert_eq!(axis.0.len(), 3);
        let mut y = [0.0; 7];
        Regrid::new(Shape::from([3]), vec![axis]).gather(&[0.0, 1.0, 2.0], 9.0, &mut y);
        assert_eq!(y, [2.0, 1.0, 0.0, 1.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn whole_inner_axes_move_as_blocks() {
        let x: Vec<f64> = (0..12).map(f64::from).collect();
        let axes = vec![
            RegridAxis::default().then(1, -1, 2).then_outside(1),
            RegridAxis::whole(3),
            RegridAxis::whole(2),
        ];
        let grid = Regrid::new(Shape::from([2, 3, 2]), axes);
        let mut y = [0.0; 18];
        grid.gather(&x, -1.0, &mut y);
        assert_eq!(y[..6], x[6..]);
        assert_eq!(y[6..12], x[..6]);
        assert_eq!(y[12..], [-1.0; 6]);
        let mut gx = [1.0; 12];
        grid.scatter_add(&y, &mut gx);
        assert!(gx.iter().zip(&x).all(|(g, x)| *g == x + 1.0));
    }

    #[test]
    fn gathering_equals_copying_run_by_run() {
        let shape = Shape::from([3, 4, 5, 2]);
        let x: Vec<f64> = (0..120).map(f64::from).collect();
        let whole = |n| RegridAxis::whole(n);
        let part = |first, n| RegridAxis::default().then(first, 1, n);
        for axes in [
            [whole(3), whole(4), part(1, 3), whole(2)],
            [part(1, 2), whole(4), whole(5), part(1, 1)],
            [part(1, 1), part(2, 2), whole(5), part(0, 1)],
            [part(1, 2), part(2, 2), whole(5), part(0, 1)],
            [whole(3), part(3, 1), part(4, 1), whole(2)],
            [whole(3), part(3, 1), whole(5), part(1, 0)],
        ] {
            let grid = Regrid::new(shape.clone(), axes.to_vec());
            let mut y = vec![-1.0; grid.shape().size()];
            grid.gather(&x, -2.0, &mut y);
            let mut expected = Vec::new();
            grid.runs(|_, n, from| {
                let (from, _) = from.expect("an element");
                expected.extend_from_slice(&x[from..from + n]);
            });
            assert_eq!(y, expected);
        }
    }
}
