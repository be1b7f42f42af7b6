"""Environment variables of MindFormers jobs, with conditions and sources."""

from launcher.mapping.environment import Variable

ENVIRONMENT = (
    Variable(
        name="HCCL_CONNECT_TIMEOUT",
        value="7200",
        nodes=2,
        source="MindFormers docs, environment variables: 120 s, the default, is too short for a large graph",
    ),
    Variable(
        name="MS_DEV_RUNTIME_CONF",
        value="switch_inline:False",
        argument="optimizer.swap",
        source="core/optim/adamw.py:140 @2.1.0: swapped optimizer states need it",
    ),
    Variable(
        name="HCCL_EXEC_TIMEOUT",
        field="fault_tolerance.timeout_minutes",
        scale=60,
        source="CANN, HCCL environment variables",
    ),
)
