//! Boxes that were chosen, and whether one of them hides another. Knows numbers; knows no shapes, graphs or Python.

use super::scratch::List;
use super::simd::vectorised;

/// Boxes that are compared side by side.
const LANES: usize = 16;

/// Where a box begins and ends along both axes.
pub type Corners = [[f64; 2]; 2];

/// Some boxes; those that are not there are no numbers, and hide nothing.
#[derive(Clone, Copy)]
struct BoxBlock {
    starts: [[f64; LANES]; 2],
    ends: [[f64; LANES]; 2],
    areas: [f64; LANES],
}

/// The boxes that were chosen so far.
pub struct ChosenBoxes {
    blocks: List<BoxBlock>,
    n: usize,
}

impl ChosenBoxes {
    /// None yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { blocks: List::with_capacity(1), n: 0 }
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.n
    }

    /// Chooses another one.
    pub fn push(&mut self, corners: &Corners) {
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

    /// Whether the intersection of a box with one of them has more than a share of their union.
    pub fn hide(&self, corners: &Corners, share: f64) -> bool {
        let (own, blocks) = (area(corners), &self.blocks[..]);
        vectorised(
            #[inline(always)]
            move || {
                blocks.iter().any(|block| {
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
                })
            },
        )
    }
}

#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

#[inline(always)]
fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

fn area(corners: &Corners) -> f64 {
    (corners[0][1] - corners[0][0]) * (corners[1][1] - corners[1][0])
}

#[cfg(test)]
mod tests {
    use super::{ChosenBoxes, Corners, LANES, area};

    fn overlaps(a: &Corners, b: &Corners, share: f64) -> bool {
        let along = |axis: usize| (a[axis][1].min(b[axis][1]) - a[axis][0].max(b[axis][0])).max(0.0);
        let common = along(0) * along(1);
        common > share * (area(a) + area(b) - common)
    }

    #[test]
    fn a_box_is_hidden_if_one_of_them_overlaps_it() {
        let number = |i: usize| ((i * 7919 + 13) % 1009) as f64 / 100.0;
        let corners = |i: usize| -> Corners {
            [0, 1].map(|axis| {
                let start = number(4 * i + axis);
                [start, start + number(4 * i + 2 + axis) - 1.0] // some end before they start
            })
        };
        for share in [0.0, 0.3, 1.0] {
            let mut chosen = ChosenBoxes::new();
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
            assert_eq!(chosen.len(), listed.len());
        }
    }
}
