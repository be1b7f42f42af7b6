"""What ms-swift reads data files as."""

from launcher.rules.data_files import ENDINGS, DataReader, declare_readers

# Columns that swift/dataset/preprocessor/core.py @4.6.0 takes (the same since 3.5): of chats (MessagesPreprocessor),
# of questions and of answers (ResponsePreprocessor), one of which a record needs.
_CHATS = ("messages", "conversation", "conversations")
_QUESTIONS = ("query", "prompt", "input", "instruction", "question", "problem", "history")
_ANSWERS = ("response", "answer", "output", "targets", "target", "answer_key", "answers", "solution")
_TEXTS = ("text", "completion", "content")
# Of the task_type decision, since 4.6.
_DECISIONS = ("questions", "state")
_TURN = (("role",), ("from",), ("user",), ("human",))

declare_readers(
    "megatron",
    DataReader(
        title="ms-swift",
        reads="chats (messages, conversations), questions and answers (query, prompt, instruction; response, answer, "
        "output) or texts (text); other names by backend.args.columns",
        kinds=tuple(dict.fromkeys(ENDINGS.values())),
        by_ending=True,
        columns=tuple((name,) for name in (*_CHATS, *_QUESTIONS, *_ANSWERS, *_TEXTS, *_DECISIONS)),
        any_case=True,
        turns=tuple((name, _TURN) for name in _CHATS),
        unless=("columns", "external_plugins", "custom_register_path", "custom_dataset_info"),
        source="ms-swift 4.6.0 dataset/preprocessor/core.py:AutoPreprocessor, dataset/loader.py:_load_dataset_path",
    ),
)
