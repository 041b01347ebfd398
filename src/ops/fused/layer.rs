//! How one layer of a fused function runs as a part of it.

use smallvec::SmallVec;

use crate::array::{InputCache, Shape};
use crate::kernels::{Float, Tail};
use crate::ops::contract::elementwise::is_double;
use crate::ops::{Backward, Call, Memory, Run, State};

/// How a layer runs within the whole.
#[derive(Clone, Copy)]
pub(super) struct Within<'a> {
    pub(super) recompute: bool,
    pub(super) tail: Tail<'a>,
    pub(super) input_cache: Option<InputCache<'a>>,
}

impl Within<'_> {
    pub(super) const PLAIN: Self = Self { recompute: false, tail: Tail::NOTHING, input_cache: None };
}

/// A gradient of an input, if it is wanted, and whether to add to it.
pub(super) type WantedGradient<'a> = Option<(Memory<'a>, bool)>;

pub(super) fn memory<'a, T>(of: &mut [T], shape: &'a Shape) -> Memory<'a> {
    Memory { ptr: of.as_mut_ptr().cast(), shape }
}

/// What is there of several, and a mask of which these are.
pub(super) fn given<T>(all: impl IntoIterator<Item = Option<T>>) -> (SmallVec<[T; 5]>, u64) {
    let (mut found, mut present) = (SmallVec::new(), 0);
    for (i, x) in all.into_iter().enumerate() {
        present |= u64::from(x.is_some()) << i;
        found.extend(x);
    }
    (found, present)
}

pub(super) fn run<'a, T: Float>(
    (x, present): (&'a [Memory<'a>], u64),
    y: &'a [Memory<'a>],
    state: &'a mut State,
    Within { recompute, tail, input_cache }: Within<'a>,
) -> Run<'a, T> {
    Run::new(Call { recompute, tail, input_cache, ..Call::new(x, y, state, is_double::<T>()) }, present)
}

pub(super) fn run_backward<'a, T: Float>(
    (x, present): (&'a [Memory<'a>], u64),
    (y, gy): (&'a [Memory<'a>], &'a [Memory<'a>]),
    gx: &'a [WantedGradient<'a>],
    state: &'a mut State,
    input_cache: Option<InputCache<'a>>,
) -> Backward<'a, T> {
    Backward::new(Call { gy, gx, input_cache, ..Call::new(x, y, state, is_double::<T>()) }, present)
}
