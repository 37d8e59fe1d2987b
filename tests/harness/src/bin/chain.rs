//! Runs the chain experiment and prints what happened. The last line is for machines.

use anyhow::Result;

#[tokio::main]
async fn main() -> Result<()> {
    let report = oncegate_tests::chain::run().await?;
    println!("{report}");
    let charges: Vec<_> = report.charges().iter().map(usize::to_string).collect();
    println!("charges: {}", charges.join(" "));
    Ok(())
}
