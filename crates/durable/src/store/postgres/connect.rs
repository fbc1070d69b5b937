//! Connecting by a URL: its parameters, and TLS.

use std::time::Duration;

use std::pin::Pin;
use std::sync::Arc;

use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, Socket};

use crate::Error;

type Connecting = Pin<Box<dyn Future<Output = Result<Client, tokio_postgres::Error>> + Send>>;

/// Makes a connection; called again after each error.
pub(super) type Connect = Arc<dyn Fn() -> Connecting + Send + Sync>;

/// Returns how to connect by this configuration. What the connection does runs as a task of the
/// runtime that connects, until its client is dropped.
pub(super) fn by_config<T>(config: Config, tls: T) -> Connect
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
{
    Arc::new(move || {
        let (config, tls) = (config.clone(), tls.clone());
        Box::pin(async move {
            let (client, connection) = config.connect(tls).await?;
            tokio::spawn(async move {
                // Each call tells the error that it met.
                let _ = connection.await;
            });
            Ok(client)
        })
    })
}

/// What the parameters say of TLS and the driver does not know.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tls {
    mode: Option<String>,
    root: Option<String>,
}

pub(super) fn by_url(url: &str) -> Result<Connect, Error> {
    let doing = "read the URL of the database";
    let (url, tls) = take_tls(url);
    let mut config: Config = url.parse().map_err(|error| Error::store(doing, error))?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    // Of several hosts the one that can be written to.
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any
    {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if config.get_application_name().is_none() {
        config.application_name("tickwheel-durable");
    }
    let mode = tls.mode.as_deref().unwrap_or("prefer");
    config.ssl_mode(match mode {
        "disable" => SslMode::Disable,
        "prefer" => SslMode::Prefer,
        "require" | "verify-ca" | "verify-full" => SslMode::Require,
        _ => {
            let right = "`sslmode` must be disable, prefer, require, verify-ca or verify-full";
            return Err(Error::store(doing, right));
        }
    });
    if mode == "disable" {
        return Ok(by_config(config, NoTls));
    }
    with_tls(config, mode, tls.root.as_deref())
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

/// Takes the parameters `sslmode` and `sslrootcert` out of a URL, or out of `key=value` words.
fn take_tls(url: &str) -> (String, Tls) {
    let mut tls = Tls::default();
    let mut is_other = |parameter: &&str| {
        match parameter.split_once('=') {
            Some(("sslmode", mode)) => tls.mode = Some(mode.to_owned()),
            Some(("sslrootcert", root)) => tls.root = Some(decode(root)),
            _ => return true,
        }
        false
    };
    let rest = if !url.contains("://") {
        let words: Vec<&str> = url.split_whitespace().filter(&mut is_other).collect();
        // What is between quotes may have several blanks.
        if words.len() == url.split_whitespace().count() { url.to_owned() } else { words.join(" ") }
    } else if let Some((address, parameters)) = url.split_once('?') {
        let parameters: Vec<&str> = parameters.split('&').filter(&mut is_other).collect();
        let mark = if parameters.is_empty() { "" } else { "?" };
        format!("{address}{mark}{}", parameters.join("&"))
    } else {
        url.to_owned()
    };
    (rest, tls)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_tls_are_taken_out_and_all_others_stay() {
        let tls = |mode: Option<&str>, root: Option<&str>| Tls {
            mode: mode.map(str::to_owned),
            root: root.map(str::to_owned),
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
        ] {
            assert_eq!(take_tls(url), (rest.to_owned(), expected), "{url}");
        }
    }

    #[test]
    fn a_mode_that_does_not_exist_is_refused_with_those_that_do() {
        let Err(error) = by_url("postgresql://u@h/d?sslmode=maybe") else { panic!("refused") };
        assert!(error.to_string().contains("verify-full"), "{error}");
    }
}
