//! `Function`: a handle on a node of the graph. Hooks and visitors get these.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use super::arguments::{count, dict, flags, some_flag, some_flags, whole};
use super::classes::Variable;
use super::operands::variables;
use super::scopes;
use super::values::to_python;
use crate::{Error, Result, graph};

/// A function of a graph: an operation with its inputs and outputs.
#[pyclass(frozen, subclass, weakref, module = "kinnor", name = "Function")]
pub(super) struct Function {
    /// None for an object of a derived class that Python code constructed: it belongs to no graph.
    function: Option<graph::Function>,
}

/// Attributes of a function that do not depend on the engine: type name, arguments, tags.
#[pyclass(frozen, get_all, module = "kinnor", name = "FunctionInfo")]
pub(super) struct Info {
    /// Name of the type: `LeakyReLU`.
    type_name: String,
    /// The constant arguments.
    args: Py<PyAny>,
    /// Tags set by the user.
    tags: Py<PyAny>,
}

impl Function {
    /// A handle on a function of a graph.
    pub(super) fn wrap(function: graph::Function) -> Self {
        Self { function: Some(function) }
    }

    /// The function. An error if the object belongs to no graph.
    pub(super) fn graph_function(&self) -> Result<graph::Function> {
        self.function().cloned()
    }

    /// The function, or an error if the object belongs to no graph.
    fn function(&self) -> Result<&graph::Function> {
        self.function.as_ref().ok_or_else(|| {
            Error::Graph("Function: expected a function of a graph, got an object of a derived class".into())
        })
    }

    /// Returns an error if there is no input or output number `i`.
    fn has(&self, what: &str, i: usize) -> PyResult<()> {
        let function = self.function()?;
        let n = if what == "input" { function.inputs().len() } else { function.outputs().len() };
        if i < n {
            return Ok(());
        }
        let text = format!("{}: expected one of {n} {what}s, got {what} {i}", function.type_name());
        Err(Error::Index(text).into())
    }

    /// Checks that input `i`, and the input or output with number `n`, exist. `what` names the second one.
    fn has_both(&self, i: usize, what: &str, n: usize) -> PyResult<()> {
        self.has("input", i)?;
        self.has(what, n)
    }
}

/// The graph's handles of variables.
fn refs<'a>(list: &'a [Bound<'_, Variable>]) -> Vec<&'a graph::Variable> {
    list.iter().map(|v| &v.get().variable).collect()
}

#[pymethods]
impl Function {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(*_args, **_kwargs)")]
    fn new(
        cls: &Bound<'_, PyType>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        if cls.is(cls.py().get_type::<Self>()) {
            return Err(Error::Type(
                "Function: expected a call of kinnor.functions, got one of the class".into(),
            )
            .into());
        }
        Ok(Self { function: None })
    }

    #[pyo3(signature = (*_args, **_kwargs))]
    fn __init__(&self, _args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) {}

    /// Name of the operation's type, or of the user's function.
    #[getter]
    fn name(&self) -> Result<String> {
        Ok(self.function()?.type_name())
    }

    /// Type name, arguments and tags.
    #[getter]
    fn info(&self, py: Python<'_>) -> PyResult<Info> {
        Ok(Info {
            type_name: self.function()?.type_name(),
            args: self.args(py)?.into_any().unbind(),
            tags: self.tags(py)?.into_any().unbind(),
        })
    }

    /// Count of random numbers that its runs have drawn, or None if it draws none. A function with a seed of its own,
    /// such as `F.dropout(x, seed=7)`, continues its sequence there.
    #[getter]
    fn random_position(&self) -> Result<Option<u64>> {
        self.function()?.random_position()
    }

    #[setter]
    fn set_random_position(&self, position: u64) -> Result<()> {
        self.function()?.set_random_position(position)
    }

    /// The counts and values that its runs keep for later runs, as bytes for a checkpoint. None if its results depend
    /// only on its inputs and on random numbers.
    #[getter]
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.function()?.progress()?.map(|bytes| PyBytes::new(py, &bytes)))
    }

    #[setter]
    fn set_progress(&self, progress: &[u8]) -> Result<()> {
        self.function()?.resume(progress)
    }

    /// The constant arguments by name.
    #[getter]
    fn args<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if let Some(user) = super::user_operation::arguments(py, &self.function()?.op())? {
            return Ok(user);
        }
        let dict = PyDict::new(py);
        for (name, value) in self.function()?.arguments() {
            dict.set_item(name, to_python(py, &value)?)?;
        }
        Ok(dict)
    }

    /// Same as `args`.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.args(py)
    }

    /// The user's tags by key. Assign a dict of strings to change them.
    #[getter]
    fn tags<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in self.function()?.tags() {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    #[setter]
    fn set_tags(&self, #[pyo3(from_py_with = dict)] tags: Bound<'_, PyDict>) -> PyResult<()> {
        let text =
            |(k, v): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((k.str()?.to_string(), v.str()?.to_string()));
        self.function()?.set_tags(tags.iter().map(text).collect::<PyResult<_>>()?);
        Ok(())
    }

    /// The inputs that were given.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, Variable>>> {
        self.function()?.inputs().into_iter().map(|v| Variable::wrap(py, v)).collect()
    }

    /// The outputs.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, Variable>>> {
        self.function()?.outputs().into_iter().map(|v| Variable::wrap(py, v)).collect()
    }

    /// The longest path to it from a variable without parent.
    #[getter]
    fn rank(&self) -> Result<u32> {
        Ok(self.function()?.rank())
    }

    /// True if gradients flow through it, as determined when it was made or by the last forward run.
    #[getter]
    fn need_grad(&self) -> Result<bool> {
        Ok(self.function()?.need_grad())
    }

    /// The context in which it computes.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let c = self.function()?.context();
        let class = py.import("kinnor.context")?.getattr("Context")?;
        class.call1((c.backend, c.array_class, c.device_id))
    }

    /// The number of this context. Equal contexts have the same number.
    #[getter]
    fn context_number(&self) -> Result<u16> {
        Ok(self.function()?.context_number())
    }

    /// Least number of outputs.
    fn min_outputs(&self) -> Result<usize> {
        Ok(self.function()?.outputs().len())
    }

    /// Memory that an output shares with input `i`: 0 for none, 1 for equal values, 2 for overwritten values.
    fn inplace_data(&self, #[pyo3(from_py_with = count)] i: usize) -> PyResult<u8> {
        self.has("input", i)?;
        Ok(self.function()?.alias(i).map_or(0, |alias| 1 + u8::from(alias.modifies)))
    }

    /// The number of the output that shares memory with input `i`, or None.
    fn inplace_data_with(&self, #[pyo3(from_py_with = count)] i: usize) -> PyResult<Option<usize>> {
        self.has("input", i)?;
        Ok(self.function()?.alias(i).map(|alias| alias.output))
    }

    /// True if the gradient of input `i` reads the data of input `j`.
    fn grad_depends_input_data(
        &self,
        #[pyo3(from_py_with = count)] i: usize,
        #[pyo3(from_py_with = count)] j: usize,
    ) -> PyResult<bool> {
        self.has_both(i, "input", j)?;
        Ok(self.function()?.op().facts().reads(i).input(j))
    }

    /// True if the gradient of input `i` reads the data of output `o`.
    fn grad_depends_output_data(
        &self,
        #[pyo3(from_py_with = count)] i: usize,
        #[pyo3(from_py_with = count)] o: usize,
    ) -> PyResult<bool> {
        self.has_both(i, "output", o)?;
        Ok(self.function()?.op().facts().reads(i).output(o))
    }

    /// Like `grad_depends_input_data`, for the gradient built as a graph.
    fn auto_grad_depends_input_data(
        &self,
        #[pyo3(from_py_with = count)] i: usize,
        #[pyo3(from_py_with = count)] j: usize,
    ) -> PyResult<bool> {
        self.has_both(i, "input", j)?;
        Ok(self.function()?.op().facts().symbol_reads(i).input(j))
    }

    /// Like `grad_depends_output_data`, for the gradient built as a graph.
    fn auto_grad_depends_output_data(
        &self,
        #[pyo3(from_py_with = count)] i: usize,
        #[pyo3(from_py_with = count)] o: usize,
    ) -> PyResult<bool> {
        self.has_both(i, "output", o)?;
        Ok(self.function()?.op().facts().symbol_reads(i).output(o))
    }

    /// True if recomputing output `o` must repeat random numbers.
    fn need_setup_recompute(&self, #[pyo3(from_py_with = count)] o: usize) -> PyResult<bool> {
        self.has("output", o)?;
        Ok(self.function()?.op().facts().is_random)
    }

    /// Announces that the next forward run will be recomputed. Does nothing: every run can be. Exists for NNabla
    /// programs.
    fn setup_recompute(&self, inputs: &Bound<'_, PyAny>, outputs: &Bound<'_, PyAny>) -> PyResult<()> {
        variables("setup_recompute", inputs)?;
        variables("setup_recompute", outputs)?;
        Ok(())
    }

    /// Selects the inputs that a function of type AddN or MulN reads from now on. The other inputs, and the functions
    /// that compute only them, do not run and get no gradient. Run forward before the next backward run.
    ///
    /// Args:
    ///     mask: For each input, True if the function reads it. At least one must be True.
    ///
    /// Raises:
    ///     ValueError: If the function has another type, or the mask another length or no True.
    ///     GraphError: If the function is being run.
    fn set_active_input_mask(&self, #[pyo3(from_py_with = flags)] mask: Vec<bool>) -> PyResult<()> {
        Ok(self.function()?.set_active_inputs(&mask)?)
    }

    /// Infers the shapes of the outputs from the shapes of the inputs, and sets them.
    fn setup(&self, inputs: &Bound<'_, PyAny>, outputs: &Bound<'_, PyAny>) -> PyResult<()> {
        let (x, y) = (variables("setup", inputs)?, variables("setup", outputs)?);
        Ok(self.function()?.set_up_on(&refs(&x), &refs(&y))?)
    }

    /// Computes the outputs from the inputs.
    fn forward(&self, inputs: &Bound<'_, PyAny>, outputs: &Bound<'_, PyAny>) -> PyResult<()> {
        let (x, y) = (variables("forward", inputs)?, variables("forward", outputs)?);
        Ok(self.function()?.forward_on(&refs(&x), &refs(&y), false)?)
    }

    /// Computes the outputs again, with the same random numbers and without side effects.
    fn recompute(&self, inputs: &Bound<'_, PyAny>, outputs: &Bound<'_, PyAny>) -> PyResult<()> {
        let (x, y) = (variables("recompute", inputs)?, variables("recompute", outputs)?);
        Ok(self.function()?.forward_on(&refs(&x), &refs(&y), true)?)
    }

    /// Computes the gradients of the inputs from the gradients of the outputs.
    ///
    /// Args:
    ///     inputs: The inputs.
    ///     outputs: The outputs.
    ///     accum: For each input, True to add to its gradient. Missing entries count as True.
    #[pyo3(signature = (inputs, outputs, accum = None))]
    fn backward(
        &self,
        inputs: &Bound<'_, PyAny>,
        outputs: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = some_flags)] accum: Option<Vec<bool>>,
    ) -> PyResult<()> {
        let (x, y) = (variables("backward", inputs)?, variables("backward", outputs)?);
        let accum = accum.unwrap_or_else(|| vec![true; x.len()]);
        Ok(self.function()?.backward_on(&refs(&x), &refs(&y), &accum)?)
    }

    /// Applies the same operation to other inputs.
    #[pyo3(signature = (*inputs, n_outputs = -1, auto_forward = None, outputs = None))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyTuple>,
        #[pyo3(from_py_with = whole)] n_outputs: i64,
        #[pyo3(from_py_with = some_flag)] auto_forward: Option<bool>,
        outputs: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (n_outputs, auto_forward);
        let x = variables("function", inputs.as_any())?;
        let (op, wanted) = (self.function()?.op(), self.function()?.inputs().len());
        // The library's own operations check the number of inputs themselves, and some accept any number.
        if op.on_arrays().is_some() && x.len() != wanted {
            let text = format!("{}: expected {wanted} inputs, got {}", op.type_name(), x.len());
            return Err(Error::Type(text).into());
        }
        let into = outputs.map_or(Ok(Vec::new()), super::operands::into_arrays)?;
        scopes::follow(py);
        let y = graph::connect(op, &refs(&x), &into)?;
        let y: Vec<_> = y.into_iter().map(|y| Variable::wrap(py, y)).collect::<PyResult<_>>()?;
        match y.len() {
            1 => Ok(y[0].clone().into_any()),
            _ => Ok(PyTuple::new(py, y)?.into_any()),
        }
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> bool {
        let own = slf.get().function.as_ref();
        slf.is(other) || own.is_some() && other.cast::<Self>().is_ok_and(|o| o.get().function.as_ref() == own)
    }

    fn __hash__(slf: &Bound<'_, Self>) -> u64 {
        let number = |function: &graph::Function| function.number() & (u64::MAX >> 2);
        slf.get().function.as_ref().map_or_else(|| slf.as_ptr().addr() as u64 >> 4, number)
    }

    fn __str__(&self) -> Result<String> {
        Ok(self.function()?.type_name())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let Some(function) = &slf.get().function else {
            return Ok(format!("<{} without a function of a graph>", slf.get_type().name()?));
        };
        let args: Vec<_> = function.arguments().iter().map(|(k, v)| format!("{k}={v}")).collect();
        Ok(format!("<Function {}({})>", function.type_name(), args.join(", ")))
    }
}
