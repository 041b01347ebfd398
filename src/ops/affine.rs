//! Products of matrices: affine, batch_matmul, embed.

use super::Entry;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[];
