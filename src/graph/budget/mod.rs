//! Memory budgets: which values are dropped to keep within one, and how they come back.

pub(crate) mod eager;
pub(crate) mod r#static;
