//! Random numbers.

pub(crate) mod distributions;
pub(crate) mod generator_state;
pub(crate) mod random_erase;
