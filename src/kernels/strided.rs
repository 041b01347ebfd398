//! Moving elements between arrays of different shapes: reordered axes, repeated axes, summed axes.

use smallvec::SmallVec;

use super::{Float, map::Pairing};
use crate::array::{Element, Shape};

/// Calls `f(n, from)` for each element `n` of an array of lengths `dims`, `from` moving by `strides`.
fn walk(dims: &[usize], strides: &[usize], mut f: impl FnMut(usize, usize)) {
    let n: usize = dims.iter().product();
    let mut at: SmallVec<[usize; 4]> = SmallVec::from_elem(0, dims.len());
    let mut from = 0;
    for i in 0..n {
        f(i, from);
        for axis in (0..dims.len()).rev() {
            at[axis] += 1;
            from += strides[axis];
            if at[axis] < dims[axis] {
                break;
            }
            from -= strides[axis] * dims[axis];
            at[axis] = 0;
        }
    }
}

/// `y` is `x` with its axes reordered: axis `i` of `y` is axis `axes[i]` of `x`.
pub fn transpose<T: Element>(x: &[T], shape: &Shape, axes: &[usize], y: &mut [T]) {
    let strides = shape.strides();
    let dims: SmallVec<[usize; 4]> = axes.iter().map(|a| shape[*a]).collect();
    let strides: SmallVec<[usize; 4]> = axes.iter().map(|a| strides[*a]).collect();
    walk(&dims, &strides, |i, from| y[i] = x[from]);
}

/// `y`, of shape `to`, is `x` repeated along its axes of length one.
pub fn broadcast<T: Element>(x: &[T], from: &Shape, to: &Shape, y: &mut [T]) {
    let lead = to.ndim() - from.ndim();
    let own = from.strides();
    let strides: SmallVec<[usize; 4]> =
        (0..to.ndim()).map(|i| if i < lead || from[i - lead] == 1 { 0 } else { own[i - lead] }).collect();
    walk(to, &strides, |i, from| y[i] = x[from]);
}

/// Adds to `y`, of shape `to`, the array `x` repeated along its axes of length one.
pub fn add_broadcast<T: Float>(x: &[T], from: &Shape, to: &Shape, y: &mut [T]) {
    Pairing::new(to, from).reduce_to_a(y, |_, ix, _| x[ix]);
}

/// `y` is `x` summed over `axes`.
pub fn sum<T: Float>(x: &[T], shape: &Shape, axes: &[usize], y: &mut [T]) {
    let kept: Shape = (0..shape.ndim()).map(|i| if axes.contains(&i) { 1 } else { shape[i] }).collect();
    y.fill(T::ZERO);
    Pairing::new(&kept, shape).reduce_to_a(y, |_, ix, _| x[ix]);
}
