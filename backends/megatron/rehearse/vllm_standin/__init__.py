"""A stand-in for vLLM, so that ms-swift's GRPO and GKD trainers generate their answers on CPU, in the same processes.

It has what ms-swift 4.6.0's own engine (swift/infer_engine/vllm_engine.py) imports and calls, under vLLM's names.
Answers are drawn by transformers' `generate` from the weights that the trainer exports before each generation: every
tensor must arrive under the name that the model's files have, or the run ends. As in vLLM, weights are gone after
`sleep(2)`, and an engine that sleeps neither loads nor generates. Not in it: vLLM's kernels, cache, scheduler and their
memory; shards of tensor parallelism (each rank of a group holds the whole model and draws the group's answers, with the
group's seed); adapters beside the weights, images, structured output, servers.
"""

from backends.megatron.rehearse.vllm_standin.register import VERSION, register

__all__ = ["VERSION", "register"]
