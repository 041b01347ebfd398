//! The interface of a backward run: typed slices of its inputs, outputs and gradients.

use std::marker::PhantomData;

use crate::array::{DType, Fingerprint, InputCache, Shape};
use crate::kernels::sixteen_bits::{Values, ValuesMut};
use crate::kernels::{Movable, Stored, map, scratch};
use crate::ops::contract::shapes::position;
use crate::ops::{Call, InBFloat16, Memory, Part, State};

/// The destination of a gradient, which is overwritten or added to.
pub struct Grad<'a, T> {
    /// The elements.
    pub data: &'a mut [T],
    /// Add to the elements. Otherwise they are undefined and must be overwritten.
    pub accumulate: bool,
}

impl<'a, T: Movable> Grad<'a, T> {
    /// Writes or adds `f(i)` at each `i`, on several threads.
    #[inline(always)]
    pub fn put(self, f: impl Fn(usize) -> T + Sync + Copy) {
        map::put(self.data, self.accumulate, f);
    }

    /// Writes or adds `f` of the elements of several arrays at each index. `f` must be `#[inline(always)]`.
    #[inline(always)]
    pub fn put_of<const N: usize>(self, x: [&[T]; N], f: impl Fn([T; N]) -> T + Sync + Copy) {
        map::put_of(self.data, self.accumulate, x, f);
    }

    /// Writes or adds these values.
    pub fn put_all(self, values: &[T]) {
        self.put_of(
            [values],
            #[inline(always)]
            |[v]| v,
        );
    }

    /// Writes or adds the values that `f` writes to every element of its argument.
    pub fn through(self, f: impl FnOnce(&mut [T])) {
        if self.accumulate {
            scratch::with(self.data.len(), |g| {
                f(g);
                self.put_all(g);
            });
        } else {
            f(self.data);
        }
    }

    /// The elements, ready to be added to.
    pub fn adding(self) -> &'a mut [T] {
        if !self.accumulate {
            map::put(self.data, false, |_| T::ZERO);
        }
        self.data
    }
}

/// The arrays of one backward run, numbered as declared.
pub struct Backward<'a, T> {
    /// The given inputs.
    pub(super) x: &'a [Memory<'a>],
    /// The outputs.
    pub(super) y: &'a [Memory<'a>],
    /// The gradients of the outputs.
    pub(super) gy: &'a [Memory<'a>],
    /// For each wanted gradient its array, and true if the run adds to it.
    pub(super) gx: &'a [Option<(Memory<'a>, bool)>],
    /// The inputs that were given, one bit each.
    pub(super) present: u64,
    /// The state that the forward run saved.
    pub(super) state: &'a mut State,
    /// The input from which data may be cached, if any.
    pub(super) input_cache: Option<InputCache<'a>>,
    /// The type to which a fused operation rounds between layers, if any.
    pub(super) rounds: Option<DType>,
    /// The arrays that are in bfloat16.
    pub(super) in_bfloat16: InBFloat16,
    /// The type in which the kernel computes.
    pub(super) of: PhantomData<T>,
}

impl<'a, T: Movable> Backward<'a, T> {
    /// The arrays of a call. `present` has one bit for each given input.
    pub(crate) fn new(call: Call<'a>, present: u64) -> Self {
        let Call { x, y, gy, gx, state, input_cache, rounds, in_bfloat16, .. } = call;
        Self { x, y, gy, gx, present, state, input_cache, rounds, in_bfloat16, of: PhantomData }
    }

    /// The type to which a fused operation rounds between layers, if any.
    pub(crate) fn rounds(&self) -> Option<DType> {
        self.rounds
    }

    /// The fingerprint of the input [`crate::ops::Compute::CACHED_INPUT`]: equal fingerprints mean equal values.
    pub fn fingerprint(&self) -> Fingerprint {
        self.input_cache.map_or(Fingerprint::NONE, InputCache::fingerprint)
    }

    /// The input [`crate::ops::Compute::CACHED_INPUT`], if data derived from its values may be cached.
    pub fn input_cache(&self) -> Option<InputCache<'a>> {
        self.input_cache
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

    /// The backward run of another operation as a part of this one, on inputs `x` and for the gradients `gx`.
    pub(crate) fn on<'b>(
        &'b mut self,
        x: &'b [Memory<'b>],
        gx: &'b [Option<(Memory<'b>, bool)>],
    ) -> Backward<'b, T> {
        let (y, gy, rounds) = (self.y, self.gy, self.rounds);
        Backward {
            x,
            y,
            gy,
            gx,
            present: u64::MAX,
            state: self.state,
            input_cache: None,
            rounds,
            in_bfloat16: InBFloat16 { products: self.in_bfloat16.products, ..InBFloat16::NONE },
            of: PhantomData,
        }
    }

    /// The memory of the gradient of input `i` and whether to add to it, if requested. For [`Backward::on`].
    pub(crate) fn gx_memory(&self, i: usize) -> Option<(Memory<'a>, bool)> {
        *self.gx.get(position(self.present, i)?)?
    }

    /// The memory of input `i`. For [`Backward::on`].
    pub(crate) fn x_memory(&self, i: usize) -> Memory<'a> {
        self.memory(i)
    }

    /// The memory of output `o` (if it is read) and of its gradient, for a part of this run.
    pub(crate) fn y_and_gy(&self, o: usize) -> (Memory<'a>, Memory<'a>) {
        (self.y[o], self.gy[o])
    }

    /// The array of input `i`, counted as declared.
    fn memory(&self, i: usize) -> Memory<'a> {
        self.x[position(self.present, i).unwrap_or(usize::MAX)]
    }

    /// Elements of input `i`. The requested gradient must declare to read them.
    pub fn x(&self, i: usize) -> &'a [T] {
        self.memory(i).slice()
    }

    /// As [`Run::values`](super::run::Run::values).
    pub fn values(&self, i: usize) -> Values<'a, T> {
        let is_narrow = position(self.present, i).is_some_and(|at| self.in_bfloat16.x >> at.min(63) & 1 == 1);
        self.memory(i).values(is_narrow, self.in_bfloat16.products)
    }

    /// The gradient of output 0, which may be in bfloat16 if [`crate::ops::Compute::IN_BFLOAT16`] is not zero.
    pub fn gy_values(&self) -> Values<'a, T> {
        self.gy[0].values(self.in_bfloat16.gy, self.in_bfloat16.products)
    }

    /// The destination of the gradient of input `i`, if requested, and whether to add to it. It may be in bfloat16 if
    /// [`crate::ops::Compute::IN_BFLOAT16`] lists the input. May be called once.
    pub fn gx_values(&mut self, i: usize) -> Option<(ValuesMut<'a, T>, bool)> {
        let (memory, accumulate) = self.gx_memory(i)?;
        let at = position(self.present, i)?;
        Some((memory.values_mut(self.in_bfloat16.gx >> at.min(63) & 1 == 1), accumulate))
    }

    /// As [`Run::wide`](super::run::Run::wide).
    pub fn wide(&self, i: usize) -> &'a [T::Wide]
    where
        T: Stored,
    {
        self.memory(i).slice()
    }

    /// The destination of the gradient of input `i`, if requested. [`crate::ops::Compute::WIDENED`] must list the
    /// input. May be called once.
    pub fn gx_wide(&mut self, i: usize) -> Option<Grad<'a, T::Wide>>
    where
        T: Stored,
    {
        let (memory, accumulate) = self.gx_memory(i)?;
        Some(Grad { data: memory.slice_mut(), accumulate })
    }

    /// Elements of input `i`, which must be declared [`crate::ops::Kind::index`].
    pub fn index(&self, i: usize) -> &'a [i64] {
        self.memory(i).slice()
    }

    /// The shape of input `i`.
    pub fn x_shape(&self, i: usize) -> &'a Shape {
        self.memory(i).shape
    }

    /// Elements of output `o`. The requested gradient must declare to read them.
    pub fn y(&self, o: usize) -> &'a [T] {
        self.y[o].slice()
    }

    /// Elements of output `o`, which [`crate::ops::Compute::output`] declares as whole numbers.
    pub fn y_index(&self, o: usize) -> &'a [i64] {
        self.y[o].slice()
    }

    /// The shape of output `o`.
    pub fn y_shape(&self, o: usize) -> &'a Shape {
        self.y[o].shape
    }

    /// The gradient of output `o`.
    pub fn gy(&self, o: usize) -> &'a [T] {
        self.gy[o].slice()
    }

    /// True if the gradient of input `i` is requested.
    pub fn wants(&self, i: usize) -> bool {
        position(self.present, i).is_some_and(|at| self.gx.get(at).is_some_and(Option::is_some))
    }

    /// All arrays of an elementwise function of one or two inputs, in the form its loops take.
    pub(crate) fn part(&self) -> Part {
        let n = self.y[0].shape.size();
        assert_eq!(self.gy[0].shape.size(), n, "an output and its gradient have one shape");
        let mut part = Part { n, y: self.y[0].ptr, gy: self.gy[0].ptr, ..Part::NOTHING };
        for (i, (x, gx)) in self.x.iter().zip(self.gx).take(2).enumerate() {
            part.x[i] = x.ptr;
            if let Some((memory, adds)) = gx {
                (part.gx[i], part.adds[i]) = (memory.ptr, *adds);
            }
        }
        part
    }

    /// The destination of the gradient of input `i`, if requested. May be called once.
    pub fn gx(&mut self, i: usize) -> Option<Grad<'a, T>> {
        let (memory, accumulate) = self.gx_memory(i)?;
        Some(Grad { data: memory.slice_mut(), accumulate })
    }

    /// The saved state of this function.
    pub fn state<S: Default + Send + 'static>(&mut self) -> &mut S {
        self.state.get()
    }
}
