"""Names of PyTorch, Keras and NumPy, and what Kinnor has in their place. Loaded when a name is not found.

Names of modules are compared without underscores and capitals. An entry is a name of the same module, or text that
says what to write. Entries for attributes of objects are programs that run; a comment may explain them.
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
    "arange": "kinnor.functions.arange",
    "array": "NdArray.from_numpy_array(values)",
    "asarray": "Variable.from_numpy_array(values)",
    "autograd": "autodiff",
    "bfloat16": "x.astype('bfloat16'), or a context of `bfloat16`",
    "callbacks": "training",
    "cat": "kinnor.functions.concatenate",
    "compile": "nothing: a static graph is the compiled form",
    "crossentropyloss": "kinnor.functions.softmax_cross_entropy",
    "dataloader": "kinnor.data.data_iterator.data_iterator_simple",
    "dataset": "kinnor.data.data_source.DataSource",
    "device": "a context: kinnor.context_scope; there is one device, the CPU",
    "dropout": "kinnor.functions.dropout",
    "enablegrad": "nothing: gradients are on outside of no_grad",
    "eval": "a graph of its own for evaluation, built with batch_stat=False and without dropout",
    "evaluate": "kinnor.fit(model, data, loss, validation=data)",
    "float16": "x.astype('float16'), or a context of `half`",
    "float32": "numpy.float32",
    "fromnumpy": "Variable.from_numpy_array(values)",
    "functional": "functions",
    "gelu": "kinnor.functions.gelu",
    "gradscaler": "kinnor.experimental.mixed_precision_training.DynamicLossScalingUpdater",
    "inferencemode": "no_grad",
    "init": "initializer",
    "input": "Variable(shape)",
    "jit": "nothing: a static graph is the compiled form",
    "keras": "layers",
    "losses": "functions",
    "lrscheduler": "learning_rate_scheduler",
    "manualseed": "seed",
    "mseloss": "kinnor.functions.squared_error",
    "nn": "layers",
    "ones": "Variable.from_numpy_array(numpy.ones(shape))",
    "optim": "solvers",
    "optimizers": "solvers",
    "parameter": "Variable.from_numpy_array(values, need_grad=True)",
    "profiler": "profile",
    "rand": "kinnor.functions.rand",
    "randn": "kinnor.functions.randn",
    "relu": "kinnor.functions.relu",
    "setgradenabled": "kinnor.no_grad()",
    "sigmoid": "kinnor.functions.sigmoid",
    "silu": "kinnor.functions.swish",
    "softmax": "kinnor.functions.softmax",
    "summary": "print(model)",
    "tanh": "kinnor.functions.tanh",
    "tensor": "Variable.from_numpy_array(values)",
    "trainer": "fit",
    "transforms": "kinnor.functions.random_crop, random_flip and image_augmentation",
    "zeros": "Variable(shape)",
}
"""Names of the package itself."""

LAYERS = {
    "adaptiveavgpool1d": "GlobalAvgPool",
    "adaptiveavgpool2d": "GlobalAvgPool",
    "bceloss": "kinnor.functions.binary_cross_entropy",
    "bcewithlogitsloss": "kinnor.functions.sigmoid_cross_entropy",
    "conv2dtranspose": "ConvTranspose2d",
    "crossentropyloss": "kinnor.functions.softmax_cross_entropy",
    "dense": "Linear",
    "embed": "Embedding",
    "globalaveragepooling2d": "GlobalAvgPool",
    "input": "kinnor.Variable(shape)",
    "l1loss": "kinnor.functions.absolute_error",
    "maxpooling2d": "MaxPool2d",
    "mseloss": "kinnor.functions.squared_error",
    "parameter": "kinnor.Variable.from_numpy_array(values, need_grad=True)",
    "transformerencoder": "kinnor.parametric_functions.transformer_encode",
    "transformerencoderlayer": "kinnor.parametric_functions.transformer_encode",
    "upsample": "Activation(lambda x: kinnor.functions.interpolate(x, scale=(2, 2)))",
}
"""Layers."""

RANDOM = {
    "manualseed": "seed",
    "setseed": "seed",
}
"""Seeds of random numbers."""

UTILS = {
    "clipgradnorm": "solver.clip_grad_by_global_norm(1.0)",
    "clipgradvalue": "solver.clip_grad_by_norm(1.0)",
    "data": "kinnor.data",
}
"""Modules and functions of `torch.utils` and `torch.nn.utils`."""

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

VARIABLE = {
    "abs": "kinnor.functions.abs(x)",
    "add_": "x.d = x.d + 1",
    "argmax": "kinnor.functions.max(x, axis=1, only_index=True)",
    "argmin": "kinnor.functions.min(x, axis=1, only_index=True)",
    "argsort": "kinnor.functions.sort(x, axis=1, only_index=True)",
    "bfloat16": "x.astype('bfloat16')",
    "bmm": "x @ y.T",
    "bool": "kinnor.functions.not_equal_scalar(x, 0)",
    "chunk": "kinnor.functions.split(x, axis=0)  # one part for each index of the axis",
    "clamp": "kinnor.functions.clip_by_value(x, 0, 1)",
    "clip": "kinnor.functions.clip_by_value(x, 0, 1)",
    "clone": "kinnor.functions.identity(x)",
    "contiguous": "x  # all variables are contiguous",
    "copy_": "x.d = values",
    "cpu": "x  # Kinnor computes on CPUs",
    "cuda": "x  # Kinnor computes on CPUs",
    "cumsum": "kinnor.functions.cumsum(x, axis=1)",
    "detach_": "x = x.detach()",
    "device": "'cpu'  # Kinnor computes on CPUs",
    "dim": "x.ndim",
    "div_": "x.d = x.d / 2",
    "double": "kinnor.context_scope(kinnor.Context(['cpu:double']))  # in a `with` statement around the graph",
    "eq": "kinnor.functions.equal(x, y)",
    "exp": "kinnor.functions.exp(x)",
    "expand": "kinnor.functions.broadcast(x, (3, *x.shape))",
    "expand_as": "kinnor.functions.broadcast(x, y.shape)",
    "fill_": "x.data.fill(1)",
    "flatten": "x.reshape(-1)",
    "float": "x.astype('float32')",
    "gather": "kinnor.functions.gather(x, index, axis=1)",
    "ge": "kinnor.functions.greater_equal(x, y)",
    "gt": "kinnor.functions.greater(x, y)",
    "half": "x.astype('float16')",
    "index_select": "kinnor.functions.gather(x, index, axis=0)",
    "int": "x.d.astype('int32')",
    "is_cuda": "False  # Kinnor computes on CPUs",
    "le": "kinnor.functions.less_equal(x, y)",
    "log": "kinnor.functions.log(x)",
    "log_softmax": "kinnor.functions.log_softmax(x, axis=1)",
    "long": "x.d.astype('int64')",
    "lt": "kinnor.functions.less(x, y)",
    "masked_fill": "kinnor.functions.bool_fill(x, mask, 0)",
    "matmul": "x @ y.T",
    "mm": "x @ y.T",
    "mul": "x * y",
    "mul_": "x.d = x.d * 2",
    "ndimension": "x.ndim",
    "ne": "kinnor.functions.not_equal(x, y)",
    "nelement": "x.size",
    "norm": "kinnor.functions.norm(x)",
    "numel": "x.size",
    "permute": "kinnor.functions.transpose(x, (1, 0))",
    "pow": "x ** 2",
    "prod": "kinnor.functions.prod(x, axis=1)",
    "relu": "kinnor.functions.relu(x)",
    "repeat": "kinnor.functions.tile(x, (2, 1))",
    "sigmoid": "kinnor.functions.sigmoid(x)",
    "softmax": "kinnor.functions.softmax(x, axis=1)",
    "sort": "kinnor.functions.sort(x, axis=1)",
    "split": "kinnor.functions.split(x, axis=0)  # one part for each index of the axis",
    "sqrt": "x ** 0.5",
    "square": "x ** 2",
    "squeeze": "kinnor.functions.reshape(x, [n for n in x.shape if n != 1])",
    "std": "kinnor.functions.mean((x - x.mean()) ** 2) ** 0.5",
    "sub_": "x.d = x.d - 1",
    "swapaxes": "kinnor.functions.transpose(x, (1, 0))",
    "t": "x.T",
    "tanh": "kinnor.functions.tanh(x)",
    "to": "x  # Kinnor computes on CPUs; x.astype('float16') is another type",
    "tolist": "x.d.tolist()",
    "topk": "kinnor.functions.sort(x, axis=1, reverse=True)[:, :2]",
    "transpose": "kinnor.functions.transpose(x, (1, 0))  # all axes, in their new order",
    "type": "x.astype('float16')",
    "unbind": "kinnor.functions.split(x, axis=0)",
    "unsqueeze": "kinnor.functions.reshape(x, (1, *x.shape))",
    "var": "kinnor.functions.mean((x - x.mean()) ** 2)",
    "view": "x.reshape(3, -1)",
    "view_as": "x.reshape(y.shape)",
    "zero_": "x.data.zero()",
}
"""Attributes of PyTorch's tensors, for a variable `x`."""

ARRAY = {
    "add_": "x += 1",
    "clone": "kinnor.functions.identity(x)",
    "copy_": "x.copy_from(other)",
    "cpu": "x  # Kinnor computes on CPUs",
    "cuda": "x  # Kinnor computes on CPUs",
    "d": "x.data",
    "detach": "x  # an NdArray has no graph",
    "fill_": "x.fill(1)",
    "mul_": "x *= 2",
    "norm": "kinnor.functions.norm(x)",
    "to": "x  # Kinnor computes on CPUs; x.astype('float16') is another type",
    "tolist": "x.data.tolist()",
    "zero_": "x.zero()",
}
"""Attributes of PyTorch's tensors, for an array `x`, such as the attribute `grad` of a variable."""

SOLVER = {
    "add_param_group": "solver.add_group(parameters, alpha=1e-4)",
    "apply_gradients": "solver.update()  # after loss.backward()",
    "clip_grad_norm_": "solver.clip_grad_by_global_norm(1.0)  # between loss.backward() and solver.update()",
    "load_state_dict": "solver.set_states(solver.get_states())",
    "lr": "solver.learning_rate()",
    "minimize": "solver.zero_grad(); loss.backward(); solver.update()",
    "param_groups": "solver.groups",
    "state": "solver.get_states()",
    "state_dict": "solver.get_states()",
    "step": "solver.update()",
}
"""Attributes of other libraries' optimizers, for a solver with parameters."""

MODULE = {
    "add": "kinnor.Sequential(model, layer)",
    "add_module": "model.last = layer",
    "append": "kinnor.Sequential(model, layer)",
    "bfloat16": "with kinnor.autocast(): y = model(x)",
    "buffers": "model.state_dict()",
    "compile": "kinnor.fit(model, (inputs, targets), loss)  # a static graph is the compiled form",
    "count_params": "sum(p.size for p in model.parameters())",
    "cpu": "model  # Kinnor computes on CPUs",
    "cuda": "model  # Kinnor computes on CPUs",
    "double": "with kinnor.context_scope(kinnor.Context(['cpu:double'])): y = model(x)",
    "evaluate": "kinnor.fit(model, (inputs, targets), loss, validation=(inputs, targets))",
    "fit": "kinnor.fit(model, (inputs, targets), loss)",
    "float": "model  # parameters are float32",
    "forward": "model(x)  # a subclass defines `call`",
    "freeze": "model.requires_grad_(False)",
    "half": "with kinnor.autocast('half'): y = model(x)",
    "layers": "list(model.children())",
    "load_weights": "model.load_parameters('model.safetensors')",
    "named_buffers": "model.state_dict()",
    "num_parameters": "sum(p.size for p in model.parameters())",
    "predict": "model.eval()(x)",
    "register_buffer": "model.set_parameter('name', variable)  # its `need_grad` is False",
    "register_parameter": "model.set_parameter('name', variable)",
    "requires_grad": "model.requires_grad_(False)",
    "save": "model.save_parameters('model.safetensors')",
    "save_weights": "model.save_parameters('model.safetensors')",
    "summary": "print(model)",
    "to": "model  # Kinnor computes on CPUs",
    "to_onnx": "kinnor.onnx.save({'y': model(x)}, 'model.onnx', inputs={'x': x})",
    "trainable": "model.requires_grad_(False)",
    "trainable_variables": "list(model.parameters())",
    "trainable_weights": "list(model.parameters())",
    "weights": "list(model.parameters())",
}
"""Attributes of other libraries' modules, for a module `model` with an input `x`."""

PROFILE = {
    "events": "p.rows()",
    "export_chrome_trace": "p.save('trace.json')",
    "key_averages": "p.rows('name')",
    "total_average": "p.seconds",
}
"""Attributes of PyTorch's profiles, for a profile `p`."""

LAYER_ARGUMENTS = {
    "affine": "batch and group normalizations always have factors",
    "attn_mask": "additive_mask",
    "elementwise_affine": "the layer always has factors",
    "filters": "out_channels",
    "input_dim": "in_features",
    "input_shape": "layers are given the number of their inputs",
    "is_causal": "causal",
    "kernel_initializer": "w_init",
    "momentum": "decay_rate is 1 minus PyTorch's momentum",
    "padding_idx": "set the row of W to zero, and its gradient before each update",
    "track_running_stats": "batch_stat in evaluation is a matter of train() and eval()",
    "units": "out_features",
}
"""Arguments of other libraries' layers, and the arguments here, or what to do."""

TABLES = {
    "": PACKAGE,
    "data.data_iterator": ITERATORS,
    "functions": FUNCTIONS,
    "layers": LAYERS,
    "learning_rate_scheduler": SCHEDULES,
    "onnx": ONNX,
    "parametric_functions": PARAMETRIC,
    "random": RANDOM,
    "solvers": SOLVERS,
    "training": TRAINING,
    "utils": UTILS,
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
    found = _elsewhere("layers", name)
    if found is None and plain in PARAMETRIC:
        found = f"kinnor.parametric_functions.{PARAMETRIC[plain]}"
    if found is None:
        found = _elsewhere("functions", name)
    if found is None and plain in FUNCTIONS:
        found = FUNCTIONS[plain] if not FUNCTIONS[plain].isidentifier() else f"kinnor.functions.{FUNCTIONS[plain]}"
    return found


def _elsewhere(module: str, name: str) -> str | None:
    """The path of the name in a module of Kinnor, if it is there."""
    import importlib

    try:
        there = importlib.import_module(f"kinnor.{module}")
    except ImportError:
        return None
    return f"kinnor.{module}.{name}" if hasattr(there, name) else None
