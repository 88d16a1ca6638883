"""Predictive representations with memory: what they read, how they learn and resume, and a system whose velocity is
hidden."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from toys import Values, equal, put, toy, train, weights

from rlrun.addons.representation.predictive import Predictive
from rlrun.buffers.consecutive import first_steps, next_steps
from rlrun.cli import main
from rlrun.core.loop import Loop
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.run.evaluation import evaluate
from rlrun.settings import Around, registry
from rlrun.spaces import unbounded
from rlrun.testing import check_resuming, save
from rlrun.types import Batch, Context, Spec

Build = Callable[..., Loop]
CTX = Context(0, 0, 0.0)
LAYERS: Values = {"norm": {"name": "none"}, "hidden": [8], "activation": "tanh", "init": "orthogonal"}
MEMORY: Values = {
    "layers": 1,
    "features": 6,
    "sequence_length": 4,
    "burn_in": 0,
    "start": "stored",
    "previous": ["action"],
}
GRU: Values = {"name": "gru"} | LAYERS | MEMORY
LSTM = GRU | {"name": "lstm"}
VALUES: Values = {
    "name": "predictive", "latent": 4, "unroll_steps": 3, "decode": {"obs": 1.0, "reward": 1.0}, "hidden": [8],
    "network": GRU, "dynamics_network": None, "learning_rate": 0.01, "learning_rates": {}, "epochs": 1,
    "minibatch_size": None,
}  # fmt: skip
SPEC = Spec(unbounded(2), Box(-1.0, 1.0, (1,)), num_envs=2)


def part(spec: Spec = SPEC, **changes: Any) -> Any:
    parts = Parts(0, torch.device("cpu"), {}, spec, "representation")
    return registry.build("representation", VALUES | changes, spec, parts)


def collected(model: Any, time: int, envs: int, system: Any = None) -> Batch:
    """Returns a rollout [time, envs, ...] of a system: (obs, reward, next state) by state and action."""
    state = 0.45 * torch.randn(envs, 2)
    first = torch.ones(envs, dtype=torch.bool)
    carry: Batch = {"first": first}
    rows = []
    for _ in range(time):
        obs = state[:, :1] if system else state
        _, extras = model.see(obs, carry, True)
        action = torch.rand(envs, 1) * 2 - 1
        state, reward = (system or wandering)(state, action)
        no = torch.zeros(envs, dtype=torch.bool)
        rows.append({
            "obs": obs, "next_obs": state[:, :1] if system else state, "action": action, "reward": reward,
            "weight": torch.ones(envs), "terminated": no, "truncated": no, "carry.action": action, **extras,
        })  # fmt: skip
        carry = {name: value for name, value in rows[-1].items() if name.startswith("carry.")} | {"first": no}
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def wandering(state: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return 0.9 * state + action, state.sum(-1)


@pytest.mark.parametrize("network", [GRU, LSTM, GRU | {"layers": 2}])
def test_latent_states_learned_from_equal_those_acted_on(network: Values) -> None:
    model = part(network=network)
    batch = collected(model, 7, 3)
    seen, carry = [], {"first": torch.ones(3, dtype=torch.bool)}
    for t in range(7):
        latent, extras = model.see(batch["obs"][t], carry, False)
        seen.append(latent)
        carry = extras | {"first": torch.zeros(3, dtype=torch.bool), "carry.action": batch["action"][t]}
    relabelled = model.relabel(batch)
    torch.testing.assert_close(relabelled["obs"], torch.stack(seen))
    torch.testing.assert_close(relabelled["next_obs"][:-1], torch.stack(seen[1:]))
    rows = model.rows_of(relabelled)
    sequences = next_steps(rows, torch.arange(3), 6)  # as long as `num_next_steps`
    assert model.num_next_steps == 4 - 1 + 3
    first, _ = model.first_latents(sequences)
    torch.testing.assert_close(first.unflatten(0, (4, 3)), torch.stack(seen[:4]))


def test_the_state_of_a_recurrent_encoder_begins_anew_with_an_episode() -> None:
    model, obs = part(), torch.ones(2, 2)
    fresh, extras = model.see(obs, {"first": torch.tensor([True, True])}, True)
    carry = extras | {"first": torch.tensor([False, True]), "carry.action": torch.ones(2, 1)}
    latent, again = model.see(obs, carry, True)
    assert torch.equal(latent[1], fresh[1]) and not torch.allclose(latent[0], fresh[0])
    assert not again["start.representation"][1].any() and not again["previous_action"][1].any()
    assert torch.equal(again["start.representation"][0], extras["carry.representation"][0])


def test_a_recurrent_encoder_reads_the_previous_action() -> None:
    model, obs = part(), torch.ones(2, 2)
    _, extras = model.see(obs, {"first": torch.tensor([True, True])}, True)
    carry = extras | {"first": torch.tensor([False, False]), "carry.action": torch.tensor([[0.5], [-0.5]])}
    latent, _ = model.see(obs, carry, True)
    assert model.reads_previous == ("action",) and not torch.allclose(latent[0], latent[1])


@pytest.mark.parametrize("dynamics", [None, GRU, GRU | {"features": 5}, LSTM])
def test_every_step_of_a_sequence_begins_an_unroll(dynamics: Values | None) -> None:
    model = part(dynamics_network=dynamics)
    batch = collected(model, 8, 2)
    batch["terminated"][2, 0] = True
    rows = next_steps(model.rows_of(model.relabel(batch)), torch.tensor([0, 3]), model.num_next_steps)
    first, memory = model.first_latents(rows)

    def huber(error: torch.Tensor) -> torch.Tensor:
        return torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5)

    obs_errors, reward_errors = [], []
    for column in range(2):
        for start in range(4):
            if not rows["mask"][start, column]:
                continue
            place = 2 * start + column
            latent = first[place]
            state = model.dynamics.start(latent[None], memory[place][None])
            obs_errors.append(huber(model.get_decoder("obs")(latent) - rows["obs"][start, column]).mean())
            for k in range(start, start + 3):
                state = model.dynamics.step(state, rows["action"][k, column][None])
                latent = model.dynamics.latent(state)[0]
                if rows["mask"][k, column]:
                    obs_errors.append(huber(model.get_decoder("obs")(latent) - rows["next_obs"][k, column]).mean())
                    reward_errors.append(huber(model.get_decoder("reward")(latent) - rows["reward"][k, column])[0])
    metrics = model.fit(rows)
    torch.testing.assert_close(metrics["loss/representation_obs"], torch.stack(obs_errors).mean())
    torch.testing.assert_close(metrics["loss/representation_reward"], torch.stack(reward_errors).mean())
    assert len(reward_errors) == 3 + 2 + 1 + 4 * 3


def test_recurrent_dynamics_begin_with_the_state_of_the_encoder_if_the_sizes_agree() -> None:
    own, other, plain = (
        part(dynamics_network=GRU),
        part(dynamics_network=LSTM),
        part(network=None, dynamics_network=GRU),
    )
    assert own.dynamics.projection is None
    assert other.dynamics.projection is not None and plain.dynamics.projection is not None
    latent, memory = torch.zeros(1, 4), torch.ones(1, 6)
    assert torch.equal(own.dynamics.start(latent, memory), memory)
    assert torch.equal(other.dynamics.start(latent, memory), other.dynamics.projection(latent))
    with pytest.raises(ValueError, match="begin with the state of the encoder"):
        own.predict_multi_step(latent, torch.zeros(1, 3, 1))
    assert own.predict_multi_step(latent, torch.zeros(1, 3, 1), memory=memory)["reward"].shape == (1, 4, 1)


def test_gradients_flow_from_late_predictions_to_early_observations() -> None:
    model = part()
    rows = next_steps(model.rows_of(model.relabel(collected(model, 6, 2))), torch.arange(2), 6)
    obs = rows["obs"].clone().requires_grad_(True)
    first, _ = model.first_latents(rows | {"obs": obs})
    first.unflatten(0, (4, 2))[3].sum().backward()
    assert obs.grad is not None and obs.grad[0].abs().sum() > 0 and not obs.grad[4:].any()


def test_rollouts_are_learned_from_in_sequences_that_cover_every_step() -> None:
    model = part(minibatch_size=16, epochs=2)
    batch = collected(model, 10, 2)
    batch["terminated"][5, 1] = True
    starts = model.starts(batch)
    assert starts[:, 0].nonzero().flatten().tolist() == [0, 4, 8]
    assert starts[:, 1].nonzero().flatten().tolist() == [0, 4, 6, 8]
    lengths = []
    model.fit = lambda rows: lengths.append(rows["mask"].shape) or {}
    model.update(model.relabel(batch), CTX)
    assert lengths == 2 * [(6, 4), (6, 4)], "7 sequences, and one more that fills the last minibatch"


def unseen(state: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A spring with a hidden velocity: the reward is its next position, with noise of standard deviation 0.1."""
    position, velocity = state.unbind(-1)
    cos, sin = math.cos(0.3), math.sin(0.3)
    position, velocity = cos * position + sin * velocity, cos * velocity - sin * position + 0.15 * action[:, 0]
    return torch.stack([position, velocity], -1), position + 0.1 * torch.randn(len(state))


def reward_error(network: Values | None, updates: int) -> float:
    """Returns the mean squared error of rewards predicted for five steps ahead of the sixth step."""
    torch.manual_seed(0)
    spec = Spec(unbounded(1), Box(-1.0, 1.0, (1,)), num_envs=2)
    model = part(spec, network=network, hidden=[], latent=6, unroll_steps=5, decode={"reward": 1.0})
    for step in range(updates):
        model.optim.learning_rate.fill_(0.02 if step < 0.7 * updates else 0.002)
        batch = collected(model, 13, 64, unseen)
        rows = model.rows_of(model.relabel(batch))
        starts = torch.arange(64 * 8 // model.length)  # both learn from the first 8 steps
        model.fit(next_steps(rows, starts, model.num_next_steps))
    test = collected(model, 11, 4000, unseen)
    latent = model.relabel(test)["obs"][5]
    actions = test["action"][5:10].transpose(0, 1)
    with torch.no_grad():
        predicted = model.predict_multi_step(latent, actions, ["reward"])["reward"]
    return float((predicted[:, 5, 0] - test["reward"][9]).square().mean())


def test_a_memory_predicts_the_rewards_of_a_hidden_velocity() -> None:
    network = GRU | {"hidden": [], "features": 16, "sequence_length": 8}
    with_memory, without = reward_error(network, 100), reward_error(None, 60)
    print("errors with a GRU and without a memory", with_memory, without)
    assert with_memory < 1.5 * 0.1**2 and without > 10 * with_memory


def test_entries_of_observations_and_reports_are_decoded_by_name() -> None:
    obs = Dict({"at": unbounded(2), "inner": Dict({"kind": Discrete(3)})})
    spec = Spec(obs, Box(-1.0, 1.0, (1,)), num_envs=2, reports={"label": Discrete(4)})
    decode = {"obs": {"at": 1.0, "inner": {"kind": 2.0}}, "terminated": 1.0, "label": 0.5}
    model = part(spec, network=None, decode=decode)
    assert model.reads == ("label",)
    rows = {
        "obs": {"at": torch.randn(4, 3, 2), "inner": {"kind": torch.randint(3, (4, 3))}},
        "next_obs": {"at": torch.randn(4, 3, 2), "inner": {"kind": torch.randint(3, (4, 3))}},
        "action": torch.zeros(4, 3, 1), "reward": torch.zeros(4, 3), "terminated": torch.zeros(4, 3),
        "weight": torch.ones(3), "label": torch.randint(4, (4, 3)), "mask": torch.ones(4, 3),
    }  # fmt: skip
    seen = model.rows_of(model.relabel({**rows, "next_steps": rows}))
    assert torch.equal(seen["label"], rows["label"][:3])
    metrics = model.fit(seen)
    names = ("obs.at", "obs.inner.kind", "terminated", "label")
    assert metrics.keys() == {f"loss/representation_{name}" for name in names}
    target, mask = model.target(seen, "obs.inner.kind", model.get_decoder("obs.inner.kind"))
    assert mask.shape == (4, 3) and torch.equal(target[0].argmax(-1), rows["obs"]["inner"]["kind"][0])
    assert torch.equal(target[1:].argmax(-1), rows["next_obs"]["inner"]["kind"][:3])
    predicted = model.predict_multi_step(torch.zeros(2, 4), torch.zeros(2, 3, 1), ["obs.at", "label"])
    assert {name: value.shape for name, value in predicted.items()} == {"obs.at": (2, 4, 2), "label": (2, 4, 4)}
    with pytest.raises(ValueError, match="'reward' is not decoded; the decoded fields are obs"):
        model.get_decoder("reward")


EVERY_STEP: Values = {"algo.n_step": 2, "algo.entropy_reward": {"name": "every_step", "normalize": False}}
RUNS: list[Any] = [("sac", EVERY_STEP), ("ppo", {"env.num_envs": 4})]
RUNS += [pytest.param(algo, {}, marks=pytest.mark.slow) for algo in ("sac", "rainbow", "ppo_lstm", "svpg", "muzero")]


def small_run(algo: str, **changes: Any) -> Values:
    values = put(toy(algo, **changes), {"algo.representation": VALUES})
    if "buffer" in values["algo"]:
        values["algo"]["buffer"]["capacity"] = 200
    return values


@pytest.mark.parametrize(("algo", "changes"), RUNS)
def test_runs_with_a_recurrent_encoder_resume_bit_for_bit(algo: str, changes: Values, build: Build) -> None:
    values = small_run(algo, **changes)
    loop: Any = train(build(values), 12)
    before = loop.addons[0].optim.flat.clone()
    carry = {name: value.clone() for name, value in loop.carry.items()}
    evaluate(loop.agent, loop.addons, build(values).env, 2)
    assert torch.equal(before, loop.addons[0].optim.flat) and equal(carry, loop.carry), "evaluation never trains"
    check_resuming(loop, build(values, begin=False))


def test_shards_carry_the_state_of_the_encoder(build: Build) -> None:
    values = small_run("ppo", **{"algo.loop.rollout_steps": 18, "env.num_envs": 4})
    plain, one, two = (build(put(values, {"algo.loop.shards": count})) for count in (None, 1, 2))
    for _ in range(2):
        assert equal(plain.tick(), one.tick()) and two.tick()
    assert equal(weights(plain), weights(one))
    rollout = two.collect_rollout()
    latent = two.addons.relabel(rollout)["obs"]
    predicted = two.agent.policy(latent.flatten(0, 1)).log_prob(rollout["action"].flatten(0, 1))
    torch.testing.assert_close(predicted, rollout["log_prob"].flatten())


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "loop"), [("ppo", {"lag": 1}), ("sac", {"shard_steps": 3})])
def test_shards_in_workers_carry_the_same_states(algo: str, loop: Values, build: Build, tmp_path: Path) -> None:
    values = small_run(algo, **{"env.num_envs": 4, "algo.loop.shards": 2})
    values["algo"]["loop"] |= loop
    local = {"cluster": {"name": "local", "workers": None, "on_lost": "fail", "state_every": 100}}
    runs = [train(build(each), 6) for each in (values, put(values, local))]
    first, second = (save(each, tmp_path / "run").digest for each in runs)
    assert first == second


def test_both_readers_of_next_steps_get_their_own(build: Build) -> None:
    loop: Any = train(build(small_run("sac", **EVERY_STEP)), 12)
    assert loop.buffer.reading.num_next_steps == 6 == loop.addons.num_next_steps and loop.agent.num_next_steps == 2
    raw = loop.buffer.sample(8)
    batch = loop.addons.relabel(raw)
    assert torch.equal(batch["training_batch"]["obs"], raw["next_steps"]["obs"])
    assert batch["next_steps"]["obs"].shape == (6, 8, 4), "latent states"
    torch.testing.assert_close(batch["next_steps"]["obs"][0], batch["obs"])
    loop.agent.num_next_steps = loop.agent.entropy_reward.num_next_steps = 0
    loop.addons.attach_to(loop.agent)
    assert "next_steps" not in loop.addons.relabel(raw)


def test_parts_have_learning_rates_of_their_own() -> None:
    torch.manual_seed(0)
    model = part(network=None)
    torch.manual_seed(0)
    other = part(network=None, learning_rates={"dynamics": 1e-9, "decoders": 0.1})
    before = {name: value.clone() for name, value in other.named_parameters()}
    batch = collected(model, 6, 2)
    for each in (model, other):
        each.fit(next_steps(batch, torch.arange(2), 3))
    size = {name: 0.0 for name in ("encoder", "dynamics", "decoders")}
    for name, value in other.named_parameters():
        kind = name.partition(".")[0]
        size[kind] = max(size[kind], float((value - before[name]).abs().max().detach()))
    assert size == {"encoder": pytest.approx(0.01, rel=0.1), "dynamics": pytest.approx(0, abs=1e-7),
                    "decoders": pytest.approx(0.1, rel=0.1)}  # fmt: skip
    assert torch.equal(other.encoder.output.weight, model.encoder.output.weight), "the gradients are the same"
    assert sum(len(optim.params) for optim in (other.optim, *other.optims.values())) == len(before)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"learning_rates": {"encoder": 1.0, "dynamics": 1.0, "decoders": 1.0}}, "names all parts; leave one"),
        ({"unroll_steps": 0, "decode": {"obs": 1.0}, "learning_rates": {"dynamics": 1.0}}, "there are no dynamics"),
    ],
)
def test_learning_rates_of_all_parts_or_missing_ones_are_refused(changes: Values, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        part(network=None, **changes)


def test_first_steps_keep_entries_of_whole_sequences() -> None:
    sequences = {"obs": {"a": torch.zeros(5, 2)}, "weight": torch.zeros(9), "start.x": torch.zeros(9, 3)}
    cut: Any = first_steps(sequences, 3)
    assert cut["obs"]["a"].shape == (3, 2) and cut["weight"].shape == (9,) and cut["start.x"].shape == (9, 3)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["algo=sac", "algo.representation.network=gru", "algo.representation.network.burn_in=2"],
         "sequences begin with stored states; set algo.representation.network.burn_in=0"),
        (["algo=sac_from_data", "algo.representation.network=gru", "algo.loop.data=x"],
         "algo.representation.network=gru: is not supported with algo.loop=hybrid, because recorded steps"),
        (["algo=sac", "algo.representation.decode.colour=1"],
         "algo.representation.decode.colour: must name one or more of obs, reward, terminated"),
        (["algo=sac", "algo.representation.decode.reward=-1"], "algo.representation.decode.reward"),
    ],
)  # fmt: skip
def test_what_a_representation_does_not_learn_from_is_refused_in_one_line(
    words: list[str], fault: str, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    own = ["env=Pendulum", "algo.representation=predictive", f"run_dir={tmp_path / 'run'}", "env.selftest=off"]
    assert main(["train", *words, *own]) == 2
    assert fault in (line := capsys.readouterr().err) and line.count("\n") == 1 and not (tmp_path / "run").exists()


def test_recurrent_encoders_of_hindsight_are_refused() -> None:
    faults = [*Predictive.requires({"network": GRU}, Around("sac", "offpolicy", buffer="hindsight"))]
    assert len(faults) == 1 and "algo.buffer=hindsight" in faults[0]
    assert not [*Predictive.requires({"network": None}, Around("sac", "offpolicy", buffer="hindsight"))]
    assert not [*Predictive.requires({"network": GRU}, Around("sac", "offpolicy", buffer="replay"))]
    with pytest.raises(ConfigError, match="start=stored"):
        part(network=GRU | {"start": "zero"})
