//! Elementwise functions on arrays of 16 bits. Arrays of one type are read and written as they are stored. Other arrays
//! are widened to `f32` in the cache, tile by tile.

use std::mem::MaybeUninit;

use crate::array::DType;
use crate::kernels::map::Aligned;
use crate::kernels::sixteen_bits::{narrow_here, widen_here};
use crate::kernels::threads;
use crate::ops::{Loops, Part};

/// Elements of a tile. All tiles of a function fit into the L1 cache.
const TILE: usize = 1024;
/// Elements of one task.
const GRAIN: usize = 1 << 14;

/// An array: its address, or null if it is missing, and its type, `f32` or one of 16 bits.
#[derive(Clone, Copy)]
pub(crate) struct TiledArray {
    /// The first element.
    pub(crate) at: *mut u8,
    /// The type of the elements.
    pub(crate) dtype: DType,
}

// SAFETY: only an address. Users of the address ensure safe access.
unsafe impl Sync for TiledArray {}

impl TiledArray {
    /// No array.
    pub(crate) const MISSING: Self = Self { at: std::ptr::null_mut(), dtype: DType::F32 };

    /// True if there is an array and it has a type of 16 bits.
    fn is_narrow(self) -> bool {
        self.dtype != DType::F32 && !self.at.is_null()
    }
}

/// Buffers for the tiles of all arrays of a function.
struct TileBuffers([Aligned<[MaybeUninit<f32>; TILE]>; 6]);

/// The arrays of an elementwise function, in the order of [`Part`]: two inputs, output, its gradient, and two
/// gradients of inputs. All have `n` elements.
pub(crate) struct TiledFunction {
    /// The loops of the function.
    pub(crate) loops: Loops,
    /// The arrays, some of them missing.
    pub(crate) arrays: [TiledArray; 6],
    /// True for each gradient of an input that is added to.
    pub(crate) adds: [bool; 2],
    /// The number of elements of each array.
    pub(crate) n: usize,
}

impl TiledFunction {
    /// The loops that read and write the arrays as they are stored, if all have one type of 16 bits.
    fn loops_in_place(&self) -> Option<Loops> {
        let mut given = self.arrays.iter().filter(|array| !array.at.is_null());
        let dtype = given.next()?.dtype;
        let is_narrow = dtype != DType::F32 && given.all(|array| array.dtype == dtype);
        if is_narrow { self.loops.of_sixteen_bits(dtype) } else { None }
    }

    /// Computes the output, or the requested gradients.
    #[allow(clippy::large_stack_arrays)] // tiles of six arrays, which stay in the cache
    pub(crate) fn run(&self, is_forward: bool) {
        let reads = match is_forward {
            true => [true, true, false, false, false, false],
            false => [true, true, true, true, self.adds[0], self.adds[1]],
        };
        let written: &[usize] = if is_forward { &[2] } else { &[4, 5] };
        let in_place = self.loops_in_place();
        let (loops, copies) = (in_place.unwrap_or(self.loops), in_place.is_none());
        let is_copied = |array: &TiledArray| copies && array.is_narrow();
        threads::ranges(self.n, GRAIN, |range| {
            let mut tiles = TileBuffers([const { Aligned([MaybeUninit::uninit(); TILE]) }; 6]);
            let tile = if copies { TILE } else { range.len().max(1) };
            for start in range.clone().step_by(tile) {
                let n = tile.min(range.end - start);
                let mut at = [std::ptr::null_mut::<u8>(); 6];
                // SAFETY: the step that made this keeps the operation and the arrays, each of `self.n` elements, and
                // tile buffers have space for a tile. Ranges are disjoint.
                unsafe {
                    for (i, array) in self.arrays.iter().enumerate() {
                        at[i] = match is_copied(array) {
                            true => tiles.0[i].0.as_mut_ptr().cast(),
                            false if array.at.is_null() => array.at,
                            false => array.at.wrapping_add(array.dtype.size() * start),
                        };
                        if is_copied(array) && reads[i] {
                            widen_here(array.at.wrapping_add(2 * start), array.dtype, at[i].cast(), n);
                        }
                    }
                    let ([x0, x1, y, gy, gx0, gx1], adds) = (at, self.adds);
                    let part = Part { x: [x0.cast_const(), x1.cast_const()], y, gy, gx: [gx0, gx1], adds, n };
                    match is_forward {
                        true => loops.forward(&part),
                        false => loops.backward(&part),
                    }
                    for i in written.iter().copied().filter(|i| is_copied(&self.arrays[*i])) {
                        let to = self.arrays[i].at.wrapping_add(2 * start);
                        narrow_here(at[i].cast_const().cast(), to, self.arrays[i].dtype, n);
                    }
                }
            }
        });
    }
}
