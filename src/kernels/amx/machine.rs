//! Detection of AMX: the processor has it, the system saves its registers, and this process may use them. An
//! instruction of AMX is an illegal instruction unless all three hold.

use super::TileNumbers;

/// True if this process may multiply tiles of these numbers. Asks the system for permission, which then holds for all
/// threads.
pub(super) fn multiplies_tiles(numbers: TileNumbers) -> bool {
    processor_has_tiles(numbers) && system_saves_tiles() && asks_permission()
}

/// True if the processor multiplies tiles of these numbers, eight of 16 rows of 64 bytes.
fn processor_has_tiles(numbers: TileNumbers) -> bool {
    /// The bit of AMX-TILE in register EDX of leaf 7.
    const TILES: u32 = 1 << 24;
    // The bits of AMX-BF16 and AMX-INT8 there.
    let needed = TILES
        | match numbers {
            TileNumbers::Bfloat16 => 1 << 22,
            TileNumbers::Integers => 1 << 25,
        };
    let highest = cpuid(0, 0)[0];
    if highest < 0x1E || cpuid(7, 0)[3] & needed != needed || cpuid(0x1D, 0)[0] < 1 {
        return false;
    }
    // Palette 1: bytes of all tiles and of one, bytes of a row and number of tiles, number of rows.
    let [bytes, rows_and_tiles, rows, _] = cpuid(0x1D, 1);
    // The multiplier: rows of a right tile, and bytes of a row.
    let multiplier = cpuid(0x1E, 0)[1];
    bytes == 1024 << 16 | 8192
        && rows_and_tiles == 8 << 16 | 64
        && rows & 0xFFFF == 16
        && multiplier & 0xFF >= 16
        && multiplier >> 8 & 0xFFFF >= 64
}

/// True if the system saves the configuration and the contents of tiles when it changes threads.
fn system_saves_tiles() -> bool {
    /// The bits of both in the register XCR0.
    const SAVED: u64 = 1 << 17 | 1 << 18;
    // SAFETY: the instruction exists, since the system saves registers by XSAVE, which bit 27 of ECX says.
    cpuid(1, 0)[2] & 1 << 27 != 0 && unsafe { std::arch::x86_64::_xgetbv(0) } & SAVED == SAVED
}

/// The registers EAX, EBX, ECX and EDX of a leaf.
#[allow(unused_unsafe)] // newer compilers consider the instruction safe
fn cpuid(leaf: u32, sub: u32) -> [u32; 4] {
    // SAFETY: every 64-bit processor has the instruction.
    let found = unsafe { std::arch::x86_64::__cpuid_count(leaf, sub) };
    [found.eax, found.ebx, found.ecx, found.edx]
}

/// Asks Linux for permission to use tiles, and looks whether it was given.
#[cfg(target_os = "linux")]
fn asks_permission() -> bool {
    /// The request `ARCH_GET_XCOMP_PERM` of `arch_prctl`.
    const GET_PERMISSION: libc::c_long = 0x1022;
    /// The request `ARCH_REQ_XCOMP_PERM` of `arch_prctl`.
    const ASK_PERMISSION: libc::c_long = 0x1023;
    /// The number of the feature "tile data".
    const TILE_DATA: libc::c_long = 18;
    let mut granted = 0_u64;
    // SAFETY: both calls have these arguments, and the second one writes one number.
    unsafe {
        libc::syscall(libc::SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0
            && libc::syscall(libc::SYS_arch_prctl, GET_PERMISSION, &raw mut granted) == 0
            && granted >> TILE_DATA & 1 == 1
    }
}

/// False: permission to use tiles is requested on Linux only.
#[cfg(not(target_os = "linux"))]
fn asks_permission() -> bool {
    false
}
