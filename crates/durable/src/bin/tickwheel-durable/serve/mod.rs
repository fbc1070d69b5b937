//! Serves a page that shows a file, a database or the databases of a fleet: what is pending, workers,
//! dead letters.
//!
//! However many look at it, each place is read once a second at most, and each look reads so much at
//! most, however much is pending. Of several, one that does not answer holds up no other.

mod callers;
mod fleet;
mod guard;
mod look;
mod shown;

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
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
use tokio::task::JoinSet;

use super::failure::Failure;
use super::place::{Opened, Place};
use fleet::Suspects;
use guard::Guard;
use look::{LETTERS_AT_ONCE, Looker, Part};
use shown::Shown;

/// What the page may do, and for whom.
pub(super) struct Manner {
    pub(super) listen: SocketAddr,
    /// Whether it may retry and drop dead letters.
    pub(super) changes: bool,
    pub(super) token_file: Option<PathBuf>,
}

#[derive(Clone)]
struct Server {
    places: Arc<[Shown]>,
    suspects: Arc<Mutex<Suspects>>,
    changes: bool,
}

/// Serves until it is interrupted.
pub(super) fn serve(
    places: &[Place],
    manner: &Manner,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let guard = Guard::new(manner)?;
    let has_others = 1 < places.len();
    let shown = places.iter().zip(open(places)?).map(|(place, opened)| {
        Shown::new(place.to_string(), has_others, Looker::new(place.clone(), opened))
    });
    let names: Vec<String> = places.iter().map(Place::to_string).collect();
    let names = names.join(" and ");
    let server =
        Server { places: shown.collect(), suspects: Arc::default(), changes: manner.changes };
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
        let are = if has_others { "are" } else { "is" };
        writeln!(output, "{names} {are} shown at http://{address}/ ({may}). Ctrl-C ends it.")?;
        output.flush()?;
        callers::serve(listener, app, interrupted(), GRACE).await;
        Ok(())
    });
    runtime.shutdown_timeout(GRACE);
    served
}

/// Opens all that answer. Of several, each must be a database of its own.
fn open(places: &[Place]) -> Result<Vec<Option<Opened>>, Failure> {
    for (number, place) in places.iter().enumerate() {
        let why = match place {
            Place::File(_) if 1 < places.len() => {
                format!("{place} is a file: expected one file, or the URLs of databases alone")
            }
            _ if places[..number].contains(place) => {
                format!("{place} stands there twice: expected each database once")
            }
            _ => continue,
        };
        return Err(Failure::Input(why));
    }
    let opened: Vec<_> = thread::scope(|scope| {
        let opening = places.iter().map(|place| scope.spawn(|| place.open()));
        let opening: Vec<_> = opening.collect();
        opening.into_iter().map(|thread| thread.join().expect("nothing panics there")).collect()
    });
    if opened.iter().all(Result::is_err) {
        // Then it is the arguments, rather than a database that is down.
        let failures = places.iter().zip(opened).filter_map(|(place, opened)| {
            let failure = opened.err()?;
            Some(if places.len() == 1 {
                failure.to_string()
            } else {
                format!("{place}: {failure}")
            })
        });
        return Err(Failure::Input(failures.collect::<Vec<_>>().join("; ")));
    }
    let opened: Vec<Option<Opened>> = opened.into_iter().map(Result::ok).collect();
    #[cfg(feature = "postgres")]
    let opened = each_once(places, opened)?;
    Ok(opened)
}

/// Refuses a database that is there under two names.
#[cfg(feature = "postgres")]
fn each_once(
    places: &[Place],
    mut opened: Vec<Option<Opened>>,
) -> Result<Vec<Option<Opened>>, Failure> {
    let homes = places
        .iter()
        .zip(&mut opened)
        .filter_map(|(place, opened)| Some((place.to_string(), opened.as_mut()?.homes().ok()??)));
    let homes: Vec<_> = homes.collect();
    let homes: Vec<_> = homes.iter().map(|(name, homes)| (name.clone(), homes)).collect();
    crate::fleet::refuse_twice(&homes)?;
    Ok(opened)
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

/// Which part of a list: a prefix, and the place after which it begins. Or which database.
type Words = Query<HashMap<String, String>>;

async fn state(State(server): Shared) -> Response {
    let seen = each(&server, |place| async move { place.seen().await }).await;
    let mut state = match &seen[..] {
        [one] => {
            let mut state = one.sight.as_ref().map_or_else(|| json!({}), look::Sight::json);
            state["place"] = json!(one.name);
            if let Some(error) = &one.error {
                state["error"] = json!(error);
            }
            state
        }
        several => {
            let suspects = server.suspects.lock();
            fleet::state(several, &mut suspects.unwrap_or_else(PoisonError::into_inner))
        }
    };
    state["changes"] = json!(server.changes);
    Json(state).into_response()
}

async fn pending(State(server): Shared, Query(part): Words) -> Response {
    let Ok(deadline) = part.get("after_ms").map_or(Ok(0), |text| text.parse()) else {
        return refuse(StatusCode::BAD_REQUEST, "after_ms: expected milliseconds since 1970");
    };
    let after = Position { deadline, name: word(&part, "after").into() };
    let read = move |looker: &mut Looker| looker.pending(after, word(&part, "prefix"));
    list(&server, read, |end| json!({ "after_ms": end.deadline.to_string(), "after": &*end.name }))
        .await
}

async fn dead(State(server): Shared, Query(part): Words) -> Response {
    let read = move |looker: &mut Looker| looker.dead(word(&part, "prefix"), word(&part, "after"));
    list(&server, read, |end| json!({ "after": &**end })).await
}

/// Answers with a part of one list of all places, and with those that could not be read.
async fn list<P: Ord + Clone + Send + 'static>(
    server: &Server,
    read: impl FnOnce(&mut Looker) -> Result<Part<P>, Failure> + Clone + Send + 'static,
    next: fn(&P) -> Value,
) -> Response {
    let has_others = 1 < server.places.len();
    let answers = each(server, |place| {
        let read = read.clone();
        async move { place.list(read).await }
    })
    .await;
    let (mut parts, mut unread) = (Vec::new(), Vec::new());
    for (number, (answer, place)) in answers.into_iter().zip(&*server.places).enumerate() {
        match answer {
            Ok(mut part) if has_others => {
                for (_, row) in &mut part.rows {
                    row["database"] = json!(place.name);
                    row["number"] = json!(number);
                }
                parts.push(part);
            }
            Ok(part) => parts.push(part),
            Err(why) if has_others => unread.push(format!("{}: {why}", place.name)),
            Err(why) => unread.push(why),
        }
    }
    if parts.is_empty() {
        return refuse(StatusCode::BAD_GATEWAY, &unread.join("; "));
    }
    let Part { rows, end } = fleet::merge(parts);
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    let next = end.as_ref().map(next);
    Json(json!({ "rows": rows, "next": next, "unread": unread })).into_response()
}

/// Asks all places at once, and returns their answers in order. A caller who hangs up leaves no
/// question.
async fn each<R: Send + 'static, F: Future<Output = R> + Send + 'static>(
    server: &Server,
    ask: impl Fn(Shown) -> F,
) -> Vec<R> {
    let mut asked = JoinSet::new();
    for (number, place) in server.places.iter().cloned().enumerate() {
        let answer = ask(place);
        asked.spawn(async move { (number, answer.await) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn word<'a>(part: &'a HashMap<String, String>, name: &str) -> &'a str {
    part.get(name).map_or("", String::as_str)
}

/// Dead letters as they were shown: their names, and when they died.
type Letters = Json<Vec<(String, u64)>>;

async fn retry(State(server): Shared, Query(words): Words, letters: Letters) -> Response {
    change(server, &words, letters, Change::revive).await
}

async fn drop_dead(State(server): Shared, Query(words): Words, letters: Letters) -> Response {
    change(server, &words, letters, |name, _| Change::drop_dead(name)).await
}

async fn change(
    server: Server,
    words: &HashMap<String, String>,
    Json(letters): Letters,
    to: fn(&str, u64) -> Change,
) -> Response {
    if !server.changes {
        let why = "this page is read only: it was not started with --changes";
        return refuse(StatusCode::FORBIDDEN, why);
    }
    if LETTERS_AT_ONCE < letters.len() {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "expected a hundred letters at most");
    }
    let number = words.get("database").map_or(Ok(0), |text| text.parse());
    let Some(place) = number.ok().and_then(|number: usize| server.places.get(number)) else {
        return refuse(StatusCode::BAD_REQUEST, "database: expected the number of one, from 0");
    };
    match place.change(move |looker| looker.change(&letters, to)).await {
        Ok(Ok(told)) => Json(told).into_response(),
        Ok(Err(failure)) => refuse(StatusCode::BAD_GATEWAY, &failure.to_string()),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn refuse(code: StatusCode, why: &str) -> Response {
    (code, Json(json!({ "error": why }))).into_response()
}

/// How long callers have to end once it is interrupted, and then a look that is under way.
const GRACE: Duration = Duration::from_secs(2);
