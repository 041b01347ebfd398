"""Attention and transformers as parametric functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import functions as F
from .._check import callee, mapping, whole
from .._core import RangeError, ShapeError
from .._python_functions.attention import attended
from ..initializer import ConstantInitializer, UniformInitializer, calc_uniform_lim_glorot
from ..parameter import get_parameter_or_create
from .arguments import check_input, sizes
from .decorator import parametric_function_api
from .layers import affine
from .normalizations import layer_normalization

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.random import RandomState

    from .._core import Variable
    from ..initializer import Initializer

__all__ = ["multi_head_attention", "transformer", "transformer_decode", "transformer_encode"]

_NAMES = ("q", "k", "v", "out")
"""Start of the names of the projections' parameters: query, key, value and output."""


@parametric_function_api(
    "multi_head_attention",
    [
        ("q_weight", "Weight of the queries", "(queries' features, E)", True),
        ("k_weight", "Weight of the keys", "(keys' features, E)", True),
        ("v_weight", "Weight of the values", "(values' features, V)", True),
        ("out_weight", "Weight of the output", "(V, out_dim)", True),
        ("{q,k,v,out}_bias", "Bias of each; with with_bias", "the last of its weight's", True),
        ("attn_bias_{k,v}", "A key and a value to add; with add_attn_bias", "(1, 1, E) and (1, 1, V)", True),
    ],
)
def multi_head_attention(
    query: Variable,
    key: Variable,
    value: Variable,
    num_heads: int = 12,
    dropout: float = 0.0,
    k_embed_dim: int | None = None,
    v_embed_dim: int | None = None,
    out_dim: int | None = None,
    rng: RandomState | None = None,
    with_bias: bool = True,
    add_attn_bias: bool = False,
    additive_mask: Variable | None = None,
    key_padding_mask: Variable | None = None,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initializer] | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Multi-head attention: each target position gets an average of the values, weighted by the match of its key.

    Args:
        query: Queries, shape (targets, batch, features).
        key: Keys, shape (sources, batch, features).
        value: Values, shape (sources, batch, features).
        num_heads: Number of heads; E and V are multiples of it.
        dropout: Dropout probability of the attention weights.
        k_embed_dim: Total length E of queries and keys over all heads; by default the queries' features.
        v_embed_dim: Total length V of values over all heads; by default the values' features.
        out_dim: Length of the output; by default V.
        rng: Generator for the default initial values.
        with_bias: Whether to add biases.
        add_attn_bias: Whether to append a learned key and value to the sources.
        additive_mask: Numbers to add to the attention before the softmax, shape (targets, sources).
        key_padding_mask: 1 where a source is ignored, 0 elsewhere, shape (batch, sources).
        fix_parameters: Whether to use the parameters without a gradient.
        param_init: Initial values by the names of parameters; weights are uniform by default, biases zero.
        name: Name of an outer scope for the parameters.

    Returns:
        The output, shape (targets, batch, out_dim), and the weights of all heads, shape
        (batch * num_heads, targets, sources).

    Source:
        Vaswani et al.: Attention is all you need, 2017.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((5, 2, 8))  # time, batch, width
        >>> y, weights = PF.multi_head_attention(x, x, x, num_heads=2, name="demo-attention")
        >>> y.shape
        (5, 2, 8)
    """
    found: tuple[Variable, Variable] = _heads(
        F.multi_head_attention,
        query,
        key,
        value,
        num_heads,
        dropout,
        k_embed_dim,
        v_embed_dim,
        out_dim,
        rng,
        with_bias,
        add_attn_bias,
        additive_mask,
        key_padding_mask,
        fix_parameters,
        param_init,
    )
    return found


@parametric_function_api("multi_head_attention", [])
def _output_of_heads(
    query: Variable,
    key: Variable,
    value: Variable,
    num_heads: int,
    rng: RandomState | None,
    add_attn_bias: bool,
    additive_mask: Variable | None,
    key_padding_mask: Variable | None,
    fix_parameters: bool,
    name: str | None = None,
) -> Variable:
    """The output of `multi_head_attention` without the attention weights, which are not computed."""
    found: Variable = _heads(
        lambda *args, **kwargs: attended(*args, **kwargs)[0],
        query,
        key,
        value,
        num_heads,
        0.0,
        None,
        None,
        None,
        rng,
        True,
        add_attn_bias,
        additive_mask,
        key_padding_mask,
        fix_parameters,
        None,
    )
    return found


def _heads(
    attend: Callable[..., Any],
    query: Variable,
    key: Variable,
    value: Variable,
    num_heads: int,
    dropout: float,
    k_embed_dim: int | None,
    v_embed_dim: int | None,
    out_dim: int | None,
    rng: RandomState | None,
    with_bias: bool,
    add_attn_bias: bool,
    additive_mask: Variable | None,
    key_padding_mask: Variable | None,
    fix_parameters: bool,
    param_init: Mapping[str, Initializer] | None,
) -> Any:
    """Makes the parameters of `multi_head_attention`, and returns the result of `attend` on them."""
    op = "multi_head_attention"
    for x in (query, key, value):
        check_input(op, x, min_ndim=3)
    (e,) = sizes(op, "k_embed_dim", query.shape[2] if k_embed_dim is None else k_embed_dim, single=True)
    (v,) = sizes(op, "v_embed_dim", value.shape[2] if v_embed_dim is None else v_embed_dim, single=True)
    (out,) = sizes(op, "out_dim", v if out_dim is None else out_dim, single=True)
    shapes = [(query.shape[2], e), (key.shape[2], e), (value.shape[2], v), (v, out)]
    weights, rest = parameters_of_heads(op, shapes, rng, with_bias, add_attn_bias, fix_parameters, param_init)
    masks = {"additive_mask": additive_mask, "key_padding_mask": key_padding_mask}
    return attend(query, key, value, num_heads, *weights, dropout=dropout, **masks, **rest)


def parameters_of_heads(
    op: str,
    shapes: Sequence[tuple[int, int]],
    rng: RandomState | None,
    with_bias: bool,
    add_attn_bias: bool,
    fix_parameters: bool,
    param_init: Mapping[str, Initializer] | None,
) -> tuple[list[Variable], dict[str, Variable]]:
    """The parameters of an attention of several heads, which are registered in the current scope.

    Args:
        op: The function or layer, for errors.
        shapes: Shapes of the weights of queries, keys, values and output.
        rng: Generator for the default initial values.
        with_bias: True to have biases.
        add_attn_bias: True to have a key and a value to add.
        fix_parameters: True to use the parameters without a gradient.
        param_init: Initial values by the names of parameters.

    Returns:
        The four weights, and the others by name.
    """
    init = mapping(op, "param_init", param_init)
    known = [f"{n}_{what}" for what in ("weight", "bias") for n in _NAMES] + ["attn_bias_k", "attn_bias_v"]
    unknown = [name for name in init if name not in known]
    if unknown:
        raise RangeError(f"{op}: expected `param_init` for {', '.join(known)}, got one for {unknown[0]!r}")

    def parameter(name: str, shape: tuple[int, ...], default: Any) -> Variable:
        """A parameter with its initial value."""
        return get_parameter_or_create(name, shape, init.get(name, default), True, not fix_parameters)

    def uniform(fans: tuple[int, int]) -> UniformInitializer:
        """The default initializer for a number of inputs and outputs."""
        return UniformInitializer(calc_uniform_lim_glorot(*fans), rng)

    weights = [parameter(f"{n}_weight", s, uniform(s)) for n, s in zip(_NAMES, shapes, strict=True)]
    rest: dict[str, Variable] = {}
    if with_bias:
        for n, s in zip(_NAMES, shapes, strict=True):
            rest[f"{n}_bias"] = parameter(f"{n}_bias", s[1:], ConstantInitializer())
    if add_attn_bias:
        for n, size in (("k", shapes[1][1]), ("v", shapes[2][1])):
            rest[f"attn_bias_{n}"] = parameter(f"attn_bias_{n}", (1, 1, size), uniform((size, 1)))
    return weights, rest


@parametric_function_api(
    "transformer",
    [
        ("encoder{00, 01, ...}/...", "Parameters of each encoder layer", "as of `transformer_encode`", True),
        ("decoder{00, 01, ...}/...", "Parameters of each decoder layer", "as of `transformer_decode`", True),
    ],
)
def transformer(
    src: Variable,
    tgt: Variable,
    embed_dim: int = 512,
    num_heads: int = 8,
    num_encoder_layers: int = 6,
    num_decoder_layers: int = 6,
    dim_feedforward: int = 2048,
    dropout: float = 0.1,
    activation: Callable[[Variable], Variable] | None = None,
    src_additive_mask: Variable | None = None,
    tgt_additive_mask: Variable | None = None,
    memory_additive_mask: Variable | None = None,
    src_key_padding_mask: Variable | None = None,
    tgt_key_padding_mask: Variable | None = None,
    memory_key_padding_mask: Variable | None = None,
    rng: RandomState | None = None,
    add_attn_bias: bool = False,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """A transformer: layers of `transformer_encode` over the source, then of `transformer_decode` over the target.

    Args:
        src: Source, shape (sources, batch, embed_dim).
        tgt: Target, shape (targets, batch, embed_dim).
        embed_dim: Number of features.
        num_heads: Number of heads.
        num_encoder_layers: Number of layers over the source.
        num_decoder_layers: Number of layers over the target.
        dim_feedforward: Number of hidden features of each layer.
        dropout: Dropout probability.
        activation: Function of the hidden features; ReLU by default.
        src_additive_mask: Added to the attention within the source, shape (sources, sources).
        tgt_additive_mask: Added to the attention within the target, shape (targets, targets).
        memory_additive_mask: Added to the attention of the target to the source, shape (targets, sources).
        src_key_padding_mask: 1 where the source is ignored by itself, shape (batch, sources).
        tgt_key_padding_mask: 1 where the target is ignored by itself, shape (batch, targets).
        memory_key_padding_mask: 1 where the source is ignored by the target, shape (batch, sources).
        rng: Generator for the default initial values.
        add_attn_bias: Whether each attention has a learned key and value.
        fix_parameters: Whether to use the parameters without a gradient.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (targets, batch, embed_dim).

    Source:
        Vaswani et al.: Attention is all you need, 2017.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> source, target = nn.Variable((7, 2, 8)), nn.Variable((5, 2, 8))  # time, batch, width
        >>> y = PF.transformer(source, target, 8, 2, 1, 1, dim_feedforward=16, name="demo-transformer")
        >>> y.shape
        (5, 2, 8)
    """
    num_encoder_layers = whole("transformer", "num_encoder_layers", num_encoder_layers)
    num_decoder_layers = whole("transformer", "num_decoder_layers", num_decoder_layers)
    for what, x in (("src", src), ("tgt", tgt)):
        check_input("transformer", x, min_ndim=3)
        if x.shape[1:] != (src.shape[1], embed_dim):
            expected = f"`{what}` of shape (length, {src.shape[1]}, {embed_dim})"
            raise ShapeError(f"transformer: expected {expected}, got shape {x.shape}")
    memory, y = src, tgt
    for i in range(num_encoder_layers):
        memory = transformer_encode(
            memory,
            embed_dim,
            num_heads,
            dim_feedforward,
            dropout,
            activation,
            src_additive_mask,
            src_key_padding_mask,
            rng,
            add_attn_bias,
            fix_parameters,
            name=f"encoder{i:02d}",
        )
    for i in range(num_decoder_layers):
        y = transformer_decode(
            y,
            memory,
            embed_dim,
            num_heads,
            dim_feedforward,
            dropout,
            activation,
            tgt_additive_mask,
            memory_additive_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            rng,
            add_attn_bias,
            fix_parameters,
            name=f"decoder{i:02d}",
        )
    return y


@parametric_function_api(
    "transformer_encode",
    [
        ("src_self_attn/...", "Attention within the source", "as of `multi_head_attention`", True),
        ("enc_affine1/..., enc_affine2/...", "Affine transformations", "as of `affine`", True),
        ("enc_layer_norm1/..., enc_layer_norm2/...", "Normalizations", "as of `layer_normalization`", True),
    ],
)
def transformer_encode(
    src: Variable,
    embed_dim: int,
    num_heads: int,
    dim_feedforward: int = 2048,
    dropout: float = 0.1,
    activation: Callable[[Variable], Variable] | None = None,
    src_additive_mask: Variable | None = None,
    src_key_padding_mask: Variable | None = None,
    rng: RandomState | None = None,
    add_attn_bias: bool = False,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """One encoder layer of a transformer: attention within the source, then affine transformations of each position.

    Args:
        src: Source, shape (sources, batch, embed_dim).
        embed_dim: Number of features.
        num_heads: Number of heads.
        dim_feedforward: Number of hidden features.
        dropout: Dropout probability.
        activation: Function of the hidden features; ReLU by default.
        src_additive_mask: Added to the attention, shape (sources, sources).
        src_key_padding_mask: 1 where the source is ignored, shape (batch, sources).
        rng: Generator for the default initial values.
        add_attn_bias: Whether the attention has a learned key and value.
        fix_parameters: Whether to use the parameters without a gradient.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the source.

    Source:
        Vaswani et al.: Attention is all you need, 2017.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((7, 2, 8))  # time, batch, width
        >>> PF.transformer_encode(x, 8, 2, dim_feedforward=16, name="demo-encode").shape
        (7, 2, 8)
    """
    layer = _Layer("enc", dropout, rng, add_attn_bias, fix_parameters)
    src = layer.attended(src, src, num_heads, src_additive_mask, src_key_padding_mask, "src_self_attn", 1)
    return layer.transformed(src, embed_dim, dim_feedforward, activation, 2)


@parametric_function_api(
    "transformer_decode",
    [
        ("tgt_self_attn/...", "Attention within the target", "as of `multi_head_attention`", True),
        ("tgt_memory_attn/...", "Attention to the source", "as of `multi_head_attention`", True),
        ("dec_affine1/..., dec_affine2/...", "Affine transformations", "as of `affine`", True),
        ("dec_layer_norm{1,2,3}/...", "Normalizations", "as of `layer_normalization`", True),
    ],
)
def transformer_decode(
    tgt: Variable,
    memory: Variable,
    embed_dim: int,
    num_heads: int,
    dim_feedforward: int = 2048,
    dropout: float = 0.1,
    activation: Callable[[Variable], Variable] | None = None,
    tgt_additive_mask: Variable | None = None,
    memory_additive_mask: Variable | None = None,
    tgt_key_padding_mask: Variable | None = None,
    memory_key_padding_mask: Variable | None = None,
    rng: RandomState | None = None,
    add_attn_bias: bool = False,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """One decoder layer of a transformer: attention within the target and to the source, then affine transformations.

    Args:
        tgt: Target, shape (targets, batch, embed_dim).
        memory: Output of the encoder, shape (sources, batch, embed_dim).
        embed_dim: Number of features.
        num_heads: Number of heads.
        dim_feedforward: Number of hidden features.
        dropout: Dropout probability.
        activation: Function of the hidden features; ReLU by default.
        tgt_additive_mask: Added to the attention within the target, shape (targets, targets).
        memory_additive_mask: Added to the attention to the source, shape (targets, sources).
        tgt_key_padding_mask: 1 where the target is ignored, shape (batch, targets).
        memory_key_padding_mask: 1 where the source is ignored, shape (batch, sources).
        rng: Generator for the default initial values.
        add_attn_bias: Whether each attention has a learned key and value.
        fix_parameters: Whether to use the parameters without a gradient.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the target.

    Source:
        Vaswani et al.: Attention is all you need, 2017.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> target, memory = nn.Variable((5, 2, 8)), nn.Variable((7, 2, 8))  # time, batch, width
        >>> y = PF.transformer_decode(target, memory, 8, 2, dim_feedforward=16, name="demo-decode")
        >>> y.shape
        (5, 2, 8)
    """
    layer = _Layer("dec", dropout, rng, add_attn_bias, fix_parameters)
    tgt = layer.attended(tgt, tgt, num_heads, tgt_additive_mask, tgt_key_padding_mask, "tgt_self_attn", 1)
    tgt = layer.attended(tgt, memory, num_heads, memory_additive_mask, memory_key_padding_mask, "tgt_memory_attn", 2)
    return layer.transformed(tgt, embed_dim, dim_feedforward, activation, 3)


class _Layer:
    """The parts of an encoder or decoder layer, whose parameter names start with `prefix`."""

    def __init__(
        self, prefix: str, dropout: float, rng: RandomState | None, add_attn_bias: bool, fix_parameters: bool
    ) -> None:
        self.prefix, self.dropout, self.rng = prefix, dropout, rng
        self.add_attn_bias, self.fix_parameters = add_attn_bias, fix_parameters

    def attended(
        self,
        x: Variable,
        memory: Variable,
        num_heads: int,
        mask: Variable | None,
        padding: Variable | None,
        name: str,
        place: int,
    ) -> Variable:
        """Attention of `x` to the memory, with residual connection and layer normalization."""
        found = _output_of_heads(
            x,
            memory,
            memory,
            num_heads,
            rng=self.rng,
            add_attn_bias=self.add_attn_bias,
            additive_mask=mask,
            key_padding_mask=padding,
            fix_parameters=self.fix_parameters,
            name=name,
        )
        return self.normalized(x + self.dropped(found), place)

    def transformed(
        self,
        x: Variable,
        embed_dim: int,
        dim_feedforward: int,
        activation: Callable[[Variable], Variable] | None,
        place: int,
    ) -> Variable:
        """The feed-forward part: two affine layers, with residual connection and layer normalization."""
        function = F.relu if activation is None else callee("transformer", "activation", activation)
        hidden = function(self.affine(x, dim_feedforward, 1))
        return self.normalized(x + self.dropped(self.affine(self.dropped(hidden), embed_dim, 2)), place)

    def affine(self, x: Variable, outputs: int, place: int) -> Variable:
        """Affine layer number `place`, applied to each position."""
        name = f"{self.prefix}_affine{place}"
        return affine(x, outputs, base_axis=2, rng=self.rng, fix_parameters=self.fix_parameters, name=name)

    def dropped(self, x: Variable) -> Variable:
        """`x` after dropout."""
        return F.dropout(x, self.dropout) if self.dropout > 0 else x

    def normalized(self, x: Variable, place: int) -> Variable:
        """Layer normalization number `place`, applied to each position."""
        name = f"{self.prefix}_layer_norm{place}"
        made: Variable = layer_normalization(x, batch_axis=(0, 1), fix_parameters=self.fix_parameters, name=name)
        return made
