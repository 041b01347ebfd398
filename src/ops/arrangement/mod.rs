//! Operations that move elements: reshaping, joining, slicing, repeating.

pub(crate) mod array;
pub(crate) mod concatenate;
pub(crate) mod concatenate_parts;
pub(crate) mod diagonal;
pub(crate) mod parts;
pub(crate) mod regrid;
pub(crate) mod repeat;
pub(crate) mod sequence;
pub(crate) mod shape_of;
pub(crate) mod slicing;
pub(crate) mod unique;
