//! The wheel and the map on it, each situation a test for both modes.
//!
//! Many are situations that broke other timers. Where each comes from: the cases of the suites of
//! other timers, as far as they concern a wheel that its caller drives, and the tests here that
//! hold their properties. A property is stated in our terms: never before the deadline, and at the
//! first `expire(now)` with `now >= deadline`.
//!
//! # Defects found live, and in no other suite
//!
//! | defect | test |
//! |---|---|
//! | delays of 2^32, 2^61, the maximum | `far::never_in_effect_neither_comes_nor_costs`, `far::delays_of_more_than_32_bits_are_not_cut` |
//! | a stale handle reaches another timer | `keys::a_stale_key_names_nothing_when_its_place_is_taken`, `keys::stale_keys_of_every_way_out_find_nothing` |
//! | early for delays that are no multiple of a tick | `order::comes_at_its_deadline_and_not_before`; ticks are whole here |
//! | three rotations or more in one call | `jumps::a_jump_of_many_rounds_hands_out_everything_once` |
//! | a huge jump costs its length | `jumps::jumping_an_empty_wheel_looks_at_nothing`, `jumps::a_jump_to_one_timeout_looks_at_each_level_at_most`, `jumps::a_jump_past_a_crowd_costs_the_crowd_and_not_the_distance` |
//! | a multiple of the period, more or less one | `order::deadlines_a_round_or_so_away_come_at_their_tick` |
//! | cancelling a sibling in the batch | `cancel::siblings_of_what_just_came_out_can_be_cancelled` |
//! | cancelled ones are kept until their deadlines | `drops::what_a_crowd_leaves_when_it_is_cancelled_is_dropped_at_once` |
//! | idle, or one an hour away | `next::an_hour_away_is_a_handful_of_wake_ups`, `jumps::an_idle_wheel_looks_at_nothing_tick_by_tick` |
//! | the hint is late, or spins | `next::waking_up_always_makes_progress`, and after every step of every test |
//! | the order within a tick | `order::equal_deadlines_come_as_scheduled` |
//! | random calls differ by mode | all of `model.rs` |
//!
//! Not of a wheel: what happens at stop, tasks that block, tasks that panic (there are no tasks).
//!
//! # Netty, Dubbo, Kafka
//!
//! | case | test |
//! |---|---|
//! | `testOverflow` | `far::never_in_effect_neither_comes_nor_costs` |
//! | `testTimerOverflowWheelLength` | `between::arming_itself_again_across_rounds_keeps_the_period` |
//! | `testPendingTimeouts...CancelledWithinGoalTick` | `cancel::head_middle_and_last_of_a_due_batch_can_be_cancelled` |
//! | Dubbo `createTaskTest` (cancel after firing) | `cancel::cancel_after_expiry_finds_nothing` |
//! | `testAlreadyExpiredTask` | `order::past_deadlines_count_as_now` |
//! | `testTaskExpiration` | `order::every_delay_of_a_dense_range_comes_at_its_own_tick` |
//! | `TimerTaskListTest.testAll` | `reschedule::moved_across_levels_keeps_key_value_and_count` |
//! | `TimerTaskListTest.testGetDelay` | `next::the_next_is_due_now_while_something_is_due` |
//!
//! # Agrona, `DeadlineTimerWheelTest`
//!
//! | case | test |
//! |---|---|
//! | `shouldExceptionOnNonPowerOfTwoTicksPerWheel` | `modes::a_number_of_buckets_is_rounded_up_to_a_power_of_two`, `modes::too_few_or_too_many_buckets_are_an_error` |
//! | `shouldDefaultConfigure` | `modes::a_new_wheel_is_empty_and_at_tick_zero` |
//! | `shouldBeAbleToScheduleTimerOnEdgeOfTick` | `order::comes_at_its_deadline_and_not_before` |
//! | `shouldHandleNonZeroStartTime` | `far::the_same_happens_from_any_starting_tick` |
//! | `shouldHandleMultipleRounds` | `order::a_deadline_rounds_away_comes_in_its_own_round_only` |
//! | `shouldBeAbleToCancelTimer` | `cancel::cancels_once`, `cancel::cancelled_never_comes` |
//! | `shouldHandleExpiringTimersInPreviousTicks` | `order::scheduled_and_not_driven_comes_at_the_first_drive` |
//! | `shouldHandleMultipleTimersInDifferentTicks` | `order::different_ticks_come_each_at_its_own` |
//! | `...InSameTickSameRound` | `order::equal_deadlines_come_as_scheduled` |
//! | `...InSameTickDifferentRound` | `order::same_bucket_of_different_rounds_comes_at_different_ticks` |
//! | `shouldLimitExpiringTimers` | `order::one_taken_at_a_time_leaves_the_others_for_the_next_call` |
//! | `shouldHandleFalseReturnToExpireTimerAgain` | `order::put_back_it_comes_again_and_nothing_else_is_lost` |
//! | `shouldCopeWithExceptionFromHandler` | `order::a_panic_of_the_caller_costs_only_what_was_taken` |
//! | `shouldBeAbleToIterateOverTimers` | `iteration::iterating_shows_each_timeout_once` |
//! | `shouldClearOutScheduledTimers` | `cancel::clearing_leaves_nothing_and_the_time` |
//! | `shouldAdvanceWheelToLaterTime` | `jumps::jumping_an_empty_wheel_looks_at_nothing` |
//! | `shouldScheduleDeadlineInThePast` | `order::past_deadlines_count_as_now` |
//! | `shouldExpandTickAllocation` | `keys::keys_stay_good_when_the_wheel_grows` |
//! | `forEachShouldReturnUsableTimerId` | `iteration::keys_from_iterating_cancel_exactly_that_timeout` |
//!
//! Not applicable: `shouldExceptionOnNonPowerOfTwoResolution`, `shouldHandleNanoTimeUnitTimers` (no
//! resolution and no unit: a tick is a tick), `shouldNotAllowResetWhenTimersActive` (time is never
//! reset).
//!
//! # Caffeine, `TimerWheelTest`
//!
//! | case | test |
//! |---|---|
//! | `schedule` | `jumps::a_jump_leaves_what_is_not_due` |
//! | `schedule_fuzzy` | `order::random_deadlines_split_exactly_at_now` |
//! | `findBucket_expired`, `findBucket_largeDuration_returnsLastWheel` | `order::past_deadlines_count_as_now`, `far::the_last_tick_is_a_deadline_like_any_other` |
//! | `advance_doesNotEvictFutureTimers` | `jumps::a_far_timeout_survives_a_jump_that_ends_short_of_it` |
//! | `advance`, `advance_overflow`, `advance_largeDelta` | `jumps::overdue_by_any_time_comes_once` |
//! | `advance_acrossZero` and its kin | `far::crossing_where_a_sign_or_half_would_flip` |
//! | the seven clocks | `far::the_same_happens_from_any_starting_tick`, `..._in_company` |
//! | `advance_backwards` | `jumps::time_does_not_go_back`, `jumps::back_in_time_hands_out_only_what_was_due_then` |
//! | `advance_reschedule` | `jumps::demotion_keeps_the_deadline` |
//! | `advance_exception`, `advance_exception_restoresChain` | `order::a_panic_of_the_caller_costs_only_what_was_taken`: what was taken is the caller's, time has moved |
//! | `advance_boundedPerCycle`, `..._acrossBuckets` | `order::at_most_so_many_a_call_resumes_where_it_stopped` |
//! | `getExpirationDelay_empty` | `next::an_empty_wheel_has_none` |
//! | `getExpirationDelay_firstWheel`, `lastWheel`, `singleTimer`, `notInLastWheel` | `next::one_timeout_is_the_next_at_any_distance` |
//! | `getExpirationDelay_occupiedCurrentBucket` | `next::far_timeout_in_the_bucket_under_way_does_not_hide_a_near_one` |
//! | `getExpirationDelay_hierarchy`, `_fuzzy` | all of `model.rs`, and after every step of every test |
//! | `reschedule` | `reschedule::moved_far_away_is_gone_from_the_near` |
//! | `deschedule`, `_notScheduled`, `_fuzzy` | `cancel::cancelling_all_at_random_leaves_nothing`, `cancel::cancels_once` |
//! | `expire_reschedule` | `reschedule::refused_extends_its_deadline_and_stays` |
//! | `cascade` | `jumps::demotion_goes_down_and_keeps_one_copy` |
//! | `iterator_hasNext`, `_fixed`, `_random` | `iteration::iterating_shows_each_timeout_once`, `iteration::iterators_know_how_many_are_left` |
//! | `TimerWheelFuzzer.timerWheel` | all of `model.rs` |
//! | `maintenance_recursive` | `between::driving_within_driving_hands_out_each_once` |
//!
//! Iteration has no direction here: it is in no particular order.
//!
//! # folly, `HHWheelTimer` and `TimeoutQueue`
//!
//! | case | test |
//! |---|---|
//! | `FireOnce` | `reschedule::scheduling_again_is_a_move_by_cancel_and_schedule` |
//! | `NoRequestContextLeak` | `drops::cancelling_gives_the_value_back_and_keeps_nothing_of_it` |
//! | `TestSchedulingWithinCallback` | `between::scheduled_while_handing_out_comes_in_its_turn` |
//! | `CancelTimeout` | `cancel::head_middle_and_last_of_a_due_batch_can_be_cancelled` |
//! | `DestroyTimeoutSet`, `DeleteWheelInTimeout` | `cancel::dropping_the_wheel_half_way_through_a_batch_is_fine` |
//! | `SlowFast` | `order::shorter_scheduled_second_comes_first` |
//! | `ReschedTest` | `far::delays_of_a_round_less_or_more_do_not_alias` |
//! | `cancelAll` | `cancel::one_due_cancels_the_other_due` |
//! | `GetTimeRemaining` | `keys::the_time_left_is_known_as_long_as_it_is_pending` |
//! | `prematureTimeout` | `far::idle_past_its_tick_then_a_long_delay_is_not_early` |
//! | `Level1`, `Level2` | `far::coarse_levels_come_to_the_tick` |
//! | `NegativeTimeout` | `order::far_past_deadline_leaves_the_next_wake_right` |
//! | `AtMostEveryN` | `next::one_wake_up_a_deadline_where_none_is_cancelled` |
//! | `Stress` | `cancel::cancelling_half_at_random_leaves_exactly_the_others` |
//! | `TimeoutQueue`: `Simple`, `Erase` | `order::different_ticks_come_each_at_its_own`, `cancel::the_middle_of_three_can_be_cancelled` |
//! | `RunOnceRepeating`, `RunOnceReschedule` | `between::due_items_that_add_themselves_again_come_once_a_run` |
//!
//! Not applicable: `TestSetDefaultTimeout`, `DefaultTimeout` (no default delay), `IntrusivePtr`
//! (the wheel is owned by whoever drives it).
//!
//! # tokio-util, `DelayQueue`
//!
//! | case | test |
//! |---|---|
//! | `single_immediate_delay` | `order::due_now_comes_at_once_and_once` |
//! | `multi_immediate_delays` | `order::all_that_is_due_now_comes_each_once` |
//! | `single_short_delay` | `order::comes_at_its_deadline_and_not_before` |
//! | `multi_delay_at_start` | `order::sparse_delays_come_each_at_its_own_tick` |
//! | `insert_in_past_fires_immediately` | `order::past_deadlines_count_as_now` |
//! | `remove_entry` | `cancel::cancelled_never_comes` |
//! | `reset_entry` | `reschedule::moved_later_is_silent_at_its_old_tick` |
//! | `reset_to_past_wakes_pending_queue` | `reschedule::moved_into_the_past_comes_at_once` |
//! | `reset_much_later` | `reschedule::moved_earlier_comes_earlier` |
//! | `reset_twice` | `reschedule::moved_twice_comes_where_it_was_moved_last` |
//! | `repeatedly_reset_entry_inserted_as_expired`, `reset_inserted_expired` | `reschedule::moved_after_it_came_due_comes_later` |
//! | `remove_expired_item` | `cancel::due_but_not_yet_handed_out_can_be_cancelled` |
//! | `remove_at_timer_wheel_threshold` | `cancel::sibling_on_a_boundary_can_be_cancelled_after_the_first_of_the_pair` |
//! | `expires_before_last_insert` | `order::shorter_scheduled_second_comes_first` |
//! | `multi_reset` | `reschedule::two_moved_thrice_come_by_their_final_deadlines` |
//! | `expire_first_key_when_reset_to_expire_earlier` | `reschedule::first_moved_earlier_comes_earlier` |
//! | `expire_second_key_when_reset_to_expire_earlier` | `reschedule::second_moved_before_the_first_comes_first` |
//! | `reset_first_expiring_item_to_expire_later` | `reschedule::first_moved_later_lets_the_second_come_on_time` |
//! | `insert_before_first_after_poll` | `next::a_new_earliest_deadline_brings_the_wake_up_forward` |
//! | `insert_after_ready_poll` | `between::scheduled_while_handing_out_delays_nothing` |
//! | `reset_later_after_slot_starts` | `reschedule::moved_later_while_its_bucket_is_under_way` |
//! | `reset_earlier_after_slot_starts` | `reschedule::moved_earlier_while_its_bucket_is_under_way` |
//! | `insert_in_past_after_poll_fires_immediately` | `order::past_for_the_caller_but_not_for_a_stale_wheel_comes_at_once` |
//! | `delay_queue_poll_expired_when_empty`, `wake_after_remove_last` | `cancel::cancelling_the_last_empties_the_wheel` |
//! | `wake_after_clear` | `next::emptied_wheel_asks_for_no_wake_up` |
//! | `compact_expire_empty`, `compact_remove_empty` | `memory::emptied_and_shrunk_it_holds_nothing` |
//! | `compact_remove_remapped_keys` | `keys::keys_stay_good_when_the_wheel_shrinks` |
//! | `compact_change_deadline` | `keys::a_key_that_shrinking_left_behind_can_be_moved` |
//! | `remove_after_compact`, `remove_after_compact_poll` | `keys::stale_keys_stay_stale_when_the_wheel_shrinks` |
//! | `item_expiry_greater_than_wheel` | `far::a_whole_range_of_uptime_later_it_still_works` |
//! | `peek` | `next::the_next_follows_what_comes_out` |
//! | `peek_entries_sharing_a_wheel_slot` | `next::the_next_of_one_coarse_bucket_is_its_earliest` |
//! | a far one hides nearer ones | `next::far_timeout_does_not_hide_a_near_one` |
//! | first in, first out, with a demotion or without | `order::equal_deadlines_come_as_scheduled`, `..._from_far_and_near`, `..._after_a_jump` |
//! | a stale key after reuse | `keys::a_stale_key_names_nothing_when_its_place_is_taken` |
//! | a deadline of the maximum | `far::the_last_tick_is_a_deadline_like_any_other` |
//!
//! # tokio, `time_sleep`, `time_alt` and the clock that pauses
//!
//! | case | test |
//! |---|---|
//! | `immediate_sleep` | `order::due_now_comes_at_once_and_once` |
//! | `is_elapsed` | `keys::the_time_left_is_known_as_long_as_it_is_pending` |
//! | `delayed_sleep_level_0` | `order::comes_at_its_deadline_and_not_before` |
//! | `delayed_sleep_wrapping_level_0` | `order::a_step_across_a_bucket_boundary_hides_nothing` |
//! | `reset_future_sleep_before_fire` | `reschedule::moved_later_is_silent_at_its_old_tick` |
//! | `reset_past_sleep_before_turn`, `reset_past_sleep_before_fire` | `reschedule::moved_earlier_comes_earlier`, `reschedule::moved_after_it_came_due_comes_later` |
//! | `reset_future_sleep_after_fire`, `reset_after_firing` | `reschedule::moved_after_it_came_out_is_not_moved` |
//! | `reset_sleep_to_past` | `reschedule::moved_into_the_past_comes_at_once` |
//! | `greater_than_max`, `multi_long_sleeps`, `long_sleeps` | `far::years_of_milliseconds_come_to_the_tick` |
//! | `short_sleeps` | `order::a_thousand_due_now_one_after_the_other` |
//! | `exactly_max`, `issue_5183` | `far::far_timeout_does_not_disturb_a_near_one` |
//! | `no_out_of_bounds_close_to_max` | `far::close_to_the_end_of_time_nothing_overflows` |
//! | `drop_after_reschedule_at_new_scheduled_time` | `cancel::cancelled_where_it_was_moved_to` |
//! | `drop_from_wake` | `between::cancelling_others_between_two_is_safe` |
//! | `paused_time_is_deterministic` | all of `model.rs` |
//! | `insert_of_already_cancelled_entry_does_not_enter_wheel` | `cancel::cancelled_before_the_first_drive_never_comes` |
//!
//! Not of a wheel: parts of a tick, intervals and the ticks they miss, runtimes, races.
//!
//! # `hierarchical_hash_wheel_timer`
//!
//! | case | test |
//! |---|---|
//! | `single_schedule_fail`, `single_ms_schedule` | `order::due_now_comes_at_once_and_once`, `order::comes_at_its_deadline_and_not_before` |
//! | `single_ms_cancel`, `cancel_prevents_future_trigger` | `cancel::cancelled_never_comes` |
//! | `single_ms_reschedule` | `reschedule::a_thousand_moves_do_not_drift` |
//! | `increasing_schedule_no_overflow`, `increasing_schedule_overflow` | `order::powers_of_two_come_each_at_its_own_tick` |
//! | `increasing_skip` | `next::waking_up_skips_no_timeout_and_no_distance` |
//! | `cancel_and_drain` | `cancel::the_middle_of_three_can_be_cancelled` |
//! | `oneshot_triggers_only_after_manual_advance` | `order::comes_at_its_deadline_and_not_before` |
//! | `advance_to_next_triggers_periodic_once_per_call` | `between::arming_itself_again_comes_once_a_period` |
//! | `timer_ref_now_...` | `between::now_is_never_before_what_comes_out` |
//! | `simple_simulation` | `jumps::waking_up_is_enough` |
//! | `rescheduling_simulation` | `between::arming_itself_until_it_has_had_enough` |
//! | wrap at 2^32 | `far::delays_of_more_than_32_bits_are_not_cut` |
//! | cancel and insert the same object | `keys::cancelled_and_scheduled_again_is_another_timeout` |

#[path = "../common/mod.rs"]
#[macro_use]
mod common;
#[macro_use]
mod stamps;
#[path = "../zoo/mod.rs"]
mod zoo;

mod between;
mod bounded;
mod cancel;
mod checked;
mod crowds;
mod drops;
mod edges;
mod far;
mod few;
mod growing;
mod growth;
mod histories;
mod iteration;
mod jumps;
mod keys;
mod map;
mod memory;
mod model;
mod modes;
mod next;
mod order;
mod pair;
mod reschedule;
mod script;
mod sorted;
mod stale;
mod ticks;
mod tight;
mod within;
