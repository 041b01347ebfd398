//! Tables of the kernels of convolution, one for each instruction set, selected at run time.

use super::depthwise::narrow::NarrowSum;
use super::depthwise::pixel_sums::{PixelDots, PixelSum};
use super::depthwise::sliding_sum::{InterleaveWindows, SlidingSum};
use super::depthwise::tap_sum::TapSum;
use super::depthwise::weight_gradient::PlaneDots;
use super::implicit_gemm::im2row::Im2Row;
use super::implicit_gemm::packed_planes::PackImage;
use super::implicit_gemm::tap_rows::TapRows;
use super::winograd::energies::{EnergyPlane, EnergyRange, PixelEnergies, PixelsToPack};
use super::winograd::transforms::{ToPlanes, Transform, WeightTransform};
use crate::kernels::Float;
use crate::kernels::simd::tables;

/// Kernels compiled for one instruction set. Calling one requires that instruction set, and the memory that its
/// argument names.
pub(in crate::kernels) struct Kernels<T: 'static> {
    /// See [`PackImage`].
    pub(super) pack_image: unsafe fn(&PackImage<'_, T>),
    /// See [`TapRows`].
    pub(super) tap_rows: unsafe fn(&TapRows<'_, T>),
    /// See [`SlidingSum`].
    pub(super) sliding_sum: unsafe fn(&SlidingSum<'_, T>),
    /// See [`TapSum`].
    pub(super) tap_sum: unsafe fn(&TapSum<'_, T>),
    /// See [`NarrowSum`].
    pub(super) narrow_sum: unsafe fn(&NarrowSum<'_, T>),
    /// See [`InterleaveWindows`].
    pub(super) interleave: unsafe fn(&InterleaveWindows<'_, T>),
    /// See [`PlaneDots`].
    pub(super) plane_dots: unsafe fn(&PlaneDots<'_, T>),
    /// See [`PixelSum`].
    pub(super) pixel_sum: unsafe fn(&PixelSum<'_, T>),
    /// See [`PixelDots`].
    pub(super) pixel_dots: unsafe fn(&PixelDots<'_, T>),
    /// See [`Transform`].
    pub(super) transform: unsafe fn(&Transform<T>),
    /// See [`WeightTransform`].
    pub(super) transform_weights: unsafe fn(&WeightTransform<T>),
    /// See [`ToPlanes`].
    pub(super) to_planes: unsafe fn(&ToPlanes<'_, T>),
    /// See [`Im2Row`].
    pub(super) im2row: unsafe fn(&Im2Row<'_, T>),
    /// See [`PixelEnergies`].
    pub(super) energies: unsafe fn(&PixelEnergies<T>),
    /// See [`PixelsToPack`].
    pub(super) pack_pixels: unsafe fn(&PixelsToPack<T>),
    /// See [`EnergyPlane`].
    pub(super) energy_range: unsafe fn(&EnergyPlane<T>) -> EnergyRange<T>,
}

/// Makes the table of kernels for one instruction set and type, compiled with its instructions.
macro_rules! make {
    ($name:ident, $vector:ty, $t:ty, [$($rows:literal)+] $(, $feature:literal)?) => {
        static $name: Kernels<$t> = {
            $(#[target_feature(enable = $feature)])?
            /// Runs [`PackImage`] with the instructions of this table.
            unsafe fn pack_image(order: &PackImage<'_, $t>) {
                // SAFETY: the function has the instruction set; the caller guarantees the memory. Same below.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`TapRows`] with the instructions of this table.
            unsafe fn tap_rows(order: &TapRows<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`SlidingSum`] with the instructions of this table.
            unsafe fn sliding_sum(order: &SlidingSum<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`TapSum`] with the instructions of this table.
            unsafe fn tap_sum(order: &TapSum<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`NarrowSum`] with the instructions of this table.
            unsafe fn narrow_sum(order: &NarrowSum<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`InterleaveWindows`] with the instructions of this table.
            unsafe fn interleave(order: &InterleaveWindows<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`PlaneDots`] with the instructions of this table.
            unsafe fn plane_dots(order: &PlaneDots<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`PixelSum`] with the instructions of this table.
            unsafe fn pixel_sum(order: &PixelSum<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`PixelDots`] with the instructions of this table.
            unsafe fn pixel_dots(order: &PixelDots<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`Transform`] with the instructions of this table.
            unsafe fn transform(order: &Transform<$t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`WeightTransform`] with the instructions of this table.
            unsafe fn transform_weights(order: &WeightTransform<$t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`ToPlanes`] with the instructions of this table.
            unsafe fn to_planes(order: &ToPlanes<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`Im2Row`] with the instructions of this table.
            unsafe fn im2row(order: &Im2Row<'_, $t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`PixelEnergies`] with the instructions of this table.
            unsafe fn energies(order: &PixelEnergies<$t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`PixelsToPack`] with the instructions of this table.
            unsafe fn pack_pixels(order: &PixelsToPack<$t>) {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            $(#[target_feature(enable = $feature)])?
            /// Runs [`EnergyPlane`] with the instructions of this table.
            unsafe fn energy_range(order: &EnergyPlane<$t>) -> EnergyRange<$t> {
                // SAFETY: as above.
                unsafe { order.run::<$vector>() }
            }
            Kernels {
                pack_image,
                tap_rows,
                sliding_sum,
                tap_sum,
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
                pack_pixels,
                energy_range,
            }
        };
    };
}

tables!(make);
