//! Creates one Python function for each registry entry. A new operation needs no change here.
//!
//! The functions are built-in methods with the fast calling convention. Their `self` holds the number of the entry.

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;

use super::arguments::{items, shown, whole};
use super::classes::Variable;
use super::misuse::{check_place, check_random, instead, surplus};
use super::operands::{ArrayOrNumber, Inputs, connected, into_arrays, operand, run};
use super::values::{lone_number, value, wrong};
use crate::Error;
use crate::graph::{self, settings};
use crate::ops::{self, Arg, Entry, Kind, Op, Spec, Value};

/// A registry entry as Python calls it.
pub(super) struct Row {
    /// The registry entry.
    pub(super) entry: &'static Entry,
    /// The default value of each argument. None if the argument has no default.
    pub(super) defaults: Vec<Option<Value>>,
    /// The operation with all arguments at their defaults, shared by all nodes.
    pub(super) plain: Option<Op>,
    /// The number of declared inputs.
    n_inputs: usize,
    /// True if the last input is a list of arrays.
    has_list: bool,
    /// True if every input is one required array.
    simple: bool,
}

/// The entries, made on first use.
static ROWS: OnceLock<Vec<Row>> = OnceLock::new();

/// All registry entries, in order.
pub(super) fn rows() -> &'static [Row] {
    ROWS.get_or_init(|| ops::registry().map(Row::new).collect())
}

impl Row {
    fn new(entry: &'static Entry) -> Self {
        let spec = entry.spec;
        let defaults: Vec<_> = spec.args.iter().map(|a| a.default.map(|d| d())).collect();
        let all: Option<Vec<Value>> = defaults.iter().cloned().collect();
        let plain = all.and_then(|values| entry.bind(&values, u64::MAX).ok());
        // Operations that draw random numbers are not shared, because an instance may save what it drew.
        let plain = plain.filter(|op| !op.facts().is_random).map(leak);
        let has_list = spec.inputs.last().is_some_and(|i| i.kind == Kind::list);
        let simple = spec.inputs.iter().all(|i| i.kind == Kind::float || i.kind.is_whole());
        Self { entry, defaults, plain, n_inputs: spec.inputs.len(), has_list, simple }
    }
}

/// Leaks an operation, so that it lives as long as the process.
fn leak(op: Op) -> Op {
    match op {
        Op::Shared(op) => {
            let op: &'static std::sync::Arc<dyn ops::Operation> = Box::leak(Box::new(op));
            Op::Static(&**op)
        }
        lone @ Op::Static(_) => lone,
    }
}

/// Keyword arguments that every function accepts besides its own.
const COMMON: [&str; 3] = ["n_outputs", "outputs", "auto_forward"];

/// Checks a common keyword argument. Returns its value if it is `outputs`, the arrays to write to.
fn common<'a, 'py>(
    op: &str,
    key: &str,
    value: &'a Bound<'py, PyAny>,
) -> PyResult<Option<&'a Bound<'py, PyAny>>> {
    if key == "n_outputs" && !value.is_none() {
        let refused = |_| Error::argument(op, key, "a whole number", shown(value));
        whole(value).map_err(refused)?;
    }
    Ok((key == "outputs").then_some(value))
}

/// Calls an operation whose inputs are given by place, if all are variables. All arguments have their defaults.
#[inline]
fn apply_to_variables<'py>(
    py: Python<'py>,
    op: &Op,
    args: &[Bound<'py, PyAny>],
) -> Option<PyResult<Bound<'py, PyAny>>> {
    fn variable<'a>(x: &'a Bound<'_, PyAny>) -> Option<&'a graph::Variable> {
        Some(&x.cast::<Variable>().ok()?.get().variable)
    }
    // The common numbers of inputs need no list.
    match args {
        [x] => Some(connected(py, op, &[variable(x)?], &[])),
        [a, b] => Some(connected(py, op, &[variable(a)?, variable(b)?], &[])),
        _ => {
            let x = args.iter().map(variable).collect::<Option<SmallVec<[_; 4]>>>()?;
            Some(connected(py, op, &x, &[]))
        }
    }
}

/// Calls an operation whose inputs are required arrays, given by place. All arguments have their defaults.
fn apply_plain<'py>(
    py: Python<'py>,
    row: &Row,
    op: &Op,
    args: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let spec = row.entry.spec;
    let mut inputs = Inputs::new();
    for (at, x) in args.iter().enumerate() {
        match operand(spec.name, spec.inputs[at].name, x) {
            Ok(x) => inputs.push(x),
            Err(error) => return corrected(py, row, (at, x, error), args, &[], &[]),
        }
    }
    run(py, op.clone(), &inputs, &[])
}

/// Calls an operation with a constant in place of `x`, input `at`, which is no array; or returns the error that says
/// what to write.
#[cold]
fn corrected<'py>(
    py: Python<'py>,
    row: &Row,
    (at, x, error): (usize, &Bound<'py, PyAny>, PyErr),
    args: &[Bound<'py, PyAny>],
    kwnames: &[Bound<'py, PyAny>],
    kwvalues: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let constant = instead(row, at, x, args, error)?;
    let is_other = |one: &Bound<'py, PyAny>| !std::ptr::eq(one, x);
    let replaced = |all: &[Bound<'py, PyAny>]| -> Vec<_> {
        all.iter().map(|one| if is_other(one) { one.clone() } else { constant.clone() }).collect()
    };
    apply(py, row, &replaced(args), kwnames, &replaced(kwvalues))
}

/// Calls an operation with positional and keyword arguments in the order of its declaration.
#[inline]
fn apply<'py>(
    py: Python<'py>,
    row: &Row,
    args: &[Bound<'py, PyAny>],
    kwnames: &[Bound<'py, PyAny>],
    kwvalues: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    if kwnames.is_empty()
        && args.len() == row.n_inputs
        && let Some(op) = &row.plain
    {
        match apply_to_variables(py, op, args) {
            Some(made) => return made,
            None if row.simple => return apply_plain(py, row, op, args),
            None => {}
        }
    }
    apply_any(py, row, args, kwnames, kwvalues)
}

/// Calls an operation with any arguments.
#[inline(never)]
fn apply_any<'py>(
    py: Python<'py>,
    row: &Row,
    args: &[Bound<'py, PyAny>],
    kwnames: &[Bound<'py, PyAny>],
    kwvalues: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let spec = row.entry.spec;
    let fail = |what: String| PyErr::from(Error::Type(format!("{}: {what}", spec.name)));
    let n_fixed = if row.has_list { row.n_inputs - 1 } else { row.n_inputs };
    let list = args.get(n_fixed).filter(|_| row.has_list).map_or(Ok(None), list_of_inputs)?;
    let mut fixed: SmallVec<[Option<&Bound<'py, PyAny>>; 4]> = SmallVec::from_elem(None, n_fixed);
    let mut listed: SmallVec<[&Bound<'py, PyAny>; 4]> = SmallVec::new();
    let mut given: SmallVec<[Option<&Bound<'py, PyAny>>; 4]> = SmallVec::from_elem(None, spec.args.len());
    let mut outputs = None;
    let first = n_fixed + usize::from(list.is_some());
    for (i, arg) in args.iter().enumerate() {
        if i < n_fixed {
            fixed[i] = Some(arg);
        } else if let (Some(all), true) = (&list, i == n_fixed) {
            listed.extend(all);
        } else if row.has_list && list.is_none() {
            listed.push(arg);
        } else if i - first < given.len() {
            given[i - first] = Some(arg);
        } else if let (Some(key), true) = (COMMON.get(i - first - given.len()), settings::is_nnabla()) {
            outputs = common(spec.name, key, arg)?.or(outputs);
        } else {
            return Err(surplus(py, row, args));
        }
    }
    for (key, value) in kwnames.iter().zip(kwvalues) {
        let key = key.cast::<PyString>()?.to_str()?;
        let slot = match (
            spec.inputs[..n_fixed].iter().position(|i| i.name == key),
            spec.args.iter().position(|a| a.name == key),
        ) {
            (Some(at), _) => &mut fixed[at],
            (None, Some(at)) => &mut given[at],
            (None, None) if COMMON.contains(&key) => {
                outputs = common(spec.name, key, value)?.or(outputs);
                continue;
            }
            (None, None) => {
                let known = spec.inputs.iter().map(|i| i.name).chain(spec.args.iter().map(|a| a.name));
                let nearest = nearest(py, key, known.collect());
                return Err(fail(format!("expected {}, got an argument '{key}'{nearest}", signature(row))));
            }
        };
        if slot.replace(value).is_some() {
            return Err(fail(format!("expected '{key}' once, got it twice")));
        }
    }
    if n_fixed == 0 && !row.has_list {
        check_random(spec, &given, args)?;
    }
    let mut inputs = Inputs::new();
    let mut present = 0_u64;
    for (i, (x, declared)) in fixed.iter().zip(spec.inputs).enumerate() {
        match x {
            Some(x) if declared.kind != Kind::optional || !x.is_none() => {
                match operand(spec.name, declared.name, x) {
                    Ok(x) => inputs.push(x),
                    Err(error) => return corrected(py, row, (i, x, error), args, kwnames, kwvalues),
                }
                present |= 1 << i;
            }
            _ if declared.kind == Kind::optional => {}
            _ => return Err(fail(format!("expected '{}', which is missing", declared.name))),
        }
    }
    if row.has_list && listed.is_empty() {
        return Err(fail(format!("expected at least one '{}'", spec.inputs[n_fixed].name)));
    }
    for x in listed {
        match operand(spec.name, spec.inputs[n_fixed].name, x) {
            Ok(x) => inputs.push(x),
            Err(error) => return instead(row, n_fixed, x, args, error),
        }
    }
    let all = row.has_list || present == (1 << row.n_inputs) - 1;
    let plain = given.iter().all(Option::is_none) && all;
    let op = match (&row.plain, plain) {
        (Some(op), true) => op.clone(),
        _ => {
            let n_unnamed = if row.has_list && list.is_none() { 0 } else { args.len().saturating_sub(first) };
            let mut values = values_of(row, &given, n_unnamed, args)?;
            repeat_along_axes(spec, &mut values, &inputs);
            row.entry.bind(&values, if all { u64::MAX } else { present })?
        }
    };
    let into = outputs.map_or(Ok(Vec::new()), into_arrays)?;
    run(py, op, &inputs, &into)
}

/// The values of the arguments that are not inputs. The first `n_unnamed` of them were given by place, among `args`.
fn values_of(
    row: &Row,
    given: &[Option<&Bound<'_, PyAny>>],
    n_unnamed: usize,
    args: &[Bound<'_, PyAny>],
) -> PyResult<Vec<Value>> {
    let spec = row.entry.spec;
    let mut values = Vec::with_capacity(given.len());
    for (i, v) in given.iter().enumerate() {
        values.push(match (v, &row.defaults[i]) {
            (Some(v), _) => {
                let found = value(v)?.ok_or_else(|| wrong(spec.name, &spec.args[i], v))?;
                if i < n_unnamed {
                    check_place(row, &spec.args[i], &found, args)?;
                }
                lone_number(&spec.args[i], v, found)
            }
            (None, Some(default)) => default.clone(),
            (None, None) => {
                let missing = format!("{}: expected '{}', which is missing", spec.name, spec.args[i].name);
                return Err(Error::Type(missing).into());
            }
        });
    }
    Ok(values)
}

/// Returns the inputs if they are given as one list or tuple instead of one by one.
fn list_of_inputs<'py>(arg: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let is_list = arg.is_instance_of::<PyList>() || arg.is_instance_of::<PyTuple>();
    if is_list { items(arg, Ok).map(Some) } else { Ok(None) }
}

/// Repeats an integer along the spatial axes if it is given for an argument with one number for each of them.
fn repeat_along_axes(spec: &Spec, values: &mut [Value], inputs: &Inputs<'_, '_>) {
    /// The arguments with one number for each spatial axis.
    const EACH: [&str; 5] = ["kernel", "pad", "stride", "dilation", "output_padding"];
    let is_single = |(arg, value): (&Arg, &Value)| {
        matches!(value, Value::Int(_)) && EACH.contains(&arg.name) && arg.py_type.contains("Sequence[int]")
    };
    if !spec.args.iter().zip(&*values).any(is_single) {
        return;
    }
    let of = |name: &str| spec.args.iter().position(|arg| arg.name == name).map(|i| &values[i]);
    let ndim = inputs.first().map_or(0, ArrayOrNumber::ndim) as i64;
    let n = match (of("kernel"), of("base_axis")) {
        (Some(Value::Ints(kernel)), _) => kernel.len() as i64,
        (_, Some(Value::Int(base))) => ndim - if *base < 0 { base + ndim } else { *base } - 1,
        _ => ndim - 2,
    };
    if n <= 0 {
        return;
    }
    for (arg, value) in spec.args.iter().zip(values) {
        if let (true, Value::Int(one)) = (is_single((arg, value)), &*value) {
            *value = Value::Ints(vec![*one; n as usize]);
        }
    }
}

/// Returns `; did you mean 'axis'?` if `name` is close to one of the known names, else an empty string.
pub(super) fn nearest(py: Python<'_>, name: &str, known: Vec<&str>) -> String {
    let ask = || py.import("kinnor._suggest")?.call_method1("question", (name, known))?.extract();
    ask().unwrap_or_default()
}

/// The inputs and arguments as Python shows them: `x, alpha=0.1`.
pub(super) fn parameters(row: &Row) -> String {
    let spec = row.entry.spec;
    let mut parts: Vec<String> = Vec::new();
    for input in spec.inputs {
        parts.push(match input.kind {
            Kind::list => format!("*{}", input.name),
            Kind::optional => format!("{}=None", input.name),
            _ => input.name.to_string(),
        });
    }
    let mut defaulted = parts.iter().any(|p| p.contains('=') || p.starts_with('*'));
    for (arg, default) in spec.args.iter().zip(&row.defaults) {
        defaulted |= default.is_some();
        parts.push(match default {
            // `inspect` drops a comma before a parenthesis, so `(1,)` would read as 1.
            Some(Value::Ints(one)) if one.len() == 1 => format!("{}={one:?}", arg.name),
            Some(v) => format!("{}={v}", arg.name),
            // After a parameter with a default, Python requires defaults. The call itself reports a missing value.
            None if defaulted && !row.has_list => format!("{}=...", arg.name),
            None => arg.name.to_string(),
        });
    }
    parts.join(", ")
}

/// The whole parameter list as Python shows it: `(x, alpha=0.1, *, n_outputs=-1, outputs=None)`.
fn signature(row: &Row) -> String {
    let spec = row.entry.spec;
    let mut parts: Vec<String> = vec![parameters(row)].into_iter().filter(|own| !own.is_empty()).collect();
    if !row.has_list {
        parts.push("*".into());
    }
    for (name, default) in [("n_outputs", "-1"), ("outputs", "None")] {
        if spec.args.iter().all(|a| a.name != name) {
            parts.push(format!("{name}={default}"));
        }
    }
    format!("({})", parts.join(", "))
}

/// The C function behind every generated function. The state of the module `slf` is the number of the row.
unsafe extern "C" fn trampoline(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls this with its lock held. `args` has `nargs` positional arguments, then the values of the
    // keywords in the tuple `kwnames`. `slf` is the module made by `function`, whose state is an initialised number.
    unsafe {
        let py = Python::assume_attached();
        let call = || -> PyResult<Bound<'_, PyAny>> {
            let row = &rows()[*ffi::PyModule_GetState(slf).cast::<usize>()];
            // A `Bound` would release its reference when it is dropped. These are borrowed and never dropped.
            let given = |total: usize| -> &[Bound<'_, PyAny>] {
                if total == 0 { &[] } else { std::slice::from_raw_parts(args.cast(), total) }
            };
            if kwnames.is_null() {
                return apply(py, row, given(nargs as usize), &[], &[]);
            }
            let kwnames: SmallVec<[Bound<'_, PyAny>; 4]> =
                Bound::from_borrowed_ptr(py, kwnames).cast_into::<PyTuple>()?.iter().collect();
            let (positional, values) = given(nargs as usize + kwnames.len()).split_at(nargs as usize);
            apply(py, row, positional, &kwnames, values)
        };
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
            Ok(Ok(result)) => result.into_ptr(),
            Ok(Err(error)) => {
                error.restore(py);
                std::ptr::null_mut()
            }
            Err(panic) => {
                // PyO3 panics if Python has no memory for an object, and leaves Python's error set.
                let error = PyErr::take(py).filter(|error| error.is_instance_of::<PyMemoryError>(py));
                error.unwrap_or_else(|| Error::of_panic(&*panic).into()).restore(py);
                std::ptr::null_mut()
            }
        }
    }
}

/// Leaks a string, because a method table must outlive every call.
fn keep(text: String) -> *const c_char {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    Box::leak(text.into_boxed_c_str()).as_ptr()
}

/// A Python function that calls row `n`.
///
/// It is bound to a module of its own with `n` as its state. A function bound to a module is shown and pickled under
/// its plain name.
fn function<'py>(py: Python<'py>, n: usize, name: &str, doc: String) -> PyResult<Bound<'py, PyAny>> {
    let module = Box::leak(Box::new(ffi::PyModuleDef {
        m_base: ffi::PyModuleDef_HEAD_INIT,
        m_name: c"kinnor.functions".as_ptr(),
        m_doc: std::ptr::null(),
        m_size: size_of::<usize>() as ffi::Py_ssize_t,
        m_methods: std::ptr::null_mut(),
        m_slots: std::ptr::null_mut(),
        m_traverse: None,
        m_clear: None,
        m_free: None,
    }));
    let method = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: keep(name.into()),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: trampoline },
        ml_flags: (ffi::METH_FASTCALL | ffi::METH_KEYWORDS) as c_int,
        ml_doc: keep(doc),
    }));
    let module_name = PyString::new(py, "kinnor.functions");
    // SAFETY: the definitions are leaked. The state is large enough for a number and lives as long as the module, which
    // the function holds a reference to.
    unsafe {
        let module = ffi::PyModule_Create2(module, ffi::PYTHON_API_VERSION);
        let module = Bound::from_owned_ptr_or_err(py, module)?;
        ffi::PyModule_GetState(module.as_ptr()).cast::<usize>().write(n);
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyCFunction_NewEx(method, module.as_ptr(), module_name.as_ptr()),
        )
    }
}

/// Adds the module `functions` with every operation to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let functions = PyModule::new(py, "functions")?;
    for (n, row) in rows().iter().enumerate() {
        let spec = row.entry.spec;
        // CPython parses the signature from this form, so that `help` and `inspect` show it.
        let doc = format!("{}{}\n--\n\n{}", spec.name, signature(row), spec.doc());
        functions.add(spec.name, function(py, n, spec.name, doc)?)?;
    }
    m.add_submodule(&functions)?;
    m.add_function(wrap_pyfunction!(declarations, m)?)
}

/// The declarations of all operations, for stubs, docs and tests.
///
/// Each is a tuple of name, type name, inputs (name, kind), arguments (name, info name, annotation, default as Python
/// source or None) and documentation.
#[pyfunction]
fn declarations(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for row in rows() {
        let spec = row.entry.spec;
        let inputs: Vec<_> = spec.inputs.iter().map(|i| (i.name, format!("{:?}", i.kind))).collect();
        let args: Vec<_> = spec
            .args
            .iter()
            .zip(&row.defaults)
            .map(|(a, d)| (a.name, a.info, a.py_type, d.as_ref().map(ToString::to_string)))
            .collect();
        list.append((spec.name, spec.type_name, inputs, args, spec.doc()))?;
    }
    Ok(list)
}

/// Calls a function of the package `kinnor.functions` by name.
pub(super) fn call<'py>(
    py: Python<'py>,
    name: &str,
    args: impl pyo3::call::PyCallArgs<'py>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("kinnor.functions")?.getattr(name)?.call(args, kwargs)
}
