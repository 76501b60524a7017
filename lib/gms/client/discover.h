// Lists the GMS sockets of a folder by their names. It does not check whether a server answers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"

namespace fo::gms {

struct FoundSocket {
  std::string path;
  /// Known if a link by device index points to the socket.
  std::optional<base::DeviceOrdinal> device;
  std::string tag;
  /// Set if the name contains a uuid instead of an index.
  std::string uuid = {};
};

/// Parses the file name gms_<device or uuid>_<tag>.sock; nullopt for any other name. The path is
/// left empty.
std::optional<FoundSocket> parse_socket_name(std::string_view name);

/// One entry for each socket: with the path of its link DIR/gms_<device>_<tag>.sock, if there is
/// one, else with its own. Entries with a link come first, ordered by device and tag. Throws Error:
/// kNoInput or kNotPermitted for the folder, kBadData for more than 4096 sockets.
std::vector<FoundSocket> find_sockets(const std::string& dir);

/// The devices with a link for one of `tags` in `dir`, in order; empty if the folder does not
/// exist.
std::vector<base::DeviceOrdinal> find_devices(const std::string& dir,
                                              const std::vector<std::string>& tags);

}  // namespace fo::gms
