"""A scope belongs to the task that entered it, through a context of `contextvars`, and not to its thread."""

import asyncio
import contextvars
import threading

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import autodiff

HALF = nn.Context(["cpu:half"])
"""A context that computes in half precision."""


def built():
    """Returns the output of a function of a new leaf."""
    x = nn.Variable.from_numpy_array(np.ones(3, np.float32), need_grad=True)
    return F.exp(x)


def has_grad():
    """True if gradients are enabled in the current scope."""
    return built().need_grad


def is_at_once():
    """True if functions run eagerly in the current scope."""
    y = built()
    return y.data.modification_count == 1


def is_recomputed():
    """Returns the `recompute` flags of a new function's output and of a new leaf in the current scope."""
    return built().recompute, nn.Variable((2,)).recompute


def is_half():
    """Returns the context of a new function, and if the current context is the object `HALF`."""
    return built().parent.context.backend, nn.get_current_context() is HALF


ROOT = nn.get_current_parameter_scope()
"""The parameter scope outside all scopes."""


def is_at_root():
    """True if the current parameter scope is the root. Creates parameters there."""
    PF.affine(nn.Variable((2, 3)), 4)
    return nn.get_current_parameter_scope() is ROOT


def budget():
    """Returns "refused" if a memory budget in the current scope refuses a run, else "runs"."""
    h = nn.Variable.from_numpy_array(np.ones((2, 1000), np.float32), need_grad=True)
    for _ in range(4):
        h = F.tanh(h)
    try:
        F.sum(h).forward()
    except nn.BudgetError:
        return "refused"
    return "runs"


def anomaly():
    """Returns "refused" if anomaly detection in the current scope finds a NaN, else "runs"."""
    y = F.sum(F.pow_scalar(nn.Variable.from_numpy_array(np.array([-1.0], np.float32)), 0.5))
    try:
        y.forward()
    except nn.GraphError:
        return "refused"
    return "runs"


SCOPES = {
    "no_grad": (nn.no_grad, has_grad),
    "set_grad_enabled": (lambda: autodiff.set_grad_enabled(False), has_grad),
    "auto_forward": (nn.auto_forward, is_at_once),
    "recompute": (nn.recompute, is_recomputed),
    "context_scope": (lambda: nn.context_scope(HALF), is_half),
    "parameter_scope": (lambda: nn.parameter_scope("inner"), is_at_root),
    "memory_budget": (lambda: nn.memory_budget(1000), budget),
    "detect_anomaly": (autodiff.detect_anomaly, anomaly),
    "place": (lambda: nn.place(3), lambda: built().parent.context.device_id),
}
"""By name: enters a scope, and observes its effect."""


@pytest.fixture(params=SCOPES)
def scope(request):
    """Returns how to enter a scope, a function that observes it, and the observations outside and within."""
    enter, look = SCOPES[request.param]
    outside = look()
    with enter():
        within = look()
    assert within != outside
    assert look() == outside
    return enter, look, outside, within


def run(*tasks):
    """Runs coroutines as tasks of one event loop. Their steps alternate."""

    async def main():
        """Runs the coroutines concurrently."""
        return await asyncio.gather(*tasks)

    return asyncio.run(main())


async def steps(n=1):
    """Suspends the task `n` times, so that other tasks run."""
    for _ in range(n):
        await asyncio.sleep(0)


def test_other_tasks_do_not_see_it(scope):
    """A scope that one task entered does not apply to another task of the event loop."""
    enter, look, outside, within = scope
    seen = []

    async def inside():
        """Observes from within the scope."""
        with enter():
            for _ in range(4):
                seen.append(("inside", look()))
                await steps()
        seen.append(("left", look()))

    async def beside():
        """Observes from another task."""
        for _ in range(6):
            seen.append(("beside", look()))
            await steps()

    run(inside(), beside())
    expected = {"inside": within, "left": outside, "beside": outside}
    assert [value for _, value in seen] == [expected[where] for where, _ in seen]
    assert look() == outside


@pytest.mark.parametrize("shared", [False, True])
def test_exits_in_any_order(scope, shared):
    """Several tasks may enter one scope object."""
    enter, look, outside, within = scope
    one = enter() if shared else None
    if hasattr(one, "entered"):
        with one:
            pass
    else:
        one = None
    seen = []

    async def task(before, within_for):
        """Enters the scope after some steps, and observes in and after it."""
        await steps(before)
        with one or enter():
            for _ in range(within_for):
                seen.append(look())
                await steps()
            seen.append(look())
        return look()

    left = run(task(0, 2), task(1, 4), task(2, 1), task(0, 6))
    assert all(value == within for value in seen)
    assert left == [outside] * 4
    assert look() == outside


def test_scopes_of_one_task_that_are_left_in_another_order(scope):
    """Generators leave their scopes in such an order."""
    enter, look, outside, _ = scope

    def held():
        """A generator that holds the scope."""
        with enter():
            yield

    for order in ([0, 1], [1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1]):
        generators = [held() for _ in order]
        for generator in generators:
            next(generator)
            assert look() != outside
        for left, i in enumerate(order, 1):
            generators[i].close()
            assert (look() != outside) == (left < len(order)), order
        assert look() == outside


def test_a_task_begins_in_the_scopes_of_its_creator(scope):
    """A task inherits the scopes that were active when it was created."""
    enter, look, outside, within = scope

    async def child(n):
        """Observes after some steps."""
        await steps(n)
        return look()

    async def parent():
        """Creates tasks outside of the scope and in it."""
        before = asyncio.create_task(child(4))
        with enter():
            made = asyncio.create_task(child(4))
            await steps()
        await steps()
        return await before, await made, look()

    assert asyncio.run(parent()) == (outside, within, outside)
    with enter():
        assert asyncio.run(child(2)) == within
    assert look() == outside


def test_a_thread_begins_in_no_scope(scope):
    """A new thread starts outside all scopes; `asyncio.to_thread` keeps the task's scopes."""
    enter, look, outside, within = scope
    seen = []

    async def main():
        """Observes in threads with and without the context of the task."""
        with enter():
            inherited = await asyncio.to_thread(look)
        plain = await asyncio.to_thread(look)
        return inherited, plain

    with enter():
        thread = threading.Thread(target=lambda: seen.append(look()))
        thread.start()
        thread.join()
        inside = asyncio.run(main())
    assert seen == [outside]
    assert look() == outside
    assert inside == (within, within)
    assert asyncio.run(main()) == (within, outside)


def test_a_context_run_by_the_program(scope):
    """Code that runs in a copied context observes the scopes of that context."""
    enter, look, outside, within = scope
    context = contextvars.copy_context()

    def entered():
        """Observes within the scope."""
        with enter():
            return look()

    assert context.run(entered) == within
    assert context.run(look) == look() == outside
    with enter():
        inside = contextvars.copy_context()
    assert inside.run(look) == within
    assert look() == outside

    async def main():
        """Observes in a copied context after the scope has ended."""
        with enter():
            held = contextvars.copy_context()
            await steps()
        return held.run(look), look()

    assert asyncio.run(main()) == (within, outside)


def test_gradients_of_a_task_beside_no_grad():
    """A task gets gradients while another task waits under `no_grad`."""

    async def predict():
        """Waits under `no_grad`."""
        with nn.no_grad():
            await steps(3)

    async def train():
        """Runs a training step. Returns the gradient."""
        await steps()
        w = nn.Variable.from_numpy_array(np.ones(3, np.float32), need_grad=True)
        y = F.sum(w * w)
        y.forward()
        w.grad.zero()
        y.backward()
        return w.g.copy()

    _, g = run(predict(), train())
    assert g.tolist() == [2, 2, 2]


def test_parameters_of_tasks_are_found_and_saved(tmp_path):
    PF.affine(nn.Variable((2, 3)), 4, name="before")

    async def task(name, n):
        """Creates parameters in a scope of its own."""
        with nn.parameter_scope(name):
            await steps(n)
            PF.affine(nn.Variable((2, 3)), 4)

    run(task("p", 2), task("q", 3))
    PF.affine(nn.Variable((2, 3)), 4, name="after")
    nn.save_parameters(tmp_path / "all.h5")
    nn.clear_parameters()
    nn.load_parameters(tmp_path / "all.h5")
    assert {name.split("/")[0] for name in nn.get_parameters()} == {"before", "after", "p", "q"}


def test_a_parametric_function_that_fails_in_one_task():
    """Its own parameters are removed, and parameters of other tasks stay."""

    @PF.parametric_function_api("failing", [])
    def failing(x, fix_parameters=False):
        """A parametric function that raises after it has registered parameters."""
        PF.affine(x, 4)
        raise ZeroDivisionError

    async def fails():
        """Calls the failing function in the scope `p`."""
        with nn.parameter_scope("p"):
            await steps()
            with pytest.raises(ZeroDivisionError):
                failing(nn.Variable((2, 3)))

    async def works():
        """Creates parameters in the scope `q`."""
        with nn.parameter_scope("q"):
            await steps()
            PF.affine(nn.Variable((2, 3)), 4)

    run(fails(), works())
    assert sorted(nn.get_parameters()) == ["q/affine/W", "q/affine/b"]


def test_modes_that_are_set_within_scopes():
    """A mode that a call sets within a scope of that mode ends with the scope. Scopes of other modes leave it."""
    with nn.auto_forward():
        autodiff.set_grad_enabled(False)
    assert not autodiff.is_grad_enabled()
    with nn.no_grad():
        autodiff.set_grad_enabled(True)
        assert autodiff.is_grad_enabled()
    assert not autodiff.is_grad_enabled()
    autodiff.set_grad_enabled(True)
    with nn.no_grad():
        with nn.recompute():
            autodiff.set_grad_enabled(True)
        assert autodiff.is_grad_enabled()
    assert autodiff.is_grad_enabled()

    async def sets():
        """Disables gradients in its task."""
        autodiff.set_grad_enabled(False)
        await steps(2)
        return autodiff.is_grad_enabled()

    async def looks():
        """Observes the mode in another task."""
        await steps()
        return autodiff.is_grad_enabled()

    assert run(sets(), looks()) == [False, True]
    assert autodiff.is_grad_enabled()


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_decorated_functions_of_several_steps(kind):
    """A decorator with a mode holds at each step of a generator or coroutine, and not in between."""

    @nn.no_grad()
    def generator():
        """Yields the mode at each step."""
        yield has_grad()
        yield has_grad()

    @nn.no_grad()
    async def coroutine():
        """Returns the mode before and after a suspension."""
        first = has_grad()
        await steps()
        return [first, has_grad()]

    async def beside():
        """Returns the mode of another task."""
        return [has_grad(), (await steps()), has_grad()]

    if kind == "generator":
        assert [(value, has_grad()) for value in generator()] == [(False, True)] * 2
    else:
        assert run(coroutine(), beside()) == [[False, False], [True, None, True]]


def test_a_generator_that_is_closed_by_another_task(scope):
    """Closing the generator raises an error, as the scope stays open, and leaves no scope of that task."""
    enter, look, outside, within = scope

    def held():
        """A generator that holds the scope."""
        with enter():
            yield

    async def opens(found):
        """Starts the generator within the scope."""
        with enter():
            found.append(held())
            next(found[0])
            await steps(3)
            return look()

    async def closes(found):
        """Closes the generator of the other task."""
        await steps(2)
        with enter():
            with pytest.raises(nn.GraphError, match=r"expected task '.*', which entered the block, to leave it"):
                found[0].close()
            await steps(3)
            inside = look()
        return inside, look()

    found = []
    kept, (inside, left) = run(opens(found), closes(found))
    assert kept != outside
    assert (inside, left) == (within, outside)
    assert look() == outside


@pytest.mark.parametrize("ends", [False, True])
def test_a_generator_that_is_closed_by_another_thread(scope, ends):
    """An error if the thread that holds the scope still runs. If it has ended, nothing is left open."""
    enter, look, outside, _ = scope
    begun, done, seen = threading.Event(), threading.Event(), []

    def held():
        """A generator that holds the scope."""
        with enter():
            yield

    generator = held()

    def opens():
        """Starts the generator, and looks at the mode once it is closed."""
        next(generator)
        begun.set()
        if not ends:
            done.wait(20)
            seen.append(look())

    thread = threading.Thread(target=opens, name="opens")
    thread.start()
    begun.wait(20)
    if ends:
        thread.join()
        generator.close()
    else:
        with pytest.raises(nn.GraphError, match="expected thread 'opens', which entered the block, to leave it"):
            generator.close()
    done.set()
    thread.join()
    assert look() == outside
    assert outside not in seen


def test_an_asynchronous_generator_that_the_event_loop_closes():
    """The loop closes a generator whose loop is left, in a task of its own: it says so, as the mode stays on."""
    messages = []

    async def held():
        """An asynchronous generator that holds a mode."""
        with nn.no_grad():
            yield 1
            yield 2

    async def main():
        """Leaves the loop over the generator early."""
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: messages.append(context["exception"]))
        async for _ in held():
            break
        await steps(5)

    asyncio.run(main())
    assert [type(error) for error in messages] == [nn.GraphError]


@pytest.mark.parametrize("n_turns", [500])
def test_one_scope_object_in_several_threads(n_turns):
    """Threads that share a scope object do not leave each other's blocks."""
    one, wrong = nn.no_grad(), []

    def work():
        """Enters and leaves the scope many times."""
        try:
            for _ in range(n_turns):
                with one:
                    pass
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
