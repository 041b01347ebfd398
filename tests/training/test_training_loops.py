"""Training loops: the callbacks that are called, and their order."""

from kinnor.experimental.framework import Evaluator, Trainer, Updater


def test_a_training():
    """A training calls its callbacks in the right order, from loading to saving."""
    seen = []

    class Worker:
        """Stands for a training program: it records the calls of all its methods, and answers some."""

        def __getattr__(self, name):
            def note(*args):
                """Records the call and returns the answer of the method."""
                seen.append((name, *args))
                return {"load_checkpoint": 2, "max_epoch": 1, "iter_per_epoch": 2, "brief": "well"}.get(name)

            return note

    trainer = Trainer(Worker())
    trainer.train()
    names = [name for name, *_ in seen]
    assert names[:3] == ["load_checkpoint", "training_prepare", "save_model_at_start"]
    assert [entry for entry in seen if entry[0] == "update_in_iteration"] == [
        ("update_in_iteration", 0, 2),
        ("update_in_iteration", 1, 2),
    ]
    assert names[-4:] == [
        "save_checkpoint_at_epoch_end",
        "evaluate_at_training_end",
        "save_model_at_end",
        "training_complete",
    ]
    assert (trainer.start_epoch, trainer.brief()) == (2, "well")


def test_a_step_and_an_evaluation():
    """`Updater` and `Evaluator` call their callbacks in the right order."""
    seen = []

    def note(name):
        """Returns a callback that records its calls."""
        return lambda *args: seen.append((name, *args))

    updater = Updater(
        note("feed"),
        note("zero"),
        note("update"),
        note("forward"),
        note("backward"),
        loss_forward_callback_on_start=note("before forward"),
        loss_backward_callback_on_finish=[note("after backward"), note("and then")],
        comm_all_reduce=note("reduce"),
        accum_grad=2,
        comm=object(),
        grads=[None],
    )
    updater.update(3, 1)
    run = ["feed", "before forward", "forward", "backward", "after backward", "and then"]
    assert [name for name, *_ in seen] == ["zero", *run, *run, "reduce", "update"]
    assert seen[1] == ("feed", 3, 1, 0)
    seen.clear()
    Evaluator(note("feed"), note("forward"), note("start"), note("finish"), val_iter=2).evaluate(4)
    assert seen == [("start", 4), *[(name, 4, i) for i in range(2) for name in ("feed", "forward")], ("finish", 4)]
