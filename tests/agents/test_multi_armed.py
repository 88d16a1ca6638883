"""Multi-armed bandit agents against values worked out by hand and theoretical bounds of their regret."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from gymnasium.spaces import Discrete

from rlrun.agents.bandits.bayesian import Bayesian
from rlrun.agents.bandits.epsilon_greedy import EpsilonGreedy
from rlrun.agents.bandits.gradient import Gradient
from rlrun.agents.bandits.ucb import UCB
from rlrun.cli import main
from rlrun.core.parts import Parts
from rlrun.errors import RunError
from rlrun.types import Context, Spec

CTX = Context(0, 0, 0.0)
PRIORS = {"confidence": 2.0, "alpha": 1.0, "beta": 1.0, "prior_mean": 1.0, "prior_std": 2.0, "reward_std": 0.5}


def agent(cls, bandits=2, arms=3, num_envs=1, **cfg):
    spec = Spec(Discrete(bandits), Discrete(arms), num_envs)
    return cls(SimpleNamespace(**cfg), spec, Parts(0, torch.device("cpu"), {}, spec))


def pulls(*rows):
    """Returns one vector step with rows (bandit, arm, reward)."""
    obs, action, reward = (torch.tensor([[row[i] for row in rows]]) for i in range(3))
    return {"obs": obs, "action": action, "reward": reward.float(), "weight": torch.ones(1, len(rows))}


def test_multi_armed_counts_several_pulls_of_one_arm():
    learner = agent(EpsilonGreedy, epsilon=0.0)
    learner.update(pulls((0, 1, 1.0), (0, 1, 0.0), (1, 2, 1.0)), CTX)
    assert learner.counts.tolist() == [[0, 2, 0], [0, 0, 1]]
    assert learner.value(torch.tensor([0, 1])).tolist() == [[0, 0.5, 0], [0, 0, 1]]
    nothing = pulls((0, 0, 1.0))
    nothing["weight"].zero_()
    learner.update(nothing, CTX)
    assert learner.counts.sum() == 3


def test_epsilon_greedy_pulls_at_random_with_probability_epsilon():
    learner = agent(EpsilonGreedy, num_envs=9000, epsilon=0.3)
    learner.update(pulls((0, 1, 1.0)), CTX)
    context = torch.zeros(9000, dtype=torch.int64)
    counts = learner.act(context, {}, explore=True)[0].bincount(minlength=3)
    assert all(abs(count - share * 9000) < 4 * 38 for count, share in zip(counts, (0.1, 0.8, 0.1), strict=True))
    assert learner.act(context, {}, explore=False)[0].unique().tolist() == [1]


def test_ucb_scores_equal_the_paper():
    learner = agent(UCB, confidence=1.0)
    learner.update(pulls((0, 0, 1.0), (0, 0, 0.0), (0, 1, 1.0), (1, 0, 1.0)), CTX)
    score = learner.score(torch.tensor([0]))[0].tolist()
    assert score == pytest.approx([0.5 + math.sqrt(2 * math.log(3) / 2), 1 + math.sqrt(2 * math.log(3)), math.inf])


def test_bayesian_ucb_bound_of_the_beta_posterior():
    learner = agent(Bayesian, play="bound", posterior="beta", **PRIORS)
    learner.update(pulls((0, 0, 1.0), (0, 0, 1.0), (0, 0, 0.0)), CTX)
    mean, std = 3 / 5, math.sqrt(3 * 2 / (25 * 6))
    assert learner.score(torch.tensor([0]))[0, 0].item() == pytest.approx(mean + 2 * std)
    with pytest.raises(RunError, match="posterior=normal"):
        learner.update(pulls((0, 0, 1.5)), CTX)


def test_thompson_normal_posterior_is_weighted_by_precision():
    learner = agent(Bayesian, play="bound", posterior="normal", **PRIORS)
    learner.update(pulls((0, 0, 3.0), (0, 0, 5.0)), CTX)
    precision = 1 / 4 + 2 / 0.25
    mean = (1 / 4 + 8 / 0.25) / precision
    assert learner.score(torch.tensor([0]))[0].tolist() == pytest.approx([mean + 2 * precision**-0.5, 5.0, 5.0])


@pytest.mark.parametrize("posterior", ["beta", "normal"])
def test_thompson_samples_have_the_moments_of_the_posterior(posterior):
    learner = agent(Bayesian, play="sample", posterior=posterior, **PRIORS)
    learner.update(pulls((0, 0, 1.0), (0, 0, 1.0), (0, 1, 0.0)), CTX)
    context = torch.zeros(20000, dtype=torch.int64)
    draws, (mean, std) = learner.score(context), learner.moments(context[:1])
    assert torch.allclose(draws.mean(0), mean[0], atol=5 * 2.0 / math.sqrt(20000))
    assert torch.allclose(draws.std(0), std[0], rtol=0.03)


def test_gradient_bandit_baseline_is_the_mean_reward():
    learner = agent(Gradient, learning_rate=0.1, temperature=1.0)
    learner.update(pulls((0, 1, 3.0)), CTX)
    third = 1 / 3
    assert learner.preference[0].tolist() == pytest.approx([-0.3 * third, 0.3 * (1 - third), -0.3 * third])
    before = learner.preference[0].clone()
    learner.update(pulls((0, 0, 3.0)), CTX)  # a reward equal to the baseline: no update
    assert torch.equal(learner.preference[0], before) and not learner.preference[1].any()
    learner.update(pulls((1, 1, 3.0)), CTX)  # the first pull of another bandit: its baseline is 0
    assert learner.preference[1].tolist() == pytest.approx([-0.3 * third, 0.3 * (1 - third), -0.3 * third])


def test_gradient_bandit_samples_from_its_softmax():
    learner = agent(Gradient, learning_rate=0.1, temperature=0.5)
    learner.preference[0] = torch.tensor([0.0, 0.5, 1.0])
    counts = learner.act(torch.zeros(30000, dtype=torch.int64), {}, explore=True)[0].bincount(minlength=3)
    expected = torch.tensor([0.0, 1.0, 2.0]).softmax(0) * 30000
    assert ((counts - expected) ** 2 / expected).sum() < 13.8  # chi-square, 2 degrees of freedom, one in a thousand


# Maximum mean regret of 20 runs of 10,000 pulls; the regret of uniform play is 4,000.
REGRET = {"epsilon_greedy": 450, "ucb": 776, "bayesian_ucb": 60, "thompson": 60, "gradient_bandit": 300}


@pytest.mark.slow
@pytest.mark.parametrize("algo", REGRET)
def test_multi_armed_regret_stays_small(algo, tmp_path):
    words = [f"algo={algo}", "env=BernoulliBandit", "env.kwargs.reward_probs=[0.1,0.3,0.5,0.7,0.9]", "env.num_envs=20"]
    words += ["env.kwargs.bandits=20", "env.kwargs.contexts=own", "logger=[]"]
    words += ["trainer.total_steps=40000", "trainer.log_every=20000", f"run_dir={tmp_path / 'run'}"]
    assert main(["train", *words]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["train/regret_total"] < REGRET[algo] * (0.9 if algo == "ucb" else 1)
    assert rows[-1]["train/regret"] < rows[0]["train/regret"] < 0.4
    assert rows[-1]["train/best_arm"] > 0.9 and rows[-1]["eval/return_mean"] > 0.85


@pytest.mark.slow
def test_gaussian_thompson_regret_is_within_twice_the_lower_bound(tmp_path):
    """Lai and Robbins: 2 ln t / gap, summed over the suboptimal arms. The regret of uniform play is 4,000."""
    pulls, gaps = 2000, [1, 2, 3, 4]
    words = ["algo=gaussian_thompson", "env=GaussianBandit", "env.kwargs.reward_means=[-2,-1,0,1,2]", "env.num_envs=20"]
    words += ["env.kwargs.bandits=20", "env.kwargs.contexts=own", "logger=[]"]
    words += [f"trainer.total_steps={20 * pulls}", "trainer.log_every=20000", f"run_dir={tmp_path / 'run'}"]
    assert main(["train", *words]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["train/regret_total"] < 2 * sum(2 * math.log(pulls) / gap for gap in gaps)
    assert rows[-1]["train/regret"] < rows[0]["train/regret"]
    assert rows[-1]["train/best_arm"] > 0.95
