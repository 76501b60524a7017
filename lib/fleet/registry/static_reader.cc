#include "fleet/registry/static_reader.h"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <map>
#include <utility>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/record/worker_url.h"
#include "loop/event.h"
#include "text/ascii.h"

namespace fo::fleet {
namespace {

using base::Deadline;
using boost::asio::awaitable;

class StaticReader final : public RecordReader {
 public:
  explicit StaticReader(std::vector<Record> records) : records_(std::move(records)) {}

  awaitable<std::vector<Record>> list(std::string prefix, Deadline) override {
    std::vector<Record> found;
    std::copy_if(records_.begin(), records_.end(), std::back_inserter(found),
                 [&](const Record& record) { return record.key.starts_with(prefix); });
    co_return found;
  }

  awaitable<void> watch(std::string prefix,
                        std::function<void(const RegistryChange&)> on_change) override {
    for (const Record& record : records_) {
      if (record.key.starts_with(prefix)) on_change({RegistryChange::Kind::kPut, record});
    }
    on_change({RegistryChange::Kind::kListed});
    loop::Event never(co_await boost::asio::this_coro::executor);
    for (;;) co_await never.wait();
  }

 private:
  // Sorted by key.
  const std::vector<Record> records_;
};

}  // namespace

std::unique_ptr<RecordReader> make_static_reader(std::string_view urls) {
  const EndpointId endpoint{"static", "worker", "generate"};
  const AllowedWorkers any_network(kAnyNetwork);
  std::map<std::string, std::string> texts;
  for (const std::string_view url : text::split(urls, ',')) {
    Instance worker;
    worker.url = url;
    static_cast<void>(any_network.check(worker.url));
    worker.id = derived_instance_id(worker.url);
    worker.life = Life::kReady;
    const bool is_new = texts.emplace(instance_key(endpoint, worker.id), encode(worker)).second;
    if (!is_new) {
      throw base::Error(base::ExitStatus::kUsage,
                        "URL " + base::quoted(worker.url) + ": appears twice");
    }
  }
  std::vector<Record> records;
  for (auto& [key, text] : texts) records.push_back({key, std::move(text)});
  return std::make_unique<StaticReader>(std::move(records));
}

}  // namespace fo::fleet
