// Where a GMS is found: the paths of its socket, and the names it goes by; and by whom a client
// lets itself be served.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace fo::gms {

/// `dir`, or $GMS_SOCKET_DIR, or $TMPDIR, or /tmp: the first that is not empty.
std::string socket_dir_or_default(const std::string& dir);

/// The server's own socket, DIR/gms_<uuid>_<tag>.sock.
std::string socket_path(const std::string& dir, std::string_view uuid, std::string_view tag);

/// The link by which a server is found without asking the driver for a uuid:
/// DIR/gms_<device>_<tag>.sock.
std::string socket_link(const std::string& dir, int device, std::string_view tag);

/// The shorter link DIR/gms_<device>.sock, which only the tag "weights" has.
std::string weights_link(const std::string& dir, int device);

/// Whose servers a client accepts besides root's and its own user's where it is told nothing:
/// $GMS_SERVER_UID. Throws Error(kConfig) for what is not the number of a user.
std::optional<uid_t> server_uid_from_environment();

/// The file that stands while a bundle of servers is ready: DIR/gms-ready.
std::string ready_path(const std::string& dir);

}  // namespace fo::gms
