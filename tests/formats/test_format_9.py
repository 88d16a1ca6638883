"""Configs of format 8, which had no shards."""

from typing import Any

import pytest

from rlrun.formats.history import upgraded


@pytest.mark.parametrize(("loop", "has"), [("onpolicy", True), ("hybrid", True), ("episodes", False)])
def test_runs_of_format_8_go_on_without_shards(loop: str, has: bool) -> None:
    before: dict[str, Any] = {"format": 8, "network": {}, "algo": {"loop": {"name": loop, "lag": 0}}}
    values, filled = upgraded(before)
    found: dict[str, Any] = values.pop("algo")  # type: ignore[assignment]
    for key in ("dtypes", "shard_steps", *([] if has else ["shards"])):  # of format 10
        found["loop"].pop(key, None)
    shards = {"shards": None} if has else {}
    assert found == {"loop": {"name": loop, "lag": 0, **shards}}
    assert values == {"network": {}, "cluster": {"name": "none"}}
    assert filled[: 1 + has] == ["cluster={'name': 'none'}", *(["algo.loop.shards=None"] if has else [])]
