//! What `rpc-mix` tells beside the worker's calls per second.

use serde::{Deserialize, Serialize};

use super::merit::{MeritRun, detail};

/// The whole result.
pub type RpcRun = MeritRun<Rpc>;

/// Beside the worker's calls per second. Of a point: medians.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rpc {
    /// From a call of the worker to its answer, mean of the window's calls, milliseconds.
    pub completion_ms: f64,
    /// Calls of the worker that were answered in the window.
    pub calls: f64,
    /// Short RPCs answered per second, of both servers.
    pub rpc_per_s: f64,
    /// Share of the SUT's CPU that the kernel charged to the worker, 0 to 1.
    pub worker_cpu: f64,
    /// The same, to both short servers.
    pub servers_cpu: f64,
    /// CPU time that the kernel charged to the worker for a call, milliseconds.
    pub charged_ms: f64,
    /// Share of the SUT's CPU that nobody had, 0 to 1.
    pub idle_cpu: f64,
    /// Share of the generator's CPU that the client had, 0 to 1.
    pub client_cpu: f64,
}

detail! {
    Rpc {
        median: [
            completion_ms, calls, rpc_per_s, worker_cpu, servers_cpu, charged_ms, idle_cpu, client_cpu
        ],
    }
}
