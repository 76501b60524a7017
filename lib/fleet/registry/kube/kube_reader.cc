#include "fleet/registry/kube/kube_reader.h"

#include <chrono>
#include <cstddef>
#include <map>
#include <utility>

#include "base/error.h"
#include "fleet/registry/kube/kube_view.h"
#include "fleet/registry/kube/service_objects.h"
#include "kube/client.h"
#include "loop/backoff.h"
#include "loop/both.h"
#include "loop/pause.h"
#include "os/log.h"
#include "os/log_limit.h"

namespace fo::fleet {
namespace {

using base::Deadline;
using base::Duration;
using base::Error;
using boost::asio::awaitable;

constexpr Duration kMinRetryPause = std::chrono::milliseconds(50);
constexpr Duration kMaxRetryPause = std::chrono::seconds(2);
constexpr Duration kListingTime = std::chrono::seconds(10);
// The time of one connection of a watch. An API server sends a bookmark in each minute; a
// connection on which nothing arrived may be dead.
constexpr Duration kKubeWatchTime = std::chrono::minutes(2);
constexpr std::size_t kMaxObjects = 1000;

// The objects of a collection, as its listings and watches report them.
class Mirror {
 public:
  struct Callbacks {
    /// The object is new, or has changed.
    std::function<void(const kube::Object&)> on_put;
    /// The object was deleted, or is absent from a new listing.
    std::function<void(const std::string& name)> on_removed;
  };
  Mirror(kube::Client& client, kube::Collection collection, std::string selector,
         Callbacks callbacks)
      : client_(client), collection_(std::move(collection)), callbacks_(std::move(callbacks)) {
    selection_.labels = std::move(selector);
  }

  awaitable<void> list(Deadline deadline) {
    kube::List list = co_await client_.list_all(collection_, selection_, deadline, kMaxObjects);
    std::map<std::string, std::size_t> absent = std::exchange(seen_, {});
    for (const kube::Object& object : list.objects) {
      const std::size_t content = content_of(object);
      const auto before = absent.find(object.name);
      const bool is_same = before != absent.end() && before->second == content;
      if (before != absent.end()) absent.erase(before);
      seen_[object.name] = content;
      if (!is_same) callbacks_.on_put(object);
    }
    for (const auto& [name, content] : absent) callbacks_.on_removed(name);
    version_ = std::move(list.resource_version);
  }

  /// Returns true if another watch can continue where this one has ended. Resets `backoff` at each
  /// event.
  awaitable<bool> watch(loop::Backoff& backoff) {
    bool has_answered = false;
    const std::function<bool(const kube::WatchEvent&)> on_event =
        [&](const kube::WatchEvent& event) {
          has_answered = true;
          backoff.reset();
          return apply(event);
        };
    const Deadline deadline = Deadline::after(kKubeWatchTime);
    const kube::Client::WatchEnd end =
        co_await client_.watch_once(collection_, selection_, version_, deadline, on_event);
    if (end != kube::Client::WatchEnd::kEnded) has_answered = false;
    co_return has_answered;
  }

 private:
  // A hash of the text identifies the content, because an API server that has lost its data may
  // reuse a resource version.
  static std::size_t content_of(const kube::Object& object) {
    return std::hash<std::string>()(object.text);
  }

  // False if there are too many objects.
  bool apply(const kube::WatchEvent& event) {
    const std::string& name = event.object.name;
    if (event.kind == kube::WatchEvent::Kind::kBookmark) return true;
    if (event.kind == kube::WatchEvent::Kind::kDeleted) {
      if (seen_.erase(name) > 0) callbacks_.on_removed(name);
      return true;
    }
    seen_[name] = content_of(event.object);
    if (seen_.size() > kMaxObjects) return false;
    callbacks_.on_put(event.object);
    return true;
  }

  kube::Client& client_;
  const kube::Collection collection_;
  kube::Selection selection_;
  const Callbacks callbacks_;
  // The present objects by name, and the resource version of the collection.
  std::map<std::string, std::size_t> seen_;
  std::string version_;
};

// Watches a collection that was listed. After any failure it is listed again, because objects may
// have vanished meanwhile, and the API server may have lost its data. `on_reached` is called after
// each listing with its success.
awaitable<void> follow(Mirror& mirror, std::function<void(bool)> on_reached) {
  os::LogLimit log_limit;
  loop::Backoff backoff(kMinRetryPause, kMaxRetryPause);
  bool is_listed = true;
  for (;;) {
    try {
      if (!is_listed) {
        const Deadline deadline = Deadline::after(kListingTime);
        co_await mirror.list(deadline);
        is_listed = true;
        on_reached(true);
      }
      is_listed = co_await mirror.watch(backoff);
    } catch (const Error& error) {
      if (!is_listed) on_reached(false);
      is_listed = false;
      log_limit.log(os::LogLevel::kWarning, error.what(), error.what());
    }
    co_await loop::pause_for(backoff.next());
  }
}

class KubeReader final : public RecordReader {
 public:
  explicit KubeReader(KubeReaderConfig config)
      : config_(std::move(config)), client_(config_.kube) {}

  awaitable<std::vector<Record>> list(std::string prefix, Deadline deadline) override {
    // The view reports a worker again if another slice has a better address of it.
    std::map<std::string, std::string> texts;
    KubeView view(config_.uri, std::move(prefix), [&](const RegistryChange& change) {
      if (change.kind == RegistryChange::Kind::kPut) {
        texts[change.record.key] = change.record.text;
      } else {
        texts.erase(change.record.key);
      }
    });
    // The records of workers contain members of their cards, so the cards are listed first.
    Mirror cards = mirror_cards(view);
    co_await cards.list(deadline);
    Mirror slices = mirror_slices(view);
    co_await slices.list(deadline);
    std::vector<Record> records;
    for (const auto& [key, text] : texts) records.push_back({key, text});
    co_return records;
  }

  awaitable<void> watch(std::string prefix,
                        std::function<void(const RegistryChange&)> on_change) override {
    KubeView view(config_.uri, std::move(prefix), on_change);
    Mirror cards = mirror_cards(view);
    Mirror slices = mirror_slices(view);
    co_await begin(cards, slices);
    on_change({RegistryChange::Kind::kListed});
    awaitable<void> cards_followed = follow(cards, [](bool) {});
    awaitable<void> slices_followed =
        follow(slices, [&](bool is_reached) { view.set_unreachable(!is_reached); });
    co_await loop::run_both(std::move(cards_followed), std::move(slices_followed));
  }

 private:
  Mirror mirror_slices(KubeView& view) {
    return {client_,
            endpoint_slices_in(config_.name_space),
            config_.selector,
            {[&view](const kube::Object& object) { view.put_slice(object); },
             [&view](const std::string& name) { view.remove_slice(name); }}};
  }
  Mirror mirror_cards(KubeView& view) {
    return {client_,
            config_maps_in(config_.name_space),
            config_.selector,
            {[&view](const kube::Object& object) { view.put_card(object); },
             [&view](const std::string& name) { view.remove_card(name); }}};
  }

  // Lists both collections, and retries until the API server is reachable.
  static awaitable<void> begin(Mirror& cards, Mirror& slices) {
    os::LogLimit log_limit;
    loop::Backoff backoff(kMinRetryPause, kMaxRetryPause);
    for (;;) {
      try {
        const Deadline deadline = Deadline::after(kListingTime);
        co_await cards.list(deadline);
        co_await slices.list(deadline);
        co_return;
      } catch (const Error& error) {
        if (!loop::is_transient(error)) throw;
        log_limit.log(os::LogLevel::kWarning, error.what(), error.what());
      }
      co_await loop::pause_for(backoff.next());
    }
  }

  const KubeReaderConfig config_;
  kube::Client client_;
};

}  // namespace

std::unique_ptr<RecordReader> make_kube_reader(KubeReaderConfig config) {
  return std::make_unique<KubeReader>(std::move(config));
}

}  // namespace fo::fleet
