"""Names of PyTorch, Keras and NumPy, and what Kinnor has in their place. Loaded when a name is not found.

Names are compared without underscores and capitals. An entry is a name of the same module, or text that says what to
write.
"""

from __future__ import annotations

FUNCTIONS = {
    "adaptiveavgpool1d": "global_average_pooling",
    "adaptiveavgpool2d": "global_average_pooling",
    "argmax": "max(x, axis=..., only_index=True)",
    "argmin": "min(x, axis=..., only_index=True)",
    "argsort": "sort(x, only_index=True)",
    "avgpool1d": "average_pooling",
    "avgpool2d": "average_pooling",
    "avgpool3d": "average_pooling",
    "batchnorm": "batch_normalization",
    "binarycrossentropywithlogits": "sigmoid_cross_entropy",
    "bmm": "batch_matmul",
    "cast": "x.astype(type)",
    "cat": "concatenate",
    "categoricalcrossentropy": "categorical_cross_entropy",
    "clamp": "clip_by_value",
    "clip": "clip_by_value",
    "concat": "concatenate",
    "conv1d": "convolution",
    "conv2d": "convolution",
    "conv3d": "convolution",
    "convtranspose1d": "deconvolution",
    "convtranspose2d": "deconvolution",
    "convtranspose3d": "deconvolution",
    "crossentropy": "softmax_cross_entropy",
    "dense": "affine",
    "embedding": "embed",
    "expand": "broadcast",
    "expanddims": "reshape",
    "flatten": "reshape(x, (x.shape[0], -1))",
    "full": "constant",
    "gridsample": "warp_by_grid",
    "groupnorm": "group_normalization",
    "instancenorm": "instance_normalization",
    "isclose": "numpy.isclose(x.d, y.d)",
    "kldiv": "kl_multinomial",
    "l1loss": "absolute_error",
    "layernorm": "layer_normalization",
    "linear": "affine",
    "logsumexp": "log(sum(exp(x)))",
    "maskedfill": "bool_fill",
    "matmul": "x @ y",
    "maximum": "maximum2",
    "maxpool1d": "max_pooling",
    "maxpool2d": "max_pooling",
    "maxpool3d": "max_pooling",
    "meansquarederror": "squared_error",
    "minimum": "minimum2",
    "mm": "x @ y",
    "mseloss": "squared_error",
    "multiheadattention": "multi_head_attention",
    "nllloss": "categorical_cross_entropy, which takes probabilities, not their logarithms",
    "normalize": "norm_normalization",
    "ones": "constant(1, shape)",
    "permute": "transpose",
    "pow": "x ** y",
    "silu": "swish",
    "smoothl1loss": "huber_loss",
    "softmaxcrossentropywithlogits": "softmax_cross_entropy",
    "sparsecategoricalcrossentropy": "categorical_cross_entropy",
    "sqrt": "x ** 0.5",
    "square": "x ** 2",
    "squeeze": "reshape",
    "std": "mean((x - mean(x)) ** 2) ** 0.5",
    "topk": "top_k_data",
    "uniform": "rand",
    "unsqueeze": "reshape",
    "upsample": "interpolate",
    "var": "mean((x - mean(x)) ** 2)",
    "view": "reshape",
    "zeros": "constant(0, shape)",
}
"""Functions."""

PARAMETRIC = {
    "batchnorm": "batch_normalization",
    "batchnorm1d": "batch_normalization",
    "batchnorm2d": "batch_normalization",
    "batchnorm3d": "batch_normalization",
    "conv1d": "convolution",
    "conv2d": "convolution",
    "conv2dtranspose": "deconvolution",
    "conv3d": "convolution",
    "convtranspose1d": "deconvolution",
    "convtranspose2d": "deconvolution",
    "dense": "affine",
    "depthwiseconv2d": "depthwise_convolution",
    "embedding": "embed",
    "groupnorm": "group_normalization",
    "instancenorm": "instance_normalization",
    "instancenorm2d": "instance_normalization",
    "layernorm": "layer_normalization",
    "linear": "affine",
    "multiheadattention": "multi_head_attention",
    "spectralnorm": "spectral_norm",
    "weightnorm": "weight_normalization",
}
"""Functions with parameters of their own, by the names of layers."""

SOLVERS = {
    "optimizer": "Solver",
    "rmsprop": "RMSprop",
    "sgd": "Sgd",
}
"""Solvers, where spelling alone misleads."""

PACKAGE = {
    "adam": "kinnor.solvers.Adam",
    "amp": "kinnor.autocast",
    "array": "NdArray.from_numpy_array(values)",
    "asarray": "Variable.from_numpy_array(values)",
    "bfloat16": "x.astype('bfloat16'), or a context of `bfloat16`",
    "cat": "kinnor.functions.concatenate",
    "crossentropyloss": "kinnor.functions.softmax_cross_entropy",
    "dataloader": "kinnor.data.data_iterator.data_iterator_simple",
    "dataset": "kinnor.data.data_source.DataSource",
    "device": "a context: kinnor.context_scope; there is one device, the CPU",
    "dropout": "kinnor.functions.dropout",
    "eval": "a graph of its own for evaluation, built with batch_stat=False and without dropout",
    "float16": "x.astype('float16'), or a context of `half`",
    "fromnumpy": "Variable.from_numpy_array(values)",
    "functional": "functions",
    "gelu": "kinnor.functions.gelu",
    "gradscaler": "kinnor.experimental.mixed_precision_training.DynamicLossScalingUpdater",
    "inferencemode": "no_grad",
    "init": "initializer",
    "losses": "functions",
    "lrscheduler": "learning_rate_scheduler",
    "manualseed": "seed",
    "mseloss": "kinnor.functions.squared_error",
    "ones": "Variable.from_numpy_array(numpy.ones(shape))",
    "optim": "solvers",
    "optimizers": "solvers",
    "parameter": "Variable.from_numpy_array(values, need_grad=True)",
    "profiler": "profile",
    "rand": "kinnor.functions.rand",
    "randn": "kinnor.functions.randn",
    "relu": "kinnor.functions.relu",
    "sigmoid": "kinnor.functions.sigmoid",
    "silu": "kinnor.functions.swish",
    "softmax": "kinnor.functions.softmax",
    "summary": "print(model)",
    "tanh": "kinnor.functions.tanh",
    "tensor": "Variable.from_numpy_array(values)",
    "zeros": "Variable(shape)",
}
"""Names of the package itself."""

SCHEDULES = {
    "cosineannealinglr": "CosineScheduler",
    "cosinedecay": "CosineScheduler",
    "exponentialdecay": "ExponentialScheduler",
    "exponentiallr": "ExponentialScheduler",
    "lambdalr": "solver.set_learning_rate(rate) in each step",
    "linearlr": "LinearWarmupScheduler",
    "lrscheduler": "BaseLearningRateScheduler",
    "multisteplr": "StepScheduler",
    "polynomiallr": "PolynomialScheduler",
    "reducelronplateau": "PlateauScheduler",
    "sequentiallr": "LinearWarmupScheduler",
    "steplr": "StepScheduler",
}
"""Schedules of learning rates."""

ITERATORS = {
    "csvdataset": "data_iterator_csv_dataset",
    "dataloader": "data_iterator_simple",
    "dataset": "kinnor.data.data_source.DataSource",
    "imagefolder": "data_iterator_image_folder",
    "randomsplit": "two iterators over slices of the arrays",
    "tensordataset": "data_iterator_simple",
}
"""Data iterators, by the names of PyTorch's data sets."""

TRAINING = {
    "csvlogger": "history = kinnor.fit(...), whose rows are dictionaries",
    "lambdacallback": "Callback",
    "learningratemonitor": "history.series('learning_rate')",
    "modelcheckpoint": "the argument `checkpoint` of fit; EarlyStopping keeps the best parameters",
    "tqdmprogressbar": "the argument `verbose` of fit",
}
"""Callbacks of Keras and Lightning."""

ONNX = {
    "checkmodel": "onnx.checker.check_model of the package `onnx`",
    "dynamoexport": "save",
    "export": "save",
    "loadmodel": "load",
    "savemodel": "save",
}
"""Functions of `torch.onnx` and of the package `onnx`."""

TABLES = {
    "": PACKAGE,
    "data.data_iterator": ITERATORS,
    "functions": FUNCTIONS,
    "learning_rate_scheduler": SCHEDULES,
    "onnx": ONNX,
    "parametric_functions": PARAMETRIC,
    "solvers": SOLVERS,
    "training": TRAINING,
}
"""The table of each module of Kinnor or NNabla, by its path within the package."""


def instead(module: str, name: str) -> str | None:
    """The replacement in Kinnor for a name of another library.

    Args:
        module: Path of the module within the package; empty for the package itself.
        name: The name that was not found there.

    Returns:
        A name of the module, text to write, or None.

        >>> instead("functions", "cross_entropy")
        'softmax_cross_entropy'
        >>> instead("", "Linear")
        'kinnor.layers.Linear'
    """
    table = TABLES.get(module)
    if table is None:
        return None
    plain = name.replace("_", "").lower()
    if plain in table:
        return table[plain]
    if module:
        return None
    layer = _layer(name)
    if layer is not None:
        return layer
    return f"kinnor.parametric_functions.{PARAMETRIC[plain]}" if plain in PARAMETRIC else None


def _layer(name: str) -> str | None:
    """The layer class of this name, if there is one."""
    import importlib

    try:
        layers = importlib.import_module("kinnor.layers")
    except ImportError:
        return None
    return f"kinnor.layers.{name}" if hasattr(layers, name) else None
