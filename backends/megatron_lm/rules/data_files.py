"""What Megatron-LM reads data files as."""

from launcher.rules.data_files import DataReader, declare_readers, indexed_reader

TOKEN_FILES = "Megatron-LM 0.16.1 megatron/core/datasets/indexed_dataset.py:get_idx_path"

declare_readers(
    "megatron_lm",
    DataReader(
        title="Megatron-LM's --sft",
        reads="JSONL of messages, each with role and content",
        when="sft",
        columns=(("messages",),),
        turns=(("messages", (("role", "content"),)),),
        source="Megatron-LM 0.16.1 megatron/training/datasets/sft_dataset.py:SFTLowLevelDataset",
    ),
    indexed_reader("!sft & !mock-data & dataloader-type!=external", TOKEN_FILES, title="Megatron-LM"),
)
