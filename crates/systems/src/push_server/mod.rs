//! A push server: long-held HTTP connections, answered with a message or at a deadline.
//!
//! One thread does all: it accepts, answers, and drives two wheels. In the wheel of the [`Hub`]
//! each user has a deadline, and in the other one each connection has one. Each poll moves both, in
//! place. The runtime's own timer has one entry: the next time to look at the wheels.

mod client;
mod hub;

pub use client::Client;
pub use hub::{Answer, Hub};

use crate::accept::accept;
use crate::room::{Held, MOST_OF_ALL, Room, Share};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tickwheel::{Mode, Ticks, Wheel};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_local};
use tokio::{select, time};

/// A push server that runs on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct PushServer {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PushServer {
    /// Starts a server at `address`. A poll waits for `hold` at most. A user that does not poll
    /// again within `grace` is forgotten. A connection is closed after `hold` and `grace` without a
    /// request.
    ///
    /// # Errors
    ///
    /// If the address is taken.
    pub fn start(address: SocketAddr, hold: Duration, grace: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        // More than std has: thousands may connect at once.
        rustix::net::listen(&listener, 4_096)?;
        listener.set_nonblocking(true)?;
        let (stop, stopped) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let serve = async move || {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
            select! {
                () = Rc::new(Serves::new(hold, grace)).run(listener) => {}
                _ = stopped => {}
            }
        };
        let thread = thread::Builder::new().name("push server".to_owned());
        let thread = thread.spawn(move || LocalSet::new().block_on(&runtime, serve()))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for PushServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Serves {
    ticks: Ticks<Instant>,
    /// How long a connection may be without a request.
    idle: Duration,
    hub: RefCell<Hub<Arc<Text>>>,
    /// Room for the texts of all messages that wait, in bytes.
    texts: Arc<Semaphore>,
    /// Room for what connections ask and are answered.
    room: Room,
    /// Taking a connection out, or its deadline, closes it.
    connections: RefCell<Wheel<oneshot::Sender<()>>>,
    /// A request may have brought an earlier deadline.
    changed: Notify,
}

/// The text of a message, and its room.
#[derive(Debug)]
struct Text {
    text: String,
    _held: OwnedSemaphorePermit,
}

impl Serves {
    fn new(hold: Duration, grace: Duration) -> Self {
        let start = Instant::now();
        // In 2255 there are more than a browser's numbers tell apart.
        let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        Self {
            ticks: Ticks::new(start, Duration::from_millis(1)),
            idle: hold.saturating_add(grace),
            hub: RefCell::new(Hub::new(Mode::hierarchical(), start, first as u64, hold, grace)),
            texts: Arc::new(Semaphore::new(MOST_OF_ALL)),
            room: Room::default(),
            connections: RefCell::new(Wheel::default()),
            changed: Notify::new(),
        }
    }

    async fn run(self: Rc<Self>, listener: tokio::net::TcpListener) {
        loop {
            let wake = self.next_wake();
            let woken = async {
                match wake {
                    Some(wake) => time::sleep_until(wake.into()).await,
                    None => pending().await,
                }
            };
            select! {
                stream = accept(&listener) => self.open(stream),
                () = self.changed.notified() => {}
                () = woken => {}
            }
            let now = Instant::now();
            self.hub.borrow_mut().expire(now);
            while self.connections.borrow_mut().expire(self.ticks.now(now)).is_some() {}
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let connection = self.connections.borrow().next_wake();
        let connection = connection.and_then(|tick| self.ticks.instant(tick));
        self.hub.borrow().next_wake().into_iter().chain(connection).min()
    }

    fn open(self: &Rc<Self>, stream: TcpStream) {
        let (close, closed) = oneshot::channel();
        let key = self.connections.borrow_mut().schedule(self.idle_deadline(), close);
        let (serves, share) = (Rc::clone(self), self.room.share());
        spawn_local(async move {
            let service = service_fn(|request| {
                serves.connections.borrow_mut().reschedule(key, serves.idle_deadline());
                serves.answer(request, &share)
            });
            let mut http = http1::Builder::new();
            http.max_buf_size(MOST_BUFFERED);
            select! {
                _ = http.serve_connection(TokioIo::new(stream), service) => {}
                _ = closed => {}
                () = share.closed() => {}
            }
            serves.connections.borrow_mut().cancel(key);
        });
    }

    fn idle_deadline(&self) -> u64 {
        self.ticks.after(Instant::now(), self.idle)
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        share: &Share,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let query = request.uri().query().unwrap_or_default().as_bytes();
        let query: HashMap<String, String> = form_urlencoded::parse(query).into_owned().collect();
        Ok(match (request.method(), request.uri().path()) {
            (&Method::GET, "/") => page(),
            (&Method::GET, "/poll") => self.poll(&query, share).await,
            (&Method::POST, "/publish") => {
                self.publish(query.get("to"), request.into_body(), share).await
            }
            (&Method::GET, "/waiting") => {
                let waiting = self.hub.borrow().waiting();
                let connections = self.connections.borrow().len();
                say(StatusCode::OK, &json!({ "waiting": waiting, "connections": connections }))
            }
            _ => wrong(
                StatusCode::NOT_FOUND,
                "there are GET /, GET /poll, POST /publish, GET /waiting",
            ),
        })
    }

    async fn poll(&self, query: &HashMap<String, String>, share: &Share) -> Response<Full<Bytes>> {
        let user = query.get("user").filter(|user| (1..=100).contains(&user.len()));
        let after = query.get("after").map_or(Ok(0), |after| after.parse());
        let (Some(user), Ok(after)) = (user, after) else {
            let right = "poll as /poll?user=NAME&after=NUMBER, with a name of 1 to 100 bytes";
            return wrong(StatusCode::BAD_REQUEST, right);
        };
        let answer = self.hub.borrow_mut().poll(Instant::now(), user, after);
        self.changed.notify_one();
        match answer.await {
            Ok(Answer::Messages(messages)) => {
                // The rest is for the next poll, which tells that these came.
                let mut room = MOST_ANSWERED;
                let first = messages.iter().take_while(|(_, text)| {
                    let is_first = room == MOST_ANSWERED;
                    room = room.saturating_sub(text.text.len());
                    is_first || 0 < room
                });
                let messages: Vec<_> = first.map(|(number, it)| (number, &*it.text)).collect();
                let mut body = json!({ "messages": messages }).to_string();
                body.shrink_to_fit();
                match share.try_hold(body.len()) {
                    Ok(held) => respond(StatusCode::OK, JSON, Bytes::from_owner(Kept(body, held))),
                    Err(_) => no_room(),
                }
            }
            Ok(Answer::Full) => no_room(),
            Ok(Answer::Ahead(last)) => say(StatusCode::OK, &json!({ "last": last })),
            Ok(Answer::Reconnect) | Err(_) => say(StatusCode::OK, &json!({ "reconnect": true })),
            Ok(Answer::Replaced) => wrong(StatusCode::CONFLICT, "another poll of this user waits"),
        }
    }

    async fn publish(
        &self,
        to: Option<&String>,
        body: Incoming,
        share: &Share,
    ) -> Response<Full<Bytes>> {
        let Ok(_held) = share.try_hold(MOST_BYTES) else { return no_room() };
        let Ok(body) = Limited::new(body, MOST_BYTES).collect().await else {
            return wrong(StatusCode::PAYLOAD_TOO_LARGE, "a message has at most 16 KB");
        };
        let body = body.to_bytes();
        let Ok(text) = str::from_utf8(&body).map(str::to_owned) else {
            return wrong(StatusCode::BAD_REQUEST, "a message is UTF-8");
        };
        let room = Arc::clone(&self.texts).try_acquire_many_owned((text.len() + BESIDE) as u32);
        let Ok(_held) = room else { return no_room() };
        let text = Arc::new(Text { text, _held });
        let mut hub = self.hub.borrow_mut();
        let users = match to {
            Some(user) => vec![user.clone()],
            None => hub.users().map(str::to_owned).collect(),
        };
        let now = Instant::now();
        let reached = users.iter().filter(|user| hub.publish(now, user, &text)).count();
        self.changed.notify_one();
        say(StatusCode::OK, &json!({ "reached": reached }))
    }
}

fn page() -> Response<Full<Bytes>> {
    respond(StatusCode::OK, "text/html; charset=utf-8", include_str!("page.html").into())
}

fn say(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    respond(status, JSON, value.to_string().into())
}

fn wrong(status: StatusCode, right: &str) -> Response<Full<Bytes>> {
    say(status, &json!({ "error": right }))
}

fn no_room() -> Response<Full<Bytes>> {
    wrong(StatusCode::SERVICE_UNAVAILABLE, "there is no room: try again later")
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header(CONTENT_TYPE, kind);
    let response = response.header(CACHE_CONTROL, "no-store").body(Full::new(body));
    response.expect("the headers are valid")
}

/// An answer, and its room until it is written.
struct Kept(String, #[expect(dead_code, reason = "dropping it gives the room back")] Held);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

const JSON: &str = "application/json";
/// Of a message.
const MOST_BYTES: usize = 16 * 1_024;
/// What a text takes beside its bytes.
const BESIDE: usize = 256;
/// About as many bytes of texts are in one answer: in JSON a byte takes up to six.
const MOST_ANSWERED: usize = 128 * 1_024;
/// Of a connection, for a request that comes and an answer that goes.
const MOST_BUFFERED: usize = 16 * 1_024;
