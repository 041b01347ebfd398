//! Taking and putting elements by index: gather, scatter, one_hot, bool_fill.

use super::Entry;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[];
