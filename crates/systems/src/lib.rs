//! The systems that live on timing wheels, each small and real: one module per system, and one
//! program per system in `src/bin`. The README tells what each shows and how to run it.

pub mod accept;
pub mod expiring_cache;
pub mod failed_calls;
pub mod frame;
pub mod heartbeats;
pub mod job_limits;
pub mod lock_watchdog;
pub mod process;
pub mod purgatory;
pub mod push_server;
pub mod redis_server;
pub mod requests;
pub mod room;
