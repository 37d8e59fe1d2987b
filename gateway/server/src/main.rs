//! `oncegate`: an idempotency gateway for the API edge.

mod admin;
mod app;
mod builtin;
mod cli;
mod exchange;
mod gateway;
mod generation;
mod headers;
mod listener;
mod metrics;
mod outcome;
mod plugins;
mod problem;
mod reload;
mod upstream;
mod waiting;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    cli::log_to_stderr(&arguments);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("oncegate: the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(cli::run(arguments))
}
