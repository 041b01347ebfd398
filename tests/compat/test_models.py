"""Networks for ImageNet: shapes and sizes with random weights, and loading of files that the user has."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.models.imagenet as M
import kinnor.parametric_functions as PF
from kinnor.initializer import UniformInitializer
from kinnor.models import utils
from kinnor.utils.save import save

# Numbers of trained parameters, from the papers or other libraries.
SIZES = [
    (M.ResNet18, 64, 11_689_512),
    (M.ResNet50, 64, 25_557_032),
    (M.ResNeXt50, 64, 25_028_904),
    (M.SqueezeNetV10, 97, 1_248_424),
    (M.SqueezeNetV11, 97, 1_235_496),
    (M.MobileNet, 64, 4_231_976),
    (M.MobileNetV2, 64, 3_504_872),
    (M.NIN, 97, 7_595_176),
    (M.AlexNet, 227, 60_965_224),
    (M.DenseNet, 64, 28_681_000),
    (M.VGG11, 32, 9_220_480 + 512 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000),
]


@pytest.mark.parametrize(("kind", "size", "n"), SIZES, ids=lambda value: getattr(value, "__name__", None))
def test_networks_have_the_published_size(kind, size, n, monkeypatch):
    """Each network for ImageNet has the published number of trained elements, and 1,000 outputs."""
    monkeypatch.setattr(UniformInitializer, "__call__", lambda self, shape: np.broadcast_to(np.float32(0.1), shape))
    model = kind(weights=None)
    y = model(nn.Variable((2, 3, size, size)), training=True)
    assert y.shape == (2, 1000)
    trained = [v for v in model.get_parameters().values() if v.need_grad]
    assert sum(v.size for v in trained) == n
    assert nn.get_parameters() == {}
    assert set(model.KEYS) >= {"classifier", "pool"}
    assert not model(nn.Variable((1, 3, size, size))).need_grad


def test_stages():
    """`use_up_to` ends a network at a named stage, and wrong arguments are refused."""
    model = M.ResNet18(weights=None)
    x = nn.Variable((1, 3, 64, 64))
    assert model(x, use_up_to="lastconv").parent.info.type_name == "Add2"
    assert model(x, use_up_to="lastconv+relu").shape == (1, 512, 2, 2)
    assert model(x, use_up_to="pool").shape == (1, 512, 1, 1)
    assert model().shape == (1, 1000)
    with pytest.raises(ValueError, match="expected `use_up_to` to be one of classifier, pool, lastconv, lastconv"):
        model(x, use_up_to="elsewhere")
    with pytest.raises(ValueError, match="expected images of shape"):
        model(nn.Variable((1, 1, 64, 64)))
    with pytest.raises(ValueError, match="expected `num_layers`"):
        M.ResNet(19)


def test_a_missing_file(monkeypatch, tmp_path):
    """A model without its file of weights says where the file is expected."""
    monkeypatch.setenv("NNABLA_DATA_HOME", str(tmp_path))
    assert utils.get_model_home() == str(tmp_path / "nnp_models")
    with pytest.raises(FileNotFoundError, match=r"nnp_models/imagenet/Resnet-18\.nnp, which is not there"):
        M.ResNet18()
    with pytest.raises(FileNotFoundError, match=r"category_names\.txt"):
        _ = M.ResNet18(weights=None).category_names
    monkeypatch.setenv("NNABLA_MODELS_URL_BASE", "here/")
    with pytest.raises(FileNotFoundError, match="at here/imagenet/"):
        M.VGG16()
    with pytest.raises(NotImplementedError, match="expected weights from a file"):
        M.SENet(weights=None)()
    for make, name in ((lambda: M.ShuffleNet(5), "-.05x"), (M.ShuffleNet20, "-2.0x"), (M.ShuffleNet, "")):
        with pytest.raises(FileNotFoundError, match=f"imagenet/ShuffleNet{name}.nnp"):
            make()
    with pytest.raises(ValueError, match=r"expected `scaling_factor` to be one of \(10, 5, 20\), got 2"):
        M.ShuffleNet(2)


@pytest.fixture
def file(tmp_path):
    """Writes a small network with the names of NNabla's ResNet file."""
    with nn.parameter_scope("", {}):
        x = nn.Variable((4, 3, 8, 8))
        h = PF.batch_normalization(PF.convolution(x, 5, (3, 3)), batch_stat=True)
        pooled = F.average_pooling(h, (6, 6))
        y = PF.affine(pooled, 1000)
        contents = {
            "networks": [
                {
                    "name": "Training",
                    "batch_size": 4,
                    "outputs": {"Affine": y},
                    "names": {"InputX": x, "AveragePooling": pooled},
                }
            ]
        }
        save(str(tmp_path / "net.nnp"), contents)
        return tmp_path / "net.nnp"


def test_weights_from_a_file(file, monkeypatch):
    """A network computes the same from a file of weights, again in each call."""

    class Small(M.ResNet18):
        """A description of a ResNet that fits the small network in `file`."""

        POOLING = None
        """The network has no global pooling."""
        AUGMENTATION = "none"

    model = Small(weights=file)
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).rand(2, 3, 8, 8).astype(np.float32))
    y = model(x)
    assert y.shape == (2, 1000)
    y.forward()
    again = model(x)
    again.forward()
    np.testing.assert_array_equal(again.d, y.d)
    assert model(x, use_up_to="pool").shape == (2, 5, 1, 1)
    assert not y.need_grad
    assert model(x, returns_net=True).outputs


def test_images_of_another_size(tmp_path):
    """With `force_global_pooling`, a network from a file takes images of another size than the file has."""
    with nn.parameter_scope("", scope := {}):

        def net(x, whole=(8, 8)):
            """A network with a gate per channel, as in SENet. `whole` is the size of the image, over which the gate
            pools.
            """
            with nn.parameter_scope("gate"):
                h = PF.convolution(x, 5, (3, 3), pad=(1, 1))
                gate = F.sigmoid(F.average_pooling(h, whole))
            last = PF.batch_normalization(PF.convolution(h * gate, 6, (3, 3), pad=(1, 1)), batch_stat=False)
            pooled = F.average_pooling(F.relu(last), whole)
            return PF.affine(F.dropout(pooled, 0.5), 1000), pooled, last

        x = nn.Variable((4, 3, 8, 8))
        y, pooled, last = net(F.image_augmentation(x, (3, 8, 8)))
        named = {"InputX": x, "AveragePooling": pooled, "Add2_7_RepeatStart_4[1]": last}
        network = {"name": "Training", "batch_size": 4, "outputs": {"Affine": y}, "names": named}
        save(str(tmp_path / "net.nnp"), {"networks": [network]})

    class Gated(M.SENet):
        """Describes the network of `net`: the names of its pooling and of its augmentation in the file."""

        POOLING, AUGMENTATION, DROPOUTS = "@Training/AveragePooling_1", "@Training/ImageAugmentation", ()

    class Plain(Gated):
        """As `Gated`, but only the named pooling adapts to the size of the image."""

        POOLS_EVERYWHERE = False

    gated, plain = Gated(tmp_path / "net.nnp"), Plain(tmp_path / "net.nnp")
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).rand(2, 3, 12, 16))
    with nn.parameter_scope("", scope):
        _, pooled, last = net(x, whole=(12, 16))
    for stage, true in (("pool", pooled), ("lastconv", last)):
        made = gated(x, use_up_to=stage, force_global_pooling=True)
        nn.forward_all([made, true])
        np.testing.assert_allclose(made.d, true.d, rtol=1e-5, atol=1e-6)
        with pytest.raises(nn.Error, match=r"expected kernel and stride \[12, 16\] of '@Training/AveragePooling'"):
            gated(x, use_up_to=stage)
    assert gated(x, force_global_pooling=True, returns_net=True).inputs == {"InputX": x}
    small = nn.Variable((3, 3, 8, 8))
    assert plain(small).shape == gated(small).shape == (3, 1000)


def test_towers_of_a_file_are_left_out(tmp_path):
    """The towers that a file has for training are not part of the network."""
    with nn.parameter_scope("", {}):
        x, label = nn.Variable((2, 3, 8, 8)), nn.Variable((2, 1))
        h = PF.convolution(x, 4, (3, 3), name="c")
        tower = F.softmax_cross_entropy(PF.affine(h, 10, name="t"), label)
        pooled = F.average_pooling(h, (6, 6))
        y = PF.affine(pooled, 10, name="y")
        loss = F.softmax_cross_entropy(y, label) + tower * 0.3
        named = {"InputX": x, "AveragePooling_3": pooled, "Affine_5": y, "Concatenate_9": h}
        network = {"name": "Train", "batch_size": 2, "outputs": {"loss": loss}, "names": named}
        save(str(tmp_path / "net.nnp"), {"networks": [network]})

    class Google(M.GoogLeNet):
        """Describes a network with two auxiliary outputs, which are left out when the file is loaded."""

        AUGMENTATION, TOWERS = "none", ("@Train/Affine_1", "@Train/SoftmaxCrossEntropy_1", "@Train/MulScalar")

    model = Google(tmp_path / "net.nnp")
    for stage, shape in (("classifier", (3, 10)), ("pool", (3, 4, 1, 1)), ("prepool", (3, 4, 6, 6))):
        net = model(nn.Variable((3, 3, 8, 8)), use_up_to=stage, returns_net=True)
        assert list(net.outputs) == [Google.KEYS[stage]]
        assert list(net.inputs) == ["InputX"]
        assert net.outputs[Google.KEYS[stage]].shape == shape
    assert M.DenseNet.NETWORK == M.InceptionV3.NETWORK == M.GoogLeNet.NETWORK == "Train"
