//! Calls as `_FORTIFY_SOURCE` makes them: with the room that there is.

/// Such a call: its name, and the call that it is. The room comes where the semicolon is; how many bytes it must have is
/// said at last.
macro_rules! fortified {
    (
        $name:ident: $call:ident($($before:ident: $type:ty),+; $($after:ident: $of:ty),*) -> $result:ty,
        $bytes:expr
    ) => {
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($before: $type,)+ room: usize, $($after: $of),*) -> $result {
            if $bytes > room {
                // SAFETY: ends the process.
                unsafe { libc::abort() };
            }
            // SAFETY: as the caller promises.
            unsafe { $call($($before,)+ $($after),*) }
        }
    };
}
