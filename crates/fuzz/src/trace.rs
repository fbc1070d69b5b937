//! Traces: plain, packed, in pieces and cut.

use allocation_counter::measure;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Cursor, ErrorKind, Read, Write};
use tickwheel_cli::trace::{Gaps, Operation, Trace, TraceError};

/// Reads bytes as a trace. What is read and written again reads the same, as does a trace that is
/// packed or comes in pieces, and reading takes little memory.
pub fn trace(data: &[u8]) {
    let data = &data[..data.len().min(LONGEST)];
    let source = Cursor::new(data.to_vec());
    let measured = measure(|| {
        if let Ok(trace) = Trace::new(NAME, source) {
            trace.take_while(Result::is_ok).for_each(drop);
        }
    });
    assert!(measured.bytes_max <= MOST_BYTES, "it takes {} bytes", measured.bytes_max);

    let found = Found::in_all(Cursor::new(data.to_vec()));
    if let Some((line, error)) = &found.error {
        assert!(error.starts_with(NAME) && !error.contains(char::is_control), "{error:?}");
        match line {
            Some(line) => assert!(error.contains(&format!("{NAME}:{line}: ")) && 0 < *line),
            None => assert!(found.operations.is_empty()),
        }
    }
    if !found.operations.is_empty() {
        let lines: String = found.operations.iter().map(|line| format!("{line}\n")).collect();
        let written = format!("{}\n{lines}", Trace::HEADER);
        let again = Found::in_all(Cursor::new(written.into_bytes()));
        assert_eq!((again.operations, again.error), (found.operations.clone(), None));
    }
    if data.is_empty() || GZIP.starts_with(&data[..data.len().min(GZIP.len())]) {
        return;
    }

    assert_eq!(Found::in_all(Pieces { rest: Cursor::new(data.to_vec()), reads: 0 }), found);
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(data).expect("it is memory");
    let mut packed = packer.finish().expect("it is memory");
    let unpacked = Found::in_all(Pieces { rest: Cursor::new(packed.clone()), reads: 0 });
    // What is packed and begins like a foreign format may come in pieces too small to name it.
    assert_eq!(unpacked.but_for_words(), found.but_for_words());
    packed.truncate(packed.len() - 1 - data.len() % (packed.len() / 2));
    let cut = Found::in_all(Cursor::new(packed));
    assert!(found.operations.starts_with(&cut.operations), "what is read was there");
    if !cut.operations.is_empty() && found.error.is_none() {
        assert_eq!(cut.error, None);
        let torn = cut.gaps.torn_after.expect("the end is cut off");
        assert_eq!(torn, cut.operations.len() as u64);
    }
}

/// What is in a trace.
#[derive(Debug, PartialEq)]
struct Found {
    operations: Vec<Operation>,
    end_ms: Option<u64>,
    gaps: Gaps,
    /// The error at which it ends: the line, and the text.
    error: Option<(Option<u64>, String)>,
}

impl Found {
    fn in_all(source: impl Read + 'static) -> Self {
        let mut found =
            Self { operations: Vec::new(), end_ms: None, gaps: Gaps::default(), error: None };
        let told = |error: TraceError| Some((error.line, error.to_string()));
        match Trace::new(NAME, source) {
            Ok(mut trace) => {
                for operation in &mut trace {
                    match operation {
                        Ok(operation) => found.operations.push(operation),
                        Err(error) => {
                            found.error = told(error);
                            break;
                        }
                    }
                }
                (found.end_ms, found.gaps) = (trace.end_ms(), trace.gaps());
            }
            Err(error) => found.error = told(error),
        }
        found
    }

    fn but_for_words(&self) -> (&[Operation], Option<u64>, Gaps, Option<Option<u64>>) {
        let line = self.error.as_ref().map(|(line, _)| *line);
        (&self.operations, self.end_ms, self.gaps, line)
    }
}

/// Gives the first bytes, by which a trace knows its kind, and then a few at a time. Every second
/// read is interrupted.
struct Pieces {
    rest: Cursor<Vec<u8>>,
    reads: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        if self.reads.is_multiple_of(2) {
            return Err(ErrorKind::Interrupted.into());
        }
        let most = if self.reads == 1 { 16 } else { 1 + self.reads % 7 };
        let most = most.min(buffer.len());
        self.rest.read(&mut buffer[..most])
    }
}

const NAME: &str = "input";
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Gzip data are unpacked to at most a thousand times their length.
const LONGEST: usize = 16 << 10;
/// Buffers, the window of gzip, its header, and a line.
const MOST_BYTES: u64 = 512 << 10;
