//! The frames that go over the connections of `systems`.

use allocation_counter::measure;
use futures::executor::block_on;
use std::io::{self, BufReader, ErrorKind, Read};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use systems::frame::Frame;
use systems::room::Room;
use tickwheel::{ManualClock, Timer};
use tokio::io::{AsyncRead, ReadBuf};

/// Reads bytes as frames, after a byte that says in what pieces they come. However they come, the
/// frames and the error are the same, and take memory as they come. Written again, they are what
/// was read.
pub fn frames(data: &[u8]) {
    let Some((&piece, data)) = data.split_first() else { return };
    let mut rest = data;
    let measured = measure(|| while matches!(Frame::read(&mut rest), Ok(Some(_))) {});
    let most = MOST_BYTES + 4 * data.len() as u64;
    assert!(measured.bytes_max <= most, "{} bytes of {}", measured.bytes_max, data.len());

    let mut rest = data;
    let whole = all(|| Frame::read(&mut rest));
    let mut written = Vec::new();
    for frame in &whole.0 {
        frame.write_to(&mut written).expect("it was read");
    }
    assert!(data.starts_with(&written));
    assert_eq!(whole.1.is_none(), written.len() == data.len(), "it ends behind a frame");

    let mut pieces = BufReader::with_capacity(64, Pieces::new(data, piece));
    assert_eq!(all(|| Frame::read(&mut pieces)), whole);

    let timer = Timer::builder().clock(ManualClock::new());
    let (timer, _driver) = timer.build_driven().expect("in range");
    let share = Room::default().share();
    let mut pieces = tokio::io::BufReader::with_capacity(64, Pieces::new(data, piece));
    let received = all(|| {
        let frame = block_on(Frame::receive(&mut pieces, &share, &timer, Duration::from_secs(1)))?;
        assert_eq!(timer.pending(), 0, "no limit is left");
        Ok(frame.map(|(frame, _)| frame))
    });
    assert_eq!(received, whole);
}

/// All frames, and the error after them, if there is one.
fn all(
    mut read: impl FnMut() -> io::Result<Option<Frame>>,
) -> (Vec<Frame>, Option<(ErrorKind, String)>) {
    let mut frames = Vec::new();
    loop {
        match read() {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, None),
            Err(error) => {
                // Each way to read has words of its own for it.
                let early = error.kind() == ErrorKind::UnexpectedEof;
                let text = if early { String::new() } else { error.to_string() };
                return (frames, Some((error.kind(), text)));
            }
        }
    }
}

/// Gives a few bytes at a time. Every second read has to be made again.
struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
    waits: bool,
}

impl<'a> Pieces<'a> {
    fn new(rest: &'a [u8], piece: u8) -> Self {
        Self { rest, piece: usize::from(piece).max(1), waits: false }
    }

    /// Whether this read has to be made again.
    fn waits(&mut self) -> bool {
        self.waits = !self.waits;
        self.waits
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.waits() {
            return Err(ErrorKind::Interrupted.into());
        }
        let most = self.piece.min(buffer.len());
        self.rest.read(&mut buffer[..most])
    }
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.waits() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = self.piece.min(buffer.remaining()).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(most);
        buffer.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

/// The text of an error, and what a frame's body takes at first.
const MOST_BYTES: u64 = 4_096;
