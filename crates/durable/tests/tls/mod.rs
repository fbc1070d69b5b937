//! A server that takes connections with TLS only.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::server::Server;

/// Makes the server so, and returns the file with its certificate, which is for `localhost`.
pub(crate) fn secure(server: &Server) -> PathBuf {
    let certificate = server.data().join("server.crt");
    let key = server.data().join("server.key");
    let status = Command::new("openssl")
        .args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split(' '))
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status()
        .expect("openssl is installed");
    assert!(status.success(), "openssl: {status}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    if let Some((user, group)) = server.user {
        chown(&key, Some(user), Some(group)).unwrap();
    }
    let rules = server.data().join("pg_hba.conf");
    let secured = fs::read_to_string(&rules).unwrap().replace("\nhost ", "\nhostssl ");
    fs::write(rules, secured).unwrap();
    let settings = server.data().join("postgresql.conf");
    let secured = fs::read_to_string(&settings).unwrap() + "\nssl = on\n";
    fs::write(settings, secured).unwrap();
    server.stop("fast");
    server.go();
    certificate
}
