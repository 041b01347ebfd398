//! Modes, seeds and memory, as plain functions that `kinnor` wraps in context managers.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments::{bytes, flag, object, text, whole};
use super::scopes;
use crate::array::memory_stats as stats;
use crate::graph;
use crate::graph::settings::{self, CheckSaved, Context, Precision};
use crate::kernels::convolution::{self, Algorithm};
use crate::kernels::{random, simd, threads};

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
    /// Whether functions run as soon as they are built.
    auto_forward_mode() -> bool = settings::auto_forward();
    /// Sets the default of the process.
    set_auto_forward_mode(on: bool) -> () = settings::set_auto_forward(on);
    /// Sets or lifts the override of this thread; returns the old one.
    scope_auto_forward(on: Option<bool>) -> Option<bool> = settings::scope_auto_forward(on);
    /// Whether functions that are built now take part in differentiation.
    grad_mode() -> bool = settings::grad_enabled();
    /// Sets it for this thread; returns what it was.
    set_grad_mode(on: bool) -> bool = settings::set_grad_enabled(on);
    /// Whether variables that are made now are recomputed.
    recompute_mode() -> bool = settings::recompute();
    /// Sets the default of the process.
    set_recompute_mode(on: bool) -> () = settings::set_recompute(on);
    /// Sets or lifts the override of this thread; returns the old one.
    scope_recompute(on: Option<bool>) -> Option<bool> = settings::scope_recompute(on);
    /// Says whether values are being computed again on this thread; returns what was said before.
    set_recomputing(on: bool) -> bool = settings::set_recomputing(on);
    /// Notes the random numbers that this thread draws from now on.
    record_random() -> () = random::record();
    /// Whether values are being computed again on this thread.
    in_recomputing() -> bool = settings::in_recomputing();
    /// Whether forward runs go depth first.
    depth_first() -> bool = settings::depth_first();
    /// Sets it.
    set_depth_first(on: bool) -> () = settings::set_depth_first(on);
    /// Whether functions may change leaves in place to which gradients flow.
    leaves_in_place() -> bool = settings::leaves_in_place();
    /// Sets `leaves_in_place`, for the process.
    set_leaves_in_place(on: bool) -> () = settings::set_leaves_in_place(on);
    /// Whether calls that can only be mistakes pass in silence.
    unwary() -> bool = settings::unwary();
    /// Sets `unwary`, for the process.
    set_unwary(on: bool) -> () = settings::set_unwary(on);
    /// Whether plans run function by function.
    plan_is_plain() -> bool = settings::plan_is_plain();
    /// Sets it.
    set_plan_is_plain(on: bool) -> () = settings::set_plan_is_plain(on);
    /// Whether it is noted what functions without a graph read and make.
    noting() -> bool = settings::noting();
    /// What a backward run does about values that changed since the forward run.
    check_saved() -> &'static str = SAVED[settings::check_saved() as usize].0;
    /// Number of the context in which functions are built now.
    context_mode() -> u16 = settings::current_context();
    /// Sets the default of the process.
    set_context_mode(number: u16) -> () = settings::set_default_context(number);
    /// Sets or lifts the override of this thread; returns the old one.
    scope_context(number: Option<u16>) -> Option<u16> = settings::scope_context(number);
    /// Starts the sequence of random numbers anew.
    seed(value: u64) -> () = random::seed(value);
    /// The seed of the sequence, and how many of its numbers were drawn.
    random_state() -> (u64, u64) = random::state();
    /// Goes on with the sequence of a seed after so many numbers.
    restore_random(seed: u64, offset: u64) -> () = random::restore(seed, offset);
    /// Draws from now on one part of the numbers that a process with the whole of each array would draw.
    share_random(part: u32, parts: u32) -> () = random::share(part, parts);
    /// How many threads share the work of a function.
    get_num_threads() -> usize = threads::num_threads();
    /// Gives memory that is kept for reuse back to the system.
    clear_memory_cache() -> () = crate::array::clear_memory_cache();
    /// Starts or stops noting what is cleared after each function.
    record_clear_flags(on: bool) -> () = graph::record_clear_flags(on);
}

/// The number of a context with these parts; `compute` is `float`, `double`, `half` or `bfloat16`.
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

/// What was drawn since the last `record_random`: where each sequence starts.
#[pyfunction]
fn recorded_random() -> Vec<(u64, u64)> {
    random::recorded().into_iter().map(|key| (key.seed, key.offset)).collect()
}

/// Lets this thread draw these before others; returns what was still to be drawn of the last ones.
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

/// Sets how many threads share the work of a function; results do not depend on it.
///
/// Args:
///     n: The number of threads, the caller among them; 1 to 1024.
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

/// Names of the ways to convolve.
const ALGORITHMS: [(&str, Algorithm); 3] =
    [("auto", Algorithm::Auto), ("direct", Algorithm::Direct), ("winograd", Algorithm::Winograd)];

/// Sets how convolutions are computed from now on, in the whole process.
///
/// `"direct"` multiplies as often as the definition says. `"winograd"` takes F(4 x 4, 3 x 3) for kernels of 3 x 3 that move by
/// one: a quarter of the multiplications, and more rounding. `"auto"`, the default, takes it where it is quicker, in all types
/// but double: for the output and the gradient of the input from 24 channels and maps in a group on, if there are not too few
/// outputs; for the gradient of the weight from 16 channels and maps and 1,024 outputs on. Channels must not be last.
/// Which way is taken depends on the function, its shapes, its numbers and this setting, never on the number of threads.
///
/// Parts of an image that would round too much are computed directly: where an input is infinite or NaN, where the energies of
/// neighbouring pixels differ by more than a factor of about 1,000, and where an output sees only zeros. So is all, if a
/// weight is infinite or NaN, or if the weights of a map have one sign.
///
/// On normally distributed numbers the root of the mean squared error against double precision is at most about twice that of
/// direct sums: 4.7e-7 to 7.0e-7 of that of the result, for 24 to 512 channels, beside 2.6e-7 to 3.8e-7. The largest error is
/// 3e-6 to 6e-6, beside 1.9e-6 to 3.3e-6.
///
/// Args:
///     name: `"auto"`, `"direct"` or `"winograd"`.
///
/// Raises:
///     ArgumentError: If it is none of them.
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

/// How convolutions are computed: see `set_conv_algorithm`.
#[pyfunction]
fn get_conv_algorithm() -> &'static str {
    ALGORITHMS[convolution::algorithm() as usize].0
}

/// On what functions run: the instructions that kernels are chosen for, the vector instructions that the processor has,
/// threads, memory, and how the library was built.
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

/// Vector instructions that the standard library detects.
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
    let all = [("neon", true), ("fp16", std::arch::is_aarch64_feature_detected!("fp16"))];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let all: [(&str, bool); 0] = [];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// Bytes in live buffers, kept for reuse, and the most ever live.
#[pyfunction]
fn memory_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let now = stats();
    let dict = PyDict::new(py);
    dict.set_item("live", now.live)?;
    dict.set_item("cached", now.cached)?;
    dict.set_item("peak", now.peak)?;
    Ok(dict)
}

/// What a training step to `variable`, or a prediction, would do with its memory: a dictionary that `kinnor.plan_report` shows.
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

/// Has `count` allocations from number `first` on fail, of all that are made from now on; none by default. Returns how many
/// there were since the last call, if some were to fail. For tests.
#[pyfunction]
#[pyo3(signature = (first = 0, count = 0))]
fn fail_allocations(first: usize, count: usize) -> usize {
    crate::array::fail_allocations(first..first.saturating_add(count))
}

/// Starts the count of the most bytes ever live anew.
#[pyfunction]
fn reset_peak_memory() {
    crate::array::reset_peak_memory();
}

/// What was cleared after each function: for each, the (data, grad) flags of its inputs and of its outputs.
#[pyfunction]
fn recorded_clear_flags() -> Vec<(Vec<graph::ClearFlags>, Vec<graph::ClearFlags>)> {
    graph::recorded_clear_flags().into_iter().map(|r| (r.inputs, r.outputs)).collect()
}

/// Starts or stops timing the steps of runs, on all threads.
#[pyfunction]
fn time_runs(#[pyo3(from_py_with = flag)] on: bool) {
    graph::time_runs(on);
}

/// Functions that ran together, whether backward, how many nanoseconds ago they began and ended, and the most bytes that
/// all arrays had meanwhile.
type TimedStep = (Vec<super::function::Function>, bool, u64, u64, usize);

/// What was timed on this thread since the last call.
#[pyfunction]
fn take_timings() -> Vec<TimedStep> {
    let now = std::time::Instant::now();
    let ago = |then| now.saturating_duration_since(then).as_nanos() as u64;
    let told = |t: graph::Timing| {
        let functions = t.functions.into_iter().map(super::function::Function::wrap).collect();
        (functions, t.is_backward, ago(t.began), ago(t.ended), t.peak)
    };
    graph::take_timings().into_iter().map(told).collect()
}

/// Raises the first error that happened while a variable was dropped since the last call.
#[pyfunction]
fn check_errors_at_drop() -> PyResult<()> {
    Ok(graph::check_errors_at_drop()?)
}

/// What a backward run may do about values that changed since the forward run, by name.
const SAVED: [(&str, CheckSaved); 3] =
    [("ignore", CheckSaved::Ignore), ("warn", CheckSaved::Warn), ("raise", CheckSaved::Raise)];

/// Sets `check_saved`, for the process.
#[pyfunction]
fn set_check_saved(#[pyo3(from_py_with = text)] what: String) -> PyResult<()> {
    let found = SAVED.iter().find(|(name, _)| *name == what);
    let (_, what) = found.ok_or_else(|| {
        crate::Error::argument("config", "check_saved", "'ignore', 'warn' or 'raise'", format!("{what:?}"))
    })?;
    settings::set_check_saved(*what);
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
    m.add_function(wrap_pyfunction!(set_check_saved, m)?)?;
    m.add_function(wrap_pyfunction!(configuration, m)?)?;
    m.add_function(wrap_pyfunction!(recorded_clear_flags, m)?)?;
    m.add_function(wrap_pyfunction!(time_runs, m)?)?;
    m.add_function(wrap_pyfunction!(take_timings, m)?)?;
    m.add_function(wrap_pyfunction!(check_errors_at_drop, m)?)
}
