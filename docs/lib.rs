//! Runs the examples in the documents that the package `tickwheel` does not contain.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(doctest)]
#[doc = include_str!("../design.md")]
mod design {}

#[cfg(doctest)]
#[doc = include_str!("coming-from.md")]
mod coming_from {}
