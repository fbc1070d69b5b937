//! A disk that loses power, and can be damaged.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use redb::StorageBackend;

use super::RedbStore;
use crate::Error;

/// Clones are the same disk.
#[derive(Clone, Debug)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: Rng,
    /// What survives for certain.
    synced: Vec<u8>,
    /// What is read.
    current: Vec<u8>,
    /// The sectors in which they may differ.
    dirty: BTreeSet<usize>,
    /// The power fails at this operation from now.
    left: u64,
    /// Counts the times the power came back. Who opened the disk before has no access.
    life: u64,
    is_on: bool,
    /// One sync in so many is left out; 0: none.
    forgets: u64,
    syncs: u64,
}

impl Disk {
    pub(super) fn new(rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng,
            synced: Vec::new(),
            current: Vec::new(),
            dirty: BTreeSet::new(),
            left: u64::MAX,
            life: 0,
            is_on: true,
            forgets: 0,
            syncs: 0,
        })))
    }

    /// Leaves out one sync in `syncs`: a fault that the test of power cuts must find.
    pub(super) fn forget_one_sync_in(&self, syncs: u64) {
        self.0.lock().unwrap().forgets = syncs;
    }

    /// Lets the power fail at this operation from now.
    pub(super) fn cut_after(&self, operations: u64) {
        self.0.lock().unwrap().left = operations;
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.lock().unwrap().is_on
    }

    pub(super) fn syncs(&self) -> u64 {
        self.0.lock().unwrap().syncs
    }

    /// Kills the process that has the disk: what it wrote stays, and it writes nothing more.
    pub(super) fn kill(&self) {
        let state = &mut *self.0.lock().unwrap();
        state.life += 1;
        state.synced.clone_from(&state.current);
        state.dirty.clear();
    }

    /// Changes what is on the disk.
    pub(super) fn damage(&self, damage: impl FnOnce(&mut Vec<u8>)) {
        let state = &mut *self.0.lock().unwrap();
        damage(&mut state.current);
        state.synced.clone_from(&state.current);
    }

    pub(super) fn contents(&self) -> Vec<u8> {
        self.0.lock().unwrap().current.clone()
    }

    /// Opens a store on the disk, with the power on.
    pub(super) fn open(&self) -> Result<RedbStore, Error> {
        let disk = self.clone();
        {
            let state = &mut *self.0.lock().unwrap();
            state.is_on = true;
            state.life += 1;
        }
        let life = self.0.lock().unwrap().life;
        RedbStore::open_backend(move || Ok(Box::new(Handle { disk: disk.clone(), life })))
    }
}

#[derive(Debug)]
struct Handle {
    disk: Disk,
    life: u64,
}

impl Handle {
    fn with<R>(&self, work: impl FnOnce(&mut State) -> io::Result<R>) -> io::Result<R> {
        let state = &mut *self.disk.0.lock().unwrap();
        if !state.is_on || state.life != self.life {
            return Err(io::Error::other("no power"));
        }
        let done = work(state)?;
        state.left -= 1;
        if state.left == 0 {
            // Also what was asked for just now may be lost or not.
            state.cut();
            return Err(io::Error::other("no power"));
        }
        Ok(done)
    }
}

impl State {
    fn cut(&mut self) {
        self.is_on = false;
        self.left = u64::MAX;
        let kept = [0.0, 0.1, 0.5, 1.0][self.rng.usize(0..4)];
        if self.synced.len() < self.current.len() && self.rng.bool() {
            self.synced.resize(self.current.len(), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(self.current.len());
            if self.rng.f64() < kept && range.start < range.end {
                if self.synced.len() < range.end {
                    self.synced.resize(range.end, 0);
                }
                self.synced[range.clone()].copy_from_slice(&self.current[range]);
            }
        }
        self.current.clone_from(&self.synced);
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.current.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|state| {
            let start = usize::try_from(offset).map_err(io::Error::other)?;
            let end = start.checked_add(out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            let bytes = state.current.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
            out.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|state| {
            let len = usize::try_from(len).map_err(io::Error::other)?;
            let changed = state.current.len().min(len)..state.current.len().max(len);
            state.current.resize(len, 0);
            state.dirty.extend(changed.start / SECTOR..changed.end.div_ceil(SECTOR));
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state| {
            state.syncs += 1;
            if state.forgets > 0 && state.syncs % state.forgets == 0 {
                return Ok(());
            }
            state.synced.resize(state.current.len(), 0);
            for sector in std::mem::take(&mut state.dirty) {
                let end = ((sector + 1) * SECTOR).min(state.current.len());
                if let Some(written) = state.current.get(sector * SECTOR..end) {
                    state.synced[sector * SECTOR..end].copy_from_slice(written);
                }
            }
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|state| {
            let start = usize::try_from(offset).map_err(io::Error::other)?;
            let end = start + data.len();
            if state.current.len() < end {
                state.current.resize(end, 0);
            }
            state.current[start..end].copy_from_slice(data);
            state.dirty.extend(start / SECTOR..end.div_ceil(SECTOR));
            Ok(())
        })
    }
}

/// What a disk writes as a whole.
const SECTOR: usize = 512;
