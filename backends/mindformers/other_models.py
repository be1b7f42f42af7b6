"""Models of MindFormers' configurations that no job describes: vision, speech, BERT, T5, classifiers, unit tests."""

# Names of trainers and classes in configs and research of MindFormers 0.3 to 1.5.
_TRAINERS = (
    *(
        "*Image*",
        "*image*",
        "Masked*",
        "masked*",
        "*Classification*",
        "QuestionAnswering*",
        "*ranslation*",
        "MultiModal*",
    ),
    "itr",
)
_MODELS = (
    *("Bert*", "T5*", "CLIP*", "Filip*", "Blip*", "ViT*", "Swin*", "Sam*", "Mllama*", "QwenVL*", "CogVLM*", "Llava*"),
    # The base class, and models of unit tests (tests/st/test_build.yaml, test_trainer_config.yaml).
    *("PreTrainedModel", "TestModel"),
    *("InternVL*", "Whisper*", "*Classification*", "*VLForConditionalGeneration"),
)
OTHER_MODELS = {"trainer.type": _TRAINERS, "model.arch.type": _MODELS}
