// The KV memory of an engine that has it in a GMS. Who serves such memory knows two things that the
// device alone can't tell: whether the engine before still holds it, and how much it was.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <map>
#include <vector>

#include "base/deadline.h"
#include "base/units.h"
#include "engine/gms_watch.h"

namespace fo::engine {

class KvGate {
 public:
  /// The servers of KV memory, of which some may not be there.
  explicit KvGate(std::vector<GmsPlace> places) : places_(std::move(places)) {}

  /// Waits until no engine holds KV memory in any of them. Then by device: how much the last one
  /// had there, and so how much the next one is going to want; devices without a server, and those
  /// whose KV memory outlives its engine, are left out. Throws Error(kTryAgain) when `deadline`
  /// passes. A server that does not tell how much it was is warned of.
  boost::asio::awaitable<std::map<int, base::ByteCount>> settle(base::Deadline deadline);

  /// Whether any of them answers.
  boost::asio::awaitable<bool> is_served();

 private:
  std::vector<GmsPlace> places_;
};

}  // namespace fo::engine
