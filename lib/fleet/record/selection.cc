#include "fleet/record/selection.h"

#include <utility>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/registry/key.h"
#include "os/log.h"

namespace fo::fleet {

using base::Deadline;
using boost::asio::awaitable;

awaitable<std::vector<Record>> find_instances(Registry& registry, Selection selection,
                                              Deadline deadline) {
  std::vector<Record> found;
  std::string prefix = "instances/";
  std::vector<Record> records = co_await registry.list(std::move(prefix), deadline);
  for (Record& record : records) {
    try {
      const bool is_selected = selection.host.empty()
                                   ? id_of(record.key) == selection.id
                                   : decode_instance(record).host == selection.host;
      if (is_selected) found.push_back(std::move(record));
    } catch (const base::Error& error) {
      os::log(os::LogLevel::kWarning, "{}", error.what());
    }
  }
  co_return found;
}

awaitable<std::size_t> edit_instances(Registry& registry, Selection selection, Edit edit,
                                      Deadline deadline) {
  const std::vector<Record> records =
      co_await find_instances(registry, std::move(selection), deadline);
  std::size_t count = 0;
  for (const Record& record : records) {
    const bool is_there = co_await registry.edit(record.key, edit, deadline);
    if (is_there) ++count;
  }
  co_return count;
}

}  // namespace fo::fleet
