"""Image classification networks for ImageNet."""

from .alexnet import AlexNet
from .base import ImageNetBase
from .densenet import DenseNet
from .googlenet import GoogLeNet
from .inception import InceptionV3
from .mobilenet import MobileNet, MobileNetV2
from .nin import NIN
from .resnet import ResNet, ResNet18, ResNet34, ResNet50, ResNet101, ResNet152
from .resnext import ResNeXt, ResNeXt50, ResNeXt101
from .senet import SENet
from .shufflenet import ShuffleNet, ShuffleNet05, ShuffleNet10, ShuffleNet20
from .squeezenet import SqueezeNet, SqueezeNetV10, SqueezeNetV11
from .vgg import VGG, VGG11, VGG13, VGG16
from .xception import Xception

__all__ = [
    "NIN",
    "VGG",
    "VGG11",
    "VGG13",
    "VGG16",
    "AlexNet",
    "DenseNet",
    "GoogLeNet",
    "ImageNetBase",
    "InceptionV3",
    "MobileNet",
    "MobileNetV2",
    "ResNeXt",
    "ResNeXt50",
    "ResNeXt101",
    "ResNet",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "ResNet101",
    "ResNet152",
    "SENet",
    "ShuffleNet",
    "ShuffleNet05",
    "ShuffleNet10",
    "ShuffleNet20",
    "SqueezeNet",
    "SqueezeNetV10",
    "SqueezeNetV11",
    "Xception",
]
