//! Serves a page that shows a file or a database: what is pending, workers, dead letters.
//!
//! However many look at it, the place is read once a second at most, and each look reads so much at
//! most, however much is pending.

mod callers;
mod guard;
mod look;

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde_json::{Value, json};
use tickwheel_durable::store::{Change, Position};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::Mutex;

use super::failure::Failure;
use super::place::Place;
use guard::Guard;
use look::{LETTERS_AT_ONCE, Looker};

/// What the page may do, and for whom.
pub(super) struct Manner {
    pub(super) listen: SocketAddr,
    /// Whether it may retry and drop dead letters.
    pub(super) changes: bool,
    pub(super) token_file: Option<PathBuf>,
}

#[derive(Clone)]
struct Server {
    looker: Arc<Mutex<Looker>>,
    changes: bool,
}

/// Serves until it is interrupted.
pub(super) fn serve(
    place: &Place,
    manner: &Manner,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let guard = Guard::new(manner)?;
    let looker = Arc::new(Mutex::new(Looker::new(place.open()?, place.to_string())));
    let server = Server { looker, changes: manner.changes };
    let app = Router::new()
        .route("/", get(|| file("text/html; charset=utf-8", include_str!("page.html"))))
        .route("/page.css", get(|| file("text/css; charset=utf-8", include_str!("page.css"))))
        .route("/page.js", get(|| file("text/javascript; charset=utf-8", include_str!("page.js"))))
        .route("/state", get(state))
        .route("/pending", get(pending))
        .route("/dead", get(dead))
        .route("/dead/retry", post(retry))
        .route("/dead/drop", post(drop_dead))
        .with_state(server)
        .layer(middleware::from_fn_with_state(Arc::new(guard), guard::check));
    let in_words = |error: io::Error| Failure::Input(format!("{}: {error}", manner.listen));
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(in_words)?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind(manner.listen).await.map_err(in_words)?;
        let address = listener.local_addr().map_err(in_words)?;
        let may =
            if manner.changes { "dead letters can be retried and dropped" } else { "read only" };
        writeln!(output, "{place} is shown at http://{address}/ ({may}). Ctrl-C ends it.")?;
        output.flush()?;
        callers::serve(listener, app, interrupted(), GRACE).await;
        Ok(())
    });
    runtime.shutdown_timeout(GRACE);
    served
}

/// Waits for Ctrl-C, or for a signal to end.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut ended) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = ended.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

async fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

type Shared = State<Server>;

/// Which page of a list: a prefix, and the place after which it begins.
type Part = Query<HashMap<String, String>>;

async fn state(State(server): Shared) -> Response {
    let changes = server.changes;
    answer(server, move |looker| {
        let mut state = looker.state();
        state["changes"] = json!(changes);
        Ok(state)
    })
    .await
}

async fn pending(State(server): Shared, Query(part): Part) -> Response {
    let Ok(deadline) = part.get("after_ms").map_or(Ok(0), |text| text.parse()) else {
        return refuse(StatusCode::BAD_REQUEST, "after_ms: expected milliseconds since 1970");
    };
    let after = Position { deadline, name: word(&part, "after").into() };
    answer(server, move |looker| looker.pending(after, word(&part, "prefix"))).await
}

async fn dead(State(server): Shared, Query(part): Part) -> Response {
    answer(server, move |looker| looker.dead(word(&part, "prefix"), word(&part, "after"))).await
}

fn word<'a>(part: &'a HashMap<String, String>, name: &str) -> &'a str {
    part.get(name).map_or("", String::as_str)
}

/// Dead letters as they were shown: their names, and when they died.
type Letters = Json<Vec<(String, u64)>>;

async fn retry(State(server): Shared, letters: Letters) -> Response {
    change(server, letters, Change::revive).await
}

async fn drop_dead(State(server): Shared, letters: Letters) -> Response {
    change(server, letters, |name, _| Change::drop_dead(name)).await
}

async fn change(server: Server, Json(letters): Letters, to: fn(&str, u64) -> Change) -> Response {
    if !server.changes {
        let why = "this page is read only: it was not started with --changes";
        return refuse(StatusCode::FORBIDDEN, why);
    }
    if LETTERS_AT_ONCE < letters.len() {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "expected a hundred letters at most");
    }
    answer(server, move |looker| looker.change(&letters, to)).await
}

/// Answers with what `work` finds, on a thread that may wait for the place. A caller who hangs up
/// before its turn leaves no work.
async fn answer(
    server: Server,
    work: impl FnOnce(&mut Looker) -> Result<Value, Failure> + Send + 'static,
) -> Response {
    let mut looker = server.looker.lock_owned().await;
    match tokio::task::spawn_blocking(move || work(&mut looker)).await {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(failure)) => refuse(StatusCode::BAD_GATEWAY, &failure.to_string()),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn refuse(code: StatusCode, why: &str) -> Response {
    (code, Json(json!({ "error": why }))).into_response()
}

/// How long callers have to end once it is interrupted, and then a look that is under way.
const GRACE: Duration = Duration::from_secs(2);
