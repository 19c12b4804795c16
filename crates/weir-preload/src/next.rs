//! The C library's own functions, behind those of this library.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// One of them.
pub(crate) struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn named(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Where it is. A program for which this library is loaded has a C library with it.
    pub(crate) fn at(&self) -> *mut c_void {
        let found = self.find(&[]);
        if found.is_null() {
            // SAFETY: ends the process, which cannot go on.
            unsafe { libc::abort() };
        }
        found
    }

    /// Where it is, or null. One of these libraries may have it, if a plugin has that library for itself alone.
    pub(crate) fn find(&self, libraries: &[&CStr]) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a name with its NUL.
        let in_library = |library| unsafe { libc::dlsym(library, self.name.as_ptr()) };
        let loaded = |library: &&CStr| {
            // SAFETY: the same; nothing is loaded.
            let library =
                unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            Some(library).filter(|library| !library.is_null()).map(in_library)
        };
        let mut all =
            std::iter::once(in_library(libc::RTLD_NEXT)).chain(libraries.iter().filter_map(loaded));
        let found = all.find(|found| !found.is_null()).unwrap_or(std::ptr::null_mut());
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

/// The function of that name and type.
macro_rules! next {
    ($name:ident: $type:ty) => {{
        static NEXT: $crate::next::Next = $crate::next::Next::named(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            },
        );
        // SAFETY: the C library's function of that name has that type.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(NEXT.at()) }
    }};
}
pub(crate) use next;
