"""What changed from format 9 to 10 for `algo.representation=autoencoder`: it is a model of `encoding`.

With `trained_by=agent`, it had no decoder, as the model `network`. The optimiser of `trained_by=own` held the weights
of the decoder before those of the encoder.
"""

from typing import TYPE_CHECKING, cast

from rlrun.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

GOES_ON = "d642a930"  # the last commit that reads runs which `regroup` refuses
KEPT = ("trained_by", "learning_rate", "epochs", "minibatch_size")


def regroup(algo: dict[str, object]) -> None:
    """Replaces the section `representation` of an autoencoder, in place.

    Raises ConfigError for intrinsic rewards beside `trained_by=own`: they read observations, and now latent states.
    """
    former = algo.get("representation")
    if not isinstance(former, dict) or former.get("name") != "autoencoder":
        return
    if not {*KEPT, "latent", "hidden"} <= former.keys():
        return
    if former["trained_by"] == "own" and algo.get("intrinsic") is not None:
        raise ConfigError(
            "algo.representation=autoencoder: with trained_by=own, intrinsic rewards read observations and now read "
            f"latent states; commit {GOES_ON} is the last that has it"
        )
    layers = {"hidden": former["hidden"], "activation": "relu"}
    network = {"name": "auto", "init": "orthogonal", "norm": {"name": "none"}} | layers
    model = {"name": "network", "latent": former["latent"], "network": network}
    if former["trained_by"] != "agent":
        loss = {"loss": "smooth_l1", "weight": 1.0, "normalize_target": False, "by_dimension": False}
        model |= {"name": "autoencoder", "decoder": {"name": "dense"} | layers | loss}
    kept = {key: former[key] for key in KEPT}
    algo["representation"] = {"name": "encoding", "model": model, "previous": [], "information": None} | kept


def restate(state: dict[str, object]) -> None:
    """Moves weights and state of autoencoders, in place."""
    for weight in [key for key in state if key.endswith(".encoder.output.weight") and key.startswith("addons.")]:
        addon = weight.removesuffix("encoder.output.weight")
        names = {key.removeprefix(addon).split(".")[0] for key in state if key.startswith(addon)}
        if names == {"encoder"} or "decoder" in names:  # `predictive` has `decoders`
            _move(state, addon, names)


def _move(state: dict[str, object], addon: str, names: set[str]) -> None:
    """Moves the state of one autoencoder. addon: prefix of its keys. names: what it consists of."""
    of_agent = (".torso.encoder.", ".torso.encoder.network.")
    if "optim" in names and "encoder_optim" not in names:  # its own loss alone trains it
        of_agent = (".torso.torso.", ".torso.")
        decoder = [cast("Tensor", value) for key, value in state.items() if key.startswith(f"{addon}decoder.")]
        for moment in (f"{addon}optim.exp_avg", f"{addon}optim.exp_avg_sq"):
            state[moment] = cast("Tensor", state[moment]).roll(-sum(weights.numel() for weights in decoder))
    if "shuffle" in names:
        state[f"{addon}draws._extra_state"] = state[f"{addon}shuffle._extra_state"]  # an autoencoder draws nothing
    moved = {}
    for key, value in state.items():
        if key.startswith("agent."):
            key = key.replace(*of_agent)
        elif key.startswith(f"{addon}encoder."):
            key = key.replace(f"{addon}encoder.", f"{addon}model.encoder.", 1)
        elif key.startswith(f"{addon}decoder."):
            key = key.replace(f"{addon}decoder.", f"{addon}model.decoder.network.", 1)
        moved[key] = value
    state.clear()
    state.update(moved)
