//! Runs the instructions of AMX on machines without it: each raises the signal SIGILL, and a handler computes its
//! effect as Intel's manual defines it. So tests run the microkernel itself.

use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_and_si512, _mm512_castsi512_ps, _mm512_fmadd_ps, _mm512_fpclass_ps_mask,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_and_ps, _mm512_permutexvar_ps, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_storeu_ps,
};
use std::cell::UnsafeCell;
use std::sync::Once;

use super::{TileNumbers, machine};

/// A register of a tile: rows of 64 bytes.
type TileBytes = [[u8; 64]; 16];

/// The tiles of a thread, and their configured sizes.
struct TileFile {
    /// True after `ldtilecfg`, until `tilerelease`.
    is_configured: bool,
    /// The configured number of rows of each tile.
    rows: [usize; 8],
    /// The configured number of bytes in a row of each tile.
    row_bytes: [usize; 8],
    /// The contents of the tiles.
    tiles: [TileBytes; 8],
}

thread_local! {
    /// The tiles of this thread. Only the handler refers to them.
    static TILES: UnsafeCell<TileFile> = const {
        UnsafeCell::new(TileFile {
            is_configured: false,
            rows: [0; 8],
            row_bytes: [0; 8],
            tiles: [[[0; 64]; 16]; 8],
        })
    };
}

/// Numbers as the instructions see them: zeros where they are subnormal.
#[target_feature(enable = "avx512f,avx512dq")]
fn flushed(v: __m512) -> __m512 {
    let subnormal = _mm512_fpclass_ps_mask::<0x20>(v);
    _mm512_mask_and_ps(v, subnormal, v, _mm512_set1_ps(-0.0))
}

/// The first, or second, bfloat16 number of each pair of a row.
#[target_feature(enable = "avx512f,avx512dq")]
fn numbers(row: &[u8; 64], second: bool) -> __m512 {
    // SAFETY: the row has 64 bytes.
    let pairs = unsafe { _mm512_loadu_si512(row.as_ptr().cast()) };
    let high = if second { pairs } else { _mm512_slli_epi32::<16>(pairs) };
    flushed(_mm512_castsi512_ps(_mm512_and_si512(high, _mm512_set1_epi32(0xFFFF_0000_u32 as i32))))
}

impl TileFile {
    /// Emulates `ldtilecfg`: reads the sizes of all tiles, and clears them.
    unsafe fn configure(&mut self, from: *const u8) {
        // SAFETY: the caller guarantees 64 bytes.
        let bytes = unsafe { std::slice::from_raw_parts(from, 64) };
        assert!(bytes[0] == 1 && bytes[1] == 0, "palette 1, from the first row");
        assert!(bytes[2..16].iter().chain(&bytes[32..48]).chain(&bytes[56..]).all(|&byte| byte == 0));
        for tile in 0..8 {
            self.row_bytes[tile] = usize::from(bytes[16 + 2 * tile]) | usize::from(bytes[17 + 2 * tile]) << 8;
            self.rows[tile] = usize::from(bytes[48 + tile]);
            assert!(self.row_bytes[tile] <= 64 && self.rows[tile] <= 16, "a tile that is too large");
        }
        self.tiles = [[[0; 64]; 16]; 8];
        self.is_configured = true;
    }

    /// Emulates `tilezero`: clears a tile.
    fn zero(&mut self, tile: usize) {
        self.tiles[tile] = [[0; 64]; 16];
    }

    /// Emulates `tileloadd`, and `tileloaddt1`, which differs in a hint: loads the rows of a tile.
    unsafe fn load(&mut self, tile: usize, from: *const u8, stride: isize) {
        self.zero(tile);
        for row in 0..self.rows[tile] {
            let to = self.tiles[tile][row].as_mut_ptr();
            // SAFETY: the caller guarantees the rows.
            unsafe {
                from.wrapping_offset(row as isize * stride).copy_to_nonoverlapping(to, self.row_bytes[tile]);
            }
        }
    }

    /// Emulates `tilestored`: stores the rows of a tile.
    unsafe fn store(&self, tile: usize, to: *mut u8, stride: isize) {
        for row in 0..self.rows[tile] {
            let from = self.tiles[tile][row].as_ptr();
            // SAFETY: the caller guarantees the rows.
            unsafe {
                to.wrapping_offset(row as isize * stride)
                    .copy_from_nonoverlapping(from, self.row_bytes[tile]);
            }
        }
    }

    /// Emulates `tdpbf16ps`: adds the product of two tiles of bfloat16 to a tile of floats.
    #[target_feature(enable = "avx512f,avx512dq")]
    fn dot(&mut self, c: usize, a: usize, b: usize) {
        self.check((c, a, b));
        for m in 0..self.rows[c] {
            let mut sums = [_mm512_setzero_ps(); 2];
            for (half, sum) in sums.iter_mut().enumerate() {
                let left = numbers(&self.tiles[a][m], half == 1);
                for pair in 0..self.rows[b] {
                    let x = _mm512_permutexvar_ps(_mm512_set1_epi32(pair as i32), left);
                    let y = numbers(&self.tiles[b][pair], half == 1);
                    *sum = flushed(_mm512_fmadd_ps(x, y, *sum));
                }
            }
            let row = self.tiles[c][m].as_mut_ptr().cast();
            let sum = flushed(_mm512_add_ps(sums[0], sums[1]));
            // SAFETY: a row has 64 bytes, and those beyond its configured length are zeros in all tiles.
            unsafe {
                let sum = flushed(_mm512_add_ps(flushed(_mm512_loadu_ps(row)), sum));
                _mm512_storeu_ps(row, sum);
            }
        }
        self.tiles[c][self.rows[c]..].fill([0; 64]);
    }

    /// Emulates `tdpbssd`, `tdpbsud`, `tdpbusd` and `tdpbuud`: adds the product of two tiles of bytes to a tile of
    /// integers. A signed byte is one of -128 to 127, another one of 0 to 255.
    fn dot_bytes(&mut self, (c, a, b): (usize, usize, usize), [is_left_signed, is_right_signed]: [bool; 2]) {
        self.check((c, a, b));
        let number = |byte: u8, is_signed: bool| {
            if is_signed { i32::from(byte.cast_signed()) } else { i32::from(byte) }
        };
        for m in 0..self.rows[c] {
            for n in 0..self.row_bytes[c] / 4 {
                let at = 4 * n..4 * n + 4;
                let mut sum = i32::from_le_bytes(std::array::from_fn(|i| self.tiles[c][m][at.start + i]));
                for four in 0..self.rows[b] {
                    for i in 0..4 {
                        let left = number(self.tiles[a][m][4 * four + i], is_left_signed);
                        let right = number(self.tiles[b][four][at.start + i], is_right_signed);
                        sum = sum.wrapping_add(left * right);
                    }
                }
                self.tiles[c][m][at].copy_from_slice(&sum.to_le_bytes());
            }
        }
        self.tiles[c][self.rows[c]..].fill([0; 64]);
    }

    /// Panics unless these tiles are different and have sizes that fit a product.
    fn check(&self, (c, a, b): (usize, usize, usize)) {
        assert!(c != a && c != b && a != b, "three different tiles");
        assert!(self.rows[c] == self.rows[a] && self.row_bytes[c] == self.row_bytes[b]);
        assert!(self.row_bytes[a] / 4 == self.rows[b]);
    }

    /// Runs the instruction at `code`, and returns its length. None if it is not one of AMX.
    ///
    /// # Safety
    /// `code` must be an instruction that this thread executes with these registers.
    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn run(&mut self, code: *const u8, register: impl Fn(usize) -> usize) -> Option<usize> {
        // SAFETY: the caller guarantees an instruction, and the longest one that is read has ten bytes.
        let byte = |i: usize| usize::from(unsafe { code.add(i).read() });
        // A prefix of three bytes: the second table of instructions, 32 bits, 128 bits.
        if byte(0) != 0xC4 || byte(1) & 0x1F != 2 || byte(2) & 0x84 != 0 {
            return None;
        }
        let (high_index, high_base) =
            (8 * usize::from(byte(1) & 0x40 == 0), 8 * usize::from(byte(1) & 0x20 == 0));
        let (prefix, third) = (byte(2) & 3, !(byte(2) >> 3) & 0xF);
        let (kind, tile, low) = (byte(4) >> 6, byte(4) >> 3 & 7, byte(4) & 7);
        if (byte(3), kind) == (0x5C, 3) && prefix == 2 && self.is_configured {
            self.dot(tile, low, third & 7);
            return Some(5);
        }
        if (byte(3), kind) == (0x5E, 3) && self.is_configured {
            self.dot_bytes((tile, low, third & 7), [prefix >= 2, prefix % 2 == 1]);
            return Some(5);
        }
        if (byte(3), prefix, byte(4)) == (0x49, 0, 0xC0) {
            self.is_configured = false;
            return Some(5);
        }
        if kind == 3 {
            assert!(byte(3) == 0x49 && prefix == 3 && self.is_configured);
            self.zero(tile);
            return Some(5);
        }
        // An address: a base, an index with a scale if the next byte is there, and a distance of no, 1 or 4 bytes.
        let has_index = low == 4;
        let (base, stride) = if has_index {
            let index = byte(5) >> 3 & 7 | high_index;
            let stride = if index == 4 { 0 } else { register(index) << (byte(5) >> 6) };
            assert!(byte(5) & 7 != 5 || kind != 0, "an address without a base");
            (register(byte(5) & 7 | high_base), stride)
        } else {
            assert!(low != 5 || kind != 0, "an address without a base");
            (register(low | high_base), 0)
        };
        let at = 5 + usize::from(has_index);
        let (distance, bytes) = match kind {
            0 => (0, 0),
            1 => (byte(at) as u8 as i8 as isize, 1),
            // SAFETY: the instruction ends with these bytes.
            _ => (unsafe { code.add(at).cast::<i32>().read_unaligned() } as isize, 4),
        };
        let address = (base as *mut u8).wrapping_offset(distance);
        // SAFETY: the instruction accesses the same memory.
        unsafe {
            match (byte(3), prefix) {
                (0x49, 0) => self.configure(address),
                (0x4B, 1 | 3) if self.is_configured && has_index => self.load(tile, address, stride as isize),
                (0x4B, 2) if self.is_configured && has_index => self.store(tile, address, stride as isize),
                _ => return None,
            }
        }
        Some(at + bytes)
    }
}

/// The numbers of registers in the context of a signal, in the order of the code of instructions.
const REGISTERS: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Runs an instruction of AMX and continues after it. Any other one ends the process.
extern "C" fn handle(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes the context of the thread, which executes nothing else meanwhile. The caller of `trap`
    // guarantees the instructions.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let code = registers[libc::REG_RIP as usize] as *const u8;
        let register = |number: usize| registers[REGISTERS[number] as usize] as usize;
        let length = TILES.with(|tiles| (*tiles.get()).run(code, register));
        match length {
            Some(length) => registers[libc::REG_RIP as usize] += length as i64,
            None => {
                libc::signal(libc::SIGILL, libc::SIG_DFL);
            }
        }
    }
}

/// From now on threads of this process run instructions of AMX, on the machine if it has them. Otherwise it must have
/// AVX-512.
pub(in crate::kernels) fn trap() {
    static TRAPPED: Once = Once::new();
    TRAPPED.call_once(|| {
        if [TileNumbers::Bfloat16, TileNumbers::Integers].into_iter().all(machine::multiplies_tiles) {
            return;
        }
        // SAFETY: the handler has the type that the flag says.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()), 0);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::arch::asm;

    use super::trap;
    use crate::kernels::amx::{TILE_BYTES, TILE_ROWS, TilesInUse};

    /// Bytes of a tile.
    const BYTES: usize = TILE_ROWS * TILE_BYTES;

    /// Makes a function that adds the product of two tiles to a third one.
    macro_rules! product {
        ($name:ident, $dot:literal) => {
            fn $name(a: &[u8; BYTES], b: &[u8; BYTES], c: &mut [i32; BYTES / 4]) {
                // SAFETY: the instructions run, and all tiles are whole.
                unsafe {
                    let _tiles = TilesInUse::new();
                    asm!(
                        "tileloadd tmm3, [{c} + {row}]",
                        "tileloadd tmm5, [{a} + {row}]",
                        "tileloaddt1 tmm7, [{b} + {row}]",
                        concat!($dot, " tmm3, tmm5, tmm7"),
                        "tilestored [{c} + {row}], tmm3",
                        a = in(reg) a,
                        b = in(reg) b,
                        c = in(reg) c,
                        row = in(reg) TILE_BYTES,
                        out("tmm3") _, out("tmm5") _, out("tmm7") _,
                        options(nostack),
                    );
                }
            }
        };
    }
    product!(signed_by_signed, "tdpbssd");
    product!(signed_by_unsigned, "tdpbsud");
    product!(unsigned_by_signed, "tdpbusd");
    product!(unsigned_by_unsigned, "tdpbuud");

    #[test]
    fn bytes_have_the_signs_that_the_name_of_the_instruction_says() {
        if !is_x86_feature_detected!("avx512dq") {
            return;
        }
        trap();
        let a: [u8; BYTES] = std::array::from_fn(|i| ((i * 7919 + 31) % 1009) as u8);
        let b: [u8; BYTES] = std::array::from_fn(|i| ((i * 6007 + 5) % 1013) as u8);
        let start = |i: usize| if i.is_multiple_of(3) { i32::MAX } else { i as i32 };
        let number =
            |byte: u8, signed: bool| if signed { i32::from(byte.cast_signed()) } else { byte.into() };
        let all: [(fn(&_, &_, &mut _), bool, bool); 4] = [
            (signed_by_signed, true, true),
            (signed_by_unsigned, true, false),
            (unsigned_by_signed, false, true),
            (unsigned_by_unsigned, false, false),
        ];
        for (multiply, left, right) in all {
            let mut c: [i32; BYTES / 4] = std::array::from_fn(start);
            multiply(&a, &b, &mut c);
            for (i, c) in c.iter().enumerate() {
                let (m, n) = (i / TILE_ROWS, i % TILE_ROWS);
                let term = |k: usize| {
                    let (x, y) = (a[m * TILE_BYTES + k], b[k / 4 * TILE_BYTES + 4 * n + k % 4]);
                    number(x, left) * number(y, right)
                };
                assert_eq!(
                    *c,
                    start(i).wrapping_add((0..TILE_BYTES).map(term).sum::<i32>()),
                    "{left} {right}"
                );
            }
        }
    }
}
