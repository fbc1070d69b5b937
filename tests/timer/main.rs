//! Situations of a timer with its thread, most of them on a clock that the test moves: situations
//! that broke other timers, and each of the timer's own promises.
//!
//! [`in_each_mode!`] stamps a situation for each mode. A situation without a wheel stands alone. No
//! test here says that something is quick: none fails because the machine is busy.
//!
//! Cases of other projects' suites, and the test here that covers each. What of them concerns the
//! wheel alone is in `tests/wheel/`.
//!
//! # Netty, `HashedWheelTimerTest`
//!
//! | case | test |
//! |---|---|
//! | `testScheduleTimeoutShouldNotRunBeforeDelay`, `testScheduleTimeoutShouldRunAfterDelay` | `fires::runs_at_its_deadline_and_not_before` |
//! | `testStopTimer` | `stop::gives_back_what_did_not_fire`, `stop::nothing_comes_back_where_nothing_waits` |
//! | `testTimerShouldThrowExceptionAfterShutdownForNewTimeouts` | `stop::scheduling_after_it_gives_the_task_back_and_says_so_with_a_limit_too` |
//! | `testTimerOverflowWheelLength` | `fires::a_task_that_schedules_itself_goes_on_until_stop` |
//! | `testExecutionOnTime` | `early::a_hundred_thousand_of_one_delay_are_never_early` |
//! | `testExecutionOnTaskExecutor` | `executor::runs_tasks_where_the_executor_does` |
//! | `testRejectedExecutionException...BackToBack` | `limit::one_too_many_comes_back` |
//! | `...WhenExistingTimeoutIsCancelled` | `limit::cancelling_makes_room_at_once` |
//! | `...WhenExistingTimeoutIsExecuted` | `limit::firing_makes_room` |
//! | `reportPendingTimeouts` | `fires::pending_counts_what_waits` |
//! | `testOverflow` | `far::the_longest_delay_does_not_fire` |
//! | `testStopTimerCancelsPendingTasks` | `stop::every_handle_tells_its_end` |
//! | `cancelWillCallCallback` | `cancel::what_it_captured_is_dropped_before_cancel_returns` |
//! | `testPendingTimeouts...CancelledWithinGoalTick` | `cancel::siblings_of_the_same_tick_can_be_cancelled_by_a_task` |
//!
//! # Dubbo, `HashedWheelTimerTest`
//!
//! | case | test |
//! |---|---|
//! | `constructorTest` | `build::numbers_out_of_range_are_errors`, and `many_timers.rs` |
//! | `createTaskTest` | `panics::the_worker_outlives_a_panic`, `cancel::after_it_fired_it_is_too_late`, `fires::an_instant_in_the_past_is_due_at_once`, `limit::one_too_many_comes_back` |
//! | `stopTaskTest` | `stop::inside_a_task_it_is_an_error` |
//!
//! # Kafka, `TimerTest`, `SystemTimerReaperTest`
//!
//! | case | test |
//! |---|---|
//! | `testAlreadyExpiredTask` | `fires::an_instant_in_the_past_is_due_at_once` |
//! | `testTaskExpiration` | `fires::delays_of_all_sizes_fire_each_at_its_own_tick` |
//! | `testReaper` | `fires::nobody_has_to_drive_it` |
//! | `testReaperClose` | `stop::ends_the_thread` |
//!
//! # folly
//!
//! | case | test |
//! |---|---|
//! | `NoRequestContextLeak` | `cancel::what_it_captured_is_dropped_before_cancel_returns`, `dropping::drops_what_is_pending` |
//! | `lambda`, `lambdaThrows` | `panics::the_worker_outlives_a_panic` |
//! | `prematureTimeout` | `early::after_idling_it_is_not_early` |
//! | `SlowLoop` | `late::a_blocked_worker_skips_nothing` |
//! | `AtBeforeNow` | `fires::an_instant_in_the_past_is_due_at_once` |
//! | `Destruction` | `cancel::a_handle_outlives_its_timer` |
//! | `ConcurrentDestructionAndCancellation` | `stress::dropping_races_with_cancelling` |
//! | `Stress`, `StressHighContention` | `stress::timeouts_of_two_threads_are_all_accounted_for` |
//! | `CancelTimeout` | `cancel::head_middle_and_last_of_a_due_batch_can_be_cancelled_by_a_task` |
//! | `DestroyTimeoutSet`, `DeleteWheelInTimeout` | `dropping::a_task_cancels_siblings_and_drops_the_last_handle` |
//!
//! The tests of futures have the cases about waiters and combinators.
//!
//! # tokio
//!
//! | case | test |
//! |---|---|
//! | `burst`, `delay`, `skip` | `repeat::burst_runs_as_often_as_was_missed_delay_begins_anew_and_skip_leaves_it_out` |
//! | `reset`, `reset_immediately`, `reset_after`, `reset_at`, `reset_at_bigger_than_interval` | `repeat::moving_the_next_run_moves_those_after` |
//! | `interval_zero_duration` | `repeat::a_period_of_zero_is_one_tick` |
//! | `interval_doesnt_panic_max_duration_when_polling` | `repeat::the_longest_period_does_not_fire` |
//! | `paused_time_is_deterministic` | `clock::every_run_is_like_the_other` |
//! | `regression_3710_with_submillis_advance`, `advance_multi_with_timer` | `clock::parts_of_a_tick_add_up` |
//! | `advance_once_with_timer` | `fires::runs_at_its_deadline_and_not_before` |
//! | `starving` | `fires::a_busy_task_does_not_starve_others` |
//! | `tickspace` | `clock::each_timer_goes_by_its_own` |
//! | `cancel_races_with_insert` | `stress::scheduled_and_cancelled_at_once_nothing_is_left` |
//!
//! # `hierarchical_hash_wheel_timer`
//!
//! | case | test |
//! |---|---|
//! | `oneshot_triggers_only_after_manual_advance` | `fires::runs_at_its_deadline_and_not_before` |
//! | `cancel_prevents_future_trigger` | `cancel::cancelled_it_never_runs` |
//! | `advance_to_next_triggers_periodic_once_per_call` | `repeat::runs_once_a_period` |
//! | `timer_ref_now_...` | `clock::a_task_finds_the_clock_at_its_deadline`, `early::by_the_clock_inside_the_task_too` |
//! | `simple_thread_timing` | `early::at_any_tick_and_any_delay` |
//! | `rescheduling_thread_timing` | `fires::chains_all_end_before_stop` |
//!
//! # Live defects
//!
//! | case | test |
//! |---|---|
//! | delays of 2^32, 2^61, the maximum | `far::huge_delays_neither_fire_nor_spin` |
//! | a stale handle | `cancel::a_stale_handle_cancels_nothing_else` |
//! | early for delays that are no multiple of the tick | `early::at_any_tick_and_any_delay`, `early::by_parts_of_a_tick_in_every_mode` |
//! | cancelling what was in the firing batch | `cancel::siblings_of_the_same_tick_can_be_cancelled_by_a_task` |
//! | `stop` loses or leaves something | `stop.rs`, `stress::timeouts_of_two_threads_are_all_accounted_for` |
//! | closures dropped promptly | `cancel::what_it_captured_is_dropped_before_cancel_returns` |
//! | wake-ups of an idle timer | `idle.rs` |
//! | a task that blocks | `executor::a_blocking_task_delays_no_other`, `late::a_blocked_worker_skips_nothing` |
//! | a task that panics | `panics::the_worker_outlives_a_panic` |
//! | order within a tick | `fires::equal_deadlines_fire_as_scheduled` |

#[path = "../common/mod.rs"]
#[macro_use]
mod common;
#[path = "../common/timers.rs"]
#[allow(dead_code, reason = "timers and futures take some of it each")]
mod help;
#[path = "../zoo/mod.rs"]
mod zoo;

mod build;
mod cancel;
mod clock;
mod counts;
mod driver;
mod dropping;
mod early;
mod executor;
mod expiring;
mod far;
mod fires;
mod handles;
mod idle;
mod late;
mod limit;
mod next;
mod odd;
mod panics;
mod random_waiting;
mod repeat;
mod reschedule;
mod stop;
mod storm;
mod stress;
mod waiting;
mod within;
