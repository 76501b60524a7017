// The KV memory of an engine that keeps it in a GMS. The server knows what cannot be determined
// from the device alone: whether the previous engine still holds the memory, and its size.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <map>
#include <vector>

#include "base/deadline.h"
#include "engine/gms_watch.h"

namespace fo::engine {

class KvGate {
 public:
  /// `places` are the servers of KV memory, some of which may not exist.
  explicit KvGate(std::vector<GmsPlace> places) : places_(std::move(places)) {}

  /// Waits until no engine holds KV memory in any of the servers. Returns by device how many bytes
  /// the previous engine had there: the next engine needs as much. Devices without a server, and
  /// those whose KV memory outlives its engine, are left out. Throws Error(kTryAgain) if `deadline`
  /// passes. Logs a warning for a server that does not report the size.
  boost::asio::awaitable<std::map<base::DeviceOrdinal, base::ByteCount>> settle(
      base::Deadline deadline);

  /// Whether any of the servers answers.
  boost::asio::awaitable<bool> is_served();

 private:
  std::vector<GmsPlace> places_;
};

}  // namespace fo::engine
