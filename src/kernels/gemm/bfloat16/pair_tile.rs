//! A tile of a product in bfloat16: its memory and what is added to its sums.

/// Numbers that are added to the sums of a tile before they are stored.
#[derive(Clone, Copy)]
pub(super) struct TileEpilogue {
    /// Adds the previous result.
    pub(super) accumulate: bool,
    /// A number for each row, or null.
    pub(super) row_bias: *const f32,
    /// A number for each column, or null.
    pub(super) column_bias: *const f32,
    /// Replaces negative numbers by zero.
    pub(super) relu: bool,
}

/// One tile: `c = epilogue(a b)`, with `n` columns.
///
/// Pair `p` of row `i` of `a` is at byte `i a_row + p a_pair`. Pair `p` of the columns of `b` is at `p PANEL` pairs.
/// On 64-bit ARM the pairs are in the order of `arm::tile`. Row `i` of `c` is at `i c_row` elements, of `f32`, or of
/// bfloat16 if `is_narrow`.
pub(super) struct PairTile {
    /// The number of pairs of terms in each sum.
    pub(super) pairs: usize,
    /// The number of columns.
    pub(super) n: usize,
    /// The first pair of the left matrix.
    pub(super) a: *const u8,
    /// The distance from a row of the left matrix to the next, in bytes.
    pub(super) a_row: usize,
    /// The distance from a pair of a row to the next, in bytes.
    pub(super) a_pair: usize,
    /// The first pair of the right matrix.
    pub(super) b: *const u32,
    /// The first element of the result.
    pub(super) c: *mut u8,
    /// The distance from a row of the result to the next, in elements.
    pub(super) c_row: isize,
    /// True if the result is in bfloat16.
    pub(super) is_narrow: bool,
    /// The epilogue, which is applied to each sum.
    pub(super) epilogue: TileEpilogue,
    /// Memory for the sums if the pairs come in several parts, or null.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))] // only AMX multiplies in parts
    pub(super) sums: *mut f32,
    /// The part of the pairs that is multiplied.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))] // as above
    pub(super) part: TilePart,
}

/// A part of the pairs of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TilePart {
    /// False if earlier parts are in the memory for sums.
    pub(super) is_first: bool,
    /// True if the sums are complete after it, so that the epilogue is applied.
    pub(super) is_last: bool,
}

/// Computes tiles of a number of rows.
pub(super) type PairKernel = unsafe fn(&PairTile);
