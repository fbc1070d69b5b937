//! The stores against the suite.

use tickwheel_durable::{MemoryStore, RedbStore, suite};

#[test]
fn the_store_in_memory_is_a_store() {
    suite::check(MemoryStore::new);
    let store = MemoryStore::new();
    suite::check_reopening(|| store.clone());
}

#[test]
fn redb_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = 0;
    suite::check(|| {
        files += 1;
        RedbStore::open(folder.path().join(files.to_string())).unwrap()
    });
    suite::check_reopening(|| RedbStore::open(folder.path().join("again")).unwrap());
}
