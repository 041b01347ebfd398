//! Tables of kernels: a family has one for each instruction set and type of number, and selects the one for this
//! machine.

/// Makes the tables of a family. `$make!(NAME, vector, number, [rows of a tile], features)` declares one table: a
/// static `NAME` of the family's type `Kernels`. `kernels::<T>()` returns the table of this machine for `T`.
macro_rules! tables {
    ($make:ident) => {
        $make!(PORTABLE_F32, crate::kernels::simd::portable::Four<f32>, f32, [1 2 3 4]);
        $make!(PORTABLE_F64, crate::kernels::simd::portable::Four<f64>, f64, [1 2 3 4]);

        // As many rows as the registers hold, with two left for a row of the right matrix and one for an element of
        // the left.
        #[cfg(target_arch = "x86_64")]
        mod best {
            #[allow(clippy::wildcard_imports)]
            use super::*;
            use crate::kernels::simd::x86::{F32x8, F32x16, F64x4, F64x8};
            use crate::kernels::simd::{Isa, isa};

            $make!(AVX512_F32, F32x16, f32, [1 2 3 4 5 6 7 8 9 10 11 12], "avx512f");
            $make!(AVX512_F64, F64x8, f64, [1 2 3 4 5 6 7 8 9 10 11 12], "avx512f");
            $make!(AVX2_F32, F32x8, f32, [1 2 3 4 5 6], "avx2,fma");
            $make!(AVX2_F64, F64x4, f64, [1 2 3 4 5 6], "avx2,fma");

            /// The table of the best instruction set of this machine for `f32`. None if only portable code runs.
            pub(super) fn f32() -> Option<&'static Kernels<f32>> {
                match isa() {
                    Isa::Avx512 => Some(&AVX512_F32),
                    Isa::Avx2 => Some(&AVX2_F32),
                    _ => None,
                }
            }

            /// The table of the best instruction set of this machine for `f64`. None if only portable code runs.
            pub(super) fn f64() -> Option<&'static Kernels<f64>> {
                match isa() {
                    Isa::Avx512 => Some(&AVX512_F64),
                    Isa::Avx2 => Some(&AVX2_F64),
                    _ => None,
                }
            }
        }

        #[cfg(target_arch = "aarch64")]
        mod best {
            #[allow(clippy::wildcard_imports)]
            use super::*;
            use crate::kernels::simd::neon::{F32x4, F64x2};
            use crate::kernels::simd::{Isa, isa};

            $make!(NEON_F32, F32x4, f32, [1 2 3 4 5 6 7 8 9 10 11 12]);
            $make!(NEON_F64, F64x2, f64, [1 2 3 4 5 6 7 8 9 10 11 12]);

            /// The NEON table for `f32`, if the machine has NEON.
            pub(super) fn f32() -> Option<&'static Kernels<f32>> {
                (isa() == Isa::Neon).then_some(&NEON_F32)
            }

            /// The NEON table for `f64`, if the machine has NEON.
            pub(super) fn f64() -> Option<&'static Kernels<f64>> {
                (isa() == Isa::Neon).then_some(&NEON_F64)
            }
        }

        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        mod best {
            use super::Kernels;

            /// None: there is only portable code here.
            pub(super) fn f32() -> Option<&'static Kernels<f32>> {
                None
            }

            /// None: there is only portable code here.
            pub(super) fn f64() -> Option<&'static Kernels<f64>> {
                None
            }
        }

        /// The table of this machine, for each type of number.
        struct OfMachine;

        impl crate::kernels::PerFloat for OfMachine {
            type Of<T: Float> = &'static Kernels<T>;

            #[inline]
            fn f32() -> &'static Kernels<f32> {
                best::f32().unwrap_or(&PORTABLE_F32)
            }

            #[inline]
            fn f64() -> &'static Kernels<f64> {
                best::f64().unwrap_or(&PORTABLE_F64)
            }
        }

        /// The kernels of this machine.
        #[inline(always)]
        pub(in crate::kernels) fn kernels<T: Float>() -> &'static Kernels<T> {
            T::choose::<OfMachine>()
        }
    };
}
pub(crate) use tables;
