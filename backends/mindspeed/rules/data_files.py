"""What MindSpeed-LLM reads data files as: raw files by the handler that --handler-name names, else token files."""

from backends.megatron_lm.rules.data_files import TOKEN_FILES
from launcher.job import Value
from launcher.rules.data_files import ENDINGS, DataReader, declare_readers, indexed_reader

_HANDLERS = "MindSpeed-LLM 26.1.0 mindspeed_llm/tasks/preprocess/data_handler.py"
_COLUMNS = "MindSpeed-LLM 26.1.0 mindspeed_llm/tasks/preprocess/utils.py:get_handler_dataset_attr"
_KINDS = tuple(dict.fromkeys(ENDINGS.values()))
_HANDLER = "backend.args.handler-name"
# Handlers of fine-tuning, by the form that they read.
_OTHERS: dict[str, dict[str, Value]] = {
    "sharegpt": {_HANDLER: "SharegptStyleInstructionHandler"},
    "alpaca": {_HANDLER: "AlpacaStyleInstructionHandler"},
}


def _handler(
    name: str, reads: str, columns: tuple[str, ...], *, turn: tuple[str, ...] = (), unless: str = "map-keys",
    works: dict[str, dict[str, Value]] | None = None, source: str = _COLUMNS,
) -> DataReader:  # fmt: skip
    return DataReader(
        title=name,
        reads=reads,
        when=f"handler-name={name}",
        kinds=_KINDS,
        by_ending=True,
        columns=(columns,),
        turns=((columns[0], (turn,)),) if turn else (),
        unless=(unless,),
        works=works or {},
        source=source,
    )


declare_readers(
    "mindspeed",
    DataReader(
        title="what rewrites preference pairs",
        reads="JSONL of messages with rejected_response or rejected_messages",
        when="handler-name=SharegptStylePairwiseHandler & job.task.type=dpo & job.data.format=messages",
        plain=True,
        columns=(("messages", "rejected_response"), ("messages", "rejected_messages")),
        turns=(("messages", (("role", "content"),)),),
        source="backends/mindspeed/preference_pairs.py",
    ),
    _handler(
        "OpenAIInstructionHandler",
        "messages, each with role and content",
        ("messages",),
        turn=("role",),
        works=_OTHERS,
    ),
    _handler(
        "SharegptStyleInstructionHandler", "conversations of from and value", ("conversations",), turn=("from", "value")
    ),
    _handler(
        "AlpacaStyleInstructionHandler",
        "the columns instruction, input and output",
        ("instruction", "input", "output"),
    ),
    _handler(
        "GeneralPretrainHandler",
        "texts in the column text (--json-keys names others)",
        ("text",),
        unless="json-keys",
        source=f"{_HANDLERS}:GeneralPretrainHandler",
    ),
    DataReader(
        title="MindSpeed-LLM without --handler-name",
        reads="prefixes of .bin and .idx pairs, or texts in the column text (--json-keys names others)",
        when="!handler-name & !mock-data & tokenizer-type=PretrainedFromHF",
        since="2.3.0",
        kinds=_KINDS,
        by_ending=True,
        prefixes=True,
        columns=(("text",),),
        unless=("json-keys",),
        source="MindSpeed-LLM 26.1.0 mindspeed_llm/training/initialize.py:206; "
        "mindspeed_llm/tasks/preprocess/data_handler.py:_get_handler_cls",
    ),
    indexed_reader("!handler-name & !mock-data", TOKEN_FILES, title="MindSpeed-LLM without --handler-name"),
)
