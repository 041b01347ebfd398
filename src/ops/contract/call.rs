//! A call of a kernel by the engine: its arrays and the state that it saves.

use std::any::Any;
use std::cell::Cell;

use crate::array::{DType, InputCache, Shape};
use crate::kernels::random;
use crate::kernels::sixteen_bits::{Values, ValuesMut};
use crate::ops::Tail;

/// A contiguous array in memory, whose type the caller knows.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    /// The address of its first element.
    pub ptr: *mut u8,
    /// Its shape.
    pub shape: &'a Shape,
}

impl<'a> Memory<'a> {
    /// The elements, to be read.
    pub(super) fn slice<T>(self) -> &'a [T] {
        // SAFETY: the engine guarantees `shape.size()` readable elements of the declared type for the duration of the
        // run, and writes none of them meanwhile.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.shape.size()) }
    }

    /// The elements, which another array may share.
    pub(crate) fn cells<T>(self) -> &'a [Cell<T>] {
        // SAFETY: as above, on the thread of the run or on threads that use different elements.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.shape.size()) }
    }

    /// The elements, of bfloat16 if `is_narrow` is set. Products round others if the context says so.
    pub(super) fn values<T>(self, is_narrow: bool, rounds: bool) -> Values<'a, T> {
        match (is_narrow, rounds) {
            (true, _) => Values::BFloat16(self.slice()),
            (false, true) => Values::Rounded(self.slice()),
            (false, false) => Values::Exact(self.slice()),
        }
    }

    /// As [`Memory::values`], to be written.
    pub(super) fn values_mut<T>(self, is_narrow: bool) -> ValuesMut<'a, T> {
        if is_narrow { ValuesMut::BFloat16(self.slice_mut()) } else { ValuesMut::Exact(self.slice_mut()) }
    }

    /// The elements, to be written.
    pub(super) fn slice_mut<T>(self) -> &'a mut [T] {
        // SAFETY: as above, for writing. `Run` and `Backward` return each array once.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.cast(), self.shape.size()) }
    }
}

/// State that one function saves from its forward for its backward run: a mask, indices, statistics, its random key.
#[derive(Default)]
pub struct State(Option<Box<SavedState>>);

/// The saved values and the random numbers of a function.
#[derive(Default)]
struct SavedState {
    /// The saved values, of the type that the operation chooses.
    value: Option<Box<dyn Any + Send>>,
    /// The key of the random numbers of the last run.
    key: Option<random::PhiloxKey>,
    /// A number that identifies the random numbers of the last run, see [`State::drawn`].
    drawn: u64,
}

impl State {
    /// The saved state, created on first use.
    pub fn get<S: Default + Send + 'static>(&mut self) -> &mut S {
        let value = &mut self.0.get_or_insert_default().value;
        if value.as_ref().is_none_or(|value| !value.is::<S>()) {
            *value = Some(Box::new(S::default()));
        }
        let value = value.as_mut().and_then(|value| value.downcast_mut());
        value.unwrap_or_else(|| unreachable!("was just made"))
    }

    /// The saved value, if it is of this type.
    pub fn find<S: 'static>(&self) -> Option<&S> {
        self.0.as_ref()?.value.as_ref()?.downcast_ref()
    }

    /// Exchanges the saved values, but not the random numbers.
    pub fn swap_values(&mut self, other: &mut Self) {
        let (own, other) = (self.0.get_or_insert_default(), other.0.get_or_insert_default());
        std::mem::swap(&mut own.value, &mut other.value);
    }

    /// True if a run has drawn random numbers, so that they can be drawn again.
    pub fn has_key(&self) -> bool {
        self.0.as_ref().is_some_and(|kept| kept.key.is_some())
    }

    /// A number that identifies the random numbers that the last run drew. Zero if it drew none.
    #[inline(always)]
    pub(crate) fn drawn(&self) -> u64 {
        let key = self.0.as_ref().and_then(|kept| kept.key);
        key.map_or(0, |key| {
            key.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ key.offset.rotate_left(20) ^ 1 << 63
        })
    }

    /// A state that draws the random numbers of the last run again, and contains nothing else.
    pub(crate) fn same_numbers(&self) -> Self {
        let numbers =
            |kept: &SavedState| Box::new(SavedState { value: None, key: kept.key, drawn: kept.drawn });
        Self(self.0.as_deref().map(numbers))
    }

    /// The count of random numbers that all runs have drawn, without recomputations. A function with a seed of its own
    /// continues its sequence there.
    pub fn position(&self) -> u64 {
        self.0.as_ref().map_or(0, |kept| kept.drawn)
    }

    /// Sets [`State::position`].
    pub fn set_position(&mut self, drawn: u64) {
        self.0.get_or_insert_default().drawn = drawn;
    }

    /// True if nothing is saved.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The random numbers of this run. A recomputation gets the numbers of the last run, other runs get new ones.
    ///
    /// A `seed` that is not negative defines a sequence of its own, which restarts for each function.
    pub(super) fn key(&mut self, seed: i64, count: u64, recompute: bool) -> random::PhiloxKey {
        let kept = self.0.get_or_insert_default();
        if let (Some(key), true) = (kept.key, recompute) {
            return key;
        }
        let key = match u64::try_from(seed) {
            Ok(seed) => random::PhiloxKey { seed, offset: kept.drawn },
            Err(_) => random::draw(count),
        };
        kept.drawn += count.div_ceil(random::BLOCK) * random::BLOCK;
        kept.key = Some(key);
        key
    }
}

/// The arrays of a call that are in bfloat16 instead of the kernel's type, by bit. Only arrays that
/// [`crate::ops::Compute::IN_BFLOAT16`] lists, and the first output and its gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InBFloat16 {
    /// True if products round their operands to bfloat16.
    pub products: bool,
    /// The given inputs in bfloat16, one bit each.
    pub x: u64,
    /// True if the first output is in bfloat16.
    pub y: bool,
    /// True if the gradient of the first output is in bfloat16.
    pub gy: bool,
    /// The gradients of inputs that are in bfloat16, one bit each.
    pub gx: u64,
}

impl InBFloat16 {
    /// None: a call of another precision.
    pub const NONE: Self = Self { products: false, x: 0, y: false, gy: false, gx: 0 };
}

/// A call of an operation's kernel: untyped memory, with its type.
pub struct Call<'a> {
    /// Given inputs.
    pub x: &'a [Memory<'a>],
    /// Outputs.
    pub y: &'a [Memory<'a>],
    /// Gradients of the outputs (backward only).
    pub gy: &'a [Memory<'a>],
    /// Requested gradients of the inputs, and whether to add to each (backward only).
    pub gx: &'a [Option<(Memory<'a>, bool)>],
    /// The saved state of the function.
    pub state: &'a mut State,
    /// Compute in `f64` instead of `f32`.
    pub double: bool,
    /// The moved inputs and the outputs hold `i64`. A kernel that only moves elements treats their bits as `f64`.
    pub integers: bool,
    /// The type of 16 bits in which all arrays of real numbers are, for a kernel that only moves elements.
    pub bits: Option<DType>,
    /// The narrower type in which outputs of the kernel's type are stored, if any (forward only).
    pub narrow: Option<DType>,
    /// True if dropped values are being recomputed.
    pub recompute: bool,
    /// Operations to apply to the first output before it is written, if the operation `hosts_epilogue` (forward
    /// only).
    pub tail: Tail<'a>,
    /// The input of `cached_input`, if data derived from its values may be cached.
    pub input_cache: Option<InputCache<'a>>,
    /// The type to which a fused operation rounds between its layers. None if only its outputs are rounded.
    pub rounds: Option<DType>,
    /// The arrays that are in bfloat16.
    pub in_bfloat16: InBFloat16,
}

impl<'a> Call<'a> {
    /// A plain forward call: nothing is recomputed, cached, rounded or applied to the outputs.
    #[inline(always)]
    pub const fn new(x: &'a [Memory<'a>], y: &'a [Memory<'a>], state: &'a mut State, double: bool) -> Self {
        let (tail, integers, bits, recompute) = (Tail::NOTHING, false, None, false);
        let (narrow, input_cache, rounds) = (None, None, None);
        let in_bfloat16 = InBFloat16::NONE;
        Self {
            x,
            y,
            gy: &[],
            gx: &[],
            state,
            double,
            integers,
            bits,
            narrow,
            recompute,
            tail,
            input_cache,
            rounds,
            in_bfloat16,
        }
    }
}
