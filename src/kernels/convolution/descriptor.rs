//! What a sum of a convolution knows before it starts, from the geometry alone: which elements meet, and how they are laid
//! out. Each thread keeps that of the sums that it started last, as the same ones come again in each step of a training.

use std::cell::RefCell;
use std::sync::Arc;

use super::depthwise::narrow::PaddedPlane;
use super::depthwise::plane::Plane;
use super::geometry::Geometry;
use super::implicit_gemm::blocking;
use super::implicit_gemm::packed_planes::PlaneLayout;
use super::window::Window;

/// Sums whose tables a thread keeps, and numbers in all of them together.
const MOST: usize = 128;
const NUMBERS: usize = 1 << 18;

/// Which of the three sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Output,
    InputGradient,
    WeightGradient,
}

/// A window, and how what it sees is laid out.
pub(super) struct Descriptor {
    pub(super) window: Window,
    /// For channels that are first; none where there is nothing to sum up.
    pub(super) layout: Option<PlaneLayout>,
    /// For channels that are groups of their own, and first, of one or two axes: what is seen of each.
    pub(super) plane: Option<Plane>,
    /// The same for sums at few positions in a row.
    pub(super) lanes: Option<PaddedPlane>,
}

/// Those of a sum: the gradient of an input has a window for each residue of the stride.
pub(super) struct Descriptors {
    pub(super) each: Vec<Descriptor>,
}

impl Descriptors {
    fn new(g: &Geometry, of: Pass, windows: Vec<Window>) -> Self {
        Self { each: windows.into_iter().map(|window| Descriptor::new(g, of, window)).collect() }
    }
}

impl Descriptor {
    fn new(g: &Geometry, of: Pass, window: Window) -> Self {
        // Sums that stay in registers are few where each tap has its own.
        let most = if of == Pass::WeightGradient { 3 } else { 5 };
        let plane = if g.is_depthwise() && !g.channel_last { Plane::new(&window, most) } else { None };
        let has_layout = plane.is_none() && !g.channel_last && window.positions() > 0 && g.images > 0;
        let layout = has_layout.then(|| match of {
            Pass::Output => blocking::layout(g, &window, g.inputs(), g.outputs()),
            Pass::InputGradient => blocking::layout(g, &window, g.outputs(), g.inputs()),
            Pass::WeightGradient => blocking::weight_gradient_layout(g, &window),
        });
        let is_summed = plane.is_some() && of != Pass::WeightGradient;
        let lanes = if is_summed { PaddedPlane::new(&window) } else { None };
        Self { window, layout, plane, lanes }
    }

    /// The numbers in the lists that may be long.
    fn numbers(&self) -> usize {
        let of_layout = self.layout.as_ref().map_or(0, |s| s.table.len());
        let of_lanes = self.lanes.as_ref().map_or(0, PaddedPlane::numbers);
        self.window.bases.len() + self.window.targets.len() + of_layout + of_lanes
    }
}

/// What a thread keeps.
struct DescriptorCache {
    sums: Vec<(Geometry, Pass, Arc<Descriptors>)>,
    numbers: usize,
}

thread_local! {
    static CACHE: RefCell<DescriptorCache> = const { RefCell::new(DescriptorCache { sums: Vec::new(), numbers: 0 }) };
}

/// Registers the thread-local with a destructor.
pub(in crate::kernels) fn begin_thread() {
    let _ = CACHE.try_with(|_| ());
}

impl Geometry {
    /// The tables of a sum.
    pub(super) fn descriptors(&self, of: Pass) -> Arc<Descriptors> {
        let is_it = |(g, sum, _): &&(Self, Pass, Arc<Descriptors>)| *sum == of && g == self;
        let kept = CACHE.try_with(|kept| kept.borrow().sums.iter().find(is_it).map(|(.., all)| all.clone()));
        if let Ok(Some(all)) = kept {
            return all;
        }
        let windows = match of {
            Pass::InputGradient => self.backward_windows(),
            Pass::Output | Pass::WeightGradient => vec![self.forward_window()],
        };
        let all = Arc::new(Descriptors::new(self, of, windows));
        let numbers = all.each.iter().map(Descriptor::numbers).sum::<usize>();
        if numbers <= NUMBERS {
            // A thread that ends keeps nothing.
            let _ = CACHE.try_with(|kept| {
                let mut kept = kept.borrow_mut();
                if kept.sums.len() == MOST || kept.numbers + numbers > NUMBERS {
                    (kept.sums, kept.numbers) = (Vec::new(), 0);
                }
                kept.sums.push((self.clone(), of, all.clone()));
                kept.numbers += numbers;
            });
        }
        all
    }
}
