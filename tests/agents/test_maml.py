"""MAML: the gradient flows through the inner step, tasks are independent, and a policy is adapted once."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import Values, equal, put, streams, toy, train

from rlrun.config.schema import run_config
from rlrun.core.addon import Addons
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.loops.adaptation import collect_episodes
from rlrun.run.assemble import eval_env
from rlrun.run.evaluation import evaluate, play
from rlrun.testing import check_resuming
from rlrun.types import Batch

Build = Callable[..., Loop]


def family(**changes: Any) -> Values:
    tasks = {"env.id": "rlrun/PointGoal-v0", "env.task_kwargs": {"x": [-0.5, 0.5], "y": [-0.5, 0.5]}}
    return put(toy("maml"), tasks | {"env.num_envs": 3, "env.max_episode_steps": 5, **changes})


def explored(loop: Any, policy: Any, count: int = 2) -> Batch:
    return loop.collect_rollout(policy, count)


def test_maml_meta_gradient_is_that_of_the_loss_after_the_inner_step(build: Build) -> None:
    loop: Any = build(family(**{"algo.inner_learning_rate": 3.0}))
    agent = loop.agent
    policy = agent.get_exploration_policy()
    seen = explored(loop, policy)
    adapted_episodes = explored(loop, agent.adapt_policy(policy, seen))
    first, second = agent.rows_with_advantages(seen), agent.rows_with_advantages(adapted_episodes)

    def after(params: torch.Tensor) -> torch.Tensor:
        return -(agent.ratio(params, second) * second["advantage"]).mean()

    weights = agent.weights.detach().clone().requires_grad_()
    adapted = agent.adapt(weights[None], first)
    (gradient,) = torch.autograd.grad(after(adapted), weights, retain_graph=True)
    (blind,) = torch.autograd.grad(after(adapted), adapted)  # as in first-order MAML
    for direction in (gradient / gradient.norm(), blind.sum(0) / blind.norm()):
        up, down = (weights.detach() + sign * 0.01 * direction for sign in (1, -1))
        slope = after(agent.adapt(up[None].requires_grad_(), first)) - after(
            agent.adapt(down[None].requires_grad_(), first)
        )
        assert (gradient @ direction).item() == pytest.approx(slope.item() / 0.02, rel=0.02)
    assert (gradient - blind.sum(0)).norm() > 0.1 * gradient.norm(), (
        "the inner step must matter for this to mean something"
    )


def test_maml_inner_step_is_the_policy_gradient_of_its_task(build: Build) -> None:
    loop: Any = build(family())
    agent = loop.agent
    policy = agent.get_exploration_policy()
    rollout = explored(loop, policy)
    before = policy.params[0].clone()
    after = agent.adapt_policy(policy, rollout).params
    rows = agent.rows_with_advantages(rollout)
    for task in range(3):
        weights = before.clone().requires_grad_()
        share = slice(task * 10, task * 10 + 10)  # two episodes of five steps
        log_prob = agent.policy(rows["obs"][share], weights[None]).log_prob(rows["action"][share])
        (gradient,) = torch.autograd.grad((log_prob * rows["advantage"][share]).mean(), weights)
        expected = before + agent.cfg.inner_learning_rate * gradient
        torch.testing.assert_close(after[task], expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(after[0], after[1])


def test_maml_ratio_that_is_logged_leaves_out_masked_rows(build: Build) -> None:
    loop: Any = build(family())
    agent = loop.agent
    rows = agent.rows_with_advantages(explored(loop, agent.get_exploration_policy()))
    masked = copy.deepcopy(rows)
    masked["weight"][:3] = 0
    masked["log_prob"][:3] -= 5  # ratios of e^5
    before = copy.deepcopy(agent.state_dict())
    found = agent.meta_step(rows, masked)["loss/ratio"]
    agent.load_state_dict(before)
    ratio = agent.ratio(agent.adapt(agent.weights[None], rows), masked).view(3, -1)
    assert found.item() == pytest.approx(((ratio[0, 3:].mean() + ratio[1].mean() + ratio[2].mean()) / 3).item())


def test_maml_tasks_are_independent(build: Build) -> None:
    loop: Any = build(family())
    agent = loop.agent
    rollout = explored(loop, agent.get_exploration_policy())
    other = copy.deepcopy(rollout)
    other["reward"][:, 1] += torch.randn(len(other["reward"]))
    one, two = (agent.adapt_policy(agent.get_exploration_policy(), each).params for each in (rollout, other))
    assert torch.equal(one[0], two[0]) and torch.equal(one[2], two[2]) and not torch.equal(one[1], two[1])


def test_maml_policy_adapts_once_without_changing_the_agent(build: Build) -> None:
    loop: Any = build(family())
    agent = loop.agent
    before = copy.deepcopy(agent.state_dict())
    policy = agent.get_exploration_policy()
    rollout = explored(loop, policy)
    agent.adapt_policy(policy, rollout)
    with pytest.raises(RuntimeError, match="adapted"):
        agent.adapt_policy(policy, rollout)
    with pytest.raises(RuntimeError, match="adapted"):
        policy.act(loop.obs, loop.carry, explore=False)
    assert equal(
        [before[k] for k in before if "extra" not in k], [agent.state_dict()[k] for k in before if "extra" not in k]
    )
    agent.adapt_policy(agent.get_exploration_policy(), rollout)


def test_maml_evaluation_adapts_without_changing_the_state(build: Build) -> None:
    loop, judges = build(family()), [build(family(seed=7), begin=False).env for _ in range(2)]
    agent: Any = loop.agent
    state, drawn = copy.deepcopy(loop.agent.state_dict()), streams(loop)
    adapted: list[Any] = []
    adapt = agent.adapt_policy
    agent.adapt_policy = lambda *given: adapted.append(adapt(*given)) or adapted[-1]
    one, two = (play(agent, loop.addons, judge, 3) for judge in judges)
    assert one == two and len(adapted) == 2
    assert equal(drawn, streams(loop)) and equal(state, loop.agent.state_dict())
    played = [result.success for result in one]
    assert len(one) == 3 and None not in played


def test_maml_collects_equally_many_complete_episodes_per_task(build: Build) -> None:
    class Ends:
        """Environment i ends after i + 2 steps."""

        def act(self, obs: Any, carry: Any, explore: bool) -> Any:
            return torch.zeros(3, 2), {}

    loop: Any = build(family())
    plain, t = loop.env.step, torch.zeros(3, dtype=torch.long)

    def step(action: Any) -> Any:
        t.add_(1)
        over = t == torch.tensor([2, 3, 4])
        t[over] = 0
        found, events = plain(action)
        return found | {"terminated": over, "truncated": torch.zeros_like(over)}, events

    loop.env.step = step
    rollout = collect_episodes(loop.collect_episodes([2] * 3, {}, Ends()), loop.spec, 2)
    assert rollout["weight"].sum(0).tolist() == [4, 6, 8] and len(rollout["weight"]) == 8
    assert (rollout["terminated"] * rollout["weight"]).sum(0).tolist() == [2, 2, 2]
    assert rollout["first"][:, 0].tolist() == [True, False] * 4


def test_maml_evaluation_reports_the_same_tasks_before_adapting(build: Build) -> None:
    values = family(**{"algo.inner_learning_rate": 3.0})
    agent: Any = build(values).agent

    def tasks() -> Any:
        return eval_env(run_config(values), 0, "before", 4, torch.device("cpu"))

    before = [one.episode_return for one in play(agent.get_exploration_policy(), Addons(), tasks(), 4)]
    found = evaluate(agent, Addons(), tasks(), 4)
    assert found["eval/return_before"] == pytest.approx(sum(before) / 4)
    assert found["eval/return_before"] != found["eval/return_mean"]


def goals(env: Any) -> list[list[float]]:
    return [slot.unwrapped.goal.tolist() for slot in env.pool.slots]


def test_meta_loop_draws_new_tasks_for_every_update(build: Build) -> None:
    for new_tasks, expected in ((True, 9), (False, 3)):
        loop: Any = build(family(**{"algo.loop.new_tasks": new_tasks}))
        seen = set()
        for _ in range(3):
            loop.tick()
            seen |= {tuple(goal) for goal in goals(loop.env)}
        assert len(seen) == expected


@pytest.mark.parametrize("method", ["native", "replay"])
def test_a_resumed_meta_run_draws_the_same_tasks(method: Any, build: Build) -> None:
    loop, other = build(family(), begin=False), build(family(), begin=False)
    for env in (loop.env, other.env):
        env.verdict = dataclasses.replace(env.verdict, method=method)
        assert env.method == method
    loop.begin()
    train(loop, 2)
    check_resuming(loop, other)
    assert goals(other.env) == goals(loop.env)


def test_an_evaluation_has_test_tasks_and_reports_each_of_them(build: Build) -> None:
    values = family(**{"algo.inner_learning_rate": 3.0, "algo.loop.test_tasks": 3, "trainer.eval_episodes": 6})
    loop: Any = build(values)
    env = eval_env(run_config(values), 0, "eval.1", 6, torch.device("cpu"))
    found = evaluate(loop.agent, Addons(), env, 6, per_task=True)
    drawn = [[found[f"eval/task_{index}/{name}"] for name in ("x", "y")] for index in range(3)]
    assert drawn == goals(env) and f"eval/task_{3}/x" not in found
    for phase, mean in (("before", "eval/return_before"), ("after", "eval/return_mean")):
        returns = [found[f"eval/task_{index}/return_{phase}"] for index in range(3)]
        assert len(set(returns)) == 3 and sum(returns) / 3 == pytest.approx(found[mean])
    assert found["eval/task_0/success_after"] == 0
    env.close()


def test_meta_run_refuses_too_many_test_tasks_and_equal_tasks_in_evaluation(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo.loop.test_tasks=9: must be at most trainer.eval_episodes=8"):
        build(family(**{"algo.loop.test_tasks": 9, "trainer.eval_episodes": 8}))
    with pytest.raises(ConfigError, match=r"env.instance_seed=1: gives training and evaluation the same tasks"):
        build(family(**{"env.instance_seed": 1}))
    build(family(**{"env.instance_seed": 1, "algo.loop.new_tasks": False}))
