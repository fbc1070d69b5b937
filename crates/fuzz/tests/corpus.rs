//! No input that the search has kept breaks a promise.

use std::fs;
use std::path::Path;

#[test]
fn no_input_of_the_corpus_breaks_a_promise() {
    for (name, target) in fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let mut inputs: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{name} has a corpus");
        for input in inputs {
            eprintln!("{}", input.display());
            target(&fs::read(&input).expect("it is there"));
        }
    }
}
