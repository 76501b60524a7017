#include "fleet/engine_query.h"

#include <utility>

#include "base/error.h"
#include "base/strong.h"
#include "base/text.h"
#include "http/message.h"
#include "os/file/file.h"

namespace fo::fleet {

using base::Deadline;
using boost::asio::awaitable;

namespace {

constexpr std::size_t kMaxMetricsBytes = 4 * 1024 * 1024;

}  // namespace

http::Fields key_headers(const std::string& key_file) {
  http::Fields headers;
  if (key_file.empty()) return headers;
  const std::string key = base::one_line(os::read_file(key_file, base::kMiB));
  if (key.empty()) {
    throw base::Error(base::ExitStatus::kBadData, "read " + base::quoted(key_file) + ": no key");
  }
  headers.emplace_back("authorization", "Bearer " + key);
  return headers;
}

awaitable<EnginePage> get_page(http::Connection& connection, std::string target,
                               http::Fields headers, std::size_t max_bytes, Deadline deadline) {
  http::RequestHead head;
  head.target = std::move(target);
  head.headers = std::move(headers);
  co_await connection.send(head, {}, deadline);
  const http::ResponseHead answered = co_await connection.read_head(deadline);
  EnginePage page;
  page.status = answered.status;
  std::string space(16384, '\0');
  for (;;) {
    const std::size_t count = co_await connection.read_some(space, deadline);
    if (count == 0) break;
    page.is_too_long = page.text.size() + count > max_bytes;
    if (page.is_too_long) break;
    page.text.append(space, 0, count);
  }
  co_return page;
}

awaitable<std::optional<EngineLoad>> query_engine_load(http::Origin origin, std::string base_path,
                                                       http::Fields headers, Deadline deadline) {
  const std::string what = "read an engine's load";
  const auto connection = co_await http::Connection::open(std::move(origin), deadline, what);
  std::string target = std::move(base_path) + "/metrics";
  const EnginePage metrics = co_await get_page(*connection, std::move(target), std::move(headers),
                                               kMaxMetricsBytes, deadline);
  std::optional<EngineLoad> load;
  if (metrics.status == 200 && !metrics.is_too_long) load = read_engine_load(metrics.text);
  co_return load;
}

}  // namespace fo::fleet
