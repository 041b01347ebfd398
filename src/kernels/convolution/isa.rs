//! The kernels of convolution beside those of products: for each, an order to carry out in the registers of this machine.

use super::depthwise_lanes::ChannelLanes;
use super::depthwise_pixels::{PixelDots, Pixels};
use super::dots::Dots;
use super::energies::{EnergyPlane, EnergyRange, PixelEnergies, PixelsToPack};
use super::slide::{Slide, SpreadOrder};
use super::strip::ImageLayout;
use super::tap_rows::TapRows;
use super::transforms::{ToPlanes, Transform, WeightTransform};
use super::unfold::Unfold;
use crate::kernels::Float;
use crate::kernels::simd::tables;

/// Kernels of one set of instructions. Each needs these, and the memory that its order names.
pub(in crate::kernels) struct Kernels<T: 'static> {
    /// Lays out an image: see [`ImageLayout`].
    pub(super) lay_out: unsafe fn(&ImageLayout<'_, T>),
    /// Copies what positions see: see [`TapRows`].
    pub(super) tap_rows: unsafe fn(&TapRows<'_, T>),
    /// Sums over the taps of a plane: see [`Slide`].
    pub(super) slide: unsafe fn(&Slide<'_, T>),
    /// Sums over the taps of small planes: see [`ChannelLanes`].
    pub(super) lanes: unsafe fn(&ChannelLanes<'_, T>),
    /// Writes such sums with gaps: see [`SpreadOrder`].
    pub(super) spread: unsafe fn(&SpreadOrder<'_, T>),
    /// Products of planes: see [`Dots`].
    pub(super) dots: unsafe fn(&Dots<'_, T>),
    /// Sums over the taps of pixels: see [`Pixels`].
    pub(super) pixels: unsafe fn(&Pixels<'_, T>),
    /// Products of pixels: see [`PixelDots`].
    pub(super) pixel_dots: unsafe fn(&PixelDots<'_, T>),
    /// Transforms an image, or back: see [`Transform`].
    pub(super) transform: unsafe fn(&Transform<T>),
    /// Transforms weights, or their gradients back: see [`WeightTransform`].
    pub(super) transform_weights: unsafe fn(&WeightTransform<T>),
    /// Moves pixels into planes: see [`ToPlanes`].
    pub(super) to_planes: unsafe fn(&ToPlanes<'_, T>),
    /// Unfolds an image: see [`Unfold`].
    pub(super) unfold: unsafe fn(&Unfold<'_, T>),
    /// Adds up squares over channels: see [`PixelEnergies`].
    pub(super) energies: unsafe fn(&PixelEnergies<T>),
    /// Packs pixels and computes their energies: see [`PixelsToPack`].
    pub(super) pack_pixels: unsafe fn(&PixelsToPack<T>),
    /// The range of energies: see [`EnergyPlane`].
    pub(super) energy_range: unsafe fn(&EnergyPlane<T>) -> EnergyRange<T>,
}

macro_rules! make {
    ($name:ident, $vector:ty, $t:ty, [$($rows:literal)+] $(, $feature:literal)?) => {
        static $name: Kernels<$t> = {
            $(#[target_feature(enable = $feature)])?
            unsafe fn lay_out(order: &ImageLayout<'_, $t>) {
                // SAFETY: the function has the instructions; the memory is the caller's promise. So below.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn tap_rows(order: &TapRows<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn slide(order: &Slide<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn lanes(order: &ChannelLanes<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn spread(order: &SpreadOrder<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn dots(order: &Dots<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn pixels(order: &Pixels<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn pixel_dots(order: &PixelDots<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn transform(order: &Transform<$t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn transform_weights(order: &WeightTransform<$t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn to_planes(order: &ToPlanes<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn unfold(order: &Unfold<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn energies(order: &PixelEnergies<$t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn pack_pixels(order: &PixelsToPack<$t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn energy_range(order: &EnergyPlane<$t>) -> EnergyRange<$t> {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            Kernels {
                lay_out,
                tap_rows,
                slide,
                lanes,
                spread,
                dots,
                pixels,
                pixel_dots,
                transform,
                transform_weights,
                to_planes,
                unfold,
                energies,
                pack_pixels,
                energy_range,
            }
        };
    };
}

tables!(make);
