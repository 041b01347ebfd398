//! Arrays made of numbers in order: arange, linspace, eye_like, matrix_diag, trilu.

use super::Entry;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[];
