//! Non-maximum suppression: takes boxes by descending score, and skips boxes that overlap a chosen one too much.
//! Knows numbers, not shapes, graphs or Python.

use super::scratch::List;
use super::simd::vectorised;
use super::stop;

/// Boxes that are compared together.
const LANES: usize = 16;

/// Start and end of a box along both axes.
pub type Corners = [[f64; 2]; 2];

/// Several boxes. Unused entries are NaN and suppress nothing.
#[derive(Clone, Copy)]
struct BoxBlock {
    /// The start of each box, along each axis.
    starts: [[f64; LANES]; 2],
    /// The end of each box, along each axis.
    ends: [[f64; LANES]; 2],
    /// The area of each box.
    areas: [f64; LANES],
}

/// The boxes chosen so far.
struct ChosenBoxes {
    /// The boxes, block by block.
    blocks: List<BoxBlock>,
    /// The number of boxes.
    n: usize,
}

impl ChosenBoxes {
    /// Adds a chosen box.
    fn push(&mut self, corners: &Corners) {
        let lane = self.n % LANES;
        if lane == 0 {
            let nothing = [f64::NAN; LANES];
            self.blocks.push(BoxBlock { starts: [nothing; 2], ends: [nothing; 2], areas: nothing });
        }
        if let Some(block) = self.blocks.last_mut() {
            for (axis, [start, end]) in corners.iter().enumerate() {
                (block.starts[axis][lane], block.ends[axis][lane]) = (*start, *end);
            }
            block.areas[lane] = area(corners);
        }
        self.n += 1;
    }

    /// True if the intersection of a box with a chosen one exceeds a share of their union.
    #[inline(always)]
    fn hide(&self, corners: &Corners, share: f64) -> bool {
        let own = area(corners);
        self.blocks.iter().any(
            #[inline(always)]
            |block| {
                let mut is_hidden = false;
                for lane in 0..LANES {
                    let along = |axis: usize| {
                        let low = larger(block.starts[axis][lane], corners[axis][0]);
                        larger(smaller(block.ends[axis][lane], corners[axis][1]) - low, 0.0)
                    };
                    let common = along(0) * along(1);
                    is_hidden |= common > share * (block.areas[lane] + own - common);
                }
                is_hidden
            },
        )
    }
}

/// A score, by which boxes are ranked.
pub trait Score: Copy + PartialOrd {
    /// Sort key of a box: increases as the score decreases, then with the index of the box.
    type Rank: Copy + Ord + Default;
    /// The sort key of box `i`. Zeros of both signs are equal.
    fn rank(self, i: usize) -> Self::Rank;
    /// The index of the box with a sort key.
    fn number(rank: Self::Rank) -> usize;
}

/// Implements [`Score`] for a type, with the unsigned types of its bits and of its sort keys.
macro_rules! score {
    ($t:ty, $bits:ty, $rank:ty) => {
        impl Score for $t {
            type Rank = $rank;
            #[inline(always)]
            fn rank(self, i: usize) -> $rank {
                let bits = (self + 0.0).to_bits();
                let falling = if self < 0.0 { bits } else { !bits & (<$bits>::MAX >> 1) };
                <$rank>::from(falling) << <$bits>::BITS | i as $rank
            }
            #[inline(always)]
            fn number(rank: $rank) -> usize {
                rank as $bits as usize
            }
        }
    };
}

score!(f32, u32, u64);
score!(f64, u64, u128);

/// Parameters of the selection.
#[derive(Clone, Copy, Debug)]
pub struct Suppression<S> {
    /// Maximum number of boxes.
    pub most: usize,
    /// Largest allowed ratio of intersection to union.
    pub share: f64,
    /// Scores must exceed this.
    pub least: S,
}

impl<S: Score> Suppression<S> {
    /// Calls `found` with the index of each chosen box, best first. The number of scores must be below the range of
    /// [`Score::Rank`]. The closures must be `#[inline(always)]`.
    #[inline(always)]
    pub fn choose(
        self,
        scores: impl ExactSizeIterator<Item = S>,
        corners: impl Fn(usize) -> Corners,
        mut found: impl FnMut(usize),
    ) {
        let mut ranks = List::repeat(S::Rank::default(), scores.len());
        let mut n = 0;
        // Branchless, because low scores are unpredictable.
        for (i, score) in scores.enumerate() {
            ranks[n] = score.rank(i);
            n += usize::from(score > self.least);
        }
        ranks.truncate(n);
        ranks.sort_unstable();
        let (ranks, mut chosen) = (&ranks[..], ChosenBoxes { blocks: List::with_capacity(1), n: 0 });
        vectorised(
            #[inline(always)]
            move || {
                for rank in ranks {
                    if chosen.n >= self.most {
                        break;
                    }
                    stop::poll();
                    let i = S::number(*rank);
                    let ends = corners(i);
                    if !chosen.hide(&ends, self.share) {
                        chosen.push(&ends);
                        found(i);
                    }
                }
            },
        );
    }
}

/// The larger number; `b` if one is NaN.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// The smaller number; `b` if one is NaN.
#[inline(always)]
fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// The area of a box; negative if only one side is reversed.
fn area(corners: &Corners) -> f64 {
    (corners[0][1] - corners[0][0]) * (corners[1][1] - corners[1][0])
}

#[cfg(test)]
mod tests {
    use super::{ChosenBoxes, Corners, LANES, List, Score, Suppression, area};

    /// True if the boxes overlap by more than this share of their union.
    fn overlaps(a: &Corners, b: &Corners, share: f64) -> bool {
        let along = |axis: usize| (a[axis][1].min(b[axis][1]) - a[axis][0].max(b[axis][0])).max(0.0);
        let common = along(0) * along(1);
        common > share * (area(a) + area(b) - common)
    }

    /// A number from 0 to 10.08, by a fixed pattern.
    fn number(i: usize) -> f64 {
        ((i * 7919 + 13) % 1009) as f64 / 100.0
    }

    /// Corners of a box by a fixed pattern.
    fn corners(i: usize) -> Corners {
        [0, 1].map(|axis| {
            let start = number(4 * i + axis);
            [start, start + number(4 * i + 2 + axis) - 1.0] // some end before they start
        })
    }

    #[test]
    fn a_box_is_suppressed_if_a_chosen_box_overlaps_it() {
        for share in [0.0, 0.3, 1.0] {
            let mut chosen = ChosenBoxes { blocks: List::with_capacity(1), n: 0 };
            let mut listed: Vec<Corners> = Vec::new();
            for i in 0..10 * LANES {
                let one = if i == 5 { [[f64::NAN, 1.0], [0.0, 1.0]] } else { corners(i) };
                let hidden = listed.iter().any(|better| overlaps(better, &one, share));
                assert_eq!(chosen.hide(&one, share), hidden, "{i}, {share}");
                if !hidden || i % 3 == 0 {
                    chosen.push(&one);
                    listed.push(one);
                }
            }
            assert_eq!(chosen.n, listed.len());
        }
    }

    #[test]
    fn the_best_boxes_are_chosen_first() {
        /// The chosen boxes for these scores.
        fn chosen<S: Score>(scores: &[S], least: S, most: usize) -> Vec<usize> {
            let mut found = Vec::new();
            Suppression { most, share: 0.3, least }
                .choose(scores.iter().copied(), corners, |i| found.push(i));
            found
        }
        let mut scores: Vec<f32> = (0..200).map(|i| (number(3 * i) - 4.0) as f32).collect();
        (scores[3], scores[50], scores[51], scores[60]) = (f32::INFINITY, 0.0, -0.0, f32::NAN);
        let wide: Vec<f64> = scores.iter().map(|s| f64::from(*s)).collect();
        for (least, most) in [(-1.0_f32, 200), (f32::NEG_INFINITY, 200), (0.0, 9), (f32::INFINITY, 9)] {
            let mut order: Vec<usize> = (0..200).filter(|i| scores[*i] > least).collect();
            order.sort_by(|a, b| scores[*b].partial_cmp(&scores[*a]).expect("no NaN"));
            let mut expected: Vec<usize> = Vec::new();
            for i in order {
                let hides = |better: &usize| overlaps(&corners(*better), &corners(i), 0.3);
                if expected.len() < most && !expected.iter().any(hides) {
                    expected.push(i);
                }
            }
            assert_eq!(chosen(&scores, least, most), expected, "{least}, {most}");
            assert_eq!(chosen(&wide, f64::from(least), most), expected, "{least}, {most}");
        }
    }
}
