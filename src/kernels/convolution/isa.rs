//! The kernels of convolution beside those of products: for each, an order to carry out in the registers of this machine.

use super::depthwise::narrow::NarrowSum;
use super::depthwise::pixel_sums::{PixelDots, PixelSum};
use super::depthwise::sliding_sum::{InterleaveWindows, SlidingSum};
use super::depthwise::weight_gradient::PlaneDots;
use super::implicit_gemm::im2row::Im2Row;
use super::implicit_gemm::packed_planes::PackImage;
use super::implicit_gemm::tap_rows::TapRows;
use super::winograd::energies::{EnergyRange, PixelEnergies};
use super::winograd::transforms::{ToPlanes, Transform, WeightTransform};
use crate::kernels::Float;
use crate::kernels::simd::tables;

/// Kernels of one set of instructions. Each needs these, and the memory that its order names.
pub(in crate::kernels) struct Kernels<T: 'static> {
    /// Lays out an image: see [`PackImage`].
    pub(super) pack_image: unsafe fn(&PackImage<'_, T>),
    /// Copies what positions see: see [`TapRows`].
    pub(super) tap_rows: unsafe fn(&TapRows<'_, T>),
    /// Sums over the taps of a plane: see [`SlidingSum`].
    pub(super) sliding_sum: unsafe fn(&SlidingSum<'_, T>),
    /// Sums over the taps of small planes: see [`NarrowSum`].
    pub(super) narrow_sum: unsafe fn(&NarrowSum<'_, T>),
    /// Writes such sums with gaps: see [`InterleaveWindows`].
    pub(super) interleave: unsafe fn(&InterleaveWindows<'_, T>),
    /// Products of planes: see [`PlaneDots`].
    pub(super) plane_dots: unsafe fn(&PlaneDots<'_, T>),
    /// Sums over the taps of pixels: see [`PixelSum`].
    pub(super) pixel_sum: unsafe fn(&PixelSum<'_, T>),
    /// Products of pixels: see [`PixelDots`].
    pub(super) pixel_dots: unsafe fn(&PixelDots<'_, T>),
    /// Transforms an image, or back: see [`Transform`].
    pub(super) transform: unsafe fn(&Transform<T>),
    /// Transforms weights, or their gradients back: see [`WeightTransform`].
    pub(super) transform_weights: unsafe fn(&WeightTransform<T>),
    /// Moves pixels into planes: see [`ToPlanes`].
    pub(super) to_planes: unsafe fn(&ToPlanes<'_, T>),
    /// Unfolds an image: see [`Im2Row`].
    pub(super) im2row: unsafe fn(&Im2Row<'_, T>),
    /// Adds up squares over channels: see [`PixelEnergies`].
    pub(super) energies: unsafe fn(&PixelEnergies<T>) -> EnergyRange<T>,
}

macro_rules! make {
    ($name:ident, $vector:ty, $t:ty, [$($rows:literal)+] $(, $feature:literal)?) => {
        static $name: Kernels<$t> = {
            $(#[target_feature(enable = $feature)])?
            unsafe fn pack_image(order: &PackImage<'_, $t>) {
                // SAFETY: the function has the instructions; the memory is the caller's promise. So below.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn tap_rows(order: &TapRows<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn sliding_sum(order: &SlidingSum<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn narrow_sum(order: &NarrowSum<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn interleave(order: &InterleaveWindows<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn plane_dots(order: &PlaneDots<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn pixel_sum(order: &PixelSum<'_, $t>) {
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
            unsafe fn im2row(order: &Im2Row<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn energies(order: &PixelEnergies<$t>) -> EnergyRange<$t> {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            Kernels {
                pack_image,
                tap_rows,
                sliding_sum,
                narrow_sum,
                interleave,
                plane_dots,
                pixel_sum,
                pixel_dots,
                transform,
                transform_weights,
                to_planes,
                im2row,
                energies,
            }
        };
    };
}

tables!(make);
