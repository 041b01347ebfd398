//! Elementwise operations.

pub(crate) mod activation;
pub(crate) mod arithmetic;
pub(crate) mod comparison;
pub(crate) mod concatenated_relu;
pub(crate) mod logical;
pub(crate) mod math;
pub(crate) mod nary;
pub(crate) mod powers;
pub(crate) mod rectifier;
pub(crate) mod remainder;
pub(crate) mod selection;
pub(crate) mod special;
pub(crate) mod trigonometry;
