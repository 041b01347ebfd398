"""Truncated backpropagation through time: an LSTM predicts the next value of a wave.

The sequence is endless and is processed in pieces. The state continues from piece to piece. The gradient stops at
the first step of each piece, because the state enters as an unlinked variable.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S

N_STEPS, N_UNITS = 8, 16


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=600)
    arguments = parser.parse_args()

    wave = np.sin(0.3 * np.arange(arguments.pieces * N_STEPS + 1)).astype(np.float32)
    xs = [nn.Variable((1, 1)) for _ in range(N_STEPS + 1)]
    h_first, c_first = nn.Variable((1, N_UNITS)), nn.Variable((1, N_UNITS))
    h, c, losses = h_first, c_first, []
    for x, following in pairwise(xs):
        h, c = PF.lstm_cell(x, h, c, N_UNITS, name="lstm")
        losses.append(F.mean(F.squared_error(PF.affine(h, 1, name="next"), following)))
    loss = sum(losses) / N_STEPS

    # The final state is read after backward, so it must not be cleared.
    h.persistent = c.persistent = True
    h_last, c_last = (v.get_unlinked_variable(need_grad=False) for v in (h, c))

    solver = S.Adam(alpha=1e-2)
    solver.set_parameters(nn.get_parameters())
    for piece in range(arguments.pieces):
        for x, value in zip(xs, wave[piece * N_STEPS :][: len(xs)], strict=True):
            x.d = value
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()
        h_first.d, c_first.d = h_last.d, c_last.d
        if piece == 0 or (piece + 1) % (arguments.pieces // 5 or 1) == 0:
            print(f"piece {piece + 1}: loss {loss.d:.5f}")


if __name__ == "__main__":
    main()
