"""Object detection networks."""

from .base import ObjectDetection
from .yolov2 import YoloV2

__all__ = ["ObjectDetection", "YoloV2"]
