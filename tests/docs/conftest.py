"""The folder of a reader, for all tests of the documentation."""

from pathlib import Path

import pytest
from once import filled_once
from reader import furnish


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader, which tests copy before they change it."""

    def fill(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("OMP_NUM_THREADS", "1")
            furnish(folder)

    return filled_once(tmp_path_factory, "reader", fill)
