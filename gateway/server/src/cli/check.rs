//! `oncegate check`: everything that serving would check, and the route table.

use std::io::Write;
use std::path::Path;

use oncegate_policy::{Route, ScopeSource};

use super::{Failure, load_all};

pub(super) const EXAMPLES: &str = "\
Examples:
  oncegate check --config policies/
      Print the route table, or every error with its file and field (exit code 2).";

pub(super) async fn run(path: &Path) -> Result<(), Failure> {
    let (_, generation) = load_all(path).await?;
    let policy = &generation.policy;
    let mut rows =
        vec![["OPERATION", "MATCH", "UPSTREAM", "KEY", "SCOPE", "KEPT"].map(str::to_owned)];
    rows.extend(policy.routes.iter().map(|route| row(route)));
    let mut out = std::io::stdout().lock();
    print_table(&mut out, &rows)?;
    writeln!(out)?;
    for (name, plugin) in generation.plugins() {
        writeln!(out, "plugin {name}: sha256 {}", plugin.digest_hex())?;
    }
    for warning in &policy.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(out, "ok: {} routes, {} plugins", rows.len() - 1, generation.plugins().len())?;
    Ok(())
}

fn row(route: &Route) -> [String; 6] {
    let (key, scope, kept) = match &route.guard {
        None => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
        Some(guard) => (
            guard.plugins.join(", "),
            match &guard.scope {
                ScopeSource::Shared => "shared".to_owned(),
                ScopeSource::Header(name) => format!("header {name}"),
            },
            humantime::format_duration(guard.retention).to_string(),
        ),
    };
    [
        route.operation.to_string(),
        route.matcher.to_string(),
        route.upstream.name.clone(),
        key,
        scope,
        kept,
    ]
}

fn print_table(out: &mut impl Write, rows: &[[String; 6]]) -> std::io::Result<()> {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
