//! Vectors of numbers, and the choice of an instruction set for this machine. Knows registers, not loops.

#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;
pub(crate) mod row;
mod tables;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use std::sync::OnceLock;

use super::{Float, Movable};
use crate::environment::{self, WrongSetting};
pub(crate) use tables::tables;

/// An instruction set for which kernels are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Isa {
    Portable,
    Neon,
    Avx2,
    Avx512,
}

impl Isa {
    /// The name, as in `KINNOR_ISA`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

/// The best instruction set of this machine, or a lower one if the environment sets `KINNOR_ISA=avx2` or `portable`.
pub fn isa() -> Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    *ISA.get_or_init(|| {
        let best = detect();
        match isa_of_environment() {
            Ok(Some(Isa::Portable)) => Isa::Portable,
            Ok(Some(Isa::Avx2)) if best == Isa::Avx512 => Isa::Avx2,
            _ => best,
        }
    })
}

/// The highest instruction set that the environment allows, if set.
pub(crate) fn isa_of_environment() -> Result<Option<Isa>, WrongSetting> {
    let all = [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512];
    let known = |name: &str| all.into_iter().find(|isa| isa.name() == name);
    environment::setting("KINNOR_ISA", "portable, neon, avx2 or avx512", known)
}

/// The best set of vector instructions of this machine.
fn detect() -> Isa {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("fma")
        {
            return Isa::Avx512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Isa::Avx2;
        }
    }
    if cfg!(target_arch = "aarch64") { Isa::Neon } else { Isa::Portable }
}

/// True if this machine multiplies pairs of bfloat16 numbers.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_pairs() -> bool {
    static HAS_PAIRS: OnceLock<bool> = OnceLock::new();
    *HAS_PAIRS.get_or_init(|| isa() == Isa::Avx512 && is_x86_feature_detected!("avx512bf16"))
}

/// Runs `work` as compiled for the best instruction set of this machine, so that its loops are vectorized.
///
/// `work` and the formulas in it must be `#[inline(always)]`. Test builds, which do not vectorize, contain a single
/// copy, since these copies are most of what such a build has to compile.
#[inline(always)]
pub fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    vectorised_for::<f32, R>(work)
}

/// As [`vectorised`], for elements `T`. There is no copy with AVX-512 for `f64`, since few programs use it.
#[inline(always)]
pub(crate) fn vectorised_for<T, R>(work: impl FnOnce() -> R) -> R {
    vectorised_loop::<T, R>(
        #[inline(always)]
        |_| work(),
    )
}

/// As [`vectorised_for`]. `work` receives true if registers are short: then it should compute a few elements at a time.
#[inline(always)]
#[allow(clippy::extra_unused_type_parameters)] // test builds contain a single copy
pub(crate) fn vectorised_loop<T, R>(work: impl FnOnce(bool) -> R) -> R {
    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    {
        /// Runs `work` with AVX-512.
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma")]
        fn avx512<R>(work: impl FnOnce(bool) -> R) -> R {
            work(false)
        }
        /// Runs `work` with AVX2 and FMA.
        #[target_feature(enable = "avx2,fma")]
        fn avx2<R>(work: impl FnOnce(bool) -> R) -> R {
            work(false)
        }
        match isa() {
            // SAFETY: the machine has the instructions.
            Isa::Avx512 if const { size_of::<T>() < size_of::<f64>() } => return unsafe { avx512(work) },
            // SAFETY: as above. A machine with AVX-512 has AVX2.
            Isa::Avx512 | Isa::Avx2 => return unsafe { avx2(work) },
            Isa::Portable | Isa::Neon => {}
        }
    }
    work(cfg!(target_arch = "x86_64"))
}

/// As [`vectorised`], for loops with numbers that are widened from 16 bits if `NARROW`. These are compiled only for
/// AVX-512, where [`has_registers`](super::sixteen_bits::has_registers) may be true.
#[inline(always)]
pub(crate) fn vectorised_of<R, const NARROW: bool>(work: impl FnOnce() -> R) -> R {
    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    if NARROW {
        /// Runs `work` with AVX-512.
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma")]
        fn avx512<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        assert!(isa() == Isa::Avx512, "a machine without registers for elements of 16 bits");
        // SAFETY: the machine has the instructions.
        return unsafe { avx512(work) };
    }
    vectorised(work)
}

/// Work that is written in registers of any width.
pub trait Work<T> {
    /// The result.
    type Output;

    /// Runs the work. Must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The instructions of `V` must be available.
    unsafe fn run<V: Vector<T = T>>(self) -> Self::Output;
}

/// Makes a function that runs [`Work`] on one type with the best instruction set of this machine.
macro_rules! in_registers {
    ($name:ident, $t:ty, $avx512:ident, $avx2:ident, $neon:ident) => {
        /// Runs work in the registers of this machine.
        #[inline]
        pub(super) fn $name<W: Work<$t>>(work: W) -> W::Output {
            #[cfg(target_arch = "x86_64")]
            {
                /// Runs `work` in registers of AVX-512.
                #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma")]
                fn avx512<W: Work<$t>>(work: W) -> W::Output {
                    // SAFETY: the function has the instruction set. Same below.
                    unsafe { work.run::<x86::$avx512>() }
                }
                /// Runs `work` in registers of AVX2.
                #[target_feature(enable = "avx2,fma")]
                fn avx2<W: Work<$t>>(work: W) -> W::Output {
                    // SAFETY: as above.
                    unsafe { work.run::<x86::$avx2>() }
                }
                match isa() {
                    // SAFETY: the machine has the instructions.
                    Isa::Avx512 => return unsafe { avx512(work) },
                    // SAFETY: as above.
                    Isa::Avx2 => return unsafe { avx2(work) },
                    Isa::Portable | Isa::Neon => {}
                }
            }
            #[cfg(target_arch = "aarch64")]
            if isa() == Isa::Neon {
                // SAFETY: these instructions are always available.
                return unsafe { work.run::<neon::$neon>() };
            }
            // SAFETY: plain instructions.
            unsafe { work.run::<portable::Four<$t>>() }
        }
    };
}
in_registers!(in_registers_f32, f32, F32x16, F32x8, F32x4);
in_registers!(in_registers_f64, f64, F64x8, F64x4, F64x2);

/// Runs work that loads and stores elements of half precision if `HALF`, otherwise of bfloat16.
///
/// # Panics
/// If the machine has no registers for such elements.
pub(super) fn in_registers_of_sixteen_bits<W: Work<f32>, const HALF: bool>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        /// Runs `work` in registers of AVX-512.
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma")]
        fn avx512<W: Work<f32>>(work: W) -> W::Output {
            // SAFETY: the function has the instruction set. Same below.
            unsafe { work.run::<x86::F32x16>() }
        }
        /// Runs `work` in registers of AVX-512 with BF16.
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma,avx512bf16")]
        fn with_pairs<W: Work<f32>>(work: W) -> W::Output {
            // SAFETY: as above.
            unsafe { work.run::<x86::F32x16>() }
        }
        if HALF && isa() == Isa::Avx512 {
            // SAFETY: the machine has the instructions.
            return unsafe { avx512(work) };
        }
        if !HALF && has_pairs() {
            // SAFETY: as above.
            return unsafe { with_pairs(work) };
        }
    }
    drop(work);
    no_registers_of_sixteen_bits()
}

/// Numbers in the longest register.
pub(crate) const WIDEST: usize = 16;

/// A register of `WIDTH` numbers.
///
/// # Safety
/// Every function requires the instructions of the type. Functions with a pointer require the elements to be readable
/// or writable. All must be inlined into a function that has the instructions.
#[allow(missing_docs, clippy::missing_safety_doc)] // documented for all
pub unsafe trait Vector: Copy {
    type T: Float;
    type Mask: Copy;
    /// Numbers in a register.
    const WIDTH: usize;
    /// True if few programs use the registers: those for `f64`, and the ones that the compiler chooses. Loops then
    /// count at run time, since unrolled copies would be large.
    const IS_RARE: bool = size_of::<Self::T>() == size_of::<f64>();
    /// True if an instruction multiplies by one lane of a register.
    const HAS_LANES: bool = false;

    /// Zero in all lanes.
    unsafe fn zero() -> Self;
    /// `v` in all lanes.
    unsafe fn all(v: Self::T) -> Self;
    /// Loads `WIDTH` elements. No alignment is needed.
    unsafe fn load(p: *const Self::T) -> Self;
    /// Stores all lanes. No alignment is needed.
    unsafe fn store(self, p: *mut Self::T);
    /// The elements of `p` with these indices.
    #[inline(always)]
    unsafe fn gather(p: *const Self::T, numbers: *const i32) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let of =
                |i| if i < Self::WIDTH { p.offset(*numbers.add(i) as isize).read() } else { Self::T::ZERO };
            Self::load(std::array::from_fn::<_, { WIDEST }, _>(of).as_ptr())
        }
    }
    /// The first `n` of `WIDTH` lanes. All if `n` is larger.
    unsafe fn first(n: usize) -> Self::Mask;
    /// The lanes from `start` to `end`, excluding `end`. None if `end` comes first.
    unsafe fn between(start: usize, end: usize) -> Self::Mask;
    /// Loads the lanes for which the mask is true, and sets the others to zero. Reads no memory for those.
    unsafe fn load_masked(p: *const Self::T, mask: Self::Mask) -> Self;
    /// Stores the lanes for which the mask is true, and leaves the memory of the others.
    unsafe fn store_masked(self, p: *mut Self::T, mask: Self::Mask);
    /// Widens elements of half precision if `HALF`, otherwise of bfloat16. Loads all of them or the lanes of a mask.
    ///
    /// # Panics
    /// If the machine has no registers for the type, and in registers of `f64`.
    #[inline(always)]
    unsafe fn widen<const HALF: bool>(_: *const u16, _: Option<Self::Mask>) -> Self {
        no_registers_of_sixteen_bits()
    }
    /// Rounds to half precision if `HALF`, otherwise to bfloat16. Stores all lanes or the lanes of a mask.
    ///
    /// # Panics
    /// As [`Vector::widen`].
    #[inline(always)]
    unsafe fn narrow<const HALF: bool>(self, _: *mut u16, _: Option<Self::Mask>) {
        no_registers_of_sixteen_bits()
    }
    /// The sum, lane by lane.
    unsafe fn add(self, other: Self) -> Self;
    /// The difference, lane by lane.
    unsafe fn sub(self, other: Self) -> Self;
    /// The product, lane by lane.
    unsafe fn mul(self, other: Self) -> Self;
    /// The larger one, or `other` where either is NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// `yes` where this is larger than `other`, otherwise `no`.
    unsafe fn where_larger(self, other: Self, yes: Self, no: Self) -> Self;
    /// One bit per lane, set if equal, from the lowest on.
    unsafe fn equal(self, other: Self) -> u32;
    /// The lanes for which the mask is true, and zero in the others.
    unsafe fn keep(self, mask: Self::Mask) -> Self;
    /// `self * a + b`.
    unsafe fn mul_add(self, a: Self, b: Self) -> Self;
    /// `self[lane] * a + b`, for a lane that the compiler knows.
    #[inline(always)]
    unsafe fn lane_mul_add(self, lane: usize, a: Self, b: Self) -> Self {
        // SAFETY: as for every function here, and the array is as long as the widest register.
        unsafe {
            let mut lanes = [Self::T::ZERO; WIDEST];
            self.store(lanes.as_mut_ptr());
            Self::all(lanes[lane]).mul_add(a, b)
        }
    }
    /// Zero for negative numbers, otherwise the number. Zeros keep their sign, and NaN stays.
    unsafe fn relu(self) -> Self;
    /// Prefetches memory that will soon be read.
    unsafe fn prefetch(p: *const Self::T);
    /// Every other number of `a`, then of `b`, from the first on.
    unsafe fn evens(a: Self, b: Self) -> Self;
    /// Numbers of `a` and `b`, interleaved into two registers.
    unsafe fn weave(a: Self, b: Self) -> (Self, Self);
    /// Swaps the off-diagonal blocks of `D` x `D` of two rows of a matrix that are `D` apart: one step of a
    /// transpose.
    unsafe fn exchange<const D: usize>(a: Self, b: Self) -> (Self, Self);

    /// Transposes the square of the first `WIDTH` registers.
    #[inline(always)]
    unsafe fn transpose(v: &mut [Self; 16]) {
        // SAFETY: as for every function here.
        unsafe {
            exchange_all::<Self, 8>(v);
            exchange_all::<Self, 4>(v);
            exchange_all::<Self, 2>(v);
            exchange_all::<Self, 1>(v);
        }
    }
}

/// Ends a kernel that needs registers for elements of 16 bits on a machine without them.
#[cold]
fn no_registers_of_sixteen_bits() -> ! {
    unreachable!("a machine without registers for elements of 16 bits")
}

/// Exchanges the blocks of `D` lanes between registers, one step of a transposition.
#[inline(always)]
unsafe fn exchange_all<V: Vector, const D: usize>(v: &mut [V; 16]) {
    if D >= V::WIDTH {
        return;
    }
    for i in 0..V::WIDTH {
        if i & D == 0 {
            // SAFETY: the caller guarantees the instruction set.
            (v[i], v[i + D]) = unsafe { V::exchange::<D>(v[i], v[i + D]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Vector, Work, in_registers_f32, in_registers_f64};
    use crate::kernels::Float;

    /// Checks masks, interleaving and transposition in registers of one type.
    struct Lanes;

    impl<T: Float> Work<T> for Lanes {
        type Output = ();

        #[inline(always)]
        unsafe fn run<V: Vector<T = T>>(self) {
            let numbers: Vec<T> = (0..2 * V::WIDTH).map(|i| T::of(i as f64 + 1.0)).collect();
            let (p, n) = (numbers.as_ptr(), V::WIDTH);
            // SAFETY: the caller guarantees the instruction set, and all memory accessed is valid.
            unsafe {
                let lanes = |v: V| {
                    let mut lanes = vec![T::ZERO; n];
                    v.store(lanes.as_mut_ptr());
                    lanes
                };
                for (start, end) in (0..n + 3).flat_map(|start| (0..n + 3).map(move |end| (start, end))) {
                    let kept = |i: usize| if i >= start && i < end { numbers[i] } else { T::ZERO };
                    let expected: Vec<T> = (0..n).map(kept).collect();
                    let mask = V::between(start, end);
                    assert_eq!(lanes(V::load_masked(p, mask)), expected, "loads {start}..{end}");
                    assert_eq!(lanes(V::load(p).keep(mask)), expected, "keeps {start}..{end}");
                    let mut stored = vec![T::ZERO; n];
                    V::load(p).store_masked(stored.as_mut_ptr(), mask);
                    assert_eq!(stored, expected, "stores {start}..{end}");
                }
                let (a, b) = (V::load(p), V::load(p.add(n)));
                let (low, high) = V::weave(a, b);
                let woven: Vec<T> = (0..2 * n).map(|i| numbers[i / 2 + i % 2 * n]).collect();
                assert_eq!([lanes(low), lanes(high)].concat(), woven, "weaves");
                assert_eq!(lanes(V::evens(low, high)), numbers[..n], "takes apart what it wove");
                for lane in 0..n {
                    let expected: Vec<T> =
                        (0..n).map(|i| numbers[lane] * numbers[i + n] + numbers[i]).collect();
                    assert_eq!(lanes(a.lane_mul_add(lane, b, a)), expected, "lane {lane}");
                }
                let square: Vec<T> = (0..n * n).map(|i| T::of(i as f64)).collect();
                let mut rows = [V::zero(); 16];
                for (i, row) in rows.iter_mut().enumerate().take(n) {
                    *row = V::load(square.as_ptr().add(i * n));
                }
                V::transpose(&mut rows);
                for (i, row) in rows.into_iter().enumerate().take(n) {
                    let column: Vec<T> = square[i..].iter().step_by(n).copied().collect();
                    assert_eq!(lanes(row), column, "column {i}");
                }
            }
        }
    }

    #[test]
    fn registers_mask_interleave_and_transpose() {
        in_registers_f32(Lanes);
        in_registers_f64(Lanes);
    }
}
