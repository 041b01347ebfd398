//! The interface of a forward run: typed slices of its inputs and outputs.

use std::marker::PhantomData;

use crate::array::{DType, Fingerprint, InputCache, Shape, sixteen};
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::sixteen_bits::{Values, ValuesMut};
use crate::kernels::{Movable, Stored, random};
use crate::ops::contract::shapes::position;
use crate::ops::{Backward, Call, InBFloat16, Memory, State, Tail};

/// The bits of a number, rounded to a type of 16 bits as kernels of `f32` round it.
fn bits_of_constant(v: f64, dtype: DType) -> u16 {
    let mut bits = [0];
    sixteen::narrow(&[v as f32], &mut bits, dtype);
    bits[0]
}

/// The arrays of one forward run, numbered as declared.
pub struct Run<'a, T> {
    /// The given inputs.
    x: &'a [Memory<'a>],
    /// The outputs.
    y: &'a [Memory<'a>],
    /// The inputs that were given, one bit each.
    present: u64,
    /// The outputs that were taken for writing, one bit each.
    taken: u64,
    /// The state that the function saves.
    state: &'a mut State,
    /// The type in which outputs are stored, if that is narrower than `T`.
    narrow: Option<DType>,
    /// True if the run restores dropped values.
    recompute: bool,
    /// True if elements are integers that the operation only moves, see [`Run::constant`].
    integers: bool,
    /// The type of 16 bits whose bits the operation only moves, if any.
    bits: Option<DType>,
    /// Operations to apply to the first output before it is written.
    tail: Tail<'a>,
    /// The input from which data may be cached, if any.
    input_cache: Option<InputCache<'a>>,
    /// The type to which a fused operation rounds between layers, if any.
    rounds: Option<DType>,
    /// The arrays that are in bfloat16.
    in_bfloat16: InBFloat16,
    /// The type in which the kernel computes.
    of: PhantomData<T>,
}

impl<'a, T: Movable> Run<'a, T> {
    /// The arrays of a call. `present` has one bit for each given input.
    pub(crate) fn new(call: Call<'a>, present: u64) -> Self {
        let Call {
            x,
            y,
            state,
            narrow,
            integers,
            bits,
            recompute,
            tail,
            input_cache,
            rounds,
            in_bfloat16,
            ..
        } = call;
        Self {
            x,
            y,
            present,
            taken: 0,
            state,
            narrow,
            recompute,
            integers,
            bits,
            tail,
            input_cache,
            rounds,
            in_bfloat16,
            of: PhantomData,
        }
    }

    /// The type in which outputs are stored, if that is narrower than `T`.
    pub fn narrow(&self) -> Option<DType> {
        self.narrow
    }

    /// Operations to apply to the first output before it is written. None unless
    /// [`crate::ops::Compute::HOSTS_EPILOGUE`] is set.
    pub fn tail(&self) -> Tail<'a> {
        self.tail
    }

    /// The fingerprint of the input [`crate::ops::Compute::CACHED_INPUT`]: equal fingerprints mean equal values. None
    /// if no derived data may be cached.
    pub fn fingerprint(&self) -> Fingerprint {
        self.input_cache.map_or(Fingerprint::NONE, InputCache::fingerprint)
    }

    /// The input [`crate::ops::Compute::CACHED_INPUT`], if data derived from its values may be cached.
    pub fn input_cache(&self) -> Option<InputCache<'a>> {
        self.input_cache
    }

    /// The type to which a fused operation rounds between layers, if any: [`Call::rounds`].
    pub(crate) fn rounds(&self) -> Option<DType> {
        self.rounds
    }

    /// The run of another operation as a part of this one, on inputs `x` and the same outputs.
    pub(crate) fn on<'b>(&'b mut self, x: &'b [Memory<'b>]) -> Run<'b, T> {
        let (y, tail, recompute, integers) = (self.y, self.tail, self.recompute, self.integers);
        Run {
            x,
            y,
            present: u64::MAX,
            taken: 0,
            state: self.state,
            narrow: self.narrow,
            recompute,
            integers,
            bits: self.bits,
            tail,
            input_cache: None,
            rounds: self.rounds,
            in_bfloat16: InBFloat16 { products: self.in_bfloat16.products, ..InBFloat16::NONE },
            of: PhantomData,
        }
    }

    /// The backward run of another operation as a part of this one. Its given inputs, in the mask `present`, are `x`.
    /// It must not read outputs.
    pub(crate) fn backward<'b>(
        &'b mut self,
        x: &'b [Memory<'b>],
        gy: &'b [Memory<'b>],
        gx: &'b [Option<(Memory<'b>, bool)>],
        present: u64,
    ) -> Backward<'b, T> {
        let rounds = self.rounds;
        let in_bfloat16 = InBFloat16 { products: self.in_bfloat16.products, ..InBFloat16::NONE };
        Backward {
            x,
            y: gy,
            gy,
            gx,
            present,
            state: self.state,
            input_cache: None,
            rounds,
            in_bfloat16,
            of: PhantomData,
        }
    }

    /// The number of given inputs.
    pub fn n_inputs(&self) -> usize {
        self.x.len()
    }

    /// The number of outputs.
    pub fn n_outputs(&self) -> usize {
        self.y.len()
    }

    /// True if input `i` was given.
    pub fn has(&self, i: usize) -> bool {
        position(self.present, i).is_some_and(|at| at < self.x.len())
    }

    /// The memory of input `i`, for operations that may work in place.
    pub fn x_memory(&self, i: usize) -> Memory<'a> {
        self.x[position(self.present, i).unwrap_or(usize::MAX)]
    }

    /// The memory of output `o`, for operations that may work in place.
    pub fn y_memory(&self, o: usize) -> Memory<'a> {
        self.y[o]
    }

    /// Elements of input `i`.
    pub fn x(&self, i: usize) -> &'a [T] {
        self.x_memory(i).slice()
    }

    /// Elements of input `i`, which [`crate::ops::Compute::WIDENED`] must list.
    pub fn wide(&self, i: usize) -> &'a [T::Wide]
    where
        T: Stored,
    {
        self.x_memory(i).slice()
    }

    /// Mutable elements of input `i`, which [`crate::ops::Compute::WIDENED`] and
    /// [`crate::ops::Compute::overwrites`] must list.
    pub fn overwrite_wide(&mut self, i: usize) -> &'a mut [T::Wide]
    where
        T: Stored,
    {
        self.x_memory(i).slice_mut()
    }

    /// Elements of input `i`, which may be in bfloat16 if [`crate::ops::Compute::IN_BFLOAT16`] lists it.
    pub fn values(&self, i: usize) -> Values<'a, T> {
        let is_narrow = position(self.present, i).is_some_and(|at| self.in_bfloat16.x >> at.min(63) & 1 == 1);
        self.x_memory(i).values(is_narrow, self.in_bfloat16.products)
    }

    /// Elements of output 0, undefined until written, in bfloat16 if [`crate::ops::Compute::IN_BFLOAT16`] is not zero
    /// and they are stored so. May be called once.
    pub fn y_values(&mut self) -> ValuesMut<'a, T> {
        let is_narrow = self.in_bfloat16.y;
        self.take(0).values_mut(is_narrow)
    }

    /// Elements of input `i`, which must be declared [`crate::ops::Kind::index`].
    pub fn index(&self, i: usize) -> &'a [i64] {
        self.x_memory(i).slice()
    }

    /// Elements of input `i`, which must be declared [`crate::ops::Kind::uint8`].
    pub fn levels(&self, i: usize) -> &'a [u8] {
        self.x_memory(i).slice()
    }

    /// Elements of input `i`, which must be declared [`crate::ops::Kind::int8`].
    pub fn signed_levels(&self, i: usize) -> &'a [i8] {
        self.x_memory(i).slice()
    }

    /// Mutable elements of input `i`, which must be declared by [`crate::ops::Compute::overwrites`].
    pub fn overwrite(&mut self, i: usize) -> &'a mut [T] {
        self.x_memory(i).slice_mut()
    }

    /// The shape of input `i`.
    pub fn x_shape(&self, i: usize) -> &'a Shape {
        self.x_memory(i).shape
    }

    /// The shape of output `o`.
    pub fn y_shape(&self, o: usize) -> &'a Shape {
        self.y[o].shape
    }

    /// Elements of output `o`, undefined until written. May be called once.
    pub fn y(&mut self, o: usize) -> &'a mut [T] {
        self.take(o).slice_mut()
    }

    /// Elements of output 0, initialized with input `i`, which has the same shape and may share its memory. Zeros if
    /// that input is not given. May be called once.
    pub fn y_after(&mut self, i: usize) -> &'a mut [T] {
        let from = self.has(i).then(|| self.x_memory(i));
        let to = self.take(0);
        match from {
            Some(from) => Self::copy(from, to),
            None => to.slice_mut().fill(T::ZERO),
        }
        to.slice_mut()
    }

    /// Computes output 0 by a formula of inputs 0 and 1 with broadcasting. The output may alias an input that is not
    /// broadcast. The formula must be `#[inline(always)]`.
    #[inline(always)]
    pub(crate) fn map_pairs(&mut self, broadcast: &BroadcastLayout, f: impl Fn(T, T) -> T + Sync + Copy) {
        broadcast.map_cells(self.x_memory(0).cells(), self.x_memory(1).cells(), self.y_memory(0).cells(), f);
    }

    /// Copies `from` to `to`, which may be the same memory.
    pub(crate) fn copy(from: Memory<'_>, to: Memory<'_>) {
        assert_eq!(from.shape.size(), to.shape.size());
        // SAFETY: both hold the same number of elements of the type, and `copy` allows them to be the same.
        unsafe { std::ptr::copy::<T>(from.ptr.cast(), to.ptr.cast(), to.shape.size()) };
    }

    /// Elements of output `o`, which [`crate::ops::Compute::output`] declares as whole numbers. May be called once.
    pub fn y_index(&mut self, o: usize) -> &'a mut [i64] {
        self.take(o).slice_mut()
    }

    /// Elements of output `o`, which [`crate::ops::Compute::output`] declares as `u8`. May be called once.
    pub fn y_levels(&mut self, o: usize) -> &'a mut [u8] {
        self.take(o).slice_mut()
    }

    /// The array of output `o`. Each may be taken once.
    fn take(&mut self, o: usize) -> Memory<'a> {
        let bit = 1 << o.min(63);
        assert!(o >= 63 || self.taken & bit == 0, "output {o} was taken twice");
        self.taken |= bit;
        self.y[o]
    }

    /// The number `v` as an element of an output. It is an integer if the function moves integers, and the bits of a
    /// number of 16 bits if the function moves such numbers.
    pub fn constant(&self, v: f64) -> T {
        match self.bits {
            Some(dtype) => T::of_whole(bits_of_constant(v, dtype).into()),
            None => T::of(if self.integers { f64::from_bits(v as i64 as u64) } else { v }),
        }
    }

    /// The saved state of this function.
    pub fn state<S: Default + Send + 'static>(&mut self) -> &mut S {
        self.state.get()
    }

    /// [`Run::state`] with the lifetime of the function.
    pub fn into_state<S: Default + Send + 'static>(self) -> &'a mut S {
        self.state.get()
    }

    /// The key of `count` random numbers: new ones in a forward run, the previous ones in a recomputation.
    pub fn random(&mut self, seed: i64, count: usize) -> random::PhiloxKey {
        self.state.key(seed, count as u64, self.recompute)
    }

    /// True if dropped values are being recomputed, so side effects such as running statistics must not be repeated.
    pub fn is_recomputation(&self) -> bool {
        self.recompute
    }
}
