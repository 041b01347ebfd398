//! Losses and metrics.

use super::Entry;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[];
