"""Pipelines, packing and expert padding that MindFormers rejects or trains differently."""

from collections.abc import Mapping
from typing import Any

from backends.mindformers.mapping.loader import HANDLER, HUB, TYPE
from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.terms import (
    BACKENDS,
    CP,
    INTERLEAVE,
    MICRO,
    PP,
    SCHEDULER,
    SP,
    STATIC,
    chunks_of,
    declared_chunks,
    is_counted,
    layers_of,
    model_key,
    size_of,
)
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare

_CHECKS = "mindformers 2.1.0 tools/check_rules.py"
_SCHEDULERS = ("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v")


def _packs_shifted(context: RuleContext) -> Any:
    handlers = context[HANDLER]
    if context[TYPE] != HUB or not isinstance(handlers, (list, tuple)):
        return None
    kinds = [each.get("type") for each in handlers if isinstance(each, Mapping)]
    packers = [each for each in handlers if isinstance(each, Mapping) and each.get("type") == "PackingHandler"]
    return (
        "AlpacaInstructDataHandler" in kinds
        and any(each.get("pack_strategy", "pack") == "pack" for each in packers)
        and "PackingHandler shifts the labels that AlpacaInstructDataHandler has shifted: a token is trained to "
        "predict the second token after it"
    )


def _pads(context: RuleContext) -> Any:
    handlers = context[HANDLER]
    listed = handlers if isinstance(handlers, (list, tuple)) else ()
    return context[TYPE] == HUB and not any(
        isinstance(each, Mapping) and each.get("type") == "PackingHandler" for each in listed
    )


def _micro(context: RuleContext) -> Any:
    pp, count = size_of(context, PP), size_of(context, MICRO)
    if context[SCHEDULER] == "zero_bubble_v":
        return count < 2 * pp and f"zero_bubble_v: {count} micro-batches are fewer than 2 × pp {pp}"
    return is_counted(context) and pp > 1 and count < pp and f"{count} micro-batches are fewer than pp {pp}"


def _scheduler(context: RuleContext) -> Any:
    name = context[SCHEDULER]
    if name is not None and name not in _SCHEDULERS:
        return f"pipeline_scheduler {name}: supported are {', '.join(_SCHEDULERS)}"
    return (
        context[INTERLEAVE] is False and name not in (None, "1f1b") and f"pipeline_scheduler {name} needs chunks (vpp)"
    )


def _zero_bubble(context: RuleContext) -> Any:
    if context[SCHEDULER] != "zero_bubble_v":
        return None
    recompute = context["recompute_config.recompute"]
    flat = isinstance(recompute, (list, tuple)) and (
        len(recompute) < 2 or all(isinstance(item, (int, bool)) for item in recompute)
    )
    chunks, stages = declared_chunks(context), size_of(context, PP)
    if chunks != 2 or stages < 2:
        return f"zero_bubble_v needs vpp 2 and pp of at least 2, not vpp {chunks} and pp {stages}"
    if model_key(context, "experimental_attention_variant") == "dsa":
        return "zero_bubble_v does not support sparse attention (dsa)"
    return flat and "zero_bubble_v needs recompute counts for each stage of both chunks: [[…], […]]"


PIPELINE = (
    Rule(
        id="MF-FINE-GRAIN",
        doc="Fine-grained interleaving overlaps the communication of split sequences.",
        source=f"{_CHECKS} (_check_config_campacity)",
        when=f"{MODEL}fine_grain_interleave>1 & !{SP}",
        check=lambda context: size_of(context, CP) == 1,
        flags=(MODEL + "fine_grain_interleave", SP, CP),
        fields=("parallel.sequence_parallel",),
        message="fine_grain_interleave needs sequence or context parallelism",
    ),
    Rule(
        id="MF-MICRO-BATCHES",
        doc="Every stage needs a micro-batch; the graph compiler refuses fewer, after everything was read.",
        source="libmindspore_frontend: MicroBatch size can't be less than stage num; "
        "mindformers 2.1.0 parallel_core/transformer_config.py:2698",
        flags=(MICRO, PP),
        fields=("batch.global_batch_size", "batch.micro_batch_size", "parallel.pp"),
        check=_micro,
        reads="parallel.pipeline_config.pipeline_scheduler @counted",
    ),
    Rule(
        id="MF-STAGE-LAYERS",
        doc="Every stage holds at least one layer.",
        source="mindformers 1.6.0 models/modeling_utils.py:330",
        flags=(PP,),
        when="@layers!=None",
        check=lambda context: (layers_of(context) or 0) < size_of(context, PP),
        message=f"{{@layers}} layers are fewer than pp {{{PP}}}",
    ),
    Rule(
        id="MF-CHUNK-LAYERS",
        doc="Every chunk holds at least one layer.",
        source="mindformers 1.6.0 models/modeling_utils.py:337",
        flags=(PP, MODEL + "pp_interleave_num"),
        when="@layers!=None & @chunks>1",
        check=lambda context: (layers_of(context) or 0) < size_of(context, PP) * chunks_of(context),
        message=f"{{@layers}} layers are fewer than pp {{{PP}}} × vpp {{@chunks}}",
    ),
    Rule(
        id="MF-PIPELINE-KEYS",
        doc="MindSpore needs both keys of pipeline_config, or none.",
        source="mindspore 2.7.0 parallel/_auto_parallel_context.py:985",
        flags=(INTERLEAVE, SCHEDULER),
        check=lambda context: context.given(INTERLEAVE) != context.given(SCHEDULER),
        message="pipeline_config needs pipeline_interleave and pipeline_scheduler together",
    ),
    Rule(
        id="MF-SCHEDULER",
        doc="The pipeline schedule is one that MindSpore has; all but 1f1b need chunks (vpp).",
        source="mindspore 2.7.0 parallel/_auto_parallel_context.py",
        flags=(SCHEDULER, INTERLEAVE),
        check=_scheduler,
    ),
    Rule(
        id="MF-PACK-SHIFT",
        doc="Packed Alpaca samples have labels that are shifted twice.",
        source="mindformers 2.1.0 dataset/handler/packing_handler.py:105, alpaca_handler.py:125; measured with 1.8.0",
        fields=("batch.packing",),
        flags=(HANDLER,),
        check=_packs_shifted,
        reads=TYPE,
        since="1.7",
        stricter=True,
        reason="it trains, each token on the second one after it",
    ),
    Rule(
        id="MF-MOE-PADDING",
        doc="Samples that are not packed are padded to one length, and the load-balancing loss counts the padding.",
        source="mindformers 2.1.0 parallel_core/training_graph/transformer/moe/router.py _expert_load_balancing; "
        "measured: docs/parity.md",
        severity="warning",
        fields=("moe.aux_loss_coeff", "batch.packing"),
        flags=(TYPE, HANDLER),
        when="job.model.is_moe & job.moe.aux_loss_coeff>0 & job.moe.load_balancing_type!=none",
        check=_pads,
        reads=f"{TYPE} {HANDLER}",
        message="samples are padded to batch.seq_length, and routers balance the padding with the tokens",
    ),
    Rule(
        id="MF-SEQVPP",
        doc="seqvpp splits sequences into parts, and needs more than one.",
        source=f"{_CHECKS}:196-210",
        when=f"{SCHEDULER}=seqvpp & parallel_config.seq_split_num=1|None",
        message="pipeline_scheduler seqvpp needs parallel_config.seq_split_num above 1",
    ),
    Rule(
        id="MF-ZERO-BUBBLE",
        doc="The zero-bubble V schedule runs two chunks on several stages, with recompute counts for each of them.",
        source="mindformers 2.1.0 parallel_core/transformer_config.py:2690-2706,2375",
        flags=(SCHEDULER, MODEL + "pp_interleave_num", PP, "recompute_config.recompute"),
        check=_zero_bubble,
        reads="@declared_chunks model.model_config.experimental_attention_variant",
        since="1.7",
    ),
    Rule(
        id="MF-SEQPIPE",
        doc="Parts of a sequence run through the stages in turn: only flash attention remembers earlier ones.",
        source="mindformers 1.6.0 llama_transformer.py:205",
        flags=("parallel_config.seq_split_num", MODEL + "use_flash_attention"),
        fields=("kernels.attention_backend",),
        when="parallel_config.seq_split_num>1 & !@flash",
        message="parallel_config.seq_split_num above 1 needs flash attention",
    ),
    Rule(
        id="MF-SEQPIPE-BALANCE",
        doc="A balancing loss over sequences cannot be summed over their parts.",
        source="mindformers 2.1.0 parallel_core/training_graph/transformer/moe/router.py:207",
        fields=("moe.load_balancing_type",),
        when=f"parallel_config.seq_split_num>1 & job.model.is_moe & {MODEL}moe_router_load_balancing_type=seq_aux_loss",
        message="parallel_config.seq_split_num above 1 does not support the balancing loss seq_aux_loss",
        since="1.7",
    ),
)

declare(PIPELINE, backends=BACKENDS, when=STATIC)
