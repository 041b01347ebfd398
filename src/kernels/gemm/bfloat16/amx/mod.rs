//! Products with AMX: whether this process uses it for bfloat16, and its kernels.
//!
//! Blocks, packing and epilogues are the same as for `vdpbf16ps`. AMX is used only after a product in tiles agreed
//! with one in plain Rust.

mod tiles;

use std::sync::OnceLock;

use half::bf16;

use super::blocks::{PackRows, PairKernels, PairProduct};
use super::pack;
use super::pair_tile::PairTile;
use super::source::{NumberPart, PairOperand};
use super::tiles::{TALLEST, TILE_PAIRS, TILE_ROWS};
use crate::kernels::amx::{AmxState, TileNumbers, TilesInUse};
use crate::kernels::epilogue::Epilogue;

/// The fewest rows, columns and terms for which tiles are used. Smaller products leave most of a tile empty.
const LEAST: (usize, usize, usize) = (4, 4, 16);

/// Kernels in tiles, with the instruction `tdpbf16ps`.
pub(super) struct InTiles;

impl PairKernels for InTiles {
    const TALLEST: usize = TALLEST;
    const ROWS: usize = TILE_ROWS;
    const PAIRS: usize = TILE_PAIRS;
    // Half of a panel stays in an L1 cache of 48 KiB, while left tiles pass from the L2 cache.
    const NEAR: usize = 256;
    const TURNED_ROWS: Option<PackRows> = Some(pack::turned_rows);
    // Both blocks are in an L2 cache of 2 MiB, with space for the result.
    const RIGHT: usize = 1 << 18;
    const LEFT: usize = 1 << 17;
    // A row of a tile is a line of the cache, wherever it is.
    const IN_PLACE: usize = usize::MAX;
    const SPEED: usize = 8;
    type Registers = TilesInUse;

    unsafe fn prepare() -> TilesInUse {
        // SAFETY: guaranteed by the caller.
        unsafe { TilesInUse::new() }
    }

    #[inline(always)]
    unsafe fn tile(tile: &PairTile, rows: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { tiles::tile(tile, rows) };
    }
}

/// The name of the instructions that multiply, on a machine that has `vdpbf16ps` too.
pub(super) fn instructions(state: AmxState) -> &'static str {
    match state {
        AmxState::Off => "avx512bf16",
        AmxState::Wrong => "avx512bf16 (amx is off: its first product was wrong)",
        AmxState::On => "amx",
    }
}

/// True if tiles pay for a product of this size.
pub(super) fn pays((m, n, k): (usize, usize, usize)) -> bool {
    m >= LEAST.0 && n >= LEAST.1 && k >= LEAST.2
}

/// True if products use AMX.
pub(super) fn is_on() -> bool {
    state() == AmxState::On
}

/// The use of AMX in this process, decided at the first call. The machine must have AVX-512 with BF16.
pub(super) fn state() -> AmxState {
    static STATE: OnceLock<AmxState> = OnceLock::new();
    *STATE.get_or_init(|| {
        // SAFETY: the machine has the instructions, and the system permits them.
        AmxState::of(TileNumbers::Bfloat16, || unsafe { is_right::<InTiles>() })
    })
}

/// True if a product of odd size has the sums of plain Rust, within the errors of `f32`. It is small enough for one
/// thread, and has tiles of all kinds: whole ones and parts, one and two rows of them.
///
/// # Safety
/// The machine must have AVX-512 with BF16, and the instructions of the kernels.
unsafe fn is_right<K: PairKernels>() -> bool {
    let (m, n, k) = (37, 45, 71);
    let value = |i: usize| bf16::from_f32(((i * 7919 + 31) % 1009) as f32 / 1009.0 - 0.5);
    let a: Vec<bf16> = (0..m * k).map(value).collect();
    let b: Vec<bf16> = (0..k * n).map(|i| value(i + 5)).collect();
    let mut c = vec![f32::NAN; m * n];
    let of = |p: &[bf16], row: usize| PairOperand {
        p: p.as_ptr().cast(),
        row: row as isize,
        col: 1,
        is_narrow: true,
        part: NumberPart::Rounded,
    };
    let product = PairProduct {
        m,
        n,
        k,
        a: of(&a, k),
        b: of(&b, n),
        c: c.as_mut_ptr().cast(),
        c_row: n as isize,
        is_narrow: false,
        epilogue: Epilogue::NONE,
    };
    // SAFETY: guaranteed by the caller, and the matrices have these sizes.
    unsafe { product.run::<K>() };
    (0..m * n).all(|at| {
        let terms = (0..k).map(|p| a[at / n * k + p].to_f64() * b[p * n + at % n].to_f64());
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
        (f64::from(c[at]) - sum).abs() <= k as f64 * f64::from(f32::EPSILON) * size
    })
}

#[cfg(test)]
mod tests {
    use super::{AmxState, InTiles, PackRows, PairKernels, PairTile, instructions, is_right, pays};
    use crate::kernels::gemm::bfloat16::blocks::InRegisters;
    use crate::kernels::gemm::bfloat16::has_pairs;

    /// Kernels that get one sum of a tile wrong.
    struct Wrong;

    impl PairKernels for Wrong {
        const TALLEST: usize = InRegisters::TALLEST;
        const ROWS: usize = InRegisters::ROWS;
        const PAIRS: usize = InRegisters::PAIRS;
        const NEAR: usize = InRegisters::NEAR;
        const TURNED_ROWS: Option<PackRows> = InRegisters::TURNED_ROWS;
        const RIGHT: usize = InRegisters::RIGHT;
        const LEFT: usize = InRegisters::LEFT;
        const IN_PLACE: usize = InRegisters::IN_PLACE;
        const SPEED: usize = InRegisters::SPEED;
        type Registers = ();

        unsafe fn prepare() {}

        unsafe fn tile(tile: &PairTile, rows: usize) {
            // SAFETY: as the caller guarantees for the other kernels, and the last element is within the tile.
            unsafe {
                InRegisters::tile(tile, rows);
                let last = (rows as isize - 1) * tile.c_row + tile.n as isize - 1;
                let last = tile.c.cast::<f32>().wrapping_offset(last);
                last.write(last.read() + 1e-3);
            }
        }
    }

    #[test]
    fn the_first_product_tells_right_kernels_from_wrong_ones() {
        if has_pairs() {
            // SAFETY: the machine has the instructions.
            unsafe {
                assert!(is_right::<InRegisters>());
                assert!(!is_right::<Wrong>());
                #[cfg(target_os = "linux")]
                {
                    crate::kernels::amx::trap();
                    assert!(is_right::<InTiles>());
                }
            }
        }
    }

    #[test]
    fn tiny_products_do_not_use_tiles() {
        assert!(pays((4, 4, 16)) && !pays((3, 400, 400)) && !pays((400, 3, 400)) && !pays((400, 400, 15)));
    }

    #[test]
    fn instructions_have_names_in_each_state() {
        let names = [AmxState::Off, AmxState::Wrong, AmxState::On].map(instructions);
        assert!(names[0] == "avx512bf16" && names[1].starts_with(names[0]) && names[2] == "amx");
        assert_eq!(InTiles::TALLEST % InTiles::ROWS, 0);
    }
}
