"""Random networks give the same bits in every way to run them. `random_networks.py` defines layers and ways."""

import pytest
from random_networks import CONTEXTS, IMAGE, SEQUENCE, VECTOR, check, made


@pytest.mark.parametrize("block", range(8))
def test_every_way_to_run_a_network_gives_the_same_bits(block):
    for seed in range(50 * block, 50 * block + 50):
        check(seed)


def test_every_layer_is_drawn():
    """The generator of random networks uses every kind of layer and context."""
    networks = [made(seed) for seed in range(400)]
    drawn = {name.split()[0] for net in networks for name, _ in net.layers}
    assert {"lstm", "gru", "rnn", "attention", "multi_head_attention", "Scaled", "Lying", "embed", "forget"} <= drawn
    assert {"convolution", "deconvolution", "depthwise", "pooling", "dropout", "written", "reshaped"} <= drawn
    assert {net.context for net in networks} == set(CONTEXTS)
    assert len(VECTOR | IMAGE | SEQUENCE) == 23
    assert any(net.late for net in networks)
