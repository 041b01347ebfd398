//! Windows over channels-last images: the correspondence of levels and weights, and copies of images in padded
//! frames. Rows of a matrix are images of one pixel.

use std::ops::Range;

use super::pack::Stretches;
use super::tile::GROUP;
use crate::kernels::scratch::List;

/// Windows over channels-last images.
#[derive(Clone, Copy, Debug)]
pub struct ImageWindow {
    /// The number of images.
    pub images: usize,
    /// The number of channels of a pixel.
    pub channels: usize,
    /// The size of an image: lines and columns, as in the following fields.
    pub input: [usize; 2],
    /// The size of the output.
    pub output: [usize; 2],
    /// The size of a window.
    pub kernel: [usize; 2],
    /// The padding at each end.
    pub pad: [usize; 2],
    /// The distance between two windows.
    pub stride: [usize; 2],
    /// The distance between two elements of a window.
    pub dilation: [usize; 2],
}

/// The addresses of the terms of the sums of a part of the output.
pub(super) struct Origins {
    /// The address for the first output of the part.
    start: *const u8,
    /// Bytes from an image, a line and a column of the output to the next one.
    steps: [usize; 3],
}

impl Origins {
    /// The address of the terms of a sum, given its image, line and column relative to the part.
    pub(super) fn of(&self, [image, line, column]: [usize; 3]) -> *const u8 {
        let [by_image, by_line, by_column] = self.steps;
        self.start.wrapping_add(image * by_image + line * by_line + column * by_column)
    }
}

/// A part of the output: some images, and some lines of each.
pub(super) struct PositionBlock {
    /// The images.
    pub(super) images: Range<usize>,
    /// The lines of each image.
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

    /// The number of sums for each map.
    pub fn positions(&self) -> usize {
        self.images * self.output[0] * self.output[1]
    }

    /// Elements of a line of a window are contiguous unless they are dilated.
    pub(super) fn stretches(&self) -> Stretches {
        let [height, width] = self.kernel;
        match self.dilation[1] == 1 || width == 1 {
            true => Stretches { count: height, length: width * self.channels },
            false => Stretches { count: height * width, length: self.channels },
        }
    }

    /// True if windows are read from copies of images in frames. Required if windows exceed the image, or if the last
    /// group of terms exceeds the array.
    fn is_framed(&self) -> bool {
        self.pad != [0; 2] || !self.stretches().length.is_multiple_of(GROUP)
    }

    /// Columns of an image as it is read.
    fn width(&self) -> usize {
        self.input[1] + if self.is_framed() { 2 * self.pad[1] } else { 0 }
    }

    /// The offset of each run of a window from its origin.
    pub(super) fn taps(&self) -> List<isize> {
        self.offsets(self.stretches().count / self.kernel[0].max(1))
    }

    /// The offset of each element of a window from its origin.
    pub(super) fn places(&self) -> List<isize> {
        self.offsets(self.kernel[1])
    }

    /// The offsets of the first elements of each line of a window from its origin.
    fn offsets(&self, along: usize) -> List<isize> {
        let (line, column) =
            (self.width() * self.channels * self.dilation[0], self.channels * self.dilation[1]);
        (0..self.kernel[0] * along).map(|i| (i / along * line + i % along * column) as isize).collect()
    }

    /// The origins of the windows of a block. Writes its frame to `frame`, if it needs one.
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
        frame.extend_with(zero, GROUP); // the last group of the last run may read this
        Origins {
            start: frame.as_ptr(),
            steps: [lines * width, self.stride[0] * width, self.stride[1] * self.channels],
        }
    }

    /// Bytes of the frame of a block.
    pub(super) fn frame_len(&self, block: &PositionBlock) -> usize {
        if !self.is_framed() || block.lines.is_empty() {
            return 0;
        }
        let lines = (block.lines.len() - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1;
        block.images.len() * lines * self.width() * self.channels + GROUP
    }
}
