//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. What a thread that has panicked leaves is as sound as any: nothing here is changed in parts that belong
/// together.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
