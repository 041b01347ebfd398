//! Elementwise functions on arrays of 16 bits: tile by tile, widened to `f32` in the cache.

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
    pub(crate) at: *mut u8,
    pub(crate) dtype: DType,
}

// SAFETY: only an address. Users of the address ensure safe access.
unsafe impl Sync for TiledArray {}

impl TiledArray {
    /// No array.
    pub(crate) const MISSING: Self = Self { at: std::ptr::null_mut(), dtype: DType::F32 };

    fn is_narrow(self) -> bool {
        self.dtype != DType::F32 && !self.at.is_null()
    }
}

/// Buffers for the tiles of all arrays of a function.
struct Tiles([Aligned<[MaybeUninit<f32>; TILE]>; 6]);

/// The arrays of an elementwise function, in the order of [`Part`]: two inputs, output, its gradient, and two
/// gradients of inputs. All have `n` elements.
pub(crate) struct TiledFunction {
    pub(crate) loops: Loops,
    pub(crate) arrays: [TiledArray; 6],
    pub(crate) adds: [bool; 2],
    pub(crate) n: usize,
}

impl TiledFunction {
    /// Computes the output.
    ///
    /// # Safety
    /// As [`Loops::forward`], for all elements.
    pub(crate) unsafe fn forward(&self) {
        // SAFETY: guaranteed by the caller.
        self.run([true, true, false, false, false, false], &[2], |part| unsafe { self.loops.forward(part) });
    }

    /// Computes the requested gradients.
    ///
    /// # Safety
    /// As [`Loops::backward`], for all elements.
    pub(crate) unsafe fn backward(&self) {
        let reads = [true, true, true, true, self.adds[0], self.adds[1]];
        // SAFETY: guaranteed by the caller.
        self.run(reads, &[4, 5], |part| unsafe { self.loops.backward(part) });
    }

    fn run(&self, reads: [bool; 6], written: &[usize], work: impl Fn(&Part) + Sync) {
        threads::ranges(self.n, GRAIN, |range| {
            let mut tiles = Tiles([const { Aligned([MaybeUninit::uninit(); TILE]) }; 6]);
            for start in range.clone().step_by(TILE) {
                let n = TILE.min(range.end - start);
                let mut at = [std::ptr::null_mut::<u8>(); 6];
                for (i, array) in self.arrays.iter().enumerate() {
                    if !array.is_narrow() {
                        at[i] = if array.at.is_null() { array.at } else { array.at.wrapping_add(4 * start) };
                        continue;
                    }
                    at[i] = tiles.0[i].0.as_mut_ptr().cast();
                    if reads[i] {
                        let from = array.at.wrapping_add(2 * start);
                        // SAFETY: the array has these elements, and the tile has space for them.
                        unsafe { widen_here(from, array.dtype, at[i].cast(), n) };
                    }
                }
                let [x0, x1, y, gy, gx0, gx1] = at;
                work(&Part {
                    x: [x0.cast_const(), x1.cast_const()],
                    y,
                    gy,
                    gx: [gx0, gx1],
                    adds: self.adds,
                    n,
                });
                for i in written.iter().copied().filter(|i| self.arrays[*i].is_narrow()) {
                    let to = self.arrays[i].at.wrapping_add(2 * start);
                    // SAFETY: as above.
                    unsafe { narrow_here(at[i].cast_const().cast(), to, self.arrays[i].dtype, n) };
                }
            }
        });
    }
}
