//! Products of bfloat16 numbers with the instruction `bfmmla` of 64-bit ARM, which machines with FEAT_BF16 have.

pub(super) mod pack;
pub(super) mod tile;

/// True if this machine has the instructions, and may use them.
pub(in crate::kernels::gemm) fn has_pairs() -> bool {
    use crate::kernels::simd::{Isa, isa};
    static HAS_PAIRS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *HAS_PAIRS.get_or_init(|| isa() == Isa::Neon && std::arch::is_aarch64_feature_detected!("bf16"))
}
