//! Estimates of the work of an operation.

use crate::array::Shape;
use crate::ops::Op;

/// An estimate of the work of an operation that touches so many elements.
pub(crate) fn work(op: &Op, touched: usize) -> usize {
    // Products of matrices touch each element often.
    if touched > 1 << 8 && op.facts().reads(0).inputs > 1 { touched * 8 } else { touched }
}

/// Work that one element costs which is read or written, in multiplications: about what memory is slower than a core.
const ELEMENT: u64 = 16;

/// The work of an operation on inputs and to outputs of these shapes.
pub(crate) fn work_of(op: &Op, x: &[&Shape], y: &[&Shape]) -> u64 {
    let touched: usize = x.iter().map(|x| x.size()).chain(y.iter().map(|y| y.size())).sum();
    let products = y.first().map_or(0, |y| op.products(x, y));
    touched as u64 * ELEMENT + products as u64
}
