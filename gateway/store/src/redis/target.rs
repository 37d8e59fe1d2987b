//! Where to connect and how, checked once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisConnectionInfo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use super::RedisConfig;
use crate::{Certainty, Error, ErrorKind};

/// A [`RedisConfig`] that makes sense. `Display` is safe to log: host and port only.
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<Tls>,
    pub(super) login: RedisConnectionInfo,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) allow_eviction: bool,
}

pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl Target {
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Error> {
        let url = redis::parse_redis_url(&config.url)
            .ok_or_else(|| wrong("its URL is not of the form redis://host:port/database"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong(
                "its URL holds a user name or password; they have settings of their own, since \
                 URLs end up in logs",
            ));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("its URL names no host"))?;
        // The brackets of an IPv6 address belong to the URL only.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match url.scheme() {
            "redis" if config.ca_pem.is_some() => {
                return Err(wrong("it has a CA but no TLS; write rediss:// for TLS"));
            }
            "redis" => None,
            "rediss" => Some(tls(&host, config.ca_pem.as_deref())?),
            other => return Err(wrong(&format!("its URL begins with {other}://"))),
        };
        if config.timeout.is_zero() || config.connect_timeout.is_zero() {
            return Err(wrong("a time-out is zero"));
        }
        Ok(Self {
            host,
            port: url.port().unwrap_or(6379),
            tls,
            login: login(config, database(url.path())?)?,
            timeout: config.timeout,
            connect_timeout: config.connect_timeout,
            allow_eviction: config.allow_eviction,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis at {}:{}", self.host, self.port)
    }
}

fn database(path: &str) -> Result<i64, Error> {
    match path.trim_start_matches('/') {
        "" => Ok(0),
        number => number
            .parse()
            .ok()
            .filter(|number| *number >= 0)
            .ok_or_else(|| wrong("its URL ends in something that is not a database number")),
    }
}

fn login(config: &RedisConfig, database: i64) -> Result<RedisConnectionInfo, Error> {
    // CLIENT SETINFO would ask for one more right, and old servers answer it with an error.
    let mut login = RedisConnectionInfo::default().set_db(database).set_skip_set_lib_name();
    match (&config.username, &config.password) {
        (Some(_), None) => return Err(wrong("it has a user name but no password")),
        (username, Some(password)) => {
            if let Some(username) = username {
                login = login.set_username(username);
            }
            login = login.set_password(password);
        }
        (None, None) => {}
    }
    Ok(login)
}

fn tls(host: &str, ca_pem: Option<&[u8]>) -> Result<Tls, Error> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| {
        wrong("its host cannot be checked against a certificate").because(error)
    })?;
    let roots = match ca_pem {
        Some(pem) => given_roots(pem)?,
        None => machine_roots()?,
    };
    // Named aloud: a process-wide default would depend on what other crates bring along.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("TLS cannot be set up").because(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Tls { config: Arc::new(config), name })
}

fn given_roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| wrong("its CA is not PEM").because(error))?;
        roots
            .add(certificate)
            .map_err(|error| wrong("its CA is not a certificate").because(error))?;
    }
    if roots.is_empty() { Err(wrong("its CA holds no certificate")) } else { Ok(roots) }
}

fn machine_roots() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    // Single unusable certificates are common in a machine's collection, and harmless.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(wrong("it has no CA of its own, and this machine trusts none"));
    }
    Ok(roots)
}

fn wrong(what: &str) -> Error {
    let message = format!("the Redis store cannot work: {what}");
    Error::new(ErrorKind::Misconfigured, Certainty::NotApplied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, Error> {
        Target::new(&RedisConfig { url: url.to_owned(), ..RedisConfig::default() })
    }

    #[test]
    fn urls_say_host_port_and_database() {
        for (url, host, port, db) in [
            ("redis://cache:7000/3", "cache", 7000, 3),
            ("redis://cache", "cache", 6379, 0),
            ("redis://[::1]:6380/", "::1", 6380, 0),
        ] {
            let target = target(url).expect(url);
            assert_eq!((target.host.as_str(), target.port), (host, port), "{url}");
            assert_eq!(target.login.db(), db, "{url}");
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for url in [
            "",
            "cache:6379",
            "http://cache/0",
            "redis://cache/zero",
            "redis://cache/-1",
            "redis://user:secret@cache/0",
            "unix:///run/redis.sock",
        ] {
            let error = target(url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
            assert!(!format!("{error:?}").contains("secret"));
        }
        let base = RedisConfig::default();
        for config in [
            RedisConfig { username: Some("gateway".into()), ..base.clone() },
            RedisConfig { timeout: Duration::ZERO, ..base.clone() },
            RedisConfig { ca_pem: Some(b"x".to_vec()), ..base.clone() },
            RedisConfig { url: "rediss://cache".into(), ca_pem: Some(b"x".to_vec()), ..base },
        ] {
            assert!(Target::new(&config).is_err(), "{config:?}");
        }
    }
}
