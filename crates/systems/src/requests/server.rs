//! The other side: one thread for all connections, and answers in any order.

use crate::accept::accept;
use crate::frame::{Frame, Kind};
use crate::room::{Held, Room, Share, within};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tickwheel::Timer;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// Listens on loopback, and hands each request to a function. Dropping it closes all connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

/// A request. [`Reply`] may answer it now or later, on any thread, or never.
#[derive(Debug)]
pub struct Request {
    pub body: Vec<u8>,
    pub reply: Reply,
}

/// Answers a request, and never blocks: the server's thread writes the answer.
#[derive(Debug)]
pub struct Reply {
    /// The number of the connection that asked.
    pub client: u64,
    id: u64,
    connection: Arc<Connection>,
    _held: Held,
}

#[derive(Debug)]
struct Connection {
    /// What is to be written; None closes the connection.
    answers: UnboundedSender<Option<(Vec<u8>, Held)>>,
    share: Share,
}

impl Server {
    /// Starts a server on a free port. `timer` limits how long a frame takes.
    ///
    /// `handle` is called on the server's thread, for each request, and `gone` with the number of
    /// each client that has left, after its last request. Neither may block. A panic closes the
    /// connection that it is about.
    ///
    /// # Errors
    ///
    /// If there is no free port, or no thread.
    pub fn start(
        timer: &Timer,
        handle: impl Fn(Request) + Send + Sync + 'static,
        gone: impl Fn(u64) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        // More than std has: thousands may connect at once.
        rustix::net::listen(&listener, 4_096)?;
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let serves = Arc::new(Serves { timer: timer.clone(), room: Room::default(), handle, gone });
        let serve = async move || {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
            select! {
                () = serves.accept(listener) => {}
                _ = stopped => {}
            }
        };
        let thread = thread::Builder::new().name("requests-server".into());
        thread.spawn(move || runtime.block_on(serve()))?;
        Ok(Self { address, _stop: stop })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

struct Serves<H, G> {
    timer: Timer,
    room: Room,
    handle: H,
    gone: G,
}

impl<H, G> Serves<H, G>
where
    H: Fn(Request) + Send + Sync + 'static,
    G: Fn(u64) + Send + Sync + 'static,
{
    async fn accept(self: Arc<Self>, listener: tokio::net::TcpListener) {
        for client in 0.. {
            let stream = accept(&listener).await;
            let leaves = Leaves { serves: Arc::clone(&self), client };
            tokio::spawn(async move { leaves.serves.run(stream, client).await });
        }
    }

    async fn run(&self, mut stream: TcpStream, client: u64) {
        let (answers, queue) = unbounded_channel();
        let connection = Arc::new(Connection { answers, share: self.room.share() });
        // Without these, answers are slow, and a client that vanished is never missed.
        let _ = stream.set_nodelay(true).and_then(|()| Ok(misses_clients(&stream)?));
        let (input, output) = stream.split();
        // However it ended, the client sees that the connection is closed.
        select! {
            _ = self.read(BufReader::new(input), client, &connection) => {}
            _ = self.write(output, queue) => {}
            () = connection.share.closed() => {}
        }
    }

    async fn read(
        &self,
        mut input: BufReader<impl tokio::io::AsyncRead + Unpin>,
        client: u64,
        connection: &Arc<Connection>,
    ) -> io::Result<()> {
        let share = connection.share.again();
        loop {
            // A client that asks faster than it reads waits.
            connection.share.until_free().await;
            let frame = Frame::receive(&mut input, &share, &self.timer, FRAME_LIMIT).await?;
            let Some((frame, held)) = frame else { return Ok(()) };
            let (id, body) = frame.of_kind(Kind::Request)?;
            let connection = Arc::clone(connection);
            (self.handle)(Request { body, reply: Reply { client, id, connection, _held: held } });
        }
    }

    async fn write(
        &self,
        mut output: impl AsyncWrite + Unpin,
        mut queue: UnboundedReceiver<Option<(Vec<u8>, Held)>>,
    ) -> io::Result<()> {
        while let Some(Some((bytes, _held))) = queue.recv().await {
            within(&self.timer, FRAME_LIMIT, output.write_all(&bytes)).await?;
        }
        output.shutdown().await
    }
}

/// Has the system close the connection if the other side has vanished.
fn misses_clients(stream: &TcpStream) -> rustix::io::Result<()> {
    set_tcp_keepidle(stream, QUIET)?;
    set_tcp_keepintvl(stream, QUIET)?;
    set_socket_keepalive(stream, true)
}

/// Tells that a client has gone, however its connection ends.
struct Leaves<H, G: Fn(u64)> {
    serves: Arc<Serves<H, G>>,
    client: u64,
}

impl<H, G: Fn(u64)> Drop for Leaves<H, G> {
    fn drop(&mut self) {
        // A panic of `handle` may be what ends it, and a second one would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.serves.gone)(self.client)));
    }
}

impl Reply {
    /// Answers the request.
    ///
    /// # Errors
    ///
    /// If the connection is closed, or the body is too long for a frame. If there is no room for
    /// the answer, because those before it are not read, the connection is closed.
    pub fn answer(&self, body: Vec<u8>) -> io::Result<()> {
        self.write(response(self.id, body)?)
    }

    /// Closes the connection at once: the request makes no sense.
    pub fn refuse(&self) {
        self.connection.share.close();
    }

    fn write(&self, bytes: Vec<u8>) -> io::Result<()> {
        let held = self.connection.share.try_hold(bytes.len()).inspect_err(|_| self.refuse())?;
        self.send(Some((bytes, held)))
    }

    fn send(&self, what: Option<(Vec<u8>, Held)>) -> io::Result<()> {
        self.connection.answers.send(what).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

impl Request {
    /// Answers the request with its own body.
    ///
    /// # Errors
    ///
    /// As [`Reply::answer`].
    pub fn echo(&self) -> io::Result<()> {
        self.reply.answer(self.body.clone())
    }

    /// Answers a request that was never made.
    ///
    /// # Errors
    ///
    /// As [`Reply::answer`].
    pub fn answer_another(&self) -> io::Result<()> {
        self.reply.write(response(self.reply.id | 1 << 63, self.body.clone())?)
    }

    /// Writes half of a response, and closes the connection.
    ///
    /// # Errors
    ///
    /// As [`Reply::answer`].
    pub fn close_in_the_middle(&self) -> io::Result<()> {
        let mut bytes = response(self.reply.id, self.body.clone())?;
        bytes.truncate(bytes.len() / 2);
        self.reply.write(bytes)?;
        self.reply.send(None)
    }
}

fn response(id: u64, body: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Frame { kind: Kind::Response, id, body }.write_to(&mut bytes)?;
    Ok(bytes)
}

/// The header of a request, its body, and an answer take no longer each, or the connection is
/// closed.
pub const FRAME_LIMIT: Duration = Duration::from_secs(5);
/// When the system asks a client that is quiet whether it is there, and how long it waits for each
/// answer.
const QUIET: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::pin::pin;
    use tickwheel::ManualClock;

    #[test]
    fn an_answer_that_is_not_read_ends_at_its_limit_and_not_before() {
        let clock = ManualClock::new();
        let timer = Timer::builder().clock(clock.clone()).build().unwrap();
        let room = Room::default();
        let share = room.share();
        let serves = Serves { timer: timer.clone(), room, handle: drop, gone: |_| {} };
        let (answers, queue) = unbounded_channel();
        for _ in 0..2 {
            answers.send(Some((vec![7; 100], share.try_hold(100).unwrap()))).unwrap();
        }
        // One fits, and nobody reads.
        let (output, _input) = tokio::io::duplex(150);
        let mut write = pin!(serves.write(output, queue));
        assert!(write.as_mut().now_or_never().is_none());
        assert_eq!(timer.pending(), 1, "it has a limit");
        clock.advance(FRAME_LIMIT - Duration::from_nanos(1));
        assert!(write.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_nanos(1));
        let end = write.now_or_never().expect("its limit has come");
        assert_eq!(end.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
