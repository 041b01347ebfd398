//! Conversion between `f32` and the types of 16 bits, on all threads, and the values that kernels read in either type.

#[cfg(target_arch = "aarch64")]
mod halves;
#[cfg(target_arch = "x86_64")]
mod registers;
#[cfg(target_arch = "x86_64")]
mod rounding;

use std::marker::PhantomData;

use half::{bf16, f16};

pub(crate) use crate::array::sixteen::bits_of;
use crate::array::{Buffer, DType, Element, Workspace, sixteen};
#[cfg(target_arch = "x86_64")]
use crate::kernels::simd::has_pairs;
use crate::kernels::simd::vectorised;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::kernels::simd::{Isa, isa};
use crate::kernels::threads::{Shared, ranges};
use crate::kernels::{Float, PerFloat, Stored, stop};

#[cfg(target_arch = "x86_64")]
pub(crate) use registers::{LANES, put_in_registers};

/// True if this machine has loops that widen elements of a type of 16 bits in registers.
pub(crate) fn has_registers(stored: DType) -> bool {
    #[cfg(target_arch = "x86_64")]
    return match stored {
        DType::BF16 => has_pairs(),
        _ => isa() == Isa::Avx512,
    };
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = stored;
        false
    }
}

/// Elements that a thread converts at a time.
const GRAIN: usize = 1 << 15;

/// Elements of an array that a kernel reads as numbers of type `T`.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a, T> {
    /// Numbers of the type.
    Exact(&'a [T]),
    /// The same. Products round them to bfloat16.
    Rounded(&'a [T]),
    /// Numbers in bfloat16.
    BFloat16(&'a [bf16]),
}

impl<'a, T> From<&'a [T]> for Values<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self::Exact(values)
    }
}

/// Elements of an array that a kernel writes.
#[derive(Debug)]
pub enum ValuesMut<'a, T> {
    /// Numbers of the kernel's type.
    Exact(&'a mut [T]),
    /// Numbers in bfloat16.
    BFloat16(&'a mut [bf16]),
}

impl<'a, T> From<&'a mut [T]> for ValuesMut<'a, T> {
    fn from(values: &'a mut [T]) -> Self {
        Self::Exact(values)
    }
}

impl<T: Float> Values<'_, T> {
    /// The number of elements.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> usize {
        match self {
            Self::Exact(v) | Self::Rounded(v) => v.len(),
            Self::BFloat16(v) => v.len(),
        }
    }

    /// The address of the first element.
    pub fn ptr(self) -> *const u8 {
        match self {
            Self::Exact(v) | Self::Rounded(v) => v.as_ptr().cast(),
            Self::BFloat16(v) => v.as_ptr().cast(),
        }
    }

    /// Elements `start..start + n`.
    #[must_use]
    pub fn part(self, start: usize, n: usize) -> Self {
        match self {
            Self::Exact(v) => Self::Exact(&v[start..start + n]),
            Self::Rounded(v) => Self::Rounded(&v[start..start + n]),
            Self::BFloat16(v) => Self::BFloat16(&v[start..start + n]),
        }
    }

    /// The elements from `start` on, if there are any.
    #[must_use]
    pub fn from(self, start: usize) -> Self {
        let start = start.min(self.len());
        self.part(start, self.len() - start)
    }

    /// Other numbers that products round if they round these.
    pub fn with(self, others: &[T]) -> Values<'_, T> {
        match self {
            Self::Exact(_) => Values::Exact(others),
            Self::Rounded(_) | Self::BFloat16(_) => Values::Rounded(others),
        }
    }

    /// Calls `f` with the elements as numbers of type `T`, in scratch memory if they are stored in another type.
    pub fn widened<R>(self, f: impl FnOnce(&[T]) -> R) -> R {
        match self {
            Self::Exact(v) | Self::Rounded(v) => f(v),
            Self::BFloat16(v) => {
                let memory = memory::<T>(v.len());
                let to = T::choose::<Conversion>();
                // SAFETY: the memory holds as many numbers.
                unsafe {
                    (to.widen)(v, memory.ptr());
                    f(std::slice::from_raw_parts(memory.ptr(), v.len()))
                }
            }
        }
    }
}

impl<T: Float> ValuesMut<'_, T> {
    /// The number of elements.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            Self::Exact(v) => v.len(),
            Self::BFloat16(v) => v.len(),
        }
    }

    /// The address of the first element.
    pub fn ptr(&mut self) -> *mut u8 {
        match self {
            Self::Exact(v) => v.as_mut_ptr().cast(),
            Self::BFloat16(v) => v.as_mut_ptr().cast(),
        }
    }

    /// Elements `start..start + n`.
    #[must_use]
    pub fn part(&mut self, start: usize, n: usize) -> ValuesMut<'_, T> {
        match self {
            Self::Exact(v) => ValuesMut::Exact(&mut v[start..start + n]),
            Self::BFloat16(v) => ValuesMut::BFloat16(&mut v[start..start + n]),
        }
    }

    /// The elements from `start` on, if there are any.
    #[must_use]
    pub fn from(&mut self, start: usize) -> ValuesMut<'_, T> {
        let start = start.min(self.len());
        self.part(start, self.len() - start)
    }

    /// The elements, for tasks that write different parts.
    pub fn shared(&mut self) -> SharedValues<T> {
        let is_narrow = matches!(self, Self::BFloat16(_));
        SharedValues { at: Shared::new(self.ptr()), is_narrow, of: PhantomData }
    }

    /// Sets every element to zero, unless values are added to them.
    pub fn zero_unless(&mut self, adds: bool) {
        match self {
            _ if adds => {}
            Self::Exact(v) => v.fill(T::ZERO),
            Self::BFloat16(v) => v.fill(bf16::ZERO),
        }
    }

    /// Calls `f` with the elements as numbers of type `T`, in scratch memory if they are stored in another type. The
    /// scratch memory has the previous elements only if `reads` is set.
    pub fn widened<R>(self, reads: bool, f: impl FnOnce(&mut [T]) -> R) -> R {
        match self {
            Self::Exact(v) => f(v),
            Self::BFloat16(v) => {
                let memory = memory::<T>(v.len());
                let of = T::choose::<Conversion>();
                // SAFETY: the memory holds as many numbers. Without `reads` it is only written.
                unsafe {
                    if reads {
                        (of.widen)(v, memory.ptr());
                    }
                    let done = f(std::slice::from_raw_parts_mut(memory.ptr(), v.len()));
                    (of.narrow)(memory.ptr(), v);
                    done
                }
            }
        }
    }
}

/// Elements that tasks of a loop write, each a part of its own.
#[derive(Clone, Copy)]
pub struct SharedValues<T> {
    /// The first element.
    at: Shared<u8>,
    /// True if elements are in bfloat16.
    is_narrow: bool,
    /// The type in which kernels compute.
    of: PhantomData<fn(T)>,
}

impl<T: Float> SharedValues<T> {
    /// Elements `start..start + n`.
    ///
    /// # Safety
    /// They must exist, and nothing else may use them meanwhile.
    pub unsafe fn part<'a>(self, start: usize, n: usize) -> ValuesMut<'a, T> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if self.is_narrow {
                let at = self.at.get().cast::<bf16>().add(start);
                ValuesMut::BFloat16(std::slice::from_raw_parts_mut(at, n))
            } else {
                ValuesMut::Exact(std::slice::from_raw_parts_mut(self.at.get().cast::<T>().add(start), n))
            }
        }
    }
}

/// True if elements are of 16 bits, and kernels compute with wider numbers.
#[inline(always)]
pub(crate) const fn is_narrow<E: Stored>() -> bool {
    size_of::<E>() < size_of::<E::Wide>()
}

/// The elements of an array for a kernel that works on parts of it, in numbers of type `T`. If `NARROW`, they are of
/// 16 bits, and converted from and to scratch memory.
#[derive(Clone, Copy)]
pub(crate) struct StoredElements<T, const NARROW: bool> {
    /// The first element.
    at: Shared<u8>,
    /// The type of the elements.
    dtype: DType,
    /// The type in which kernels compute.
    of: PhantomData<fn(T)>,
}

impl<T: Float, const NARROW: bool> StoredElements<T, NARROW> {
    /// Elements to be read.
    pub(crate) fn of<E: Stored<Wide = T>>(x: &[E]) -> Self {
        assert_eq!(NARROW, is_narrow::<E>());
        Self { at: Shared::read_only(x.as_ptr().cast()), dtype: E::DTYPE, of: PhantomData }
    }

    /// Elements to be written.
    pub(crate) fn of_mut<E: Stored<Wide = T>>(x: &mut [E]) -> Self {
        Self { at: Shared::new(x.as_mut_ptr().cast()), ..Self::of(x) }
    }

    /// The first element, unless elements are of 16 bits.
    #[inline(always)]
    pub(crate) fn numbers(self) -> *mut T {
        assert!(!NARROW);
        self.at.get().cast()
    }

    /// Element `i`.
    ///
    /// # Safety
    /// There must be such an element.
    #[inline(always)]
    pub(crate) unsafe fn real(self, i: usize) -> f64 {
        let at = self.at.get();
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.dtype {
                _ if !NARROW => at.cast::<T>().add(i).read().real(),
                DType::BF16 => at.cast::<bf16>().add(i).read().wide().real(),
                _ => at.cast::<f16>().add(i).read().wide().real(),
            }
        }
    }

    /// Widens elements `start..start + n` of 16 bits. Does nothing for other types.
    ///
    /// # Safety
    /// The elements must be readable, and the memory must hold as many numbers.
    #[inline(always)]
    pub(crate) unsafe fn widen(self, start: usize, n: usize, to: *mut T) {
        if NARROW {
            // SAFETY: guaranteed by the caller. Types of 16 bits are widened to `f32`.
            unsafe { widen_here(self.at.get().add(2 * start), self.dtype, to.cast(), n) };
        }
    }

    /// Rounds numbers to elements `start..start + n` of 16 bits. Does nothing for other types.
    ///
    /// # Safety
    /// The elements must be writable, and the memory must hold as many numbers.
    #[inline(always)]
    pub(crate) unsafe fn narrow(self, start: usize, n: usize, from: *const T) {
        if NARROW {
            // SAFETY: as above.
            unsafe { narrow_here(from.cast(), self.at.get().add(2 * start), self.dtype, n) };
        }
    }
}

/// Calls `f` with elements of 16 bits as numbers in scratch memory.
pub(crate) fn wide_numbers<E: Stored, R>(x: &[E], f: impl FnOnce(&[E::Wide]) -> R) -> R {
    assert!(size_of::<E>() == size_of::<u16>(), "an array of 16 bits");
    let memory = memory::<E::Wide>(x.len());
    // SAFETY: the memory holds as many numbers. Types of 16 bits are widened to `f32`.
    unsafe {
        widen(x.as_ptr().cast(), E::DTYPE, memory.ptr().cast(), x.len());
        f(std::slice::from_raw_parts(memory.ptr(), x.len()))
    }
}

/// Calls `f` with the elements of `x` as numbers, and with memory for the numbers of `y`, which are then rounded. Both
/// arrays are of 16 bits.
pub(crate) fn in_numbers<E: Stored, R>(
    x: &[E],
    y: &mut [E],
    f: impl FnOnce(&[E::Wide], &mut [E::Wide]) -> R,
) -> R {
    let n = y.len();
    let to = memory::<E::Wide>(n);
    wide_numbers(x, |x| {
        // SAFETY: the memory holds as many numbers. Types of 16 bits are widened to `f32`.
        unsafe {
            let done = f(x, std::slice::from_raw_parts_mut(to.ptr(), n));
            narrow(to.ptr().cast(), y.as_mut_ptr().cast(), E::DTYPE, n);
            done
        }
    })
}

/// Scratch memory for `n` elements. Ends the kernel with an error if memory runs out.
pub(crate) fn memory<T>(n: usize) -> Workspace<T> {
    Workspace::new(n).unwrap_or_else(|error| stop::raise(error.into()))
}

/// Conversions of bfloat16 to and from a type.
struct Converters<T> {
    /// Converts bfloat16 to the type. The memory must hold as many numbers.
    widen: unsafe fn(&[bf16], *mut T),
    /// Converts as many numbers as the slice has elements to bfloat16.
    narrow: unsafe fn(*const T, &mut [bf16]),
}

/// The conversions for each type.
struct Conversion;

impl PerFloat for Conversion {
    type Of<T: Float> = Converters<T>;

    fn f32() -> Converters<f32> {
        Converters {
            // SAFETY: guaranteed by the caller.
            widen: |from, to| unsafe { widen(from.as_ptr().cast(), DType::BF16, to, from.len()) },
            // SAFETY: guaranteed by the caller.
            narrow: |from, to| unsafe { narrow(from, to.as_mut_ptr().cast(), DType::BF16, to.len()) },
        }
    }

    fn f64() -> Converters<f64> {
        Converters {
            // SAFETY: guaranteed by the caller.
            widen: |from, to| unsafe {
                from.iter().enumerate().for_each(|(i, v)| to.add(i).write(v.to_f64()));
            },
            // SAFETY: guaranteed by the caller.
            narrow: |from, to| unsafe {
                to.iter_mut().enumerate().for_each(|(i, to)| *to = bf16::from_f64(*from.add(i)));
            },
        }
    }
}

/// Converts `n` elements of type `from_type`, one of 16 bits, to `f32`.
///
/// # Safety
/// Both pointers must be valid for `n` elements and must not overlap.
pub(crate) unsafe fn widen(from: *const u8, from_type: DType, to: *mut f32, n: usize) {
    let (from, to) = (Shared::read_only(from), Shared::new(to));
    ranges(n, GRAIN, |some| {
        // SAFETY: guaranteed by the caller, and ranges are disjoint.
        unsafe {
            let from = from.get().add(2 * some.start).cast_const();
            widen_here(from, from_type, to.get().add(some.start), some.len());
        }
    });
}

/// True if the `bytes` bytes at `at` are in a buffer.
fn holds(buffer: &Buffer, at: *const u8, bytes: usize) -> bool {
    at.addr().checked_sub(buffer.ptr().addr()).is_some_and(|start| start + bytes <= buffer.bytes())
}

/// Writes the `n` elements at `from` in a buffer, of a type of 16 bits, to another buffer as `f32`.
pub(crate) fn widen_into(own: &Buffer, from: *const u8, stored: DType, to: &Buffer, n: usize) {
    let is_there = holds(own, from, n * size_of::<u16>()) && n * size_of::<f32>() <= to.bytes();
    assert!(stored.size() == size_of::<u16>() && is_there, "elements outside");
    // SAFETY: both buffers hold `n` elements of their types.
    unsafe { widen(from, stored, to.ptr().cast(), n) };
}

/// Overwrites the `n` elements at `to` in a buffer, of a type of 16 bits, with the `f32` numbers of another buffer.
pub(crate) fn narrow_into(own: &Buffer, to: *mut u8, stored: DType, from: &Buffer, n: usize) {
    let is_there = holds(own, to, n * size_of::<u16>()) && n * size_of::<f32>() <= from.bytes();
    assert!(stored.size() == size_of::<u16>() && is_there, "elements outside");
    // SAFETY: both buffers hold `n` elements of their types.
    unsafe { narrow(from.ptr().cast(), to, stored, n) };
}

/// As [`widen`], on the calling thread.
///
/// # Safety
/// As [`widen`].
pub(crate) unsafe fn widen_here(from: *const u8, from_type: DType, to: *mut f32, n: usize) {
    // SAFETY: guaranteed by the caller.
    let (from, to) =
        unsafe { (std::slice::from_raw_parts(from.cast(), n), std::slice::from_raw_parts_mut(to, n)) };
    #[cfg(target_arch = "x86_64")]
    if isa() == Isa::Avx512 {
        // SAFETY: the machine has the instructions.
        return unsafe {
            if from_type == DType::F16 {
                rounding::of_half(from, to);
            } else {
                rounding::of_bfloat16(from, to);
            }
        };
    }
    #[cfg(target_arch = "aarch64")]
    if from_type == DType::F16 && isa() == Isa::Neon {
        return halves::of_half(from, to);
    }
    vectorised(
        #[inline(always)]
        || sixteen::widen(from, from_type, to),
    );
}

/// Rounds `n` numbers to the type `to_type`, one of 16 bits.
///
/// # Safety
/// As [`widen`].
pub(crate) unsafe fn narrow(from: *const f32, to: *mut u8, to_type: DType, n: usize) {
    let (from, to) = (Shared::read_only(from), Shared::new(to));
    ranges(n, GRAIN, |some| {
        // SAFETY: guaranteed by the caller, and ranges are disjoint.
        unsafe {
            let from = from.get().add(some.start).cast_const();
            narrow_here(from, to.get().add(2 * some.start), to_type, some.len());
        }
    });
}

/// As [`narrow`], on the calling thread.
///
/// # Safety
/// As [`widen`].
pub(crate) unsafe fn narrow_here(from: *const f32, to: *mut u8, to_type: DType, n: usize) {
    // SAFETY: guaranteed by the caller.
    let (from, to) =
        unsafe { (std::slice::from_raw_parts(from, n), std::slice::from_raw_parts_mut(to.cast(), n)) };
    #[cfg(target_arch = "x86_64")]
    match to_type {
        // SAFETY: the machine has the instructions.
        DType::BF16 if has_pairs() => return unsafe { rounding::to_bfloat16(from, to) },
        // SAFETY: as above.
        DType::F16 if isa() == Isa::Avx512 => return unsafe { rounding::to_half(from, to) },
        _ => {}
    }
    #[cfg(target_arch = "aarch64")]
    if to_type == DType::F16 && isa() == Isa::Neon {
        return halves::to_half(from, to);
    }
    vectorised(
        #[inline(always)]
        || sixteen::narrow(from, to, to_type),
    );
}

/// Rounds `n` numbers of each array to a type of 16 bits, if one is given. Not inlined into loops that rarely round.
///
/// # Safety
/// If a type is given, each pointer must be null or valid for `n` numbers of type `f32`.
#[inline(never)]
pub(crate) unsafe fn round_each(arrays: &[*mut u8], to: Option<DType>, n: usize) {
    let Some(to) = to else { return };
    for array in arrays.iter().filter(|array| !array.is_null()) {
        // SAFETY: guaranteed by the caller.
        unsafe { round_here(array.cast(), to, n) };
    }
}

/// Rounds `n` numbers to a type of 16 bits, in place and on the calling thread.
///
/// # Safety
/// The pointer must be valid for `n` elements.
pub(crate) unsafe fn round_here(values: *mut f32, to: DType, n: usize) {
    // SAFETY: guaranteed by the caller.
    let values = unsafe { std::slice::from_raw_parts_mut(values, n) };
    if to == DType::F16 {
        let mut narrowed = [0_u16; 256];
        for values in values.chunks_mut(narrowed.len()) {
            // SAFETY: there are as many narrowed numbers.
            unsafe {
                narrow_here(values.as_ptr(), narrowed.as_mut_ptr().cast(), to, values.len());
                widen_here(narrowed.as_ptr().cast(), to, values.as_mut_ptr(), values.len());
            }
        }
        return;
    }
    vectorised(
        #[inline(always)]
        || {
            for v in values {
                *v = f32::from_bits(u32::from(bits_of(*v)) << 16);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::{narrow, widen};
    use crate::array::DType;

    #[test]
    fn each_number_of_16_bits_survives_and_f32_rounds_as_the_type_does() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let odd: Vec<f32> = (0..100_000_u32)
            .map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B1)))
            .chain([0.0, -0.0])
            .collect();
        for dtype in [DType::BF16, DType::F16] {
            let of = |v: f32| {
                if dtype == DType::BF16 { bf16::from_f32(v).to_bits() } else { f16::from_f32(v).to_bits() }
            };
            let to = |v: u16| {
                if dtype == DType::BF16 { bf16::from_bits(v).to_f32() } else { f16::from_bits(v).to_f32() }
            };
            let mut wide = vec![0.0_f32; all.len()];
            let mut narrowed = vec![0_u16; odd.len()];
            // SAFETY: both have as many elements.
            unsafe {
                widen(all.as_ptr().cast(), dtype, wide.as_mut_ptr(), all.len());
                narrow(odd.as_ptr(), narrowed.as_mut_ptr().cast(), dtype, odd.len());
            }
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(all.iter().zip(&wide).all(|(v, wide)| same(to(*v), *wide)));
            let rounds = |(v, found): (&f32, &u16)| of(*v) == *found || v.is_nan() && to(*found).is_nan();
            assert!(odd.iter().zip(&narrowed).all(rounds));
        }
    }
}
