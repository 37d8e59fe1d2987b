//! A plugin: loaded once, asked often.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use oncegate_core::hex;
use regex::Regex;
use sha2::{Digest, Sha256};

use crate::Runtime;
use crate::bindings::oncegate::plugin::types as wire;
use crate::catalog::Compiled;
use crate::decision::Decision;
use crate::derive::{Instance, shortened};
use crate::error::{DeriveError, LoadError};
use crate::golden;
use crate::request::Request;

/// What a plugin is made from.
#[derive(Clone)]
pub struct PluginSource {
    /// Its name in the policy, for logs.
    pub name: String,
    /// The component.
    pub bytes: Bytes,
    /// Its configuration as JSON text.
    pub config: String,
    /// What the component's SHA-256 must be, if the policy pins it.
    pub sha256: Option<[u8; 32]>,
    /// Secrets that `hmac-sha256` may use, by name.
    pub secrets: Arc<BTreeMap<String, Vec<u8>>>,
}

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Its own name, not the policy's.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it looks at beyond the head of the request.
    pub needs: Needs,
    /// For later use.
    pub attributes: Vec<(String, String)>,
}

/// What a plugin looks at beyond the head of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The body, or a part made from it.
    pub body: bool,
    /// Whom the gateway authenticated.
    pub principal: bool,
}

impl Manifest {
    /// Checks a guest's manifest.
    pub(crate) fn accept(manifest: wire::Manifest) -> Result<Self, DeriveError> {
        const BYTES_MAX: usize = 16 * 1024;
        let wire::Manifest { name, version, needs, attributes } = manifest;
        let texts: usize =
            attributes.iter().map(|(name, value)| 2 + name.len() + value.len()).sum();
        if texts + name.len() + version.len() > BYTES_MAX {
            return Err(DeriveError::InvalidOutput("the manifest is over 16 KiB".into()));
        }
        Ok(Self {
            name: shortened(name),
            version: shortened(version),
            needs: Needs {
                body: needs.contains(wire::Needs::BODY),
                principal: needs.contains(wire::Needs::PRINCIPAL),
            },
            attributes,
        })
    }
}

/// What every instance of a plugin shares: nothing that a guest can change.
pub(crate) struct Surroundings {
    pub(crate) name: String,
    pub(crate) config: String,
    pub(crate) secrets: Arc<BTreeMap<String, Vec<u8>>>,
    pub(crate) patterns: Patterns,
}

/// Compiled patterns. A pattern is usually a constant of the plugin or its configuration; one
/// that is made from requests fills the cache and is then compiled each time, with the same
/// result.
#[derive(Default)]
pub(crate) struct Patterns(Mutex<HashMap<String, Regex>>);

impl Patterns {
    const MAX: usize = 64;

    pub(crate) fn get(
        &self,
        pattern: &str,
        compile: impl FnOnce() -> Result<Regex, String>,
    ) -> Result<Regex, String> {
        if let Some(known) = self.lock().get(pattern) {
            return Ok(known.clone());
        }
        let regex = compile()?;
        let mut known = self.lock();
        if known.len() < Self::MAX {
            known.insert(pattern.into(), regex.clone());
        }
        Ok(regex)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Regex>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A plugin that has been checked, compiled, configured and tried out.
pub struct Plugin {
    runtime: Arc<Runtime>,
    compiled: Arc<Compiled>,
    surroundings: Arc<Surroundings>,
    manifest: Manifest,
    digest_hex: String,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plugin({} {})", self.name(), &self.digest_hex[..12])
    }
}

impl Plugin {
    /// Its name in the policy.
    pub fn name(&self) -> &str {
        &self.surroundings.name
    }

    /// SHA-256 of the component, in hexadecimal.
    pub fn digest_hex(&self) -> &str {
        &self.digest_hex
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Asks a fresh instance about a request.
    pub async fn derive(&self, request: &Arc<Request>) -> Result<Decision, DeriveError> {
        let mut instance =
            Instance::fresh(&self.runtime, &self.compiled, &self.surroundings).await?;
        match instance.configure().await? {
            Ok(manifest) if manifest == self.manifest => {}
            Ok(_) | Err(_) => {
                let rule = "`configure` does not answer as it did when the plugin was loaded";
                return Err(DeriveError::InvalidOutput(rule.into()));
            }
        }
        instance.derive(request.clone(), self.manifest.needs).await
    }

    pub(crate) async fn load(
        runtime: &Arc<Runtime>,
        source: PluginSource,
    ) -> Result<Self, LoadError> {
        let digest = check_bytes(&source, runtime.limits.component_bytes)?;
        let compiled = runtime.catalog.get(digest, source.bytes).await?;
        let surroundings = Arc::new(Surroundings {
            name: source.name,
            config: source.config,
            secrets: source.secrets,
            patterns: Patterns::default(),
        });
        let manifest = first_manifest(runtime, &compiled, &surroundings).await?;
        let digest_hex = hex(&compiled.digest);
        let runtime = runtime.clone();
        let plugin = Self { runtime, compiled, surroundings, manifest, digest_hex };
        plugin.try_out().await?;
        Ok(plugin)
    }

    /// Two fresh instances per sample request. Each also repeats `configure`, and `derive`
    /// refuses another manifest than the first.
    async fn try_out(&self) -> Result<(), LoadError> {
        for (name, request) in golden::requests() {
            let first = self.sample(name, &request).await?;
            let second = self.sample(name, &request).await?;
            if first != second {
                return Err(LoadError::NonDeterministic { about: name.into() });
            }
        }
        Ok(())
    }

    /// A plugin may say that it has no answer for a sample; it may not break.
    async fn sample(
        &self,
        name: &str,
        request: &Arc<Request>,
    ) -> Result<Result<Decision, String>, LoadError> {
        match self.derive(request).await {
            Ok(decision) => Ok(Ok(decision)),
            Err(DeriveError::Failed(message)) => Ok(Err(message)),
            Err(error) => Err(LoadError::Failed { when: format!("with {name}"), error }),
        }
    }
}

fn check_bytes(source: &PluginSource, max: usize) -> Result<[u8; 32], LoadError> {
    let bytes = source.bytes.len();
    if bytes > max {
        return Err(LoadError::TooLarge { bytes, max });
    }
    let digest: [u8; 32] = Sha256::digest(&source.bytes).into();
    match source.sha256 {
        Some(pinned) if pinned != digest => {
            Err(LoadError::PinMismatch { pinned: hex(&pinned), found: hex(&digest) })
        }
        Some(_) | None => Ok(digest),
    }
}

async fn first_manifest(
    runtime: &Runtime,
    compiled: &Compiled,
    surroundings: &Arc<Surroundings>,
) -> Result<Manifest, LoadError> {
    let failed = |error| LoadError::Failed { when: "in `configure`".into(), error };
    let mut instance = Instance::fresh(runtime, compiled, surroundings).await.map_err(failed)?;
    instance.configure().await.map_err(failed)?.map_err(LoadError::Configure)
}
