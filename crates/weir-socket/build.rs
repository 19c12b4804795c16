//! C programs are linked to the library by a name with its version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    // Not only for the library: cargo has what is for libraries linked into others that use the crate, too (its issue
    // 9562).
    println!("cargo::rustc-link-arg=-Wl,-soname,libweir_socket.so.{major}");
}
