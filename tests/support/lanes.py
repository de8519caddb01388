"""The two lanes of the tests: which ones `make test` leaves to `make test-all`.

`make test` runs what takes milliseconds, and some representatives of each slow kind. A test is slow if it is marked
`@pytest.mark.slow`, or if an entry below names it: its folder, its file, or the test as FILE::NAME (with all its
parameters). Representatives of the same kind stay in the fast lane. `tests/test_lanes.py` fails where an entry names
nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_SINGLE_TESTS = tuple(Path(__file__).with_name("slow_tests.txt").read_text().splitlines())
"""Tests of more than 0.4 s of processor time, as `processor_times.py` measures it."""


@dataclass(frozen=True)
class Kind:
    """Tests that are slow for one reason. representatives: FILE, FILE::NAME, or FILE::NAME[PARAMETERS]."""

    slow: tuple[str, ...]
    representatives: tuple[str, ...]


LANES: dict[str, Kind] = {
    "processes that are killed and resumed": Kind(
        slow=(
            "tests/cli/test_kill.py",
            "tests/cli/test_memory_kill.py",
            "tests/memory/test_memory_under_fire.py",
            "tests/cli/test_certify_adaptive.py::test_killed_and_resumed",
        ),
        representatives=("tests/cli/test_kill.py::test_a_second_interrupt_stops_at_once_and_cleanly",),
    ),
    "whole stories of users, by the public surface alone": Kind(
        slow=("tests/bug_list/test_reported_bugs.py",),
        representatives=(
            "tests/bug_list/test_reported_bugs.py::test_labels_that_are_no_classes_are_refused",
            "tests/bug_list/test_reported_bugs.py::test_columns_of_a_frame_are_found_by_name",
            "tests/bug_list/test_reported_bugs.py::test_several_sigmas_at_once",
        ),
    ),
    "a Ray cluster": Kind(
        slow=(
            "tests/cluster/test_ray_engine.py",
            "tests/cluster/test_ray_failures.py",
            "tests/cluster/test_ray_token.py",
            "tests/cli/test_ray_cli.py",
        ),
        representatives=(
            "tests/cluster/test_ray_engine.py::test_the_number_of_actors_and_how_the_model_travels_change_nothing",
            "tests/cli/test_ray_cli.py::test_without_ray_the_message_says_how_to_install_it",
        ),
    ),
    "a browser": Kind(
        slow=("tests/report/test_report_browser.py", "tests/report/test_report_plane_browser.py"),
        representatives=("tests/report/test_report_browser.py::test_the_gallery_is_sorted_and_sifted",),
    ),
    "a PostgreSQL server": Kind(
        slow=(
            "tests/runs/test_memory_runs.py::test_a_run_on_a_server",
            "tests/memory/test_memory_recovery.py::TestPostgres",
            "tests/memory/test_silent_server.py",
        ),
        representatives=(
            "tests/memory/test_memory_recovery.py::TestPostgres::test_to_a_file_and_to_a_server",
            "tests/memory/test_silent_server.py::test_a_connection_that_is_never_made",
        ),
    ),
    "memories with many claims, threads and processes": Kind(
        slow=(
            "tests/memory/test_claims_by_brute_force.py",
            "tests/memory/test_damaged_memory.py",
            "tests/memory/test_memory_audit.py",
            "tests/memory/test_memory_databases.py::test_threads_share_a_memory",
            "tests/memory/test_memory_databases.py::test_a_memory_survives_forks",
            "tests/memory/test_memory_recovery.py::TestCommandLine",
            "tests/smoothed/test_smoothed_memory.py::TestNoContradictionCanBeProduced",
            "tests/smoothed/test_smoothed_memory.py::TestUnitBall",
        ),
        representatives=(
            "tests/memory/test_claims_by_brute_force.py::test_every_claim_is_settled_as_brute_force_says[l2-1-scattered]",
            "tests/memory/test_claims_by_brute_force.py::test_a_repeated_claim_is_answered_again_and_stored_once",
            "tests/memory/test_damaged_memory.py::test_zeroed_pages_lose_nothing_in_silence",
            "tests/memory/test_memory_audit.py::test_tampering_is_found[l2-Settlement.WHOLE-move_centre]",
            "tests/memory/test_memory_audit.py::test_an_untouched_memory_is_consistent",
        ),
    ),
    "commands in processes of their own": Kind(
        slow=(
            "tests/cli/test_attack_cli.py",
            "tests/cli/test_certificates_cli.py::test_a_stopped_run_is_resumed",
            "tests/cli/test_certificates_cli.py::test_several_certificates_are_shown_one_below_the_other",
            "tests/cli/test_certificates_cli.py::test_soft_recertified",
            "tests/cli/test_certificates_cli.py::test_soft_run_resumed",
            "tests/cli/test_certificates_cli.py::test_the_program_itself",
            "tests/cli/test_certify_adaptive.py",
            "tests/cli/test_memory_of_sampling.py",
            "tests/cli/test_own_models_cli.py",
            "tests/reproduction/test_reproduce_command.py::test_an_interrupted_run_says_how_to_resume_and_resumes",
            "tests/cli/test_verbs.py",
            "tests/hostile/test_hostile_models.py::test_the_command_line_says_so_too",
            "tests/hostile/test_hostile_surroundings.py::test_any_words_on_the_command_line",
            "tests/report/test_report_hostile.py::test_a_missing_extra_is_named",
            "tests/report/test_report_plane.py::TestCommand",
            "tests/report/test_report_watching.py",
            "tests/runs/test_grid_of_runs.py::test_the_command_line_says_what_it_found",
        ),
        representatives=(
            "tests/cli/test_attack_cli.py::test_every_second_input_and_at_most_three_of_them",
            "tests/cli/test_attack_cli.py::test_close_calls_are_abstentions_and_no_changes",
            "tests/cli/test_certificates_cli.py::test_soft_run_resumed",
            "tests/cli/test_own_models_cli.py::test_code_of_the_same_name_that_is_another_function_is_refused",
            "tests/cli/test_own_models_cli.py::test_verify_does_not_import_from_the_folder_of_a_manifest",
            "tests/cli/test_own_models_cli.py::test_weights_travel_to_a_cluster_as_bytes",
            "tests/cli/test_verbs.py::test_recertify",
            "tests/cli/test_verbs.py::test_table_json_has_the_promised_keys",
            "tests/cli/test_verbs.py::test_verbs_without_a_model_do_not_import_torch",
            "tests/cli/test_verbs.py::test_version_and_help",
            "tests/report/test_report_watching.py::test_the_page_and_its_state_are_served_and_nothing_else",
        ),
    ),
    "recipes from beginning to end": Kind(
        slow=("tests/reproduction/test_reproduction.py", "tests/reproduction/test_kept_results.py"),
        representatives=("tests/reproduction/test_reproduction.py::test_a_step_not_begun_may_change",),
    ),
    "runs of every kind": Kind(
        slow=(
            "tests/runs/test_archives.py::test_a_selected_run_becomes_a_directory_of_archives",
            "tests/runs/test_archives.py::test_an_archive_is_read_as_its_run_and_proved",
            "tests/runs/test_archives.py::test_the_commands_read_archives",
            "tests/report/test_report_content.py::test_every_kind_of_run_has_a_page",
            "tests/report/test_report_content.py::test_ten_thousand_inputs_stay_small",
            "tests/report/test_report_plane.py::TestAnswers",
            "tests/report/test_report_truth.py",
            "tests/questions/test_adaptive.py",
            "tests/runs/test_backend_runs.py",
            "tests/runs/test_certificate_documents.py::test_every_kind_fits_the_schema",
            "tests/runs/test_certificates_engine.py",
            "tests/runs/test_grid_of_runs.py::test_floats_of_eight_bits_get_the_noise_that_bytes_get",
            "tests/runs/test_grid_of_runs.py::test_a_number_of_levels_can_be_asked_for",
            "tests/runs/test_memory_runs.py::TestSharing",
            "tests/runs/test_memory_runs.py::TestStoppedAndResumed",
            "tests/runs/test_model_checks_of_runs.py",
            "tests/runs/test_noise_options.py",
            "tests/runs/test_python_runs.py",
            "tests/runs/test_image_folder_runs.py",
            "tests/runs/test_sigma_runs.py",
            "tests/runs/test_stored_tallies.py::test_any_json_in_place_of_the_counts_raises_what_the_store_expects",
        ),
        representatives=(
            "tests/report/test_report_truth.py::test_every_kind_of_run_has_the_figures_of_table_and_no_others[votes]",
            "tests/questions/test_adaptive.py::test_each_input_gets_the_largest_radius_that_is_true",
            "tests/questions/test_adaptive.py::test_recertify_asks_the_same_question_again",
            "tests/runs/test_certificates_engine.py::test_what_is_stored_is_what_was_sampled",
            "tests/runs/test_certificate_documents.py::test_every_kind_fits_the_schema[votes]",
            "tests/runs/test_archives.py::test_an_archive_is_read_as_its_run_and_proved[votes]",
            "tests/runs/test_model_checks_of_runs.py::test_a_run_asks_at_least_two_thousand_times[decide]",
            "tests/runs/test_python_runs.py::test_the_run_is_that_of_the_command_line",
            "tests/runs/test_python_runs.py::test_interrupted_and_called_again_is_the_same[20]",
            "tests/runs/test_python_runs.py::TestCommands::test_verify_and_replay",
            "tests/runs/test_image_folder_runs.py::test_an_interrupt_leaves_no_thread",
        ),
    ),
    "the checker, in ball arithmetic": Kind(
        slow=(
            "tests/verify/test_check_processes.py",
            "tests/verify/test_document_checks.py",
            "tests/verify/test_memory_log.py",
            "tests/verify/test_reason_rules.py",
            "tests/verify/test_replay.py",
            "tests/verify/test_rewording.py",
            "tests/verify/test_run_checks.py",
            "tests/verify/test_run_facts.py",
            "tests/verify/test_run_reading.py",
        ),
        representatives=(
            "tests/verify/test_document_checks.py::test_honest_documents_pass_and_a_billionth_more_does_not[dipole-separate]",
            "tests/verify/test_run_checks.py::test_a_fresh_run_is_proved[votes]",
            "tests/verify/test_check_processes.py::test_other_processes_confirm_what_is_proved[votes]",
        ),
    ),
    "forged documents and runs": Kind(
        slow=("tests/forgers",),
        representatives=(
            "tests/forgers/test_forged_fields.py::test_every_value_of_a_document[votes]",
            "tests/forgers/test_forged_attacks.py::test_resealed_as_it_was",
        ),
    ),
    "statistical coverage": Kind(
        slow=(
            "tests/coverage",
            "tests/questions/test_adaptive_judges.py::test_all_answers_of_an_input_together_are_wrong_at_most_alpha_often",
            "tests/questions/test_adaptive_judges.py::test_the_precise_radius_is_too_large_at_most_alpha_often",
            "tests/statistics/test_anytime_validity.py",
            "tests/statistics/test_means.py::test_betting_is_what_the_definition_says",
        ),
        representatives=(
            "tests/coverage/test_every_bound_is_covered.py",
            "tests/coverage/test_vote_coverage.py::test_control_is_caught",
            "tests/coverage/test_vote_coverage.py::test_the_truths_are_true",
            "tests/coverage/test_linear_oracle.py::test_predict_is_wrong_no_more_often_than_alpha",
        ),
    ),
    "interval arithmetic, and properties over all arguments": Kind(
        slow=(
            "tests/certificates/test_envelope.py",
            "tests/certificates/test_historical.py::test_every_level_within_the_envelope_is_certified",
            "tests/certificates/test_historical.py::test_renyi_is_li_where_the_levels_are_equal",
            "tests/certificates/test_historical.py::test_the_envelope_radius_is_never_above_the_tight_one",
            "tests/certificates/test_portfolio.py::test_no_certificate_is_above_the_truth",
            "tests/certificates/test_two_points.py",
            "tests/numerics/test_ball.py::test_against_interval_arithmetic",
            "tests/numerics/test_ball.py::test_corners",
            "tests/numerics/test_ball.py::test_the_inverse",
            "tests/numerics/test_ball.py::test_where_certificates_look",
        ),
        representatives=(
            "tests/certificates/test_envelope.py::test_sigma_may_jump",
            "tests/certificates/test_envelope.py::test_the_worst_case_against_interval_arithmetic",
        ),
    ),
    "classifiers smoothed with every certificate": Kind(
        slow=(
            "tests/sigma/test_sigma_fitting.py::test_higher_dimensions_bear_less",
            "tests/sigma/test_sigma_fitting.py::test_the_rate_costs_what_it_may_and_a_little_more_would_cost_more",
            "tests/smoothed/test_float_attacks_end_to_end.py",
            "tests/smoothed/test_smoothed.py::test_torch_module_estimator_and_onnx_agree",
            "tests/smoothed/test_smoothed_detection.py::test_eight_bits_are_found_and_used",
            "tests/smoothed/test_smoothed_shapes.py",
            "tests/smoothed/test_soft_smoothing.py::test_digits_by_a_trained_model",
        ),
        representatives=("tests/smoothed/test_smoothed_shapes.py::test_between_two_walls_the_shape_helps",),
    ),
    "training": Kind(
        slow=(
            "tests/training/test_input_dependent_noise.py",
            "tests/training/test_objectives_learn.py",
            "tests/training/test_resuming.py",
            "tests/training/test_sigma_training.py",
            "tests/training/test_train_command.py",
        ),
        representatives=("tests/training/test_objectives_learn.py::test_with_a_sigma_that_is_carried_along",),
    ),
    "single tests of a second or more, of kinds that have quicker ones": Kind(
        slow=(
            *_SINGLE_TESTS,
            "tests/cli/test_certificates_cli.py::test_certify_prints_the_table_it_leaves_behind",
            "tests/cli/test_compare.py::test_runs_of_our_own",
            "tests/cli/test_plan.py::test_text_is_rounded_to_the_safe_side_and_drawn",
            "tests/cli/test_sigma_cli.py::test_fit_explains_and_draws",
            "tests/cli/test_sigma_rule_runs.py::test_soft_certificates_side_by_side",
            "tests/models/test_module_digest.py::test_the_digest_is_the_same_in_every_process",
            "tests/noise/test_uniform_noise.py::test_the_law_is_uniform",
            "tests/report/test_report_content.py::test_json_in_a_script_is_the_same_value_without_markup",
            "tests/report/test_report_hostile.py::test_any_value_of_a_manifest_ends_in_a_page_or_in_a_sentence",
            "tests/report/test_report_hostile.py::test_very_long_texts_are_cut",
            "tests/runs/test_memory_runs.py::TestOrder::test_workers_change_nothing",
            "tests/sampling/test_model_checks.py::test_transformers_that_work_in_place_are_asked_the_same_question_twice",
            "tests/sampling/test_pairs_and_gradients.py::test_memory_of_gradients_is_a_few_batches",
            "tests/training/test_training_loop.py::test_kill_nine_and_resume_gives_the_same_bits",
        ),
        representatives=("tests/cli/test_sigma_rule_runs.py::test_a_fitted_rule_is_kept_with_the_run",),
    ),
    "code of the documentation": Kind(
        slow=("tests/documentation/test_snippets.py::test_python_snippets_run_one_after_the_other",),
        representatives=(
            "tests/documentation/test_snippets.py::test_python_snippets_run_one_after_the_other[README.md]",
        ),
    ),
    "noise kernels in Triton's interpreter": Kind(
        slow=("tests/noise/test_noise_kernel.py",),
        representatives=("tests/noise/test_noise_kernel.py::test_its_bits_are_those_of_the_host[float_words]",),
    ),
    "large networks, and models that deceive": Kind(
        slow=(
            "tests/adversarial",
            "tests/models/test_backends.py::test_the_large_residual_network",
        ),
        representatives=(
            "tests/adversarial/test_adversarial_checks.py::test_dependence_on_the_batch_is_caught_in_every_kind_of_run",
            "tests/adversarial/test_adversarial_checks.py::test_two_thousand_rows_are_asked_whatever_batch_workers_and_shards",
        ),
    ),
}


def is_slow(node: str) -> bool:
    """Whether a test, named as pytest does from the folder of the repository, is left to `make test-all`."""
    return _REPRESENTATIVES.isdisjoint(names := _list_names(node)) and not _SLOW.isdisjoint(names)


def _list_names(node: str) -> set[str]:
    """All names by which an entry may name a test: itself, without its parameters, its class, file and folders."""
    whole, _, _ = node.partition("[")
    path, *inside = whole.split("::")
    folders = path.split("/")
    files = {"/".join(folders[:end]) for end in range(1, len(folders) + 1)}
    return {node} | files | {"::".join([path, *inside[:end]]) for end in range(1, len(inside) + 1)}


_SLOW = {entry for kind in LANES.values() for entry in kind.slow}
_REPRESENTATIVES = {entry for kind in LANES.values() for entry in kind.representatives}
