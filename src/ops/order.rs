//! Elements in another order: flip, shift, sort.

use super::Entry;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[];
