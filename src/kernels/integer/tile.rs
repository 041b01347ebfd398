//! The microkernel: a tile of sums that stays in registers. One source, compiled for each instruction set.

#[cfg(target_arch = "aarch64")]
use super::arm::{SignedBySigned, UnsignedBySigned, sums_by_blocks};
#[cfg(target_arch = "x86_64")]
use super::dots::x86::{Avx2, Avx512Vnni, AvxVnni};
use super::dots::{IntegerDots, Portable, Rounding};
use super::in_tiles::{self, TileKernels};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::kernels::simd::{Isa, isa};

/// Columns of a row of sums of a tile.
pub(super) const WIDE: usize = 64;
/// Rows of the tallest tile of any instruction set.
pub(super) const TALL: usize = 6;
/// Terms that one step adds.
pub(super) const GROUP: usize = 4;

/// One tile of sums: of each row of levels with each column of a panel of weights.
pub(super) struct IntegerTile<'a> {
    /// The address of each row of levels.
    pub(super) rows: [*const u8; TALL],
    /// The offset of each run of terms from there.
    pub(super) taps: &'a [isize],
    /// Groups of four terms in a run.
    pub(super) groups: usize,
    /// The panel: for each group, four weights of each column.
    pub(super) weights: *const i8,
    /// The conversion of the sums.
    pub(super) finish: Finish<'a>,
}

impl<'a> IntegerTile<'a> {
    /// Sums in memory, with the address of each row.
    pub(super) fn of_sums(sums: &[*const u8], finish: Finish<'a>) -> Self {
        let rows = std::array::from_fn(|i| sums.get(i).copied().unwrap_or(std::ptr::null()));
        Self { rows, taps: &[], groups: 0, weights: std::ptr::null(), finish }
    }
}

/// The conversion of sums before they are written.
#[derive(Clone, Copy)]
pub(super) struct Finish<'a> {
    /// Numbers added to the sums of each column, for all columns of the registers.
    pub(super) added: *const i32,
    /// Products subtracted from the sums: a number of each column, as above, times one of each row.
    pub(super) zeros: Option<(*const i32, &'a [i32])>,
    /// The destination of the sums.
    pub(super) target: SumTarget,
}

/// The destination of sums.
#[derive(Clone, Copy)]
pub(super) enum SumTarget {
    /// Rows that are [`WIDE`] apart, with space for whole registers.
    Sums(*mut i32),
    /// Rounded to levels: the first `columns` of each row, with rows `row` apart.
    Levels { to: *mut u8, row: usize, columns: usize, scales: *const f32, rounding: Rounding },
    /// Scaled and shifted, otherwise as above.
    Numbers { to: *mut f32, row: usize, columns: usize, scales: *const f32, shifts: *const f32 },
}

/// The kernel for one number of rows and registers. It requires the instructions of its table and valid memory.
pub(super) type IntegerKernel = unsafe fn(&IntegerTile<'_>);

/// Kernels of one instruction set.
pub(super) struct Kernels {
    /// The name of the instructions, in capitals.
    name: &'static str,
    /// Columns of a register.
    pub(super) width: usize,
    /// The number that they subtract from each level.
    pub(super) levels_less: u8,
    /// True if two adjacent groups of a column are packed as one of eight terms. A last group of a run without partner
    /// is packed alone.
    pub(super) joins_groups: bool,
    /// By number of registers minus one, then by number of rows minus one.
    pub(super) tiles: &'static [&'static [IntegerKernel]],
    /// Kernels for products of many rows in tiles of AMX, if the machine has it.
    pub(super) in_tiles: Option<&'static TileKernels>,
}

impl Kernels {
    /// Columns of a panel: the widest tile.
    pub(super) fn panel(&self) -> usize {
        self.width * self.tiles.len()
    }

    /// Bytes after packed weights that kernels may read.
    pub(super) fn excess(&self) -> usize {
        if self.in_tiles.is_some() { in_tiles::EXCESS } else { 0 }
    }
}

/// Sums `M` rows of levels times `N` registers of packed weights, group by group.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // loops of constant length stay in registers
unsafe fn sums_by_groups<D: IntegerDots, const M: usize, const N: usize>(t: &IntegerTile<'_>) -> [[D; N]; M] {
    // SAFETY: the caller guarantees the instruction set, and the memory of the tile is valid.
    unsafe {
        let mut sums = [[D::zero(); N]; M];
        let mut w = t.weights;
        for &tap in t.taps {
            let mut rows = [t.rows[0]; M];
            for i in 0..M {
                rows[i] = t.rows[i].offset(tap);
            }
            for g in 0..t.groups {
                let mut weights = [D::weights(w); N];
                for j in 1..N {
                    weights[j] = D::weights(w.add(j * GROUP * D::WIDTH));
                }
                for i in 0..M {
                    let levels = D::levels(rows[i].add(g * GROUP));
                    for j in 0..N {
                        sums[i][j] = sums[i][j].add(levels, weights[j]);
                    }
                }
                w = w.add(N * GROUP * D::WIDTH);
            }
        }
        sums
    }
}

/// Reads `M` rows of sums from memory.
///
/// # Safety
/// The caller must have the instructions, and the rows of the tile must have sums for `N` registers.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
#[cfg(target_arch = "x86_64")]
unsafe fn sums_in_memory<D: IntegerDots, const M: usize, const N: usize>(t: &IntegerTile<'_>) -> [[D; N]; M] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[D::zero(); N]; M];
        for i in 0..M {
            for j in 0..N {
                sums[i][j] = sums[i][j].plus(t.rows[i].cast::<i32>().add(j * D::WIDTH));
            }
        }
        sums
    }
}

/// Converts the sums of a tile, and writes them.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
unsafe fn write<D: IntegerDots, const M: usize, const N: usize>(t: &IntegerTile<'_>, mut sums: [[D; N]; M]) {
    // SAFETY: as above.
    unsafe {
        let Finish { added, zeros, target } = t.finish;
        for i in 0..M {
            for j in 0..N {
                sums[i][j] = sums[i][j].plus(added.add(j * D::WIDTH));
            }
            if let Some((zeros, rows)) = zeros {
                for j in 0..N {
                    sums[i][j] = sums[i][j].minus_product(zeros.add(j * D::WIDTH), *rows.get_unchecked(i));
                }
            }
        }
        match target {
            SumTarget::Sums(to) => {
                for i in 0..M {
                    for j in 0..N {
                        sums[i][j].store(to.add(i * WIDE + j * D::WIDTH));
                    }
                }
            }
            SumTarget::Levels { to, row, columns, scales, rounding } => {
                each_row::<D, _, M, N>(
                    sums,
                    to,
                    row,
                    columns,
                    #[inline(always)]
                    |sum, at, to| sum.write_levels(scales.add(at), rounding, to),
                );
            }
            SumTarget::Numbers { to, row, columns, scales, shifts } => {
                each_row::<D, _, M, N>(
                    sums,
                    to,
                    row,
                    columns,
                    #[inline(always)]
                    |sum, at, to| sum.write_numbers(scales.add(at), shifts.add(at), to),
                );
            }
        }
    }
}

/// Writes rows of results. `write` receives the sums of a register, their first column, and the destination.
///
/// # Safety
/// Each row must have space for `columns`, and `write` must be `#[inline(always)]`.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
unsafe fn each_row<D: IntegerDots, T: Copy + Default, const M: usize, const N: usize>(
    sums: [[D; N]; M],
    to: *mut T,
    row: usize,
    columns: usize,
    write: impl Fn(D, usize, *mut T),
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        for i in 0..M {
            let to = to.add(i * row);
            if columns == N * D::WIDTH {
                for j in 0..N {
                    write(sums[i][j], j * D::WIDTH, to.add(j * D::WIDTH));
                }
            } else {
                let mut buffer = [T::default(); WIDE];
                for j in 0..N {
                    write(sums[i][j], j * D::WIDTH, buffer.as_mut_ptr().add(j * D::WIDTH));
                }
                to.copy_from_nonoverlapping(buffer.as_ptr(), columns);
            }
        }
    }
}

/// Makes the table of kernels for one instruction set, compiled with its instructions. `$sums` adds joined groups if
/// `$joins` is true.
macro_rules! kernels {
    ($name:ident, $dots:ty, [$($n:literal)+], $rows:tt $(, $feature:literal)?) => {
        kernels!($name, $dots, sums_by_groups::<$dots, M, N>, false, [$($n)+], $rows $(, $feature)?);
    };
    ($name:ident, $dots:ty, $sums:expr, $joins:literal, [$($n:literal)+], $rows:tt $(, $feature:literal)?) => {
        static $name: Kernels = {
            $(#[target_feature(enable = $feature)])?
            /// The tile with the instructions of this table.
            unsafe fn kernel<const M: usize, const N: usize>(t: &IntegerTile<'_>) {
                // SAFETY: the function has the instruction set, and the caller guarantees the memory.
                unsafe { write::<$dots, M, N>(t, $sums(t)) }
            }
            Kernels {
                name: stringify!($name),
                width: <$dots as IntegerDots>::WIDTH,
                levels_less: <$dots as IntegerDots>::LEVELS_LESS,
                joins_groups: $joins,
                tiles: &[$(&kernels!(@rows kernel, $n, $rows)),+],
                in_tiles: None,
            }
        };
    };
    (@rows $kernel:ident, $n:literal, [$($m:literal)+]) => { [$($kernel::<$m, $n> as IntegerKernel),+] };
}

kernels!(PORTABLE, Portable<0>, [1 2], [1 2 3 4]);
#[cfg(target_arch = "x86_64")]
kernels!(AVX512_VNNI, Avx512Vnni, [1 2 3 4], [1 2 3 4 5 6], "avx512f,avx512bw,avx512vnni");
#[cfg(target_arch = "x86_64")]
kernels!(
    SUMS_IN_MEMORY, Avx512Vnni, sums_in_memory::<Avx512Vnni, M, N>, false, [1 2 3 4], [1 2 3 4 5 6],
    "avx512f,avx512bw,avx512vnni"
);
/// Kernels of `vdpbusd` for few rows, and tiles for many.
#[cfg(target_arch = "x86_64")]
static AMX: Kernels = Kernels {
    name: "AMX",
    in_tiles: Some(&TileKernels { pays: in_tiles::pays, convert: SUMS_IN_MEMORY.tiles }),
    ..AVX512_VNNI
};
#[cfg(target_arch = "x86_64")]
kernels!(AVX_VNNI, AvxVnni, [1 2], [1 2 3 4 5 6], "avx2,avxvnni");
#[cfg(target_arch = "x86_64")]
kernels!(AVX2, Avx2, [1 2], [1 2 3 4], "avx2");
#[cfg(target_arch = "aarch64")]
kernels!(I8MM, UnsignedBySigned, sums_by_blocks::<M, N>, true, [1 2 3 4], [1 2 3 4 5 6], "neon,i8mm");
#[cfg(target_arch = "aarch64")]
kernels!(DOTPROD, SignedBySigned, [1 2 3 4], [1 2 3 4 5], "neon,dotprod");

/// The kernels that this machine can run, the best one first.
pub(super) fn known() -> impl Iterator<Item = &'static Kernels> {
    #[cfg(target_arch = "x86_64")]
    let special: [(bool, &'static Kernels); 4] = {
        let most = isa();
        let narrow = matches!(most, Isa::Avx512 | Isa::Avx2);
        let wide = most == Isa::Avx512 && is_x86_feature_detected!("avx512vnni");
        [
            (wide && in_tiles::are_used(), &AMX),
            (wide, &AVX512_VNNI),
            (narrow && is_x86_feature_detected!("avxvnni"), &AVX_VNNI),
            (narrow, &AVX2),
        ]
    };
    #[cfg(target_arch = "aarch64")]
    let special: [(bool, &'static Kernels); 2] = {
        let is_neon = isa() == Isa::Neon;
        [
            (is_neon && std::arch::is_aarch64_feature_detected!("i8mm"), &I8MM),
            (is_neon && std::arch::is_aarch64_feature_detected!("dotprod"), &DOTPROD),
        ]
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let special: [(bool, &'static Kernels); 0] = [];
    special.into_iter().filter_map(|(is_there, kernels)| is_there.then_some(kernels)).chain([&PORTABLE])
}

/// The best kernels of this machine.
pub(super) fn kernels() -> &'static Kernels {
    known().next().unwrap_or(&PORTABLE)
}

/// The instructions that multiply levels on this machine.
pub fn instructions() -> String {
    let name = kernels().name.to_ascii_lowercase().replace('_', "");
    if in_tiles::are_wrong() { format!("{name} (amx is off: its first product was wrong)") } else { name }
}

/// Kernels of plain instructions, with the packing of other machines' kernels.
#[cfg(test)]
pub(super) mod packed_otherwise {
    use super::*;

    /// Sums of joined groups.
    #[inline(always)]
    unsafe fn sums_by_pairs<const M: usize, const N: usize>(t: &IntegerTile<'_>) -> [[Portable<0>; N]; M] {
        // SAFETY: the memory of the tile is valid.
        unsafe {
            let mut sums = [[Portable::zero(); N]; M];
            let (mut w, columns) = (t.weights, N * Portable::<0>::WIDTH);
            for &tap in t.taps {
                for g in 0..t.groups {
                    let (start, step) =
                        if g | 1 < t.groups { (g / 2 * 2 * columns + g % 2, 2) } else { (g * columns, 1) };
                    let weights: [[[i8; GROUP]; 4]; N] = std::array::from_fn(|j| {
                        std::array::from_fn(|c| *w.cast::<[i8; GROUP]>().add(start + (4 * j + c) * step))
                    });
                    for (row, sums) in t.rows.iter().zip(&mut sums) {
                        let levels = Portable::<0>::levels(row.offset(tap).add(g * GROUP));
                        for (sum, weights) in sums.iter_mut().zip(weights) {
                            *sum = sum.add(levels, weights);
                        }
                    }
                }
                w = w.add(t.groups * columns * GROUP);
            }
            sums
        }
    }

    kernels!(LESS, Portable<128>, [1 2 3], [1 2 3 4]);
    kernels!(JOINED, Portable<0>, sums_by_pairs::<M, N>, true, [1 2], [1 2 3]);

    /// Tiles for any number of rows.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    static ALL_IN_TILES: Kernels = Kernels {
        in_tiles: Some(&TileKernels { pays: |_, _, _| true, convert: SUMS_IN_MEMORY.tiles }),
        ..AVX512_VNNI
    };

    /// Kernels in tiles. Instructions of AMX that the machine lacks are trapped. None without AVX-512.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn trapped() -> Option<&'static Kernels> {
        (isa() == Isa::Avx512 && is_x86_feature_detected!("avx512vnni")).then(|| {
            crate::kernels::amx::trap();
            &ALL_IN_TILES
        })
    }

    /// None: the tests trap instructions under Linux.
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    fn trapped() -> Option<&'static Kernels> {
        None
    }

    /// Kernels of this machine, and these.
    pub(in super::super) fn all() -> impl Iterator<Item = &'static Kernels> {
        known().chain([&LESS, &JOINED]).chain(trapped())
    }
}
