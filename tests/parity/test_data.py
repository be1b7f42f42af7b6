"""The shared data set: token files and texts hold the same samples in the order in which Megatron-core reads them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.compose import compose
from launcher.parity.data import STRIDED_TEXT, TEXT, TOKENS, read_samples, strided, write_data
from launcher.parity.samples import what_fits, write_samples
from launcher.rehearse.sample_data import END_OF_DOCUMENT
from tests.sampling import examples


@given(samples=st.integers(1, 200), length=st.integers(8, 128), seed=st.integers(0, 2**31))
@examples(20)
def test_samples_have_one_end_and_the_asked_length(
    tmp_path_factory: pytest.TempPathFactory, samples: int, length: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder, samples=samples, seq_length=length, seed=seed)
    read = read_samples(folder)
    assert len(read) == samples
    assert all(len(tokens) == length for tokens in read)
    assert all(tokens.index(END_OF_DOCUMENT) == length - 1 for tokens in read)
    assert length < 64 or len({tuple(tokens) for tokens in read}) == samples


@given(count=st.integers(0, 40), micro=st.integers(1, 4), ranks=st.integers(1, 4))
@examples(50)
def test_a_rank_that_reads_every_nth_sample_gets_the_same_micro_batches(count: int, micro: int, ranks: int) -> None:
    lines = [str(number) for number in range(count * micro * ranks)]
    read = strided(lines, micro, ranks)
    for rank in range(ranks):
        own = read[rank::ranks]
        for step in range(count):
            first = (step * ranks + rank) * micro
            assert own[step * micro : (step + 1) * micro] == lines[first : first + micro]


def test_texts_of_backends_that_read_every_nth_sample_are_the_same_in_another_order(tmp_path: Path) -> None:
    write_data(tmp_path, samples=16, seq_length=32, seed=0, micro=2, ranks=2)
    lines = (tmp_path / TEXT).read_text().splitlines()
    read = (tmp_path / STRIDED_TEXT).read_text().splitlines()
    assert read[0::2][:2] == lines[:2]
    assert read[1::2][:2] == lines[2:4]
    assert sorted(read) == sorted(lines)


def test_more_samples_than_the_shipped_text_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exceed the shipped text"):
        write_data(tmp_path, samples=10**7, seq_length=4, seed=0)


@pytest.mark.parametrize("seed", [0, 42, 1234])
def test_megatron_core_reads_the_token_file_in_the_order_of_the_texts(tmp_path: Path, seed: int) -> None:
    pytest.importorskip("megatron.core")
    from launcher.rehearse.core.data.megatron_files import MegatronSamples
    from launcher.rehearse.cpu import dataset_helpers

    dataset_helpers.install()
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer

    count, length = 24, 16
    write_data(tmp_path, samples=count, seq_length=length, seed=seed)
    config = GPTDatasetConfig(
        random_seed=seed,
        sequence_length=length,
        blend=([str(tmp_path / TOKENS)], None),
        split="100,0,0",
        path_to_cache=str(tmp_path / "cache"),
        tokenizer=NullTokenizer(END_OF_DOCUMENT),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=True,
        create_attention_mask=False,
    )
    train, _, _ = BlendedMegatronDatasetBuilder(GPTDataset, [count, 0, 0], lambda: True, config).build()
    samples = MegatronSamples(dataset=train)
    for number, expected in enumerate(read_samples(tmp_path)):
        tokens, mask = samples.get(number)
        assert tokens[:-1].tolist() == expected
        assert mask.tolist() == [1.0] * (length - 1) + [0.0]


@pytest.mark.parametrize("task", ["pretrain", "sft", "dpo"])
def test_samples_for_any_number_of_iterations_are_refused_at_once(task: str, tmp_path: Path) -> None:
    job = compose(["+recipe=tiny_qwen3", f"task={task}", "batch.seq_length=128"])
    with pytest.raises(ValueError, match="exceed the shipped text"):
        write_samples(tmp_path, job, 10**12, tmp_path)


def test_a_number_of_iterations_that_fits_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = compose(
        ["+recipe=tiny_qwen3", "batch.seq_length=64", "batch.micro_batch_size=1", "batch.global_batch_size=2"]
    )
    monkeypatch.setattr("launcher.parity.data.shipped_text", lambda: "0123456789" * 50)
    assert what_fits(tmp_path, job, 1000, tmp_path) == ["--iterations 125"]


def test_a_sequence_that_fits_is_named(tmp_path: Path) -> None:
    job = compose(["+recipe=tiny_qwen3", "task=dpo", "batch.seq_length=16"])
    assert what_fits(tmp_path, job, 2, tmp_path) == ["batch.seq_length=128"]
