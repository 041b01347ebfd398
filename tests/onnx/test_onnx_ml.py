"""ONNX: operators of `ai.onnx.ml`, compared with ONNX Runtime."""

import numpy as np
import onnx.backend.test.case.node as node_cases
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_runtime import compared, model_of

import kinnor as nn
import kinnor.onnx

RNG = np.random.default_rng(5)
DOMAIN = "ai.onnx.ml"
"""The domain of operators for classical models."""


def real(*shape):
    """Returns random normal numbers in float32."""
    return RNG.standard_normal(shape).astype(np.float32)


def node(name, inputs, outputs="y", **attributes):
    """Returns a node of the domain `ai.onnx.ml`. Names of inputs and outputs are separated by spaces."""
    return helper.make_node(name, inputs.split(), outputs.split(), domain=DOMAIN, **attributes)


def feeds(n_features, *rows):
    """Returns feeds of `x` with some numbers of rows."""
    return [{"x": real(n, n_features)} for n in rows or (3, 1, 7)]


def trees(n_trees, n_targets, kind, modes=("BRANCH_LEQ",), only=None, positive=False, n_features=4):
    """Returns random trees as the attributes of a node. `kind` is the prefix of its leaves: `target` or `class`."""
    found = {f"nodes_{key}": [] for key in ("treeids", "nodeids", "featureids", "values", "modes")}
    found |= {f"nodes_{key}": [] for key in ("truenodeids", "falsenodeids", "missing_value_tracks_true")}
    found |= {f"{kind}_{key}": [] for key in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree, depth):
        """Adds a node and those below it. Returns its number."""
        at = sum(each == tree for each in found["nodes_treeids"])
        is_leaf = depth == 0 or (depth < 3 and RNG.random() < 0.2)
        found["nodes_treeids"].append(tree)
        found["nodes_nodeids"].append(at)
        found["nodes_featureids"].append(0 if is_leaf else int(RNG.integers(n_features)))
        found["nodes_values"].append(0.0 if is_leaf else float(np.float32(RNG.standard_normal())))
        found["nodes_modes"].append("LEAF" if is_leaf else str(RNG.choice(modes)))
        found["nodes_missing_value_tracks_true"].append(int(RNG.integers(2)))
        place = len(found["nodes_truenodeids"])
        found["nodes_truenodeids"].append(0)
        found["nodes_falsenodeids"].append(0)
        if is_leaf:
            for target in range(n_targets) if only is None else [only]:
                found[f"{kind}_treeids"].append(tree)
                found[f"{kind}_nodeids"].append(at)
                found[f"{kind}_ids"].append(target)
                weight = RNG.random() if positive else RNG.standard_normal()
                found[f"{kind}_weights"].append(float(np.float32(weight)))
        else:
            found["nodes_truenodeids"][place] = grow(tree, depth - 1)
            found["nodes_falsenodeids"][place] = grow(tree, depth - 1)
        return at

    for tree in range(n_trees):
        grow(tree, 4)
    return found


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize("has_base", [False, True])
def test_regression_by_trees(aggregate, n_targets, has_base):
    """`TreeEnsembleRegressor` agrees for each way to combine trees."""
    base = {"base_values": [0.5] * n_targets} if has_base else {}
    attributes = trees(6, n_targets, "target")
    made = node("TreeEnsembleRegressor", "x", n_targets=n_targets, aggregate_function=aggregate, **attributes, **base)
    compared([made], feeds(4, 3, 1, 50), ["y"])


def test_missing_numbers_and_other_comparisons_in_trees():
    """Trees agree if inputs are NaN, and for each comparison of a node."""
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    given = feeds(4, 20, 3)
    for feed in given:
        feed["x"][RNG.random(feed["x"].shape) < 0.3] = np.nan
    for choice in (modes, modes[:1]):
        compared([node("TreeEnsembleRegressor", "x", n_targets=1, **trees(5, 1, "target", choice))], given, ["y"])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_by_trees(transform, n_classes):
    """`TreeEnsembleClassifier` agrees in labels and scores for each transform of scores."""
    labels = {"classlabels_int64s": [5, 2, 9][:n_classes]}
    made = node(
        "TreeEnsembleClassifier", "x", "l y", post_transform=transform, **trees(6, n_classes, "class"), **labels
    )
    given = feeds(4, 3, 1, 50)
    compared([made], given, ["l", "y"] if n_classes > 2 else ["y"])
    model = kinnor.onnx.load(model_of([made], given[0], ["l", "y"]))
    for feed in given:  # of two scores, ONNX Runtime looks at the sign of the second
        chosen, scores = model(**feed)
        np.testing.assert_array_equal(chosen, np.take(labels["classlabels_int64s"], scores.argmax(1)))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("base", [None, [0.25]])
@pytest.mark.parametrize("only", [0, 1])
def test_two_classes_by_one_score(transform, positive, base, only):
    """`TreeEnsembleClassifier` agrees if trees have scores for one of two classes only."""
    attributes = trees(4, 2, "class", only=only, positive=positive)
    attributes |= {} if base is None else {"base_values": base}
    labels = {"classlabels_strings": ["no", "yes"]}
    made = node("TreeEnsembleClassifier", "x", "l y", post_transform=transform, **attributes, **labels)
    compared([made], feeds(4, 3, 1, 50), ["l", "y"])


def test_trees_that_do_not_fit_are_refused():
    made = node("TreeEnsembleRegressor", "x", n_targets=1, **trees(3, 1, "target"))
    model = kinnor.onnx.load(model_of([made], feeds(4)[0], ["y"]))
    with pytest.raises(kinnor.onnx.OnnxError, match="expected rows of 4 features or more"):
        model(real(3, 2))
    assert model(real(3, 4)).shape == (3, 1)
    made = node("TreeEnsembleClassifier", "x", "l y", classlabels_int64s=[1, 2], **trees(3, 3, "class"))
    with pytest.raises(kinnor.onnx.OnnxError, match="expected a label for each"):
        kinnor.onnx.load(model_of([made], feeds(4)[0], ["l", "y"]))(real(3, 4))
    attributes = trees(3, 1, "target")
    attributes["nodes_truenodeids"] = [0] * len(attributes["nodes_truenodeids"])
    made = node("TreeEnsembleRegressor", "x", n_targets=1, **attributes)
    with pytest.raises(kinnor.onnx.OnnxError, match="expected trees, got nodes in a circle"):
        kinnor.onnx.load(model_of([made], feeds(4)[0], ["y"]))(real(3, 4))


def test_labels_and_tables_of_scores():
    """Classifiers return labels, and `ZipMap` a table of scores by label."""
    for labels in ({"classlabels_strings": ["b", "a", "c"]}, {"classlabels_int64s": [3, 1, 2]}):
        nodes = [
            node("TreeEnsembleClassifier", "x", "l s", post_transform="SOFTMAX", **trees(3, 3, "class"), **labels),
            node("ZipMap", "s", "z", **labels),
        ]
        compared(nodes, feeds(4), ["l", "z"])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_linear_models(transform, n):
    """`LinearRegressor` and `LinearClassifier` agree."""
    attributes = {"coefficients": real(n * 4).tolist(), "post_transform": transform, "intercepts": real(n).tolist()}
    compared([node("LinearRegressor", "x", targets=n, **attributes)], feeds(4), ["y"])
    labels = {"classlabels_ints": [4, 6, 1][: max(n, 2)]}
    compared([node("LinearClassifier", "x", "l y", **attributes, **labels)], feeds(4), ["l", "y"])


KERNELS = [
    ("LINEAR", [0.0, 0.0, 0.0]),
    ("POLY", [0.5, 1.0, 2.0]),
    ("RBF", [0.3, 0.0, 0.0]),
    ("SIGMOID", [0.2, 0.1, 0.0]),
]
"""Kernels of support vectors, with gamma, offset and degree."""


@pytest.mark.parametrize(("kernel", "numbers"), KERNELS)
def test_regression_by_support_vectors(kernel, numbers):
    """`SVMRegressor` agrees for each kernel."""
    attributes = {"kernel_type": kernel, "rho": [0.3], "kernel_params": numbers}
    vectors = {"n_supports": 5, "support_vectors": real(20).tolist(), "coefficients": real(5).tolist()}
    compared([node("SVMRegressor", "x", **attributes, **vectors)], feeds(4), ["y"])
    compared([node("SVMRegressor", "x", one_class=1, **attributes, **vectors)], feeds(4), ["y"])


@pytest.mark.parametrize(("kernel", "numbers"), KERNELS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("has_probabilities", [False, True])
def test_classes_by_support_vectors(kernel, numbers, n_classes, has_probabilities):
    """`SVMClassifier` agrees for each kernel, with and without probabilities."""
    counts, n_pairs = [2, 3, 2][:n_classes], n_classes * (n_classes - 1) // 2
    n = sum(counts)
    attributes = {
        "kernel_type": kernel,
        "kernel_params": numbers,
        "rho": real(n_pairs).tolist(),
        "vectors_per_class": counts,
        "support_vectors": real(n * 4).tolist(),
        "coefficients": real((n_classes - 1) * n).tolist(),
        "classlabels_ints": [0, 1, 2][:n_classes],
    }
    if has_probabilities:
        attributes |= {"prob_a": (-1 - RNG.random(n_pairs)).tolist(), "prob_b": (real(n_pairs) / 4).tolist()}
    compared([node("SVMClassifier", "x", "l y", **attributes)], feeds(4, 3, 1, 20), ["l", "y"], rtol=1e-3, atol=1e-4)


def test_features():
    """`Scaler`, `Normalizer`, `Binarizer`, `Imputer` and `FeatureVectorizer` agree with ONNX Runtime."""
    scale = {"offset": real(4).tolist(), "scale": real(4).tolist()}
    compared([node("Scaler", "x", **scale)], feeds(4), ["y"])
    compared([node("Scaler", "x", offset=[0.5], scale=[2.0])], feeds(4), ["y"])
    for norm in ("MAX", "L1", "L2"):
        compared([node("Normalizer", "x", norm=norm)], [{"x": np.abs(feed["x"])} for feed in feeds(4)], ["y"])
    compared([node("Binarizer", "x", threshold=0.25)], feeds(4), ["y"])
    given = feeds(4)
    for feed in given:
        feed["x"][0, ::2] = np.nan
    for values in ([0.5], [1.0, 2.0, 3.0, 4.0]):
        compared([node("Imputer", "x", imputed_value_floats=values, replaced_value_float=np.nan)], given, ["y"])
    whole = [{"x": RNG.integers(0, 3, (n, 4))} for n in (2, 5)]
    compared([node("Imputer", "x", imputed_value_int64s=[9], replaced_value_int64=1)], whole, ["y"])
    pairs = [{"a": real(n, 2), "b": real(n, 3)} for n in (2, 4)]
    compared([node("FeatureVectorizer", "a b", inputdimensions=[2, 3])], pairs, ["y"])


def test_chosen_features():
    """`ArrayFeatureExtractor` selects columns at constant and computed indices."""
    compared([node("ArrayFeatureExtractor", "x p")], feeds(4), ["y"], {"p": np.array([2, 0])})
    given = [{"p": RNG.integers(0, 3, (1, n))} for n in (2, 5)]
    compared([node("ArrayFeatureExtractor", "w p")], given, ["y"], {"w": np.array([7, 8, 9])})


WORDS = np.array(["b", "a", "odd", "c"])
"""Words to draw inputs from. No model knows `odd`."""


def test_encoded_labels():
    """`LabelEncoder` agrees for all types of keys and values."""
    numbers = [{"x": RNG.integers(0, 5, (n, 2))} for n in (2, 4)]
    words = [{"x": WORDS[RNG.integers(0, 4, (n, 2))]} for n in (2, 4)]
    reals = [{"x": np.array([[0.5, np.nan, 3.0], [1.0, 1.5, np.nan]], np.float32)[:n]} for n in (2, 1)]
    for given, keys in (
        (numbers, {"keys_int64s": [3, 1, 2]}),
        (words, {"keys_strings": ["b", "a", "c"]}),
        (reals, {"keys_floats": [0.5, np.nan, 1.5]}),
    ):
        for values in (
            {"values_strings": ["x", "y", "z"]},
            {"values_int64s": [5, 6, 7], "default_int64": 42},
            {"values_floats": [0.5, 1.5, 2.5], "default_float": -2.0},
        ):
            for version in (3, 4):
                made = node("LabelEncoder", "x", **keys, **values)
                compared([made], given, ["y"], versions={"ai.onnx.ml": version})
    compared([node("CategoryMapper", "x", cats_int64s=[3, 1], cats_strings=["b", "a"])], words, ["y"])
    compared([node("CategoryMapper", "x", cats_int64s=[3, 1], cats_strings=["b", "a"])], numbers, ["y"])


def test_encoded_categories():
    """`OneHotEncoder` agrees for words and numbers. Unknown categories are refused on request."""
    words = [{"x": WORDS[RNG.integers(0, 4, (n, 1))]} for n in (2, 4)]
    compared([node("OneHotEncoder", "x", cats_strings=["a", "b", "c"])], words, ["y"])
    numbers = [{"x": RNG.integers(0, 5, (n, 1))} for n in (2, 4)]
    compared([node("OneHotEncoder", "x", cats_int64s=[1, 3, 4])], numbers, ["y"])
    model = kinnor.onnx.load(model_of([node("OneHotEncoder", "x", cats_int64s=[1, 3], zeros=0)], numbers[0], ["y"]))
    with pytest.raises(kinnor.onnx.OnnxError, match="expected known categories"):
        model(np.array([[1], [2]]))
    assert model(np.array([[1], [3]])).tolist() == [[[1, 0]], [[0, 1]]]


def test_strings_are_moved():
    """Operators that move elements also move strings."""
    labels = np.array(["no", "yes", "maybe"], object)
    nodes = [
        helper.make_node("ArgMax", ["x"], ["at"], axis=1, keepdims=0),
        helper.make_node("Gather", ["labels", "at"], ["chosen"], axis=0),
        helper.make_node("Unsqueeze", ["chosen", "axis"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, ["n", 1])],
        [
            helper.make_tensor("labels", TensorProto.STRING, [3], [text.encode() for text in labels]),
            numpy_helper.from_array(np.array([1]), "axis"),
        ],
    )
    model = kinnor.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert model.output_info[0].type == "tensor(string)"
    for n in (2, 5, 2):
        x = real(n, 3)
        assert model(x)[:, 0].tolist() == labels[x.argmax(1)].tolist()


def test_strings_that_the_model_does_not_contain():
    """Strings that the model does not contain pass through it, and are refused where a number is needed."""
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.STRING, ["n"])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "net", [x], [y])
    model = kinnor.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    for words in (WORDS, WORDS[::-1], np.array([b"ab", b"\xc3\xa9"]), np.array([b"xy", b"ab"], np.void)):
        expected = [word.decode() if isinstance(word, bytes) else word for word in words.tolist()]
        assert model(words).tolist() == expected
    with pytest.raises(nn.CallError, match="expected an array of strings"):
        model(np.zeros(3))
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "net", [x], [y])
    model = kinnor.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    with pytest.raises(nn.UnsupportedError, match="expected numbers, got strings"):
        model(WORDS)


def test_gradients_of_features():
    """Gradients go through scaled and normalized features."""
    nodes = [node("Scaler", "x", "h", offset=[0.5], scale=[2.0]), node("Normalizer", "h", "y", norm="L2")]
    model = kinnor.onnx.load(model_of(nodes, feeds(4)[0], ["y"]))
    x = nn.Variable.from_numpy_array(real(3, 4), need_grad=True)
    y = model(x)
    y.forward()
    y.backward()
    assert np.isfinite(x.g).all()
    assert (x.g != 0).any()


def cases():
    """Returns the node cases of the package `onnx` for this domain."""
    import importlib
    import pkgutil

    for module in pkgutil.iter_modules([f"{path}/ai_onnx_ml" for path in node_cases.__path__]):
        importlib.import_module(f"{node_cases.__name__}.ai_onnx_ml.{module.name}")
    return [case for case in node_cases._NodeTestCases if "ai_onnx_ml" in case.name]


def test_node_cases_of_the_package():
    """Node tests of the package `onnx` for this domain pass."""
    found = cases()
    assert len(found) >= 8, "counted with version 1.23 of the package"
    for case in found:
        model = kinnor.onnx.load(case.model)
        for inputs, outputs in case.data_sets:
            y = model(*inputs)
            for each, wanted in zip(y if isinstance(y, tuple) else (y,), outputs, strict=True):
                assert each.shape == wanted.shape
                if wanted.dtype.kind in "OU":
                    assert each.tolist() == wanted.tolist()
                else:
                    np.testing.assert_allclose(each, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keys", [[3, 1, 7], ["b", "a", "odd"]])
def test_dictionaries_are_inputs(keys):
    """A dictionary is a row of the values of its keys, as in ONNX Runtime; absent ones are zero, others ignored."""
    kind = TensorProto.STRING if isinstance(keys[0], str) else TensorProto.INT64
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    x.type.map_type.key_type = kind
    x.type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    name = "string_vocabulary" if isinstance(keys[0], str) else "int64_vocabulary"
    graph = helper.make_graph(
        [node("DictVectorizer", "x", "h", **{name: keys}), node("Scaler", "h", "y", offset=[0.5], scale=[2.0])],
        "net",
        [x],
        [y],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    model, session = kinnor.onnx.load(proto), kinnor.onnx.InferenceSession(proto)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    assert session.get_inputs()[0].type == theirs.get_inputs()[0].type
    other = "none" if isinstance(keys[0], str) else 99
    for given in ({keys[0]: 2.5, keys[2]: -1.0}, {keys[1]: 4.0, other: 3.0}, {keys[0]: 2.5, keys[2]: -1.0}):
        expected = theirs.run(None, {"x": given})[0]
        np.testing.assert_array_equal(model(given), expected)
        np.testing.assert_array_equal(session.run(None, {"x": given})[0], expected)
    np.testing.assert_array_equal(model(np.array([[1, 2, 3]], np.float32)), [[1, 3, 5]])
    with pytest.raises(nn.ArgumentError, match="expected keys like"):
        model({1.5: 2.0})
    with pytest.raises(nn.ShapeError):
        model(np.ones((1, 2), np.float32))
    graph.node[1].input[0] = "x"
    with pytest.raises(nn.UnsupportedError, match="expected one DictVectorizer"):
        kinnor.onnx.load(helper.make_model(graph, opset_imports=opsets))


def test_trees_with_double_thresholds_have_targets_in_single_precision():
    """Thresholds are compared in double precision, and the targets are float32, as in ONNX Runtime."""
    bound = np.nextafter(np.float32(1.8), np.float32(0)).astype(np.float64) + 1e-10
    tree = node(
        "TreeEnsembleRegressor",
        "x",
        "h",
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        nodes_values_as_tensor=numpy_helper.from_array(np.array([bound, 0, 0]), "values"),
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights_as_tensor=numpy_helper.from_array(np.array([0.1, 0.7]), "weights"),
    )
    x = helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["n", 1])
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["n", 1])
    graph = helper.make_graph([tree, helper.make_node("Cast", ["h"], ["y"], to=TensorProto.DOUBLE)], "net", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    rows = np.array([[bound], [bound + 1e-11], [bound - 1e-11]])
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": rows})[0]
    np.testing.assert_array_equal(kinnor.onnx.load(proto)(rows), expected)
    np.testing.assert_array_equal(expected, np.array([[0.1], [0.7], [0.1]], np.float32))


def test_linear_classifiers_have_as_many_classes_as_intercepts():
    """Further coefficients are ignored, as in ONNX Runtime. Too few are refused."""
    for n_features, more in ((2, 0), (2, 6), (4, 0)):
        attributes = {
            "coefficients": real(3 * n_features + more).tolist(),
            "intercepts": real(3).tolist(),
            "classlabels_ints": [5, 6, 7],
            "post_transform": "SOFTMAX",
        }
        made = node("LinearClassifier", "x", "label scores", **attributes)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", n_features])
        outputs = [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3]),
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 3)]
        proto = helper.make_model(helper.make_graph([made], "net", [x], outputs), opset_imports=opsets, ir_version=8)
        theirs = onnxruntime.InferenceSession(proto.SerializeToString())
        for feed in feeds(n_features):
            for y, expected in zip(kinnor.onnx.load(proto)(**feed), theirs.run(None, feed), strict=True):
                np.testing.assert_allclose(y, expected, rtol=1e-5)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5
    with pytest.raises(kinnor.onnx.OnnxError, match="expected 15 coefficients, got 12"):
        kinnor.onnx.load(proto)(real(2, 5))
