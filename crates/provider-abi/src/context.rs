//! Contexts of operations under way, as OpenSSL keeps them for a provider.
//!
//! A panic in one is caught; the context is then refused for good.
#![expect(unsafe_code, reason = "contexts are raw pointers of the C interface")]

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use crate::{Host, Refusal};

/// What an operation has of its own, and whether a panic broke it.
#[derive(Clone)]
pub struct Context<T> {
    state: T,
    host: Host,
    broken: bool,
}

impl<T> Context<T> {
    /// Hands a new context over to OpenSSL, which gives it back to [`free`]; null if there is none, or after a panic.
    pub fn hand_over(make: impl FnOnce() -> Option<(T, Host)>) -> *mut c_void {
        hand_over(|| {
            let (state, host) = make()?;
            Some(Self {
                state,
                host,
                broken: false,
            })
        })
    }
}

fn hand_over<T>(make: impl FnOnce() -> Option<Context<T>>) -> *mut c_void {
    let made = catch_unwind(AssertUnwindSafe(|| {
        Some(Box::into_raw(Box::new(make()?)).cast())
    }));
    made.ok().flatten().unwrap_or(std::ptr::null_mut())
}

/// Frees a context: `freectx`.
///
/// # Safety
/// `context` must be null or come from [`Context::hand_over`] or [`duplicate`] with the same `T`, and nobody may use it
/// again.
pub unsafe extern "C" fn free<T>(context: *mut c_void) {
    if context.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    let context = unsafe { Box::from_raw(context.cast::<Context<T>>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(context)));
}

/// Copies a context: `dupctx`.
///
/// # Safety
/// `context` must be null or come from [`Context::hand_over`] or [`duplicate`] with the same `T`, and nobody may change it
/// meanwhile.
pub unsafe extern "C" fn duplicate<T: Clone>(context: *mut c_void) -> *mut c_void {
    // SAFETY: as the caller promises.
    hand_over(|| unsafe { context.cast::<Context<T>>().as_ref() }.cloned())
}

/// Runs `work` on a context; the outcome for OpenSSL is 1 or 0.
///
/// # Safety
/// `context` must be null or come from [`Context::hand_over`] or [`duplicate`] with the same `T`, and nobody else may use
/// it meanwhile: OpenSSL leaves that to its callers, for contexts of all operations.
#[track_caller]
pub unsafe fn with<T, R: Refusal>(
    context: *mut c_void,
    work: impl FnOnce(&mut T) -> Result<(), R>,
) -> c_int {
    // SAFETY: as the caller promises.
    let Some(context) = (unsafe { context.cast::<Context<T>>().as_mut() }) else {
        return 0;
    };
    let state = &mut context.state;
    let refusal = if context.broken {
        R::BROKEN
    } else {
        match catch_unwind(AssertUnwindSafe(|| work(state))) {
            Ok(Ok(())) => return 1,
            Ok(Err(refusal)) => refusal,
            Err(_) => {
                context.broken = true;
                R::BROKEN
            }
        }
    };
    let host = context.host;
    // Formatting a message does not panic; if it ever did, the 0 below would still be returned.
    let place = Location::caller();
    let _ = catch_unwind(AssertUnwindSafe(|| refusal.raise(&host, place)));
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallError;

    struct Refused;

    impl From<CallError> for Refused {
        fn from(_: CallError) -> Self {
            Self
        }
    }

    impl Refusal for Refused {
        const BROKEN: Self = Self;

        fn raise(self, _host: &Host, _place: &Location<'_>) {}
    }

    fn handed_over(state: u8) -> *mut c_void {
        // SAFETY: a core without functions.
        let host = unsafe { Host::new(std::ptr::null(), std::ptr::null()) };
        Context::hand_over(|| Some((state, host)))
    }

    fn run(context: *mut c_void, work: fn(&mut u8) -> Result<(), Refused>) -> c_int {
        // SAFETY: null, or a context that nobody else uses.
        unsafe { with(context, work) }
    }

    #[test]
    fn a_panic_is_refused_and_breaks_the_context() {
        let context = handed_over(0);
        assert_eq!(run(context, |_| Ok(())), 1);
        assert_eq!(run(context, |_| panic!("on purpose")), 0);
        assert_eq!(run(context, |_| Ok(())), 0);
        // SAFETY: nobody uses it again.
        unsafe { free::<u8>(context) };
        assert_eq!(run(std::ptr::null_mut(), |_| Ok(())), 0);
    }

    #[test]
    fn a_copy_has_its_own_state() {
        let context = handed_over(1);
        // SAFETY: nobody changes it meanwhile.
        let copy = unsafe { duplicate::<u8>(context) };
        assert_eq!(
            run(context, |state| {
                *state = 2;
                Ok(())
            }),
            1
        );
        assert_eq!(
            run(copy, |state| if *state == 1 {
                Ok(())
            } else {
                Err(Refused)
            }),
            1
        );
        // SAFETY: neither is used again; null is none.
        unsafe {
            free::<u8>(context);
            free::<u8>(copy);
            free::<u8>(std::ptr::null_mut());
            assert!(duplicate::<u8>(std::ptr::null_mut()).is_null());
        }
    }

    #[test]
    fn nothing_is_handed_over_after_a_panic_or_without_a_provider() {
        assert!(Context::<u8>::hand_over(|| None).is_null());
        assert!(Context::<u8>::hand_over(|| panic!("on purpose")).is_null());
    }
}
