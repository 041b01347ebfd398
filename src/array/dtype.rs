//! Types of elements, and conversion between them.

use std::fmt;

use half::{bf16, f16};

use super::sixteen;

/// Type of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum DType {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    BF16,
    F32,
    F64,
}

impl DType {
    /// Every type, in the order of declaration.
    pub const ALL: [Self; 13] = [
        Self::Bool,
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Its name in NumPy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }

    /// True if it holds whole numbers (truth values are none).
    pub const fn is_integer(self) -> bool {
        !self.is_float() && !matches!(self, Self::Bool)
    }

    /// True if an integer type holds both numbers.
    pub fn holds(self, [least, most]: [i64; 2]) -> bool {
        let bits = 8 * self.size() as u32;
        match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => least >= 0 && (bits == 64 || most >> bits == 0),
            _ => least >> (bits - 1) >= -1 && most >> (bits - 1) <= 0,
        }
    }

    /// True if it holds real numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Seals [`Element`]: only the types below implement it.
mod sealed {
    pub trait Sealed {}
}

/// A Rust type that arrays may hold.
pub trait Element: Copy + Send + Sync + sealed::Sealed + 'static {
    /// The element type.
    const DTYPE: DType;
    /// The nearest value to `v`. Integers saturate; `bool` is `v != 0`.
    fn of(v: f64) -> Self;
    /// The value as `f64`. Integers beyond 2^53 are rounded.
    fn real(self) -> f64;
    /// The value as an integer, rounded toward zero.
    fn whole(self) -> i64;
    /// The value of an integer, wrapping as in C.
    fn of_whole(v: i64) -> Self;
}

/// Implements [`Element`] for types, with their conversions from and to `f64` and `i64`.
macro_rules! elements {
    ($($ty:ty = $dtype:ident, $of:expr, $real:expr, $whole:expr, $of_whole:expr;)+) => {
        $(impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn of(v: f64) -> Self {
                $of(v)
            }
            #[inline(always)]
            fn real(self) -> f64 {
                $real(self)
            }
            #[inline(always)]
            fn whole(self) -> i64 {
                $whole(self)
            }
            #[inline(always)]
            fn of_whole(v: i64) -> Self {
                $of_whole(v)
            }
        })+
    };
}

/// An element of [`DType::Bool`]: true unless it is zero. Other programs may write bytes that are not a valid `bool`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Truth(u8);

impl Truth {
    /// True unless the byte is zero.
    fn is(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Truth {
    fn from(v: bool) -> Self {
        Self(v.into())
    }
}

/// Rounds an `f64` to `f32` so that a second rounding, to 16 bits, is exact: an inexact value becomes the neighbour
/// with an odd mantissa (round to odd), which creates no new tie. Needed because `half` ignores the lower half of an
/// `f64`.
#[inline(always)]
fn to_odd(v: f64) -> f32 {
    let near = v as f32;
    let back = f64::from(near);
    if back == v || !near.is_finite() {
        return near;
    }
    let inner = near.to_bits() - u32::from(back.abs() > v.abs());
    f32::from_bits(inner | 1)
}

elements! {
    Truth = Bool, |v| (v != 0.0).into(), |v: Truth| f64::from(u8::from(v.is())), |v: Truth| v.is().into(),
        |v| (v != 0).into();
    i8 = I8, |v| v as Self, f64::from, i64::from, |v| v as Self;
    u8 = U8, |v| v as Self, f64::from, i64::from, |v| v as Self;
    i16 = I16, |v| v as Self, f64::from, i64::from, |v| v as Self;
    u16 = U16, |v| v as Self, f64::from, i64::from, |v| v as Self;
    i32 = I32, |v| v as Self, f64::from, i64::from, |v| v as Self;
    u32 = U32, |v| v as Self, f64::from, i64::from, |v| v as Self;
    i64 = I64, |v| v as Self, |v| v as f64, |v| v, |v| v;
    u64 = U64, |v| v as Self, |v| v as f64, |v| v as i64, |v| v as Self;
    f16 = F16, |v| f16::from_f32(to_odd(v)), f16::to_f64, |v: f16| v.to_f64() as i64,
        |v| f16::from_f32(to_odd(v as f64));
    bf16 = BF16, |v| bf16::from_f32(to_odd(v)), bf16::to_f64, |v: bf16| v.to_f64() as i64,
        |v| bf16::from_f32(to_odd(v as f64));
    f32 = F32, |v| v as Self, f64::from, |v| v as i64, |v| v as Self;
    f64 = F64, |v| v, |v| v, |v| v as i64, |v| v as Self;
}

/// Runs the body with `$T` bound to the Rust type of a [`DType`].
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::array::DType::Bool => {
                type $T = $crate::array::dtype::Truth;
                $body
            }
            $crate::array::DType::I8 => {
                type $T = i8;
                $body
            }
            $crate::array::DType::U8 => {
                type $T = u8;
                $body
            }
            $crate::array::DType::I16 => {
                type $T = i16;
                $body
            }
            $crate::array::DType::U16 => {
                type $T = u16;
                $body
            }
            $crate::array::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::array::DType::U32 => {
                type $T = u32;
                $body
            }
            $crate::array::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::array::DType::U64 => {
                type $T = u64;
                $body
            }
            $crate::array::DType::F16 => {
                type $T = half::f16;
                $body
            }
            $crate::array::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            $crate::array::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::array::DType::F64 => {
                type $T = f64;
                $body
            }
        }
    };
}
pub(crate) use with_element;

/// Converts `n` elements of type `from` at `source` to type `to` at `target`.
///
/// Integers wrap as in C. `f32` and the types of 16 bits are converted directly, everything else through `f64`.
///
/// # Safety
/// Both pointers must be valid for `n` elements of their type and must not overlap.
pub unsafe fn convert(source: *const u8, from: DType, target: *mut u8, to: DType, n: usize) {
    // SAFETY: the caller guarantees `n` elements on both sides and no overlap. Buffers are aligned for every element
    // type.
    unsafe {
        match (from, to) {
            _ if from == to => return std::ptr::copy_nonoverlapping(source, target, n * from.size()),
            (DType::F16 | DType::BF16, DType::F32) => {
                let bits = std::slice::from_raw_parts(source.cast(), n);
                return sixteen::widen(bits, from, std::slice::from_raw_parts_mut(target.cast(), n));
            }
            (DType::F32, DType::F16 | DType::BF16) => {
                let bits = std::slice::from_raw_parts_mut(target.cast(), n);
                return sixteen::narrow(std::slice::from_raw_parts(source.cast(), n), bits, to);
            }
            _ => {}
        }
    }
    let whole = !from.is_float() && !to.is_float() && to != DType::Bool;
    with_element!(from, S => with_element!(to, T => {
        // SAFETY: as above. Buffers are aligned for every element type.
        let (x, y) = unsafe {
            (std::slice::from_raw_parts(source.cast::<S>(), n), std::slice::from_raw_parts_mut(target.cast::<T>(), n))
        };
        if whole {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = T::of_whole(x.whole()));
        } else {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = T::of(x.real()));
        }
    }));
}
