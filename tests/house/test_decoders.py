"""The example of GPT-2 and Llama: logits against NumPy, generation with a cache, and weights by public names."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from support import write_safetensors

import kinnor as nn

EXAMPLE = Path(__file__).parents[2] / "examples/decoders.py"
SPEC = importlib.util.spec_from_file_location("decoders", EXAMPLE)
decoders = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(decoders)

GPT2 = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "vocab_size": 40,
    "n_positions": 48,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 3,
    "layer_norm_epsilon": 1e-5,
}
LLAMA = {
    "model_type": "llama",
    "hidden_act": "silu",
    "vocab_size": 40,
    "max_position_embeddings": 48,
    "hidden_size": 24,
    "intermediate_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
SCALED = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
"""Rotary positions of Llama 3.1, for a model of 16 positions."""
TOKENS = np.random.RandomState(7).randint(40, size=(2, 11))


def gpt2_weights():
    """Returns weights under the names of a checkpoint of GPT-2, including the causal masks."""
    rng = np.random.RandomState(0)
    width, layers = GPT2["n_embd"], {"wte.weight": (40, 24), "wpe.weight": (48, 24)}
    for i in range(GPT2["n_layer"]):
        shapes = {
            "ln_1.weight": (width,),
            "ln_1.bias": (width,),
            "attn.c_attn.weight": (width, 3 * width),
            "attn.c_attn.bias": (3 * width,),
            "attn.c_proj.weight": (width, width),
            "attn.c_proj.bias": (width,),
            "ln_2.weight": (width,),
            "ln_2.bias": (width,),
            "mlp.c_fc.weight": (width, 4 * width),
            "mlp.c_fc.bias": (4 * width,),
            "mlp.c_proj.weight": (4 * width, width),
            "mlp.c_proj.bias": (width,),
        }
        layers |= {f"h.{i}.{name}": shape for name, shape in shapes.items()}
    layers |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    found = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in layers.items()}
    found["wpe.weight"] *= 8  # else the model repeats one token
    masks = {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, 48, 48), bool)) for i in range(GPT2["n_layer"])}
    return found | masks


def llama_weights(config=LLAMA):
    """Returns weights under the names of a checkpoint of Llama."""
    rng = np.random.RandomState(1)
    width, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head = config.get("head_dim", width // heads)
    shapes = {"model.embed_tokens.weight": (40, width)}
    for i in range(config["num_hidden_layers"]):
        layer = {
            "self_attn.q_proj": (heads * head, width),
            "self_attn.k_proj": (config["num_key_value_heads"] * head, width),
            "self_attn.v_proj": (config["num_key_value_heads"] * head, width),
            "self_attn.o_proj": (width, heads * head),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
        }
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (width,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (40, width)
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def written(folder, config, weights):
    """Writes the two files of a model. Returns the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", weights)
    return folder


# --- The formulas of the papers, in float64, for one sequence


def attended(q, k, v):
    """Returns causal attention of one head, query by query."""
    rows = []
    for i, query in enumerate(q):
        scores = k[: i + 1] @ query / np.sqrt(len(query))
        weights = np.exp(scores - scores.max())
        rows.append(weights / weights.sum() @ v[: i + 1])
    return np.array(rows)


def gpt2_logits(tokens, w):
    """Radford et al., Language models are unsupervised multitask learners, 2019: normalization before each part."""
    w = {name: array.astype(np.float64) for name, array in w.items()}

    def normalized(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + GPT2["layer_norm_epsilon"])
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def affine(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]
    for i in range(GPT2["n_layer"]):
        q, k, v = np.split(affine(normalized(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, axis=-1)
        heads = zip(*(np.split(part, GPT2["n_head"], axis=-1) for part in (q, k, v)), strict=True)
        x = x + affine(np.hstack([attended(*head) for head in heads]), f"h.{i}.attn.c_proj")
        h = affine(normalized(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        h = h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + affine(h, f"h.{i}.mlp.c_proj")
    return normalized(x, "ln_f") @ w["wte.weight"].T


def turned(x, theta):
    """RoFormer, 2021: pairs of numbers are complex numbers, turned by an angle in proportion to the position."""
    half = x.shape[1] // 2
    z = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * np.outer(np.arange(len(x)), theta))
    return np.hstack([z.real, z.imag])


def llama_angles(config, head):
    """Returns the angle of each pair. Llama 3.1 divides the angles of long waves, with a ramp between both kinds."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    angles = [rope.get("rope_theta", config.get("rope_theta")) ** (-2 * i / head) for i in range(head // 2)]
    if "factor" in rope:
        old, low, high = (rope[n] for n in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
        for i, angle in enumerate(angles):
            wave = 2 * np.pi / angle
            smooth = (old / wave - low) / (high - low)
            if wave > old / low:
                angles[i] = angle / rope["factor"]
            elif wave >= old / high:
                angles[i] = (1 - smooth) * angle / rope["factor"] + smooth * angle
    return angles


def llama_logits(tokens, w, config=LLAMA):
    """Touvron et al., LLaMA, 2023: RMSNorm, rotary positions, SwiGLU; keys and values of groups of heads."""
    w = {name.removeprefix("model."): array.astype(np.float64) for name, array in w.items()}
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim", config["hidden_size"] // heads)
    angles = llama_angles(config, head)

    def normalized(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[f"{name}.weight"]

    x = w["embed_tokens.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        h = normalized(x, f"layers.{i}.input_layernorm")
        q, k, v = (h @ w[f"layers.{i}.self_attn.{part}_proj.weight"].T for part in "qkv")
        parts = []
        for n in range(heads):
            group = n * groups // heads
            own, shared = (slice(m * head, (m + 1) * head) for m in (n, group))
            parts.append(attended(turned(q[:, own], angles), turned(k[:, shared], angles), v[:, shared]))
        x = x + np.hstack(parts) @ w[f"layers.{i}.self_attn.o_proj.weight"].T
        h = normalized(x, f"layers.{i}.post_attention_layernorm")
        gate, up = (h @ w[f"layers.{i}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"layers.{i}.mlp.down_proj.weight"].T
    return normalized(x, "norm") @ w.get("lm_head.weight", w["embed_tokens.weight"]).T


CONFIGS = {
    "llama": LLAMA,
    "tied": LLAMA | {"tie_word_embeddings": True},
    "one key for all": LLAMA | {"num_key_value_heads": 1},
    "width of a head": LLAMA | {"head_dim": 6},
    "llama 3.1": LLAMA | {"rope_theta": 500.0, "rope_scaling": SCALED},
    "newer config": {n: v for n, v in LLAMA.items() if n != "rope_theta"}
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
}
"""Variants of Llama."""


def logits_of(model, tokens):
    """Returns the logits of a graph without a cache."""
    y = model(nn.Variable.from_numpy_array(tokens))
    y.forward()
    return y.d


def check(model, expected):
    """Compares the logits with and without a cache, for a batch of two sequences."""
    expected = np.array([expected(tokens) for tokens in TOKENS])
    size = np.abs(expected).max()
    assert size > 1
    np.testing.assert_allclose(logits_of(model, TOKENS), expected, atol=2e-6 * size)
    decoder = decoders.Decoder(model, capacity=13, batch=2)
    at = 0
    for count in (4, 1, 1, 3, 1, 1):
        last = decoder(TOKENS[:, at : at + count])
        at += count
        np.testing.assert_allclose(last, expected[:, at - 1], atol=2e-6 * size)
    assert len(decoder.graphs) == 3
    assert at == TOKENS.shape[1]


def test_gpt2_equals_its_formulas(tmp_path):
    weights = gpt2_weights()
    check(decoders.load(written(tmp_path, GPT2, weights)), lambda tokens: gpt2_logits(tokens, weights))


@pytest.mark.parametrize("name", CONFIGS)
def test_llama_equals_its_formulas(tmp_path, name):
    config = CONFIGS[name]
    weights = llama_weights(config)
    check(decoders.load(written(tmp_path, config, weights)), lambda tokens: llama_logits(tokens, weights, config))


MODELS = {"gpt2": (GPT2, gpt2_weights), "llama": (LLAMA, llama_weights)}


@pytest.fixture(params=MODELS)
def folder(request, tmp_path):
    """The folder of a model."""
    config, weights = MODELS[request.param]
    return written(tmp_path / "model", config, weights())


def test_generation_with_a_cache_gives_the_tokens_of_recomputing(folder):
    model = decoders.load(folder)
    tokens = [3, 1, 4]
    found = list(decoders.generate(model, tokens, 20))
    for _ in range(20):
        tokens.append(int(logits_of(model, np.array([tokens]))[0, -1].argmax()))
    assert found == tokens[3:]
    assert len(set(found)) > 2
    assert list(decoders.generate(model, [3, 1, 4], 20, temperature=0.5, top_k=1)) == found
    drawn = [list(decoders.generate(model, [3, 1, 4], 20, temperature=5.0, seed=seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_tokens_are_drawn_with_their_probabilities():
    """At a temperature, tokens have the probabilities of the softmax, of the likeliest ones only with `top_k`."""
    logits, rng = np.log(np.array([1.0, 4.0, 2.0, 1.0], np.float32)), np.random.default_rng(0)
    n = 4000
    for temperature, top_k, expected in ((1.0, None, [1, 4, 2, 1]), (0.5, 2, [0, 16, 4, 0])):
        drawn = [decoders.choose(logits, temperature, top_k, rng) for _ in range(n)]
        p = np.array(expected) / np.sum(expected)
        np.testing.assert_allclose(np.bincount(drawn, minlength=4) / n, p, atol=4 * 0.5 / np.sqrt(n))


def test_the_program_prints_the_tokens(folder):
    """The program prints the tokens that `generate` yields, also in bfloat16."""
    expected = " ".join(map(str, decoders.generate(decoders.load(folder), [3, 1, 4], 6)))
    command = [sys.executable, str(EXAMPLE), str(folder), "--prompt", "3", "1", "4", "--count", "6"]
    for more in ([], ["--bfloat16"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.split()) == 6
        assert more or done.stdout.strip() == expected


def test_a_full_cache_is_an_error(folder):
    decoder = decoders.Decoder(decoders.load(folder), capacity=4)
    decoder([[1, 2, 3]])
    with pytest.raises(nn.RangeError, match="expected at most 4 tokens, got 5"):
        decoder([[1, 2]])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sharded_files_in_16_bits(tmp_path, folder, dtype):
    """Two files with an index hold the same model as one file, in the precision of the file."""
    path = folder / "model.safetensors"
    weights = dict(nn.open_parameters(path))
    model = decoders.load(folder)
    path.unlink()
    names = list(weights)
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        some = {name: w if w.dtype == bool else w.astype(dtype) for name, w in weights.items() if files[name] == file}
        write_safetensors(folder / file, some)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    again = decoders.load(folder)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert other.data.dtype == dtype
        np.testing.assert_array_equal(one.d.astype(dtype), other.d)
        one.d = one.d.astype(dtype).astype(np.float32)
    expected = logits_of(model, TOKENS)
    np.testing.assert_allclose(logits_of(again, TOKENS), expected, atol=1e-6 * np.abs(expected).max())


def test_names_of_a_whole_model_of_gpt2(tmp_path):
    """Files that Hugging Face writes today have a prefix, and may repeat the head."""
    weights = gpt2_weights()
    wrapped = {f"transformer.{name}": w for name, w in weights.items() if not name.endswith(".attn.bias")}
    wrapped["lm_head.weight"] = weights["wte.weight"]
    model = decoders.load(written(tmp_path / "wrapped", GPT2, wrapped))
    own = decoders.load(written(tmp_path / "own", GPT2, weights))
    for one, other in zip(model.parameters(), own.parameters(), strict=True):
        np.testing.assert_array_equal(one.d, other.d)


def test_other_names_are_refused(folder):
    """Missing, renamed and misshapen weights raise an error with their public names."""
    path = folder / "model.safetensors"
    weights = dict(nn.open_parameters(path))
    name = next(n for n in weights if n.endswith(("h.1.attn.c_proj.weight", "layers.1.self_attn.o_proj.weight")))
    value = weights.pop(name)
    write_safetensors(path, weights)
    with pytest.raises(nn.ParameterError, match=f"missing names \\['{name}'\\]$"):
        decoders.load(folder)
    write_safetensors(path, weights | {"renamed.weight": value})
    with pytest.raises(nn.ParameterError, match=f"missing names .*{name}.*; unexpected names .*renamed.weight"):
        decoders.load(folder)
    write_safetensors(path, weights | {name: value[:-1]})
    with pytest.raises(nn.ParameterError, match=f"'{name}' of shape"):
        decoders.load(folder)


def test_other_models_are_refused(tmp_path):
    """Kinds of models and of positions that the example does not compute are errors, and not wrong numbers."""
    odd = {"rope_type": "yarn", "factor": 4.0}
    for config, weights, message in (
        ({"model_type": "t5"}, {}, "model_type"),
        (GPT2 | {"activation_function": "relu"}, {}, "gelu_new"),
        (LLAMA | {"hidden_act": "gelu"}, {}, "silu"),
        (LLAMA | {"rope_scaling": odd}, {}, "yarn"),
    ):
        with pytest.raises(nn.UnsupportedError, match=message):
            decoders.load(written(tmp_path, config, weights))


def test_the_how_to_shows_the_example():
    """Each class and function on the page is in the example, word for word."""
    page = (EXAMPLE.parents[1] / "docs/how_to/decoders.md").read_text()
    blocks = re.findall(r"^>>> (?:class|def) .*\n(?:\.\.\..*\n)+", page, re.MULTILINE)
    text = EXAMPLE.read_text()
    for block in blocks:
        code = "".join(f"{line[4:]}\n" for line in block.splitlines())
        assert code in text, code
    assert len(blocks) == len(re.findall(r"^(?:class|def) ", text, re.MULTILINE)) - 1, "all but `main`"
