//! Tables of 256 bytes.

#[cfg(target_arch = "x86_64")]
use crate::kernels::simd::{Isa, isa};

/// Looks up each byte in a table.
pub(super) fn in_table(x: &[u8], table: &[u8; 256], y: &mut [u8]) {
    assert_eq!(x.len(), y.len());
    #[cfg(target_arch = "x86_64")]
    if isa() == Isa::Avx512 && is_x86_feature_detected!("avx512vbmi") {
        // SAFETY: the machine has the instructions.
        return unsafe { in_registers(x, table, y) };
    }
    one_by_one(x, table, y);
}

/// Looks up bytes without vector instructions.
fn one_by_one(x: &[u8], table: &[u8; 256], y: &mut [u8]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = table[usize::from(*x)]);
}

/// The table in four registers. Two lookups cover the halves of the table, and the highest bit selects the result.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn in_registers(x: &[u8], table: &[u8; 256], y: &mut [u8]) {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;
    /// The bytes in a register.
    const WIDE: usize = 64;

    // SAFETY: a quarter of the table is readable.
    let quarter = |i: usize| unsafe { _mm512_loadu_si512(table.as_ptr().add(i * WIDE).cast()) };
    let quarters: [__m512i; 4] = [quarter(0), quarter(1), quarter(2), quarter(3)];
    let (whole, rest) = x.as_chunks::<WIDE>();
    let (to, rest_to) = y.as_chunks_mut::<WIDE>();
    for (x, y) in whole.iter().zip(to) {
        // SAFETY: this many bytes are readable and writable.
        unsafe {
            let at = _mm512_loadu_si512(x.as_ptr().cast());
            let low = _mm512_permutex2var_epi8(quarters[0], at, quarters[1]);
            let high = _mm512_permutex2var_epi8(quarters[2], at, quarters[3]);
            let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high);
            _mm512_storeu_si512(y.as_mut_ptr().cast(), found);
        }
    }
    one_by_one(rest, table, rest_to);
}

#[cfg(test)]
mod tests {
    use super::{in_table, one_by_one};

    #[test]
    fn every_byte_is_looked_up_at_its_index() {
        let table: [u8; 256] = std::array::from_fn(|i| (i * 7 + 3) as u8);
        for n in [0, 1, 63, 64, 65, 300] {
            let x: Vec<u8> = (0..n).map(|i| (i * 11) as u8).collect();
            let (mut found, mut expected) = (vec![0; n], vec![0; n]);
            in_table(&x, &table, &mut found);
            one_by_one(&x, &table, &mut expected);
            assert_eq!(found, expected);
            assert!(x.iter().zip(&found).all(|(x, y)| *y == table[usize::from(*x)]));
        }
    }
}
