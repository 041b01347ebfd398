//! Data that follow from the geometry of a convolution alone: positions of taps, and layouts of packed data. Each
//! thread caches the most recent descriptors, because a training step repeats them.

use std::cell::RefCell;
use std::sync::Arc;

use super::depthwise::narrow::PaddedPlane;
use super::depthwise::plane::Plane;
use super::geometry::Geometry;
use super::implicit_gemm::blocking;
use super::implicit_gemm::packed_planes::PlaneLayout;
use super::implicit_gemm::position_layout::PositionRows;
use super::implicit_gemm::stride_layout::StridePhases;
use super::select::{pays_by_position_rows, pays_by_regions};
use super::window::Window;

/// The largest number of cached descriptors of a thread.
const MOST: usize = 128;
/// The largest number of numbers in all cached descriptors of a thread.
const NUMBERS: usize = 1 << 18;

/// One of the three sums of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Output,
    InputGradient,
    WeightGradient,
}

/// The elements of the arrays of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordKind {
    Single,
    /// Words of two numbers in bfloat16, for which windows are not divided into regions.
    Words,
}

/// A window and the layouts of the data that it reads.
pub(super) struct Descriptor {
    /// The positions and the elements that they read.
    pub(super) window: Window,
    /// The layout of packed sources, for implicit GEMM with channels first.
    pub(super) layout: Option<PlaneLayout>,
    /// For depthwise convolution, channels first, of one or two axes.
    pub(super) plane: Option<Plane>,
    /// For depthwise convolution of narrow rows, which are padded.
    pub(super) lanes: Option<PaddedPlane>,
    /// True if terms of sums are ordered by rows of taps, then by channels. A row of positions then leaves out the rows
    /// of taps that read padding.
    pub(super) by_tap_rows: bool,
    /// The padded image, if implicit GEMM has a row for each position.
    pub(super) position_rows: Option<PositionRows>,
}

/// The descriptors of a sum. The gradient of the input has one for each phase of the stride.
pub(super) struct Descriptors {
    /// One descriptor for each window.
    pub(super) each: Vec<Descriptor>,
    /// The division of a single window into those in `each`.
    pub(super) division: Division,
    /// For the phases of a stride: the packed planes that all of them read.
    pub(super) stride: Option<StridePhases>,
}

/// The division of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// The window is one, or windows have different taps.
    None,
    /// The windows are phases of the dilation: all have the same taps.
    Phases,
    /// The windows are regions whose taps all read the source.
    Regions,
}

/// Splits a window if its blocks pack more than `SPLIT.0 / SPLIT.1` times the rows that its phases pack.
const SPLIT: (usize, usize) = (3, 2);

impl Descriptors {
    /// One descriptor for each window of pass `of`.
    fn new(g: &Geometry, of: Pass, numbers: WordKind, windows: Vec<Window>) -> Self {
        let mut each: Vec<_> =
            windows.into_iter().map(|window| Descriptor::new(g, of, numbers, window)).collect();
        let splits = of != Pass::WeightGradient && !g.is_depthwise();
        let one = match &each[..] {
            [one] if splits => one,
            _ => {
                let has_phases = of == Pass::InputGradient && numbers == WordKind::Single && !g.channel_last;
                let windows = each.iter().map(|descriptor| &descriptor.window).collect::<Vec<_>>();
                let stride = if has_phases { StridePhases::new(g, &windows) } else { None };
                return Self { each, division: Division::None, stride };
            }
        };
        let (inputs, outputs) = (g.channels / g.group, g.maps / g.group);
        let channels = if of == Pass::Output { (inputs, outputs) } else { (outputs, inputs) };
        if numbers == WordKind::Single && !g.channel_last && one.window.is_dilated() {
            let regions = one.window.regions(&g.kernel);
            if pays_by_regions(&one.window, &regions, channels, g.images) {
                each = regions.into_iter().map(Descriptor::of_region).collect();
                return Self { each, division: Division::Regions, stride: None };
            }
        }
        if one.packs_rows_again() {
            let phases = one.window.phases(&g.kernel);
            each = phases.into_iter().map(|window| Descriptor::new(g, of, numbers, window)).collect();
            return Self { each, division: Division::Phases, stride: None };
        }
        Self { each, division: Division::None, stride: None }
    }
}

impl Descriptor {
    /// The descriptor of a window of pass `of`. Only channels first has a layout or planes, and only depthwise
    /// convolution has planes.
    fn new(g: &Geometry, of: Pass, numbers: WordKind, window: Window) -> Self {
        // The gradient of the weight holds a sum for each tap in registers, so blocks of taps are smaller.
        let most = if of == Pass::WeightGradient { 3 } else { 5 };
        let plane = if g.is_depthwise() && !g.channel_last { Plane::new(&window, most) } else { None };
        let has_layout = plane.is_none() && !g.channel_last && window.positions() > 0 && g.images > 0;
        let mut layout = has_layout.then(|| match of {
            Pass::Output => blocking::layout(g, &window, g.inputs(), g.outputs()),
            Pass::InputGradient => blocking::layout(g, &window, g.outputs(), g.inputs()),
            Pass::WeightGradient => blocking::weight_gradient_layout(g, &window),
        });
        let is_summed = plane.is_some() && of != Pass::WeightGradient;
        let lanes = if is_summed { PaddedPlane::new(&window) } else { None };
        // The weights of this pass are packed for a single window, so their order is free.
        let is_one = [&g.stride, &g.dilation].iter().all(|all| all.iter().all(|n| *n == 1));
        let is_free = of == Pass::InputGradient && numbers == WordKind::Single && is_one;
        let is_free = is_free && window.has_padded_rows();
        let by_tap_rows = is_free && layout.as_mut().is_some_and(|s| s.order_by_tap_rows(&window));
        let is_single = of == Pass::Output && numbers == WordKind::Single && has_layout;
        let channels = (g.channels / g.group, g.maps / g.group);
        let by_positions = is_single && pays_by_position_rows(&window, channels);
        let position_rows = by_positions.then(|| PositionRows::new(&window));
        Self { window, layout, plane, lanes, by_tap_rows, position_rows }
    }

    /// The descriptor of a region, which has no packed layout.
    fn of_region(window: Window) -> Self {
        Self { window, layout: None, plane: None, lanes: None, by_tap_rows: false, position_rows: None }
    }

    /// True if several blocks pack the same rows, because taps read rows that are far apart.
    fn packs_rows_again(&self) -> bool {
        let axis = &self.window.axes[0];
        let Some(layout) = self.layout.as_ref().filter(|_| self.window.dilation() > 1) else { return false };
        let (least, most) = (axis.offsets.iter().min(), axis.offsets.iter().max());
        let halo = least.zip(most).map_or(0, |(least, most)| most.abs_diff(*least));
        layout.packed_rows() * SPLIT.1 > (axis.positions + halo) * SPLIT.0
    }

    /// The size of the lists that may be long.
    fn numbers(&self) -> usize {
        let of_layout = self.layout.as_ref().map_or(0, |s| s.table.len());
        let of_lanes = self.lanes.as_ref().map_or(0, PaddedPlane::numbers);
        let of_positions = self.position_rows.as_ref().map_or(0, PositionRows::numbers);
        self.window.bases.len() + self.window.targets.len() + of_layout + of_lanes + of_positions
    }
}

/// The descriptors that a thread caches.
struct DescriptorCache {
    /// The cached descriptors, by geometry, pass and numbers.
    sums: Vec<(Geometry, Pass, WordKind, Arc<Descriptors>)>,
    /// The size of their lists, which limits the cache.
    numbers: usize,
}

thread_local! {
    /// The cached descriptors of this thread.
    static CACHE: RefCell<DescriptorCache> = const { RefCell::new(DescriptorCache { sums: Vec::new(), numbers: 0 }) };
}

/// Registers the thread-local with a destructor.
pub(in crate::kernels) fn begin_thread() {
    let _ = CACHE.try_with(|_| ());
}

impl Geometry {
    /// Returns the descriptors of a sum, from the cache of this thread if possible.
    pub(super) fn descriptors(&self, of: Pass) -> Arc<Descriptors> {
        self.cached_descriptors(of, WordKind::Single)
    }

    /// As [`Self::descriptors`], for words of two numbers in bfloat16.
    pub(super) fn descriptors_of_words(&self, of: Pass) -> Arc<Descriptors> {
        self.cached_descriptors(of, WordKind::Words)
    }

    /// As [`Self::descriptors`], for numbers of this kind.
    fn cached_descriptors(&self, of: Pass, kind: WordKind) -> Arc<Descriptors> {
        let is_it = |(g, sum, numbers, _): &&(Self, Pass, WordKind, Arc<Descriptors>)| {
            *sum == of && *numbers == kind && g == self
        };
        let kept = CACHE.try_with(|kept| kept.borrow().sums.iter().find(is_it).map(|(.., all)| all.clone()));
        if let Ok(Some(all)) = kept {
            return all;
        }
        let windows = match of {
            Pass::InputGradient => self.backward_windows(),
            Pass::Output | Pass::WeightGradient => vec![self.forward_window()],
        };
        let all = Arc::new(Descriptors::new(self, of, kind, windows));
        let of_stride = all.stride.as_ref().map_or(0, StridePhases::numbers);
        let numbers = all.each.iter().map(Descriptor::numbers).sum::<usize>() + of_stride;
        if numbers <= NUMBERS {
            // A thread that is ending has no cache.
            let _ = CACHE.try_with(|kept| {
                let mut kept = kept.borrow_mut();
                if kept.sums.len() == MOST || kept.numbers + numbers > NUMBERS {
                    (kept.sums, kept.numbers) = (Vec::new(), 0);
                }
                kept.sums.push((self.clone(), of, kind, all.clone()));
                kept.numbers += numbers;
            });
        }
        all
    }
}
