"""Trains a LeNet on handwritten digits, saves and loads it, tests it on held-out digits, and draws the results."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
from lenet import lenet, split_digits
from tqdm import tqdm

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor.monitor import Monitor, MonitorSeries, plot_series, tile_images
from kinnor.utils.data_iterator import data_iterator_simple
from kinnor.utils.learning_rate_scheduler import CosineScheduler

mpl.use("agg")
import matplotlib.pyplot as plt


def graph(n_images):
    """Returns a static graph of the network with its loss and error."""
    x, t = nn.Variable((n_images, 1, 8, 8)), nn.Variable((n_images, 1))
    y = lenet(x).apply(persistent=True)
    loss = F.mean(F.softmax_cross_entropy(y, t)).apply(persistent=True)
    error = F.mean(F.top_n_error(y, t))
    return x, t, y, loss, error


def train(batches, held_out, epochs, monitor):
    """Trains a new network. The monitor gets the loss of each step and the held-out error of each epoch."""
    x, t, _, loss, error = graph(batches.batch_size)
    x_test, t_test, _, _, test_error = graph(len(held_out[0]))
    x_test.d, t_test.d = held_out
    solver = S.Adam()
    solver.set_parameters(nn.get_parameters())
    steps = epochs * (batches.size // batches.batch_size)
    rate = CosineScheduler(5e-3, steps)
    losses = MonitorSeries("training loss", monitor, verbose=False)
    errors = MonitorSeries("held-out error", monitor, verbose=False)
    with tqdm(range(steps), desc="training", unit="step") as progress:
        for step in progress:
            x.d, t.d = batches.next()
            nn.forward_all([loss, error], clear_no_need_grad=True)
            solver.zero_grad()
            loss.backward(clear_buffer=True)
            solver.set_learning_rate(rate.get_learning_rate(step))
            solver.update()
            losses.add(step, loss.d)
            if (step + 1) % (steps // epochs) == 0:
                test_error.forward(clear_buffer=True)
                errors.add(step, test_error.d)
                progress.set_postfix(loss=f"{loss.d:.4f}", error=f"{test_error.d:.2%}")


def test(held_out, **forward_options):
    """Returns the accuracy on the held-out images, and the predicted digits."""
    x, t, y, _, error = graph(len(held_out[0]))
    x.d, t.d = held_out
    error.forward(**forward_options)
    return 1 - float(error.d), y.d.argmax(axis=1)


def draw(output, held_out, predicted, n_shown=40):
    """Draws the learning curve, and a sheet of held-out digits with their predictions."""
    figure, left = plt.subplots(layout="constrained")
    plot_series(output / "training-loss.series.txt", {"color": "tab:blue", "label": "training loss", "alpha": 0.7})
    left.set(xlabel="step", ylabel="training loss", yscale="log")
    right = left.twinx()
    plot_series(output / "held-out-error.series.txt", {"color": "tab:red", "marker": ".", "label": "held-out error"})
    right.set(ylabel="held-out error", ylim=0)
    figure.legend(loc="upper right", bbox_to_anchor=(0.9, 0.97))
    figure.savefig(output / "learning_curve.png", dpi=120)

    images, labels = held_out
    is_wrong = predicted != labels[:, 0]
    # Show the wrong predictions first.
    shown = sorted(range(len(images)), key=lambda i: not is_wrong[i])[:n_shown]
    figure, places = plt.subplots(5, 8, figsize=(8, 5.6), layout="constrained")
    for place, i in zip(places.flat, shown, strict=False):
        place.imshow(1 - tile_images(images[i : i + 1], padsize=0), cmap="gray", vmin=0, vmax=1)
        place.set_title(
            f"{predicted[i]} (is {labels[i, 0]})" if is_wrong[i] else predicted[i],
            color="red" if is_wrong[i] else "black",
        )
    for place in places.flat:
        place.axis("off")
    figure.savefig(output / "held_out_digits.png", dpi=120)
    plt.close("all")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--output", type=Path, default=Path("demo"), help="where pictures and parameters go")
    arguments = parser.parse_args()
    output = arguments.output

    (images, labels), held_out = split_digits()
    monitor = Monitor(output)
    with data_iterator_simple(lambda i: (images[i], labels[i]), len(images), 64, shuffle=True) as batches:
        train(batches, held_out, arguments.epochs, monitor)
    accuracy, predicted = test(held_out)
    nn.save_parameters(str(output / "lenet.safetensors"))

    nn.clear_parameters()
    nn.load_parameters(str(output / "lenet.safetensors"))
    loaded_accuracy, _ = test(held_out, clear_buffer=True)
    if loaded_accuracy != accuracy:
        raise SystemExit(f"the loaded network has accuracy {loaded_accuracy}, the trained one had {accuracy}")

    draw(output, held_out, predicted)
    print(f"parameters, learning curve and a sheet of digits are in {output}/")
    print(f"test accuracy {100 * loaded_accuracy:.2f} %")


if __name__ == "__main__":
    main()
