"""Classes that Python derives from the library's own, with arguments of their own."""

import copy
import pickle

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor import _core


def derived(base, *given, calls=True, **named):
    """Returns a class whose constructor accepts any arguments and passes `given` to its base class."""

    class Derived(base):
        """The derived class, which calls its base's constructor if `calls` is set."""

        def __init__(self, inner, bound=1, *, key=None):
            if calls:
                super().__init__(*given, **named)
            self.inner, self.bound, self.key = inner, bound, key

    return Derived


OWN = [(("in", 2), {"key": 3}), ((np.zeros(3), object()), {}), ((object(),), {"key": "k"}), (((2,), True), {})]
"""Positional and named arguments that a derived class takes, without meaning for its base."""
BASES = {
    "NdArray": (nn.NdArray, ((2, 3),), {}),
    "NdArray of lengths": (nn.NdArray, (2, 3), {}),
    "NdArray of nothing": (nn.NdArray, (), {}),
    "Variable": (nn.Variable, ((2, 3),), {"need_grad": True}),
    "Variable of nothing": (nn.Variable, (), {}),
    "Sgd": (S.Sgd, (0.5,), {}),
    "Adam": (S.Adam, (), {"beta1": 0.5}),
    "Solver": (S.Solver, ("Momentum",), {"momentum": 0.5}),
    "PythonFunction": (_core.PythonFunction, (), {}),
    "Function": (_core.Function, (), {}),
    "Context": (nn.Context, (["cpu:half"],), {}),
    "CommunicatorBackwardCallback": (_core.CommunicatorBackwardCallback, (), {}),
}
"""By name: a base class, and the positional and named arguments that the derived class passes to it."""


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize(("given", "named"), OWN)
@pytest.mark.parametrize("calls", [True, False])
def test_own_arguments_are_taken(name, given, named, calls):
    """Derived classes of each public class may have other constructor arguments."""
    base, its, its_named = BASES[name]
    made = derived(base, *its, calls=calls, **its_named)(*given, **named)
    assert isinstance(made, base)
    assert made.inner is given[0]
    assert made.key == named.get("key")


class Grid(nn.NdArray):
    """An array whose constructor takes rows and columns."""

    def __init__(self, rows, columns):
        super().__init__((rows * columns,))
        self.rows = rows


class Tagged(nn.Variable):
    """A variable whose constructor takes a tag first."""

    def __init__(self, tag, *others):
        super().__init__(*others)
        self.tag = tag


class Slotted(nn.Variable):
    """A variable with a slot and no other attributes."""

    __slots__ = ("place",)

    def __init__(self, place, *others):
        super().__init__(*others)
        self.place = place


class Closed(nn.NdArray):
    """An array that says itself what its state is."""

    def __new__(cls, *given):
        return super().__new__(cls)

    def __init__(self, *lengths):
        super().__init__(*lengths)
        self.opened = object()

    def __getstate__(self):
        """Returns what is kept."""
        return {"note": self.note}

    def __setstate__(self, state):
        """Takes what was kept."""
        self.note, self.opened = state["note"], None


class Deeper(Tagged):
    """A class derived from a derived class, with a slot beside other attributes."""

    __slots__ = ("place",)


def made(name):
    """Returns a new object of a derived class with values and attributes."""
    if name == "Grid":
        found = Grid(2, 3)
        found.extra = [found.rows]
    elif name == "Closed":
        found = Closed(6)
        found.note = [5]
    elif name == "Slotted":
        found = Slotted([1], (6,), True)
    else:
        found = {"Tagged": Tagged, "Deeper": Deeper}[name](["t"], (6,), True)
        found.myself = found
        if name == "Deeper":
            found.place = [2]
        found.name = "own"
    found.data = nn.NdArray.from_numpy_array(np.arange(6.0)) if isinstance(found, nn.Variable) else np.arange(6.0)
    return found


def attributes(found):
    """Returns the attributes of an object by name, without itself."""
    names = {name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())}
    slots = {name: getattr(found, name) for name in names}
    return {
        name: v for name, v in {**getattr(found, "__dict__", {}), **slots}.items() if name not in ("myself", "opened")
    }


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy of a list": lambda x: copy.deepcopy([x, x])[1],
    **{f"pickle {n}": lambda x, n=n: pickle.loads(pickle.dumps(x, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)},
}
"""Ways to copy an object."""


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("name", ["Grid", "Closed", "Tagged", "Deeper", "Slotted"])
def test_copies_keep_class_attributes_and_values(name, way):
    """Copies are of the derived class, without a call of `__init__`, and have its attributes."""
    x = made(name)
    y = COPIES[way](x)
    assert type(y) is type(x)
    assert attributes(y) == attributes(x)
    values = [v.d if isinstance(v, nn.Variable) else v.data for v in (x, y)]
    np.testing.assert_array_equal(*values)
    assert values[0].dtype == values[1].dtype
    if hasattr(x, "myself"):
        assert y.myself is (x if way == "copy" else y)
    for key, value in attributes(y).items():
        assert (value is attributes(x)[key]) == (way == "copy" or isinstance(value, int))
    if isinstance(x, nn.Variable):
        # A copy stands for the same variable, others for new ones.
        assert (y == x) == (way == "copy")
        assert (y.need_grad, y.name) == (x.need_grad, x.name)
        y.d = 3
        assert (x.d == 3).all() == (way == "copy")
        F.sum(y * y).forward()
    else:
        y.data = 3
        assert not (x.data == 3).all()


@pytest.mark.parametrize("base", [nn.NdArray, nn.Variable])
def test_a_class_that_pickle_cannot_find_is_refused(base):
    """A copy of the base class would lose what the derived class adds."""

    class Local(base):
        """A class that no module has."""

    assert type(copy.copy(Local((2,)))) is Local
    with pytest.raises((pickle.PicklingError, AttributeError), match="Local"):
        pickle.dumps(made_local := Local((2,)))
    assert type(copy.deepcopy(made_local)) is Local


def test_a_copy_of_a_variable_has_its_info():
    x = nn.Variable((2,), info={"a": 1})
    assert copy.copy(x).info is x.info


def test_an_array_is_made_from_the_arguments_of_its_base_class():
    a = Grid(2, 3)
    assert a.shape == (6,)
    a.data = 4
    assert (F.sum(a).data, a.rows) == (24, 2)
    assert (a + a).data.tolist() == [8] * 6
    assert np.array_equal(copy.copy(a).data, a.data)
    assert np.array_equal(pickle.loads(pickle.dumps(a)).data, a.data)
    with pytest.raises(nn.GraphError, match=r"NdArray.__init__: expected one call"):
        a.__init__(1, 1)


@pytest.mark.parametrize(("arguments", "shape"), [((), ()), (((3, 2), True), (3, 2)), ((4,), (4,))])
def test_a_variable_is_made_from_the_arguments_of_its_base_class(arguments, shape):
    v = Tagged("t", *arguments)
    assert (v.tag, v.shape, v.need_grad) == ("t", shape, len(arguments) == 2)
    v.d = 2
    y = F.sum(v * v)
    y.forward()
    y.backward()
    assert y.d == 4 * v.size
    if v.need_grad:
        assert (v.g == 4).all()


def test_a_derived_variable_has_the_shape_given_to_the_base_constructor():
    class Square(nn.Variable):
        """A variable whose constructor takes a length."""

        def __init__(self, length, flag=False):
            super().__init__((length, length))

    v = Square(3, True)
    assert (v.shape, v.need_grad) == ((3, 3), False)
    assert (F.sum(v).shape, v.grad.shape) == ((), (3, 3))


def test_a_derived_variable_without_a_constructor_takes_arguments_of_variables():
    class Plain(nn.Variable):
        """A subclass without a constructor."""

    assert Plain((2, 3), need_grad=True, info="i").info == "i"
    with pytest.raises(TypeError, match="Variable: expected arguments shape, need_grad, info, got"):
        Plain((2, 3), key=1)
    with pytest.raises(TypeError, match=r"Variable: expected one shape, such as Variable\(\(1, 2, 3, 4\)\)"):
        nn.Variable(1, 2, 3, 4)


def test_a_solver_is_made_from_the_arguments_of_its_base_class():
    class Scaled(S.Momentum):
        """A solver whose constructor takes a rate and a scale."""

        def __init__(self, rate, scale, *, note):
            super().__init__(rate * scale, momentum=0.0)
            self.note = note

    solver = Scaled(0.25, 2, note="n")
    w = nn.Variable.from_numpy_array([1.0], need_grad=True)
    solver.set_parameters({"w": w})
    w.g = 1
    solver.update()
    assert (solver.name, solver.note, w.d.tolist()) == ("Momentum", "n", [0.5])
    with pytest.raises(nn.GraphError, match=r"Momentum.__init__: expected one call, got another"):
        solver.__init__(1, 2, note="")


@pytest.mark.parametrize(
    ("base", "error", "use"),
    [
        (nn.NdArray, nn.ClearedError, lambda a: a.data),
        (nn.NdArray, nn.ClearedError, F.sin),
        (nn.NdArray, nn.ClearedError, lambda a: a + 1),
        (nn.NdArray, nn.ClearedError, copy.copy),
        (nn.Variable, nn.ClearedError, lambda v: v.d),
        (nn.Variable, nn.ClearedError, lambda v: F.sin(v).forward()),
        (nn.Variable, nn.ClearedError, lambda v: (v + 1).forward()),
        *[
            (kind, nn.GraphError, use)
            for kind in (S.Sgd, S.Solver)
            for use in (
                lambda s: s.name,
                lambda s: s.info,
                lambda s: s.learning_rate(),
                lambda s: s.set_learning_rate(0.5),
                lambda s: s.set_parameters({}),
                lambda s: s.remove_parameters([]),
                lambda s: s.clear_parameters(),
                lambda s: s.get_parameters(),
                lambda s: s.get_states(),
                lambda s: s.set_states({}),
                lambda s: s.zero_grad(),
                lambda s: s.update(),
                lambda s: s.weight_decay(0.5),
                lambda s: s.weight_decay_is_fused(),
                lambda s: s.clip_grad_by_norm(1.0),
                lambda s: s.clip_grad_by_global_norm(1.0),
                lambda s: s.scale_grad(1.0),
                lambda s: s.check_inf_grad(),
                lambda s: s.check_nan_grad(),
                lambda s: s.check_inf_or_nan_grad(),
            )
        ],
        *[
            (_core.Function, nn.GraphError, use)
            for use in (
                lambda f: f.name,
                lambda f: f.info,
                lambda f: f.args,
                lambda f: f.tags,
                lambda f: f.inputs,
                lambda f: f.outputs,
                lambda f: f.rank,
                lambda f: f.need_grad,
                lambda f: f.context,
                lambda f: f.min_outputs(),
                lambda f: f.inplace_data(0),
                lambda f: f.forward([], []),
                lambda f: f(nn.Variable()),
                lambda f: setattr(nn.Variable(), "parent", f),
                str,
            )
        ],
    ],
)
def test_an_object_without_a_base_constructor_call_reports_it(base, error, use):
    made = derived(base, calls=False)("in", "bound")
    assert repr(made)
    assert made == made
    assert base is S.Solver or base is S.Sgd or made != derived(base, calls=False)("in", "bound")
    with pytest.raises(error, match="expected"):
        use(made)


def test_a_context_without_a_base_constructor_call_reports_it():
    """A derived `Context` that skips the base constructor raises RangeError when it is used."""
    made = derived(nn.Context, calls=False)("in", "bound")
    with pytest.raises(nn.RangeError, match="Context: expected one of the backends"):
        _ = made.compute_type


def test_functions_are_made_by_calls():
    """`Function` and `Solver` of the core cannot be constructed without their name."""
    with pytest.raises(TypeError, match=r"Function: expected a call of kinnor.functions"):
        _core.Function()
    with pytest.raises(nn.ParameterError, match=r"Solver: expected the name of a solver, got no argument"):
        _core.Solver()


def test_a_python_function_takes_its_context_from_its_base_alone():
    given = nn.Context(["cpu:half"])
    assert derived(_core.PythonFunction, calls=False)("in").ctx is None
    assert derived(_core.PythonFunction, given)("in").ctx is given
