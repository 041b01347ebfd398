//! Cost estimates of operations.

use crate::array::Shape;
use crate::ops::Op;

/// Estimates the work of an operation that touches this many elements.
pub(crate) fn work(op: &Op, touched: usize) -> usize {
    // Matrix products touch each element often.
    if touched > 1 << 8 && op.facts().reads(0).inputs > 1 { touched * 8 } else { touched }
}

/// The cost of reading or writing one element, in multiplications: about the ratio of memory to compute speed.
const ELEMENT: u64 = 16;

/// The work of an operation on inputs and outputs of these shapes.
pub(crate) fn work_of(op: &Op, x: &[&Shape], y: &[&Shape]) -> u64 {
    let touched: usize = x.iter().map(|x| x.size()).chain(y.iter().map(|y| y.size())).sum();
    let products = y.first().map_or(0, |y| op.multiplications(x, y));
    touched as u64 * ELEMENT + products as u64
}
