//! The lab's hosts: namespaces, the processes in them, and the wires between them.

pub mod group;
pub mod process;
pub mod quota;
pub mod topology;
pub mod wire;
