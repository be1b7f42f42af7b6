"""Pairs of the rules about names that Megatron-SWIFT looks up (rules/known_names.py)."""

from collections.abc import Mapping

from tests.backends.megatron.rule_pair import GRPO, Pair, args

NAMES: Mapping[str, Pair] = {
    "SW-TEMPLATE": Pair({"data": {"template": "qwen3_think"}}, {"data": {"template": "qwen3_thinking"}}),
    "SW-MODEL-TYPE": Pair(args(model_type="qwen3_mo"), args(model_type="qwen3_moe")),
    "SW-TEACHER-TYPE": Pair(
        {"task": GRPO, **args(teacher_model="Qwen/Qwen3-8B", teacher_model_type="qwen3-dense")},
        {"task": GRPO, **args(teacher_model="Qwen/Qwen3-8B", teacher_model_type="qwen3")},
    ),
    "SW-CP-COMM-NAMES": Pair(
        {"parallel": {"cp": 2}, **args(cp_comm_type="ring")}, {"parallel": {"cp": 2}, **args(cp_comm_type="a2a")}
    ),
    "SW-MUON-COEFFICIENTS": Pair(
        args(optimizer="muon", muon_coefficient_type="newton"), args(optimizer="muon", muon_coefficient_type="aol")
    ),
    "SW-MUON-SCALAR": Pair(
        args(optimizer="muon", muon_scalar_optimizer="adamw"), args(optimizer="muon", muon_scalar_optimizer="lion")
    ),
    "SW-LOSS-SCALE": Pair(args(loss_scale="default+react_en"), args(loss_scale="default+react")),
    "SW-AGENT-TEMPLATE": Pair(args(agent_template="kimi_k25"), args(agent_template="glm5_1"), "4.1.3"),
    "SW-AGENT-TEMPLATE-TOOLS": Pair(args(agent_template="kimi"), args(agent_template="kimi_k25")),
    "SW-REPORT-TO": Pair(args(report_to=["tensorboard", "mlflow"]), args(report_to=["tensorboard", "wandb"])),
    "SW-CALLBACKS": Pair(args(callbacks=["mine"]), args(callbacks=["mine"], external_plugins=["mine.py"])),
    "SW-REWARD-NAMES": Pair(
        {"task": GRPO, **args(reward_funcs=["exactness"])}, {"task": GRPO, **args(reward_funcs=["accuracy"])}
    ),
    "SW-MULTI-TURN-NAMES": Pair(
        {"task": GRPO, **args(multi_turn_scheduler="gym")}, {"task": GRPO, **args(multi_turn_scheduler="gym_scheduler")}
    ),
    "SW-GRPO-LOSS": Pair({"task": {**GRPO, "loss_type": "ppo"}}, {"task": {**GRPO, "loss_type": "dapo"}}),
    "SW-KTO-LOSS": Pair(
        {"task": {"type": "kto", "loss_type": "bco"}}, {"task": {"type": "kto", "loss_type": "apo_zero_unpaired"}}
    ),
    "SW-TASK-LOSS": Pair(
        args(task_type="embedding", loss_type="triplet"), args(task_type="embedding", loss_type="infonce")
    ),
    "SW-TASK-LOSS-NONE": Pair(args(task_type="embedding"), args(task_type="embedding", loss_type="infonce")),
    "SW-LORA-NAMES": Pair(
        args(tuner_type="lora", target_modules=["q_proj", "v_proj"]),
        args(tuner_type="lora", target_modules=["linear_qkv"]),
    ),
}
