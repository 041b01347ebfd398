//! Basic indexing, by a key of integers, slices and None: reading a part of an array, and replacing it.
//!
//! Open bounds of slices are resolved when the function is set up, for the shape that the array has then.

use std::sync::Arc;

use crate::array::Shape;
use crate::kernels::regrid::{Regrid, RegridAxis};
use crate::kernels::{Float, Movable, reduce, scratch, strided};
use crate::ops::arrangement::regrid::PutBack;
use crate::ops::arrangement::slicing::cut;
use crate::ops::{
    Alias, Backward, Compute, Declared, Input, InputShapes, Kind, Reads, Run, Shapes, Spec, Sym, Symbols,
    Value, one,
};
use crate::{Error, Result};

/// One entry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One position. A negative one counts from the end. The axis is dropped.
    At(i64),
    /// A slice: start, stop (excluded) and a step other than zero, as in Python.
    Along(Option<i64>, Option<i64>, i64),
    /// A new axis of length one.
    New,
}

/// A key: one entry for each axis, and one for each new axis.
type IndexKey = Arc<[Cut]>;

/// The elements that a key selects from an array of shape `x`, and the shape of the part.
fn resolve(key: &IndexKey, x: &Shape) -> Result<(Regrid, Shape)> {
    let (mut axes, mut shape): (Vec<RegridAxis>, Vec<usize>) = (Vec::new(), Vec::new());
    for entry in key.iter() {
        let (axis, n) = (axes.len(), x.get(axes.len()).copied());
        match (*entry, n) {
            (Cut::New, _) => shape.push(1),
            (Cut::At(i), Some(n)) => {
                let at = if i < 0 { i.saturating_add(n as i64) } else { i };
                if !(0..n as i64).contains(&at) {
                    let (first, last) = (-(n as i64), n as i64 - 1);
                    return Err(Error::Index(format!(
                        "index: expected an index from {first} to {last} on axis {axis}, got {i}"
                    )));
                }
                axes.push(RegridAxis::default().then(at as usize, 1, 1));
            }
            (Cut::Along(start, stop, step), Some(n)) => {
                axes.push(cut(n, start, stop, step));
                shape.push(axes[axis].len());
            }
            (_, None) => break,
        }
    }
    if axes.len() != x.ndim() || key.iter().filter(|entry| **entry != Cut::New).count() != x.ndim() {
        return Err(Error::shape("index", "an entry of the key for each axis", [x]));
    }
    Ok((Regrid::new(x.clone(), axes), shape.as_slice().into()))
}

/// Reads the part of its input that a key selects.
#[derive(Clone)]
pub struct Indexed {
    /// The entries of the key.
    key: IndexKey,
}

impl Indexed {
    /// Takes a key with an entry for each axis, and [`Cut::New`] for new axes.
    pub fn new(key: Vec<Cut>) -> Self {
        Self { key: key.into() }
    }
}

/// Replaces the part of an array that a key selects.
#[derive(Clone)]
pub struct Put {
    /// The entries of the key.
    key: IndexKey,
    /// Works in the memory of the array, not on a copy.
    in_place: bool,
}

impl Put {
    /// Takes a key as in [`Indexed::new`]. Works in the memory of the array if `in_place`, else on a copy.
    pub fn new(key: Vec<Cut>, in_place: bool) -> Self {
        Self { key: key.into(), in_place }
    }
}

/// Declares an operation that indexing and gradients create; it is not a function of Python.
macro_rules! unnamed {
    ($ty:ty, $name:literal, $type_name:literal, $doc:literal, $($input:literal),+) => {
        impl Declared for $ty {
            const SPEC: Spec = Spec {
                name: $name,
                type_name: $type_name,
                raw_doc: $doc,
                inputs: &[$(Input { name: $input, kind: Kind::float }),+],
                args: &[],
            };
            /// Refuses: only indexing and gradients make this operation.
            fn bind(_: &[Value]) -> Result<Self> {
                Err(Error::NotImplemented(concat!($name, ": is made by indexing only").into()))
            }
            fn values(&self) -> Vec<Value> {
                Vec::new()
            }
        }
    };
}
unnamed!(Indexed, "slice", "Slice", " The part of the array that a key selects.", "x");
unnamed!(Put, "put", "Put", " The array with the selected part replaced.", "x", "value");

/// The arguments that NNabla shows for a key: start, stop and step along each axis.
fn shown(key: &IndexKey, x: &Shape) -> Vec<(&'static str, Value)> {
    let lengths = x.iter().map(|n| *n as i64);
    let entries = key.iter().filter(|entry| **entry != Cut::New).zip(lengths);
    let (mut start, mut stop, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for (entry, n) in entries {
        let (from, to, step) = match *entry {
            Cut::At(i) => (i.rem_euclid(n.max(1)), i.rem_euclid(n.max(1)) + 1, 1),
            Cut::Along(from, to, step) if step < 0 => (from.unwrap_or(-1), to.unwrap_or(-n - 1), step),
            Cut::Along(from, to, step) => (from.unwrap_or(0), to.unwrap_or(n), step),
            Cut::New => continue,
        };
        start.push(from);
        stop.push(to);
        steps.push(step);
    }
    vec![("start", Value::Ints(start)), ("stop", Value::Ints(stop)), ("step", Value::Ints(steps))]
}

impl Compute for Indexed {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(resolve(&self.key, x.get(0))?.1)
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        resolve(&self.key, run.x_shape(0))?.0.gather(run.x(0), T::ZERO, run.y(0));
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn moves_back(&self, x: &InputShapes<'_>) -> bool {
        resolve(&self.key, x.get(0)).is_ok_and(|(part, _)| part.is_injective())
    }

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (part, gy) = (resolve(&self.key, run.x_shape(0))?.0, run.gy(0));
        if let Some(gx) = run.gx(0) {
            part.scatter_add(gy, gx.adding());
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape();
        let put_back = |(grid, _): (Regrid, Shape)| {
            let (gy, kept) = (s.gy(0), grid.shape());
            let gy = if gy.shape() == kept { gy } else { gy.reshape(&kept) };
            Sym::apply(PutBack { grid: Arc::new(grid), shape: shape.clone() }, &[gy])
        };
        vec![resolve(&self.key, &shape).ok().map(put_back)]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        shown(&self.key, x.get(0))
    }
}

/// The shape of a value without extra leading axes of length one, so that it broadcasts to the part of shape `part`.
fn fitted(value: &Shape, part: &Shape) -> Result<Shape> {
    let lead = value.ndim().saturating_sub(part.ndim());
    let (before, own) = value.split_at(lead);
    let fits = own.iter().rev().zip(part.iter().rev()).all(|(a, b)| a == b || *a == 1);
    if fits && before.iter().all(|n| *n == 1) {
        return Ok(own.into());
    }
    Err(Error::shape("index", format!("a value that broadcasts to {part}"), [value]))
}

impl Compute for Put {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        fitted(x.get(1), &resolve(&self.key, x.get(0))?.1)?;
        one(x.get(0).clone())
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (part, shape) = resolve(&self.key, run.x_shape(0))?;
        let (value, own) = (run.x(1), fitted(run.x_shape(1), &shape)?);
        let y = run.y_after(0);
        match value {
            [one] => part.put(y, |_| *one),
            all if own == shape => part.put(y, |i| all[i]),
            all => scratch::with(shape.size(), |repeated| {
                strided::broadcast(all, &own, &shape, repeated);
                part.put(y, |i| repeated[i]);
            }),
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, (part, shape)) = (run.gy(0), resolve(&self.key, run.x_shape(0))?);
        if let Some(gx) = run.gx(0) {
            gx.through(|g| {
                g.copy_from_slice(gy);
                part.put(g, |_| T::ZERO);
            });
        }
        let own = fitted(run.x_shape(1), &shape)?;
        let Some(gx) = run.gx(1) else { return Ok(()) };
        if own == shape {
            gx.through(|g| part.gather(gy, T::ZERO, g));
            return Ok(());
        }
        let lead = shape.ndim() - own.ndim();
        let axes: Vec<usize> =
            (0..shape.ndim()).filter(|i| *i < lead || own[*i - lead] != shape[*i]).collect();
        scratch::with(shape.size(), |all| {
            part.gather(gy, T::ZERO, all);
            gx.through(|g| reduce::sum(all, &shape, &axes, g));
        });
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let gy = s.gy(0);
        let rest = || {
            let zero = Sym::Node(Sym::Const(0.0).node(&Shape::scalar()));
            Sym::apply(Self { key: self.key.clone(), in_place: false }, &[gy, zero])
        };
        let taken = || {
            let (part, value) = (Sym::apply(Indexed { key: self.key.clone() }, &[gy]), s.x(1).shape());
            let own = fitted(&value, &part.shape()).unwrap_or_else(|_| value.clone());
            let sum = part.sum_to(&own);
            if own == value { sum } else { sum.reshape(&value) }
        };
        vec![s.wants(0).then(rest), s.wants(1).then(taken)]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn alias(&self, i: usize) -> Option<Alias> {
        (i == 0 && self.in_place).then_some(Alias { output: 0, modifies: true })
    }

    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        shown(&self.key, x.get(0))
    }
}
