"""Output shapes of users' operations can be set only in `setup_impl`, and only for existing outputs."""

import numpy as np
import pytest
from support import UnaryFunction

import kinnor as nn
import kinnor.functions as F


def ones(*shape):
    """Returns a variable of ones that requires a gradient."""
    return nn.Variable.from_numpy_array(np.ones(shape, np.float32), need_grad=True)


class Doubled(UnaryFunction):
    """Doubles its input. Tests override its methods."""

    def forward_impl(self, inputs, outputs):
        """Computes the output."""
        outputs[0].d = inputs[0].d * 2

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        inputs[0].g = outputs[0].g * 2 + (inputs[0].g if accum[0] else 0)


@pytest.mark.parametrize("shape", [(1, 3), (4, 3), (3, 2)])
def test_shapes_can_be_set_in_setup_only(shape, mode):
    class Forward(Doubled):
        """Sets a shape in `forward_impl`."""

        def forward_impl(self, inputs, outputs):
            """Sets a shape, which is refused here."""
            outputs[0].reset_shape(shape, True)
            outputs[0].d = 7

    class Backward(Doubled):
        """Sets a shape in `backward_impl`."""

        def backward_impl(self, inputs, outputs, propagate_down, accum):
            """Sets a shape, which is refused here."""
            inputs[0].reset_shape(shape, True)
            inputs[0].g = 7

    x = ones(2, 3)
    text = r"expected `forward_impl` to leave output 0 with shape \(2, 3\), as `setup_impl` did .*, got shape"
    with pytest.raises(nn.ShapeError, match=text):
        Forward()(x).forward()
    y = F.sum(Backward()(x))
    y.forward()
    with pytest.raises(nn.ShapeError, match=r"expected `backward_impl` to leave input 0 with shape \(2, 3\)"):
        y.backward()


def test_the_list_of_outputs_cannot_be_changed(mode):
    def popped(outputs):
        """Removes an output from the list."""
        outputs.pop()

    def added(outputs):
        """Adds an output to the list."""
        outputs.append(outputs[0])

    def replaced(outputs):
        """Replaces an output in the list."""
        outputs[0] = None

    for change in popped, added, replaced:
        for level in 0, 1:

            class Changed(Doubled):
                """Changes the list of outputs in `setup_impl`."""

                def setup_impl(self, inputs, outputs, change=change):
                    """Changes the list of outputs after the right setup."""
                    super().setup_impl(inputs, outputs)
                    change(outputs)

                def inplace_data(self, i, level=level):
                    """Declares how the output shares the memory of the input."""
                    return level

            with pytest.raises(ValueError, match="expected `setup_impl` to leave its 1 outputs in their list"):
                Changed()(ones(2))


def test_a_billion_outputs_are_refused():
    """A user's function may declare at most 65,536 outputs."""

    class Many(Doubled):
        """Declares a billion outputs."""

        def min_outputs(self):
            """Declares a billion outputs."""
            return 10**9

    with pytest.raises(ValueError, match="expected `min_outputs` to return at most 65536, got 1000000000"):
        Many()(ones(2))


def test_an_input_that_changes_its_shape_in_setup():
    """A user's function that changes the shape of one of its inputs in `setup_impl` is refused."""

    class Restless(Doubled):
        """Changes the shape of an input during its own setup."""

        def setup_impl(self, inputs, outputs):
            """Sets the shape of the output, then another shape for the variable `of`."""
            super().setup_impl(inputs, outputs)
            if self.of is not None:
                self.of.reset_shape((self.of.size + 1,), True)

    x, user = ones(2), Restless()
    user.of = None
    y = user(x)
    user.of = x
    x.reset_shape((3,), True)
    with pytest.raises(nn.GraphError, match="expected inputs that keep their shapes while it is set up"):
        y.forward()
    user.of = None
    y.forward()
    assert y.shape == (4,)
