//! `Trace`: reads the format, and says what is wrong with it.

use crate::units;
use flate2::bufread::GzDecoder;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::str;

/// A trace being read: an iterator over its operations.
///
/// Whether it is gzip is told by its first bytes, not by its name; of several members all are read.
/// A trace that breaks off, because its program was killed, is read up to there: see
/// [`gaps`](Self::gaps).
pub struct Trace {
    name: String,
    source: Box<dyn BufRead>,
    /// The line that was read last, without its end.
    line: Vec<u8>,
    line_number: u64,
    /// The first of the empty lines that were read last.
    empty_line: Option<u64>,
    time_ms: u64,
    operations: u64,
    /// A recorder wrote it, so that it has an end.
    is_recorded: bool,
    /// Nothing is read behind that end.
    stops_at_end: bool,
    end_ms: Option<u64>,
    gaps: Gaps,
}

/// What is not in a trace though it happened.
///
/// As text it is a warning: a line for each gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gaps {
    /// The operations that the recorder left out, because it could not write them in time.
    pub missing: u64,
    /// The operations after which the trace breaks off; None if it does not.
    pub torn_after: Option<u64>,
}

/// A line of a trace: an operation, or what a recorder says of the trace.
enum Line {
    Operation(Operation),
    Begin,
    Missing(u64),
    End(u64),
}

/// What the recorded program did to its timeouts, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// When, in ms since the trace began.
    pub time_ms: u64,
    /// The name of the timeout.
    pub key: u32,
    /// What was done to it.
    pub action: Action,
}

/// What is done to a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It is scheduled.
    Schedule {
        /// How long after the operation it is due; 0 if it is due at once.
        delay_ms: u64,
    },
    /// It is moved.
    Reschedule {
        /// How long after the operation it is due; 0 if it is due at once.
        delay_ms: u64,
    },
    /// It is cancelled.
    Cancel,
}

/// What in a trace is not as the format says.
#[derive(Debug)]
#[non_exhaustive]
pub struct TraceError {
    /// The name of the trace.
    pub file: String,
    /// The line, counted from 1; None if nothing could be read at all.
    pub line: Option<u64>,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub expected: String,
}

impl Trace {
    /// The first line of each trace, without its end.
    pub const HEADER: &str = "time_ms,op,key,delay_ms";

    /// Opens the file at `path`.
    ///
    /// # Errors
    ///
    /// [`TraceError`] if it cannot be read, or does not begin with the header.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::open_through(path, Ok)
    }

    /// Opens the file at `path`, and reads it through what `wrap` makes of it.
    fn open_through<R: Read + 'static>(
        path: &Path,
        wrap: impl FnOnce(File) -> io::Result<R>,
    ) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        match File::open(path).and_then(wrap) {
            Ok(source) => Self::new(&name, source),
            Err(error) => Err(TraceError {
                file: printable(&name),
                line: None,
                found: describe(&error),
                expected: "a trace that can be read".into(),
            }),
        }
    }

    /// Opens the file at `path`, and reads it through what `wrap` makes of it, up to the end that a
    /// recorder writes.
    #[doc(hidden)]
    pub fn follow<R: Read + 'static>(
        path: &Path,
        wrap: impl FnOnce(File) -> io::Result<R>,
    ) -> Result<Self, TraceError> {
        Ok(Self { stops_at_end: true, ..Self::open_through(path, wrap)? })
    }

    /// Reads from `source`; `name` is what errors and the report call it.
    ///
    /// # Errors
    ///
    /// [`TraceError`] if it cannot be read, or does not begin with the header.
    pub fn new(name: &str, source: impl Read + 'static) -> Result<Self, TraceError> {
        let mut trace = Self {
            name: printable(name),
            source: Box::new(io::empty()),
            line: Vec::new(),
            line_number: 0,
            empty_line: None,
            time_ms: 0,
            operations: 0,
            is_recorded: false,
            stops_at_end: false,
            end_ms: None,
            gaps: Gaps::default(),
        };
        trace.source = unpacked(source).map_err(|error| trace.unreadable(&error))?;
        trace.read_header()?;
        Ok(trace)
    }

    fn read_header(&mut self) -> Result<(), TraceError> {
        let expected = || format!("the header `{}`", Self::HEADER);
        // A decoder tells an error once.
        let found = peek(&mut self.source).map(foreign);
        if let Some(found) = found.map_err(|error| self.unreadable(&error))? {
            self.line_number = 1;
            return Err(self.error(found, &format!("{}, plain or gzip", expected())));
        }
        if !self.read_line()? {
            return Err(self.error("an empty file", &expected()));
        }
        let line = self.line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.line);
        if line != Self::HEADER.as_bytes() {
            return Err(self.error(&quoted(line), &expected()));
        }
        Ok(())
    }

    /// Reads the next operation; None at the end.
    fn read(&mut self) -> Result<Option<Operation>, TraceError> {
        while !(self.stops_at_end && self.end_ms.is_some()) && self.read_line()? {
            // A trace may end with empty lines.
            if self.line.is_empty() {
                self.empty_line = self.empty_line.or(Some(self.line_number));
                continue;
            }
            if self.empty_line.is_some() {
                let error = self.error("an empty line", "an operation, or the end of the trace");
                return Err(TraceError { line: self.empty_line, ..error });
            }
            match self.parse()? {
                Line::Operation(operation) => {
                    self.time_ms = operation.time_ms;
                    self.operations += 1;
                    return Ok(Some(operation));
                }
                Line::Begin => self.is_recorded = true,
                Line::Missing(operations) => {
                    self.gaps.missing = self.gaps.missing.saturating_add(operations);
                }
                Line::End(time_ms) => self.end_ms = Some(time_ms),
            }
        }
        if self.operations == 0 {
            return Err(self.error("no operations", "at least one after the header"));
        }
        Ok(None)
    }

    /// Reads the next line, without its end, and returns whether there is one.
    fn read_line(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        self.line_number += 1;
        let read = self.source.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.line);
        let read = match read {
            // Gzip data that break off.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && 0 < self.operations => {
                self.gaps.torn_after = Some(self.operations);
                return Ok(false);
            }
            read => read.map_err(|error| self.unreadable(&error))? as u64,
        };
        if self.is_recorded && self.end_ms.is_none() && !self.line.ends_with(b"\n") {
            self.gaps.torn_after = Some(self.operations);
            return Ok(false);
        }
        if read == LONGEST_LINE && !self.line.ends_with(b"\n") {
            let expected = format!("a line of less than {LONGEST_LINE} bytes");
            return Err(self.error(&quoted(&self.line), &expected));
        }
        self.line.truncate(self.line.trim_ascii_end().len());
        Ok(0 < read)
    }

    /// What is on the line that was read last.
    fn parse(&self) -> Result<Line, TraceError> {
        let fields: Vec<_> = self.line.split(|&byte| byte == b',').collect();
        let [time_ms, op, key, delay_ms] = fields[..] else {
            let columns = units::count(fields.len() as u64, "column");
            let found = format!("{columns} in {}", quoted(&self.line));
            return Err(self.error(&found, "4 columns: `time_ms,op,key,delay_ms`"));
        };
        let time_ms = self.number("time_ms", time_ms, u64::MAX)?;
        if time_ms < self.time_ms {
            let found = format!("time_ms `{time_ms}`");
            let expected = format!("no time before that of the line above, {}", self.time_ms);
            return Err(self.error(&found, &expected));
        }
        if self.end_ms.is_some() {
            let found = format!("{} behind `end`", quoted(&self.line));
            return Err(self.error(&found, "no more lines"));
        }
        match (op, key, delay_ms) {
            (b"begin", b"", b"") if self.line_number == 2 => return Ok(Line::Begin),
            (b"end", b"", b"") => return Ok(Line::End(time_ms)),
            (b"missing", operations, b"") => {
                return Ok(Line::Missing(self.number("key", operations, u64::MAX)?));
            }
            _ => {}
        }
        let key = self.number("key", key, u32::MAX.into())? as u32;
        let delay = || self.number("delay_ms", delay_ms, u64::MAX);
        let action = match op {
            b"schedule" => Action::Schedule { delay_ms: delay()? },
            b"reschedule" => Action::Reschedule { delay_ms: delay()? },
            b"cancel" if delay_ms.is_empty() => Action::Cancel,
            b"cancel" => {
                let found = format!("delay_ms {}", quoted(delay_ms));
                return Err(self.error(&found, "no delay for `cancel`"));
            }
            _ => {
                let found = format!("op {}", quoted(op));
                return Err(self.error(&found, "`schedule`, `reschedule` or `cancel`"));
            }
        };
        Ok(Line::Operation(Operation { time_ms, key, action }))
    }

    fn number(&self, column: &str, field: &[u8], most: u64) -> Result<u64, TraceError> {
        let digits = !field.is_empty() && field.iter().all(u8::is_ascii_digit);
        let number = str::from_utf8(field).ok().and_then(|text| text.parse().ok());
        match number {
            Some(number) if digits && number <= most => Ok(number),
            _ => {
                let found = format!("{column} {}", quoted(field));
                Err(self.error(&found, &format!("a whole number from 0 to {most}")))
            }
        }
    }

    /// The name of the trace: of a file, its path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When the recording ended, in ms; None if that was not read, because the trace does not say
    /// it or because it was not read to its end.
    #[must_use]
    pub fn end_ms(&self) -> Option<u64> {
        self.end_ms
    }

    /// What is known to be missing from the trace, up to where it was read.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        self.gaps
    }

    fn error(&self, found: &str, expected: &str) -> TraceError {
        TraceError {
            file: self.name.clone(),
            line: Some(self.line_number),
            found: found.into(),
            expected: expected.into(),
        }
    }

    fn unreadable(&self, error: &io::Error) -> TraceError {
        let expected = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the rest of the gzip data",
            io::ErrorKind::InvalidData => "the end of the file, or another gzip member",
            io::ErrorKind::InvalidInput => "sound gzip data",
            _ => "a trace that can be read",
        };
        let line = (0 < self.line_number).then_some(self.line_number);
        TraceError { line, ..self.error(&describe(error), expected) }
    }
}

/// The operations, up to the first line that is not as the format says, whose error comes out in
/// its place. Of a trace without operations that is an error, too.
impl Iterator for Trace {
    type Item = Result<Operation, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("name", &self.name)
            .field("line_number", &self.line_number)
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}

impl Action {
    /// How long after the operation the timeout is due, in ms; None for [`Action::Cancel`].
    #[must_use]
    pub fn delay_ms(&self) -> Option<u64> {
        match *self {
            Self::Schedule { delay_ms } | Self::Reschedule { delay_ms } => Some(delay_ms),
            Self::Cancel => None,
        }
    }
}

/// The line of a trace, without its end.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time_ms, key, action } = self;
        match action {
            Action::Schedule { delay_ms } => write!(f, "{time_ms},schedule,{key},{delay_ms}"),
            Action::Reschedule { delay_ms } => write!(f, "{time_ms},reschedule,{key},{delay_ms}"),
            Action::Cancel => write!(f, "{time_ms},cancel,{key},"),
        }
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing, torn_after } = *self;
        if let Some(operations) = torn_after {
            let operations = units::count(operations, "operation");
            let causes = "the program was killed or still runs, or the file was cut";
            writeln!(f, "the trace breaks off after {operations}: {causes}")?;
        }
        if 0 < missing {
            let operations = units::are(missing, "operation");
            writeln!(f, "{operations} missing: the recorder could not write them in time")?;
        }
        Ok(())
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": found {}, expected {}", self.found, self.expected)
    }
}

impl Error for TraceError {}

/// Returns the source, unpacked if it begins like gzip.
fn unpacked(source: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut source = BufReader::new(source);
    Ok(match begins_like_gzip(&mut source)? {
        true => Box::new(BufReader::new(Members { decoder: Some(GzDecoder::new(source)) })),
        false => Box::new(source),
    })
}

/// All members of gzip data, one after the other.
struct Members<R> {
    /// None at the end.
    decoder: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            match decoder.read(buffer)? {
                0 if !buffer.is_empty() => {}
                read => return Ok(read),
            }
            let mut source = self.decoder.take().expect("it was there").into_inner();
            if begins_like_gzip(&mut source)? {
                self.decoder = Some(GzDecoder::new(source));
            } else if !source.fill_buf()?.is_empty() {
                let found = "trailing bytes after the gzip data";
                return Err(io::Error::new(io::ErrorKind::InvalidData, found));
            }
        }
        Ok(0)
    }
}

/// Looks at the next bytes. A single byte is enough where the source has no more at the moment.
fn begins_like_gzip(source: &mut impl BufRead) -> io::Result<bool> {
    let start = peek(source)?;
    Ok(!start.is_empty() && start.iter().zip(&GZIP_MAGIC).all(|(byte, magic)| byte == magic))
}

/// Looks at the next bytes without reading them. A read that was interrupted is made again.
fn peek(source: &mut impl BufRead) -> io::Result<&[u8]> {
    while let Err(error) = source.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    source.fill_buf()
}

/// What data are that begin so, if they are of a kind that is often taken for a trace.
fn foreign(start: &[u8]) -> Option<&'static str> {
    FOREIGN.iter().find(|(magic, _)| start.starts_with(magic)).map(|&(_, name)| name)
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".into(),
        io::ErrorKind::IsADirectory => "a directory".into(),
        io::ErrorKind::PermissionDenied => "no permission to read it".into(),
        io::ErrorKind::UnexpectedEof => "gzip data that break off".into(),
        _ => printable(&error.to_string()),
    }
}

/// The bytes as text that is safe to print, cut if they are many.
fn quoted(bytes: &[u8]) -> String {
    match bytes.get(..LONGEST_QUOTE) {
        Some(start) => format!("`{}...`", start.escape_ascii()),
        None => format!("`{}`", bytes.escape_ascii()),
    }
}

/// The text without what a terminal would heed.
#[doc(hidden)]
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// What some programs write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

const FOREIGN: [(&[u8], &str); 6] = [
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"BZh", "bzip2 data"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
];

/// Keeps a file without lines out of memory; a good line has some 60 bytes at most.
const LONGEST_LINE: u64 = 4096;

const LONGEST_QUOTE: usize = 60;
