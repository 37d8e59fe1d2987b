//! `oncegate serve`.

use std::path::PathBuf;

use clap::Args;
use oncegate_policy::{Environment, Quick};

use super::{Failure, Overrides, load_watched};
use crate::app::{App, announce};

pub(super) const EXAMPLES: &str = "\
Examples:
  oncegate serve --config policies/
      Serve every policy file of a directory; changes are picked up while traffic flows.
  oncegate serve --upstream http://127.0.0.1:9001
      No file at all: guard every write that carries an Idempotency-Key header. Keys belong
      to the Authorization header's value; --scope names another header, or `shared`.
  ONCEGATE_STORE__PASSWORD=… oncegate serve --config gateway.toml
      Secrets come from the environment: ONCEGATE_, then section and field, joined by __.";

#[derive(Args)]
pub(super) struct Serve {
    /// A policy file (TOML or YAML), or a directory of them.
    #[arg(long, value_name = "PATH", required_unless_present = "upstream")]
    config: Option<PathBuf>,
    /// Without files: the upstream, as http://host:port.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    upstream: Option<String>,
    /// Where to listen, instead of what the files say.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where reservations live, instead of what the files say: embedded:PATH or redis://host:port.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Without files: whose key it is. A header name, or `shared` when all callers are one tenant.
    #[arg(long, value_name = "SCOPE", default_value = "Authorization", conflicts_with = "config")]
    scope: Option<String>,
}

pub(super) async fn run(serve: Serve) -> Result<(), Failure> {
    let (loaded, watched) = match (&serve.config, &serve.upstream) {
        (Some(path), _) => {
            let overrides = Overrides { listen: serve.listen, store: serve.store };
            let (loaded, watched) = load_watched(path, overrides)?;
            (loaded, Some(watched))
        }
        (None, Some(upstream)) => {
            let quick = Quick {
                upstream: upstream.clone(),
                listen: serve.listen,
                store: serve.store,
                scope: serve.scope,
            };
            (oncegate_policy::quick(&quick, &Environment::of_process())?, None)
        }
        (None, None) => {
            return Err(Failure::Invalid("one of --config and --upstream is needed".to_owned()));
        }
    };
    for warning in &loaded.policy.warnings {
        tracing::warn!(%warning, "policy");
    }
    let app = App::start(loaded, watched).await?;
    announce(&app)?;
    app.run().await?;
    Ok(())
}
