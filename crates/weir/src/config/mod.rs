//! The configuration: the command line's settings over the file's, over what weir does by itself.

pub mod args;
mod effective;
pub mod error;
mod file;
mod init;
mod layer;
mod reload;
mod settings;
mod shares;
mod show;
mod text;
pub mod value;
pub mod wanted;
mod whole;

pub use init::init;
pub use reload::Reloader;
pub use settings::Effective;
pub use show::{check, show};
pub use whole::Config;
