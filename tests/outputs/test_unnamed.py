"""A full disk is reported with the folder that was written."""

import os
from pathlib import Path

import pytest

from launcher.outputs.unnamed import written_below


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a device that is always full")
def test_a_full_disk_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device") as raised, written_below(tmp_path):
        Path("/dev/full").write_text("text")
    assert raised.value.filename == str(tmp_path)


def test_a_missing_file_and_a_closed_pipe_keep_their_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing, written_below(tmp_path):
        (tmp_path / "none").read_text()
    assert missing.value.filename == str(tmp_path / "none")
    with pytest.raises(BrokenPipeError) as closed, written_below(tmp_path):
        raise BrokenPipeError
    assert closed.value.filename is None
