//! Connecting by a URL: its parameters, and TLS.

use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_channel::oneshot;
use tokio::time::Instant;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Socket};

use crate::Error;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<(Client, Guard), Failure>> + Send>>;

/// Lets a connection end when it is dropped.
pub(super) struct Guard {
    _drops: oneshot::Sender<()>,
    in_doubt: Arc<AtomicBool>,
}

impl Guard {
    /// Returns whether a commit since the last look did not wait for its standby to the end:
    /// somebody has cancelled it. Then it is on this server, and maybe on no other.
    pub(super) fn takes_doubt(&self) -> bool {
        self.in_doubt.swap(false, Ordering::Relaxed)
    }
}

/// Makes a connection within a limit; called again after each error.
pub(super) type Connect = Arc<dyn Fn(Duration) -> Connecting + Send + Sync>;

/// A database.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) connect: Connect,
    /// The schema of the tables, if the search path does not say it.
    pub(super) namespace: Option<String>,
    /// What to call it: without user and password.
    pub(super) name: String,
}

impl Place {
    pub(super) fn new(config: &Config, connect: Connect, namespace: Option<String>) -> Self {
        let ports = config.get_ports();
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        let each = (0..hosts.len().max(addresses.len())).map(|at| {
            let host = match hosts.get(at) {
                Some(Host::Tcp(host)) => host.clone(),
                #[cfg(unix)]
                Some(Host::Unix(path)) => path.display().to_string(),
                None => addresses.get(at).map_or_else(String::new, ToString::to_string),
            };
            let port = ports.get(at).or_else(|| ports.first());
            port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
        });
        let hosts = each.collect::<Vec<_>>().join(",");
        let database = config.get_dbname().or_else(|| config.get_user()).unwrap_or_default();
        let namespace_of = namespace.as_ref().map(|it| format!("?namespace={it}"));
        let name = format!("{hosts}/{database}{}", namespace_of.unwrap_or_default());
        Self { connect, namespace, name }
    }
}

/// Returns how to connect by this configuration. What the connection does runs as a task of the
/// runtime that connects, until its client is dropped.
///
/// Of several hosts each has its part of the limit, because one may accept and then be silent; the
/// last part is for what the connection is made for. The first is the one after that which was
/// tried last, because a connection is made anew when that one failed. Of several addresses of a
/// host each has its part too.
pub(super) fn by_config<T>(config: Config, tls: T) -> Connect
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
{
    let hosts: Arc<[Config]> = by_host(config).into();
    let first = match hosts[0].get_load_balance_hosts() {
        LoadBalanceHosts::Random => RandomState::new().hash_one(0) as usize % hosts.len(),
        _ => 0,
    };
    let next = Arc::new(AtomicUsize::new(first));
    Arc::new(move |limit| {
        let (hosts, next, tls) = (Arc::clone(&hosts), Arc::clone(&next), tls.clone());
        Box::pin(async move {
            let limit = match hosts.len() {
                1 => limit,
                several => limit / (several as u32 + 1),
            };
            let mut failure = Failure::from("no host");
            for _ in 0..hosts.len() {
                let host = next.load(Ordering::Relaxed);
                next.store((host + 1) % hosts.len(), Ordering::Relaxed);
                let config = for_each_address(&hosts[host], limit);
                let connecting = config.connect(tls.clone());
                match tokio::time::timeout(limit, connecting).await {
                    Ok(Ok((client, connection))) => {
                        let (drops, dropped) = oneshot::channel();
                        let in_doubt = Arc::new(AtomicBool::new(false));
                        let (token, tls) = (client.cancel_token(), tls.clone());
                        let cancel = async move {
                            let _ = token.cancel_query(tls).await;
                        };
                        tokio::spawn(until_dropped(connection, dropped, in_doubt.clone(), cancel));
                        return Ok((client, Guard { _drops: drops, in_doubt }));
                    }
                    Ok(Err(error)) => failure = error.into(),
                    Err(_) => failure = format!("no answer within {limit:?}").into(),
                }
            }
            Err(failure)
        })
    })
}

/// Drives a connection until it ends, or until a moment after the guard is dropped: it would else
/// wait without end for an answer that nobody wants any more. So would the server, for a standby and
/// with its locks: it is told to cancel what it still does.
async fn until_dropped<S: TlsStream + Unpin>(
    mut connection: tokio_postgres::Connection<Socket, S>,
    dropped: oneshot::Receiver<()>,
    in_doubt: Arc<AtomicBool>,
    cancel: impl Future<Output = ()>,
) {
    let dropped = async {
        let _ = dropped.await;
        let end = Instant::now() + GOODBYE;
        let _ = tokio::time::timeout_at(end, cancel).await;
        tokio::time::sleep_until(end).await;
    };
    let mut dropped = pin!(dropped);
    poll_fn(|context| {
        loop {
            match connection.poll_message(context) {
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                    log::info!("the database says: {notice}");
                    // Its words are in the language of the server.
                    if notice.routine() == Some("SyncRepWaitForLSN") {
                        in_doubt.store(true, Ordering::Relaxed);
                    }
                }
                Poll::Ready(Some(Ok(_))) => {}
                // Each call tells the error that it met.
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending => return dropped.as_mut().poll(context),
            }
        }
    })
    .await;
}

/// Limits the time for each address of a host: the first may swallow packets.
fn for_each_address(config: &Config, limit: Duration) -> Config {
    let mut config = config.clone();
    let part = limit / 3;
    config.connect_timeout(config.get_connect_timeout().map_or(part, |&time| part.min(time)));
    config
}

/// Returns a configuration for each host.
fn by_host(config: Config) -> Vec<Config> {
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let ports = config.get_ports();
    let count = hosts.len().max(addresses.len());
    let fits = |length: usize, least: usize| length <= least || length == count;
    if count < 2 || !fits(hosts.len(), 0) || !fits(addresses.len(), 0) || !fits(ports.len(), 1) {
        // One host, or what the driver refuses.
        return vec![config];
    }
    let one = |at: usize| {
        let mut one = without_hosts(&config);
        match hosts.get(at) {
            Some(Host::Tcp(host)) => drop(one.host(host)),
            #[cfg(unix)]
            Some(Host::Unix(path)) => drop(one.host_path(path)),
            None => {}
        }
        if let Some(&address) = addresses.get(at) {
            one.hostaddr(address);
        }
        if let Some(&port) = ports.get(at).or_else(|| ports.first()) {
            one.port(port);
        }
        one
    };
    (0..count).map(one).collect()
}

/// Copies all else: the driver has no way to take a host out.
fn without_hosts(config: &Config) -> Config {
    let mut copy = Config::new();
    config.get_user().map(|user| copy.user(user));
    config.get_password().map(|password| copy.password(password));
    config.get_dbname().map(|name| copy.dbname(name));
    config.get_options().map(|options| copy.options(options));
    config.get_application_name().map(|name| copy.application_name(name));
    config.get_connect_timeout().map(|&timeout| copy.connect_timeout(timeout));
    config.get_tcp_user_timeout().map(|&timeout| copy.tcp_user_timeout(timeout));
    config.get_keepalives_interval().map(|interval| copy.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| copy.keepalives_retries(retries));
    copy.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    copy
}

/// What the parameters say and the driver does not know.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ours {
    mode: Option<String>,
    root: Option<String>,
    namespace: Option<String>,
}

/// Returns the database at a URL.
pub(super) fn by_url(url: &str) -> Result<Place, Error> {
    let (config, Ours { mode, root, namespace }) = parameters(url)?;
    let connect = match mode.as_deref() {
        Some("disable") => by_config(config.clone(), NoTls),
        mode => with_tls(config.clone(), mode.unwrap_or("prefer"), root.as_deref())?,
    };
    Ok(Place::new(&config, connect, namespace))
}

/// Reads a URL, or `key=value` words: how to connect, and what is ours, with the mode of TLS.
fn parameters(url: &str) -> Result<(Config, Ours), Error> {
    let doing = "read the URL of the database";
    let (url, ours) = take_ours(url);
    let is_letter = |it: char| it.is_ascii_lowercase() || it == '_';
    let is_name = |name: &str| {
        name.starts_with(is_letter)
            && name.chars().all(|it| is_letter(it) || it.is_ascii_digit())
            && name.len() <= LONGEST_NAMESPACE
            && !name.starts_with("pg_")
    };
    if ours.namespace.as_deref().is_some_and(|name| !is_name(name)) {
        let right = "`namespace` must be of letters in lower case, digits and _, up to 63, and must \
                     begin with no digit and not with pg_";
        return Err(Error::store(doing, right));
    }
    let mut config: Config = url.parse().map_err(|error| Error::store(doing, error))?;
    // TLS asks whether the certificate is for a host: without a name its address is one.
    if config.get_hosts().is_empty() {
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
    // Of several hosts the one that can be written to.
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any
    {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if config.get_application_name().is_none() {
        config.application_name("tickwheel-durable");
    }
    // What was not found there the driver may have understood.
    let mode = ours.mode.clone().unwrap_or_else(|| {
        let mode = match config.get_ssl_mode() {
            SslMode::Disable => "disable",
            SslMode::Require => "require",
            _ => "prefer",
        };
        mode.to_owned()
    });
    config.ssl_mode(match &*mode {
        "disable" => SslMode::Disable,
        "prefer" => SslMode::Prefer,
        "require" | "verify-ca" | "verify-full" => SslMode::Require,
        _ => {
            let right = "`sslmode` must be disable, prefer, require, verify-ca or verify-full";
            return Err(Error::store(doing, right));
        }
    });
    Ok((config, Ours { mode: Some(mode), ..ours }))
}

#[cfg(feature = "tls")]
fn with_tls(config: Config, mode: &str, root: Option<&str>) -> Result<Connect, Error> {
    let config_of_tls = super::tls::config(mode, root)?;
    let connector = tokio_postgres_rustls::MakeRustlsConnect::new(config_of_tls);
    Ok(by_config(config, connector))
}

#[cfg(not(feature = "tls"))]
fn with_tls(config: Config, mode: &str, root: Option<&str>) -> Result<Connect, Error> {
    if mode != "prefer" || root.is_some() {
        return Err(Error::store(
            "connect to the database with TLS",
            "this program was built without the feature `tls` of tickwheel-durable",
        ));
    }
    Ok(by_config(config, NoTls))
}

/// Takes the parameters `sslmode`, `sslrootcert` and `namespace` out of a URL, or out of `key=value`
/// words.
fn take_ours(url: &str) -> (String, Ours) {
    let mut ours = Ours::default();
    let mut is_other = |key: &str, value: String| {
        match key {
            "sslmode" => ours.mode = Some(value),
            "sslrootcert" => ours.root = Some(value),
            "namespace" => ours.namespace = Some(value),
            _ => return true,
        }
        false
    };
    // As the driver tells them apart.
    let rest = if !["postgres://", "postgresql://"].iter().any(|it| url.starts_with(it)) {
        let (mut others, mut left) = (String::new(), url);
        while let Some((key, value, rest)) = take_word(left) {
            if is_other(key, value) {
                others.push_str(&left[..left.len() - rest.len()]);
            }
            left = rest;
        }
        others + left
    } else if let Some((address, parameters)) = url.split_once('?') {
        let is_other = |parameter: &&str| {
            parameter.split_once('=').is_none_or(|(key, value)| is_other(key, decode(value)))
        };
        let parameters: Vec<&str> = parameters.split('&').filter(is_other).collect();
        let mark = if parameters.is_empty() { "" } else { "?" };
        format!("{address}{mark}{}", parameters.join("&"))
    } else {
        url.to_owned()
    };
    (rest, ours)
}

/// Takes the first of `key=value` words, with blanks around each part and a value that may be in
/// quotes, and returns what is left. `None`: there is none, or the driver refuses it.
fn take_word(text: &str) -> Option<(&str, String, &str)> {
    let (key, rest) = text.split_once('=')?;
    let rest = rest.trim_start();
    let is_quoted = rest.starts_with('\'');
    let mut value = String::new();
    let mut characters = rest.char_indices().skip(usize::from(is_quoted));
    let end = loop {
        match characters.next() {
            None if is_quoted => return None,
            None => break rest.len(),
            Some((at, '\'')) if is_quoted => break at + 1,
            Some((at, it)) if !is_quoted && it.is_whitespace() => break at,
            Some((_, '\\')) => value.extend(characters.next().map(|(_, it)| it)),
            Some((_, it)) => value.push(it),
        }
    };
    Some((key.trim(), value, &rest[end..]))
}

/// Decodes `%20` and the like.
fn decode(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How long a connection has to tell the server that it ends.
pub(super) const GOODBYE: Duration = Duration::from_secs(1);

/// The server cuts longer names off.
const LONGEST_NAMESPACE: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_tls_are_taken_out_and_all_others_stay() {
        let tls = |mode: Option<&str>, root: Option<&str>| Ours {
            mode: mode.map(str::to_owned),
            root: root.map(str::to_owned),
            namespace: None,
        };
        for (url, rest, expected) in [
            ("postgresql://u@h/d", "postgresql://u@h/d", tls(None, None)),
            (
                "postgresql://u@h/d?sslmode=require",
                "postgresql://u@h/d",
                tls(Some("require"), None),
            ),
            (
                "postgresql://u@h/d?a=1&sslrootcert=%2Fmy%20ca.pem&sslmode=verify-full&b=2",
                "postgresql://u@h/d?a=1&b=2",
                tls(Some("verify-full"), Some("/my ca.pem")),
            ),
            ("host=h sslmode=disable user=u", "host=h user=u", tls(Some("disable"), None)),
            ("host=h  password='a  b'", "host=h  password='a  b'", tls(None, None)),
            (
                "host=h sslmode = 'verify-full'  password = 'a  \\' b://' sslrootcert=/my\\ ca",
                "host=h  password = 'a  \\' b://'",
                tls(Some("verify-full"), Some("/my ca")),
            ),
            ("password=a://b sslmode\t=\nrequire", "password=a://b", tls(Some("require"), None)),
            ("host=h password='sslmode = a", "host=h password='sslmode = a", tls(None, None)),
        ] {
            assert_eq!(take_ours(url), (rest.to_owned(), expected), "{url}");
        }
    }

    #[test]
    fn a_mode_in_a_place_of_which_only_the_driver_knows_is_not_forgotten() {
        for (url, mode) in [
            ("postgresql://u:a?b@h/d?sslmode=require", SslMode::Require),
            ("postgresql://u@h/d?ssl%6Dode=require", SslMode::Require),
            ("postgresql://u@h/d?ssl%6Dode=disable", SslMode::Disable),
            ("postgresql://u@h/d", SslMode::Prefer),
            ("host=h user=u sslmode = require", SslMode::Require),
        ] {
            assert_eq!(parameters(url).unwrap().0.get_ssl_mode(), mode, "{url}");
        }
    }

    #[test]
    fn each_address_of_a_host_has_a_part_of_the_limit() {
        let limit = Duration::from_secs(3);
        let part = |url: &str| {
            let config = for_each_address(&parameters(url).unwrap().0, limit);
            config.get_connect_timeout().copied().unwrap()
        };
        assert_eq!(part("postgresql://u@h/d"), limit / 3);
        assert_eq!(part("postgresql://u@h/d?connect_timeout=2"), limit / 3);
        assert_eq!(part("postgresql://u@h/d?connect_timeout=1"), limit / 3);
        assert_eq!(
            for_each_address(&parameters("host=h connect_timeout=1").unwrap().0, limit * 9)
                .get_connect_timeout(),
            Some(&Duration::from_secs(1))
        );
    }

    #[test]
    fn a_namespace_is_taken_out_and_one_that_needs_quotes_is_refused() {
        for url in ["postgresql://u@h/d?namespace=emails_2", "host=h namespace = emails_2"] {
            assert_eq!(parameters(url).unwrap().1.namespace.as_deref(), Some("emails_2"), "{url}");
        }
        let long = "a".repeat(64);
        for name in ["", "2", "Emails", "a-b", "a'", "a%20b", "pg_catalog", &long] {
            let error = parameters(&format!("postgresql://u@h/d?namespace={name}")).unwrap_err();
            assert!(error.to_string().contains("`namespace` must be"), "{error}");
        }
        // It is not where it is looked for. Forgotten, the worker would be another's.
        assert!(parameters("postgresql://u:a?b@h/d?namespace=emails").is_err());
    }

    #[test]
    fn a_place_is_told_by_hosts_and_database_and_not_by_user_and_password() {
        for (url, name) in [
            ("postgresql://u:secret@h:5433/d", "h:5433/d"),
            ("postgresql://u:secret@h/d?namespace=emails", "h:5432/d?namespace=emails"),
            ("postgresql://u@a:1,b:2/d", "a:1,b:2/d"),
            ("host=/run/postgresql user=u", "/run/postgresql/u"),
            ("hostaddr=127.0.0.1 port=5 dbname=d password=secret", "127.0.0.1:5/d"),
        ] {
            assert_eq!(by_url(url).unwrap().name, name, "{url}");
        }
    }

    #[test]
    fn a_mode_that_does_not_exist_is_refused_with_those_that_do() {
        let Err(error) = by_url("postgresql://u@h/d?sslmode=maybe") else { panic!("refused") };
        assert!(error.to_string().contains("verify-full"), "{error}");
    }
}
