//! Elementwise operations: one formula, evaluated on scalars, vectors, dual numbers and symbols.

use crate::array::{DType, Element};
use crate::kernels::{Float, Movable, Number, Stored, broadcast::BroadcastLayout, reduce, scratch};
use crate::ops::contract::facts::{is_whole, range_of};
use crate::ops::contract::loops::{Loops, Way};
use crate::ops::contract::part::Part;
use crate::ops::{
    Activation, Backward, Binary, Compares, Compute, Declared, Entry, Facts, InputShapes, Reads, Run, Shapes,
    Sym, Symbols, Unary, Value, like, one,
};
use crate::{Error, Result};

/// `gy * slope`, and zero if the slope is zero, for any `gy`.
///
/// Selects before the product, so that derivatives of this are finite too.
#[inline(always)]
pub(crate) fn sloped<N: Number>(gy: N, slope: N) -> N {
    N::select(slope.eq(N::all(0.0)), N::all(0.0), gy) * slope
}

/// `gy` times a constant slope, and zero if the slope is zero, for any `gy`.
#[inline(always)]
pub(crate) fn scaled<N: Number>(gy: N, slope: f64) -> N {
    if slope == 0.0 { N::all(0.0) } else { gy * N::all(slope) }
}

/// True for `f64`.
pub(crate) fn is_double<T: Element>() -> bool {
    T::DTYPE == DType::F64
}

/// The loops for elements of type `E`, from those for the numbers in which kernels compute.
fn loops_of<E: Stored>(loops: Loops) -> Loops {
    let is_narrow = E::DTYPE != E::Wide::DTYPE;
    if is_narrow { loops.of_sixteen_bits(E::DTYPE).expect("this machine has the loops") } else { loops }
}

/// Adapts a [`Unary`] to [`Compute`].
#[derive(Clone)]
pub(crate) struct Map<C>(pub(crate) C);

/// Adapts a [`Binary`] to [`Compute`].
#[derive(Clone)]
pub(crate) struct Map2<C>(C);

/// Implements [`Declared`] for wrappers as for the wrapped operation.
macro_rules! declared_as_within {
    ($($wrapper:ident)+) => {$(
        impl<C: Declared> Declared for $wrapper<C> {
            const SPEC: crate::ops::Spec = C::SPEC;
            fn bind(values: &[Value]) -> Result<Self> {
                C::bind(values).map($wrapper)
            }
            fn values(&self) -> Vec<Value> {
                self.0.values()
            }
        }
    )+};
}
declared_as_within!(Map Map2);

/// The inputs whose elements an elementwise function compares, if it returns truth values, or selects elements.
const fn compares(truth_values: bool, selects: bool) -> Compares {
    match (truth_values, selects) {
        (true, _) => Compares::All,
        (_, true) => Compares::Moved,
        _ => Compares::Nothing,
    }
}

// Separate functions, which are compiled once for all operations.

/// Computes a [`Unary`] or [`Binary`] of this name by its loops.
#[inline(never)]
fn forward<E: Stored>(run: &Run<'_, E>, loops: Loops, name: &str) {
    let b = if run.n_inputs() == 1 { run.x_memory(0) } else { run.x_memory(1) };
    let (a, y) = (run.x_memory(0), run.y_memory(0));
    let of_two;
    let broadcast = if a.shape.is_same(b.shape) {
        None
    } else {
        of_two = BroadcastLayout::new(a.shape, b.shape);
        Some(&of_two)
    };
    let all = Part { x: [a.ptr, b.ptr], y: y.ptr, n: y.shape.size(), ..Part::NOTHING };
    let n = broadcast.map_or_else(|| a.shape.size(), BroadcastLayout::size);
    assert_eq!(all.n, n, "{name}: the output has the shape of the inputs together");
    // SAFETY: the arrays have the shapes of the broadcast, or one shape.
    unsafe { loops_of::<E>(loops).over::<E>(Way::Forward, broadcast, all) };
}

/// Computes the gradient of a [`Unary`] of this name by its loops.
#[inline(never)]
fn backward<T: Float>(run: &mut Backward<'_, T>, loops: Loops, name: &str) {
    let all = run.part();
    assert_eq!(run.x_shape(0).size(), all.n, "{name}: the output has the shape of the input");
    // SAFETY: all arrays have the shape of the input, as `shapes` returns.
    unsafe { loops.over::<T>(Way::Backward, None, all) };
}

/// The output shape of a [`Binary`] of this name.
#[inline(never)]
fn pair(x: &InputShapes<'_>, same_ndim: bool, name: &'static str) -> Result<Shapes> {
    let (a, b) = (x.get(0), x.get(1));
    if a.is_same(b) {
        return one(a.clone());
    }
    if same_ndim && a.ndim() != b.ndim() {
        return Err(Error::shape(name, "inputs with the same number of axes", [a, b]));
    }
    one(BroadcastLayout::shape(a, b)
        .ok_or_else(|| Error::shape(name, "shapes that broadcast together", [a, b]))?)
}

impl<C: Unary> Compute for Map<C> {
    const ACTIVATION: Option<Activation> = C::ACTIVATION;
    // A limit is an argument that changes the facts.
    const FACTS: Option<Facts> = if C::HAS_LIMIT {
        None
    } else {
        let (moves, constants) = match C::SELECTS {
            Some(constants) => (true, constants),
            None => (C::MOVES, [0, 0]),
        };
        let n = Self::KEEPS_SHAPE_OF;
        Some(Facts::elementwise(C::READS, C::ACTIVATION, moves, Self::COMPARES, constants, n))
    };
    const COMPARES: Compares = compares(C::COMPARES, C::SELECTS.is_some());
    const KEEPS_SHAPE_OF: usize = if C::CHECK.is_none() { 1 } else { 0 };

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        C::CHECK.map_or(Ok(()), |check| check(&self.0))?;
        like(x)
    }

    fn moves(&self, _: usize) -> bool {
        C::MOVES || C::SELECTS.is_some()
    }

    fn makes_reals(&self) -> Option<[i64; 2]> {
        (!is_whole(self.0.limit())).then(|| self.0.within_limit())
    }

    fn constants(&self) -> [i64; 2] {
        let [least, most] = C::SELECTS.unwrap_or_default();
        range_of([least as f64, most as f64, self.0.limit()])
    }

    fn loops(&self, double: bool) -> Option<Loops> {
        Some(self.0.loops(double))
    }

    const MOVES_ONLY: bool = C::MOVES;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        Run::<T>::copy(run.x_memory(0), run.y_memory(0));
        Ok(())
    }

    const IS_STORED: bool = !C::MOVES;
    const IS_STORED_HALF: bool = Self::IS_STORED;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        forward(run, self.0.loops(is_double::<E>()), C::SPEC.name);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        backward(run, self.0.loops(is_double::<T>()), C::SPEC.name);
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        if !C::IS_DIFFERENTIABLE {
            return vec![None];
        }
        vec![Some(self.0.gx(s.gy(0), s.x(0), s.y(0)))]
    }

    fn reads(&self, _: usize) -> Reads {
        C::READS
    }
}

/// The parameters of the gradients of a [`Binary`].
struct BinaryGradient {
    /// The name of the operation, for messages.
    name: &'static str,
    /// True if a nonzero derivative exists anywhere.
    is_differentiable: bool,
    /// The values that the gradients read.
    reads: Reads,
    /// The loops of the gradients.
    loops: Loops,
    /// The derivatives, if they are constant.
    constants: [f64; 2],
}

impl BinaryGradient {
    /// The parameters of an operation, for `f64` if `double`, else for `f32`.
    fn new<C: Binary>(op: &C, double: bool) -> Self {
        let (da, db) = if C::READS == Reads::NOTHING { op.df(0.0, 0.0, 0.0) } else { (0.0, 0.0) };
        Self {
            name: C::SPEC.name,
            is_differentiable: C::IS_DIFFERENTIABLE,
            reads: C::READS,
            loops: Loops::binary(op, double),
            constants: [da, db],
        }
    }

    /// Computes the gradient of input `i`, if requested.
    fn of<E: Stored>(&self, i: usize, run: &mut Backward<'_, E>) {
        let all = run.part();
        if !run.wants(i) {
            return;
        }
        let (shape, own) = (run.y_shape(0), run.x_shape(i));
        let x = [run.x_shape(0), run.x_shape(1)];
        let put = |gx: *mut E, adds: bool| {
            let (broadcast, x) = match self.reads.input(0) && self.is_differentiable {
                true => ((!x[0].is_same(x[1])).then(|| BroadcastLayout::new(x[0], x[1])), all.x),
                false => (None, [all.gy; 2]),
            };
            let n = broadcast.as_ref().map_or_else(|| shape.size(), BroadcastLayout::size);
            assert_eq!(all.n, n, "{}: the output has the shape of the broadcast", self.name);
            let (mut gxs, mut add) = ([std::ptr::null_mut(); 2], [false; 2]);
            (gxs[i], add[i]) = (gx.cast::<u8>(), adds);
            let all = Part { x, gx: gxs, adds: add, ..all };
            // SAFETY: the arrays have the shapes of the broadcast, and `y` and `gy` have the output shape.
            unsafe { loops_of::<E>(self.loops).over::<E>(Way::Backward, broadcast.as_ref(), all) };
        };
        if own.size() == shape.size() {
            return put(all.gx[i].cast(), all.adds[i]);
        }
        let (gy, Some(gx)) = (run.gy(0), run.gx(i)) else { return };
        if !self.is_differentiable {
            gx.adding();
        } else if self.reads == Reads::NOTHING {
            let d = E::Wide::of(self.constants[i]);
            reduce::sum_to(gy, shape, own, gx.data, gx.accumulate, |sum| d * E::Wide::of(sum));
        } else {
            scratch::with(gy.len(), |all: &mut [E]| {
                put(all.as_mut_ptr(), false);
                reduce::sum_to(all, shape, own, gx.data, gx.accumulate, E::Wide::of);
            });
        }
    }
}

impl<C: Binary> Compute for Map2<C> {
    const FACTS: Option<Facts> =
        Some(Facts::elementwise(C::READS, None, C::SELECTS, Self::COMPARES, [0, 0], Self::KEEPS_SHAPE_OF));
    const COMPARES: Compares = compares(C::COMPARES, C::SELECTS);
    const KEEPS_SHAPE_OF: usize = if C::CHECK.is_none() { 2 } else { 0 };

    fn moves(&self, _: usize) -> bool {
        C::SELECTS
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        C::CHECK.map_or(Ok(()), |check| check(&self.0))?;
        pair(x, C::SAME_NDIM, C::SPEC.name)
    }

    fn loops(&self, double: bool) -> Option<Loops> {
        Some(Loops::binary(&self.0, double))
    }

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        forward(run, Loops::binary(&self.0, is_double::<E>()), C::SPEC.name);
        Ok(())
    }

    /// Loops of one shape may also add, and are run by the engine. Other gradients are sums of wide numbers.
    fn is_stored_back(&self, x: &InputShapes<'_>) -> bool {
        C::IS_DIFFERENTIABLE && C::READS == Reads::NOTHING && x.get(0).size() != x.get(1).size()
    }

    fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
        let gradient = BinaryGradient::new(&self.0, is_double::<E>());
        (0..2).for_each(|i| gradient.of(i, run));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        if !C::IS_DIFFERENTIABLE {
            return vec![None, None];
        }
        let (shape_a, shape_b) = (s.x(0).shape(), s.x(1).shape());
        let (gy, mut a, mut b) = (s.gy(0), s.x(0), s.x(1));
        if shape_a != shape_b && C::READS.input(0) {
            (a, b) = (a.broadcast(&gy.shape()), b.broadcast(&gy.shape()));
        }
        let (ga, gb) = self.0.gx(gy, a, b, s.y(0));
        vec![s.wants(0).then(|| ga.sum_to(&shape_a)), s.wants(1).then(|| gb.sum_to(&shape_b))]
    }

    fn reads(&self, _: usize) -> Reads {
        C::READS
    }
}

impl Entry {
    /// Row for a [`Unary`].
    pub const fn unary<C: Unary>() -> Self {
        Self::of::<Map<C>>()
    }

    /// Row for a [`Binary`].
    pub const fn binary<C: Binary>() -> Self {
        Self::of::<Map2<C>>()
    }
}

impl Sym {
    /// A [`Unary`] of a symbol.
    pub(crate) fn unary(op: impl Unary, x: Self) -> Self {
        Self::apply(Map(op), &[x])
    }

    /// A [`Binary`] of two symbols.
    pub(crate) fn binary(op: impl Binary, a: Self, b: Self) -> Self {
        Self::apply(Map2(op), &[a, b])
    }
}

#[cfg(test)]
mod tests;
