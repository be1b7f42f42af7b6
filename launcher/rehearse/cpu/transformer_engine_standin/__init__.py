"""A stand-in for NVIDIA Transformer Engine in plain torch, so that backends which require it train unmodified on CPU.

It has what megatron-core 0.12 to 0.16 and layers built on it import and call, under the names, parameter names and
tensor attributes of TransformerEngine 2.9: a checkpoint written here has the keys of one written on a GPU. Numbers are
those of the unfused formulas. Features that it does not implement (fp8 and fp4 arithmetic, user-buffer overlap) run
in the parameters' dtype, or raise an error.
"""

from launcher.rehearse.cpu.transformer_engine_standin.register import VERSION, register

__all__ = ["VERSION", "register"]
