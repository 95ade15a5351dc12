"""Makes frontend/tests/data/formats.safetensors: weights as their publishers' own code quantises them, and the numbers
that the same code reads back.

Usage: python format_cases.py AUTOAWQ GPTQMODEL FILE, with torch (CPU), compressed-tensors 0.20, transformers 5.17, mlx 0.32
(CPU), safetensors and what GPTQModel imports installed, and the sources of AutoAWQ 0.2.9 and GPTQModel 7.7 in the folders
AUTOAWQ and GPTQMODEL.

A case is the tensors `CASE/NAME` and the numbers `CASE/=`; the metadata holds each case's `quantization_config`.
Numbers are computed in f32: where a publisher rounds each one to 16 bits at the end, that is left out.
"""

import json
import sys
import types

import numpy
import torch
from safetensors.torch import save_file

AWQ, GPTQ, FILE = sys.argv[1:4]
sys.path[:0] = [AWQ, GPTQ]
torch.manual_seed(1)
tensors, configs = {}, {}


def case(name, config, parts, numbers):
    assert name not in configs and torch.isfinite(numbers).all(), name
    configs[name] = config
    for part, tensor in parts.items():
        tensors[f"{name}/{part}"] = tensor.detach().clone().contiguous()
    tensors[f"{name}/="] = numbers.detach().float().clone().contiguous()


def compressed():
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    def ranges(weight, args):
        if args.strategy == "tensor":
            return weight.min().reshape(1), weight.max().reshape(1)
        if args.strategy == "channel":
            return weight.amin(1, True), weight.amax(1, True)
        if args.strategy == "block":
            rows, columns = args.block_structure
            blocks = [part.split(columns, 1) for part in weight.split(rows)]
            least = [[block.min() for block in row] for row in blocks]
            most = [[block.max() for block in row] for row in blocks]
            return torch.tensor(least), torch.tensor(most)
        groups = weight.unflatten(1, (-1, args.group_size))
        return groups.amin(2), groups.amax(2)

    def make(name, form, shape=(32, 128), dtype=torch.float32, order=False, **settings):
        args = QuantizationArgs(**settings)
        weight = torch.randn(shape)
        whole = (448 * 6 / weight.abs().max()).reshape(1) if args.strategy == "tensor_group" else None
        least, most = ranges(weight, args)
        scale, zero = calculate_qparams(least, most, args, global_scale=whole)
        scale = scale.to(dtype) if scale.dtype.is_floating_point and scale.dtype.itemsize > 1 else scale
        state = {"weight": weight, "weight_scale": scale.float() if scale.dtype.itemsize > 1 else scale}
        if not args.symmetric:
            state["weight_zero_point"] = zero.to(args.zp_dtype or torch.int8)
        if whole is not None:
            state["weight_global_scale"] = whole
        if order:
            state["weight_g_idx"] = torch.randperm(shape[1]).div(args.group_size, rounding_mode="floor").int()
            # Its own compressor takes the order apart from codes: quantised with it, packed without.
            from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
            group = state["weight_g_idx"].long()
            picked = scale.float()[:, group]
            zero_of = 0 if args.symmetric else state["weight_zero_point"].float()[:, group]
            codes = torch.clamp(torch.round(weight / picked + zero_of), -8, 7)
            parts = {
                "weight_packed": pack_to_int32(codes.to(torch.int8), args.num_bits),
                "weight_shape": torch.tensor(shape),
                "weight_scale": scale,
                "weight_g_idx": state["weight_g_idx"],
            }
            if not args.symmetric:
                parts["weight_zero_point"] = pack_to_int32(state["weight_zero_point"], args.num_bits, packed_dim=0)
            numbers = (codes - zero_of) * picked
        else:
            scheme = QuantizationScheme(targets=["Linear"], weights=args)
            compressor = BaseCompressor.get_value_from_registry(form)
            parts = compressor.compress(state, scheme)
            numbers = compressor.decompress(dict(parts), scheme)["weight"]
            if whole is not None:
                # What it does, but for rounding to 16 bits.
                from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
                from compressed_tensors.quantization.lifecycle.forward import dequantize
                numbers = dequantize(unpack_fp4_from_uint8(parts["weight_packed"], *shape, torch.float32),
                                     parts["weight_scale"].float(), args=args, global_scale=whole, dtype=torch.float32)
            if parts["weight_scale"].dtype == torch.float32:
                parts["weight_scale"] = parts["weight_scale"].to(dtype)
        group = {"targets": ["Linear"], "weights": json.loads(args.model_dump_json(exclude_none=True)), "format": form}
        config = {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}}
        case(name, config, parts, numbers)

    bf16 = torch.bfloat16
    for bits in (2, 3, 4, 5, 6, 8):
        make(f"ct-int{bits}", "pack-quantized", num_bits=bits, strategy="group", group_size=32, symmetric=True, dtype=bf16)
        make(f"ct-int{bits}-zeros", "pack-quantized", num_bits=bits, strategy="group", group_size=64, symmetric=False,
             dtype=bf16)
    make("ct-int4-channel", "pack-quantized", num_bits=4, strategy="channel", symmetric=True, dtype=torch.float16)
    make("ct-int4-channel-zeros", "pack-quantized", num_bits=4, strategy="channel", symmetric=False, shape=(20, 128))
    make("ct-int4-order", "pack-quantized", num_bits=4, strategy="group", group_size=32, symmetric=True, order=True)
    make("ct-int4-order-zeros", "pack-quantized", num_bits=4, strategy="group", group_size=32, symmetric=False, order=True)
    make("ct-w8a8", "int-quantized", num_bits=8, strategy="channel", symmetric=True, dtype=bf16)
    make("ct-w8a8-zeros", "int-quantized", num_bits=8, strategy="channel", symmetric=False)
    make("ct-w8a8-tensor", "int-quantized", num_bits=8, strategy="tensor", symmetric=True)
    fp8 = {"num_bits": 8, "type": "float", "symmetric": True}
    make("ct-fp8-tensor", "float-quantized", strategy="tensor", **fp8)
    make("ct-fp8-channel", "float-quantized", strategy="channel", dtype=bf16, **fp8)
    make("ct-fp8-group", "float-quantized", strategy="group", group_size=32, **fp8)
    make("ct-fp8-block", "float-quantized", strategy="block", block_structure=[128, 128], shape=(144, 256), **fp8)
    fp4 = {"num_bits": 4, "type": "float", "symmetric": True}
    make("ct-nvfp4", "nvfp4-pack-quantized", strategy="tensor_group", group_size=16, scale_dtype=torch.float8_e4m3fn, **fp4)
    make("ct-mxfp4", "mxfp4-pack-quantized", strategy="group", group_size=32, scale_dtype=torch.uint8, **fp4)
    make("ct-mxfp8", "mxfp8-quantized", strategy="group", group_size=32, scale_dtype=torch.uint8, **fp8)


def awq():
    for name in ("awq", "awq.modules", "awq.modules.linear", "awq.utils"):
        module = types.ModuleType(name)
        module.__path__ = [f"{AWQ}/{name.replace('.', '/')}"]
        sys.modules[name] = module
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    for name, group in (("awq", 32), ("awq-row", -1)):
        linear = torch.nn.Linear(128, 64, bias=False)
        each = 128 if group == -1 else group
        scales = (torch.rand(64, 128 // each) * 0.02 + 0.01).half()
        zeros = torch.randint(0, 16, (64, 128 // each))
        weight = torch.randint(0, 16, (64, 128)).sub(zeros.repeat_interleave(each, 1)) * scales.repeat_interleave(each, 1)
        linear.weight.data = weight
        # Its code runs where a GPU is.
        packed = WQLinear_GEMM.from_linear(linear, 4, each, scales=scales.T.contiguous(), zeros=zeros.T.contiguous())
        numbers = dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, each).T
        config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
        case(name, config, {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}, numbers)


def gptq():
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    for bits in (2, 3, 4, 8):
        for name, group, ordered in (("", 32, True), ("-row", -1, True), ("-order", 32, False)):
            each = 128 if group == -1 else group
            count = 128 // each
            for version in ("gptq", "gptq_v2"):
                top = 2 ** bits - 1
                scales = (torch.rand(32, count) * 0.02 + 0.01).half().float()
                zeros = torch.randint(1, top + 1, (32, count)).float()
                index = torch.arange(128) if ordered else torch.randperm(128)
                index = index.div(each, rounding_mode="floor").int()
                codes = torch.randint(0, top + 1, (32, 128)).float()
                linear = torch.nn.Linear(128, 32, bias=False)
                picked = index.long()
                linear.weight.data = scales[:, picked] * (codes - zeros[:, picked])
                layer = TorchLinear(bits=bits, group_size=group, sym=False, desc_act=not ordered, in_features=128,
                                    out_features=32, bias=False, pack_dtype=torch.int32, register_buffers=True)
                layer.pack_original(linear, scales, zeros, index)
                layer.post_init()
                layer.scales = layer.scales.float()
                numbers = layer.dequantize_weight().T
                assert torch.allclose(numbers.float(), linear.weight.data, atol=1e-3), (bits, name, version)
                parts = {"qweight": layer.qweight, "qzeros": layer.qzeros, "scales": layer.scales.half(), "g_idx": layer.g_idx}
                if version == "gptq":
                    # Of the older version each zero point is one less; no carry, as none is 0.
                    from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
                    convert_gptq_v2_to_v1_format_module(layer, quantize_config_of(bits))
                    parts["qzeros"] = layer.qzeros
                config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": not ordered, "sym": False,
                          "checkpoint_format": version}
                case(f"{version}-{bits}{name}", config, parts, scales[:, picked] * (codes - zeros[:, picked]))


def quantize_config_of(bits):
    return types.SimpleNamespace(bits=bits, pack_dtype=torch.int32, runtime_bits=bits)


def published():
    from transformers.integrations.bitnet import pack_weights, unpack_weights

    codes = torch.randint(-1, 2, (32, 128)).float()
    for name, config in (("bitnet", {}), ("bitnet-auto", {"linear_class": "autobitlinear", "quantization_mode": "offline"})):
        scale = torch.tensor([1.2188], dtype=torch.bfloat16)
        packed = pack_weights(codes)
        numbers = unpack_weights(packed, torch.float32)
        numbers = numbers * scale.float() if config else numbers * (1 / scale.float())
        case(name, {"quant_method": "bitnet", **config}, {"weight": packed, "weight_scale": scale}, numbers)

    e4m3 = torch.float8_e4m3fn
    weight = (torch.randn(144, 256) * 100).clamp(-448, 448).to(e4m3)
    scale = torch.rand(2, 2) * 0.01
    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:144]
    numbers = weight.float() * spread
    config = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    case("fp8-block", config, {"weight": weight, "weight_scale_inv": scale}, numbers)
    # Blocks of another size, and a scale for a whole matrix.
    small = weight[:48, :128].contiguous()
    scale = torch.rand(3, 4) * 0.01
    numbers = small.float() * scale.repeat_interleave(16, 0).repeat_interleave(32, 1)
    case("fp8-block-small", config | {"weight_block_size": [16, 32]}, {"weight": small, "weight_scale_inv": scale}, numbers)
    whole = torch.tensor(0.0123)
    config = {"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"}
    parts = {"weight": small, "weight_scale_inv": whole, "activation_scale": torch.tensor(0.5)}
    case("fp8-tensor", config, parts, small.float() * whole)
    rows = torch.rand(48, 1) * 0.01
    config = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
    case("fbgemm", config, {"weight": small, "weight_scale": rows, "input_scale_ub": torch.tensor([1200.0])}, small.float() * rows)
    config = {"quant_method": "modelopt", "quant_algo": "FP8"}
    parts = {"weight": small, "weight_scale": whole, "input_scale": torch.tensor(0.5)}
    case("modelopt-fp8", config, parts, small.float() * whole)
    # The halves of ModelOpt's NVFP4 are packed as compressed-tensors packs them; its second scale multiplies.
    packed = tensors["ct-nvfp4/weight_packed"]
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    codes = unpack_fp4_from_uint8(packed, 32, 128, torch.float32)
    scale, second = tensors["ct-nvfp4/weight_scale"], torch.tensor(0.000371)
    numbers = codes.float() * (scale.float() * second).repeat_interleave(16, 1)
    parts = {"weight": packed, "weight_scale": scale, "weight_scale_2": second, "input_scale": torch.tensor(0.1)}
    case("modelopt-nvfp4", {"quant_method": "modelopt", "quant_algo": "NVFP4"}, parts, numbers)

    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    blocks = torch.randint(0, 256, (2, 16, 4, 16), dtype=torch.uint8)
    scales = torch.randint(110, 135, (2, 16, 4), dtype=torch.uint8)
    numbers = convert_moe_packed_tensors(blocks.clone(), scales.clone(), dtype=torch.float32)
    case("gpt-oss", {"quant_method": "mxfp4"}, {"experts.up_blocks": blocks, "experts.up_scales": scales}, numbers)


def mlx():
    import mlx.core as mx

    def torch_of(array):
        if array.dtype == mx.bfloat16:
            bits = numpy.array(array.view(mx.uint16)).copy()
            return torch.from_numpy(bits.view(numpy.int16)).view(torch.bfloat16)
        return torch.from_numpy(numpy.array(array).copy())

    def make(name, settings, dtype=mx.float32):
        weight = mx.array(torch.randn(16, 256).numpy()).astype(dtype)
        parts = mx.quantize(weight, **settings)
        sides = [part.astype(mx.float32) if part.dtype in (mx.bfloat16, mx.float16) else part for part in parts[1:]]
        numbers = mx.dequantize(parts[0], *sides, **settings)
        named = dict(zip(("weight", "scales", "biases"), map(torch_of, parts)))
        case(name, settings, named, torch_of(numbers.astype(mx.float32)))

    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            make(f"mlx-{bits}-{group}", {"bits": bits, "group_size": group}, mx.bfloat16)
    for mode, bits, group in (("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)):
        make(f"mlx-{mode}", {"mode": mode, "bits": bits, "group_size": group})


steps = [compressed, awq, gptq, published, mlx]
for step in steps:
    step()
    print(step.__name__, len(configs), flush=True)
save_file(tensors, FILE, metadata={"cases": json.dumps(configs, separators=(",", ":"))})
