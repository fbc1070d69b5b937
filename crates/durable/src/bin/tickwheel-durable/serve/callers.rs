//! Serves few callers at once, and none for long: so they hold little, and lock nobody out.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Serves until `end`, and lets callers who are being served finish within `grace`.
pub(super) async fn serve(
    mut listener: TcpListener,
    app: Router,
    end: impl Future<Output = ()>,
    grace: Duration,
) {
    let places = Arc::new(Semaphore::new(AT_ONCE as usize));
    let mut http = http1::Builder::new();
    // A connection that waits for its next request would keep its place.
    http.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(HEAD);
    let accept = async {
        loop {
            let place = places.clone().acquire_owned().await.expect("nobody closes it");
            let (stream, _) = Listener::accept(&mut listener).await;
            let service = TowerToHyperService::new(app.clone());
            let connection = http.serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move {
                let _ = timeout(EXCHANGE, connection).await;
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = end => {}
    }
    drop(listener);
    let _ = timeout(grace, places.acquire_many(AT_ONCE)).await;
}

/// How many callers are served at once. More wait in the backlog of the listener.
const AT_ONCE: u32 = 32;
/// How long a caller has to send the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// How long a request and its answer may take.
const EXCHANGE: Duration = Duration::from_secs(30);
