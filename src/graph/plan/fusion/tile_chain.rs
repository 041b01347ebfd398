//! Elementwise operations applied to an array, chunk by chunk, after a kernel has written it.

use std::mem::MaybeUninit;

use smallvec::SmallVec;

use crate::graph::plan::fusion::TILE;
use crate::graph::plan::fusion::broadcast::BroadcastCycle;
use crate::kernels::map::Aligned;
use crate::ops::{Activation, ChunkedForward, Loops, Part, RowFunctions};

/// The arrays of an elementwise function in a chain. The output is the array of the chain. Inputs may be broadcast
/// over it.
pub(crate) struct WholeArray {
    /// Addresses of the inputs and the output.
    pub(crate) part: Part,
    /// For each input, how it is broadcast. None if it has the shape of the output.
    pub(crate) spread: [Option<BroadcastCycle>; 2],
}

/// The buffer in which broadcast values are gathered.
type TileBuffer = Aligned<[MaybeUninit<u64>; TILE / size_of::<u64>()]>;

impl WholeArray {
    /// Calls `work` on a part of the arrays.
    ///
    /// # Safety
    /// The arrays must hold `n` elements of `size` bytes from element `start` on.
    #[inline(always)]
    unsafe fn part(&self, start: usize, n: usize, size: usize, work: impl FnOnce(&Part)) {
        let mut part = self.part.shifted(start * size, n);
        if self.spread == [None; 2] {
            return work(&part);
        }
        let mut buffers: [TileBuffer; 2] = [const { Aligned([MaybeUninit::uninit(); _]) }; 2];
        for (i, buffer) in buffers.iter_mut().enumerate() {
            if let Some(spread) = self.spread[i].filter(|_| !self.part.x[i].is_null()) {
                let buffer = buffer.0.as_mut_ptr().cast();
                // SAFETY: the array is valid, and the tile buffer holds a tile.
                unsafe { spread.gather(self.part.x[i], buffer, start, n, size) };
                part.x[i] = buffer;
            }
        }
        work(&part);
    }
}

/// One function of a chain.
pub(crate) enum TailOperation {
    /// An elementwise function.
    Loops(Loops, WholeArray),
    /// A function with its own chunked rule, which the state of the step owns, and the activation after it.
    ChunkedForward(*const dyn ChunkedForward, Activation),
}

/// The functions of a chain, in order, and the address of the first element of their array.
pub(crate) struct EpilogueTail {
    /// The first element of the array.
    pub(crate) at: *mut u8,
    /// Bytes of an element.
    pub(crate) size: usize,
    /// The functions, in order.
    pub(crate) links: SmallVec<[TailOperation; 4]>,
}

// SAFETY: only addresses and functions that threads may share. The users of the addresses ensure safe access.
unsafe impl Sync for EpilogueTail {}

impl RowFunctions for EpilogueTail {
    unsafe fn finish(&self, at: *mut u8, n: usize) {
        let (first, tile) = ((at as usize - self.at as usize) / self.size, TILE / self.size);
        for start in (0..n).step_by(tile) {
            for link in &self.links {
                let (at, n) = (at.wrapping_add(start * self.size), tile.min(n - start));
                // SAFETY: the steps of the chain keep the operations alive. The caller guarantees the rest.
                unsafe {
                    match link {
                        TailOperation::Loops(loops, whole) => {
                            whole.part(first + start, n, self.size, |part| loops.forward(part));
                        }
                        TailOperation::ChunkedForward(chunked, activation) => {
                            (**chunked).run(at, first + start, n, *activation);
                        }
                    }
                }
            }
        }
    }
}

impl EpilogueTail {
    /// The tail that a kernel applies to this many elements. None for few elements, which are processed after the
    /// kernel.
    pub(crate) fn rows(&self, len: usize) -> Option<&dyn RowFunctions> {
        (!self.links.is_empty() && len * self.size > TILE).then_some(self)
    }
}
