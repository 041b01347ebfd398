//! The contract between operations and engine: how an author declares an operation, and how the engine checks and
//! calls it. Read this folder first.

pub(crate) mod backward;
pub(crate) mod bound;
pub(crate) mod call;
pub(crate) mod compute;
pub(crate) mod derivative;
pub(crate) mod dialect;
pub(crate) mod elementwise;
pub(crate) mod facts;
pub(crate) mod formula;
pub(crate) mod loops;
pub(crate) mod operation;
pub(crate) mod part;
pub(crate) mod run;
pub(crate) mod shapes;
pub(crate) mod spec;
pub mod symbol;
