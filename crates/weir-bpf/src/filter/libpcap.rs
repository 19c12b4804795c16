//! The six functions of libpcap that compile a filter expression.
//!
//! The library is opened when there is something to compile, so that weir runs where it is not installed. The
//! expression is compiled for an open capture, as tcpdump does: only then `vlan`, `inbound` and the like ask the
//! kernel for what it has taken off the packet.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::{Library, Symbol};

use crate::error::{Error, Result};

/// Debian's name of the library, and that of others.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];
/// `PCAP_ERRBUF_SIZE` (pcap(3PCAP)).
const MESSAGE_LEN: usize = 256;
/// `PCAP_NETMASK_UNKNOWN`: only `ip broadcast` needs to know it.
const NETMASK_UNKNOWN: c_uint = 0xffff_ffff;

/// `struct bpf_program`.
#[repr(C)]
struct Program {
    len: c_uint,
    instructions: *mut libc::sock_filter,
}

type Pcap = *mut c_void;
type Create = unsafe extern "C" fn(*const c_char, *mut c_char) -> Pcap;
type Act = unsafe extern "C" fn(Pcap) -> c_int;
type Compile = unsafe extern "C" fn(Pcap, *mut Program, *const c_char, c_int, c_uint) -> c_int;
type FreeCode = unsafe extern "C" fn(*mut Program);
type Close = unsafe extern "C" fn(Pcap);
type Message = unsafe extern "C" fn(Pcap) -> *mut c_char;

/// An open capture, closed with it.
struct Capture<'a> {
    pcap: Pcap,
    close: Symbol<'a, Close>,
}

impl Drop for Capture<'_> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: pcap_create() made it, and nothing else closes it.
        unsafe { (self.close)(self.pcap) };
    }
}

/// Compiles and optimizes an expression for the packets of an interface.
#[allow(unsafe_code)]
pub(super) fn compile(ifname: &str, text: &str) -> Result<Vec<libc::sock_filter>> {
    let (Ok(device), Ok(expression)) = (CString::new(ifname), CString::new(text)) else {
        return Err(refused(text, "it has a NUL in it"));
    };
    let library = open()?;
    // SAFETY: these are libpcap's own names, with the types of its manual pages.
    let (create, activate, compile, free_code, close, message) = unsafe {
        (
            symbol::<Create>(&library, c"pcap_create")?,
            symbol::<Act>(&library, c"pcap_activate")?,
            symbol::<Compile>(&library, c"pcap_compile")?,
            symbol::<FreeCode>(&library, c"pcap_freecode")?,
            symbol::<Close>(&library, c"pcap_close")?,
            symbol::<Message>(&library, c"pcap_geterr")?,
        )
    };
    let mut why = [0; MESSAGE_LEN];
    // SAFETY: the name ends in NUL, and the buffer has the length that libpcap demands.
    let pcap = unsafe { create(device.as_ptr(), why.as_mut_ptr()) };
    if pcap.is_null() {
        // SAFETY: libpcap has written a text that ends in NUL, or left the zeros.
        let why = unsafe { CStr::from_ptr(why.as_ptr()) };
        return Err(refused(text, &why.to_string_lossy()));
    }
    let capture = Capture { pcap, close };
    let why = || {
        // SAFETY: the text is the capture's own, and is copied before anything else happens to that.
        unsafe { CStr::from_ptr(message(capture.pcap)) }.to_string_lossy().into_owned()
    };
    // SAFETY: the capture is open. Warnings are positive.
    if unsafe { activate(capture.pcap) } < 0 {
        return Err(refused(text, &format!("libpcap cannot open {ifname}: {}", why())));
    }
    let mut program = Program { len: 0, instructions: ptr::null_mut() };
    // SAFETY: the expression ends in NUL, and all outlive the call.
    let compiled =
        unsafe { compile(capture.pcap, &raw mut program, expression.as_ptr(), 1, NETMASK_UNKNOWN) };
    if compiled < 0 {
        return Err(refused(text, &why()));
    }
    // SAFETY: libpcap has made so many instructions, which last until they are freed below.
    let instructions =
        unsafe { std::slice::from_raw_parts(program.instructions, program.len as usize) }.to_vec();
    // SAFETY: pcap_compile() filled it in, and it is not used afterwards.
    unsafe { free_code(&raw mut program) };
    Ok(instructions)
}

#[allow(unsafe_code)]
fn open() -> Result<Library> {
    // A static executable has a C library of its own, which is not the one that libpcap wants.
    if cfg!(target_feature = "crt-static") {
        return Err(Error::refused(
            "a filter needs libpcap, which this static weir cannot load",
            "leave the filter out (`tcpdump -r FILE ...` filters what was captured), or install the Debian package",
        ));
    }
    for name in NAMES {
        // SAFETY: libpcap has no initializers that do more than set up itself.
        if let Ok(library) = unsafe { Library::new(name) } {
            return Ok(library);
        }
    }
    Err(Error::refused(
        "a filter needs libpcap, which is not installed",
        "install it (Debian: `apt-get install libpcap0.8`), or leave the filter out",
    ))
}

/// # Safety
/// The function must have this type.
#[allow(unsafe_code)]
unsafe fn symbol<'a, T>(library: &'a Library, name: &CStr) -> Result<Symbol<'a, T>> {
    // SAFETY: the caller's.
    unsafe { library.get(name.to_bytes_with_nul()) }.map_err(|error| {
        Error::refused(
            format!("the installed libpcap is not usable: {error}"),
            "install libpcap 1.0 or later",
        )
    })
}

fn refused(text: &str, why: &str) -> Error {
    Error::refused(
        format!("the filter {text:?} does not compile: {why}"),
        "`man pcap-filter` has the grammar and examples",
    )
}
