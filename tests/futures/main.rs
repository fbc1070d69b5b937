//! Situations of futures and of the delay queue, most of them polled by the test, on a clock that
//! it moves.
//!
//! [`in_each_mode!`] stamps a situation for each mode. No test here says that something is quick:
//! none fails because the machine is busy.
//!
//! Cases of other projects' suites, and the test here that covers each.
//!
//! # tokio, `time_sleep.rs`
//!
//! | case | test |
//! |---|---|
//! | `immediate_sleep` | `sleep::what_has_passed_completes_at_once_and_registers_nothing` |
//! | `is_elapsed` | `sleep::is_elapsed_when_its_time_has_come` |
//! | `delayed_sleep_level_0` | `sleep::completes_at_its_deadline_and_not_before` |
//! | `sub_ms_delayed_sleep` | `sleep::parts_of_a_tick_round_up` |
//! | `delayed_sleep_wrapping_level_0` | `sleep::from_any_tick_it_takes_as_long` |
//! | `reset_future_sleep_before_fire` | `sleep::moved_it_is_woken_in_time_and_not_early` |
//! | `reset_past_sleep_before_turn`, `reset_past_sleep_before_fire` | `sleep::moved_it_is_woken_in_time_and_not_early` |
//! | `reset_future_sleep_after_fire`, `reset_after_firing` | `sleep::moved_after_it_completed_it_completes_again`, `sleep::moved_after_it_was_due_and_before_it_was_polled_it_waits_anew` |
//! | `reset_sleep_to_past` | `sleep::moved_it_is_woken_in_time_and_not_early` |
//! | `greater_than_max`, `multi_long_sleeps`, `long_sleeps` | `sleep::years_away_it_is_exact` |
//! | `short_sleeps` | `sleep::a_thousand_short_ones_make_progress` |
//! | `exactly_max`, `no_out_of_bounds_close_to_max` | `sleep::what_no_instant_can_hold_does_not_complete` |
//! | `issue_5183` | `sleep::far_ones_do_not_disturb_near_ones` |
//! | `drop_after_reschedule_at_new_scheduled_time` | `sleep::dropped_after_it_was_moved_it_leaves_nothing_behind` |
//! | `drop_from_wake` | `sleep::dropped_by_a_waker_others_are_not_woken`, `sleep::wakers_may_call_the_timer` |
//!
//! # tokio, `time_interval.rs`
//!
//! | case | test |
//! |---|---|
//! | `burst`, `delay`, `skip` | `interval::ticks_that_were_missed_come_as_it_is_told` |
//! | `reset`, `reset_immediately`, `reset_after`, `reset_at`, `reset_at_bigger_than_interval` | `interval::reset_it_ticks_then_and_the_ticks_after_it_follow` |
//! | `interval_zero_duration` | `interval::a_period_of_zero_is_one_tick_of_the_timer` |
//! | `interval_doesnt_panic_max_duration_when_polling` | `interval::the_longest_period_ticks_once` |
//!
//! # tokio, `time_pause.rs`, `time_rt.rs`, `time_alt/tests.rs`
//!
//! | case | test |
//! |---|---|
//! | `paused_time_is_deterministic` | `clock::every_run_is_like_the_other` |
//! | `regression_3710_with_submillis_advance`, `advance_multi_with_timer` | `sleep::parts_of_a_tick_round_up` |
//! | `advance_once_with_timer` | `sleep::completes_at_its_deadline_and_not_before` |
//! | `starving` | `runtimes::a_busy_task_does_not_starve_a_sleep` |
//! | `tickspace` | `clock::reset_elsewhere_it_goes_by_its_own_timer` |
//! | `insert_of_already_cancelled_entry_does_not_enter_wheel` | `sleep::never_polled_it_is_not_in_the_timer`, `wakers::dropped_it_leaves_nothing_behind` |
//! | `cancel_races_with_insert` | `ends::stopping_races_with_polling`, and `tests/loom.rs` |
//!
//! # folly, waiters
//!
//! Wakers that are woken, replaced, and dropped: `sleep.rs` here, and the races in `tests/loom.rs`.
//!
//! # tokio-util, `time_delay_queue.rs`
//!
//! What is in `shared.rs` is tested of a queue, a map and a channel.
//!
//! | case | test |
//! |---|---|
//! | `single_immediate_delay`, `multi_immediate_delays` | `shared::what_is_due_at_once_comes_once` |
//! | `single_short_delay` | `shared::moved_it_comes_then_and_not_before` |
//! | `multi_delay_at_start` | `shared::many_come_each_at_its_own_tick` |
//! | `insert_in_past_fires_immediately` | `shared::in_the_past_it_comes_at_once_and_wakes_who_waits` |
//! | `remove_entry` | `shared::removed_it_comes_back_and_never_again` |
//! | `reset_entry` | `shared::moved_it_comes_then_and_not_before` |
//! | `reset_to_past_wakes_pending_queue` | `shared::in_the_past_it_comes_at_once_and_wakes_who_waits` |
//! | `reset_much_later` | `shared::moved_it_comes_then_and_not_before` |
//! | `reset_twice` | `shared::moved_it_comes_then_and_not_before` |
//! | `repeatedly_reset_entry_inserted_as_expired`, `reset_inserted_expired` | `shared::what_is_due_can_be_moved_again_and_again` |
//! | `remove_expired_item` | `shared::what_is_due_can_be_removed_at_the_edge_of_a_level_too` |
//! | `remove_at_timer_wheel_threshold` | `shared::what_is_due_can_be_removed_at_the_edge_of_a_level_too` |
//! | `expires_before_last_insert` | `shared::an_earlier_one_wakes_who_waits_in_time` |
//! | `multi_reset` | `shared::whatever_was_inserted_and_moved_comes_by_its_last_deadline` |
//! | `expire_first_key_when_reset_to_expire_earlier`, `expire_second_key_when_reset_to_expire_earlier` | `shared::whatever_was_inserted_and_moved_comes_by_its_last_deadline` |
//! | `reset_first_expiring_item_to_expire_later` | `shared::whatever_was_inserted_and_moved_comes_by_its_last_deadline` |
//! | `insert_before_first_after_poll` | `shared::an_earlier_one_wakes_who_waits_in_time` |
//! | `insert_after_ready_poll` | `shared::inserting_while_draining_delays_nothing` |
//! | `reset_later_after_slot_starts`, `reset_earlier_after_slot_starts` | `shared::moved_when_its_bucket_has_begun_it_comes_at_its_tick` |
//! | `insert_in_past_after_poll_fires_immediately` | `shared::in_the_past_it_comes_at_once_and_wakes_who_waits` |
//! | `delay_queue_poll_expired_when_empty` | `shared::what_is_due_at_once_comes_once` |
//! | `compact_expire_empty`, `compact_remove_empty` | `shared::emptied_and_shrunk_it_holds_nothing` |
//! | `compact_remove_remapped_keys`, `compact_change_deadline` | `shared::keys_stay_good_when_it_shrinks` |
//! | `item_expiry_greater_than_wheel` | `shared::after_a_long_time_it_goes_on` |
//! | `remove_after_compact`, `remove_after_compact_poll` | `shared::stale_keys_find_nothing` |
//! | `peek` | `queue::peek_shows_what_comes_next` |
//! | `peek_entries_sharing_a_wheel_slot` | `queue::peek_is_right_for_two_in_one_bucket` |
//! | `wake_after_remove_last` | `queue::emptied_it_wakes_who_waits` |
//! | `wake_after_clear` | `queue::emptied_it_wakes_who_waits` |
//! | a far one does not hide nearer ones | `shared::a_far_one_does_not_hide_nearer_ones` |
//! | equal deadlines, with and without a demotion between | `shared::equal_deadlines_come_as_inserted` |
//! | a stale key after its place is used again | `shared::stale_keys_find_nothing` |
//! | the longest deadline | `shared::the_longest_delay_is_accepted_and_does_not_come` |

// Not for the models of races, which have their own.
#![cfg(not(loom))]
#![allow(clippy::duplicate_mod, reason = "`shared.rs` is for a queue, a map and a channel")]

#[path = "../common/mod.rs"]
#[macro_use]
mod common;
#[path = "../common/timers.rs"]
#[allow(dead_code, reason = "timers and futures take some of it each")]
mod help;
#[path = "../zoo/mod.rs"]
mod zoo;

mod channel;
mod clock;
mod ends;
mod fair;
mod foreign;
#[cfg(feature = "hyper")]
mod hyper;
mod interval;
mod map;
mod memory;
mod queue;
mod runtimes;
mod sleep;
mod timeout;
mod traits;
mod wakers;
