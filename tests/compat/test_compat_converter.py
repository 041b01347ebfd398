"""NNabla's converter, and its file loaders by extension. Each test runs in its own process."""

from test_compat import run

NETWORKS = '''
        TEXT = """
            network { name: "main" batch_size: 4
              variable { name: "x" type: "Buffer" shape { dim: -1 dim: 3 } }
              variable { name: "a/W" type: "Parameter" shape { dim: 3 dim: 3 }
                initializer { type: "Normal" multiplier: 1 } }
              variable { name: "h" type: "Buffer" shape { dim: -1 dim: 3 } }
              variable { name: "y" type: "Buffer" shape { dim: -1 dim: 3 } }
              function { name: "a" type: "Affine" input: "x" input: "a/W" output: "h" affine_param { base_axis: 1 } }
              function { name: "s" type: "Sigmoid" input: "h" output: "y" } }
            network { name: "loop" batch_size: 4 repeat_info { id: "r" times: 3 }
              variable { name: "x" type: "Buffer" shape { dim: -1 dim: 3 } }
              variable { name: "s" type: "Buffer" repeat_id: "r" shape { dim: -1 dim: 3 } }
              variable { name: "b{r}/W" type: "Parameter" repeat_id: "r" shape { dim: 3 dim: 3 }
                initializer { type: "Normal" multiplier: 1 } }
              variable { name: "h" type: "Buffer" repeat_id: "r" shape { dim: -1 dim: 3 } }
              variable { name: "e" type: "Buffer" shape { dim: -1 dim: 3 } }
              variable { name: "y" type: "Buffer" shape { dim: -1 dim: 3 } }
              function { name: "start" type: "RepeatStart" repeat_id: "r" input: "x" input: "h" output: "s"
                repeat_param { repeat_id: "r" times: 3 } }
              function { name: "b" type: "Affine" repeat_id: "r" input: "s" input: "b{r}/W" output: "h"
                affine_param { base_axis: 1 } }
              function { name: "end" type: "RepeatEnd" input: "h" output: "e"
                repeat_param { repeat_id: "r" times: 3 } }
              function { name: "t" type: "Tanh" input: "e" output: "y" } }
            optimizer { name: "train" network_name: "loop" solver { type: "Sgd" sgd_param { lr: 0.5 } }
              loss_variable { variable_name: "y" }
              parameter_variable { variable_name: "b{r}/W" learning_rate_multiplier: 2 } }
            executor { name: "run" network_name: "main" output_variable { variable_name: "y" } }
            executor { name: "turns" network_name: "loop" output_variable { variable_name: "y" }
              data_variable { variable_name: "x" data_name: "x" }
              parameter_variable { variable_name: "b{r}/W" } }
        """
        import io, os, types, zipfile
        import numpy as np
        import nnabla as nn
        import nnabla.utils.converter as converter
        import nnabla.utils.get_file_handle as handle
        from nnabla.utils import load, nnabla_pb2
        from nnabla.utils.converter.nnabla import NnpExpander, NnpExporter, NnpImporter
        def members(path):
            return sorted(zipfile.ZipFile(path).namelist())
        def refused(kind, told, call, *args):
            try:
                call(*args)
            except kind as error:
                assert told in str(error), error
            else:
                raise AssertionError(told)
'''
"""The start of test programs: a file with two networks as text."""


def test_files_are_imported_expanded_and_exported(tmp_path):
    """NNabla's importer, expander and exporter convert network files."""
    run(f"""
        {NETWORKS.strip()}
        os.chdir({str(tmp_path)!r})
        open("a.nntxt", "w").write(TEXT)
        read = NnpImporter("a.nntxt", "readme.txt").execute()
        assert read.other_files == ["readme.txt"]
        assert [network.name for network in read.protobuf.network] == ["main", "loop"]
        # Parameters missing in the file are drawn, but only for the first executor, as in NNabla.
        drawn, = read.protobuf.parameter
        want = np.random.RandomState(0).randn(3, 3)
        assert drawn.variable_name == "a/W" and drawn.need_grad
        np.testing.assert_allclose(np.reshape(drawn.data, (3, 3)), want, rtol=1e-6)
        assert converter.func_set_import_nnp(read) == {{"Affine", "Sigmoid"}} < converter.func_set_nnabla_support()
        assert converter.search_network(read, "loop").batch_size == 4 and converter.search_network(read, "z") is None
        assert converter.select_executor(read).name == "run"
        assert converter.calc_shape_size(read.protobuf.network[0].variable[0].shape, 5) == 15
        alone = NnpImporter("a.nntxt", executor_index=1).execute().protobuf
        assert [n.name for n in alone.network] == ["loop"] and [e.name for e in alone.executor] == ["turns"]

        for kind in ("protobuf", "h5", "included", "none"):
            want = sorted(["network.nntxt", "nnp_version.txt"] + ["parameter." + kind] * (kind in ("protobuf", "h5")))
            NnpExporter(read, 4, kind).execute(kind + ".nnp")
            os.mkdir(kind)
            NnpExporter(read, 4, kind).execute(kind)
            assert members(kind + ".nnp") == sorted(os.listdir(kind)) == want, kind
            again = NnpImporter(kind + ".nnp").execute().protobuf
            assert list(again.parameter[0].data) == list(drawn.data)  # drawn again if missing
        refused(ValueError, "expected `parameter_type`", NnpExporter, read, 4, "npz")
        refused(ValueError, "expected a folder or a name", NnpExporter(read, 4).execute, "a.zip")

        whole = NnpExpander(read.protobuf).execute()
        assert not any(network.repeat_info for network in whole.network)
        names = ["b[0]/W", "b[1]/W", "b[2]/W"]
        assert [v.name for v in whole.network[1].variable if v.type == "Parameter"] == names
        assert [v.variable_name for v in whole.executor[1].parameter_variable] == names
        rates = [(v.variable_name, v.learning_rate_multiplier) for v in whole.optimizer[0].parameter_variable]
        assert rates == [(name, 2) for name in names]
        x, found = np.random.RandomState(1).randn(4, 3), []
        for proto in (read.protobuf, whole):
            nn.clear_parameters()
            path = "proto.protobuf"
            open(path, "wb").write(proto.SerializeToString())
            turns = load.load(path).executors["turns"]
            next(iter(turns.dataset_assign)).variable_instance.d = x
            turns.forward_target.forward()
            found += [node.variable_instance.d.copy() for node in turns.output_assign]
        assert np.array_equal(*found)
    """)


def test_files_are_converted(tmp_path):
    """`convert_files` converts network files with each of its options."""
    run(f"""
        {NETWORKS.strip()}
        os.chdir({str(tmp_path)!r})
        open("a.nntxt", "w").write(TEXT)
        def args(**wanted):
            return types.SimpleNamespace(**wanted)
        assert converter.convert_files(args(), ["a.nntxt"], "b.nnp") is True
        assert members("b.nnp") == ["network.nntxt", "nnp_version.txt", "parameter.protobuf"]
        assert not any(n.repeat_info for n in NnpImporter("b.nnp").execute().protobuf.network)
        kept = args(nnp_no_expand_network=True, nnp_parameter_h5=True)
        assert converter.convert_files(kept, ["a.nntxt"], "c.nnp") and "parameter.h5" in members("c.nnp")
        assert any(n.repeat_info for n in NnpImporter("c.nnp").execute().protobuf.network)
        without = args(nnp_exclude_parameter=True, nnp_import_executor_index=0)
        assert converter.convert_files(without, ["c.nnp"], "d.nnp")
        assert members("d.nnp") == ["network.nntxt", "nnp_version.txt"]
        assert list(nn.graph_def.load("d.nnp").networks) == ["main"]
        assert converter.convert_files(args(define_version="opset_13"), ["d.nnp"], "e.onnx")
        assert converter.convert_files(args(), ["e.onnx"], "f.nnp")
        x = nn.Variable.from_numpy_array(np.ones((4, 3)))
        y, again = (nn.graph_def.load(path)(x) for path in ("b.nnp", "f.nnp"))
        nn.forward_all([y, again])
        np.testing.assert_allclose(y.d, again.d, rtol=1e-5)
        assert converter.convert_files(args(), ["b.nnp"], "g.protobuf")
        assert nn.graph_def.load("g.protobuf").get_parameters()["a/W"].shape == (3, 3)
        assert converter.convert_files(args(), ["a.nntxt"], "b.tflite") is False
        assert converter.dump_files(args(dump_functions=True), ["b.nnp"])
        split = args(split="0-1")
        refused(Exception, "networks are converted whole", converter.convert_files, split, ["b.nnp"], "g.nnp")
    """)


def test_file_loaders_by_extension(tmp_path):
    """Each registered file handler loads networks or parameters by the extension of a file."""
    run(f"""
        {NETWORKS.strip()}
        import nnabla.functions as F, nnabla.parametric_functions as PF, nnabla.solvers as S
        os.chdir({str(tmp_path)!r})
        open("a.nntxt", "w").write(TEXT)
        PF.affine(nn.Variable((2, 3)), 2, name="q")
        nn.save_parameters("q.h5")
        nn.save_parameters("q.protobuf")
        names = ["q/affine/W", "q/affine/b"]
        def context(**given):
            made = handle.FileHandlerContext()
            vars(made).update(given)
            return made
        def proto_names(made):
            return [p.variable_name for p in made.proto.parameter]
        for path in ("q.h5", "q.protobuf"):
            nn.clear_parameters()
            made = context(needs_proto=True)
            handle.load_files(made, handle.get_parameter_file_loader(), path)
            assert list(nn.get_parameters()) == proto_names(made) == names
        nn.clear_parameters()
        scope = dict()
        made = context(proto=nnabla_pb2.NNablaProtoBuf(), parameter_scope=scope)
        handle.load_files(made, handle.get_parameter_file_loader(), open("q.h5", "rb"), ".h5")
        assert not nn.get_parameters() and list(scope) == ["q"] and not proto_names(made)
        handle.load_files(made, handle.get_parameter_file_loader(), "nothing.xyz")  # warns

        NnpExporter(NnpImporter("a.nntxt").execute(), 4).execute("a.nnp")
        for path in ("a.nntxt", "a.nnp"):
            for leaves_out in (False, True):
                nn.clear_parameters()
                made = context(exclude_parameter=leaves_out, parameter_only=False)
                handle.load_files(made, handle.get_initial_file_loader(), [path])
                assert [network.name for network in made.proto.network] == ["main", "loop"]
                assert list(nn.get_parameters()) == (["a/W"] if path == "a.nnp" and not leaves_out else [])

        w = nn.Variable.from_numpy_array(np.ones((2, 2)), need_grad=True)
        solver = S.Adam()
        solver.set_parameters(dict(w=w))
        w.g = 1
        solver.update()
        solver.save_states("s.h5")
        state = handle.load_solve_state_from_h5(None, "s.h5")["w"]
        assert state.t == 1 and sorted(state.pstate) == ["mean", "var"]
        optimizer = types.SimpleNamespace(name="train", solver=solver)
        made = context(proto=made.proto, parameters=dict(k=w), optimizers=dict(train=optimizer))
        endings = (".nnp", ".nntxt", ".protobuf", ".xyz")
        for format in (".h5", ".protobuf"):
            savers = handle.get_default_file_savers(format, format)
            assert [handle.save_files(made, savers, "t" + end) for end in endings] == [True, True, True, False]
            state_file = f"train_Adam_optimizer{{format}}.optimizer"
            assert members("t.nnp") == sorted(["network.nntxt", "nnp_version.txt", "parameter" + format, state_file])
            assert handle.get_buf_type(state_file) == format[1:]
            later = context()
            handle.load_files(later, handle.get_initial_file_loader(), "t.nnp")
            assert later.optimizer_states_checkpoint["train"][0] == format
            fresh = S.Adam()
            fresh.set_parameters(dict(w=w))
            named = types.SimpleNamespace(name="train", solver=fresh)
            handle.load_files(context(optimizers=dict(train=named)), handle.get_decorated_file_loader(), "t.nnp")
            assert fresh.get_states()["w"].t == 1
        assert handle.save_files(made, handle.get_parameter_file_savers(), ["u.h5", "u.protobuf"])
        nn.clear_parameters()
        nn.load_parameters("u.h5")
        assert list(nn.get_parameters()) == ["k"]
        refused(ValueError, "get_buf_type: expected a name", handle.get_buf_type, "plain")
        open("x_Adam_optimizer.protobuf.optimizer", "wb").write(b"\\xff" * 9)
        bad = "x_Adam_optimizer.protobuf.optimizer"
        refused(ValueError, "expected states", handle.load_files, context(), handle.get_initial_file_loader(), bad)
    """)


def test_products_by_parameters_become_affine_layers(tmp_path):
    """The function behind NNabla's `optimize` replaces matrix products by `Affine`."""
    run(f"""
        {NETWORKS.strip()}
        import argparse
        import nnabla.functions as F, nnabla.parametric_functions as PF
        from nnabla.utils.cli import optimize_model
        from nnabla.utils.save import save
        os.chdir({str(tmp_path)!r})
        x, (w, b) = nn.Variable((2, 3)), [nn.parameter.get_parameter_or_create(n, s, np.random.RandomState(0).randn(*s))
                                          for n, s in (("w", (3, 4)), ("b", (4,)))]
        def product(x):
            return F.batch_matmul(F.reshape(x, (1, 2, 3), False), F.reshape(w, (1, 3, 4), False))
        def flat(y):
            return F.reshape(y, (2, 4), False)
        def outside(y):
            return F.reshape(b, (1, 4), False)
        cases = dict(
            plain=(lambda: flat(product(x)), ["Reshape", "Affine", "Reshape"]),
            bias=(lambda: flat(product(x)) + outside(b), ["Reshape", "Affine", "Reshape"]),
            other_side=(lambda: F.tanh(outside(b) + flat(product(x))), ["Reshape", "Affine", "Reshape", "Tanh"]),
            twice=(lambda: flat(product(F.slice(flat(product(x)) + b, (0, 0), (2, 3)))) + b,
                   ["Reshape", "Affine", "Reshape", "Slice", "Reshape", "Affine", "Reshape"]),
            transposed=(lambda: F.batch_matmul(x, F.transpose(w, (1, 0)), False, True), ["Transpose", "BatchMatmul"]),
            variable=(lambda: F.batch_matmul(x, F.transpose(x, (1, 0))), ["Transpose", "BatchMatmul"]),
            other_sum=(lambda: product(x) + flat(product(x)), None),
        )
        x.d = np.random.RandomState(1).randn(2, 3)
        for name, (make, types) in cases.items():
            y = make()
            network = dict(name="net", batch_size=2, outputs=dict(y=y), names=dict(x=x))
            save("a.nnp", dict(networks=[network]), variable_batch_size=False)
            optimize_model.optimization_command(argparse.Namespace(input_file=["a.nnp"], output_file=["b.nnp"]))
            graph = nn.graph_def.load("b.nnp")
            again = graph(x)
            nn.forward_all([y, again])
            np.testing.assert_allclose(again.d, y.d, rtol=1e-5, atol=1e-6, err_msg=name)
            assert graph.outputs == ["y"] and graph.inputs == ["x"]
            found = [f.type for f in graph.default_graph().forward_sequence()]
            assert types is None or found == types, (name, found)
        parser = argparse.ArgumentParser()
        optimize_model.add_optimize_command(parser.add_subparsers())
        parsed = parser.parse_args(["optimize", "a.nnp", "c.nnp"])
        parsed.func(parsed)
        assert os.path.exists("c.nnp")
        refused(TypeError, "add_subparsers", optimize_model.add_optimize_command, parser)
        for files in ((["a.pb"], ["b.pb"]), (["a.nnp"], ["b.onnx"])):
            wrong = argparse.Namespace(input_file=files[0], output_file=files[1])
            refused(Exception, "expected a name that ends in .nnp", optimize_model.optimization_command, wrong)
    """)
