// The kernel's log: a record of /dev/kmsg, or lines of a file in pieces; and the GPU errors in it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "canary/xid/kernel_log.h"
#include "canary/xid/xid.h"
#include "canary/xid/xid_report.h"
#include "fuzz.h"

namespace {

using namespace fo::canary;
using fo::fuzz::require;

bool are_same(const std::vector<KernelMessage>& a, const std::vector<KernelMessage>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.text == other.text && one.uptime == other.uptime && one.time == other.time;
  });
}

std::vector<KernelMessage> read_lines(std::string_view text, std::size_t piece) {
  std::vector<KernelMessage> messages;
  LogLines lines([&](const KernelMessage& message) { messages.push_back(message); });
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    lines.append(text.substr(0, piece));
  }
  lines.finish();
  return messages;
}

void check_messages(const std::vector<KernelMessage>& messages) {
  XidReader reader;
  for (const KernelMessage& message : messages) {
    require(!message.uptime || message.uptime->count() >= 0, "an uptime is not negative");
    const auto xid = reader.read(message.text);
    if (!xid) continue;
    require(!xid->bus_id.empty() && canonical_bus_id(xid->bus_id) == xid->bus_id,
            "a GPU has one address");
    require(!advice_on(*xid).empty(), "each error has advice");
    require(class_of(*xid) != XidClass::kFatal || !name_of(xid->code).empty(),
            "a fatal error has a name");
    const std::string line = to_json(*xid, message);
    require(line.find('\n') == std::string::npos, "a report is one line");
    require(nlohmann::json::parse(line).at("xid") == xid->code, "a report is JSON");
  }
}

void fuzz_one(fo::fuzz::Input input) {
  const std::size_t piece = input.byte();
  const std::string_view text = input.rest();
  if (piece == 0) {
    std::vector<KernelMessage> messages;
    parse_kmsg(text, [&](const KernelMessage& message) { messages.push_back(message); });
    check_messages(messages);
    return;
  }
  const std::vector<KernelMessage> messages = read_lines(text, text.size());
  require(are_same(read_lines(text, piece), messages), "pieces make the same lines");
  check_messages(messages);
}

}  // namespace

FO_FUZZER(fuzz_one)
