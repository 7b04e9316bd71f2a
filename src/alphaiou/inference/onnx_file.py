"""Write an exported program as an ONNX file, with fp32, fp16 or int8 weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram

from alphaiou._files import write_file

if TYPE_CHECKING:
    import onnx

#: The operators with most of the weights.
LAYERS = ("Conv", "Gemm", "MatMul")
OUTPUTS = {True: ["boxes", "scores", "labels"], False: ["boxes", "scores"]}


def write_onnx(program: ExportedProgram, path: Path, facts: Mapping[str, Any]) -> None:
    """Write a program as an ONNX file.

    Args:
        program: The program, from ``images`` to detections.
        path: The file to write.
        facts: The metadata of the file; values that are no text become JSON.
    """
    converted = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        input_names=["images"],
        output_names=OUTPUTS[facts["nms"]],
        custom_translation_table={
            torch.ops.alphaiou.keep_best.default: _keep_best,
            torch.ops.aten.sort.stable: _stable_sort,
        },
    )
    assert converted is not None
    model: onnx.ModelProto = converted.model_proto
    if facts["precision"] == "fp16":
        model = with_half_weights(model)
    elif facts["precision"] == "int8":
        model = with_int8_weights(model)
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        model.metadata_props.add(key=key, value=text)
    write_file(path, model.SerializeToString())


def with_half_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert the network to fp16 by onnxruntime; boxes, scores and NMS stay in fp32."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    network = _network(model)
    halved: onnx.ModelProto = convert_float_to_float16(
        model,
        keep_io_types=True,
        disable_shape_infer=True,
        node_block_list=[node.name for node in model.graph.node if node.name not in network],
    )
    # A value that several nodes take is cast for each of them, by nodes of one name.
    nodes = {node.name: node for node in halved.graph.node}.values()
    unique = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del halved.graph.node[:]
    halved.graph.node.extend(unique)
    return halved


def with_int8_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Quantise the weights by onnxruntime's dynamic quantisation, of activations as they come."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(model, before)
        # The processor's ConvInteger takes unsigned weights alone.
        quantize_dynamic(before, after, weight_type=QuantType.QUInt8)
        return onnx.load(after)


def _network(model: onnx.ModelProto) -> set[str]:
    """Return the names of the nodes whose values depend on the image and lead to a layer.

    Not among them are positions, which depend on the size of the image alone, and proposals, which
    follow a TopK: both need more digits than fp16 has.
    """
    nodes = list(model.graph.node)
    layers = {node.name for node in nodes if node.op_type in LAYERS}
    after_layer = _downstream(nodes, {"images"}, through=lambda node: node.op_type != "Shape")
    chosen = {value for node in nodes if node.op_type == "TopK" for value in node.output}
    after_choice = _downstream(nodes, chosen, through=lambda node: node.name not in layers)
    needed: set[str] = set()
    upstream: set[str] = set()
    for node in reversed(nodes):
        if node.name in layers or needed.intersection(node.output):
            upstream.add(node.name)
            needed.update(node.input)
    return layers | ((upstream & after_layer) - after_choice)


def _downstream(
    nodes: Sequence[onnx.NodeProto],
    values: set[str],
    *,
    through: Callable[[onnx.NodeProto], bool],
) -> set[str]:
    """Return the names of the nodes that depend on some values, in the order of a model."""
    values, found = set(values), set()
    for node in nodes:
        if values.intersection(node.input) and through(node):
            found.add(node.name)
            values.update(node.output)
    return found


def _stable_sort(
    values: Any,  # noqa: ANN401
    stable: bool = True,
    dim: int = -1,
    descending: bool = False,
) -> tuple[Any, Any]:
    """Translate a stable sort to TopK, which returns the lower index first if values are equal."""
    from onnxscript import opset18

    op: Any = opset18  # whose types are those of single operators
    size = op.Gather(op.Shape(values), op.Constant(value_ints=[dim]))
    sorted_values, indices = op.TopK(values, size, axis=dim, largest=int(descending), sorted=1)
    return sorted_values, indices


def _keep_best(boxes: Any, groups: Any, valid: Any, threshold: float) -> Any:  # noqa: ANN401
    """Translate ``keep_best`` to ONNX's NonMaxSuppression, whose classes are the groups."""
    from onnxscript import opset18

    op: Any = opset18  # whose types are those of single operators
    shape = op.Shape(groups)
    candidates = op.Gather(shape, op.Constant(value_int=1))
    zero, one = op.Constant(value_int=0), op.Constant(value_int=1)
    # Candidates are sorted, so ranks serve as scores; empty slots have none.
    ranks = op.Cast(op.Range(candidates, zero, op.Neg(one)), to=1)
    nothing = op.Constant(value_float=0.0)
    scores = op.Unsqueeze(op.Where(valid, ranks, nothing), op.Constant(value_ints=[1]))
    classes = op.Range(zero, op.Add(op.ReduceMax(groups, keepdims=0), one), one)
    of_class = op.Equal(
        op.Unsqueeze(groups, op.Constant(value_ints=[1])),
        op.Unsqueeze(classes, op.Constant(value_ints=[1])),
    )
    selected = op.NonMaxSuppression(
        boxes,
        op.Where(of_class, scores, nothing),
        op.Unsqueeze(candidates, op.Constant(value_ints=[0])),
        op.Constant(value_floats=[threshold]),
        op.Constant(value_floats=[0.0]),
    )
    places = op.Gather(selected, op.Constant(value_ints=[0, 2]), axis=1)
    rows = op.Gather(op.Shape(selected), op.Constant(value_ints=[0]))
    kept = op.ScatterND(op.Expand(zero, shape), places, op.Expand(one, rows))
    return op.Cast(kept, to=9)
