//! Generated from the WIT package; no rules live here.

wasmtime::component::bindgen!({
    path: "../../plugins/wit",
    world: "plugin",
    imports: { default: trappable },
    exports: { default: async },
});
