//! What `sslmode` and `sslrootcert` say of the database's certificate, as libpq reads them.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::Error;

type Result<T> = core::result::Result<T, rustls::Error>;

/// Returns how to speak TLS with a database.
pub(super) fn config(mode: &str, root: Option<&str>) -> core::result::Result<ClientConfig, Error> {
    let failed = |error: rustls::Error| Error::store("set up TLS", error);
    let provider = Arc::new(ring::default_provider());
    // As libpq does: `require` encrypts, and looks at the certificate only if it is told by what.
    let issued_by = match mode {
        "prefer" => None,
        "require" if root.is_none() => None,
        _ => {
            let roots = Arc::new(roots(root)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
            Some(verifier.build().map_err(|error| Error::store("set up TLS", error))?)
        }
    };
    let verifier =
        Verifier { issued_by, is_name_checked: mode == "verify-full", provider: provider.clone() };
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(builder.with_no_client_auth())
}

/// Returns the certificates that a database's is to be issued by.
fn roots(file: Option<&str>) -> core::result::Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let doing = || format!("read the certificates in {file}");
    let all = CertificateDer::pem_file_iter(file).map_err(|error| Error::store(doing(), error))?;
    for certificate in all {
        let certificate = certificate.map_err(|error| Error::store(doing(), error))?;
        roots.add(certificate).map_err(|error| Error::store(doing(), error))?;
    }
    if roots.is_empty() {
        return Err(Error::store(doing(), "there is none: expected PEM"));
    }
    Ok(roots)
}

/// Looks at a certificate as closely as the mode says.
#[derive(Debug)]
struct Verifier {
    /// None if any certificate is good.
    issued_by: Option<Arc<WebPkiServerVerifier>>,
    is_name_checked: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified> {
        let Some(issued_by) = &self.issued_by else { return Ok(ServerCertVerified::assertion()) };
        match issued_by.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is the last thing that is looked at.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.is_name_checked => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
