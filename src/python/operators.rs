//! Arithmetic operators of variables and arrays, and the functions that they call.

use std::sync::OnceLock;

use ::numpy::PyUntypedArray;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};
use smallvec::SmallVec;

use super::classes::{NdArray, Variable};
use super::functions::{Row, rows};
use super::numpy;
use super::operands::{Inputs, connected, operand, run};
use crate::graph;
use crate::ops::Value;
use crate::{Error, Result};

/// The functions behind an arithmetic operator: array with array, array with number, number with array.
pub(super) struct Operator {
    /// Their names, in that order.
    names: [&'static str; 3],
    /// Their rows, found on first use.
    rows: OnceLock<Option<[&'static Row; 3]>>,
    /// Converts a number on the right to the argument of the function: `x - 2` is `add_scalar(x, -2)`.
    of_right: fn(f64) -> f64,
}

impl Operator {
    const fn new(names: [&'static str; 3], of_right: fn(f64) -> f64) -> Self {
        Self { names, rows: OnceLock::new(), of_right }
    }

    /// The function for a combination of operands: [`ARRAYS`], [`RIGHT`] or [`LEFT`].
    fn row(&self, which: usize) -> Result<&'static Row> {
        let find = |name: &str| rows().iter().find(|row| row.entry.spec.name == name);
        let all = self.rows.get_or_init(|| {
            let [arrays, right, left] = self.names;
            Some([find(arrays)?, find(right)?, find(left)?])
        });
        all.map(|rows| rows[which])
            .ok_or_else(|| Error::Key(format!("there is no operation '{}'", self.names[which])))
    }
}

/// Index of the function of two arrays.
const ARRAYS: usize = 0;
/// Index of the function with a number on the right.
const RIGHT: usize = 1;
/// Index of the function with a number on the left.
const LEFT: usize = 2;

/// `+`
pub(super) static ADD: Operator = Operator::new(["add2", "add_scalar", "add_scalar"], |v| v);
/// `-`
pub(super) static SUB: Operator = Operator::new(["sub2", "add_scalar", "r_sub_scalar"], |v| -v);
/// `*`
pub(super) static MUL: Operator = Operator::new(["mul2", "mul_scalar", "mul_scalar"], |v| v);
/// `/`
pub(super) static DIV: Operator = Operator::new(["div2", "mul_scalar", "r_div_scalar"], |v| 1.0 / v);
/// `**`
pub(super) static POW: Operator = Operator::new(["pow2", "pow_scalar", "r_pow_scalar"], |v| v);

/// The number in an operand, if it is a Python or NumPy number.
fn number(o: &Bound<'_, PyAny>) -> Option<f64> {
    if let Ok(v) = o.cast::<PyFloat>() {
        return Some(v.value());
    }
    if let Ok(v) = o.cast::<PyInt>() {
        return v.extract().ok();
    }
    // A NumPy scalar reports one element. An array of several elements is not a number.
    let scalar = o.getattr("size").ok()?.extract::<usize>().ok()? == 1;
    let foreign = scalar && !o.is_instance_of::<Variable>() && !o.is_instance_of::<NdArray>();
    foreign.then(|| o.call_method0("item").and_then(|one| one.extract()).ok())?
}

/// Calls the function of an array and a number.
fn with_number<'py>(
    x: &Bound<'py, PyAny>,
    row: &Row,
    val: f64,
    into: &[Option<graph::NdArray>],
) -> PyResult<Bound<'py, PyAny>> {
    let name = row.entry.spec.name;
    let mut values: SmallVec<[Value; 2]> = SmallVec::new();
    values.push(Value::Float(val));
    row.defaults.iter().skip(1).flatten().for_each(|value| values.push(value.clone()));
    let op = row.entry.bind(&values, u64::MAX)?;
    if let Ok(x) = x.cast::<Variable>() {
        return connected(x.py(), &op, &[&x.get().variable], into);
    }
    let inputs: Inputs<'_, 'py> = std::iter::once(operand(name, "x", x)?).collect();
    run(x.py(), op, &inputs, into)
}

/// Calls the function of two arrays.
fn with_array<'py>(
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    row: &Row,
    into: &[Option<graph::NdArray>],
) -> PyResult<Bound<'py, PyAny>> {
    let name = row.entry.spec.name;
    let op = row.plain.as_ref().ok_or_else(|| PyValueError::new_err("operators take no arguments"))?;
    if let (Ok(a), Ok(b)) = (a.cast::<Variable>(), b.cast::<Variable>()) {
        return connected(a.py(), op, &[&a.get().variable, &b.get().variable], into);
    }
    let inputs: Inputs<'_, 'py> = [operand(name, "x0", a)?, operand(name, "x1", b)?].into_iter().collect();
    run(a.py(), op.clone(), &inputs, into)
}

/// Copies a NumPy array beside an operator into an operand of the kind of `x`, to which no gradients flow. None if `o`
/// is not a NumPy array.
pub(super) fn constant<'py>(
    x: &Bound<'py, PyAny>,
    o: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !o.is_instance_of::<PyUntypedArray>() {
        return Ok(None);
    }
    let values = numpy::new_array(&numpy::as_numpy(o)?)?;
    if x.is_instance_of::<NdArray>() {
        return Ok(Some(NdArray::wrap(x.py(), values)?.into_any()));
    }
    let variable = graph::Variable::new(values.shape.clone())?;
    variable.set_data(&values)?;
    variable.set_need_grad(false);
    Ok(Some(Variable::wrap(x.py(), variable)?.into_any()))
}

/// True for a `Variable` or an `NdArray`.
fn is_operand(o: &Bound<'_, PyAny>) -> bool {
    o.is_instance_of::<Variable>() || o.is_instance_of::<NdArray>()
}

/// Python's `NotImplemented`, upon which it tries the other operand.
fn not_implemented(py: Python<'_>) -> Bound<'_, PyAny> {
    py.NotImplemented().into_bound(py)
}

/// `x <operator> o`
pub(super) fn operator<'py>(
    x: &Bound<'py, PyAny>,
    o: &Bound<'py, PyAny>,
    which: &Operator,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(v) = o.cast_exact::<PyFloat>() {
        return with_number(x, which.row(RIGHT)?, (which.of_right)(v.value()), &[]);
    }
    if is_operand(o) {
        return with_array(x, o, which.row(ARRAYS)?, &[]);
    }
    if let Some(v) = number(o) {
        return with_number(x, which.row(RIGHT)?, (which.of_right)(v), &[]);
    }
    match constant(x, o)? {
        Some(o) => with_array(x, &o, which.row(ARRAYS)?, &[]),
        None => Ok(not_implemented(x.py())),
    }
}

/// `o <operator> x`
pub(super) fn reflected<'py>(
    x: &Bound<'py, PyAny>,
    o: &Bound<'py, PyAny>,
    which: &Operator,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(v) = number(o) {
        return with_number(x, which.row(LEFT)?, v, &[]);
    }
    match constant(x, o)? {
        Some(o) => with_array(&o, x, which.row(ARRAYS)?, &[]),
        None => Ok(not_implemented(x.py())),
    }
}

/// `x ** o`
pub(super) fn power<'py>(
    x: &Bound<'py, PyAny>,
    o: &Bound<'py, PyAny>,
    modulo: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match modulo {
        Some(_) => {
            Err(PyErr::from(Error::NotImplemented("pow: expected two arguments, got a modulus".into())))
        }
        None => operator(x, o, &POW),
    }
}

/// `x * v`
pub(super) fn scaled<'py>(x: &Bound<'py, PyAny>, v: f64) -> PyResult<Bound<'py, PyAny>> {
    with_number(x, MUL.row(RIGHT)?, v, &[])
}

/// `x <operator>= o` on an array.
pub(super) fn in_place(x: &Bound<'_, NdArray>, o: &Bound<'_, PyAny>, which: &Operator) -> PyResult<()> {
    let into = [Some(x.get().array.clone())];
    if is_operand(o) {
        return with_array(x.as_any(), o, which.row(ARRAYS)?, &into).map(drop);
    }
    if let Some(v) = number(o) {
        return with_number(x.as_any(), which.row(RIGHT)?, (which.of_right)(v), &into).map(drop);
    }
    match constant(x.as_any(), o)? {
        Some(o) => with_array(x.as_any(), &o, which.row(ARRAYS)?, &into).map(drop),
        None => {
            let got = o.get_type().name()?;
            Err(Error::Type(format!("operator: expected a number, a Variable or an array, got {got}")).into())
        }
    }
}

/// The result of a comparison: `==` and `!=` compare identity, and the others name the function to call.
pub(super) fn compared<'py>(
    class: &str,
    is_same: bool,
    other: &Bound<'py, PyAny>,
    op: CompareOp,
) -> PyResult<Bound<'py, PyAny>> {
    let py = other.py();
    let (sign, name) = match op {
        CompareOp::Eq => return Ok(PyBool::new(py, is_same).to_owned().into_any()),
        CompareOp::Ne => return Ok(PyBool::new(py, !is_same).to_owned().into_any()),
        CompareOp::Lt => ("<", "less"),
        CompareOp::Le => ("<=", "less_equal"),
        CompareOp::Gt => (">", "greater"),
        CompareOp::Ge => (">=", "greater_equal"),
    };
    let call = if number(other).is_some() {
        format!("{name}_scalar(x, {other})")
    } else if other.hasattr("__array__")? {
        format!("{name}(x, y)")
    } else {
        return Ok(py.NotImplemented().into_bound(py));
    };
    let text = format!(
        "{class}: expected a function to compare elements, got '{sign}'; write kinnor.functions.{call}"
    );
    Err(Error::Type(text).into())
}
