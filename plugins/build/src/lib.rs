//! Builds a guest of this workspace into a WebAssembly component.
//!
//! Used by build scripts that embed a built-in plugin and by tests that run one. Both get the
//! same bytes from the same steps: a nested `cargo build` for `wasm32-unknown-unknown` (which
//! has no WASI, so a guest cannot even name a clock), then the component encoder, which checks
//! the module against the interface it was written for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use wit_component::ComponentEncoder;

const TARGET: &str = "wasm32-unknown-unknown";

/// A guest needs little stack, and every page it does not have is a page that a fresh instance
/// does not have to set up. The default would be 1 MiB.
const STACK_BYTES: u32 = 32 * 1024;

/// Builds `package` (a cdylib of this workspace) under `target_dir` and returns the component.
///
/// `target_dir` must not be the directory the calling cargo builds into: that one is locked.
pub fn component(package: &str, target_dir: &Path) -> Result<Vec<u8>> {
    build(package, target_dir)?;
    let file = format!("{}.wasm", package.replace('-', "_"));
    let path = target_dir.join(TARGET).join("guest").join(file);
    let module = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    encode(&module).with_context(|| format!("{package} does not fit the plugin interface"))
}

/// Where guests are built: `guests` in the target directory that `inside` (`OUT_DIR`,
/// `CARGO_TARGET_TMPDIR`) lies in. One place for every profile and every caller, because a guest
/// is the same for all of them, and building the interface's macro takes a minute.
pub fn target_dir(inside: &Path) -> PathBuf {
    let target = inside.ancestors().find(|directory| directory.join("CACHEDIR.TAG").exists());
    target.unwrap_or(inside).join("guests")
}

/// Turns a core module that carries its interface (every wit-bindgen output does) into a
/// component.
pub fn encode(module: &[u8]) -> Result<Vec<u8>> {
    ComponentEncoder::default().module(module)?.validate(true).encode()
}

/// Files and directories that a guest is made from, one `cargo:rerun-if-changed` each.
pub fn inputs(package: &str) -> Vec<PathBuf> {
    let root = workspace();
    let folder = package.strip_prefix("oncegate-").unwrap_or(package);
    ["Cargo.toml", "Cargo.lock", "plugins/wit", "plugins/sdk", "plugins/build"]
        .iter()
        .map(|path| root.join(path))
        .chain([root.join("plugins").join(folder)])
        .collect()
}

fn build(package: &str, target_dir: &Path) -> Result<()> {
    let output = command(package, target_dir).output().context("cannot start cargo")?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    if target_is_missing(&stderr) {
        bail!("the target {TARGET} is not installed; run `rustup target add {TARGET}`");
    }
    bail!("building the guest {package} failed:\n{stderr}");
}

/// The compiler has no error code for this; both wordings are about the missing `core` crate
/// of the target.
fn target_is_missing(stderr: &str) -> bool {
    stderr.contains("target may not be installed")
        || (stderr.contains("can't find crate for `core`") && stderr.contains(TARGET))
}

fn command(package: &str, target_dir: &Path) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let flags = format!("target.{TARGET}.rustflags=[\"-Clink-arg=-zstack-size={STACK_BYTES}\"]");
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace())
        .args(["build", "--locked", "--lib", "--package", package])
        .args(["--target", TARGET, "--profile", "guest", "--config", &flags])
        .arg("--target-dir")
        .arg(target_dir);
    for (name, _) in env::vars_os() {
        if leaks(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// Whether a variable speaks about the *outer* build: its flags, its wrapper (clippy is one),
/// its profile, its target. A guest built with any of those is another guest, or none.
fn leaks(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    if let Some(rest) = name.strip_prefix("CARGO_") {
        // Where crates come from and how to reach them stays as the user set it.
        let kept = ["HOME", "NET_", "HTTP_", "REGISTR", "SOURCE_", "TERM_"];
        return !kept.iter().any(|prefix| rest.starts_with(prefix));
    }
    name.starts_with("RUSTC") || name.starts_with("DEP_") || OUTER.contains(&name.as_ref())
}

const OUTER: &[&str] = &[
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "MAKEFLAGS",
    "MFLAGS",
    "TARGET",
    "HOST",
    "OUT_DIR",
    "NUM_JOBS",
    "OPT_LEVEL",
    "PROFILE",
    "DEBUG",
    "CLIPPY_ARGS",
];

/// The workspace this crate was compiled in. The guests are its members, so there is nowhere
/// else to build them from.
fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_outer_build_is_kept_out() {
        for name in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTC_WORKSPACE_WRAPPER",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_TARGET",
            "MAKEFLAGS",
            "OUT_DIR",
        ] {
            assert!(leaks(OsStr::new(name)), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "CARGO",
            "CARGO_HOME",
            "CARGO_HTTP_PROXY",
            "RUSTUP_HOME",
            "RUSTUP_TOOLCHAIN",
        ] {
            assert!(!leaks(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn guests_have_one_place_in_the_target_directory() {
        let target = env::temp_dir().join(format!("oncegate-guest-build-{}", std::process::id()));
        let inside = target.join("debug/build/x-1/out");
        fs::create_dir_all(&inside).expect("directories");
        assert_eq!(target_dir(&inside), inside.join("guests"));
        fs::write(target.join("CACHEDIR.TAG"), "").expect("tag");
        assert_eq!(target_dir(&inside), target.join("guests"));
        fs::remove_dir_all(&target).expect("cleaned up");
    }

    #[test]
    fn inputs_exist() {
        for path in inputs("oncegate-header-key") {
            assert!(path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn a_missing_target_is_recognised() {
        assert!(target_is_missing(
            "  = note: the `wasm32-unknown-unknown` target may not be installed"
        ));
        assert!(!target_is_missing("error: expected `;`"));
    }

    #[test]
    fn only_modules_are_encoded() {
        assert!(encode(b"not wasm").is_err());
        assert!(encode(b"").is_err());
    }
}
