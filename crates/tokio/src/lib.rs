#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

mod alarm;
mod clock;
mod runtime;
pub mod time;

pub use clock::TokioClock;
