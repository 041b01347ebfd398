"""Names of NNabla that Kinnor lacks, for error messages. Written by `make missing`; do not edit."""

from __future__ import annotations

PAGE = "docs/differences.md"
"""The page that lists the differences."""

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
    "core.graph_optimizer": (
        "IdentityRemover",
        "remove_function",
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
    "utils.cli.create_object_detection_dataset": (
        "ObjectRect",
        "convert_image",
    ),
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
    "utils.converter": (
        "func_dict_import_config",
        "func_set_export_yaml",
        "func_set_exporter_funcs_opset_yaml",
        "func_set_import_onnx_config",
        "func_set_import_onnx_opset",
        "func_set_nncr_support",
        "func_set_onnx_output_target_list",
        "func_set_onnx_support",
        "get_api_level_info",
        "get_category_info_string",
        "get_category_info_version",
        "load_yaml_ordered",
        "nnb_template",
        "type_to_pack_format",
    ),
    "utils.converter.commands": ("nnb_template",),
    "utils.converter.nnabla.exporter": ("rename_square_bracket",),
    "utils.converter.utils": (
        "create_context",
        "download_func_info_yaml",
        "extract_version_from_filename",
        "func_dict_import_config",
        "func_set_export_yaml",
        "func_set_exporter_funcs_opset_yaml",
        "func_set_get_from_repo",
        "func_set_import_onnx_config",
        "func_set_import_onnx_opset",
        "func_set_init",
        "func_set_nnabla_version_decorate",
        "func_set_nncr_support",
        "func_set_onnx_output_target_list",
        "func_set_onnx_support",
        "get_api_level_info",
        "get_category_info_string",
        "get_category_info_version",
        "load_function_info",
        "load_yaml_from_cache_dir",
        "load_yaml_ordered",
        "represent_odict",
        "type_to_pack_format",
    ),
    "utils.data_source_implements": (
        "CachePrefetcher",
        "CacheReaderWithPrefetch",
    ),
}
"""Missing names, by NNabla's module without the leading `nnabla.`."""

MODULES: tuple[str, ...] = (
    "core.sequential",
    "core.variable_batch_size",
    "experimental.framework.data",
    "experimental.framework.worker",
    "utils.audio_utils.pydub_utils",
    "utils.cli.compare_with_cpu",
    "utils.cli.uploader",
    "utils.converter.nnabla.opt_graph",
    "utils.converter.nnabla.opt_parser",
    "utils.converter.nnablart",
    "utils.image_utils.backend_events.cv2_backend",
    "utils.image_utils.backend_events.dicom_backend",
    "utils.nvml",
    "utils.save_function",
)
"""Modules without any counterpart in Kinnor."""
