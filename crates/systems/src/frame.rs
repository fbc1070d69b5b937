//! A frame: its length, its kind, the number of a request, and a body. Heartbeats and requests are
//! frames.
//!
//! ```text
//! | length, 4 bytes | kind, 1 byte | id, 8 bytes | body |
//!                   |------- the length counts these ----|
//! ```

pub use crate::room::LONGEST_BODY;

use crate::room::{Held, Share, within};
use std::io::{self, BufRead, ErrorKind, Read};
use std::time::Duration;
use tickwheel::Timer;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// What goes over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    /// Tells which request a response answers. A heartbeat has 0.
    pub id: u64,
    pub body: Vec<u8>,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Asks whether the other side lives.
    Heartbeat,
    /// The answer to that.
    Alive,
    Request,
    Response,
}

/// The first bytes of a frame.
type Header = [u8; 13];

impl Frame {
    /// Makes a frame without a body.
    #[must_use]
    pub fn heartbeat(kind: Kind) -> Self {
        Self { kind, id: 0, body: Vec::new() }
    }

    /// Appends the frame's bytes to `bytes`.
    ///
    /// # Errors
    ///
    /// If the body is longer than [`LONGEST_BODY`]: the other side would not take it.
    pub fn write_to(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        check(self.body.len())?;
        let length = u32::try_from(self.body.len() + BEFORE_BODY).expect("it was checked");
        bytes.extend(length.to_be_bytes());
        bytes.push(self.kind as u8);
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(&self.body);
        Ok(())
    }

    /// Reads the next frame, or returns None if the stream ends before it.
    ///
    /// # Errors
    ///
    /// If the stream ends in the middle of a frame, or holds something else than frames.
    pub fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        if is_over(reader)? {
            return Ok(None);
        }
        let mut header = Header::default();
        reader.read_exact(&mut header)?;
        let (mut frame, body) = Self::from_header(&header)?;
        let read = reader.take(body as u64).read_to_end(&mut frame.body)?;
        frame.has_all(read, body)
    }

    /// Reads the next frame of an asynchronous stream, with room for it from `share`. Returns None
    /// if the stream ends before it. Neither its header nor its body takes longer than `limit`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and if a part of the frame takes longer, or there is no room.
    pub async fn receive(
        reader: &mut (impl AsyncBufRead + Unpin),
        share: &Share,
        timer: &Timer,
        limit: Duration,
    ) -> io::Result<Option<(Self, Held)>> {
        if reader.fill_buf().await?.is_empty() {
            return Ok(None);
        }
        let mut header = Header::default();
        within(timer, limit, reader.read_exact(&mut header)).await?;
        let (mut frame, body) = Self::from_header(&header)?;
        let held = share.hold(body).await?;
        let mut rest = reader.take(body as u64);
        let read = within(timer, limit, rest.read_to_end(&mut frame.body)).await?;
        frame.body.shrink_to_fit();
        Ok(frame.has_all(read, body)?.map(|frame| (frame, held)))
    }

    /// Makes the frame of this header, without its body, and returns the length of that. The body
    /// takes memory as it comes, and not because a header says so.
    fn from_header(header: &Header) -> io::Result<(Self, usize)> {
        let (length, rest) = header.split_at(4);
        let length = u32::from_be_bytes(length.try_into().expect("4 bytes"));
        let kind = [Kind::Heartbeat, Kind::Alive, Kind::Request, Kind::Response]
            .into_iter()
            .find(|kind| *kind as u8 == rest[0])
            .ok_or_else(|| invalid(format!("a frame's kind is 0 to 3, and this is {}", rest[0])))?;
        let body = (length as usize).checked_sub(BEFORE_BODY).ok_or_else(|| {
            invalid(format!("a frame's length is at least {BEFORE_BODY}, and this is {length}"))
        })?;
        check(body)?;
        let id = u64::from_be_bytes(rest[1..].try_into().expect("8 bytes"));
        Ok((Self { kind, id, body: Vec::new() }, body))
    }

    fn has_all(self, read: usize, body: usize) -> io::Result<Option<Self>> {
        if read < body {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(self))
    }

    /// Returns the frame's id and body.
    ///
    /// # Errors
    ///
    /// If it is of another kind.
    pub fn of_kind(self, kind: Kind) -> io::Result<(u64, Vec<u8>)> {
        if self.kind == kind {
            return Ok((self.id, self.body));
        }
        Err(invalid(format!("a {kind:?} was to come, and this is a {:?}", self.kind)))
    }
}

/// Returns whether the stream ends here. As for `read_exact`, a read that was interrupted is made
/// again: Linux interrupts one with a time limit when a stopped process goes on.
fn is_over(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        match reader.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            filled => return Ok(filled?.is_empty()),
        }
    }
}

fn check(body: usize) -> io::Result<()> {
    if body <= LONGEST_BODY {
        return Ok(());
    }
    Err(invalid(format!("a frame's body is at most {LONGEST_BODY} bytes, and this is {body}")))
}

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// What the length counts beside the body.
const BEFORE_BODY: usize = size_of::<Header>() - 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        let frame = Frame { kind: Kind::Response, id: u64::MAX - 1, body: vec![7; 100] };
        frame.write_to(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let twice = bytes().repeat(2);
        let mut reader = &twice[..];
        for _ in 0..2 {
            let frame = Frame::read(&mut reader).unwrap().unwrap();
            assert_eq!(
                (frame.kind, frame.id, frame.body.len()),
                (Kind::Response, u64::MAX - 1, 100)
            );
        }
        assert_eq!(Frame::read(&mut reader).unwrap(), None);
    }

    /// Every second read is interrupted.
    struct Interrupted<'a>(&'a [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                Err(ErrorKind::Interrupted.into())
            } else {
                Read::read(&mut self.0, buffer)
            }
        }
    }

    #[test]
    fn a_read_that_is_interrupted_is_made_again() {
        let bytes = bytes();
        let mut reader = BufReader::with_capacity(1, Interrupted(&bytes, false));
        let frame = Frame::read(&mut reader).unwrap().expect("it is there");
        assert_eq!((frame.id, frame.body), (u64::MAX - 1, vec![7; 100]));
        assert_eq!(Frame::read(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_stream_that_ends_in_the_middle_is_an_error_at_every_byte() {
        for length in 1..bytes().len() {
            let error = Frame::read(&mut &bytes()[..length]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{length}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error_that_says_why() {
        let read = |place: usize, byte: u8| {
            let mut bytes = bytes();
            bytes[place] = byte;
            Frame::read(&mut &bytes[..]).unwrap_err().to_string()
        };
        assert_eq!(read(3, 8), "a frame's length is at least 9, and this is 8");
        assert_eq!(read(4, 9), "a frame's kind is 0 to 3, and this is 9");
        assert_eq!(read(0, 1), "a frame's body is at most 1048576 bytes, and this is 16777316");
    }
}
