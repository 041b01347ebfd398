//! Convolutions and their transposes.

use super::Entry;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[];
