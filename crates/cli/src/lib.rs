//! What the command `tickwheel` does, for programs that want to do it themselves.
//!
//! [`study`](mod@study) runs a recorded workload through timing wheels of several configurations,
//! and says which one suits it. [`generate`] makes such workloads. [`report`](mod@report) puts all
//! that into a page.
//!
//! # Features
//!
//! - `png`: draws pictures as PNG as well as SVG. The renderer and its fonts take longer to build
//!   than everything else, so the default build is without them.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod asked;
mod bars;
mod chart;
pub mod generate;
#[doc(hidden)]
pub mod picture;
pub mod plot;
pub mod report;
#[doc(hidden)]
pub mod signals;
pub mod study;
pub mod tick;
pub mod trace;
#[doc(hidden)]
pub mod units;
