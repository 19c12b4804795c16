//! The system calls that a program makes by the C library's syscall(2), as libuv does.

use std::ffi::{c_int, c_long};

use weir_socket::message::fail;

use crate::next::next;
use crate::past::{sendmmsg, sendmsg};
use crate::wait::epoll_ctl;
use crate::{close, recvfrom, recvmmsg, recvmsg};

/// syscall(2). Where the C library takes any number of arguments, it passes on six, whatever the last of them are; so
/// does this.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let real = next!(syscall: unsafe extern "C-unwind" fn(c_long, ...) -> c_long);
    let fd = a as c_int;
    // SAFETY: as the caller promises.
    unsafe {
        match number {
            libc::SYS_close => close(fd).into(),
            libc::SYS_recvmsg => recvmsg(fd, b as _, c as _) as c_long,
            libc::SYS_recvmmsg => recvmmsg(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_recvfrom => recvfrom(fd, b as _, c as _, d as _, e as _, f as _) as c_long,
            libc::SYS_sendmsg => sendmsg(fd, b as _, c as _) as c_long,
            libc::SYS_sendmmsg => sendmmsg(fd, b as _, c as _, d as _).into(),
            libc::SYS_epoll_ctl => epoll_ctl(fd, b as _, c as _, d as _).into(),
            // What is waited for there cannot be seen. It is asked for before the first socket is bound.
            libc::SYS_io_uring_setup => fail(libc::ENOSYS).into(),
            _ => real(number, a, b, c, d, e, f),
        }
    }
}
