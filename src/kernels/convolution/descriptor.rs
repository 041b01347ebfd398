//! What a sum of a convolution knows before it starts, from the geometry alone: which elements meet, and how they are laid
//! out. Each thread keeps that of the sums that it started last, as the same ones come again in each step of a training.

use std::cell::RefCell;
use std::sync::Arc;

use super::depthwise::narrow::PaddedPlane;
use super::depthwise::plane::Plane;
use super::geometry::Geometry;
use super::implicit_gemm::blocking;
use super::implicit_gemm::packed_planes::Strips;
use super::window::Window;

/// Sums whose tables a thread keeps, and numbers in all of them together.
const MOST: usize = 128;
const NUMBERS: usize = 1 << 18;

/// Which of the three sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhichSum {
    Output,
    InputGradient,
    WeightGradient,
}

/// A window, and how what it sees is laid out.
pub(super) struct Tables {
    pub(super) window: Window,
    /// For channels that are first; none where there is nothing to sum up.
    pub(super) strips: Option<Strips>,
    /// For channels that are groups of their own, and first, of one or two axes: what is seen of each.
    pub(super) plane: Option<Plane>,
    /// The same for sums at few positions in a row.
    pub(super) lanes: Option<PaddedPlane>,
}

/// Those of a sum: the gradient of an input has a window for each residue of the stride.
pub(super) struct All {
    pub(super) each: Vec<Tables>,
}

impl All {
    fn new(g: &Geometry, of: WhichSum, windows: Vec<Window>) -> Self {
        Self { each: windows.into_iter().map(|window| Tables::new(g, of, window)).collect() }
    }
}

impl Tables {
    fn new(g: &Geometry, of: WhichSum, window: Window) -> Self {
        // Sums that stay in registers are few where each tap has its own.
        let most = if of == WhichSum::WeightGradient { 3 } else { 5 };
        let plane = if g.is_depthwise() && !g.channel_last { Plane::new(&window, most) } else { None };
        let is_strips = plane.is_none() && !g.channel_last && window.positions() > 0 && g.images > 0;
        let strips = is_strips.then(|| match of {
            WhichSum::Output => blocking::strips(g, &window, g.inputs(), g.outputs()),
            WhichSum::InputGradient => blocking::strips(g, &window, g.outputs(), g.inputs()),
            WhichSum::WeightGradient => blocking::weight_gradient_strips(g, &window),
        });
        let is_summed = plane.is_some() && of != WhichSum::WeightGradient;
        let lanes = if is_summed { PaddedPlane::new(&window) } else { None };
        Self { window, strips, plane, lanes }
    }

    /// The numbers in the lists that may be long.
    fn numbers(&self) -> usize {
        let of_strips = self.strips.as_ref().map_or(0, |s| s.table.len());
        let of_lanes = self.lanes.as_ref().map_or(0, PaddedPlane::numbers);
        self.window.bases.len() + self.window.targets.len() + of_strips + of_lanes
    }
}

/// What a thread keeps.
struct TableCache {
    sums: Vec<(Geometry, WhichSum, Arc<All>)>,
    numbers: usize,
}

thread_local! {
    static KEPT: RefCell<TableCache> = const { RefCell::new(TableCache { sums: Vec::new(), numbers: 0 }) };
}

/// Registers the thread-local with a destructor.
pub(in crate::kernels) fn begin_thread() {
    let _ = KEPT.try_with(|_| ());
}

impl Geometry {
    /// The tables of a sum.
    pub(super) fn tables(&self, of: WhichSum) -> Arc<All> {
        let is_it = |(g, sum, _): &&(Self, WhichSum, Arc<All>)| *sum == of && g == self;
        let kept = KEPT.try_with(|kept| kept.borrow().sums.iter().find(is_it).map(|(.., all)| all.clone()));
        if let Ok(Some(all)) = kept {
            return all;
        }
        let windows = match of {
            WhichSum::InputGradient => self.backward_windows(),
            WhichSum::Output | WhichSum::WeightGradient => vec![self.forward_window()],
        };
        let all = Arc::new(All::new(self, of, windows));
        let numbers = all.each.iter().map(Tables::numbers).sum::<usize>();
        if numbers <= NUMBERS {
            // A thread that ends keeps nothing.
            let _ = KEPT.try_with(|kept| {
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
