//! `rpc-mix` (LRP, table 2).

use super::shared::*;
use crate::apps::compute::Work;

/// Where the worker listens; the short servers of each case are at ports that follow.
const PORT: u16 = 7000;
/// Walks that a call of the worker is: about 100 ms, or 20 ms.
const WALKS: Choice<u64> = Choice { full: 2500, quick: 500 };
/// Short requests that wait with each server, or are on their way.
const OUTSTANDING: u32 = 32;
/// How long the short servers compute for a request, in steps: some 2, 10 and 50 us.
const PACES: [(&str, u64); 3] = [("fast", 800), ("medium", 4_000), ("slow", 20_000)];

pub static EXPERIMENT: Experiment = Experiment {
    name: "rpc-mix",
    paper: "LRP table 2",
    question: "does a process that computes get its third of the CPU beside two busy RPC servers?",
    found: "the worker finished 20-30 % sooner with LRP, with 29-33 % of the CPU instead of 23-26 %",
    arms: "stock,threaded,niced,batch,gate?,weir-native?,weir,lazy?",
    main: "weir",
    cases: || {
        // The worker alone is the same in each case: a quick run measures it once.
        vec![Case::always("fast"), Case::full("medium"), Case::always("slow").at("0?,top")]
    },
    loads: "0,top",
    times: Choice::times((300, 2000, 10), (50, 400, 3)),
    scene,
    says: "completes {} calls/s",
    merits: &[&m::calls_per_s, &m::per_s],
    tables: tables! {
        "The worker: calls/s, time per call (ms), CPU time charged"
            in Cases::All => calls_per_s, completion_ms, user_cpu;
        "Short RPCs/s, and CPU time charged to all servers" in Cases::All => per_s, server_cpu;
    },
    figure: bars("Calls of the worker beside the short servers", &m::calls_per_s),
    goals: goals! {
        "the worker's calls/s, of the best baseline's" =>
            figure(WEIRS, Cases::All, Only(Load::Top), calls_per_s, BEST), AtLeast(1.0);
        "the worker's CPU time, of the best baseline's" =>
            figure(WEIRS, Cases::All, Only(Load::Top), user_cpu, BEST), AtLeast(1.0);
        "the worker's CPU time, of the CPU" =>
            figure("lazy", Cases::All, Only(Load::Top), user_cpu, Nothing), Within(1.0 / 3.0, 0.06);
        "short RPCs/s, of the best baseline's" =>
            figure(WEIRS, Cases::All, Only(Load::Top), per_s, BEST), AtLeast(1.0);
        also nothing_discarded();
    },
    notes: "The worker and the short servers are three processes on the tested CPU. Load 0: the worker \
            alone; top: the client keeps 32 requests outstanding with each short server. The network is \
            never overloaded. A third of the CPU is each server's fair share; what input takes comes \
            off first.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let app = |work, port, role| App::new(AppKind::Udp(udp::Server::echo(work)), port, role);
    let worker = Work { walks: WALKS.of(ask.quick), ..Work::default() };
    let mut apps = vec![app(worker, PORT, Role::Flooded)];
    let mut servers = vec![];
    for (place, (_, steps)) in (0..).zip(PACES).filter(|(_, (name, _))| *name == ask.case) {
        servers.extend([PORT + 1 + 2 * place, PORT + 2 + 2 * place]);
        let work = Work { steps, ..Work::default() };
        let server = |port: &u16| app(work, *port, Role::Other);
        apps.extend(servers.iter().map(server));
    }
    if ask.load == Load::Off {
        servers.clear();
    }
    Ok(Scene {
        apps,
        client: Some(Client::Rpc { worker: PORT, servers, outstanding: OUTSTANDING }),
        needs: vec![Need::FarEnd],
        without_generator: true,
        ..Scene::default()
    })
}
