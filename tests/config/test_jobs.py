"""Jobs that are composed from the words after `rlrun train`, and every error message about these words."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlrun.config.compose import literal
from rlrun.config.jobs import jobs
from rlrun.config.sources import PlainYaml
from rlrun.config.stored import parse_yaml
from rlrun.errors import ConfigError

PAIR = ["algo=sac", "env=HalfCheetah"]
NO_CALL = "is not allowed; write the value itself, or refer to one, like ${algo.gamma}"


def values(*words, alone=False, config_dirs=()):
    (job,) = jobs([*([] if alone else PAIR), *words, *(f"--config-dir={folder}" for folder in config_dirs)])
    return job.values


def faults(*words, multirun=False, config_dirs=()):
    with pytest.raises(ConfigError) as caught:
        jobs([*words, *(f"--config-dir={folder}" for folder in config_dirs)], multirun)
    assert caught.value.exit_code == 2
    return list(caught.value.faults)


@pytest.fixture
def more_configs(tmp_path):
    """A user's config folder: an alias for a registered id, and tuned values for this environment."""
    files = {
        "env/Cart.yaml": "defaults: [_base, _self_]\nid: CartPole-v0\n",
        "preset/sac-Cart.yaml": "# @package _global_\nalgo: {gamma: 0.5}\ntrainer: {total_steps: 7}\n",
        "trainer/leaky.yaml": "defaults: [default, _self_]\nthreads: ${oc.env:HOME}\n",
        "trainer/coded.yaml": "defaults: [default, _self_]\nthreads: {_target_: os.system}\n",
        "algo/bare.yaml": "# @package _global_\ndefaults: [loop@algo.loop: evolution]\nalgo:\n  name: bare\n",
        "trainer/broken.yaml": "a: [1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return [str(tmp_path)]


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Walker2d-v5", "sac-Walker2d-v5"),
        ("CartPole-v1", "sac-CartPole-v1"),
        ("json:My-v0", "sac-json_My-v0"),
        ("json.tool:ALE/My-v0", "sac-json.tool_ALE_My-v0"),
    ],
)
def test_any_gymnasium_id_is_an_environment(typed, name):
    found = values("algo=sac", f"env={typed}", alone=True)
    assert found["env"]["id"] == typed
    assert found["name"] == name
    assert found["env"]["num_envs"] == values()["env"]["num_envs"]


def test_a_preset_of_the_same_name_wins_over_an_id():
    found = values()
    assert found["env"]["id"] == "HalfCheetah-v5"
    assert found["name"] == "sac-HalfCheetah"


def test_values_are_plain_and_fitted_to_the_yaml():
    found = values("seed=1e3", "algo.gamma=1", "algo.loop={batch_size: 32.0}", "network.hidden=[64.0,32]")
    assert (found["seed"], type(found["seed"])) == (1000, int)
    assert (found["algo"]["gamma"], type(found["algo"]["gamma"])) == (1.0, float)
    assert found["algo"]["loop"]["batch_size"] == 32
    assert found["algo"]["loop"]["warmup_steps"] == values()["algo"]["loop"]["warmup_steps"]
    assert [type(units) for units in found["network"]["hidden"]] == [int, int]
    assert "hydra" not in found


def test_values_are_never_truncated_to_integers():
    found = values("network=cnn", "network.convolutions=[[16,8.5,4.0],[inf,1,1]]")["network"]["convolutions"]
    assert found == [[16, 8.5, 4], [float("inf"), 1, 1]]


def test_open_sections_take_any_key_without_a_plus_and_give_keys_back():
    env = values("env.kwargs.box=true", "env.kwargs.deep.er=[1,2]", "+env.wrappers.mine.size=3")["env"]
    assert env["kwargs"] == {"box": True, "deep": {"er": [1, 2]}}
    assert env["wrappers"] == {"mine": {"size": 3}}
    atari = ["algo=sac", "env=ALE/Pong-v5"]
    assert "frame_stack" in values(*atari, alone=True)["env"]["wrappers"]
    assert "frame_stack" not in values(*atari, "~env.wrappers.frame_stack", alone=True)["env"]["wrappers"]


def test_total_steps_is_short_for_trainer_total_steps():
    found = jobs([*PAIR, "total_steps=10,2e1"], multirun=True)
    assert [job.values["trainer"]["total_steps"] for job in found] == [10, 20]
    assert found[1].words == [*PAIR, "trainer.total_steps=20.0"]


def test_plus_signs_are_harmless_on_known_keys():
    assert values("++algo.gamma=0.5", "+seed=3")["algo"]["gamma"] == 0.5
    words = ("+algo=ppo", "++env=CartPole", "+network=mlp")
    for sign in ("", "+", "++"):
        found = values(*words, f"{sign}preset=none", alone=True)
        assert (found["preset"], found["network"]["name"]) == (None, "mlp")


def test_interpolations_between_keys_are_resolved():
    assert values("env.instance_seed=${seed}", "seed=5")["env"]["instance_seed"] == 5


def test_section_that_refers_to_another_is_copied_before_a_key_of_it_is_set():
    env = values("env.kwargs={a: 1, b: 2}", "env.eval_kwargs=${env.kwargs}", "env.eval_kwargs.a=3")["env"]
    assert (env["kwargs"], env["eval_kwargs"]) == ({"a": 1, "b": 2}, {"a": 3, "b": 2})


def test_key_in_a_list_is_refused():
    line = "env.kwargs.a.0: env.kwargs.a is a list; set the whole list, as in env.kwargs.a=[1]"
    assert faults(*PAIR, "env.kwargs.a=[1]", "env.kwargs.a.0=2") == [line]


def test_missing_value_of_a_word_keeps_the_present_value():
    assert values("env.kwargs.a=1", "env.kwargs={a: ???, b: 2}")["env"]["kwargs"] == {"a": 1, "b": 2}


@pytest.mark.parametrize("env", ["Cart", "CartPole-v0"])
def test_a_preset_is_found_by_alias_and_by_full_id_and_recorded(env, more_configs):
    found = values("algo=sac", f"env={env}", alone=True, config_dirs=more_configs)
    assert (found["preset"], found["algo"]["gamma"], found["trainer"]["total_steps"]) == ("sac-Cart", 0.5, 7)
    assert found["name"] == f"sac-{env}"


def test_the_command_line_wins_over_a_preset(more_configs):
    found = values("algo=sac", "env=Cart", "algo.gamma=0.7", alone=True, config_dirs=more_configs)
    assert (found["algo"]["gamma"], found["trainer"]["total_steps"]) == (0.7, 7)


def test_presets_can_be_borrowed_or_left_out(more_configs):
    assert values("preset=sac-Cart", config_dirs=more_configs)["algo"]["gamma"] == 0.5
    found = values("algo=sac", "env=Cart", "preset=none", alone=True, config_dirs=more_configs)
    assert (found["preset"], found["algo"]["gamma"]) == (None, 0.99)


def test_a_part_is_chosen_by_its_name_and_other_values_stand():
    found = values("algo.buffer=prioritized", "algo.buffer.alpha=0.3", "algo.buffer.capacity=500")["algo"]["buffer"]
    assert (found["name"], found["alpha"], found["capacity"], found["epsilon"]) == ("prioritized", 0.3, 500, 1e-5)


def test_preset_keys_of_a_replaced_part_are_dropped():
    chosen = values("algo=dqn", "env=CartPole", "algo.epsilon=exponential", alone=True)["algo"]["epsilon"]
    assert chosen == {"name": "exponential", "start": 1.0, "end": 0.04, "steps": 1000}


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("algo.gama=0.9", "algo.gama: unknown key; did you mean algo.gamma?"),
        ("algo.total_steps=10", "algo.total_steps: unknown key; did you mean trainer.total_steps?"),
        ("trainr.total_step=10", "trainr.total_step: unknown key; did you mean trainer.total_steps?"),
        ("+zzz=1", "zzz: unknown key"),
        (
            "env.size=2",
            "env.size: unknown key; to set an argument of the environment's constructor, type env.kwargs.size",
        ),
        ("algo.gamma=high", "algo.gamma=high: must be a number, like 0.99"),
        ("algo.gamma=true", "algo.gamma=true: must be a number, like 0.99"),
        ("seed=1.5", "seed=1.5: must be a whole number, like 0"),
        ("seed='3'", "seed=3: must be a whole number, like 0"),
        ("logger.console=1", "logger.console=1: must be a section"),
        ("logger.csv.x=1", "logger.csv.x: unknown key; choose the logger with logger=[console,tensorboard,csv]"),
        ("logger=[csv,boad]", "logger=boad: unknown name (there are: console, csv, mlflow, tensorboard, text, wandb)"),
        ("device=0", "device=0: must be text, like auto"),
        ("network.hidden=256", "network.hidden=256: must be a list: [256]"),
        ("network.hidden=[a]", "network.hidden=[a]: must be a list of whole numbers"),
        ("env.kwargs=3", "env.kwargs=3: must be a section"),
        ("algo.loop={size: 3}", "algo.loop.size: unknown key"),
        ("trainer=fast", "trainer=fast: unknown name (there are: default, quick)"),
        ("trainer=quik", "trainer=quik: unknown name; did you mean quick? (there are: default, quick)"),
        (
            "algo.buffer=prioritised",
            "algo.buffer=prioritised: unknown name; did you mean prioritized? "
            "(there are: demos, hindsight, prioritized, prioritized_hindsight, replay)",
        ),
        (
            "algo.buffer=HER",
            "algo.buffer=HER: unknown name; did you mean hindsight? "
            "(there are: demos, hindsight, prioritized, prioritized_hindsight, replay)",
        ),
        (
            "algo.critic=redq",
            "algo.critic=redq: unknown name; did you mean min with algo.critic.target_members=2? "
            "(there are: categorical, hl_gauss, mean, min, quantile, rescaled, truncated)",
        ),
        ("algo.minibatch_size=3", "algo.minibatch_size: unknown key; did you mean algo.loop.batch_size?"),
        (
            "algo.epsilon=linear",
            "algo.epsilon=linear: algo=sac has no part algo.epsilon; its parts are algo.action_gradient, algo.buffer, "
            "algo.critic, algo.entropy, algo.entropy_reward, algo.goals, algo.intrinsic, algo.loop, algo.noise, "
            "algo.representation, algo.reward_weights",
        ),
        ("algo.loop=onpolicy", "algo.loop=onpolicy is not supported by algo=sac, which learns from replay"),
        (
            "env.wrappers=frame_stack",
            "env.wrappers=frame_stack: must be a section; did you mean env.wrappers.frame_stack={}?",
        ),
        ("seed=1,2", "seed=1,2: several values; add -m to run a job for each"),
        ("seed=range(3)", "seed=range(3): several values; add -m to run a job for each"),
        (
            "hydra.verbose=true",
            "hydra.verbose=true: Hydra only composes the config here, so its own settings have no effect",
        ),
        ("~trainer", "~trainer: a group cannot be deleted; choose another name for it"),
        (
            "~seed",
            "~seed: only keys in algo.schedule, env.kwargs, env.wrappers, network.actor, network.critic can be deleted",
        ),
        ("env.kwargs._target_=x", "env.kwargs._target_: _target_ is not allowed; use registered names (rlrun list)"),
        ("name=${oc.env:HOME}", f"name: ${{oc.env:HOME}} {NO_CALL}"),
        ("name='${oc.${device}:HOME}'", f"name: ${{oc.${{device}}:HOME}} {NO_CALL}"),
        ("name='${ oc.create : {a: 1}}'", f"name: ${{ oc.create : {{a: 1}}}} {NO_CALL}"),
        ("quick", "cannot read 'quick': write key=value; did you mean trainer=quick?"),
        ("name=über", "cannot read 'name=über': put text with such characters in quotes: \"name='über'\""),
        ("name=;", "cannot read 'name=;': put text with such characters in quotes: \"name=';'\""),
        ("name=a(b)", "cannot read 'name=a(b)': put text with such characters in quotes: \"name='a(b)'\""),
        ("@pkg=1", "@pkg=1: packages (@) are not used here; a part is chosen by its key: algo.buffer=NAME"),
        (
            "algo/buffer@algo.buffer=replay",
            "algo/buffer@algo.buffer=replay: packages (@) are not used here; a part is chosen by its key: "
            "algo.buffer=NAME",
        ),
        ("algo=sac", "algo=sac: algo is chosen twice, first by algo=sac"),
        ("plugins=[no_such_package]", "plugins: cannot find a package named 'no_such_package'"),
        ("trainer.engine=warp", "trainer.engine='warp': must be 'auto', 'eager', 'compile' or 'cudagraph'"),
    ],
)
def test_faulty_word_is_refused_in_one_line(word, line):
    assert faults(*PAIR, word) == [line]


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ("HalfCheeta", "env=HalfCheeta: unknown environment; did you mean HalfCheetah? (rlrun list env)"),
        ("halfcheetah", "env=halfcheetah: unknown environment; did you mean HalfCheetah? (rlrun list env)"),
        ("Pendulum-v0", "env=Pendulum-v0: unknown environment; did you mean Pendulum-v1? (rlrun list env)"),
        ("Blackjack", "env=Blackjack: unknown environment; did you mean Blackjack-v1? (rlrun list env)"),
        (
            "rlrun/ProbeRecal-v0",
            "env=rlrun/ProbeRecal-v0: unknown environment; did you mean rlrun/ProbeRecall-v0? (rlrun list env)",
        ),
        ("qqqqq", "env=qqqqq: unknown environment (rlrun list env)"),
        ("no_such_package:My-v0", "env=no_such_package:My-v0: cannot find a package named 'no_such_package'"),
    ],
)
def test_unknown_environments_are_named(env, line):
    assert faults("algo=sac", f"env={env}") == [line]


def test_our_environments_are_known_before_any_was_made():
    words = ["train", "algo=dqn", "env=rlrun/ProbeRecall-v0", "--cfg", "job"]
    done = subprocess.run([sys.executable, "-m", "rlrun", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "id: rlrun/ProbeRecall-v0" in done.stdout


def test_network_without_a_part_that_the_algorithm_chooses_is_refused():
    line = "network=linear: has no part network.norm, which algo=crossq sets; network may be auto, cnn, compact, "
    assert faults("algo=crossq", "env=Pendulum", "network=linear") == [line + "gru, impala, lstm, mlp"]


def test_schedule_by_name_is_refused_with_the_section_to_write():
    line = "algo.schedule=linear: must be a section, such as {learning_rate: {linear: {end: 0}}}"
    for preset in ("none", "ppo-Pendulum"):
        assert faults("algo=ppo", "env=Pendulum", f"preset={preset}", "algo.schedule=linear") == [line]


def test_base_files_cannot_be_chosen():
    (line,) = faults("algo=sac", "env=_base")
    assert line.startswith("env=_base: unknown name")


def test_missing_choices_are_asked_for():
    algo, env = faults()
    assert algo.startswith("algo: missing; choose one with algo=... (")
    assert "classifier" in algo
    assert env.startswith("env: missing; choose one with env=... (")


def test_all_faults_come_in_one_answer_and_near_names_are_checked_on():
    found = faults("algo=sacc", "env=HalfCheeta", "algo.gama=1", "trainer.total_step=3", "seed=x", "eval", "tau=[")
    assert [line.partition(":")[0] for line in found] == [
        "cannot read 'eval'", "cannot read 'tau=['", "algo=sacc", "env=HalfCheeta", "algo.gama", "trainer.total_step",
        "seed=x",
    ]  # fmt: skip


def test_keys_of_a_group_without_a_usable_choice_are_not_judged():
    assert [line.partition(":")[0] for line in faults("algo=zzzzz", "env=HalfCheetah", "algo.x=1")] == ["algo=zzzzz"]


@pytest.mark.parametrize(
    ("trainer", "line"),
    [
        ("leaky", f"trainer.threads: ${{oc.env:HOME}} {NO_CALL}"),
        ("coded", "trainer.threads._target_: _target_ is not allowed; use registered names (rlrun list)"),
    ],
)
def test_values_in_files_are_refused_like_typed_ones(trainer, line, more_configs):
    assert faults(*PAIR, f"trainer={trainer}", config_dirs=more_configs) == [line]


def test_values_missing_in_all_files_are_required(more_configs):
    words = ["algo=bare", "env=HalfCheetah"]
    line = "algo.loop.episodes: missing; give it a value with algo.loop.episodes=..."
    assert faults(*words, config_dirs=more_configs) == [line]
    assert values(*words, "algo.loop.episodes=2", alone=True, config_dirs=more_configs)["algo"]["loop"]["episodes"] == 2


def test_a_file_that_is_not_yaml_is_named_with_its_line(more_configs):
    (line,) = faults(*PAIR, "trainer=broken", config_dirs=more_configs)
    assert line.startswith(f"{more_configs[0]}/trainer/broken.yaml, line 2: expected ")


def test_unknown_presets_and_folders_are_named(more_configs):
    (line,) = faults(*PAIR, "preset=sac-Carr", config_dirs=more_configs)
    assert line.startswith("preset=sac-Carr: unknown name; did you mean sac-Cart? (there are:")
    assert faults(*PAIR, config_dirs=["/no/such"]) == ["--config-dir: no folder '/no/such'"]


# --- sweeps ----------------------------------------------------------------------------------------------------------


def test_a_sweep_is_every_combination_in_order():
    words = ["algo=sac", "env=HalfCheetah,ALE/Pong-v5", "seed=range(2)", "algo.gamma=choice(0.9,0.8)"]
    found = jobs(words, multirun=True)
    assert [(job.values["name"], job.values["seed"], job.values["algo"]["gamma"]) for job in found] == [
        (name, seed, gamma)
        for name in ("sac-HalfCheetah", "sac-ALE_Pong-v5")
        for seed in (0, 1)
        for gamma in (0.9, 0.8)
    ]
    assert found[1].words == ["algo=sac", "env=HalfCheetah", "seed=0", "algo.gamma=0.8"]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("hydra/launcher=basic", "Hydra starts no runs here; -m alone trains one run after the other"),
        ("hydra/launcher=joblib", "Hydra starts no runs here; write submit=local submit.workers=N"),
        ("hydra/launcher=submitit_local", "Hydra starts no runs here; write submit=slurm submit.executor=local"),
        ("hydra/launcher=submitit_slurm", "Hydra starts no runs here; write submit=slurm"),
        ("hydra/launcher=ray", "Hydra starts no runs here; write submit=ray"),
        ("hydra/launcher=rq", "Hydra starts no runs here; write submit=local, submit=slurm or submit=ray"),
        ("+hydra/sweeper=optuna", "Hydra starts no runs here; `rlrun sweep` searches hyperparameters"),
        ("hydra.sweep.dir=x", "Hydra starts no runs here; write name=... for the folder of a grid's runs"),
        ("hydra.verbose=true", "Hydra only composes the config here, so its own settings have no effect"),
    ],
)
def test_settings_of_hydra_are_refused_with_what_does_the_same(word, line):
    for multirun in (False, True):
        assert faults(*PAIR, word, multirun=multirun) == [f"{word}: {line}"]


def test_a_range_is_refused_in_a_grid():
    word = "algo.gamma=interval(0.9,0.99)"
    line = f"{word}: a range has no values to train with; `rlrun sweep` searches ranges"
    assert faults(*PAIR, word, multirun=True) == [line]


@pytest.mark.parametrize(
    ("word", "names"),
    [("network=glob(l*)", ["linear", "lstm"]), ("algo.buffer=glob(*)", ["demos", "hindsight", "prioritized"])],
)
def test_glob_gives_the_names_that_can_be_chosen(word, names):
    found = [job.words[-1].partition("=")[2] for job in jobs([*PAIR, word], multirun=True)]
    assert found[: len(names)] == names


def test_parts_are_swept_like_values():
    found = jobs([*PAIR, "algo.buffer=replay,prioritized"], multirun=True)
    assert [job.values["algo"]["buffer"]["name"] for job in found] == ["replay", "prioritized"]
    assert found[1].words == [*PAIR, "algo.buffer=prioritized"]


def test_sweep_reports_the_first_job_with_a_fault():
    assert faults(*PAIR, "seed=0,x", multirun=True) == ["seed=x: must be a whole number, like 0 (seed=x)"]


def test_sweep_reports_a_fault_of_all_jobs_once():
    assert faults(*PAIR, "seed=0,1", "sed=1", multirun=True) == ["sed: unknown key; did you mean seed?"]


def test_literal_text_composes_to_itself() -> None:
    draw = random.Random(0)
    pieces = [*"${}\\'\" ,[:=#", "seed", "${", "${seed}", "\\${name}", "${oc.env:HOME}"]
    texts = ["a${seed}b", "x/../${env.id}", "\\${seed}", "\\\\${seed}", "it's ${seed}\\"]
    texts += ["".join(draw.choices(pieces, k=draw.randint(1, 7))) for _ in range(60)]
    for text in texts:
        (job,) = jobs(["algo=ppo", "env=CartPole", f"name={literal(text)}"])
        assert job.values["name"] == text


TEXTS = (
    "a: 1\nb: {c: [1.5, x, null, true]}\nd: 1e-3\n", "a: 'x\n  y'\nb: |\n  text\n\n  more\n", 'a: "\\u20ac \\n"\n',
    "a: &b [1]\nc: *b\n", "a: {", "\ta: 1", "a: 'x", "a: !!int x", "{a: 1, a: 2}", "a: \x01", "a: \ud800",
    "!!python/object:os.system x", "? [1]: 2", "a: " + "[" * 70 + "]" * 70, "a: 1\n---\nb: 2\n", "",
)  # fmt: skip


@pytest.mark.parametrize("rules", [None, PlainYaml])
@pytest.mark.parametrize("text", TEXTS)
def test_untrusted_yaml_is_read_and_refused_alike_without_libyaml(
    text: str, rules: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> object:
        try:
            return parse_yaml(text, Path("file.yaml"), rules)
        except ConfigError as error:
            return error.faults

    assert yaml.__with_libyaml__
    found = outcome()
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert outcome() == found
