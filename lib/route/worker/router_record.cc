#include "route/worker/router_record.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/register_worker.h"
#include "json/object.h"
#include "loop/backoff.h"
#include "loop/pause.h"
#include "os/log.h"
#include "os/log_limit.h"

namespace fo::route {
namespace {

using base::Deadline;
using base::Error;
using boost::asio::awaitable;

constexpr base::Duration kTimeout = std::chrono::seconds(5);

fleet::Record make_router_record(const std::string& admin) {
  const std::string id = fleet::make_instance_id();
  return {.key = "routers/" + id, .text = fo::json::dump({{"id", id}, {"admin", admin}})};
}

}  // namespace

RouterRecord::RouterRecord(fleet::Registry& registry, const std::string& admin)
    : registry_(registry), record_(make_router_record(admin)) {}

awaitable<void> RouterRecord::maintain() {
  loop::Backoff backoff(std::chrono::milliseconds(100), std::chrono::seconds(5));
  os::LogLimit log_limit;
  while (!registered_) {
    try {
      const Deadline deadline = Deadline::after(kTimeout);
      registered_ = co_await registry_.register_record(record_, deadline);
    } catch (const Error& error) {
      log_limit.log(os::LogLevel::kWarning, error.what(),
                    std::string("register this router: ") + error.what());
    }
    if (!registered_) co_await loop::pause_for(backoff.next());
  }
  co_await registered_->maintain();
}

awaitable<void> RouterRecord::deregister() {
  if (registered_) co_await fleet::deregister_or_log(*registered_, kTimeout);
}

}  // namespace fo::route
