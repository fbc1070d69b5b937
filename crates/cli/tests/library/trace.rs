//! How a trace is read.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Cursor, ErrorKind, Read, Write};
use tickwheel_cli::trace::Trace;

/// Gives a byte at a time. Every second read is interrupted.
struct Interrupted(Cursor<Vec<u8>>, bool);

impl Read for Interrupted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(ErrorKind::Interrupted.into());
        }
        let most = buffer.len().min(1);
        self.0.read(&mut buffer[..most])
    }
}

#[test]
fn a_read_that_is_interrupted_is_made_again_plain_and_gzip() {
    let plain = format!("{}\n0,schedule,7,10\n5,cancel,7,\n", Trace::HEADER).into_bytes();
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(&plain).unwrap();
    let packed = packer.finish().unwrap();
    for bytes in [plain, packed] {
        let trace = Trace::new("a trace", Interrupted(Cursor::new(bytes), false)).unwrap();
        let lines: Vec<_> = trace.map(|operation| operation.unwrap().to_string()).collect();
        assert_eq!(lines, ["0,schedule,7,10", "5,cancel,7,"]);
    }
}
