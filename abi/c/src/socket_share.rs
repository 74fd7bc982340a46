//! A share of a link for one socket, by the guard of this host's queues ([`unisono_socket_shares`]).

use crate::error::{CallStatus, guarded, set_error_text};
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::BorrowedFd;
use unisono_linux::Errno;
use unisono_socket_shares::share_socket;

/// Gives a socket a share of its own in a class of the policy that is in force for a link: while several
/// sockets of the class have packets waiting, they share the class by their weights. The administrator's
/// policy says which users may do so (`sockets`), and `unisono queue guard` has to run. The share ends when
/// the socket is closed; another call changes its class and weight.
///
/// Returns 0, or a negative number of errno(3): -ECONNREFUSED without a guard, -ENOENT if no policy has the
/// class, -EPERM if the policy does not permit it to this user, -ERANGE if it does not permit the weight,
/// -EDQUOT if this user has as many sockets as it permits, -ENOTSOCK if it is no socket for IPv4 or IPv6.
/// unisono_error_text() says what to do. The socket then has the share that it had before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_share_socket(
    socket: c_int,
    class_name: *const c_char,
    weight: f64,
) -> c_int {
    let mut result = -Errno::IO.raw_os_error();
    let refused = |errno: i32, text: &str| {
        set_error_text(text);
        -errno
    };
    guarded(|| {
        result = if socket < 0 {
            refused(Errno::BADF.raw_os_error(), &format!("{socket} is no descriptor; pass an open socket"))
        } else if class_name.is_null() {
            refused(Errno::INVAL.raw_os_error(), "class_name is NULL; pass the name of a class")
        } else {
            // SAFETY: not null, and a C string; the caller guarantees it.
            let class = unsafe { CStr::from_ptr(class_name) }.to_string_lossy();
            // SAFETY: not negative, and open during the call; the caller guarantees it.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            match share_socket(socket, &class, weight) {
                Ok(()) => 0,
                Err(error) => refused(error.errno(), &error.to_string()),
            }
        };
        CallStatus::Ok
    });
    result
}
