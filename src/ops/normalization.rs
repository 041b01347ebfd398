//! Normalisation of activations.

use super::Entry;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[];
