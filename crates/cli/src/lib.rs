//! What the command `tickwheel` does, for programs that want to do it themselves.
//!
//! [`replay`](mod@replay) runs a recorded workload through timing wheels of several modes and
//! compares them.
//!
//! `durable` looks into the file or the database of a durable timer.
//!
//! # Features
//!
//! - `durable` (default): the command `tickwheel durable`, for files.
//! - `postgres`: and for PostgreSQL databases.
//! - `png`: draws pictures as PNG as well as SVG. The renderer and its fonts take longer to build
//!   than everything else, so the default build is without them.

#[cfg(feature = "durable")]
pub mod durable;
#[cfg(feature = "png")]
pub mod raster;
pub mod replay;
