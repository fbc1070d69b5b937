//! The other side: one thread per connection, and answers in any order.

use crate::frame::{Frame, Kind};
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Listens on loopback, and hands each request to a function. Dropping it closes all connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    open: Arc<Mutex<Open>>,
}

/// A request, which may be answered now or later, on any thread, or never.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: u64,
    pub body: Vec<u8>,
    connection: Arc<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// Held while a frame is written: frames do not mix.
    writing: Mutex<()>,
}

/// The connections, and some that are gone; None when the server is closed.
type Open = Option<Vec<Weak<Connection>>>;

impl Server {
    /// Starts a server on a free port.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn start(handle: impl Fn(Request) + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, handle) = (listener.local_addr()?, Arc::new(handle));
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let accepted = Arc::clone(&open);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut open = lock(&accepted);
                let Some(connections) = open.as_mut() else { return };
                let Ok(stream) = stream else {
                    drop(open);
                    // Too many open files, say: they are fewer later.
                    thread::sleep(Duration::from_millis(10));
                    continue;
                };
                let connection = Arc::new(Connection { stream, writing: Mutex::new(()) });
                connections.retain(|connection: &Weak<_>| connection.strong_count() != 0);
                connections.push(Arc::downgrade(&connection));
                drop(open);
                let handle = Arc::clone(&handle);
                // However it ended, the client sees that the connection is closed.
                thread::spawn(move || read(&connection, &*handle));
            }
        });
        Ok(Self { address, open })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for connection in lock(&self.open).take().into_iter().flatten() {
            if let Some(connection) = connection.upgrade() {
                // The client may have closed it.
                let _ = connection.stream.shutdown(Shutdown::Both);
            }
        }
        // The listener looks whether the server is closed at the next connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn read(connection: &Arc<Connection>, handle: &impl Fn(Request)) -> io::Result<()> {
    connection.stream.set_nodelay(true)?;
    // A client that does not read is not to hold up those that do.
    connection.stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let mut reader = BufReader::new(&connection.stream);
    while let Some(frame) = Frame::read(&mut reader)? {
        let (id, body) = frame.of_kind(Kind::Request)?;
        handle(Request { id, body, connection: Arc::clone(connection) });
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Request {
    /// Answers the request.
    ///
    /// # Errors
    ///
    /// If the connection is closed, or the body is too long for a frame.
    pub fn answer(&self, body: Vec<u8>) -> io::Result<()> {
        self.write(&response(self.id, body)?)
    }

    /// Answers the request with its own body.
    ///
    /// # Errors
    ///
    /// If the connection is closed.
    pub fn echo(&self) -> io::Result<()> {
        self.answer(self.body.clone())
    }

    /// Answers a request that was never made.
    ///
    /// # Errors
    ///
    /// If the connection is closed.
    pub fn answer_another(&self) -> io::Result<()> {
        self.write(&response(self.id | 1 << 63, self.body.clone())?)
    }

    /// Writes half of a response, and closes the connection.
    ///
    /// # Errors
    ///
    /// If the connection is closed already.
    pub fn close_in_the_middle(&self) -> io::Result<()> {
        let bytes = response(self.id, self.body.clone())?;
        self.write(&bytes[..bytes.len() / 2])?;
        self.connection.stream.shutdown(Shutdown::Both)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let _writing = lock(&self.connection.writing);
        let mut stream = &self.connection.stream;
        // After half of a frame there is no more to say.
        stream.write_all(bytes).inspect_err(|_| drop(stream.shutdown(Shutdown::Both)))
    }
}

fn response(id: u64, body: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Frame { kind: Kind::Response, id, body }.write_to(&mut bytes)?;
    Ok(bytes)
}
