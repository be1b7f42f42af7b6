"""A reference that computes something else does not agree with the right one: what `compared` can see."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.parity import reference
from launcher.parity.compare import Compared, compared, tolerances
from launcher.parity.reference import Options
from launcher.parity.reference_routers import Routing
from launcher.parity.runs import Trained, read_record
from launcher.rehearse.cpu.recorder import VARIABLE
from launcher.rehearse.random_weights import make_directory
from launcher.rehearse.sample_data import tokenizer_directory

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

CONFIG: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 512,
    "max_position_embeddings": 64,
    "torch_dtype": "float32",
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
_ITERATIONS = 3
_MODELS = {
    "qwen3": {**CONFIG, "model_type": "qwen3"},
    "qwen3_moe": {**CONFIG, **_EXPERTS, "model_type": "qwen3_moe"},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("models") / name
            make_directory(_MODELS[name], Path(tokenizer_directory()), made[name], spread=0.1)
        return made[name]

    return of


Train = Callable[..., Trained]


@pytest.fixture
def train(model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    numbers = iter(range(99))

    def run(name: str, **values: Any) -> Trained:
        record = tmp_path / f"record-{next(numbers)}.jsonl"
        monkeypatch.setenv(VARIABLE, str(record))
        generator = torch.Generator().manual_seed(1)
        samples = torch.randint(0, 256, (4 * _ITERATIONS, 16), generator=generator).tolist()
        # An epsilon as large as the gradients, and clipping and decay that change every step.
        given = Options(
            model=str(model(name)),
            out=str(tmp_path / record.stem),
            samples=samples,
            iterations=_ITERATIONS,
            global_batch_size=4,
            micro_batch_size=2,
            lr=1e-3,
            min_lr=1e-4,
            decay="cosine",
            warmup=1,
            decay_iters=_ITERATIONS,
            weight_decay=0.5,
            betas=(0.9, 0.95),
            eps=1e-3,
            clip_grad=0.1,
        )
        reference.train(replace(given, **values))
        return Trained(label="reference", iterations=read_record(record), problem="", command="", log="", seconds=0.0)

    return run


def beside(one: Trained, other: Trained) -> Compared:
    return compared(one, other, tolerances("fp32", one, None, None), iterations=_ITERATIONS)


def test_the_same_training_twice_agrees(train: Train) -> None:
    assert beside(train("qwen3"), train("qwen3")).agrees


class _Optimizer(torch.optim.AdamW):
    """AdamW whose step is written out, so that it can be written wrongly."""

    inside, corrected = False, True

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    self._update(group, parameter)

    def _update(self, group: Any, parameter: Any) -> None:
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        state["step"] = number = state.get("step", 0) + 1
        first = state["first"] = beta1 * state.get("first", 0.0) + (1 - beta1) * parameter.grad
        second = state["second"] = beta2 * state.get("second", 0.0) + (1 - beta2) * parameter.grad**2
        if self.corrected:
            first, second = first / (1 - beta1**number), second / (1 - beta2**number)
        root = (second + group["eps"]).sqrt() if self.inside else second.sqrt() + group["eps"]
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * first / root)


class _EpsilonInside(_Optimizer):
    inside = True


class _Uncorrected(_Optimizer):
    corrected = False


class _DecaysAll(_Optimizer):
    def __init__(self, groups: Any, **values: Any) -> None:
        super().__init__([{**group, "weight_decay": 0.5} for group in groups], **values)


OPTIMIZERS = {
    "as it is": (_Optimizer, True),
    "epsilon inside the root": (_EpsilonInside, False),
    "no bias correction": (_Uncorrected, False),
    "vectors decay too": (_DecaysAll, False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_another_optimizer_is_seen(train: Train, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    changed, agrees = OPTIMIZERS[name]
    right = train("qwen3")
    monkeypatch.setattr(torch.optim, "AdamW", changed)
    assert beside(right, train("qwen3")).agrees == agrees


def test_a_schedule_that_is_one_iteration_late_is_seen(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    right, rate = train("qwen3"), reference.rate
    monkeypatch.setattr(reference, "rate", lambda options, iteration: rate(options, iteration - 1 or 0))
    assert not beside(right, train("qwen3")).agrees


ROUTINGS = {
    "none": Routing(),
    "balancing": Routing(balancing=1.0),
    "more balancing": Routing(balancing=1.1),
    "in sequence": Routing(balancing=1.0, in_sequence=True),
    "z": Routing(z=0.01),
    "z, half": Routing(z=0.005),
    "capacity": Routing(capacity=0.75),
    "capacity by position": Routing(capacity=0.75, policy="position"),
    "more capacity": Routing(capacity=1.0),
}


def test_every_routing_is_another_training(train: Train) -> None:
    found = {name: train("qwen3_moe", routing=routing) for name, routing in ROUTINGS.items()}
    same = [(one, other) for one, other in _pairs(list(found)) if beside(found[one], found[other]).agrees]
    assert not same


def _pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    return ((one, other) for number, one in enumerate(names) for other in names[number + 1 :])


def test_capacity_for_every_token_drops_none(train: Train) -> None:
    assert beside(train("qwen3_moe"), train("qwen3_moe", routing=Routing(capacity=4.0))).agrees
