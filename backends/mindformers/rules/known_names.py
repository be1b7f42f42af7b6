"""Names that MindFormers looks up in the model section, where YAML takes any text."""

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.terms import BACKENDS, MCORE
from launcher.rules.known_names import Names, known_names, named
from launcher.rules.table import declare

_CONFIG = "mindformers 2.1.0 parallel_core/transformer_config.py"
_LAYERS = "mindformers 2.1.0 parallel_core/training_graph"
_MOE = "job.model.is_moe"

_ACTIVATIONS: Names = {**named("gelu", "swiglu", "silu"), **named("fusedswiglu", versions=("1.7", None))}
# The pynative trainer also has sqrtsoftplus.
_SCORES = named("softmax", "sigmoid")
_FLOATS = ("float64", "fp64", "float32", "fp32", "bfloat16", "bf16", "float16", "fp16")
_OTHERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_TYPES = named(*_FLOATS, *_OTHERS, "complex64", "complex128")
_TYPED = ("compute_dtype", "layernorm_compute_dtype", "rotary_dtype", "moe_router_dtype", "router_dense_type")

# fmt: off
declare((
    known_names("MF-POSITION", MODEL + "position_embedding_type",
                named("rope", "yarn", "none", "relative", "learned_absolute", "partial_rope"),
                "The kind of position embedding is one that MindFormers supports.", f"{_CONFIG}:2590", since="1.7",
                fields=("model.position_embedding",)),
    known_names("MF-NORMALIZATION", MODEL + "normalization", named("LayerNorm", "RMSNorm"),
                "Layers have one of these normalizations.", f"{_LAYERS}/transformer/norm.py:414,455"),
    known_names("MF-ACTIVATION", MODEL + "hidden_act", _ACTIVATIONS, "Layers have one of these activation functions.",
                f"{_LAYERS}/activation.py:227", any_case=True,
                when="!job.model.is_moe"),
    known_names("MF-DISPATCHER", MODEL + "moe_token_dispatcher_type",
                named("alltoall", "alltoall_deredundency", "alltoall_zero_redundancy"),
                "Tokens are dispatched to experts in one of these ways.", f"{_LAYERS}/transformer/moe/ffn.py:105",
                when=_MOE, since="1.7"),
    known_names("MF-ROUTER-SCORE", (MODEL + "moe_router_score_function", MODEL + "scoring_func"), _SCORES,
                "Routers score experts with one of these functions.",
                f"{_LAYERS}/transformer/moe/router.py:163; transformer_config.py:2474", when=_MOE),
    known_names("MF-BALANCE-NAMES", MODEL + "moe_router_load_balancing_type",
                named("sub_seq_aux_loss", "seq_aux_loss", "gbs_aux_loss"),
                "Experts are balanced with one of these losses.", f"{_LAYERS}/transformer/moe/router.py:200",
                when=_MOE, since="1.7"),
    known_names("MF-MODEL-TYPES", tuple(MODEL + name for name in _TYPED), _TYPES,
                "Values of the model are computed in one of MindSpore's data types.", f"{_CONFIG}:2294-2297"),
    known_names("MF-PARAMETER-TYPES", (MODEL + "params_dtype", MODEL + "param_init_type"), _TYPES,
                "Weights have one of MindSpore's data types.", f"{_CONFIG}:2279", since="1.9"),
), backends=BACKENDS, when=MCORE, phase="config")
# fmt: on
