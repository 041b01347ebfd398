//! Kinnor: a deep-learning engine for CPUs.
//!
//! [`graph`] has variables, functions, and their forward and backward runs. [`apply`](graph::apply) computes an
//! operation of [`ops::registry`] by name. [`solvers`] update parameters, and [`mod@array`] has shapes and element
//! types. The feature `ndarray`, on by default, converts arrays from and to that crate. With the feature `rayon`,
//! kernels can run on its threads ([`threads`]).
//!
//! ```
//! use kinnor::graph::{BackwardOptions, ForwardOptions, Variable, apply};
//!
//! let x = Variable::from_values([2], &[3.0, 4.0])?.with_need_grad(true);
//! let y = apply("mul2", &[&x, &x], &[])?.remove(0);
//! y.forward(&ForwardOptions::default())?;
//! y.backward(&BackwardOptions::default())?;
//! assert_eq!(x.grad().to_vec()?, [6.0, 8.0]);
//! # Ok::<(), kinnor::Error>(())
//! ```

pub mod array;
mod environment;
pub mod error;
pub mod graph;
/// Public only for this crate's benches and tests: kernels rely on the engine's checks of their arguments.
#[doc(hidden)]
pub mod kernels;
pub mod ops;
pub mod solvers;

#[cfg(feature = "python")]
mod python;

pub use error::{Error, Result};

/// The number of threads that share the work of a kernel, and the choice of the thread pool.
pub mod threads {
    pub use crate::kernels::threads::{ThreadPool, num_threads, set_num_threads, set_thread_pool};
}

/// Checks all environment variables that the crate reads. Without this check, an invalid value acts like the default.
///
/// # Errors
/// [`Error::Value`] if one of them is invalid.
pub fn check_environment() -> Result<()> {
    array::limit_of_environment()?;
    kernels::simd::isa_of_environment()?;
    kernels::threads::threads_of_environment()?;
    graph::settings::plan_of_environment()?;
    Ok(())
}
