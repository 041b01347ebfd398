//! Signals and their frequencies.

pub(crate) mod fft;
pub(crate) mod frames;
pub(crate) mod stft;
