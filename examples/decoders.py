"""Generates tokens with GPT-2 and Llama: weights by their public names, and a cache of keys and values.

python examples/decoders.py FOLDER --prompt 464 3290

FOLDER holds `config.json`, and `model.safetensors` or several such files with their index. Tokens are numbers: a
tokenizer is not part of Kinnor. `docs/how_to/decoders.md` explains the program.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L

# --- Attention


class Sequence:
    """Positions and mask of `time` tokens from the first one on, without a cache."""

    def __init__(self, time):
        self.positions = nn.Variable.from_numpy_array(np.arange(time))
        hidden = np.triu(np.full((time, time), -np.inf, np.float32), 1)
        self.mask = nn.Variable.from_numpy_array(hidden)

    def store(self, layer, k, v):
        """Returns all keys and values that the queries of a layer may attend to."""
        return k, v


def attention(q, k, v, step, layer):
    """Causal attention of queries (batch, time, heads, width). Keys and values may have fewer heads."""
    k, v = step.store(layer, *(F.transpose(x, (0, 2, 1, 3)) for x in (k, v)))
    batch, time, heads, width = q.shape
    groups, shared = k.shape[1], heads // k.shape[1]
    # Heads with the same keys are further queries, so keys and values are not repeated.
    q = F.transpose(F.reshape(q, (batch, time, groups, shared, width)), (0, 2, 3, 1, 4))
    mask = F.broadcast(F.reshape(step.mask, (1, *step.mask.shape)), (shared, *step.mask.shape))
    y = F.scaled_dot_product_attention(
        F.reshape(q, (batch, groups, shared * time, width)), k, v, F.reshape(mask, (shared * time, -1))
    )
    y = F.transpose(F.reshape(y, (batch, groups, shared, time, width)), (0, 3, 1, 2, 4))
    return F.reshape(y, (batch, time, heads * width))


def split(x, heads):
    """Splits the last axis into heads."""
    return F.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))


def tied_head(x, embedding):
    """The products with the vectors of all tokens."""
    y = F.batch_matmul(F.reshape(x, (-1, x.shape[-1])), embedding.W, transpose_b=True)
    return F.reshape(y, (*x.shape[:-1], y.shape[-1]))


# --- GPT-2


class GPT2Block(nn.Module):
    """A layer of GPT-2: attention, then two affine maps, each after a normalization."""

    def __init__(self, config):
        width, eps = config["n_embd"], config["layer_norm_epsilon"]
        self.heads = config["n_head"]
        self.ln_1, self.ln_2 = L.LayerNorm(width, eps), L.LayerNorm(width, eps)
        self.attn = nn.ModuleDict({"c_attn": L.Linear(width, 3 * width), "c_proj": L.Linear(width, width)})
        inner = config.get("n_inner") or 4 * width
        self.mlp = nn.ModuleDict({"c_fc": L.Linear(width, inner), "c_proj": L.Linear(inner, width)})

    def call(self, x, step, layer):
        """The output of the layer."""
        q, k, v = (split(part, self.heads) for part in F.split(split(self.attn.c_attn(self.ln_1(x)), 3), axis=2))
        x = x + self.attn.c_proj(attention(q, k, v, step, layer))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


class GPT2(nn.Module):
    """GPT-2, with the arguments of its `config.json`."""

    def __init__(self, config):
        if config.get("activation_function", "gelu_new") != "gelu_new":
            raise nn.UnsupportedError(f"GPT2: expected gelu_new, got {config['activation_function']}")
        width = config["n_embd"]
        self.wte, self.wpe = L.Embedding(config["vocab_size"], width), L.Embedding(config["n_positions"], width)
        self.h = [GPT2Block(config) for _ in range(config["n_layer"])]
        self.ln_f = L.LayerNorm(width, config["layer_norm_epsilon"])
        self.cache_sizes = config["n_layer"], config["n_head"], width // config["n_head"]

    def call(self, tokens, step=None, last=False):
        """The logits of the tokens after `tokens`; of the last one only with `last`."""
        step = step or Sequence(tokens.shape[1])
        x = self.wte(tokens) + self.wpe(step.positions)
        for layer, block in enumerate(self.h):
            x = block(x, step, layer)
        return tied_head(self.ln_f(x[:, -1:] if last else x), self.wte)


# --- Llama


def frequencies(config):
    """The rotation of each pair of numbers from one position to the next."""
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    turn = theta ** (-np.arange(0, width, 2) / width)
    if kind == "default":
        return turn
    if kind != "llama3":
        raise nn.UnsupportedError(f"Llama: expected rotary positions of kind default or llama3, got {kind}")
    factor, low, high = (rope[name] for name in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = rope["original_max_position_embeddings"] * turn / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return turn * (kept + (1 - kept) / factor)


def rotated(x, cos, sin):
    """Rotary positions: turns the pairs (i, i + width / 2) of the last axis."""
    a, b = F.split(F.reshape(x, (*x.shape[:-1], 2, -1)), axis=x.ndim - 1)
    return F.concatenate(a * cos - b * sin, b * cos + a * sin, axis=x.ndim - 1)


class LlamaAttention(nn.Module):
    """Attention with rotary positions. Several heads of queries share the keys and values of a head."""

    def __init__(self, config):
        width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.groups = config.get("num_key_value_heads") or self.heads
        head, bias = config.get("head_dim") or width // self.heads, config.get("attention_bias", False)
        self.q_proj = L.Linear(width, self.heads * head, bias)
        self.k_proj, self.v_proj = (L.Linear(width, self.groups * head, bias) for _ in range(2))
        self.o_proj = L.Linear(self.heads * head, width, bias)

    def call(self, x, angles, step, layer):
        """The attention of all heads."""
        q = rotated(split(self.q_proj(x), self.heads), *angles)
        k = rotated(split(self.k_proj(x), self.groups), *angles)
        return self.o_proj(attention(q, k, split(self.v_proj(x), self.groups), step, layer))


class LlamaBlock(nn.Module):
    """A layer of Llama: attention, then SwiGLU, each after a normalization."""

    def __init__(self, config):
        width, inner, eps = config["hidden_size"], config["intermediate_size"], config["rms_norm_eps"]
        self.input_layernorm, self.post_attention_layernorm = L.RMSNorm(width, eps), L.RMSNorm(width, eps)
        self.self_attn = LlamaAttention(config)
        sizes = {"gate_proj": (width, inner), "up_proj": (width, inner), "down_proj": (inner, width)}
        bias = config.get("mlp_bias", False)
        self.mlp = nn.ModuleDict({name: L.Linear(*size, bias) for name, size in sizes.items()})

    def call(self, x, angles, step, layer):
        """The output of the layer."""
        x = x + self.self_attn(self.input_layernorm(x), angles, step, layer)
        h = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(F.swish(self.mlp.gate_proj(h)) * self.mlp.up_proj(h))


class LlamaBody(nn.Module):
    """The layers of Llama, without the head."""

    def __init__(self, config):
        width, self.turn = config["hidden_size"], frequencies(config)
        self.embed_tokens = L.Embedding(config["vocab_size"], width)
        self.layers = [LlamaBlock(config) for _ in range(config["num_hidden_layers"])]
        self.norm = L.RMSNorm(width, config["rms_norm_eps"])
        self.longest = config["max_position_embeddings"]

    def call(self, tokens, step):
        """The normalized output of the last layer."""
        angles = np.arange(self.longest)[:, None, None] * self.turn
        tables = (nn.Variable.from_numpy_array(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
        turned = [F.embed(step.positions, table) for table in tables]
        x = self.embed_tokens(tokens)
        for layer, block in enumerate(self.layers):
            x = block(x, turned, step, layer)
        return self.norm(x)


class Llama(nn.Module):
    """Llama, with the arguments of its `config.json`."""

    def __init__(self, config):
        if config.get("hidden_act", "silu") != "silu":
            raise nn.UnsupportedError(f"Llama: expected silu, got {config['hidden_act']}")
        self.model, tied = LlamaBody(config), config.get("tie_word_embeddings", False)
        self.lm_head = None if tied else L.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        groups, width = self.model.layers[0].self_attn.groups, 2 * len(self.model.turn)
        self.cache_sizes = len(self.model.layers), groups, width

    def call(self, tokens, step=None, last=False):
        """The logits of the tokens after `tokens`; of the last one only with `last`."""
        x = self.model(tokens, step or Sequence(tokens.shape[1]))
        x = x[:, -1:] if last else x
        return tied_head(x, self.model.embed_tokens) if self.lm_head is None else self.lm_head(x)


# --- Weights


def public_name(path):
    """The name of a parameter in checkpoints: `h.0.attn.c_attn.weight` for `@h.0/@attn/@c_attn/W`."""
    *modules, last = path.replace("@", "").split("/")
    return ".".join([*modules, {"W": "weight", "gamma": "weight", "b": "bias", "beta": "bias"}[last]])


def load_weights(model, path):
    """Copies the weights of a file, of several files with an index, or of a folder with them."""
    weights = nn.open_parameters(path)
    if isinstance(model, GPT2):
        # A checkpoint may have the causal masks, and the head again, which is the table of tokens.
        surplus = (".attn.bias", ".attn.masked_bias", "lm_head.weight")
        weights = {name.removeprefix("transformer."): w for name, w in weights.items() if not name.endswith(surplus)}
    else:
        surplus = (".inv_freq", "lm_head.weight") if model.lm_head is None else ".inv_freq"
        weights = {name: w for name, w in weights.items() if not name.endswith(surplus)}
        # Weights of affine maps have the shape (outputs, inputs).
        weights = {name: w.T if w.ndim == 2 and "embed" not in name else w for name, w in weights.items()}
    model.load_state_dict(weights, names=public_name)


def load(folder):
    """The model of a folder with `config.json` and its weights."""
    config = json.loads(Path(folder, "config.json").read_text())
    kind = {"gpt2": GPT2, "llama": Llama}.get(config.get("model_type"))
    if kind is None:
        raise nn.UnsupportedError(f"load: expected model_type gpt2 or llama, got {config.get('model_type')!r}")
    with nn.initializer.skip_init():
        model = kind(config)
    load_weights(model, folder)
    return model.eval()


# --- Generation


class Cache:
    """Keys and values of each layer, with space for `capacity` tokens. `length` counts the tokens in it."""

    def __init__(self, layers, batch, heads, capacity, width):
        self.shape, self.length = (batch, heads, capacity, width), 0
        zeros = np.zeros(self.shape, np.float32)
        self.layers = [[nn.NdArray.from_numpy_array(zeros) for _ in "kv"] for _ in range(layers)]


class Step:
    """Inputs of a graph that computes `time` tokens after the tokens in a cache."""

    def __init__(self, cache, time):
        batch, heads, capacity, _ = cache.shape
        self.cache, self.time = cache, time
        self.positions = nn.Variable((time,))
        self.mask = nn.Variable((time, capacity))
        self.rows = nn.Variable((3, batch * heads * time))

    def store(self, layer, k, v):
        """Writes new keys and values into the cache, in place. Returns all of them."""
        found = []
        for array, new in zip(self.cache.layers[layer], (k, v), strict=True):
            cached = nn.Variable(array.shape)
            cached.data = array  # shares the memory, so that several graphs use one cache
            found.append(F.scatter_nd(F.reshape(new, (-1, new.shape[-1])), self.rows, out=cached))
        return found

    def advance(self):
        """Sets the inputs for the next tokens."""
        batch, heads, capacity, _ = self.cache.shape
        places = self.cache.length + np.arange(self.time)
        if places[-1] >= capacity:
            raise nn.RangeError(f"Step: expected at most {capacity} tokens, got {places[-1] + 1}")
        self.positions.d = places
        self.mask.d = np.where(np.arange(capacity) > places[:, None], -np.inf, 0)
        self.rows.d = np.reshape(np.meshgrid(range(batch), range(heads), places, indexing="ij"), (3, -1))


class Decoder:
    """Computes the logits of the next token. Each number of new tokens has its own static graph."""

    def __init__(self, model, capacity, batch=1):
        layers, heads, width = model.cache_sizes
        self.model, self.cache, self.graphs = model, Cache(layers, batch, heads, capacity, width), {}

    def __call__(self, tokens):
        """The logits of the tokens after `tokens`, shape (batch, vocabulary). `tokens` has the shape (batch, time)."""
        tokens = np.asarray(tokens)
        time = tokens.shape[1]
        if time not in self.graphs:
            x, step = nn.Variable(tokens.shape), Step(self.cache, time)
            with nn.no_grad():
                self.graphs[time] = x, step, self.model(x, step, last=True)
        x, step, logits = self.graphs[time]
        step.advance()
        x.d = tokens
        logits.forward(clear_buffer=True)
        self.cache.length += time
        return logits.d[:, -1]


def choose(logits, temperature, top_k, rng):
    """The token with the largest logit at temperature 0, else a random one of the `top_k` likeliest."""
    if temperature == 0:
        return int(logits.argmax())
    logits = logits.astype(np.float64) / temperature
    if top_k is not None:
        logits = np.where(logits >= np.sort(logits)[-top_k], logits, -np.inf)
    p = np.exp(logits - logits.max())
    return int(rng.choice(len(p), p=p / p.sum()))


def generate(model, prompt, count, temperature=0.0, top_k=None, seed=0):
    """Yields `count` tokens that continue the prompt."""
    decoder, rng = Decoder(model, len(prompt) + count), np.random.default_rng(seed)
    tokens = prompt
    for _ in range(count):
        tokens = [choose(decoder([tokens])[0], temperature, top_k, rng)]
        yield tokens[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="folder with config.json and .safetensors files")
    parser.add_argument("--prompt", type=int, nargs="+", required=True, help="tokens, as numbers")
    parser.add_argument("--count", type=int, default=20, help="number of tokens to generate")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bfloat16", action="store_true", help="compute in bfloat16, with half the memory")
    args = parser.parse_args()
    model = load(args.folder)
    for parameter in () if args.bfloat16 else model.parameters():
        parameter.data.cast(np.float32)  # a file in bfloat16 makes parameters in bfloat16
    with nn.context_scope(nn.Context(["cpu:bfloat16" if args.bfloat16 else "cpu:float"])):
        print(*generate(model, args.prompt, args.count, args.temperature, args.top_k, args.seed))


if __name__ == "__main__":
    main()
