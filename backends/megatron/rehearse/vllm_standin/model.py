"""The model that an engine generates with: transformers' own, from the tensors that a trainer exports."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from backends.megatron.rehearse.vllm_standin.params import CompletionOutput, Logprob, Request, RequestOutput

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_SHOWN = 5


class ServedModel:
    """What vLLM calls the model of its worker: takes weights under the names of the model's files."""

    def __init__(self, folder: str, overrides: Mapping[str, Any], dtype: str) -> None:
        from transformers import AutoConfig

        self.ends = _ends_in(Path(folder))
        self.config = AutoConfig.from_pretrained(folder)
        for name, value in overrides.items():
            setattr(self.config, name, value)
        self.dtype = _DTYPES[dtype]
        self.served: Any = None

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Replace all weights.

        Raises:
            ValueError: a tensor of the model is missing, has no place in it or another shape.
        """
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING
        from transformers.utils import logging

        # Copies: the trainer's own tensors change, and are taken from it, while this model generates.
        state = {name: tensor.detach().to(self.dtype, copy=True) for name, tensor in weights}
        logging.disable_progress_bar()
        with _not_drawn(), _own_positions():
            model, found = MODEL_FOR_CAUSAL_LM_MAPPING[type(self.config)].from_pretrained(
                None, config=self.config, state_dict=state, dtype=self.dtype, output_loading_info=True
            )
        wrong = {name: sorted(map(str, found.get(name) or ())) for name in ("missing_keys", "unexpected_keys")}
        wrong["mismatched_keys"] = sorted(map(str, found.get("mismatched_keys") or ()))
        said = [f"{len(names)} {kind} ({', '.join(names[:_SHOWN])})" for kind, names in wrong.items() if names]
        if said:
            raise ValueError(f"the exported weights are not those of {self.config.model_type}: {'; '.join(said)}")
        self.served = model.eval()

    def drop_weights(self) -> None:
        """Forget the weights, as memory that was given back does."""
        self.served = None

    def answers(self, requests: Sequence[Request], seed: int) -> list[RequestOutput]:
        """Return one answer to each of several requests that are drawn alike."""
        if self.served is None:
            raise RuntimeError("the engine has no weights: none were loaded since it was made, or since sleep(2)")
        with _not_drawn(), torch.no_grad():
            torch.default_generator.manual_seed(seed)
            drawn = self._generated(requests)
        return [self._output(index, request, drawn) for index, request in enumerate(requests)]

    def _generated(self, requests: Sequence[Request]) -> Any:
        from transformers import GenerationConfig

        params, longest = requests[0].params, max(len(request.prompt) for request in requests)
        padded = [[0] * (longest - len(request.prompt)) + request.prompt for request in requests]
        seen = [[0] * (longest - len(request.prompt)) + [1] * len(request.prompt) for request in requests]
        greedy = params.temperature == 0
        drawing = {
            "temperature": params.temperature,
            "top_k": max(params.top_k, 0),
            "top_p": params.top_p,
            "min_p": params.min_p or None,
        }
        config = GenerationConfig(
            do_sample=not greedy,
            **({} if greedy else drawing),
            repetition_penalty=params.repetition_penalty,
            max_new_tokens=max(_most(request) for request in requests),
            eos_token_id=self._ends(requests[0]) or None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
        found = self.served.generate(
            input_ids=torch.tensor(padded), attention_mask=torch.tensor(seen), generation_config=config
        )
        return found.sequences[:, longest:], torch.stack(found.scores, 1).float().log_softmax(-1)

    def _ends(self, request: Request) -> list[int]:
        """Return the tokens that end an answer: those of the request and the model's own."""
        return sorted({*(request.params.stop_token_ids or ()), *self.ends})

    def _output(self, index: int, request: Request, drawn: Any) -> RequestOutput:
        tokens = drawn[0][index].tolist()[: _most(request)]
        ends = self._ends(request)
        last = next((place for place, token in enumerate(tokens) if token in ends), None)
        tokens = tokens if last is None else tokens[: last + 1]
        chances = drawn[1][index]
        answer = CompletionOutput(
            index=0,
            token_ids=tokens,
            logprobs=None
            if request.params.logprobs is None
            else [{token: Logprob(logprob=chances[place, token].item())} for place, token in enumerate(tokens)],
            finish_reason="length" if last is None else "stop",
        )
        return RequestOutput(request_id=request.id, prompt_token_ids=request.prompt, outputs=[answer])


def _ends_in(folder: Path) -> set[int]:
    """Return the tokens that end an answer by generation_config.json and config.json, both of which vLLM reads."""
    ends: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        own = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") if file.is_file() else None
        ends |= set(own) if isinstance(own, list) else set() if own is None else {own}
    return ends


def _most(request: Request) -> int:
    """Return the number of tokens that an answer may have."""
    asked = request.params.max_tokens
    return request.room if asked is None else min(asked, request.room)


@contextlib.contextmanager
def _own_positions() -> Iterator[None]:
    """Build a model with transformers' rotary positions: mcore-bridge adds its own to them (model/rope.py:115)."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    changed = dict(ROPE_INIT_FUNCTIONS)
    own = {name: function for name, function in changed.items() if function.__module__.startswith("transformers.")}
    try:
        ROPE_INIT_FUNCTIONS.clear()
        ROPE_INIT_FUNCTIONS.update(own)
        yield
    finally:
        ROPE_INIT_FUNCTIONS.update(changed)


@contextlib.contextmanager
def _not_drawn() -> Iterator[None]:
    """Leave the random numbers of the training as they are."""
    state = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(state)
