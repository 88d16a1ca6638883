"""For every algorithm, the test of what it learns, and the test that tells it apart from its parent."""

FLAVOURS = "agents/test_policy_flavours.py"

# Algorithms without a tested preset, and the test of what they learn.
ELSEWHERE = {
    "classifier": "agents/test_classifier.py::test_digits_that_were_held_out_are_recognised",
    "continuous_sarsa": "agents/test_continuous_sarsa.py::test_continuous_sarsa_improves_on_pendulum_in_both_loops",
    "scripted": "agents/test_scripted.py::test_cartpole_stands_in_20_of_20_episodes",
    "mpc": "learning/test_model_based.py::test_mpc_in_the_equations_of_pendulum_is_near_the_optimum",
    "mbrl": "learning/test_model_based.py::test_mbrl_swings_pendulum_up_within_2000_steps",
    "latent_mbrl": "learning/test_model_based.py::test_latent_mbrl_swings_a_lifted_pendulum_up",
    "trac": "learning/test_trust_region.py::test_trac_learns_with_a_learning_rate_that_a2c_does_not_survive",
    "mdq": "agents/test_mdq.py::test_mdq_finds_the_global_maximum_of_a_multimodal_bandit_and_sac_a_local_one",
    "oac": "agents/test_oac.py::test_oac_visits_more_than_sac_while_no_reward_is_found",
    "ppo_demos": "learning/test_deep_exploration.py::test_one_demonstration_opens_the_door_that_ppo_does_not",
    "ppo_lagrangian": "learning/test_limits.py::test_an_agent_spends_what_it_may_and_runs_as_far_as_that_takes_it",
    "sac_lagrangian": "learning/test_limits.py::test_an_agent_spends_what_it_may_and_runs_as_far_as_that_takes_it",
    "ppo_composite": "learning/test_probe_spaces.py::test_parts_that_go_together_do_not_stand_in_the_way",
    "sac_composite": "learning/test_probe_spaces.py::test_parts_that_go_together_do_not_stand_in_the_way",
    "gumbel_muzero": "learning/test_probe_values.py::test_policies_find_the_best_actions",
    "maml": "learning/test_adaptation.py::test_maml_finds_goals_that_no_fixed_policy_can_know",
    "diayn": "learning/test_skills.py::test_four_skills_are_told_apart_and_end_apart",
    "bc": "learning/test_data_sets.py::test_a_clone_of_a_controller_balances_the_pole",
    "iql": "learning/test_data_sets.py::test_iql_makes_more_of_a_mixture_than_cloning",
    "sac_from_data": "learning/test_data_sets.py::test_a_data_set_gives_sac_a_head_start",
    "kl_sac": "agents/test_kl_sac.py::test_same_action_prior_reduces_the_mean_change_of_actions",
    "causal_bc": "agents/test_causal_bc.py::test_causal_bc_recovers_a_gain_that_plain_cloning_misses",
    "q_learning": "learning/test_classic.py::test_q_learning_crosses_slippery_ice",
    "double_q_learning": "learning/test_classic.py::test_q_learning_crosses_slippery_ice",
    "sarsa": "learning/test_classic.py::test_q_learning_takes_the_edge_of_the_cliff_and_sarsa_the_safe_path",
    "dyna_q": "learning/test_classic.py::test_planning_saves_real_steps",
    "tabular_planning": "agents/test_tabular.py::test_tabular_planning_learns_from_the_model_alone",
    "epsilon_greedy": "agents/test_multi_armed.py::test_multi_armed_regret_stays_small",
    "ucb": "agents/test_multi_armed.py::test_multi_armed_regret_stays_small",
    "bayesian_ucb": "agents/test_multi_armed.py::test_multi_armed_regret_stays_small",
    "thompson": "agents/test_multi_armed.py::test_multi_armed_regret_stays_small",
    "gaussian_thompson": "agents/test_multi_armed.py::test_gaussian_thompson_regret_is_within_twice_the_lower_bound",
    "gradient_bandit": "agents/test_multi_armed.py::test_multi_armed_regret_stays_small",
    "linear_posterior": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "neural_greedy": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "neural_linear": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "bootstrap_bandit": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "variational_bandit": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
    "parameter_noise_bandit": "learning/test_classic.py::test_contextual_agents_beat_uniform_play",
}

# What presets without stored runs reached, and the page that says so.
PRESETS = {
    "bc-CartPole": "500 after 3,000 updates, 2 seeds (docs/offline.md)",
    "cem-Rosenbrock": "1e-8 after 2,045 evaluations, 30 seeds, set as in docs/classic.md",
    "cem-Sphere": "1e-8 after 1,248 evaluations, 9 seeds (docs/classic.md)",
    "maml-PointGoal": "-3.24 after adaptation, 200,000 steps, 3 seeds (docs/classic.md)",
}
NOT_IN_CATALOGUE = {"nop", "fixed_policy"}

# Algorithms whose YAML changes another's, and the test that fails if the other is used instead.
APART = dict.fromkeys(
    (
        "double_dqn", "dueling_dqn", "noisy_dqn", "prioritized_dqn", "c51", "qr_dqn", "rainbow", "ddpg", "redq",
        "discrete_sac", "ppo_rnd", "ppo_icm", "ppo_demos",
        "kl_sac", "taac_l", "taac_q", "qr_sac", "tqc", "sac_hold",
    ),
    "agents/test_distinct.py::test_variant_differs_from_its_parent",
) | {
    "oac": "agents/test_oac.py::test_oac_with_shift_multiplier_0_has_the_bits_of_sac",
    "ppo": f"{FLAVOURS}::test_ppo_has_no_gradient_beyond_the_clip_range",
    "a2c_split": "agents/policy_proofs.py::clips_policy_and_critic_apart",
    "a2c_minibatch": "agents/policy_proofs.py::stops_where_there_is_no_gradient",
    "trac": "agents/policy_proofs.py::survives_a_huge_step",
    "ppo1": f"{FLAVOURS}::test_ppo1_has_one_epoch",
    "ppo2": f"{FLAVOURS}::test_ppo2_value_loss_is_the_maximum_of_clipped_and_unclipped",
    "ppo_critic_first": f"{FLAVOURS}::test_ppo_critic_first_fits_its_critic_before_the_policy",
    "ppg": "agents/policy_proofs.py::policy_learns_what_states_are_worth",
    "vtrace": f"{FLAVOURS}::test_vtrace_corrects_stale_rollouts",
    "ppo_lstm": "learning/test_memory.py::test_what_was_seen_ten_steps_ago_is_recalled",
    "r2d2": "learning/test_memory.py::test_what_was_seen_ten_steps_ago_is_recalled_out_of_replay",
    "recurrent_sac": "learning/test_memory.py::test_without_memory_a_pendulum_of_unknown_velocity_stays_down",
    "ppo_lagrangian": "learning/test_limits.py::test_an_agent_spends_what_it_may_and_runs_as_far_as_that_takes_it",
    "sac_lagrangian": "learning/test_limits.py::test_an_agent_spends_what_it_may_and_runs_as_far_as_that_takes_it",
    "sac_from_data": "learning/test_data_sets.py::test_a_data_set_gives_sac_a_head_start",
    "diayn": "learning/test_skills.py::test_four_skills_are_told_apart_and_end_apart",
    "sarsa": "learning/test_classic.py::test_q_learning_takes_the_edge_of_the_cliff_and_sarsa_the_safe_path",
    "dyna_q": "learning/test_classic.py::test_planning_saves_real_steps",
    "tabular_planning": "agents/test_tabular.py::test_tabular_planning_learns_from_the_model_alone",
    "double_q_learning": "agents/test_tabular.py::test_double_q_learning_values_with_the_other_table",
    "expected_sarsa": "agents/test_tabular.py::test_expected_sarsa_target_is_the_mean_over_the_policy",
    "bayesian_ucb": "agents/test_multi_armed.py::test_bayesian_ucb_bound_of_the_beta_posterior",
    "gaussian_thompson": "agents/test_multi_armed.py::test_thompson_normal_posterior_is_weighted_by_precision",
}  # fmt: skip
OF_TESTED_PARTS = {"ppo_composite", "sac_composite", "gumbel_muzero"}
