//! Elements chosen by indices or masks, and put back.

pub(crate) mod embed;
pub(crate) mod gather;
pub(crate) mod gather_nd;
pub(crate) mod masking;
pub(crate) mod scatter;
