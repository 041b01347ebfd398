//! Modes, random seeds and memory settings as plain functions, which `kinnor` wraps in context managers.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments::{bytes, flag, object, text, whole};
use super::scopes;
use crate::array::memory_stats as stats;
use crate::graph;
use crate::graph::settings::{self, CheckSaved, Context, Dialect, ExecutionOrder, Precision};
use crate::kernels::convolution::{self, Algorithm};
use crate::kernels::gemm::MatmulPrecision;
use crate::kernels::{gemm, integer, random, simd, threads};

/// Defines Python functions that call one Rust function each, and `add_plain`, which registers them.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident($($(#[$how:meta])* $arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)+) => {
        $($(#[$doc])* #[pyfunction] fn $name(py: Python<'_>, $($(#[$how])* $arg: $ty),*) -> $out {
            scopes::follow(py);
            $body
        })+

        fn add_plain(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)+
            Ok(())
        }
    };
}

plain! {
    /// True if functions run as soon as they are built.
    auto_forward_mode() -> bool = settings::auto_forward();
    /// Sets the default of the process.
    set_auto_forward_mode(on: bool) -> () = settings::set_auto_forward(on);
    /// Sets or removes the override of this thread. Returns the old one.
    scope_auto_forward(on: Option<bool>) -> Option<bool> = settings::scope_auto_forward(on);
    /// True if functions that are built now take part in differentiation.
    grad_mode() -> bool = settings::grad_enabled();
    /// Sets the grad mode of this thread. Returns the old one.
    set_grad_mode(on: bool) -> bool = settings::set_grad_enabled(on);
    /// True if variables that are made now may be recomputed.
    recompute_mode() -> bool = settings::recompute();
    /// Sets the default of the process.
    set_recompute_mode(on: bool) -> () = settings::set_recompute(on);
    /// Sets or removes the override of this thread. Returns the old one.
    scope_recompute(on: Option<bool>) -> Option<bool> = settings::scope_recompute(on);
    /// Marks that values are being recomputed on this thread. Returns the old mark.
    set_recomputing(on: bool) -> bool = settings::set_recomputing(on);
    /// Starts recording the random numbers that this thread draws.
    record_random() -> () = random::record();
    /// True if values are being recomputed on this thread.
    in_recomputing() -> bool = settings::in_recomputing();
    /// The order of forward runs: "rank" or "depth_first".
    execution_order() -> &'static str = ORDERS[settings::execution_order() as usize].0;
    /// The dialect of the process: "native" or "nnabla".
    dialect() -> &'static str = if settings::is_nnabla() { "nnabla" } else { "native" };
    /// True if the dialect is NNabla's.
    is_nnabla() -> bool = settings::is_nnabla();
    /// True if plans run function by function.
    plan_is_plain() -> bool = settings::plan_is_plain();
    /// Sets `plan_is_plain`.
    set_plan_is_plain(on: bool) -> () = settings::set_plan_is_plain(on);
    /// True if reads and outputs of functions are recorded while no graph is built.
    noting() -> bool = settings::noting();
    /// The reaction of a backward run to values that changed since the forward run: `ignore`, `warn` or `raise`.
    check_saved() -> &'static str = SAVED[settings::check_saved() as usize].0;
    /// Number of the context in which functions are built now.
    context_mode() -> u16 = settings::current_context();
    /// Sets the default of the process.
    set_context_mode(number: u16) -> () = settings::set_default_context(number);
    /// Sets or removes the override of this thread. Returns the old one.
    scope_context(number: Option<u16>) -> Option<u16> = settings::scope_context(number);
    /// Restarts the sequence of random numbers from a seed.
    seed(value: u64) -> () = random::seed(value);
    /// The seed of the random sequence, and the count of numbers drawn from it.
    random_state() -> (u64, u64) = random::state();
    /// Continues the random sequence of `seed` after `offset` numbers.
    restore_random(seed: u64, offset: u64) -> () = random::restore(seed, offset);
    /// Makes this process draw slice number `part` of the `parts` slices of random numbers of whole arrays.
    share_random(part: u32, parts: u32) -> () = random::share(part, parts);
    /// Number of threads that share the work of a function.
    get_num_threads() -> usize = threads::num_threads();
    /// Returns cached free memory to the system.
    clear_memory_cache() -> () = crate::array::clear_memory_cache();
    /// Starts or stops recording the arrays that are cleared after each function.
    record_clear_flags(on: bool) -> () = graph::record_clear_flags(on);
}

/// The number of the context with these parts. `compute` is `float`, `double`, `half` or `bfloat16`.
#[pyfunction]
fn intern_context(
    backend: Vec<String>,
    array_class: String,
    device_id: String,
    compute: &str,
) -> PyResult<u16> {
    let compute = match compute {
        "float" => Precision::Float,
        "double" => Precision::Double,
        "half" => Precision::Half,
        "bfloat16" => Precision::BFloat16,
        other => {
            let expected = "float, double, half or bfloat16";
            return Err(crate::Error::argument("context", "type_config", expected, other).into());
        }
    };
    Ok(settings::intern(&Context { backend, array_class, device_id, compute })?)
}

/// The random numbers drawn since the last `record_random`, as the start of each sequence.
#[pyfunction]
fn recorded_random() -> Vec<(u64, u64)> {
    random::recorded().into_iter().map(|key| (key.seed, key.offset)).collect()
}

/// Queues recorded random numbers, which this thread draws before new ones. Returns the rest of the previous queue.
#[pyfunction]
fn replay_random(keys: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let keys = keys.into_iter().map(|(seed, offset)| random::PhiloxKey { seed, offset }).collect();
    random::replay(keys).into_iter().map(|key| (key.seed, key.offset)).collect()
}

/// The parts of the context with this number: backend, array_class, device_id.
#[pyfunction]
fn context_parts(number: u16) -> (Vec<String>, String, String) {
    let c = settings::context(number);
    (c.backend, c.array_class, c.device_id)
}

/// Sets the number of threads that share the work of a function. Results do not depend on it.
///
/// Args:
///     n: The number of threads, including the calling thread, 1 to 1024.
///
/// Raises:
///     ArgumentError: If `n` is out of that range.
#[pyfunction]
fn set_num_threads(#[pyo3(from_py_with = whole)] n: i64) -> PyResult<()> {
    match usize::try_from(n) {
        Ok(n @ 1..=threads::MOST_THREADS) => {
            threads::set_num_threads(n);
            Ok(())
        }
        _ => Err(crate::Error::argument("set_num_threads", "n", "1 to 1024", n).into()),
    }
}

/// Names of the convolution algorithms.
const ALGORITHMS: [(&str, Algorithm); 3] =
    [("auto", Algorithm::Auto), ("direct", Algorithm::Direct), ("winograd", Algorithm::Winograd)];

/// Sets the convolution algorithm of the process.
///
/// `"direct"` multiplies as often as the definition says. `"winograd"` uses F(4 x 4, 3 x 3) for 3 x 3 kernels of stride
/// 1: a quarter of the multiplications, and more rounding. The kernels may be dilated.
///
/// `"auto"`, the default, uses Winograd where it is faster, in all types but double. For the output and the gradient of
/// the input, it needs at least 24 channels and maps in a group, and enough outputs. For the gradient of the weight, it
/// needs 16 channels and maps and 1,024 outputs. Channels must not be last. The choice depends on the function, its
/// shapes, its values and this setting, never on the number of threads.
///
/// Parts of an image that would round too much are computed directly. They contain infinite or NaN inputs, or only
/// zeros. Or the energies of neighbouring pixels differ by more than a factor of about 1,000. The whole convolution is
/// direct if a weight is infinite or NaN, or if the weights of a map all have one sign.
///
/// On normally distributed numbers, the root mean square error is at most about twice the error of direct sums.
///
/// Args:
///     name: `"auto"`, `"direct"` or `"winograd"`.
///
/// Raises:
///     ArgumentError: If `name` is another string.
///
/// Example:
///     >>> nn.set_conv_algorithm("direct")
///     >>> nn.get_conv_algorithm()
///     'direct'
///     >>> nn.set_conv_algorithm("auto")
#[pyfunction]
fn set_conv_algorithm(#[pyo3(from_py_with = text)] name: String) -> PyResult<()> {
    let found = ALGORITHMS.iter().find(|(known, _)| *known == name);
    let (_, algorithm) = found.ok_or_else(|| {
        let expected = "'auto', 'direct' or 'winograd'";
        crate::Error::argument("set_conv_algorithm", "name", expected, format!("{name:?}"))
    })?;
    convolution::set_algorithm(*algorithm);
    Ok(())
}

/// The convolution algorithm: see `set_conv_algorithm`.
#[pyfunction]
fn get_conv_algorithm() -> &'static str {
    ALGORITHMS[convolution::algorithm() as usize].0
}

/// Names of the precisions of products.
const PRECISIONS: [(&str, MatmulPrecision); 3] = [
    ("highest", MatmulPrecision::Highest),
    ("high", MatmulPrecision::High),
    ("medium", MatmulPrecision::Medium),
];

/// Sets how products of float32 matrices are computed in this process.
///
/// It concerns affine layers, products of matrices, and convolutions that are such products, in all passes. Arrays stay
/// in float32, and sums are in float32. On N(0, 1) data, the error of a sum of n terms is about sqrt(n) times the
/// error of a term:
///
/// - `"highest"`, the default, multiplies in float32.
/// - `"high"` takes each number as the sum of two numbers in bfloat16 and computes three products of these. A term has
///   a relative error of about 1e-5. Used only with the instructions of AMX, where it is faster.
/// - `"medium"` rounds each number to bfloat16. A term has a relative error of up to 2^-8. Used only on processors
///   that multiply numbers in bfloat16.
///
/// With `"high"` and `"medium"`, subnormal numbers count as zero, and numbers from 3.39e38 on as infinite. Other
/// processors compute in float32 with any setting. Double precision never changes.
///
/// Args:
///     name: `"highest"`, `"high"` or `"medium"`, as in PyTorch.
///
/// Raises:
///     ArgumentError: If `name` is another string.
///
/// Example:
///     >>> nn.set_matmul_precision("high")
///     >>> nn.get_matmul_precision()
///     'high'
///     >>> nn.set_matmul_precision("highest")
#[pyfunction]
fn set_matmul_precision(#[pyo3(from_py_with = text)] name: String) -> PyResult<()> {
    let found = PRECISIONS.iter().find(|(known, _)| *known == name);
    let (_, precision) = found.ok_or_else(|| {
        let expected = "'highest', 'high' or 'medium'";
        crate::Error::argument("set_matmul_precision", "name", expected, format!("{name:?}"))
    })?;
    gemm::set_matmul_precision(*precision);
    Ok(())
}

/// The precision of products of float32 matrices: see `set_matmul_precision`.
#[pyfunction]
fn get_matmul_precision() -> &'static str {
    PRECISIONS[gemm::matmul_precision() as usize].0
}

/// Properties of the platform by name: instruction sets, threads, memory and build options.
#[pyfunction]
fn configuration(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("instructions", simd::isa().name())?;
    dict.set_item("processor", detected().join(" "))?;
    dict.set_item("threads", threads::num_threads())?;
    dict.set_item("memory", memory_stats(py)?)?;
    dict.set_item("build", if cfg!(debug_assertions) { "debug" } else { "release" })?;
    Ok(dict)
}

/// The instructions that products in bfloat16 use: `amx`, `avx512bf16`, or `float32` if numbers are widened.
///
/// Says so if AMX is off because its first product was wrong.
#[pyfunction]
fn bfloat16_instructions() -> &'static str {
    gemm::bfloat16_instructions()
}

/// The instructions that products of 8-bit levels use, such as `amx`, `avx512vnni`, `avx2`, `i8mm` or `portable`.
///
/// Says so if AMX is off because its first product was wrong.
#[pyfunction]
fn integer_instructions() -> String {
    integer::instructions()
}

/// Vector instructions of this processor that the standard library detects.
fn detected() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let all = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
    ];
    #[cfg(target_arch = "aarch64")]
    let all = [
        ("neon", true),
        ("fp16", std::arch::is_aarch64_feature_detected!("fp16")),
        ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
        ("bf16", std::arch::is_aarch64_feature_detected!("bf16")),
        ("i8mm", std::arch::is_aarch64_feature_detected!("i8mm")),
    ];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let all: [(&str, bool); 0] = [];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// Bytes in live buffers, bytes of cached free memory, and the peak of live bytes.
#[pyfunction]
fn memory_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let now = stats();
    let dict = PyDict::new(py);
    dict.set_item("live", now.live)?;
    dict.set_item("cached", now.cached)?;
    dict.set_item("peak", now.peak)?;
    Ok(dict)
}

/// Memory use of a training step that ends in `variable`, or of a prediction, for `kinnor.plan_report`.
#[pyfunction]
#[pyo3(signature = (variable, memory_budget, clear_buffer = false))]
fn plan_facts<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = object)] variable: Bound<'py, super::classes::Variable>,
    #[pyo3(from_py_with = bytes)] memory_budget: Option<usize>,
    #[pyo3(from_py_with = flag)] clear_buffer: bool,
) -> PyResult<Bound<'py, PyDict>> {
    scopes::follow(py);
    let report = graph::report(&variable.get().variable, memory_budget, clear_buffer)?;
    let fate = |fate| match fate {
        graph::Fate::Kept => "kept",
        graph::Fate::Dropped => "dropped",
        graph::Fate::Recomputed => "recomputed",
        graph::Fate::Evicted => "evicted",
    };
    let value = |v: &graph::ReportValue| (v.shape.to_vec(), v.bytes, fate(v.fate));
    let step = |s: &graph::ReportStep| {
        let inputs: Vec<Vec<usize>> = s.inputs.iter().map(|x| x.to_vec()).collect();
        (s.type_name.clone(), inputs, s.outputs.iter().map(value).collect::<Vec<_>>(), s.live)
    };
    let facts = PyDict::new(py);
    facts.set_item("steps", report.steps.iter().map(step).collect::<Vec<_>>())?;
    facts.set_item("peak_keeping", report.peak_keeping)?;
    facts.set_item("peak_clearing", report.peak_clearing)?;
    facts.set_item("peak", report.peak)?;
    facts.set_item("budget", report.budget)?;
    facts.set_item("extra", report.extra)?;
    facts.set_item("at_once", report.at_once)?;
    let optimised = |o: &graph::Optimised| {
        let passes: Vec<(usize, usize)> = o.passes.iter().map(|pass| (pass.start, pass.end)).collect();
        let along: Vec<(usize, usize)> = o.along.iter().map(|along| (along.start, along.end)).collect();
        (passes, o.in_place.clone(), o.saved, along)
    };
    facts.set_item("instructions", report.instructions)?;
    facts.set_item("optimised", report.optimised.iter().map(optimised).collect::<Vec<_>>())?;
    Ok(facts)
}

/// Makes allocations fail, for tests: `count` of them, from number `first` of those made from now on. By default none
/// fail. Returns the number of allocations since the last call if failures were scheduled.
#[pyfunction]
#[pyo3(signature = (first = 0, count = 0))]
fn fail_allocations(first: usize, count: usize) -> usize {
    crate::array::fail_allocations(first..first.saturating_add(count))
}

/// Restarts the peak of live bytes.
#[pyfunction]
fn reset_peak_memory() {
    crate::array::reset_peak_memory();
}

/// The arrays cleared after each function: (data, grad) flags of its inputs and of its outputs.
#[pyfunction]
fn recorded_clear_flags() -> Vec<(Vec<graph::ClearFlags>, Vec<graph::ClearFlags>)> {
    graph::recorded_clear_flags().into_iter().map(|r| (r.inputs, r.outputs)).collect()
}

/// Starts or stops timing the steps of runs, on all threads.
#[pyfunction]
fn time_runs(#[pyo3(from_py_with = flag)] on: bool) {
    graph::time_runs(on);
}

/// A timed step: the functions that ran together, true for backward, start and end as nanoseconds before now, and the
/// peak of bytes in all arrays meanwhile.
type TimedStep = (Vec<super::function::Function>, bool, u64, u64, usize);

/// The steps timed on this thread since the last call.
#[pyfunction]
fn take_timings() -> Vec<TimedStep> {
    let now = std::time::Instant::now();
    let ago = |then| now.saturating_duration_since(then).as_nanos() as u64;
    let timed = |t: graph::Timing| {
        let functions = t.functions.into_iter().map(super::function::Function::wrap).collect();
        (functions, t.is_backward, ago(t.began), ago(t.ended), t.peak)
    };
    graph::take_timings().into_iter().map(timed).collect()
}

/// Raises the first error that occurred while a variable was dropped since the last call.
#[pyfunction]
fn check_errors_at_drop() -> PyResult<()> {
    Ok(graph::check_errors_at_drop()?)
}

/// The possible reactions of a backward run to values that changed since the forward run, by name.
const SAVED: [(&str, CheckSaved); 3] =
    [("ignore", CheckSaved::Ignore), ("warn", CheckSaved::Warn), ("raise", CheckSaved::Raise)];

/// Sets `check_saved` for the process.
#[pyfunction]
fn set_check_saved(#[pyo3(from_py_with = text)] what: String) -> PyResult<()> {
    let found = SAVED.iter().find(|(name, _)| *name == what);
    let (_, what) = found.ok_or_else(|| {
        crate::Error::argument("config", "check_saved", "'ignore', 'warn' or 'raise'", format!("{what:?}"))
    })?;
    settings::set_check_saved(*what);
    Ok(())
}

/// The orders of forward runs, by name.
const ORDERS: [(&str, ExecutionOrder); 2] =
    [("rank", ExecutionOrder::Rank), ("depth_first", ExecutionOrder::DepthFirst)];

/// Sets the order of forward runs, for the process.
#[pyfunction]
fn set_execution_order(#[pyo3(from_py_with = text)] order: String) -> PyResult<()> {
    let found = ORDERS.iter().find(|(name, _)| *name == order);
    let (_, order) = found.ok_or_else(|| {
        crate::Error::argument("config", "execution_order", "'rank' or 'depth_first'", format!("{order:?}"))
    })?;
    settings::set_execution_order(*order);
    Ok(())
}

/// Sets the dialect of the process, and with it the defaults of `execution_order` and `check_saved`.
#[pyfunction]
fn set_dialect(#[pyo3(from_py_with = text)] dialect: String) -> PyResult<()> {
    settings::set_dialect(match &*dialect {
        "native" => Dialect::Native,
        "nnabla" => Dialect::NNabla,
        other => {
            let got = format!("{other:?}");
            return Err(crate::Error::argument("config", "dialect", "'native' or 'nnabla'", got).into());
        }
    });
    Ok(())
}

/// Adds the functions to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    add_plain(m)?;
    m.add_function(wrap_pyfunction!(intern_context, m)?)?;
    m.add_function(wrap_pyfunction!(context_parts, m)?)?;
    m.add_function(wrap_pyfunction!(recorded_random, m)?)?;
    m.add_function(wrap_pyfunction!(replay_random, m)?)?;
    m.add_function(wrap_pyfunction!(memory_stats, m)?)?;
    m.add_function(wrap_pyfunction!(fail_allocations, m)?)?;
    m.add_function(wrap_pyfunction!(reset_peak_memory, m)?)?;
    m.add_function(wrap_pyfunction!(plan_facts, m)?)?;
    m.add_function(wrap_pyfunction!(set_num_threads, m)?)?;
    m.add_function(wrap_pyfunction!(set_conv_algorithm, m)?)?;
    m.add_function(wrap_pyfunction!(get_conv_algorithm, m)?)?;
    m.add_function(wrap_pyfunction!(set_matmul_precision, m)?)?;
    m.add_function(wrap_pyfunction!(get_matmul_precision, m)?)?;
    m.add_function(wrap_pyfunction!(set_check_saved, m)?)?;
    m.add_function(wrap_pyfunction!(set_execution_order, m)?)?;
    m.add_function(wrap_pyfunction!(set_dialect, m)?)?;
    m.add_function(wrap_pyfunction!(configuration, m)?)?;
    m.add_function(wrap_pyfunction!(bfloat16_instructions, m)?)?;
    m.add_function(wrap_pyfunction!(integer_instructions, m)?)?;
    m.add_function(wrap_pyfunction!(recorded_clear_flags, m)?)?;
    m.add_function(wrap_pyfunction!(time_runs, m)?)?;
    m.add_function(wrap_pyfunction!(take_timings, m)?)?;
    m.add_function(wrap_pyfunction!(check_errors_at_drop, m)?)
}
