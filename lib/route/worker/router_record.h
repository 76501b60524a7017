// The record of this router in the registry: the routers of a fleet share the slots of its workers.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>

#include "base/deadline.h"
#include "fleet/registry/registry.h"

namespace fo::route {

class RouterRecord {
 public:
  /// `admin` is the path of the admin socket. The registry outlives this object.
  RouterRecord(fleet::Registry& registry, const std::string& admin);
  RouterRecord(const RouterRecord&) = delete;
  RouterRecord& operator=(const RouterRecord&) = delete;

  /// Keeps the record in the registry until it is cancelled. Logs what fails, and tries again.
  boost::asio::awaitable<void> maintain();
  /// Deregisters, if the record was written; logs what fails.
  boost::asio::awaitable<void> deregister();

 private:
  fleet::Registry& registry_;
  const fleet::Record record_;
  std::unique_ptr<fleet::RegisteredRecord> registered_;
};

}  // namespace fo::route
