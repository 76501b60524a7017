// What a server answers to the requests that take nothing but its state: who may ask for what, and
// what is said. No socket, no clock, no device; what needs those is server.cc's.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_status.h"
#include "base/unique_fd.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/server_model.h"

namespace fo::gms {

/// A request that can't be done; the connection lives on. Thrown, and made into an answer by
/// refuse().
struct Refusal {
  std::string error;
  base::ExitStatus code = base::ExitStatus::kBadData;
};

struct Reply {
  std::string frame;
  /// They travel with the frame's first byte.
  std::vector<base::UniqueFd> fds;
  /// The server closes the connection after the answer.
  bool last = false;
  /// It is an error_response.
  bool refused = false;
};

template <typename Message>
Reply reply(const Message& message, bool last = false) {
  return {encode_frame(message), {}, last};
}
Reply refuse(const Refusal& refusal);

/// The answer to a first message that is no handshake; the last one of its connection.
Reply answer_unexpected(const ServerModel& model, const Request& request);

/// The answer to a first message of Dynamo's v1 profile, which other_protocol() knew by `mark`.
Reply refuse_other_protocol(const std::string& mark);

/// Whether the answer may take more than a few KiB.
bool has_long_answer(const Request& request);

/// Throws Refusal unless a session with this grant may ask for it.
void check_allowed(const Request& request, Grant grant);

/// Throws Refusal unless a layout has room for such allocations besides what it has.
void check_room(const Layout& layout, const std::vector<AllocationWish>& wishes);

/// The allocation, or a Refusal.
const Allocation& find_allocation(const ServerModel& model, const std::string& id);

/// Up to `most` allocations from a slot on, those of one tag where one is given, in slot order; and
/// the slot of the next one.
struct LayoutPage {
  std::vector<const Allocation*> allocations;
  std::optional<std::uint64_t> next_slot;
};
LayoutPage page_of(const Layout& layout, const ExportLayoutRequest& wanted, std::size_t most);

/// The answer to a request that is allowed; nullopt for one that takes a device or other processes.
/// Throws Refusal, and then nothing has changed; Error(kBadData) for an answer over the limit.
std::optional<Reply> answer_from_state(ServerModel& model, Request& request);

}  // namespace fo::gms
