"""The kernels of a decoding step compile for Ampere and Hopper as launched, without a GPU, and hardly spill."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import triton
from on_chip import SMEM_BYTES, stack_bytes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nsa.attention.compress import make_phi
from nsa.attention.pages import PagedCache
from nsa.config import ModelConfig
from nsa.kernels.decode import triton as decode

TYPES = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.int32: "i32"}
KERNELS = ("step_kernel",)
SHAPES = {
    "64/4 heads of 128": {"n_heads": 64, "n_kv_groups": 4, "d_k": 128, "d_v": 128},
    "the 125M model": {"n_heads": 12, "n_kv_groups": 2, "d_k": 64, "d_v": 64},
}


class Recorder:
    """In a kernel's place: keeps what it is launched with."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return self.launch

    def launch(self, *args, num_warps, num_stages, enable_fp_fusion, **constants):
        self.args, self.constants = args, constants
        self.options = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": enable_fp_fusion}

    def compiled(self, capability):
        names = [p.name for p in self.kernel.params]
        given = dict(zip(names, self.args, strict=False))
        signature, attributes = {}, {}
        for i, name in enumerate(names):
            value = given.get(name)
            if isinstance(value, torch.Tensor):
                signature[name] = f"*{TYPES[value.dtype]}"
                attributes[(i,)] = [["tt.divisibility", 16]]
            elif name in given:
                signature[name] = "fp32" if isinstance(value, float) else "i32"
            else:
                signature[name] = "constexpr"
        constants = {name: self.constants[name] for name, kind in signature.items() if kind == "constexpr"}
        source = ASTSource(self.kernel, signature, constexprs=constants, attrs=attributes)
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=self.options)


def launched(monkeypatch, *, n_rows, **sizes):
    """What one step at 64k tokens launches."""
    config = ModelConfig(dim=64, n_layers=1, l=32, d=16, l_slc=64, n=16, w=512, **sizes)
    recorders = {name: Recorder(getattr(decode, name)) for name in KERNELS}
    for name, recorder in recorders.items():
        monkeypatch.setattr(decode, name, recorder)
    half = {"dtype": torch.bfloat16, "device": torch.device("meta")}
    cache = PagedCache(config, n_rows=n_rows, max_tokens=65536, **half)
    phis = [make_phi("mlp", l=32, width=width).to(**half) for width in (config.d_k, config.d_v)]
    H, K = config.n_heads, 3 * config.n_kv_groups
    shapes = (H, config.d_k), (K, config.d_k), (K, config.d_v), (H, 3)
    given = [torch.empty(n_rows, *shape, **half) for shape in shapes]
    decode.decode(*given, cache.layers[0], cache.place, *phis, config.layout)
    return recorders


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "n_rows", "capability"),
    [
        ("64/4 heads of 128", 1, 90),
        pytest.param("64/4 heads of 128", 16, 90, marks=pytest.mark.long),
        pytest.param("64/4 heads of 128", 16, 80, marks=pytest.mark.long),
        ("the 125M model", 1, 80),
    ],
)
def test_a_step_fits_the_machine_and_its_registers(shape, n_rows, capability, monkeypatch, tmp_path):
    for name, recorder in launched(monkeypatch, n_rows=n_rows, **SHAPES[shape]).items():
        binary = recorder.compiled(capability)
        assert binary.metadata.shared <= SMEM_BYTES[capability], name
        assert stack_bytes(binary, tmp_path) <= 64, name
