//! The systems that live on timing wheels, each small and real: one module a system, and one
//! program a system in `src/bin`. The README tells what each shows and how to run it.

pub mod classical;
pub mod expiring_cache;
pub mod job_limits;
