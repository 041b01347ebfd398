//! Operations with random numbers.

pub(crate) mod choice;
pub(crate) mod distributions;
pub(crate) mod generator_state;
pub(crate) mod image_augmentation;
pub(crate) mod jitter;
pub(crate) mod random_erase;
