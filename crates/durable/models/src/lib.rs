//! What the model checks of `tests/` share.

use stateright::{Checker, HasDiscoveries, Model};
use std::fmt::Debug;
use std::hash::Hash;

/// Returns whether the checker finds a state that is against this property.
pub fn finds<M>(model: M, property: &'static str) -> bool
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let wanted = HasDiscoveries::AnyOf([property].into());
    model.checker().finish_when(wanted).spawn_bfs().join().discovery(property).is_some()
}
