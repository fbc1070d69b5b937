//! Runs a target: on inputs of AFL++ if built by cargo-afl, else on the files that are named.

use std::env::args;

fn main() {
    let name = args().nth(1).unwrap_or_default();
    let Some((_, target)) = fuzz::TARGETS.iter().find(|(target, _)| *target == name) else {
        let names: Vec<_> = fuzz::TARGETS.iter().map(|(target, _)| *target).collect();
        panic!("name a target, one of {}", names.join(" "));
    };
    #[cfg(fuzzing)]
    afl::fuzz(false, |data| target(data));
    #[cfg(not(fuzzing))]
    for file in args().skip(2) {
        eprintln!("{file}");
        target(&std::fs::read(&file).unwrap_or_else(|error| panic!("{file}: {error}")));
    }
}
