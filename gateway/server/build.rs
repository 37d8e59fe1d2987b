//! Compiles the built-in plugins to components, so that the binary carries them.

use std::path::PathBuf;

const BUILT_IN: [&str; 2] = ["oncegate-header-key", "oncegate-fingerprint"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    for package in BUILT_IN {
        for input in oncegate_guest_build::inputs(package) {
            println!("cargo:rerun-if-changed={}", input.display());
        }
        let component =
            oncegate_guest_build::component(package, &oncegate_guest_build::target_dir(&out))?;
        std::fs::write(out.join(format!("{package}.wasm")), component)?;
    }
    Ok(())
}
