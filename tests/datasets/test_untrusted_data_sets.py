"""Untrusted data sets: whatever the folder holds, the error is one line, and no file outside of it is opened."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toys import toy

from rlrun.cli import main
from rlrun.datasets import folders
from rlrun.datasets.demonstrations import read, write
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError

h5py = pytest.importorskip("h5py")
pytest.importorskip("minari")

MakeEnv = Callable[..., VectorEnv]
STEPS = 4


@pytest.fixture
def env(make_env: MakeEnv) -> Any:
    return make_env("Pendulum-v1")


@pytest.fixture
def folder(env: Any, tmp_path: Path) -> Path:
    """Returns a data set of two episodes."""
    demos = [
        {
            "obs": torch.rand(STEPS + 1, 3),
            "action": torch.rand(STEPS, 1) * 2 - 1,
            "reward": torch.rand(STEPS),
            "terminated": False,
        }
        for _ in range(2)
    ]
    write(tmp_path / "made-v0", demos, env)
    return tmp_path / "made-v0"


def refused(folder: Path, env: Any, line: str) -> None:
    """Checks that reading the data set (or its digest) raises a one-line ConfigError that begins with the key."""
    with pytest.raises(ConfigError, match=rf"^algo\.loop\.data={folder}: .*{line}") as caught:
        read("algo.loop.data", folder, env)
    assert len(caught.value.faults) == 1 and "\n" not in str(caught.value)


def change(folder: Path, **values: Any) -> None:
    """Changes the metadata of the data set; None removes a key."""
    path = folder / folders.ABOUT
    about = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in about.items() if value is not None}))


def put(folder: Path, name: str, values: Any) -> None:
    """Replaces an array of the first episode."""
    with h5py.File(folder / folders.HDF5, "a") as file:
        del file["episode_0"][name]
        file["episode_0"][name] = values


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "metadata.json cannot be read"),
        ("{", "metadata.json cannot be read"),
        ("[]", "not a JSON object"),
        ("5", "not a JSON object"),
        ("{}", "data_format=None is not one of hdf5, arrow, parquet"),
        ("[" * 100_000, "metadata.json cannot be read"),
        ('{"a":' * 100_000, "metadata.json cannot be read"),
        ("\ud800", "metadata.json cannot be read"),
        ('{"data_format": "zip"}', "data_format='zip' is not one of"),
        ('{"data_format": ["hdf5"]}', "is not one of"),
    ],
)
def test_metadata_that_cannot_be_read_is_one_line(text: str, line: str, folder: Path, env: Any) -> None:
    (folder / folders.ABOUT).write_bytes(text.encode(errors="surrogatepass"))
    refused(folder, env, line)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"total_episodes": 0}, "it holds no episodes"),
        ({"total_episodes": -1}, "total_episodes=-1 is not a valid count"),
        ({"total_episodes": "2"}, "total_episodes='2' is not a valid count"),
        ({"total_episodes": 10**15}, "lacks some of the 1,000,000,000,000,000 episodes"),
        ({"observation_space": 5}, "observation_space is missing"),
        ({"observation_space": "{"}, "does not fit"),
        ({"action_space": '{"type": "Nothing"}'}, "does not fit"),
        ({"minari_version": "99.0"}, "does not support"),
        ({"dataset_id": None}, "does not fit"),
        ({"rlrun_env": 5}, "was recorded in 5, which is not this environment"),
        ({"rlrun_env": {"id": "Pendulum-v1", "wrappers": {}, "kwargs": 5}}, "was recorded with env.kwargs=5"),
        ({"rlrun_env": {"id": "Pendulum-v1", "wrappers": {}, "task_kwargs": [1]}}, "was recorded with env.task_kwargs"),
    ],
)
def test_metadata_with_impossible_values_is_refused(values: Any, line: str, folder: Path, env: Any) -> None:
    change(folder, **values)
    refused(folder, env, line)


def test_a_data_set_never_names_code_to_run(folder: Path, env: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Without spaces, Minari would create the environment that the metadata names, and so import its module."""
    (tmp_path / "stranger.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Env: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = {"id": "Evil-v0", "entry_point": "stranger:Env", "additional_wrappers": []}
    change(folder, observation_space=None, env_spec=json.dumps(spec))
    refused(folder, env, "observation_space is missing")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("part", [folders.ABOUT, folders.HDF5, Path("data/more")])
@pytest.mark.parametrize("kind", ["pipe", "link", "loop"])
def test_only_regular_files_are_opened_and_none_blocks(kind: str, part: Path, folder: Path, env: Any) -> None:
    path, elsewhere = folder / part, folder.parent / "elsewhere"
    if path.exists():
        path.rename(elsewhere)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if kind == "loop" else elsewhere)
    refused(folder, env, "is not a regular file")
    with pytest.raises(ConfigError, match="is not a regular file"):
        folders.digests("algo.loop.data", folder)


def test_the_folder_of_the_data_is_no_link(folder: Path, env: Any) -> None:
    (folder / "data").rename(folder.parent / "elsewhere")
    (folder / "data").symlink_to(folder.parent / "elsewhere")
    refused(folder, env, "is a symbolic link")


def test_metadata_has_a_largest_size(folder: Path, env: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(folders, "ABOUT_LIMIT", 100)
    refused(folder, env, "has more than 100 bytes")


@pytest.mark.parametrize("content", [b"", b"garbage" * 100, None])
def test_a_damaged_file_is_one_line(content: bytes | None, folder: Path, env: Any) -> None:
    path = folder / folders.HDF5
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if content is None else content)
    refused(folder, env, "main_data.hdf5 cannot be read")
    path.unlink()
    refused(folder, env, "main_data.hdf5: No such file")


@pytest.mark.parametrize(
    ("name", "values", "line"),
    [
        ("observations", np.full((STEPS + 1, 3), np.nan), "observations that are not finite"),
        ("observations", np.full((STEPS + 1, 3), 1e300), "observations that are not finite"),
        ("observations", np.zeros((STEPS, 3)), "4 observations for 4 rewards"),
        ("observations", np.zeros((STEPS + 1, 2)), r"observations of shape \(2,\), not \(3,\)"),
        ("observations", np.full((STEPS + 1, 3), b"a"), "observations that are not numbers"),
        ("actions", np.full((STEPS, 1), np.inf), "actions that are not finite"),
        ("actions", np.full((STEPS, 1), 2.1), "actions that are not in Box"),
        ("actions", np.zeros((STEPS - 1, 1)), "3 actions for 4 rewards"),
        ("actions", np.zeros(STEPS), r"actions of shape \(\), not \(1,\)"),
        ("rewards", np.full(STEPS, -np.inf), "rewards that are not finite"),
        ("rewards", np.full(STEPS, 1e300), "rewards that are not finite"),
        ("rewards", np.full(STEPS, 1j), "Casting complex values to real discards the imaginary part"),
        ("rewards", np.zeros((STEPS, 2)), r"rewards of shape \(2,\), not \(\)"),
        ("rewards", np.zeros(0), "it has no steps"),
        ("rewards", np.float64(1.0), "episode 0 does not fit"),
        ("terminations", np.zeros(STEPS - 1, bool), "3 terminations for 4 rewards"),
        ("truncations", np.zeros(STEPS + 1, bool), "5 truncations for 4 rewards"),
    ],
)
def test_columns_that_are_no_episode_are_one_line(name: str, values: Any, line: str, folder: Path, env: Any) -> None:
    put(folder, name, values)
    refused(folder, env, line)


@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "terminations", "truncations"])
def test_a_missing_column_is_one_line(name: str, folder: Path, env: Any) -> None:
    with h5py.File(folder / folders.HDF5, "a") as file:
        del file["episode_1"][name]
    refused(folder, env, "episode 1 does not fit this environment")


def test_rounded_actions_are_taken_as_the_nearest_that_is_allowed(folder: Path, env: Any) -> None:
    put(folder, "actions", np.full((STEPS, 1), 2.0001))
    assert read("algo.loop.data", folder, env)[0]["action"].tolist() == [[1.0]] * STEPS


@pytest.mark.parametrize(
    ("name", "values"), [("observations", 16), ("observations", -1), ("actions", 4), ("actions", -1), ("actions", 0.5)]
)
def test_whole_numbers_outside_their_space_are_one_line(
    name: str, values: float, make_env: MakeEnv, tmp_path: Path
) -> None:
    lake = make_env("FrozenLake-v1")
    rows = torch.zeros(STEPS + 1, dtype=torch.int64)
    write(
        tmp_path / "lake-v0", [{"obs": rows, "action": rows[1:], "reward": rows[1:].float(), "terminated": True}], lake
    )
    assert len(read("algo.loop.data", tmp_path / "lake-v0", lake)) == 1
    put(tmp_path / "lake-v0", name, np.full(STEPS + (name == "observations"), values))
    refused(tmp_path / "lake-v0", lake, f"{name} that are not in Discrete")


def test_hdf5_links_to_other_files_are_refused(folder: Path, env: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    with h5py.File(secret, "w") as file:
        file["rewards"] = np.full(STEPS, 7.0)
    (tmp_path / "raw").write_bytes(np.full(STEPS, 7.0).tobytes())
    whole = (folder / folders.HDF5).read_bytes()

    def virtual(group: Any) -> None:
        layout = h5py.VirtualLayout((STEPS,), "f8")
        layout[:] = h5py.VirtualSource(str(secret), "rewards", (STEPS,))
        group.create_virtual_dataset("rewards", layout)

    def linked(group: Any) -> None:
        group["rewards"] = h5py.ExternalLink(str(secret), "rewards")

    def soft(group: Any) -> None:
        group["rewards"] = h5py.SoftLink("/episode_1/rewards")

    def outside(group: Any) -> None:
        group.create_dataset("rewards", (STEPS,), "f8", external=[(str(tmp_path / "raw"), 0, STEPS * 8)])

    lines = {virtual: "in another file", outside: "in another file", linked: "holds a link", soft: "holds a link"}
    for spoil, line in lines.items():
        (folder / folders.HDF5).write_bytes(whole)
        with h5py.File(folder / folders.HDF5, "a") as file:
            del file["episode_0"]["rewards"]
            spoil(file["episode_0"])
        refused(folder, env, line)


def test_arrays_far_larger_than_their_file_are_refused(folder: Path, env: Any) -> None:
    with h5py.File(folder / folders.HDF5, "a") as file:
        del file["episode_0"]["rewards"]
        file["episode_0"].create_dataset("rewards", (10**12,), "f8", chunks=(1000,))
    refused(folder, env, "the limit for a data set of its size")


def test_texts_that_share_their_bytes_count_as_often_as_they_occur(folder: Path, env: Any) -> None:
    """Each entry is a reference of 16 bytes to the same text, so that reading them all would fill the memory."""
    count = 100_000
    with h5py.File(folder / folders.HDF5, "a") as file:
        texts = file["episode_0"].require_group("infos").create_dataset("text", (count,), h5py.string_dtype())
        texts[0] = "x" * 10**6
        start = texts.id.get_offset()
    content = (folder / folders.HDF5).read_bytes()
    reference = content[start : start + 16]
    (folder / folders.HDF5).write_bytes(content[:start] + reference * count + content[start + 16 * count :])
    refused(folder, env, "the limit for a data set of its size")


def test_arrays_of_nested_types_are_refused(folder: Path, env: Any) -> None:
    whole = (folder / folders.HDF5).read_bytes()
    texts, bytes_ = h5py.string_dtype(), h5py.vlen_dtype("u1")
    for kind, shape in (
        (h5py.vlen_dtype(bytes_), 3),
        (h5py.ref_dtype, 3),
        ([("text", texts)], 3),
        (texts, (2, 2)),
        (bytes_, (2, 2)),
        (texts, 10**6),
    ):
        (folder / folders.HDF5).write_bytes(whole)
        with h5py.File(folder / folders.HDF5, "a") as file:
            file["episode_0"].require_group("infos").create_dataset("nested", shape, kind, chunks=True)
        refused(folder, env, "an array of a kind that data sets do not have")


def test_texts_and_images_in_infos_are_accepted(folder: Path, env: Any) -> None:
    with h5py.File(folder / folders.HDF5, "a") as file:
        infos = file["episode_0"].require_group("infos")
        text = h5py.string_dtype()
        infos.create_dataset("texts", data=["a", "bb", "", "c"], dtype=text, chunks=True, maxshape=(None,))
        infos.create_dataset("text", data="once", dtype=text)
        images = infos.create_dataset("images", (2,), h5py.vlen_dtype(np.uint8))
        images[0] = np.arange(5, dtype=np.uint8)
    assert len(read("algo.loop.data", folder, env)) == 2


def test_hdf5_group_with_two_names_is_refused(folder: Path, env: Any) -> None:
    """A group that contains itself is infinite, and one array under many names would use memory many times."""
    whole = (folder / folders.HDF5).read_bytes()
    for name, other in {"episode_0/again": "episode_0", "more": "episode_1/rewards", "root": "/"}.items():
        (folder / folders.HDF5).write_bytes(whole)
        with h5py.File(folder / folders.HDF5, "a") as file:
            file[name] = file[other]
        refused(folder, env, "under a second name")


def test_hdf5_groups_nested_too_deeply_are_refused(folder: Path, env: Any) -> None:
    """The HDF5 library crashes when it visits some thousand levels."""
    with h5py.File(folder / folders.HDF5, "a") as file:
        group = file
        for _ in range(10_000):
            group = group.create_group("g")
    refused(folder, env, "has more than 32 levels")


def test_a_bad_data_set_leaves_no_run_behind(folder: Path, tmp_path: Path, capsys: Any) -> None:
    (folder / folders.ABOUT).write_text("[" * 100_000)
    for algo, key in {
        "bc": "algo.loop.data",
        "sac_from_data": "algo.loop.data",
        "ppo_demos": "algo.buffer.given",
    }.items():
        run = tmp_path / algo
        assert main(["train", f"algo={algo}", "env=Pendulum", f"{key}={folder}", f"run_dir={run}"]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {key}={folder}: ") and error.count("\n") == 1 and not run.exists()


# --- digests ---------------------------------------------------------------------------------------------------------


def test_the_digest_is_that_of_names_and_contents(folder: Path, tmp_path: Path) -> None:
    def digest(place: Path) -> str:
        (key, found), *none = folders.digests("algo.loop.data", place).items()
        assert key == f"algo.loop.data={place}" and not none
        return found

    first = digest(folder)
    shutil.copytree(folder, tmp_path / "copy-v0")
    assert digest(tmp_path / "copy-v0") == first
    (tmp_path / "copy-v0" / "data" / "more").touch()
    assert digest(tmp_path / "copy-v0") != first
    (tmp_path / "copy-v0" / "data" / "more").unlink()
    with h5py.File(tmp_path / "copy-v0" / folders.HDF5, "a") as file:
        file["episode_1"]["rewards"][3] += 1
    assert digest(tmp_path / "copy-v0") != first


# --- where data sets lie ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["foo-v0", "mujoco/half-cheetah/expert-v0"])
def test_names_that_minari_has_are_found_after_folders(
    name: str, folder: Path, env: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "known"))
    with pytest.raises(ConfigError, match=rf"^data={name}: holds no data set .*: minari download {name}$"):
        read("data", name, env)
    assert not (tmp_path / "known").exists()
    shutil.copytree(folder, tmp_path / "known" / name)
    assert len(read("data", name, env)) == 2
    (tmp_path / name / "data").mkdir(parents=True)
    (tmp_path / name / folders.ABOUT).write_text("{}")
    with pytest.raises(ConfigError, match=f"^data={name}: data/metadata.json cannot be read"):
        read("data", name, env)


def test_minari_keeps_data_sets_at_home(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".minari/datasets/foo-v0/data").mkdir(parents=True)
    (tmp_path / ".minari/datasets/foo-v0/data/metadata.json").touch()
    assert folders.located("data", "foo-v0") == tmp_path / ".minari/datasets/foo-v0"
    for place in ("../datasets/foo-v0", "foo", "/foo-v0"):
        with pytest.raises(ConfigError, match="holds no data set"):
            folders.located("data", place)


# --- other environments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"kwargs": {"g": 5.0}}, r"env\.kwargs\.g=the default, here 5\.0"),
        ({"task_kwargs": {"g": [1.0, 2.0]}}, r"env\.task_kwargs\.g=the default, here \[1\.0, 2\.0\]"),
        ({"instance_seed": 3}, r"env\.instance_seed=null, here 3"),
    ],
)
def test_other_constructor_arguments_are_refused_unless_accepted(
    given: Any, line: str, folder: Path, make_env: MakeEnv
) -> None:
    other = make_env("Pendulum-v1", **given)
    refused(folder, other, f"was recorded with {line}; algo.loop.data_env=any accepts it nevertheless")
    assert len(read("algo.loop.data", folder, other, data_env="any")) == 2


def test_what_a_data_set_was_recorded_with_is_named(env: Any, make_env: MakeEnv, folder: Path, tmp_path: Path) -> None:
    other = make_env("Pendulum-v1", kwargs={"g": 5.0})
    write(tmp_path / "moon-v0", read("data", folder, env), other)
    with pytest.raises(ConfigError, match=r"was recorded with env\.kwargs\.g=5\.0, here the default"):
        read("data", tmp_path / "moon-v0", env)
    assert len(read("data", tmp_path / "moon-v0", other)) == 2


def test_defaults_pictures_and_time_limits_make_no_other_environment(folder: Path, make_env: MakeEnv) -> None:
    for given in ({"kwargs": {"g": 10.0}}, {"kwargs": {"render_mode": "rgb_array"}}, {"max_episode_steps": 5}):
        assert len(read("data", folder, make_env("Pendulum-v1", **given))) == 2


def test_data_sets_that_say_less_are_accepted(folder: Path, make_env: MakeEnv) -> None:
    other = make_env("Pendulum-v1", kwargs={"g": 5.0})
    change(folder, rlrun_env={"id": "Pendulum-v1", "wrappers": {}})
    assert len(read("data", folder, other)) == 2
    change(folder, rlrun_env=None)
    assert len(read("data", folder, other)) == 2


def test_wrappers_and_other_ids_are_never_accepted(folder: Path, make_env: MakeEnv) -> None:
    change(folder, rlrun_env={"id": "Pendulum-v0", "wrappers": {}})
    with pytest.raises(ConfigError, match="which is not this environment"):
        read("data", folder, make_env("Pendulum-v1"), data_env="any")


def test_an_evaluation_records_the_arguments_that_it_ran_with(tmp_path: Path, capsys: Any) -> None:
    run, data = tmp_path / "run", tmp_path / "moon-v0"
    words = ["algo=sac", "env=Pendulum", "trainer=quick", "trainer.total_steps=20", "algo.loop.warmup_steps=20"]
    words += ["trainer.eval_every=0", "network.hidden=[8]", "logger=[]"]
    assert main(["train", *words, f"run_dir={run}"]) == 0
    assert main(["eval", str(run), "episodes=1", f"record={data}", "env.kwargs.g=5"]) == 0
    about = json.loads((data / folders.ABOUT).read_text())
    assert about["rlrun_env"] == {
        "id": "Pendulum-v1", "wrappers": {}, "kwargs": {"g": 5}, "task_kwargs": {}, "instance_seed": None,
    }  # fmt: skip
    words = ["algo=bc", "env=Pendulum", f"algo.loop.data={data}", "trainer.total_steps=2", "trainer.eval_every=0"]
    capsys.readouterr()
    assert main(["train", *words, f"run_dir={tmp_path / 'bc'}"]) == 2
    assert "was recorded with env.kwargs.g=5, here the default" in capsys.readouterr().err
    assert main(["train", *words, "algo.loop.data_env=any", f"run_dir={tmp_path / 'bc'}"]) == 0


# --- what a run may overwrite ----------------------------------------------------------------------------------------


def test_a_run_replaces_only_what_a_run_has_saved(folder: Path, env: Any, tmp_path: Path, build: Any) -> None:
    demos = read("data", folder, env)
    write(folder, demos[:1], env)
    assert len(read("data", folder, env)) == 1
    change(folder, algorithm_name="sac")  # as written by rlrun eval RUN record=...
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (tmp_path / "link").symlink_to(precious)
    for place in (folder, precious, precious / "file", tmp_path / "link"):
        with pytest.raises(ConfigError, match="exists already and was not saved by a run"):
            write(place, demos, env)
        with pytest.raises(ConfigError, match=rf"^algo\.buffer\.save_to={place}: exists already"):
            build(toy("ppo_demos", **{"algo.buffer.save_to": str(place)}))
    assert (precious / "file").exists() and len(read("data", folder, env)) == 1
