"""vLLM's engine in the process of the trainer: requests, sleep, and the groups of its tensor parallelism."""

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from backends.megatron.rehearse.vllm_standin.model import ServedModel
from backends.megatron.rehearse.vllm_standin.params import EngineArgs, Request, RequestOutput, SamplingParams

_WEIGHTS, _CACHE = "weights", "kv_cache"
# What is not drawn alike where one of these differs.
_ALIKE = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop_token_ids")
_ABSENT = ("frequency_penalty", "presence_penalty", "prompt_logprobs")
_DEFAULT_LENGTH, _DEFAULT_BATCH = 2048, 256
_SEED_STEP = 1_000_003
_tensor_parallel = SimpleNamespace(device_group=None)


class Executor:
    """Holds the model where ms-swift looks for it, and what sleeps."""

    def __init__(self, model: ServedModel) -> None:
        worker = SimpleNamespace(model_runner=SimpleNamespace(model=model))
        self.driver_worker = SimpleNamespace(worker=worker)
        self.sleeping: set[str] = set()

    @property
    def is_sleeping(self) -> bool:
        """Whether weights or cache sleep."""
        return bool(self.sleeping)


class LLMEngine:
    """Answers requests with the weights that were loaded last."""

    def __init__(self, args: EngineArgs) -> None:
        self.model_config = SimpleNamespace(model=args.model)
        self._model = ServedModel(args.model, args.hf_overrides, args.dtype)
        self.model_executor = Executor(self._model)
        self._load, self._model.load_weights = self._model.load_weights, self._load_weights  # type: ignore[method-assign]
        self._length, self._batch = args.max_model_len or _DEFAULT_LENGTH, args.max_num_seqs or _DEFAULT_BATCH
        self._seed, self._drawn = args.seed, 0
        self._waiting: list[Request] = []

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> "LLMEngine":
        """Return an engine; every rank makes one at once."""
        if args.enable_lora:
            raise NotImplementedError(
                "a rehearsal's engine has no adapters beside the weights: vllm_enable_lora false merges them before "
                "each generation"
            )
        if args.tensor_parallel_size > 1:
            _tensor_parallel.device_group = _group(args.tensor_parallel_size)
        return cls(args)

    def _load_weights(self, weights: Any) -> None:
        if _WEIGHTS in self.model_executor.sleeping:
            raise RuntimeError("weights are loaded into an engine that sleeps")
        self._load(weights)

    def add_request(self, request_id: str, prompt: Mapping[str, Any], params: SamplingParams, **_kwargs: Any) -> None:
        """Queue a request."""
        if "multi_modal_data" in prompt:
            raise NotImplementedError("a rehearsal generates from text alone")
        asked = [name for name in _ABSENT if getattr(params, name)]
        if asked or params.n != 1:
            raise NotImplementedError(f"a rehearsal's engine does not know {', '.join(asked) or 'n above 1'}")
        tokens = [int(token) for token in prompt["prompt_token_ids"]]
        if len(tokens) >= self._length:
            raise ValueError(f"a prompt of {len(tokens)} tokens does not fit max_model_len {self._length}")
        room = self._length - len(tokens)
        self._waiting.append(Request(id=request_id, prompt=tokens, params=params, room=room))

    def has_unfinished_requests(self) -> bool:
        """Return whether requests wait."""
        return bool(self._waiting)

    def step(self) -> list[RequestOutput]:
        """Return the answers to the requests that wait longest and are drawn alike."""
        if self.model_executor.is_sleeping:
            raise RuntimeError(f"an engine generates whose {' and '.join(sorted(self.model_executor.sleeping))} sleep")
        key = _drawn_as(self._waiting[0])
        now = [request for request in self._waiting if _drawn_as(request) == key][: self._batch]
        self._waiting = [request for request in self._waiting if request not in now]
        seed = now[0].params.seed
        self._drawn += seed is None
        return self._model.answers(now, self._seed * _SEED_STEP + self._drawn if seed is None else seed)

    def sleep(self, level: int = 1) -> None:
        """Give memory back: level 1 offloads the weights to the host, level 2 drops them."""
        self.model_executor.sleeping = {_WEIGHTS, _CACHE}
        if level > 1:
            self._model.drop_weights()

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Take memory again, for all or for what is named."""
        self.model_executor.sleeping -= set(tags or (_WEIGHTS, _CACHE))

    def reset_prefix_cache(self) -> None:
        """Nothing is cached."""

    def reset_mm_cache(self) -> None:
        """Nothing is cached."""

    def reset_encoder_cache(self) -> None:
        """Nothing is cached."""


def _drawn_as(request: Request) -> list[Any]:
    values = dataclasses.asdict(request.params)
    return [values[name] for name in _ALIKE]


def _group(size: int) -> Any:
    """Return this rank's group of neighbours; every rank makes every group."""
    import torch.distributed as dist

    blocks = [list(range(first, first + size)) for first in range(0, dist.get_world_size(), size)]
    groups = [dist.new_group(block) for block in blocks]
    return groups[dist.get_rank() // size]


def tensor_parallel_group() -> Any:
    """Return what vLLM's get_tp_group does, with the group of this rank."""
    return _tensor_parallel
