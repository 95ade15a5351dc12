//! IREE's status values as results.

use mlxcel_iree_runtime_sys as sys;
use std::ffi::c_char;
use std::ptr;

/// `Ok` for a status that is; otherwise the text of the failure. Consumes the status.
pub(crate) fn check(status: sys::iree_status_t) -> Result<(), String> {
    if status.is_null() {
        return Ok(());
    }
    let allocator = sys::iree_allocator_system();
    let mut text: *mut c_char = ptr::null_mut();
    let mut length = 0;
    // SAFETY: `status` came from IREE and was not freed; on success IREE stores a buffer of
    // `length` bytes that it allocated with `allocator`.
    let message = unsafe {
        if sys::iree_status_to_string(status, &allocator, &mut text, &mut length) {
            let bytes = std::slice::from_raw_parts(text.cast::<u8>(), length);
            let message = String::from_utf8_lossy(bytes).into_owned();
            sys::iree_allocator_free(allocator, text.cast());
            message
        } else {
            format!("status {}", status as usize & STATUS_CODE_MASK)
        }
    };
    // SAFETY: a status that is not ok is owned by its receiver and freed once.
    unsafe { sys::iree_status_free(status) };
    Err(readable(&message))
}

/// The bits of a status that hold its code, where no text could be made.
const STATUS_CODE_MASK: usize = 0x1f;

/// The sentences of IREE's message, which comes as `file:line: CODE; sentence; sentence; [stack]`.
fn readable(message: &str) -> String {
    let mut parts = message.split(';').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let code = first.rsplit(": ").next().unwrap_or(first);
    let sentences: Vec<&str> = std::iter::once(code)
        .chain(parts.take_while(|part| {
            !part.starts_with("while invoking")
                && !part.starts_with("while calling")
                && !part.starts_with('[')
        }))
        .filter(|part| !part.is_empty())
        .collect();
    sentences.join("; ")
}

/// A string as IREE takes it; valid while `text` is.
pub(crate) fn view(text: &str) -> sys::iree_string_view_t {
    sys::iree_string_view_t {
        data: text.as_ptr().cast(),
        size: text.len() as _,
    }
}

/// A string as IREE gives it, copied.
///
/// # Safety
/// `view` is empty or points to `size` readable bytes.
pub(crate) unsafe fn text(view: sys::iree_string_view_t) -> String {
    if view.data.is_null() || view.size == 0 {
        return String::new();
    }
    // SAFETY: the caller promises `size` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(view.data.cast::<u8>(), view.size) };
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn keeps_what_a_reader_needs() {
        let check = |message, expect: &str| assert_eq!(readable(message), expect);
        check(
            "/src/iree/hal/x.c:120: NOT_FOUND; no parameter `w`; while invoking native function f; [ 1] bytecode",
            "NOT_FOUND; no parameter `w`",
        );
        check("OUT_OF_RANGE", "OUT_OF_RANGE");
        check("", "");
    }
}
