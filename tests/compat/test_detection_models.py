"""Networks for detection and segmentation: structure, sizes, files, preprocessing and postprocessing."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor.initializer import UniformInitializer
from kinnor.models.base import BuiltModel
from kinnor.models.object_detection import ObjectDetection, YoloV2
from kinnor.models.object_detection import utils as detection
from kinnor.models.semantic_segmentation import DeepLabV3plus, image_preprocess
from kinnor.models.semantic_segmentation import utils as segmentation
from kinnor.utils.image_utils import imread
from kinnor.utils.save import save


@pytest.fixture
def constant(monkeypatch):
    """Replaces the random initialization of weights by constants, which is fast."""
    monkeypatch.setattr(UniformInitializer, "__call__", lambda self, shape: np.broadcast_to(np.float32(0.01), shape))


def count(y, kind):
    """Counts the functions of type `kind` above `y`."""
    found = []
    y.visit(lambda f: found.append(f.info.type_name))
    return found.count(kind)


# The sizes of the authors' files, minus a header of 16 bytes, at four bytes each.
@pytest.mark.parametrize(("dataset", "maps", "n"), [("voc", 25, 50_676_061), ("coco", 85, 50_983_561)])
def test_yolo_has_the_published_size(constant, dataset, maps, n):
    model = YoloV2(dataset, weights=None)
    y = model(nn.Variable((2, 3, 64, 96)))
    assert y.shape == (2, 5 * 2 * 3, maps)
    assert sum(v.size for v in model.get_parameters().values()) == n
    assert (count(y, "Convolution"), count(y, "MaxPooling")) == (23, 5)
    assert len(model.category_names) == maps - 5
    assert not y.need_grad
    assert nn.get_parameters() == {}
    shapes = {name: v.shape for name, v in model.get_parameters().items()}
    assert shapes["c13_14/conv/W"] == (64, 512, 1, 1)
    assert shapes["c21/conv/W"] == (1024, 1280, 3, 3)
    assert shapes["detection/conv/b"] == (5 * maps,)
    assert model(nn.Variable((1, 3, 32, 32)), use_up_to="convdetect", training=True).need_grad
    assert model(nn.Variable((1, 3, 32, 32)), use_up_to="lastconv").shape == (1, 1024, 1, 1)
    net = model(nn.Variable((2, 3, 64, 96)), returns_net=True)
    assert (list(net.inputs), net.outputs["y"].shape) == (["x"], y.shape)
    assert nn.get_parameters() == {}


def test_boxes_are_relative_to_the_image():
    """YOLO v2 gives boxes as parts of the image, from cells and anchors, with class probabilities."""
    h = nn.Variable((1, 125, 2, 4))
    h.d = np.random.RandomState(0).randn(*h.shape)
    model = YoloV2(weights=None)
    y = model._boxes(h)
    y.forward()
    raw, made = h.d.reshape(5, 25, 2, 4), y.d.reshape(5, 2, 4, 25)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    anchor, row, column = 3, 1, 2
    x = raw[anchor, :, row, column]
    wanted = [(sigmoid(x[0]) + column) / 4, (sigmoid(x[1]) + row) / 2]
    wanted += [np.exp(x[2]) * 9.47112 / 4, np.exp(x[3]) * 4.84053 / 2, sigmoid(x[4])]
    wanted += (np.exp(x[5:]) / np.exp(x[5:]).sum()).tolist()
    np.testing.assert_allclose(made[anchor, row, column], wanted, rtol=1e-5)


@pytest.mark.parametrize(("stride", "dilation"), [(16, 6), (8, 12)])
def test_deeplab_has_the_structure_that_nnablas_file_names(constant, stride, dilation):
    model = DeepLabV3plus(output_stride=stride, weights=None)
    x = nn.Variable((1, 3, 65, 97))
    y = model(x)
    assert y.shape == (1, 21, 65, 97)
    assert count(y, "BatchNormalization") == 146
    assert count(y, "Interpolate") == 3
    last = model(x, use_up_to="lastconv")
    assert last.shape == (1, 256, 17, 25)
    assert model(x, use_up_to="lastconv+relu").parent.inputs[0].shape == last.shape
    assert count(model(x, use_up_to="lastconv+relu"), "ReLU") == 82
    found = model.get_parameters()
    assert found["xception_65/entry_flow/block2/unit_1/separable_conv3/depthwise/depthwise_conv/W"].shape == (256, 3, 3)
    assert found["xception_65/middle_flow/block1/unit_16/separable_conv1/pointwise/conv/W"].shape == (728, 728, 1, 1)
    assert found["concat_projection/conv/W"].shape == (256, 1280, 1, 1)
    assert len(model.category_names) == 20
    dilations = []
    y.visit(lambda f: dilations.append(f.info.args.get("dilation")))
    assert [dilation, dilation] in [list(d) for d in dilations if d]


class Small(BuiltModel):
    """A network with one layer."""

    FOLDER, SHAPE, STAGES, UNUSED = "small", (3, 4, 4), ("all", "first"), ("xs",)

    def build(self, x, training, stages):
        """Builds a convolution and a ReLU."""
        h = stages.note("first", PF.convolution(x, 2, (3, 3), fix_parameters=not training, name="c"))
        stages.note("all", F.relu(h))


class Other(Small):
    """A network whose parameters have other names."""

    def build(self, x, training, stages):
        """Builds a convolution with another name."""
        stages.note("all", PF.convolution(x, 2, (3, 3), name="d"))


@pytest.fixture
def file(tmp_path):
    """Writes a network to a file. Returns its path and the weight of its convolution."""
    with nn.parameter_scope("", {}):
        x = nn.Variable((1, 3, 4, 4))
        y = F.relu(PF.convolution(x, 2, (3, 3), name="c") + nn.parameter.get_parameter_or_create("xs", (1, 1, 1, 1)))
        network = {"name": "runtime", "batch_size": 1, "outputs": {"y": y}, "names": {"x": x}}
        save(str(tmp_path / "net.nnp"), {"networks": [network]})
        return tmp_path / "net.nnp", nn.get_parameters()["c/conv/W"].d.copy()


def test_parameters_of_a_file(file):
    """A model built from a file has the file's parameters, at any image size."""
    path, weight = file
    model = Small("", path)
    assert model(nn.Variable((2, 3, 9, 7))).shape == (2, 2, 7, 5)
    np.testing.assert_array_equal(model.get_parameters()["c/conv/W"].d, weight)
    assert set(model.get_parameters()) == {"c/conv/W", "c/conv/b"}
    assert nn.get_parameters() == {}
    assert set(nn.get_parameters(grad_only=False)) == {"c/conv/W", "c/conv/b"}
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).rand(2, 3, 9, 7))
    for training in (False, True):
        y = model(x, training=training)
        net = model(x, training=training, returns_net=True)
        assert net.inputs == {"x": x}
        assert list(net.outputs) == ["y"]
        nn.forward_all([y, net.outputs["y"]])
        np.testing.assert_array_equal(net.outputs["y"].d, y.d)
        assert net.outputs["y"].need_grad == net.variables["c/conv/W"].need_grad == training
        assert set(nn.get_parameters()) == ({"c/conv/W", "c/conv/b"} if training else set())
    first = model(x, use_up_to="first", returns_net=True).outputs["y"]
    assert first.parent.info.type_name == "Convolution"
    with pytest.raises(nn.ParameterError, match=r"Other: expected a parameter 'd/conv/W' in .*net.nnp, got none"):
        Other("", path)()


def test_wrong_arguments(constant, monkeypatch, tmp_path):
    """Missing files and unknown data sets or strides are refused with the expected values."""
    monkeypatch.setenv("NNABLA_DATA_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"nnp_models/object_detection/yolov2-coco\.nnp, which is not there"):
        YoloV2("coco")
    with pytest.raises(FileNotFoundError, match=r"semantic_segmentation/DeepLabV3-voc-coco-os-8\.nnp"):
        DeepLabV3plus("voc-coco", 8)
    with pytest.raises(nn.RangeError, match="expected `dataset` to be one of voc, coco, got 'imagenet'"):
        YoloV2("imagenet")
    with pytest.raises(nn.RangeError, match="expected `output_stride` to be 8 or 16, got 4"):
        DeepLabV3plus(output_stride=4, weights=None)
    with pytest.raises(nn.RangeError, match="expected `dataset` to be one of voc, voc-coco, got 3"):
        DeepLabV3plus(3)
    model = YoloV2(weights=None)
    with pytest.raises(nn.ShapeError, match="expected height and width to be multiples of 32"):
        model(nn.Variable((1, 3, 33, 32)))
    with pytest.raises(nn.ShapeError, match="expected images of shape"):
        model(nn.Variable((3, 32, 32)))
    with pytest.raises(nn.RangeError, match="expected `use_up_to` to be one of detection, convdetect, lastconv, got"):
        model(use_up_to="pool")
    with pytest.raises(NotImplementedError, match="ObjectDetection: expected a subclass that defines `build`"):
        ObjectDetection("", None)()


def test_letterbox_and_its_inverse():
    """`LetterBoxTransform` scales and pads an image, and maps boxes back."""
    image = np.full((10, 20, 3), 200, np.uint8)
    frame = detection.LetterBoxTransform(image, 32, 32)
    assert (frame.new_w, frame.new_h) == (32, 16)
    assert np.all(frame.image[8:24] == 200)
    assert np.all(frame.image[:8] == 127)
    assert np.all(frame.image[24:] == 127)
    boxes = np.array([[0.5, 0.5, 1.0, 0.5, 9.0], [0.25, 0.375, 0.5, 0.25, 8.0]])
    wanted = [[10, 5, 20, 10, 9], [5, 2.5, 10, 5, 8]]
    np.testing.assert_allclose(frame.inverse_coordinate_transform(boxes), wanted)
    for wrong in (image.astype(float), image[0], "image"):
        with pytest.raises(nn.ArgumentError, match="letterbox: expected an image of uint8"):
            detection.letterbox(wrong, 32, 32)
    with pytest.raises(nn.ShapeError, match="expected boxes of shape"):
        frame.inverse_coordinate_transform(boxes[0])


def test_boxes_are_drawn_around_detections():
    """`draw_bounding_boxes` draws on a copy, and refuses wrong shapes and types."""
    image = np.zeros((40, 60, 3), np.uint8)
    boxes = np.array([[30, 20, 20, 10, 1, 0.1, 0.9], [10, 10, 4, 4, 1, 0.2, 0.3]])
    drawn = detection.draw_bounding_boxes(image, boxes, ["cat", "dog"], colors=[(255, 0, 0), (0, 255, 0)])
    assert drawn[15, 20].tolist() == [0, 255, 0]
    assert drawn[25, 40].tolist() == [0, 255, 0]
    assert not drawn[..., [0, 2]].any()
    assert not image.any()
    assert detection.draw_bounding_boxes(image, boxes, ["cat", "dog"]).any()
    with pytest.raises(nn.ShapeError, match=r"expected boxes of shape \(n, 6\), got shape \(2, 7\)"):
        detection.draw_bounding_boxes(image, boxes, ["cat"])
    with pytest.raises(nn.ArgumentError, match="DrawBoundingBoxes: expected an image of uint8"):
        detection.draw_bounding_boxes(image * 1.0, boxes, ["cat", "dog"])


def test_images_are_padded_and_classes_have_the_original_size(tmp_path):
    image = np.random.RandomState(0).randint(0, 256, (10, 20, 3)).astype(np.uint8)
    way = segmentation.ProcessImage(image, 33, 33)
    x = way.pre_process()
    assert x.shape == (1, 3, 33, 33)
    assert -1 <= x.min() <= x.max() <= 1
    assert not x[:, :, 16:].any()
    classes = np.zeros((33, 33), np.uint8)
    classes[:16, 16:] = 3
    found = way.post_process(classes)
    assert found.shape == (10, 20)
    assert set(np.unique(found)) == {0, 3}
    way.save_segmentation_image(tmp_path / "a.png")
    assert imread(tmp_path / "a.png")[0, 19].tolist() == [255, 255, 0]
    assert segmentation.get_color()[[5, 19, 20, 21]].tolist() == [
        [128, 0, 128],
        [128, 192, 0],
        [0, 64, 128],
        [224, 224, 192],
    ]
    with pytest.raises(nn.ShapeError, match="expected classes of shape"):
        way.post_process(classes[0])
    with pytest.raises(IndexError, match="expected classes 0 to 22, got 0 to 40"):
        segmentation.save_image(tmp_path / "b.png", np.array([[0, 40]]))
    with pytest.raises(nn.ShapeError, match="expected an image of shape"):
        image_preprocess.preprocess_image_and_label(image[0])
    with pytest.raises(nn.ShapeError, match="pad: expected an image of shape"):
        image_preprocess.pad(3)
