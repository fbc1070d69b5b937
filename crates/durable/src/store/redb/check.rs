//! What an operator asks of a file: is it whole, and how is it mended.

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::tables::{BROKEN, DEAD, DUE, NAMES, PARTITION, decode_dead, move_aside};
use super::{RedbStore, row};
use crate::Error;
use crate::store::Damaged;

/// What [`RedbStore::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The timeouts that are whole.
    pub timeouts: u64,
    /// The dead letters that are whole.
    pub dead: u64,
    /// The timeouts that are damaged, in the order of the store. A timer sets them aside when it
    /// comes to them, and so does a repair. After them, the damaged dead letters, which only a
    /// repair sets aside.
    pub damaged: Vec<Damaged>,
    /// The timeouts that were set aside before.
    pub set_aside: u64,
    /// Timeouts that the index of names does not lead to: a cancel does not find them. A repair
    /// enters them; of two that have one name it keeps the later in the order of the store.
    pub unnamed: u64,
    /// Entries of the index that are damaged. A repair writes the index anew.
    pub damaged_names: u64,
    /// Names in the index whose timeout was acked. This is no fault; the timer removes them when
    /// they are many.
    pub acked_names: u64,
    /// Whether the engine found pages that are not as it wrote them, and mended the file. It may
    /// have gone back to the commit before the last. It looks for them in a repair only.
    pub engine_mended: bool,
}

impl Report {
    /// Whether nothing has to be mended.
    pub fn is_whole(&self) -> bool {
        self.damaged.is_empty() && self.unnamed == 0 && self.damaged_names == 0
    }
}

impl RedbStore {
    /// Reads the whole file and tells what is wrong with it. With `repairs` it mends that, in one
    /// commit: it sets damaged timeouts aside and writes the index of names anew. Then the engine
    /// checks and mends its pages.
    ///
    /// `progress` is called now and then with the number of timeouts that were read, and with that
    /// of all.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if the engine cannot read the file; then a backup is what is left.
    pub fn check(
        &mut self,
        repairs: bool,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Report, Error> {
        self.run("check", |database, _| {
            let report = look(database, &mut progress)?;
            if !repairs {
                return Ok(report);
            }
            if !report.is_whole() {
                mend(database)?;
            }
            // Last: of a page that is damaged it goes back to the commit before, and by now all
            // pages of damaged timeouts are written anew.
            Ok(Report { engine_mended: !database.check_integrity()?, ..report })
        })
    }

    /// Returns the number of damaged timeouts that were set aside.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn set_aside(&mut self) -> Result<u64, Error> {
        self.run("read", |database, _| Ok(database.begin_read()?.open_table(BROKEN)?.len()?))
    }
}

fn look(database: &Database, progress: &mut impl FnMut(u64, u64)) -> Result<Report, redb::Error> {
    let read = database.begin_read()?;
    let (due, names) = (read.open_table(DUE)?, read.open_table(NAMES)?);
    let mut report = Report { set_aside: read.open_table(BROKEN)?.len()?, ..Report::default() };
    let all = due.len()?;
    for (entry, n) in due.iter()?.zip(0..) {
        if n % STEP == 0 {
            progress(n, all);
        }
        let (key, value) = entry?;
        let (deadline, name) = key.value();
        if let Err(reason) = row::decode(deadline, name, value.value(), PARTITION) {
            let name = String::from_utf8_lossy(name).into_owned();
            report.damaged.push(Damaged { deadline, name, reason });
            continue;
        }
        report.timeouts += 1;
        let entry = names.get(name)?.map(|entry| entry.value());
        report.unnamed += u64::from(entry != Some((deadline, row::index_sum(name, deadline))));
    }
    progress(all, all);
    for entry in read.open_table(DEAD)?.iter()? {
        let (name, value) = entry?;
        let (name, (deadline, value)) = (name.value(), value.value());
        match decode_dead(name, deadline, value) {
            Ok(_) => report.dead += 1,
            Err(reason) => {
                let name = String::from_utf8_lossy(name).into_owned();
                report.damaged.push(Damaged { deadline, name, reason });
            }
        }
    }
    for entry in names.iter()? {
        let (name, entry) = entry?;
        let (name, (deadline, sum)) = (name.value(), entry.value());
        if row::index_sum(name, deadline) != sum {
            report.damaged_names += 1;
        } else if due.get((deadline, name))?.is_none() {
            report.acked_names += 1;
        }
    }
    Ok(report)
}

fn mend(database: &Database) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    write.delete_table(NAMES)?;
    {
        let mut names = write.open_table(NAMES)?;
        let mut due = write.open_table(DUE)?;
        let mut broken = write.open_table(BROKEN)?;
        let mut aside = Vec::new();
        for entry in due.iter()? {
            let (key, value) = entry?;
            let (deadline, name) = key.value();
            if row::decode(deadline, name, value.value(), PARTITION).is_err() {
                aside.push((deadline, name.to_vec()));
                continue;
            }
            let old = names.insert(name, (deadline, row::index_sum(name, deadline)))?;
            aside.extend(old.map(|old| (old.value().0, name.to_vec())));
        }
        move_aside(&mut due, &mut broken, aside)?;
        let mut dead = write.open_table(DEAD)?;
        let next = broken.last()?.map_or(0, |(number, _)| number.value() + 1);
        let is_damaged = |name: &[u8], (deadline, value): (u64, &[u8])| {
            decode_dead(name, deadline, value).is_err()
        };
        for (number, entry) in (next..).zip(dead.extract_if(is_damaged)?) {
            let (name, value) = entry?;
            let (deadline, value) = value.value();
            broken.insert(number, (deadline, name.value(), value))?;
        }
    }
    write.commit()?;
    Ok(())
}

/// How often progress is told, in timeouts.
const STEP: u64 = 4096;
