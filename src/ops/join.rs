//! Joining and cutting arrays: concatenate, stack, split, slice, pad, tile.

use super::Entry;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[];
