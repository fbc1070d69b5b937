//! What keeps something from standing still. A test can leave each out, and so shows what it is for.

#[cfg(test)]
use std::cell::Cell;

/// A way of the keeper to go about its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Past and present take turns where timeouts are handed out.
    TurnsOfPast,
    /// The kinds of calls take turns.
    TurnsOfCalls,
    /// The newest and the oldest unread rows take turns.
    TurnsOfOldest,
    /// The past is read to its end before it begins again.
    ReadsToEnd,
    /// After a part of the past that had no rows and took long, other calls have time.
    Rests,
    /// Each load is of all partitions.
    LoadsAll,
    /// A new owner reads the past last.
    PastLast,
    /// What lags behind becomes the past.
    LagsBehind,
    /// An error keeps what is known of places.
    KeepsPlaces,
    /// A look that overflows leaves room for what it has not told.
    LeavesRoom,
    /// The past fills only a part of the memory.
    BoundsPast,
    /// What cannot be read is apart from what can be.
    FailsApart,
    /// What is locked or refused is tried again ever more rarely.
    TriesRarely,
    /// What is locked or refused takes no room from others.
    HeldUpApart,
    /// Rows that had no room in an answer are read again.
    ReadsLeftOut,
    /// What was fenced is read again.
    ReadsFenced,
    /// After a failure settlements are committed alone.
    SettlesAlone,
    /// What was known better of the store's clock stays.
    KeepsClock,
    /// Consumers take nothing in the last quarter of a lease.
    ClosesOutbox,
    /// Acks wait longer where more workers are.
    Lingers,
    /// When the lease of another ends, the store is asked for what that had.
    AsksAtEnds,
}

impl Manner {
    #[cfg(test)]
    pub(super) const ALL: [Self; 21] = [
        Self::TurnsOfPast,
        Self::TurnsOfCalls,
        Self::TurnsOfOldest,
        Self::ReadsToEnd,
        Self::Rests,
        Self::LoadsAll,
        Self::PastLast,
        Self::LagsBehind,
        Self::KeepsPlaces,
        Self::LeavesRoom,
        Self::BoundsPast,
        Self::FailsApart,
        Self::TriesRarely,
        Self::HeldUpApart,
        Self::ReadsLeftOut,
        Self::ReadsFenced,
        Self::SettlesAlone,
        Self::KeepsClock,
        Self::ClosesOutbox,
        Self::Lingers,
        Self::AsksAtEnds,
    ];

    #[cfg(not(test))]
    pub(super) const fn is_kept(self) -> bool {
        let _ = self;
        true
    }

    #[cfg(test)]
    pub(super) fn is_kept(self) -> bool {
        LEFT_OUT.get() != Some(self)
    }

    /// Leaves it out while this runs.
    #[cfg(test)]
    pub(super) fn without<R>(self, run: impl FnOnce() -> R) -> R {
        struct Back;
        impl Drop for Back {
            fn drop(&mut self) {
                LEFT_OUT.set(None);
            }
        }
        LEFT_OUT.set(Some(self));
        let _back = Back;
        run()
    }
}

#[cfg(test)]
thread_local! {
    static LEFT_OUT: Cell<Option<Manner>> = const { Cell::new(None) };
}
