//! Tests of the families that reduce, rearrange, select and draw elements.

#![allow(clippy::cloned_ref_to_slice_refs)] // lists of inputs read alike, one or several

mod indices;
mod random;
mod rearranged;
mod reduced;

use crate::ops::testing::{Tensor, forward, op};
use crate::ops::{Op, State, Value, find};
use crate::{Error, Result};

/// The operation `name` with these arguments and the inputs in the mask `present`.
fn given(name: &str, values: &[Value], present: u64) -> Op {
    find(name).expect("is registered").bind(values, present).expect("binds")
}

/// A list of integers as an argument.
fn ints(v: &[i64]) -> Value {
    Value::Ints(v.to_vec())
}

/// Runs an operation forward.
fn run(op: &Op, x: &[Tensor]) -> Result<Vec<Tensor>> {
    forward(op, x, &mut State::default(), false)
}

/// Runs an operation that must fail, and returns the error.
#[track_caller]
fn refused(op: &Op, x: &[Tensor]) -> Error {
    run(op, x).expect_err("is refused")
}

/// Calls `f` with each index of an array of this shape.
fn each(shape: &[usize], mut f: impl FnMut(&[usize])) {
    let n: usize = shape.iter().product();
    for i in 0..n {
        let mut left = i;
        let mut at = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            at[axis] = left % shape[axis];
            left /= shape[axis];
        }
        f(&at);
    }
}

/// The element of `x` at an index.
fn element(x: &Tensor, at: &[usize]) -> f64 {
    x.data[x.shape.strides().iter().zip(at).map(|(s, i)| s * i).sum::<usize>()]
}
