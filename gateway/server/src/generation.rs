//! One whole, checked set of policies and plugins. A request holds the generation it began with
//! to its end, whatever is reloaded meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use oncegate_plugin_host::{Host, Plugin, PluginSource};
use oncegate_policy::{Component, Loaded, PluginSpec, PolicySet, Problem, Problems};

use crate::builtin;

/// See the module.
pub(crate) struct Generation {
    /// Counts up from 1 with every generation that came to serve.
    pub(crate) number: u64,
    /// When it came to serve.
    pub(crate) since: SystemTime,
    /// What the files said.
    pub(crate) policy: PolicySet,
    /// Secret for fingerprints and derived keys, if one is configured.
    pub(crate) fingerprint_secret: Option<Vec<u8>>,
    plugins: HashMap<String, Arc<Plugin>>,
}

impl Generation {
    /// Compiles and tries every plugin; all failures are reported together.
    pub(crate) async fn build(number: u64, host: &Host, loaded: Loaded) -> Result<Self, Problems> {
        let secrets = Arc::new(plugin_secrets(&loaded));
        let mut plugins = HashMap::new();
        let mut problems = Vec::new();
        for spec in loaded.policy.plugins.values() {
            match load_plugin(host, spec, &secrets).await {
                Ok(plugin) => {
                    plugins.insert(spec.name.clone(), plugin);
                }
                Err(rule) => problems.push(Problem {
                    file: Some(spec.declared_in.clone()).filter(|file| file != Path::new("")),
                    field: format!("plugin.{}", spec.name),
                    rule,
                }),
            }
        }
        if let Some(problems) = Problems::of(problems) {
            return Err(problems);
        }
        let fingerprint_secret =
            loaded.settings.secrets.fingerprint.as_ref().map(|s| s.expose().as_bytes().to_vec());
        let policy = loaded.policy;
        Ok(Self { number, since: SystemTime::now(), policy, fingerprint_secret, plugins })
    }

    /// A plugin that some route names. The policy was checked to define it.
    pub(crate) fn plugin(&self, name: &str) -> Option<&Arc<Plugin>> {
        self.plugins.get(name)
    }

    /// All plugins, by name.
    pub(crate) fn plugins(&self) -> BTreeMap<&str, &Arc<Plugin>> {
        self.plugins.iter().map(|(name, plugin)| (name.as_str(), plugin)).collect()
    }
}

fn plugin_secrets(loaded: &Loaded) -> BTreeMap<String, Vec<u8>> {
    let named = loaded.settings.secrets.named.iter();
    named.map(|(name, secret)| (name.clone(), secret.expose().as_bytes().to_vec())).collect()
}

async fn load_plugin(
    host: &Host,
    spec: &PluginSpec,
    secrets: &Arc<BTreeMap<String, Vec<u8>>>,
) -> Result<Arc<Plugin>, String> {
    let bytes =
        match &spec.component {
            Component::Builtin(name) => builtin::component(name)?,
            Component::File(path) => Bytes::from(tokio::fs::read(path).await.map_err(|error| {
                format!("component {} cannot be read: {error}", path.display())
            })?),
        };
    let source = PluginSource {
        name: spec.name.clone(),
        bytes,
        config: spec.config_json.clone(),
        sha256: spec.sha256,
        secrets: Arc::clone(secrets),
    };
    host.load(source).await.map_err(|error| {
        let place = match &spec.component {
            Component::Builtin(name) => format!("builtin:{name}"),
            Component::File(path) => path.display().to_string(),
        };
        format!("component {place}: {error}")
    })
}
