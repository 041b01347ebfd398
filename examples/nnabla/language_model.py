"""A language model of characters: a two-layer LSTM, trained on the source of a module of Python."""

import argparse
import textwrap
from pathlib import Path

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np

STEPS, BATCH, HIDDEN = 24, 32, 64


def network(x, n_characters):
    """Embedding, two LSTM layers and an affine layer."""
    h0 = F.constant(0, (2, 1, BATCH, HIDDEN))
    c0 = F.constant(0, (2, 1, BATCH, HIDDEN))
    y = PF.embed(x, n_characters, 24)
    y, _, _ = PF.lstm(y, h0, c0, num_layers=2)
    return PF.affine(y, n_characters, base_axis=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()

    nn.seed(3)
    rng = np.random.RandomState(0)
    text = Path(textwrap.__file__).read_text(encoding="utf-8")
    characters = sorted(set(text))
    codes = np.array([characters.index(c) for c in text])

    x, t = nn.Variable((STEPS, BATCH)), nn.Variable((STEPS, BATCH, 1))
    loss = F.mean(F.softmax_cross_entropy(network(x, len(characters)), t, axis=2))
    solver = S.Adam(1e-2)
    solver.set_parameters(nn.get_parameters())
    losses = []
    for _ in range(args.steps):
        starts = rng.randint(0, len(codes) - STEPS, BATCH)
        pieces = np.stack([codes[start : start + STEPS + 1] for start in starts], axis=1)
        x.d, t.d = pieces[:-1], pieces[1:, :, None]
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.clip_grad_by_norm(1.0)
        solver.update()
        losses.append(float(loss.d) / np.log(2))
    print(f"bits per character {losses[0]:.3f} -> {np.mean(losses[-10:]):.3f}")


if __name__ == "__main__":
    main()
