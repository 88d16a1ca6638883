"""What the defaults and presets promise, trained in full."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from toys import ALGOS

from rlrun.cli import main

PROMISES = {
    "ppo CartPole": (100_000, 475.0),
    "ppo1 CartPole": (100_000, 475.0),
    "ppo2 CartPole": (100_000, 475.0),
    "ppo_critic_first CartPole": (100_000, 475.0),
    "a2c CartPole": (200_000, 475.0),
    "vpg CartPole": (200_000, 400.0),
    "svpg CartPole": (200_000, 475.0),
    "vtrace CartPole": (200_000, 475.0),
    "dqn CartPole": (50_000, 475.0),
    "double_dqn CartPole": (50_000, 475.0),
    "dueling_dqn CartPole": (50_000, 475.0),
    "prioritized_dqn CartPole": (50_000, 475.0),
    "noisy_dqn CartPole": (50_000, 475.0),
    "c51 CartPole": (50_000, 475.0),
    "qr_dqn CartPole": (50_000, 475.0),
    "rainbow CartPole": (50_000, 475.0),
    "discrete_sac CartPole": (50_000, 475.0),
    "sac Pendulum": (20_000, -220.0),
    "recurrent_sac MaskedPendulum": (20_000, -250.0),
    "r2d2 MaskedCartPole": (40_000, 475.0),
    "td3 Pendulum": (10_000, -200.0),
    "ddpg Pendulum": (10_000, -200.0),
    "redq Pendulum": (3_000, -200.0),
    "ppo Pendulum": (200_000, -250.0),
    "ppo Acrobot": (200_000, -100.0),
    "ppo MountainCarContinuous": (100_000, 90.0),
    "ppo_rnd DeepSea": (60_000, 0.9),
    "ppo_icm DeepSea": (60_000, 0.9),
    "cem CartPole": (200_000, 475.0),
    "cma_es CartPole": (100_000, 475.0),
    "openai_es CartPole": (500_000, 475.0),
    "muzero CartPole": (16_000, 450.0),
    "muzero TicTacToe": (250_000, 0.0),
}
SELF_PLAY = "muzero TicTacToe"

# Names of the catalogue of which no run by a preset is promised, and the test that says what they learn.
ELSEWHERE = {
    "ppo_lstm": "learning/test_memory.py::test_what_was_seen_ten_steps_ago_is_recalled",
    "ppo_demos": "learning/test_deep_exploration.py::test_one_demonstration_is_enough",
    "ppo_lagrangian": "learning/test_limits.py::test_an_agent_spends_what_it_may_and_runs_as_far_as_that_takes_it",
    "sac_lagrangian": "learning/test_limits.py::test_an_agent_spends_what_it_may_and_runs_as_far_as_that_takes_it",
    "gumbel_muzero": "learning/test_probe_values.py::test_policies_find_the_best_actions",
    "maml": "learning/test_adaptation.py::test_maml_finds_goals_that_no_fixed_policy_can_know",
    "diayn": "learning/test_skills.py::test_four_skills_are_told_apart_and_end_apart",
    "bc": "learning/test_data_sets.py::test_a_clone_of_a_controller_balances_the_pole",
    "iql": "learning/test_data_sets.py::test_iql_makes_more_of_a_mixture_than_cloning",
    "sac_from_data": "learning/test_data_sets.py::test_a_data_set_gives_sac_a_head_start",
    "causal_bc": "agents/test_causal_bc.py::test_a_gain_is_recovered_that_plain_cloning_gets_wrong",
    "q_learning": "learning/test_classic.py::test_q_learning_crosses_slippery_ice",
    "sarsa": "learning/test_classic.py::test_q_learning_takes_the_edge_of_the_cliff_and_sarsa_the_safe_path",
    "dyna_q": "learning/test_classic.py::test_planning_saves_real_steps",
    "epsilon_greedy": "agents/test_multi_armed.py::test_regret_stays_small",
    "ucb": "agents/test_multi_armed.py::test_regret_stays_small",
    "bayesian_ucb": "agents/test_multi_armed.py::test_regret_stays_small",
    "thompson": "agents/test_multi_armed.py::test_regret_stays_small",
    "gaussian_thompson": "agents/test_multi_armed.py::test_normal_rewards_lose_no_more_than_twice_what_they_must",
    "gradient_bandit": "agents/test_multi_armed.py::test_regret_stays_small",
    "linear_posterior": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "neural_greedy": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "neural_linear": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "bootstrap_bandit": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "variational_bandit": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "parameter_noise_bandit": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
}
NEVER_LEARN = {"nop", "fixed_policy"}
TESTS = Path(__file__).parents[1]


def learn(pair: str, run: Path) -> Path:
    """Train in full, by the preset."""
    algo, env = pair.split()
    total, least = PROMISES[pair]
    words = [f"algo={algo}", f"env={env}", f"trainer.total_steps={total}", "trainer.eval_episodes=20"]
    assert main(["train", *words, "logger.tensorboard=false", f"run_dir={run}"]) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert summary["step"] >= total and summary["final_return"] >= least
    return run


def test_every_name_of_the_catalogue_is_held_to_what_it_learns() -> None:
    promised = {pair.split()[0] for pair in PROMISES}
    assert not promised & ELSEWHERE.keys()
    assert promised | ELSEWHERE.keys() | NEVER_LEARN == {*ALGOS}


@pytest.mark.parametrize("algo", ELSEWHERE)
def test_what_is_said_to_hold_a_name_is_a_test_that_knows_it(algo: str) -> None:
    file, _, test = ELSEWHERE[algo].partition("::")
    text = (TESTS / file).read_text()
    assert f"def {test}(" in text and re.search(rf"\b{algo}\b", text)


@pytest.mark.slow
@pytest.mark.parametrize("pair", [pair for pair in PROMISES if pair != SELF_PLAY])
def test_an_algorithm_learns_what_its_preset_promises(pair: str, tmp_path: Path) -> None:
    learn(pair, tmp_path / "run")


@pytest.mark.slow
def test_who_learned_tic_tac_toe_by_itself_never_loses_to_a_player_who_never_errs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshots = learn(SELF_PLAY, tmp_path / "run") / "snapshots"
    last = snapshots / (snapshots / "LATEST").read_text().strip()
    for first in ("true", "false"):
        assert main(["eval", str(last), "episodes=200", f"env.kwargs.first={first}"]) == 0
        results = Counter(json.loads(capsys.readouterr().out.splitlines()[-1])["returns"])
        with capsys.disabled():
            print(f"first={first}: {results[1.0]} won, {results[0.0]} drawn, {results[-1.0]} lost of {results.total()}")
        assert results.total() == 200 and results[-1.0] == 0
