#include "etcd/watch_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace fo::etcd {

WatchStream::WatchStream(Watch watch) : watch_(std::move(watch)), lines_(kMaxMessageBytes) {}

Request WatchStream::begin() {
  lines_ = net::LineBuffer(kMaxMessageBytes);
  repeated_ = returned_;
  return etcd::watch(watch_);
}

std::optional<WatchMessage> WatchStream::next() {
  const std::optional<std::string> line = lines_.take_line();
  if (!line) return std::nullopt;
  WatchMessage message = decode_watch(*line);
  note(message);
  return message;
}

void WatchStream::note(WatchMessage& message) {
  if (message.is_ended || message.compacted != 0) return;
  if (message.events.empty()) {
    // A message without events confirms that all events up to its revision were sent. The first
    // message does not: its revision is only the start of a watch without a revision.
    if (!message.is_created || watch_.from == 0) go_to(std::max(watch_.from, message.revision + 1));
    return;
  }
  std::erase_if(message.events, [this](const Event& event) {
    if (event.key.modified > watch_.from) return false;
    if (event.key.modified == watch_.from && repeated_ == 0) return false;
    if (event.key.modified == watch_.from) --repeated_;
    return true;
  });
  const auto is_earlier = [](const Event& a, const Event& b) {
    return a.key.modified < b.key.modified;
  };
  if (!std::is_sorted(message.events.begin(), message.events.end(), is_earlier)) {
    throw base::Error(base::ExitStatus::kProtocol,
                      "watch etcd: events are not in the order of their revisions");
  }
  for (const Event& event : message.events) {
    if (event.key.modified > watch_.from) go_to(event.key.modified);
    ++returned_;
  }
  if (!message.is_fragment && returned_ > 0) go_to(watch_.from + 1);
}

void WatchStream::go_to(Revision revision) {
  if (revision != watch_.from) returned_ = 0;
  watch_.from = revision;
}

}  // namespace fo::etcd
