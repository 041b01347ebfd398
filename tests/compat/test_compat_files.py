"""Programs for NNabla with network files and direct calls of functions. Each test runs in its own process."""

from test_compat import run

NETWORK = '''
        TEXT = """
            global_config { default_context { backends: "cpu:float" array_class: "CpuCachedArray" device_id: "0" } }
            training_config { max_epoch: 2 iter_per_epoch: 4 save_best: true }
            network { name: "net" batch_size: 4
              variable { name: "x" type: "Buffer" shape { dim: -1 dim: 2 dim: 3 } }
              variable { name: "t" type: "Buffer" shape { dim: -1 dim: 1 } }
              variable { name: "s" type: "Buffer" shape { dim: -1 dim: 1 dim: 2 } }
              variable { name: "W" type: "Parameter" shape { dim: 2 dim: 1 }
                initializer { type: "Normal" multiplier: 1 } }
              variable { name: "b" type: "Parameter" shape { dim: 1 } initializer { type: "Constant" multiplier: 0 } }
              variable { name: "y" type: "Buffer" shape { dim: -1 dim: 1 } }
              variable { name: "e" type: "Buffer" shape { dim: -1 dim: 1 } }
              function { name: "slice" type: "Slice" input: "x" output: "s"
                slice_param { start: 0 start: 1 stop: 1 stop: 3 step: 1 step: 1 } }
              function { name: "affine" type: "Affine" input: "s" input: "W" input: "b" output: "y"
                affine_param { base_axis: 1 } }
              function { name: "error" type: "SquaredError" input: "y" input: "t" output: "e" }
            }
            dataset { name: "data" uri: "URI" batch_size: 4 shuffle: true no_image_normalization: true }
            optimizer { name: "train" network_name: "net" dataset_name: "data" update_interval: 1
              solver { type: "Adam" lr_decay: 0.5 lr_decay_interval: 3
                adam_param { alpha: 0.1 beta1: 0.9 beta2: 0.999 eps: 1e-8 } }
              data_variable { variable_name: "x" data_name: "x" }
              data_variable { variable_name: "t" data_name: "t" }
              loss_variable { variable_name: "e" }
              parameter_variable { variable_name: "W" learning_rate_multiplier: 1 }
              parameter_variable { variable_name: "b" learning_rate_multiplier: 0 } }
            executor { name: "run" network_name: "net" need_back_propagation: true
              data_variable { variable_name: "x" data_name: "x" }
              output_variable { variable_name: "y" data_name: "y" }
              loss_variable { variable_name: "e" }
              parameter_variable { variable_name: "W" learning_rate_multiplier: 1 } }
        """
        import io, pathlib, types, zipfile
        import numpy as np
        import nnabla as nn
        from nnabla.utils import load, save
        def csv(path):
            rows = [[*range(i, i + 6), i % 3] for i in range(8)]
            names = [f"x__{j}:x" for j in range(6)] + ["t"]
            path.write_text("\\n".join(",".join(map(str, row)) for row in [names, *rows]))
        def step(optimizer, batch):
            for node, name in optimizer.dataset_assign.items():
                node.variable_instance.d = batch[name].reshape(node.variable_instance.shape)
            optimizer.target.forward()
            optimizer.solver.zero_grad()
            optimizer.target.backward()
            optimizer.solver.update()
'''
"""The start of test programs: a file with a network and its training as text."""


def test_training_resumes_from_saved_states(tmp_path):
    """NNabla's functions save and restore parameters and solver states of a training."""
    run(f"""
        {NETWORK.strip()}
        from nnabla.utils.cli.utility import load_train_state, save_optimizer_states
        folder = pathlib.Path({str(tmp_path)!r})
        csv(folder / "data.csv")
        file = io.StringIO(TEXT.replace("URI", str(folder / "data.csv")))
        for ext in (".h5", ".protobuf"):
            nn.clear_parameters()
            file.seek(0)
            info = load.load(file)
            train = info.optimizers["train"]
            assert (train.lr_decay, train.lr_decay_interval) == (0.5, 3)
            assert info.executors["run"].loss_variables[0].name == "e"
            rng = np.random.RandomState(0)
            batches = [{{"x": rng.randn(4, 2, 3), "t": rng.randn(4, 1)}} for _ in range(6)]
            for batch in batches[:3]:
                step(train, batch)
            config = types.SimpleNamespace(optimizers={{"train": types.SimpleNamespace(optimizer=train)}})
            paths = save_optimizer_states(str(folder / "at"), ext, config)
            want = "at_train_Adam_optimizer.h5.optimizer" if ext == ".h5" else "at_optimizer.protobuf.optimizer"
            assert paths == [str(folder / want)], paths
            nn.save_parameters(str(folder / "at.h5"))
            with zipfile.ZipFile(folder / "state.nnp", "w") as archive:
                archive.write(folder / "at.h5", "parameter.h5")
                archive.write(paths[0], want[3:])
            for batch in batches[3:]:
                step(train, batch)
            trained = nn.get_parameters(grad_only=False)["W"].d.copy()
            nn.clear_parameters()
            file.seek(0)
            again = load.load(file, exclude_parameter=True)
            load_train_state(str(folder / "state.nnp"), again)
            for batch in batches[3:]:
                step(again.optimizers["train"], batch)
            assert np.array_equal(nn.get_parameters(grad_only=False)["W"].d, trained)
        try:
            save_optimizer_states("x", ".npz", config)
        except ValueError as error:
            assert "save_optimizer_states: expected `ext`" in str(error)
    """)


def test_states_of_solvers_alone_are_read_before_networks_are_built(tmp_path):
    run(f"""
        {NETWORK.strip()}
        folder = pathlib.Path({str(tmp_path)!r})
        csv(folder / "data.csv")
        info = load.load(io.StringIO(TEXT.replace("URI", str(folder / "data.csv"))))
        train = info.optimizers["train"]
        step(train, {{"x": np.ones((4, 2, 3)), "t": np.ones((4, 1))}})
        alone = {{"name": "train", "solver": train.solver, "network": "None", "dataset": "None", "weight_decay": 0,
                 "lr_decay": 1, "lr_decay_interval": 1, "update_interval": 1}}
        path = str(folder / "solver.nnp")
        save.save(path, {{"optimizers": [alone]}}, include_solver_state=True)
        read = load.base_load(path).optimizers["train"]
        read.solver.set_parameters({{"W": nn.get_parameters()["W"]}})
        load.restore_optimizer_state(read)
        states = [solver.get_states()["W"] for solver in (train.solver, read.solver)]
        assert states[0].t == states[1].t == 1
        for name, kept in states[0].pstate.items():
            assert np.array_equal(kept.d, states[1].pstate[name].d)
        whole = load.base_load(io.StringIO(TEXT.replace("URI", str(folder / "data.csv"))))
        assert not hasattr(whole.optimizers["train"], "network") and whole.optimizers["train"].target is None
        for network in whole.networks.values():
            network()
        load.link_components(whole)
        assert whole.optimizers["train"].target.shape == (4, 1)
    """)


def test_iterators_of_one_data_set_are_independent(tmp_path):
    run(f"""
        {NETWORK.strip()}
        folder = pathlib.Path({str(tmp_path)!r})
        csv(folder / "data.csv")
        def order(disturbed):
            make = load.load(io.StringIO(TEXT.replace("URI", str(folder / "data.csv")))).datasets["data"].data_iterator
            found = []
            with make() as first:
                assert first._shuffle
                for i in range(8):
                    found.append(first.next()[0][:, 0].tolist())
                    if disturbed:
                        with make() as other:
                            [other.next() for _ in range(i + 1)]
            return found
        plain = order(False)
        assert order(True) == plain and len({{str(plain[i : i + 2]) for i in range(0, 8, 2)}}) > 2
    """)


def test_an_existing_cache_is_read_instead_of_the_file(tmp_path):
    run(f"""
        {NETWORK.strip()}
        from nnabla.utils.create_cache import CreateCache
        folder = pathlib.Path({str(tmp_path)!r})
        data, cache = folder / "data.csv", folder / "cache"
        csv(data)
        def firsts(more):
            text = TEXT.replace('uri: "URI"', f'uri: "{{data}}" cache_dir: "{{cache}}" {{more}}')
            text = text.replace("shuffle: true", "")
            with load.load(io.StringIO(text)).datasets["data"].data_iterator() as batches:
                return [x for _ in range(2) for x in batches.next()[0][:, 0].tolist()]
        assert firsts("create_cache_explicitly: true") == list(range(8)) and not cache.exists()
        CreateCache(data, np.random.RandomState(0), shuffle=True).create(cache, normalize=False)
        kept = firsts("")
        assert kept != list(range(8)) and sorted(kept) == list(range(8))
        before = {{file: file.read_bytes() for file in cache.iterdir()}}
        assert firsts("overwrite_cache: true") == list(range(8))
        assert before == {{file: file.read_bytes() for file in cache.iterdir()}}
        data.unlink()
        assert firsts("") == kept
    """)


def test_functions_run_directly():
    """Function objects are set up, run forward and backward by calls of their methods, as in NNabla."""
    run("""
        import numpy as np
        import nnabla as nn
        import nnabla.function as F
        from nnabla.utils import nnabla_pb2
        from nnabla.utils.load_function import _create_function_instance
        x = nn.Variable((2, 3), need_grad=True)
        w, y = nn.Variable((3, 4), need_grad=True), nn.Variable()
        rng = np.random.RandomState(0)
        x.d, w.d = rng.randn(2, 3).astype(np.float32), rng.randn(3, 4).astype(np.float32)
        affine = F.Affine(nn.get_current_context(), base_axis=1)
        try:
            affine.forward([x, w], [y])
        except RuntimeError as error:
            assert "Affine.forward: expected `setup`" in str(error)
        with nn.auto_forward():
            affine.setup([x, w], [y])
        assert affine.name == "Affine" and y.shape == (2, 4) and y.parent is None and not x.function_references
        affine.forward([x, w], [y])
        np.testing.assert_allclose(y.d, x.d @ w.d, rtol=1e-5, atol=1e-6)
        y.g, x.g, w.g = 1, 5, 5
        affine.backward([x, w], [y], [True, False])
        np.testing.assert_allclose(x.g, 5 + np.ones((2, 4)) @ w.d.T, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(w.g, x.d.T @ np.ones((2, 4)), rtol=1e-5, atol=1e-6)
        affine.backward([x, w], [y])
        np.testing.assert_allclose(x.g, np.ones((2, 4)) @ w.d.T, rtol=1e-5, atol=1e-6)
        message = nnabla_pb2.Function(type="Split")
        message.split_param.axis = 1
        split = _create_function_instance(nn.get_current_context(), message)
        parts = [nn.Variable() for _ in range(3)]
        split.setup([x], parts)
        split.forward([x], parts)
        assert all(np.allclose(part.d, x.d[:, i]) for i, part in enumerate(parts))
        assert [part.shape for part in split(x)] == [(2,)] * 3
    """)
