"""What MindFormers reads data files as."""

from backends.megatron_lm.rules.data_files import TOKEN_FILES
from launcher.rules.data_files import DataReader, declare_readers, indexed_reader

_LOADER = "train_dataset.data_loader"
_ROWS = f"{_LOADER}.type=HFDataLoader|CommonDataLoader & {_LOADER}.path=json & !{_LOADER}.handler?"

declare_readers(
    "mindformers",
    indexed_reader(f"{_LOADER}.type=BlendedMegatronDatasetDataLoader", TOKEN_FILES, title="MindFormers"),
    DataReader(
        title="MindFormers",
        reads="JSONL of input_ids and labels, written by launch tokenize",
        when=f"{_ROWS} & !job.data.columns",
        columns=(("input_ids", "labels"),),
        source="MindFormers 1.8.0 mindformers/dataset/dataloader/hf_dataloader.py:HFDataset._check_columns",
    ),
)
