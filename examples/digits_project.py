"""Writes a project file for `kinnor train`: a network, its data, its training and its monitors.

kinnor digits -o images
kinnor create_image_classification_dataset -i images -o data -c 1 -w 8 -g 8 -m trimming -s true \
        -f1 training.csv -f2 validation.csv -r2 20
python examples/digits_project.py digits.nnp
kinnor train -c digits.nnp -o trained
kinnor forward -c trained/results.nnp -d data/validation.csv -o trained
"""

import argparse

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.utils.save import save

BATCH, EXAMPLES = 48, 1437


def network(x):
    """Two convolutions, pooling and an affine layer."""
    h = F.relu(PF.convolution(x, 32, (3, 3), pad=(1, 1), name="conv1"))
    h = F.relu(PF.convolution(h, 64, (3, 3), pad=(1, 1), name="conv2"))
    return PF.affine(F.max_pooling(h, (2, 2)), 10, name="affine")


def main():
    parser = argparse.ArgumentParser(description="Writes a project file for `kinnor train`.")
    parser.add_argument("path", help="the file to write")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    nn.seed(0)
    x, t = nn.Variable((BATCH, 1, 8, 8)), nn.Variable((BATCH, 1))
    y = network(x)
    loss, error = F.mean(F.softmax_cross_entropy(y, t)), F.mean(F.top_n_error(y, t))
    solver = S.Adam(2e-3)
    solver.set_parameters(nn.get_parameters())
    inputs = {"x": x, "t": t}
    data = {"x": "x", "t": "y"}
    networks = [
        {"name": "training", "batch_size": BATCH, "outputs": {"loss": loss}, "names": inputs},
        {"name": "validation", "batch_size": BATCH, "outputs": {"error": error}, "names": inputs},
        {"name": "runtime", "batch_size": BATCH, "outputs": {"y": F.softmax(y)}, "names": {"x": x}},
    ]
    datasets = [
        {
            "name": name,
            "uri": f"data/{name}.csv",
            "variables": ["x", "y"],
            "shuffle": name == "training",
            "batch_size": BATCH,
            "no_image_normalization": False,
        }
        for name in ("training", "validation")
    ]
    optimizer = {
        "name": "optimizer",
        "solver": solver,
        "network": "training",
        "dataset": "training",
        "weight_decay": 0,
        "lr_decay": 0.98,
        "lr_decay_interval": EXAMPLES // BATCH,
        "update_interval": 1,
        "data_variables": data,
    }
    monitor = {"name": "valid_error", "network": "validation", "dataset": "validation", "data_variables": data}
    contents = {
        "training_config": {"max_epoch": args.epochs, "iter_per_epoch": EXAMPLES // BATCH, "save_best": True},
        "networks": networks,
        "datasets": datasets,
        "optimizers": [optimizer],
        "monitors": [monitor],
        "executors": [{"name": "runtime", "network": "runtime", "data": ["x"], "output": ["y"]}],
    }
    save(args.path, contents)


if __name__ == "__main__":
    main()
