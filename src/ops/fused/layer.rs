//! Calls of a single layer's kernels from a fused function.

use smallvec::SmallVec;

use crate::array::{InputCache, Shape};
use crate::kernels::{Float, Tail};
use crate::ops::contract::elementwise::is_double;
use crate::ops::{Backward, Call, Memory, Run, State};

/// How the kernel of a layer runs inside the fused function.
#[derive(Clone, Copy)]
pub(super) struct Within<'a> {
    /// True if the run restores dropped values.
    pub(super) recompute: bool,
    /// Operations to apply to the output before it is written.
    pub(super) tail: Tail<'a>,
    /// The input from which the layer may cache data, if any.
    pub(super) input_cache: Option<InputCache<'a>>,
}

impl Within<'_> {
    /// An ordinary run.
    pub(super) const PLAIN: Self = Self { recompute: false, tail: Tail::NOTHING, input_cache: None };
}

/// Memory for the gradient of an input, and true if it is added to. None if the gradient is not requested.
pub(super) type WantedGradient<'a> = Option<(Memory<'a>, bool)>;

/// A temporary array as an input or output of a kernel.
pub(super) fn memory<'a, T>(of: &mut [T], shape: &'a Shape) -> Memory<'a> {
    Memory { ptr: of.as_mut_ptr().cast(), shape }
}

/// The values that are present, and a mask of their positions.
pub(super) fn given<T>(all: impl IntoIterator<Item = Option<T>>) -> (SmallVec<[T; 5]>, u64) {
    let (mut found, mut present) = (SmallVec::new(), 0);
    for (i, x) in all.into_iter().enumerate() {
        present |= u64::from(x.is_some()) << i;
        found.extend(x);
    }
    (found, present)
}

/// The arguments of a layer's forward kernel. `present` has one bit for each given input.
pub(super) fn run<'a, T: Float>(
    (x, present): (&'a [Memory<'a>], u64),
    y: &'a [Memory<'a>],
    state: &'a mut State,
    Within { recompute, tail, input_cache }: Within<'a>,
) -> Run<'a, T> {
    Run::new(Call { recompute, tail, input_cache, ..Call::new(x, y, state, is_double::<T>()) }, present)
}

/// The arguments of a layer's backward kernel. `present` has one bit for each given input.
pub(super) fn run_backward<'a, T: Float>(
    (x, present): (&'a [Memory<'a>], u64),
    (y, gy): (&'a [Memory<'a>], &'a [Memory<'a>]),
    gx: &'a [WantedGradient<'a>],
    state: &'a mut State,
    input_cache: Option<InputCache<'a>>,
) -> Backward<'a, T> {
    Backward::new(Call { gy, gx, input_cache, ..Call::new(x, y, state, is_double::<T>()) }, present)
}
