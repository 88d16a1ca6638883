"""The notebook of the documentation runs: train, plot, load, act, evaluate."""

import sys
from pathlib import Path

import pytest

QUICK = '"trainer=quick"'  # which the test makes shorter
NOTEBOOK = Path(__file__).parents[1] / "docs" / "first_run.ipynb"

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("pandas")


def test_notebook_trains_plots_loads_acts_and_evaluates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(
        f'{{"argv": ["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"], '
        '"display_name": "Python 3", "language": "python"}'
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    book = nbformat.read(NOTEBOOK, as_version=4)
    trains = next(cell for cell in book.cells if QUICK in cell.source)
    trains.source = trains.source.replace(QUICK, f'{QUICK}, "trainer.total_steps=6000", "trainer.eval_every=2000"')
    client = nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    shown = [
        "".join(map(str, (output.get("text", ""), output.get("data", "")))) for cell in cells for output in cell.outputs
    ]
    text = "\n".join(shown)
    assert "final return" in text and "image/png" in text and "Evaluation(return_mean=" in text
    panels = [output["data"]["text/html"] for output in cells[0].outputs if "text/html" in output.get("data", {})]
    assert len(panels) == 1 and "100.0%" in panels[0], "the progress is one panel, updated in place"
    assert "resumed from step" in text and "metrics.jsonl" in text
    nbformat.write(book, tmp_path / "executed.ipynb")
