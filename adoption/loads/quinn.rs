//! Short exchanges on streams of a few connections over the loopback: a timer moves with each
//! packet. Prints the CPU time in seconds.

use cpu_time::ProcessTime;
use quinn::{ClientConfig, Endpoint, ServerConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let certificate = CertificateDer::from(certified.cert);
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    let server = Endpoint::server(config, here)?;
    let address = server.local_addr()?;
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            tokio::spawn(async move {
                let connection = incoming.await?;
                while let Ok((mut to, mut from)) = connection.accept_bi().await {
                    let question = from.read_to_end(1_000).await?;
                    to.write_all(&question).await?;
                    to.finish()?;
                }
                Ok::<_, Failure>(())
            });
        }
    });

    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut client = Endpoint::client(here)?;
    client.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
    let start = ProcessTime::now();
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = client.connect(address, "localhost")?.await?;
        tasks.push(tokio::spawn(async move {
            for _ in 0..EXCHANGES {
                let (mut to, mut from) = connection.open_bi().await?;
                to.write_all(&[7; 100]).await?;
                to.finish()?;
                assert_eq!(from.read_to_end(1_000).await?.len(), 100);
            }
            Ok::<_, Failure>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    println!("{:.3}", start.elapsed().as_secs_f64());
    Ok(())
}

const CONNECTIONS: usize = 32;
const EXCHANGES: usize = 1_500;
