//! A matrix in memory that a product in bfloat16 reads.

use half::bf16;

/// A matrix of `f32`, or of bfloat16 if `is_narrow`: element (i, j) is at offset `i row + j col`, in elements.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels::gemm) struct PairOperand {
    /// The first element.
    pub(in crate::kernels::gemm) p: *const u8,
    /// The distance from a row to the next, in elements.
    pub(in crate::kernels::gemm) row: isize,
    /// The distance from a column to the next, in elements.
    pub(in crate::kernels::gemm) col: isize,
    /// True if elements are in bfloat16.
    pub(in crate::kernels::gemm) is_narrow: bool,
    /// The part of each `f32` element that is read.
    pub(in crate::kernels::gemm) part: NumberPart,
}

/// A part of a number in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels::gemm) enum NumberPart {
    /// The number rounded to bfloat16.
    Rounded,
    /// As `Rounded`, and zero if that is infinite or NaN.
    Finite,
    /// The difference to `Finite`, rounded to bfloat16. Zero if the rounded number is infinite or NaN.
    Rest,
}

// SAFETY: only an address. Users of the address ensure safe access.
unsafe impl Sync for PairOperand {}

impl PairOperand {
    /// Bytes of an element.
    #[inline(always)]
    pub(super) fn size(self) -> isize {
        if self.is_narrow { 2 } else { 4 }
    }

    /// The address of element (i, j).
    #[inline(always)]
    pub(super) fn at(self, i: usize, j: usize) -> *const u8 {
        self.p.wrapping_offset((i as isize * self.row + j as isize * self.col) * self.size())
    }

    /// The bits of element (i, j), rounded to bfloat16.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline(always)]
    pub(super) unsafe fn bits(self, i: usize, j: usize) -> u16 {
        // SAFETY: the caller guarantees that the element exists.
        unsafe { self.get(i, j) }.to_bits()
    }

    /// The matrix from element (i, j) on.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(super) fn part(self, i: usize, j: usize) -> Self {
        Self { p: self.at(i, j), ..self }
    }

    /// The transposed matrix, in the same memory.
    pub(super) fn transposed(self) -> Self {
        Self { row: self.col, col: self.row, ..self }
    }

    /// Element (i, j), rounded to bfloat16.
    ///
    /// # Safety
    /// The element must exist.
    #[inline(always)]
    pub(super) unsafe fn get(self, i: usize, j: usize) -> bf16 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let at = self.at(i, j);
            if self.is_narrow {
                return at.cast::<bf16>().read();
            }
            let v = at.cast::<f32>().read();
            let rounded = bf16::from_f32(v);
            match self.part {
                NumberPart::Rounded => rounded,
                _ if !rounded.is_finite() => bf16::ZERO,
                NumberPart::Finite => rounded,
                NumberPart::Rest => bf16::from_f32(v - rounded.to_f32()),
            }
        }
    }
}
