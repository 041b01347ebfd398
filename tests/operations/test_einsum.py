"""`einsum` equals `numpy.einsum` for any equation, and its gradients are right."""

import numpy as np
import pytest
from support import DOUBLE

import kinnor as nn
import kinnor.functions as F

CASES = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba", (2, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->j", (3, 3, 4)),
    ("iji->ij", (3, 2, 3)),
    ("iii->i", (3, 3, 3)),
    ("ij->", (2, 3)),
    ("->", ()),
    (",->", (), ()),
    ("i,->i", (3,), ()),
    ("i,j->ij", (2,), (3,)),
    ("i,j->ji", (2,), (3,)),
    ("i,i", (4,), (4,)),
    ("ij,kl->", (2, 3), (3, 4)),
    ("ij,ij,ij->i", (2, 3), (2, 3), (2, 3)),
    ("ij,kj->ik", (2, 1), (4, 3)),
    ("ij,ij->ij", (2, 1), (1, 3)),
    ("...j,jk->...k", (2, 2, 3), (3, 4)),
    ("...,...->...", (2, 3), (3,)),
    ("...i,...i", (4, 1, 3), (2, 3)),
    ("i...->...", (2, 3)),
    ("...i->i...", (2, 3, 4)),
    (" ij , jk -> ki ", (2, 3), (3, 4)),
    ("Ab,bC", (2, 3), (3, 2)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bhqk,bhkd->bqhd", (2, 3, 4, 5), (2, 3, 5, 6)),
    ("ki,kj->ij", (5, 2), (5, 3)),
    ("ijk,ilm,njm,nlk,abc->", (2, 3, 4), (2, 5, 6), (7, 3, 6), (7, 5, 4), (2, 2, 2)),
    ("ab,bc,cd,de,ef,fg->ag", (2, 3), (3, 4), (4, 2), (2, 5), (5, 2), (2, 3)),
    ("ij,jk->ik", (2, 0), (0, 4)),
    ("ij,jk->ik", (0, 2), (2, 4)),
]
"""An equation and the shapes of its operands."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(case):
    """Values equal NumPy's, and gradients match numeric derivatives."""
    equation, *shapes = case
    r = np.random.RandomState(0)
    arrays = [r.randn(*s) if s else np.array(r.randn()) for s in shapes]
    expected = np.einsum(equation, *arrays)
    with nn.context_scope(DOUBLE):
        xs = [nn.Variable.from_numpy_array(x, need_grad=True) for x in arrays]
        y = F.einsum(*xs, equation=equation)
        factor = np.asarray(r.randn(*expected.shape))
        loss = F.sum(F.sin(y) * nn.Variable.from_numpy_array(factor))
        loss.forward()
        assert y.shape == expected.shape
        np.testing.assert_allclose(y.d, expected, 1e-12, 1e-13)
        for x in xs:
            x.grad.zero()
        loss.backward()
        for i, x in enumerate(xs):
            direction = np.asarray(r.randn(*x.shape))
            steps = (
                np.einsum(equation, *(a + s * direction if k == i else a for k, a in enumerate(arrays)))
                for s in (1e-5, -1e-5)
            )
            above, below = ((np.sin(moved) * factor).sum() for moved in steps)
            np.testing.assert_allclose((x.g * direction).sum(), (above - below) / 2e-5, 1e-5, 1e-7)
        arrays = [nn.NdArray.from_numpy_array(x) for x in arrays]
        np.testing.assert_allclose(F.einsum(*arrays, equation=equation).data, expected, 1e-12, 1e-13)


def test_random_equations():
    """Equations of three arrays with any shared letters."""
    r = np.random.RandomState(1)
    lengths = dict(zip("abcde", (2, 3, 1, 4, 2), strict=True))
    for _ in range(60):
        terms = [
            "".join(r.choice(list("abcde"), r.randint(0, 4), replace=r.rand() < 0.2)) for _ in range(r.randint(1, 5))
        ]
        letters = sorted(set("".join(terms)))
        result = "".join(r.permutation(letters)[: r.randint(0, len(letters) + 1)])
        equation = ",".join(terms) + "->" + result
        arrays = [np.asarray(r.randn(*(lengths[a] for a in term))) for term in terms]
        y = F.einsum(*map(nn.NdArray.from_numpy_array, arrays), equation=equation)
        np.testing.assert_allclose(y.data, np.einsum(equation, *arrays), 1e-4, 1e-5, err_msg=equation)


def test_a_chain_contracts_the_small_side_first():
    """A product of shapes (1000, 1) and (1, 1000) must not become a matrix of a million elements."""
    shapes = {"ij": (1000, 2), "jk": (2, 1000), "kl": (1000, 1)}
    xs = [nn.Variable(s) for s in shapes.values()]
    y = F.einsum(*xs, equation="ij,jk,kl->il")
    sizes = []
    y.visit(lambda function: sizes.extend(out.size for out in function.outputs))
    assert max(sizes) <= 1000


@pytest.mark.parametrize(
    ("equation", "shapes", "error", "text"),
    [
        ("ij,jk->ik", [(2, 3), (4, 4)], nn.ShapeError, "one length for the letter 'j'"),
        ("ij->ik", [(2, 3)], nn.ArgumentError, "letters that the arrays have"),
        ("i->ii", [(2,)], nn.ArgumentError, "each once"),
        ("ij", [(2,)], nn.ShapeError, "an array with the axes 'ij'"),
        ("i", [(2, 2)], nn.ShapeError, "an array with the axes 'i'"),
        ("..i", [(2,)], nn.ArgumentError, "letters, commas"),
        ("i$", [(2,)], nn.ArgumentError, "letters, commas"),
        ("i,j", [(2,)], nn.ArgumentError, "name 1 arrays"),
        ("......", [(2,)], nn.ArgumentError, "once for each array"),
        ("i->i->i", [(2,)], nn.ArgumentError, "letters, commas"),
    ],
)
def test_invalid_equations_are_refused(equation, shapes, error, text):
    with pytest.raises(error, match="einsum: expected") as raised:
        F.einsum(*map(nn.Variable, shapes), equation=equation)
    assert text in str(raised.value)


def test_arrays_are_needed():
    """`einsum` refuses calls without variables."""
    with pytest.raises(nn.CallError, match="got none"):
        F.einsum(equation="")
    with pytest.raises(nn.CallError, match="got ndarray"):
        F.einsum(np.zeros(2), equation="i")


@pytest.mark.parametrize("equation", ["ij", "ij->ij", "...", "i...->i..."])
def test_an_identity_equation_makes_a_function(equation):
    """An equation that changes nothing still returns a new variable."""
    x = nn.Variable((2, 3), need_grad=True)
    y = F.einsum(x, equation=equation)
    assert y is not x
    x.d = np.arange(6).reshape(2, 3)
    x.grad.zero()
    y.forward()
    y.backward(2)
    np.testing.assert_array_equal(y.d, x.d)
    np.testing.assert_array_equal(x.g, np.full((2, 3), 2))
