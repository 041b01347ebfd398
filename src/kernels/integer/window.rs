//! Which levels meet which weights: positions of windows over images with channels last, and copies of images within frames.
//! Rows of a matrix are images of one pixel.

use std::ops::Range;

use super::pack::Stretches;
use super::tile::GROUP;
use crate::kernels::scratch::List;

/// Windows over images with channels last.
#[derive(Clone, Copy, Debug)]
pub struct ImageWindow {
    /// How many images there are.
    pub images: usize,
    /// Numbers of a pixel.
    pub channels: usize,
    /// Lengths of an image: lines and columns. So with what follows.
    pub input: [usize; 2],
    /// Lengths of the output.
    pub output: [usize; 2],
    /// Lengths of a window.
    pub kernel: [usize; 2],
    /// What is added at both ends.
    pub pad: [usize; 2],
    /// Distance of two windows.
    pub stride: [usize; 2],
    /// Distance of two elements of a window.
    pub dilation: [usize; 2],
}

/// Where the terms of the sums of a part of the output begin.
pub(super) struct Origins {
    start: *const u8,
    /// Bytes from an image, a line and a column of the output to the next one.
    steps: [usize; 3],
}

impl Origins {
    /// Where the terms of a sum begin, the image, line and column of which are counted from the beginning of the part.
    pub(super) fn of(&self, [image, line, column]: [usize; 3]) -> *const u8 {
        let [by_image, by_line, by_column] = self.steps;
        self.start.wrapping_add(image * by_image + line * by_line + column * by_column)
    }
}

/// A part of the output: some images, and some lines of each.
pub(super) struct PositionBlock {
    pub(super) images: Range<usize>,
    pub(super) lines: Range<usize>,
}

impl ImageWindow {
    /// Rows of a matrix.
    pub fn of_rows(rows: usize, terms: usize) -> Self {
        Self {
            images: 1,
            channels: terms,
            input: [rows, 1],
            output: [rows, 1],
            kernel: [1; 2],
            pad: [0; 2],
            stride: [1; 2],
            dilation: [1; 2],
        }
    }

    /// How many sums there are for each map.
    pub fn positions(&self) -> usize {
        self.images * self.output[0] * self.output[1]
    }

    /// Elements of a line of a window lie side by side unless they are dilated.
    pub(super) fn stretches(&self) -> Stretches {
        let [height, width] = self.kernel;
        match self.dilation[1] == 1 || width == 1 {
            true => Stretches { count: height, length: width * self.channels },
            false => Stretches { count: height * width, length: self.channels },
        }
    }

    /// Whether windows are read from copies of images within frames: where they reach over the sides, and where the last
    /// group of terms reaches over the end of the array.
    fn is_framed(&self) -> bool {
        self.pad != [0; 2] || !self.stretches().length.is_multiple_of(GROUP)
    }

    /// Columns of an image as it is read.
    fn width(&self) -> usize {
        self.input[1] + if self.is_framed() { 2 * self.pad[1] } else { 0 }
    }

    /// How far from its origin each stretch of a window begins.
    pub(super) fn taps(&self) -> List<isize> {
        self.offsets(self.stretches().count / self.kernel[0].max(1))
    }

    /// How far from its origin each element of a window lies.
    pub(super) fn places(&self) -> List<isize> {
        self.offsets(self.kernel[1])
    }

    /// How far from its origin the first elements of each line of a window lie.
    fn offsets(&self, along: usize) -> List<isize> {
        let (line, column) =
            (self.width() * self.channels * self.dilation[0], self.channels * self.dilation[1]);
        (0..self.kernel[0] * along).map(|i| (i / along * line + i % along * column) as isize).collect()
    }

    /// Where the windows of a block begin; its frame is written to `frame`, if it needs one.
    pub(super) fn origins(&self, x: &[u8], zero: u8, block: &PositionBlock, frame: &mut List<u8>) -> Origins {
        let (line, width) = (self.input[1] * self.channels, self.width() * self.channels);
        if !self.is_framed() {
            let at = (block.images.start * self.input[0] + block.lines.start * self.stride[0]) * line;
            let steps = [self.input[0] * line, self.stride[0] * line, self.stride[1] * self.channels];
            return Origins { start: x[at..].as_ptr(), steps };
        }
        let before = self.pad[1] * self.channels;
        let lines = (block.lines.len() - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1;
        frame.clear();
        for image in block.images.clone() {
            for i in 0..lines {
                let from = (block.lines.start * self.stride[0] + i).checked_sub(self.pad[0]);
                match from.filter(|from| *from < self.input[0]) {
                    Some(from) => {
                        frame.extend_with(zero, before);
                        frame.extend_from_slice(&x[(image * self.input[0] + from) * line..][..line]);
                        frame.extend_with(zero, width - before - line);
                    }
                    None => frame.extend_with(zero, width),
                }
            }
        }
        frame.extend_with(zero, GROUP); // what the last group of the last stretch may read
        Origins {
            start: frame.as_ptr(),
            steps: [lines * width, self.stride[0] * width, self.stride[1] * self.channels],
        }
    }

    /// Bytes of the frame of a block.
    pub(super) fn frame_room(&self, block: &PositionBlock) -> usize {
        if !self.is_framed() || block.lines.is_empty() {
            return 0;
        }
        let lines = (block.lines.len() - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1;
        block.images.len() * lines * self.width() * self.channels + GROUP
    }
}
