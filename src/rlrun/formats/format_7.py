"""What changed from format 6 to 7: numbers that change during a run have schedules in place of pairs of settings."""


def regroup(values: dict[str, object]) -> None:
    """Turns the settings of a start and an end into schedules, in place. The config may have any content."""
    algo = values.get("algo")
    if not isinstance(algo, dict):
        return
    for section, start, end, key in (
        ("search", "temperature_start", "temperature_end", "temperature"),
        ("buffer", "beta", "beta_final", "beta"),
    ):
        home = algo.get(section)
        if isinstance(home, dict) and start in home and end in home:
            ends = {"start": home.pop(start), "end": home.pop(end)}
            home[key] = {"name": "linear", **ends, "fraction": 1.0}
    intrinsic = algo.get("intrinsic")
    if isinstance(intrinsic, dict):
        end = intrinsic.pop("coef_end", None)
        if end is not None:
            put(algo, ("schedule", "intrinsic", "coef"), {"linear": {"end": end}})
    if "epsilon_decay" in algo:
        geometric = {"start": algo.get("epsilon"), "factor": algo.pop("epsilon_decay"), "updates": 1}
        algo["epsilon"] = {"name": "geometric", **geometric}
    decay = algo.pop("learning_rate_decay", None)
    restart_every = algo.pop("reset_learning_rate_every", None)
    if decay:
        inverse = {"decay": decay, "restart_every": restart_every}
        put(algo, ("schedule", "learning_rate"), {"inverse": inverse})


def put(tree: dict[str, object], keys: tuple[str, ...], value: object) -> None:
    """Sets a value at a path of keys. Sections that are missing are added."""
    *sections, name = keys
    for section in sections:
        inner = tree.get(section)
        if not isinstance(inner, dict):
            inner = {}
            tree[section] = inner
        tree = inner
    tree[name] = value
