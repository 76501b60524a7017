// Which GMS sockets a folder holds, by their names alone: whether anything answers is not asked.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::gms {

struct FoundSocket {
  std::string path;
  /// Known where a link by device number leads to the socket.
  std::optional<int> device;
  std::string tag;
  /// Where the name says one in place of a number.
  std::string uuid = {};
};

/// What the file name gms_<device or uuid>_<tag>.sock says; nullopt for any other name. The path is
/// left empty.
std::optional<FoundSocket> parse_socket_name(std::string_view name);

/// One for each socket: by its link DIR/gms_<device>_<tag>.sock where there is one, those first and
/// in the order of devices and tags, else by its own path. Throws Error: kNoInput or kNotPermitted
/// for the folder, kBadData when it holds over 4096 of them.
std::vector<FoundSocket> find_sockets(const std::string& dir);

/// The devices that have a link with one of `tags` in `dir`, in order; none when there is no such
/// folder.
std::vector<int> find_devices(const std::string& dir, const std::vector<std::string>& tags);

}  // namespace fo::gms
