//! Who may see the page: whoever is on this machine, or has the token.

use std::fs;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Manner, refuse};
use crate::failure::Failure;

pub(super) struct Guard {
    token: Option<String>,
}

impl Guard {
    /// Reads the token. Without one, refuses to listen where other machines reach it.
    pub(super) fn new(manner: &Manner) -> Result<Self, Failure> {
        let Some(path) = &manner.token_file else {
            if manner.listen.ip().is_loopback() {
                return Ok(Self { token: None });
            }
            return Err(Failure::Input(format!(
                "other machines may reach {}: expected --token-file with a secret that callers must \
                 know",
                manner.listen
            )));
        };
        let in_words = |why: &str| Failure::Input(format!("{}: {why}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| in_words(&error.to_string()))?;
        let token = text.trim();
        let is_plain =
            token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if token.len() < LEAST || !is_plain {
            return Err(in_words("expected a token of 16 or more letters, digits, - and _"));
        }
        Ok(Self { token: Some(token.to_owned()) })
    }

    fn is(&self, given: Option<&str>) -> bool {
        let (Some(token), Some(given)) = (&self.token, given) else { return false };
        // It takes as long wherever they begin to differ.
        let differ = |(one, other): (u8, u8)| one ^ other;
        token.len() == given.len()
            && token.bytes().zip(given.bytes()).map(differ).fold(0, |all, it| all | it) == 0
    }
}

/// Lets a request through that may see the page. Nothing on another page can send one: not by a name
/// of its own for this address, because the name is looked at, and not from a form.
pub(super) async fn check(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let host = text(headers, header::HOST);
    let name = format!("tickwheel_token_{}", host.map_or("", |host| name_and_port(host).1));
    // Before it there may be TLS, and then the page has another address. The browser knows.
    let is_own = |origin: &str| {
        host.is_some_and(|host| origin == format!("http://{host}"))
            || text(headers, SEC_FETCH_SITE) == Some("same-origin")
    };
    let mut response = if text(headers, header::ORIGIN).is_some_and(|origin| !is_own(origin)) {
        refuse(StatusCode::FORBIDDEN, "another page asks: expected one of this server")
    } else if guard.token.is_none() {
        if host.is_some_and(is_local) {
            next.run(request).await
        } else {
            refuse(
                StatusCode::FORBIDDEN,
                "expected an address of this machine, as 127.0.0.1 or localhost",
            )
        }
    } else if guard.is(bearer(headers)) || guard.is(cookie(headers, &name)) {
        next.run(request).await
    } else if let Some(given) = of_query(request.uri()).filter(|given| guard.is(Some(given))) {
        // From here on the browser knows it, and no address shows it.
        let cookie = format!("{name}={given}; HttpOnly; SameSite=Strict; Path=/");
        let to = [(header::SET_COOKIE, cookie), (header::LOCATION, "/".to_owned())];
        (StatusCode::SEE_OTHER, to).into_response()
    } else {
        refuse(StatusCode::UNAUTHORIZED, "expected the token, as in /?token=... or as a bearer")
    };
    for (name, value) in ALWAYS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Returns whether the name, with a port or not, is one that no other machine can have.
fn is_local(host: &str) -> bool {
    let (name, _) = name_and_port(host);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// Returns an empty port if the host has none.
fn name_and_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    text(headers, header::AUTHORIZATION)?.strip_prefix("Bearer ")
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = text(headers, header::COOKIE)?;
    all.split("; ").find_map(|one| one.strip_prefix(name)?.strip_prefix('='))
}

fn of_query(uri: &Uri) -> Option<String> {
    uri.query()?.split('&').find_map(|one| one.strip_prefix("token=")).map(str::to_owned)
}

/// The shortest token.
const LEAST: usize = 16;
const SEC_FETCH_SITE: header::HeaderName = header::HeaderName::from_static("sec-fetch-site");

/// The page asks nobody but this server, and nobody keeps what it shows.
const ALWAYS: [(header::HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'self'; img-src data:; frame-ancestors 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];
