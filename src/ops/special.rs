//! What has a special place in the graph: unlink, sink, assign.

use super::Entry;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[];
