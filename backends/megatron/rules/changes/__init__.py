"""Values that Megatron-SWIFT changes, in its own order, and findings from real runs."""

from backends.megatron.rules.changes.config import KWARGS, MODEL
from backends.megatron.rules.changes.data import LOADING, SAMPLES, TASK
from backends.megatron.rules.changes.parallel import DEVICES, STAGES
from backends.megatron.rules.changes.rlhf import RLHF
from backends.megatron.rules.changes.seen import SEEN
from backends.megatron.rules.changes.training import DTYPE, PRECISION, RUN, TUNING, UNREAD
from backends.megatron.rules.terms import BACKENDS
from launcher.rules.table import declare

_BY_ARGUMENTS = (*DTYPE, *TASK, *SAMPLES, *RLHF, *TUNING, *STAGES, *RUN, *PRECISION, *DEVICES, *LOADING)
declare((*_BY_ARGUMENTS, *KWARGS, *MODEL, *SEEN, *UNREAD), backends=BACKENDS)
