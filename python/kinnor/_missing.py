"""What NNabla has and Kinnor has not, by module: for errors that say so. Written by `make missing`; do not edit."""

from __future__ import annotations

PAGE = "docs/differences.md"
"""Where it is told."""

NAMES: dict[str, tuple[str, ...]] = {
    "": ("add_available_context",),
    "communicator": (
        "Comm",
        "Dist",
    ),
    "core.graph_def": (
        "FlatModule",
        "LoopControlFunction",
        "ProtoGraphBuilder",
        "ProtoGraphGenerator",
        "RepeatInfo",
        "current_graph_builder",
        "current_module",
        "current_network",
        "module_scope",
        "proto_graph_builder",
    ),
    "core.module": (
        "MetaClass",
        "ParamMemo",
        "insert_parent_name",
    ),
    "experimental.framework": (
        "Data",
        "Worker",
    ),
    "function.Function": ("set_active_input_mask",),
    "grad": (
        "Grad",
        "GradEndFunction",
    ),
    "normalization_functions": ("BatchNormalizationInOutAdapter",),
    "utils.cli.convert": (
        "nnb_template_command",
        "resolve_file_format",
    ),
    "utils.cli.create_image_classification_dataset": ("convert_image",),
    "utils.cli.forward": ("infer",),
    "utils.cli.func_info": (
        "FuncInfo",
        "NnablaHandler",
        "NncrHandler",
        "OnnxHandler",
    ),
    "utils.cli.plot": (
        "add_plot_any_command",
        "plot_any_command",
    ),
    "utils.cli.profile": (
        "add_result",
        "profile",
        "profile_optimizer",
    ),
    "utils.cli.utility": (
        "NodeTimeInfoCollector",
        "collect_and_shape_result",
        "get_cpu_gpu_average_load",
        "lms_scheduler",
        "measure_cpu_gpu_instant_load",
        "sechdule_scope",
    ),
    "utils.data_source_implements": (
        "CachePrefetcher",
        "CacheReaderWithPrefetch",
    ),
    "utils.get_file_handle": (
        "FileHandlerContext",
        "get_buf_type",
        "get_decorated_file_loader",
        "get_default_file_savers",
        "get_initial_file_loader",
        "get_parameter_file_loader",
        "get_parameter_file_savers",
        "load_files",
        "load_solve_state_from_h5",
        "save_files",
    ),
}
"""Names that are missing, by the module of NNabla's, without the leading `nnabla.`, that has them."""

MODULES: tuple[str, ...] = (
    "core.graph_optimizer",
    "core.variable_batch_size",
    "experimental.framework.data",
    "experimental.framework.worker",
    "utils.audio_utils.pydub_utils",
    "utils.cli.compare_with_cpu",
    "utils.cli.create_object_detection_dataset",
    "utils.cli.optimize_model",
    "utils.cli.uploader",
    "utils.image_utils.backend_events.cv2_backend",
    "utils.image_utils.backend_events.dicom_backend",
    "utils.nvml",
    "utils.save_function",
)
"""Modules that are missing as a whole."""
