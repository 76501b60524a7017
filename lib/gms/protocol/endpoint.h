// Finds a GMS: the path of its socket and the names of its links; and which users a client accepts
// as its server.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::gms {

/// The first of these that is not empty: `dir`, $GMS_SOCKET_DIR, $TMPDIR, /tmp.
std::string socket_dir_or_default(const std::string& dir);

/// The server's own socket, DIR/gms_<uuid>_<tag>.sock.
std::string socket_path(const std::string& dir, const base::GpuUuid& uuid, std::string_view tag);

/// The link for clients that do not query the driver for a uuid: DIR/gms_<device>_<tag>.sock.
std::string socket_link(const std::string& dir, base::DeviceOrdinal device, std::string_view tag);

/// The short link DIR/gms_<device>.sock, only for the tag "weights".
std::string weights_link(const std::string& dir, base::DeviceOrdinal device);

/// `socket` unless it is empty, else the link, or the server's own socket, in
/// socket_dir_or_default(`dir`).
std::string resolve_socket(const std::string& socket, const std::string& dir,
                           base::DeviceOrdinal device, std::string_view tag);
std::string resolve_socket(const std::string& socket, const std::string& dir,
                           const base::GpuUuid& uuid, std::string_view tag);

/// The user whose servers are accepted besides those of root and the client's own user, by default:
/// $GMS_SERVER_UID. Throws Error(kConfig) if it is not a user id.
std::optional<uid_t> server_uid_from_environment();

/// The file that exists while a bundle of servers is ready: DIR/gms-ready.
std::string ready_path(const std::string& dir);

}  // namespace fo::gms
