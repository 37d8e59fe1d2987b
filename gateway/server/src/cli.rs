//! The command line: arguments, help texts and exit codes.
//!
//! Exit codes: 0 done; 1 something failed while running; 2 the configuration, a plugin or the
//! command line is invalid, and every reason stands on standard error.

mod check;
mod demo;
mod explain;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use oncegate_policy::{Loaded, Problems, Settings, Source, Watcher};

use crate::generation::Generation;
use crate::plugins;
use crate::reload::Watched;

/// Something failed at run time.
const FAILED: u8 = 1;
/// What was given is invalid.
const INVALID: u8 = 2;

/// An idempotency gateway: runs each operation once, however often it is sent.
#[derive(Parser)]
#[command(name = "oncegate", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// How the log on standard error is written. RUST_LOG sets what is logged (default: info).
    #[arg(long, global = true, value_enum, default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Start the gateway.
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::Serve),
    /// Check policies and plugins and print the route table; exit code 2 when something is wrong.
    #[command(after_help = check::EXAMPLES)]
    Check(ConfigArgument),
    /// Show how a request's key comes about, or whether two requests are the same.
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::Explain),
    /// Start a gateway in front of a small payments service, to try things out.
    #[command(after_help = demo::EXAMPLES)]
    Demo(demo::Demo),
}

/// Where policies and settings are.
#[derive(Args)]
struct ConfigArgument {
    /// A policy file (TOML or YAML), or a directory of them.
    #[arg(long, value_name = "PATH")]
    config: PathBuf,
}

/// Writes the log to standard error; standard output belongs to the command's own results.
pub(crate) fn log_to_stderr(arguments: &Arguments) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,fjall=warn,lsm_tree=warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match arguments.log_format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().init(),
    }
}

/// Runs one command.
pub(crate) async fn run(arguments: Arguments) -> ExitCode {
    let done = match arguments.command {
        Command::Serve(serve) => serve::run(serve).await,
        Command::Check(check) => check::run(&check.config).await,
        Command::Explain(explain) => explain::run(explain).await,
        Command::Demo(demo) => demo::run(demo).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Invalid(reasons)) => {
            eprintln!("{reasons}");
            ExitCode::from(INVALID)
        }
        Err(Failure::Failed(error)) => {
            eprintln!("oncegate: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

/// Why a command ended early.
enum Failure {
    /// What was given is wrong; every reason, one a line.
    Invalid(String),
    /// Something failed at run time.
    Failed(anyhow::Error),
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::Invalid(problems.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Problems>() {
            Ok(problems) => problems.into(),
            Err(error) => Self::Failed(error),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Settings given on the command line. They win over files and the environment.
#[derive(Default)]
struct Overrides {
    listen: Option<String>,
    store: Option<String>,
}

/// Reads files and the process environment. The overrides travel as environment variables, so
/// that a reload does not forget them.
fn load(path: &std::path::Path, overrides: Overrides) -> Result<(Loaded, Source), Failure> {
    let given = [
        ("ONCEGATE_LISTENER__ADDRESS", overrides.listen),
        ("ONCEGATE_STORE__URL", overrides.store),
    ];
    let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let env = std::env::vars_os()
        .map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        })
        .chain(given)
        .collect();
    let source = Source { path: path.to_owned(), env };
    Ok((oncegate_policy::load(&source)?, source))
}

/// As [`load`], and watches the files from before they are read, so that no change is missed.
fn load_watched(
    path: &std::path::Path,
    overrides: Overrides,
) -> Result<(Loaded, Watched), Failure> {
    let watcher = Watcher::start(vec![path.to_owned()]);
    let (loaded, source) = load(path, overrides)?;
    let (watcher, changed) = watcher.context("the policy files cannot be watched")?;
    Ok((loaded, Watched { source, watcher, changed }))
}

/// Loads and tries everything that serving would.
async fn load_all(path: &std::path::Path) -> Result<(Settings, Generation), Failure> {
    let (loaded, _) = load(path, Overrides::default())?;
    let host = plugins::host(&loaded.settings).map_err(anyhow::Error::from)?;
    let settings = loaded.settings.clone();
    let generation = Generation::build(1, &host, loaded).await?;
    Ok((settings, generation))
}
