//! Memory budgets: values are dropped to keep within a budget, and recomputed when they are needed.

pub(crate) mod eager;
pub(crate) mod r#static;
