//! What the command `tickwheel` does, for programs that want to do it themselves.
//!
//! [`replay`](mod@replay) runs a recorded workload through timing wheels of several modes and
//! compares them. [`choose`](mod@choose) searches for the configuration that suits it.
//! [`generate`] makes such workloads. `report` puts all that into a page. `watch`
//! shows wheels as they turn.
//!
//! # Features
//!
//! - `report`: the command `tickwheel report`.
//! - `watch`: the command `tickwheel watch`.
//! - `png`: draws pictures as PNG as well as SVG. The renderer and its fonts take longer to build
//!   than everything else, so the default build is without them.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod choose;
pub mod generate;
#[cfg(feature = "png")]
pub mod raster;
pub mod replay;
#[cfg(feature = "report")]
pub mod report;
mod table;
#[cfg(any(feature = "report", feature = "watch"))]
mod turning;
#[cfg(feature = "watch")]
pub mod watch;
