//! The XDP program of a device: it sees every frame that arrives, before the network stack does.
//!
//! The driver of the device runs the program (native XDP); none is attached to a device whose driver cannot.
//! The program stays when its process ends. These requests never replace a program that the caller does not
//! name. Reference: include/uapi/linux/if_link.h (`IFLA_XDP`); replacing needs Linux 5.7.

use super::link::{Index, NEW_LINK, READ_LINKS, head};
use super::message::{NetlinkRequest, TABLE, attribute, number};
use super::{NetlinkSocket, Refused};
use std::os::fd::{AsRawFd, BorrowedFd};

const XDP: u16 = 43;
const DESCRIPTOR: u16 = 1;
const FLAGS: u16 = 3;
const EXPECTED_DESCRIPTOR: u16 = 8;
/// The numbers of the program: of the only one, or of those in the driver, before the stack, in hardware.
const NUMBERS: [u16; 4] = [4, 5, 6, 7];
/// Attach only if the device has no program.
const IF_NONE: u32 = 1 << 0;
/// The driver runs the program.
const NATIVE: u32 = 1 << 2;
/// Attach in place of the expected program.
const REPLACE: u32 = 1 << 4;
const NONE: i32 = -1;

/// Returns the kernel's number of a device's program, if it has one.
pub fn program_of(socket: &mut NetlinkSocket, device: Index) -> Result<Option<u32>, Refused> {
    let what = format!("ask for the XDP program of device {}", device.0);
    let request = NetlinkRequest::new(what, READ_LINKS, TABLE, &head(None, 0, 0));
    let links = socket.table(&request, 16)?;
    let xdp = links.iter().find(|link| link.word(4) == device.0).and_then(|link| link.attribute(XDP));
    let id = xdp.and_then(|xdp| NUMBERS.iter().find_map(|kind| number(attribute(xdp, *kind)?)));
    Ok(id.and_then(|id| u32::try_from(id).ok()).filter(|id| *id != 0))
}

/// Attaches a program to a device. Fails with `EBUSY` if the device has one, and with `EOPNOTSUPP` if its
/// driver runs no programs.
pub fn attach(device: Index, program: BorrowedFd<'_>) -> NetlinkRequest {
    let what = format!("attach an XDP program to device {}", device.0);
    request(what, device, program.as_raw_fd(), IF_NONE, None)
}

/// Attaches a program in place of another one. Fails if the device has a third one by now.
pub fn replace(device: Index, program: BorrowedFd<'_>, earlier: BorrowedFd<'_>) -> NetlinkRequest {
    let what = format!("replace the XDP program of device {}", device.0);
    request(what, device, program.as_raw_fd(), REPLACE, Some(earlier))
}

/// Detaches a program. Fails if the device has another one by now.
pub fn detach(device: Index, program: BorrowedFd<'_>) -> NetlinkRequest {
    let what = format!("detach the XDP program of device {}", device.0);
    request(what, device, NONE, REPLACE, Some(program))
}

fn request(
    what: String,
    device: Index,
    descriptor: i32,
    flags: u32,
    expected: Option<BorrowedFd<'_>>,
) -> NetlinkRequest {
    let mut request = NetlinkRequest::new(what, NEW_LINK, 0, &head(Some(device), 0, 0));
    request.nest(XDP, |xdp| {
        let flags = flags | NATIVE;
        xdp.attribute(DESCRIPTOR, &descriptor.to_ne_bytes()).attribute(FLAGS, &flags.to_ne_bytes());
        if let Some(expected) = expected {
            xdp.attribute(EXPECTED_DESCRIPTOR, &expected.as_raw_fd().to_ne_bytes());
        }
    });
    request
}
