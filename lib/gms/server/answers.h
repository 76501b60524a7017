// A server's answers to requests that need only its state, and the rules on the requests that a
// session may send. No socket, no clock, no device: ServedLayout answers requests that need those.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "base/unique_fd.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/server_model.h"

namespace fo::gms {

/// A request that cannot be fulfilled; the connection stays usable. Thrown, and turned into an
/// answer by refuse().
struct Refusal {
  std::string error;
  base::ExitStatus code = base::ExitStatus::kBadData;
};

struct Reply {
  std::string frame;
  /// Sent with the frame's first byte.
  std::vector<base::UniqueFd> fds;
  /// The server closes the connection after this answer.
  bool last = false;
  /// The answer is an error_response.
  bool refused = false;
};

template <typename Message>
Reply reply(const Message& message, bool last = false) {
  return {encode_frame(message), {}, last};
}
Reply refuse(const Refusal& refusal);

/// The answer to a first message that is not a handshake; the last one of its connection.
Reply answer_unexpected(const ServerModel& model, const Request& request);

/// The answer to a first message of Dynamo's v1 profile, which other_protocol() recognised by
/// `mark`.
Reply refuse_other_protocol(const std::string& mark);

/// Whether the answer may be longer than a few KiB.
bool has_long_answer(const Request& request);

/// Throws Refusal unless a session with this grant may send the request.
void check_allowed(const Request& request, Grant grant);

/// Throws Refusal unless the layout has room for these allocations.
void check_room(const Layout& layout, const std::vector<AllocationSpec>& specs);

/// The allocation; throws Refusal for an unknown id.
const Allocation& find_allocation(const ServerModel& model, const AllocationId& id);

/// Up to `limit` allocations from a slot on, in slot order, optionally of one tag; and the next
/// slot.
struct LayoutPage {
  std::vector<const Allocation*> allocations;
  std::optional<std::uint64_t> next_slot;
};
LayoutPage page_of(const Layout& layout, const ExportLayoutRequest& wanted, std::size_t limit);

/// The answer to an allowed request; nullopt for one that needs the device or other processes.
/// Throws Refusal without any change; Error(kBadData) for an answer over the limit.
std::optional<Reply> answer_from_state(ServerModel& model, Request& request);

}  // namespace fo::gms
