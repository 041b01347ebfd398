//! Kinnor: a deep-learning engine for the machine at hand.
//!
//! [`graph`] has variables, functions and how they run forward and backward; [`apply`](graph::apply) computes any of the
//! operations of [`ops::registry`] by name. [`solvers`] update parameters, [`mod@array`] has shapes and types. With the feature
//! `ndarray`, which is on by default, arrays go to and come from the crate of that name; with `rayon`, kernels run on its
//! threads if asked ([`threads`]).
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
/// For the benches and tests of this crate alone: it is the engine that checks what kernels are called with.
#[doc(hidden)]
pub mod kernels;
pub mod ops;
pub mod solvers;

#[cfg(feature = "python")]
mod python;

pub use error::{Error, Result};

/// The code of the README is a test.
#[cfg(all(doctest, feature = "ndarray"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// How many threads share the work of a kernel, and whose they are.
pub mod threads {
    pub use crate::kernels::threads::{ThreadPool, num_threads, set_num_threads, set_thread_pool};
}

/// Looks at all settings. (Whoever does not ask gets the default in the place of a wrong one.)
///
/// # Errors
/// [`Error::Value`] when one of them is wrong.
pub fn check_environment() -> Result<()> {
    array::limit_of_environment()?;
    kernels::simd::isa_of_environment()?;
    kernels::threads::threads_of_environment()?;
    graph::settings::plan_of_environment()?;
    Ok(())
}
