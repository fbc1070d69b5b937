//! The structures of Varghese and Lauck, and tickwheel beside them, with 100 to 1,000,000 timers.
//!
//! `cargo bench -p classical` writes the tables of docs/classical.md, which says how they are
//! measured, and the picture beside them. With `-- --quick` it takes few timers, to see that it
//! works, and writes nothing.

mod measure;
mod show;

use classical::{
    BinaryHeap, HashedRounds, HashedSorted, Hierarchical, SortedList, Tickwheel, UnsortedList,
};
use measure::{Figure, Subject};
use std::error::Error;
use tickwheel::Mode;

fn main() -> Result<(), Box<dyn Error>> {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let sizes: &[u32] =
        if is_quick { &[100, 1_000] } else { &[100, 1_000, 10_000, 100_000, 1_000_000] };
    let mut figures: Vec<Vec<[Figure; 3]>> = vec![Vec::new(); SUBJECTS.len()];
    for &size in sizes {
        for (subject, figures) in SUBJECTS.iter().zip(&mut figures) {
            eprintln!("{}, {size} timers", subject.name);
            figures.push(measure::measure(subject, size, is_quick));
        }
    }
    let tables = show::tables(sizes, &figures);
    println!("{tables}");
    if !is_quick {
        show::write(&tables, &show::picture(sizes, &figures)?)?;
    }
    Ok(())
}

/// The buckets of the hashed wheels.
const TABLE_SIZE: u32 = 4096;

/// The routines, in the order of the figures.
const ROUTINES: [&str; 3] = ["START_TIMER", "STOP_TIMER", "PER_TICK_BOOKKEEPING"];

/// What the paper says of the routines of each, on average and in the worst case where they differ.
const SUBJECTS: [Subject; 8] = [
    Subject {
        name: "unsorted list (1)",
        searches: false,
        paper: ["O(1)", "O(1)", "O(n)"],
        new: |requests| Box::new(UnsortedList::new(requests)),
    },
    Subject {
        name: "sorted list (2)",
        searches: true,
        paper: ["O(n)", "O(1)", "O(1)"],
        new: |requests| Box::new(SortedList::new(requests)),
    },
    Subject {
        name: "binary heap (3)",
        searches: false,
        paper: ["O(log n)", "O(1)", "O(1)"],
        new: |requests| Box::new(BinaryHeap::new(requests)),
    },
    Subject {
        name: "hashed, sorted lists (5)",
        searches: true,
        paper: ["O(1), worst O(n)", "O(1)", "O(1)"],
        new: |requests| Box::new(HashedSorted::new(requests, TABLE_SIZE)),
    },
    Subject {
        name: "hashed, rounds (6)",
        searches: false,
        paper: ["O(1)", "O(1)", "O(1), worst O(n)"],
        new: |requests| Box::new(HashedRounds::new(requests, TABLE_SIZE)),
    },
    Subject {
        name: "hierarchical (7)",
        searches: false,
        // The worst case is ours: one bucket may have all.
        paper: ["O(m), m levels", "O(1)", "O(1), worst O(n)"],
        new: |requests| Box::new(Hierarchical::new(requests)),
    },
    Subject {
        name: "tickwheel, hashed:4096",
        searches: false,
        paper: ["", "", ""],
        new: |requests| {
            let mode = Mode::hashed(TABLE_SIZE as usize).expect("a power of two");
            Box::new(Tickwheel::new(requests, mode))
        },
    },
    Subject {
        name: "tickwheel, hierarchical:64",
        searches: false,
        paper: ["", "", ""],
        new: |requests| Box::new(Tickwheel::new(requests, Mode::hierarchical())),
    },
];
