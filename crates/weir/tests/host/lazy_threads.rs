//! Lazy sockets that several threads receive from.

use std::io::{BufRead, BufReader};
use std::sync::Barrier;
use std::time::Duration;

use crate::common::lazy::*;
use crate::common::*;
use crate::lazy_script::{ASLEEP, assert_printed};

/// How often this thread has gone to sleep.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// As with an ordinary socket; the ring itself wakes all who wait for it.
#[test]
fn a_datagram_wakes_few_of_many_threads() {
    const THREADS: u64 = 16;
    const NUMBERS: u64 = 200;
    let (_network, _daemon, lazy, sender) = with_lazy_socket();
    let receive = || {
        while receive_one(&lazy) != [u8::MAX; 4] {}
        sleeps()
    };
    let sleeps = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(receive)).collect();
        for _ in 0..NUMBERS {
            std::thread::sleep(Duration::from_millis(1));
            send_numbers(&sender, 0..1);
        }
        for _ in 0..THREADS {
            sender.send_to(&[u8::MAX; 4], LAZY).unwrap();
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
    });
    assert!(sleeps < NUMBERS * THREADS / 3, "{sleeps}");
}

fn receive_one(lazy: &weir_socket::LazyUdpSocket) -> [u8; 4] {
    let mut number = [0; 4];
    lazy.recv(&mut number).unwrap();
    number
}

/// Each takes one and is busy then: whoever is woken passes that on.
#[test]
fn no_datagram_waits_while_a_thread_sleeps() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    let (network, _daemon, lazy, sender) = with_lazy_socket();
    let all = Barrier::new(THREADS + 1);
    let receive = || {
        let received = (0..ROUNDS).map(|_| {
            let received = lazy.recv(&mut [0; 9]).is_ok();
            all.wait();
            received
        });
        received.filter(|received| *received).count()
    };
    let received = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(receive)).collect();
        for round in 0..ROUNDS {
            std::thread::sleep(Duration::from_millis(2));
            for at in 0..THREADS {
                // Those in fragments come by the kernel's socket.
                let length = if (round >> at) % 2 == 0 { 8 } else { 3000 };
                sender.send_to(&vec![0; length], LAZY).unwrap();
            }
            all.wait();
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(received, THREADS * ROUNDS);
    wait_until("half of them came by the ring", || network.count("lazy") >= 400);
}

/// The child has none of the threads that its parent's would wait for.
#[test]
fn a_child_does_not_wait_for_its_parents_threads() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = r"
import os,socket,threading
s=socket.socket(2,2); s.bind(('198.18.0.1',9995))
def receive(): os.write(1,s.recv(9)+b'\n')
def asleep(thread):
    with open('/proc/self/task/%d/stat'%thread.native_id) as stat:
        return stat.read().rsplit(')')[1].split()[0]=='S'
thread=threading.Thread(target=receive); thread.start()
while not all(asleep(thread) for _ in range(100)): pass
child=os.fork()
if child==0: os.write(1,b'waits\n'); receive(); os._exit(0)
thread.join(); os.waitpid(child,0)
";
    let mut python = preloaded(&network, "timeout", &["20", "python3", "-c", script]);
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("waits"));
    let sender = network.far_socket("198.18.0.2:0");
    std::thread::sleep(Duration::from_millis(200));
    for text in ["first", "second"] {
        sender.send_to(text.as_bytes(), LAZY).unwrap();
        assert_eq!(lines.next().as_deref(), Some(text));
    }
    assert!(python.wait().unwrap().success());
}

/// pthread_cancel(3): one that waits, one that waits for its turn, and one that finds a datagram each time.
#[test]
fn a_thread_that_is_cancelled_ends() {
    let script = r"
import ctypes,time
libc=ctypes.CDLL(None)
def cancelled(thread):
    libc.pthread_cancel(ctypes.c_ulong(thread.ident))
    while os.path.exists('/proc/self/task/%d'%thread.native_id): time.sleep(.01)
first,second=receiving(),receiving()
cancelled(first); cancelled(second)
print('both')
send(1); print(len(s.recv(9)))
def receive():
    while True: libc.recv(s.fileno(),ctypes.create_string_buffer(9),9,0)
third=receiving()
def flood():
    while third: send(2); time.sleep(.001)
flooding=threading.Thread(target=flood); flooding.start()
cancelled(third); third=None; flooding.join()
print('third',flush=True)
os._exit(0)
";
    assert_printed(&format!("{ASLEEP}{script}"), "both\n1\nthird\n");
}

/// `SA_RESTART`, unless the socket has a timeout.
#[test]
fn a_receive_goes_on_where_the_kernel_would() {
    let script = r"
import ctypes,signal,time
libc=ctypes.CDLL(None,use_errno=True)
def interrupted(restarts,timeout=0):
    s.setsockopt(socket.SOL_SOCKET,socket.SO_RCVTIMEO,struct.pack('ll',timeout,0))
    for number in [signal.SIGALRM,signal.SIGINT]:
        signal.signal(number,lambda *_:None); signal.siginterrupt(number,not restarts)
    signal.setitimer(signal.ITIMER_REAL,.05)
    sender=threading.Timer(.2,send,[7]); sender.start()
    result=libc.recv(s.fileno(),ctypes.create_string_buffer(9),9,0)
    sender.join()
    if result<0: result=len(s.recv(9)),ctypes.get_errno()
    print(result)
interrupted(True); interrupted(False); interrupted(True,9)
";
    assert_printed(script, "7\n(7, 4)\n(7, 4)\n");
}
