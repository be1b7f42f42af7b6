"""Versions that Megatron-LM requires, according to its package."""

from launcher.catalogue.requirements import Needed

_PROJECT = "Megatron-LM pyproject.toml @core_v0.16.1"
_NEWER = "Megatron-LM pyproject.toml @core_v0.17.1"
CHECKOUT = Needed(
    name="MEGATRON_LM_PATH",
    meaning="Your checkout of Megatron-LM.",
    kind="checkout",
    is_backend=True,
    file="megatron/core/package_info.py",
    pattern=r"MAJOR = (\d+)\s+MINOR = (\d+)\s+PATCH = (\d+)",
    install="git clone --branch core_v{version} https://github.com/NVIDIA/Megatron-LM; export MEGATRON_LM_PATH=…",
    source="megatron/core/package_info.py",
)

SUPPORT = (
    CHECKOUT,
    Needed(name="python", kind="python", wanted=">=3.10", until="0.16.99", source=_PROJECT),
    Needed(name="python", kind="python", wanted=">=3.12", since="0.17", source=_NEWER),
    Needed(name="torch", wanted=">=2.6.0", since="0.15", install="pip install 'torch>=2.6'", source=_PROJECT),
    Needed(name="torch", install="pip install torch", until="0.14.99", source="megatron/core/requirements.txt"),
    Needed(
        name="transformer_engine",
        wanted=">=2.9.0a0,<2.12.0",
        since="0.16",
        until="0.16.99",
        install="pip install --no-build-isolation 'transformer-engine[pytorch]<2.12'",
        source=_PROJECT,
    ),
    Needed(
        name="transformer_engine",
        wanted=">=2.9.0a0,<2.10.0",
        since="0.15",
        until="0.15.99",
        install="pip install --no-build-isolation 'transformer-engine[pytorch]<2.10'",
        source="Megatron-LM pyproject.toml @core_v0.15.3",
    ),
    Needed(
        name="transformer_engine",
        wanted=">=2.6.0a0,<2.8.0",
        since="0.14",
        until="0.14.99",
        install="pip install --no-build-isolation 'transformer-engine[pytorch]<2.8'",
        source="Megatron-LM pyproject.toml @core_v0.14.0",
    ),
    Needed(
        name="transformer_engine",
        until="0.13.99",
        install="pip install --no-build-isolation transformer-engine[pytorch]",
        source="Megatron-LM README.md @core_v0.12.1",
    ),
    Needed(
        name="transformer_engine",
        since="0.17",
        install="pip install --no-build-isolation 'transformer-engine[pytorch,core_cu13]'",
        source=_NEWER,
    ),
)
