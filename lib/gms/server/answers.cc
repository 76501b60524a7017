#include "gms/server/answers.h"

#include <algorithm>
#include <concepts>
#include <string_view>

#include "base/error.h"
#include "base/units.h"

namespace fo::gms {
namespace {

using base::ExitStatus;

// Requests that a client may send before any handshake.
template <typename Message>
concept FirstMessage = std::same_as<Message, HandshakeRequest> ||
    std::same_as<Message, GetRuntimeStateRequest> || std::same_as<Message, GetEventHistoryRequest>;

// Requests that need a writer with an unsealed layout.
template <typename Message>
concept WriterRequest =
    std::same_as<Message, CommitRequest> || std::same_as<Message, CommitLayoutRequest> ||
    std::same_as<Message, AllocateRequest> || std::same_as<Message, AllocateManyRequest> ||
    std::same_as<Message, FreeAllocationRequest> || std::same_as<Message, MetadataPutRequest> ||
    std::same_as<Message, MetadataPutManyRequest> || std::same_as<Message, MetadataDeleteRequest>;

void check_name(const char* what, const std::string& name) {
  if (name.size() <= kMaxName) return;
  throw Refusal{std::string(what) + " " + base::quoted(name) + ": " + std::to_string(name.size()) +
                " bytes, at most " + std::to_string(kMaxName) + " are allowed"};
}

void check_records(const Layout& layout, base::ByteCount more) {
  if (more <= kMaxLayoutRecords && layout.records() <= kMaxLayoutRecords - more) return;
  throw Refusal{"this layout's records are full: max " + base::format_size(kMaxLayoutRecords)};
}

base::ByteCount cost_of(const MetadataRecord& record) {
  return record_cost(record.key.size() + record.allocation_id.value().size() +
                     record.value.data.size());
}

// The text of Dynamo's server, without quotes, because log filters search for it.
Refusal unknown_allocation(const AllocationId& id) {
  const std::string shown = base::quoted(id.value());
  return {"Unknown allocation: " + shown.substr(1, shown.size() - 2)};
}

void check_put(const Layout& layout, const MetadataRecord& put) {
  check_name("key", put.key);
  if (put.value.data.size() > kMaxMetadataValue) {
    throw Refusal{"metadata " + base::quoted(put.key) + ": a value of " +
                  base::format_size(put.value.data.size()) + ", at most " +
                  base::format_size(kMaxMetadataValue) + " are allowed"};
  }
  switch (layout.check_put(put.allocation_id, put.offset_bytes)) {
    case Layout::PutResult::kDone:
      return;
    case Layout::PutResult::kUnknownAllocation:
      throw unknown_allocation(put.allocation_id);
    case Layout::PutResult::kOffsetOutOfRange:
      throw Refusal{"metadata " + base::quoted(put.key) + ": " +
                    (put.offset_bytes < 0 ? "offset_bytes must be >= 0, got "
                                          : "out of range of its allocation: offset ") +
                    std::to_string(put.offset_bytes)};
  }
}

void put(Layout& layout, MetadataRecord& record) {
  layout.put(std::move(record.key), std::move(record.allocation_id), record.offset_bytes,
             std::move(record.value.data));
}

// Whether `at` points to a key with this prefix.
bool in_prefix(const Metadata& metadata, Metadata::const_iterator at, std::string_view prefix) {
  return at != metadata.end() && at->first.starts_with(prefix);
}

Reply dump(const Metadata& metadata, const MetadataDumpRequest& wanted) {
  MetadataDumpResponse page;
  std::size_t size = 0;
  const bool from_the_start = wanted.after.empty() || wanted.after < wanted.prefix;
  auto at =
      from_the_start ? metadata.lower_bound(wanted.prefix) : metadata.upper_bound(wanted.after);
  for (; in_prefix(metadata, at, wanted.prefix); ++at) {
    size += size_on_wire(at->first, at->second);
    // A page never ends with the empty key, because a request after that key would start again.
    if (size > kMetadataPage && !page.entries.empty() && !page.entries.back().key.empty()) break;
    page.entries.push_back(to_record(at->first, at->second));
  }
  page.more = in_prefix(metadata, at, wanted.prefix);
  return reply(page);
}

// Returns the answer to a request; the requests missing here need more than the state.
class Answers {
 public:
  explicit Answers(ServerModel& model) : model_(model) {}

  std::optional<Reply> operator()(MetadataPutRequest& wanted) {
    check_put(layout(), wanted);
    check_records(layout(), cost_of(wanted));
    put(model_.layout(), wanted);
    return reply(MetadataPutResponse{true});
  }
  std::optional<Reply> operator()(MetadataPutManyRequest& wanted) {
    base::ByteCount more = 0;
    for (const MetadataRecord& one : wanted.entries) {
      check_put(layout(), one);
      more += cost_of(one);
    }
    check_records(layout(), more);
    for (MetadataRecord& one : wanted.entries) put(model_.layout(), one);
    return reply(MetadataPutManyResponse{true});
  }
  std::optional<Reply> operator()(MetadataDeleteRequest& wanted) {
    return reply(MetadataDeleteResponse{model_.layout().erase(wanted.key)});
  }
  std::optional<Reply> operator()(GetAllocationRequest& wanted) {
    return reply(GetAllocationResponse{to_record(find_allocation(model_, wanted.allocation_id))});
  }
  std::optional<Reply> operator()(ListAllocationsRequest& wanted) {
    ListAllocationsResponse response;
    for (const auto& [slot, allocation] : layout().allocations()) {
      if (!wanted.tag || *wanted.tag == allocation.tag) {
        response.allocations.push_back({to_record(allocation)});
      }
    }
    return reply(response);
  }
  std::optional<Reply> operator()(MetadataGetRequest& wanted) {
    const auto found = layout().metadata().find(wanted.key);
    if (found == layout().metadata().end()) return reply(MetadataGetResponse{});
    const MetadataEntry& entry = found->second;
    return reply(MetadataGetResponse{true, entry.allocation_id,
                                     static_cast<std::int64_t>(entry.offset_bytes),
                                     Bytes{entry.value}});
  }
  std::optional<Reply> operator()(MetadataListRequest& wanted) {
    MetadataListResponse response;
    const Metadata& metadata = layout().metadata();
    for (auto at = metadata.lower_bound(wanted.prefix); in_prefix(metadata, at, wanted.prefix);
         ++at) {
      response.keys.push_back(at->first);
    }
    return reply(response);
  }
  std::optional<Reply> operator()(MetadataDumpRequest& wanted) {
    return dump(layout().metadata(), wanted);
  }
  std::optional<Reply> operator()(GetLockStateRequest&) { return reply(model_.lock_state()); }
  std::optional<Reply> operator()(GetAllocationStateRequest&) {
    return reply(
        GetAllocationStateResponse{static_cast<std::int64_t>(layout().allocations().size())});
  }
  std::optional<Reply> operator()(GetMemoryLayoutHashRequest&) {
    return reply(GetMemoryLayoutHashResponse{model_.hash()});
  }
  template <typename Other>
  std::optional<Reply> operator()(Other&) {
    return std::nullopt;
  }

 private:
  [[nodiscard]] const Layout& layout() const { return std::as_const(model_).layout(); }
  ServerModel& model_;
};

}  // namespace

Reply refuse(const Refusal& refusal) {
  Reply answer = reply(ErrorResponse{refusal.error, base::to_int(refusal.code)});
  answer.refused = true;
  return answer;
}

Reply answer_unexpected(const ServerModel& model, const Request& request) {
  if (std::holds_alternative<GetRuntimeStateRequest>(request)) {
    return reply(model.runtime_state(), true);
  }
  if (std::holds_alternative<GetEventHistoryRequest>(request)) {
    return reply(GetEventHistoryResponse{model.events()}, true);
  }
  return reply(ErrorResponse{"Expected HandshakeRequest", 0}, true);
}

Reply refuse_other_protocol(const std::string& mark) {
  const V1ErrorResponse refusal{
      "this GPU memory service speaks Dynamo's default profile, and v1 was requested: " + mark};
  Reply answer = reply(refusal, true);
  answer.refused = true;
  return answer;
}

bool has_long_answer(const Request& request) {
  return std::holds_alternative<ListAllocationsRequest>(request) ||
         std::holds_alternative<MetadataGetRequest>(request) ||
         std::holds_alternative<MetadataListRequest>(request) ||
         std::holds_alternative<MetadataDumpRequest>(request) ||
         std::holds_alternative<AllocateManyRequest>(request) ||
         std::holds_alternative<ExportLayoutRequest>(request);
}

void check_allowed(const Request& request, Grant grant) {
  std::visit(
      [&]<typename Message>(const Message&) {
        if constexpr (FirstMessage<Message>) {
          throw Refusal{std::string(Message::kType) + ": only possible as the first message",
                        ExitStatus::kProtocol};
        } else if constexpr (WriterRequest<Message>) {
          if (grant != Grant::kRw) {
            throw Refusal{std::string(Message::kType) + ": not allowed for " +
                              (grant == Grant::kRo ? "RO" : "RW_DATA") + " session",
                          ExitStatus::kNotPermitted};
          }
        }
      },
      request);
}

void check_room(const Layout& layout, const std::vector<AllocationSpec>& specs) {
  constexpr std::size_t kIdSize = 36;
  base::ByteCount more = 0;
  for (const AllocationSpec& spec : specs) {
    check_name("tag", spec.tag);
    more += record_cost(kIdSize + spec.tag.size());
  }
  if (layout.allocations().size() + specs.size() > kMaxAllocations) {
    throw Refusal{"this layout has " + std::to_string(layout.allocations().size()) +
                  " allocations, at most " + std::to_string(kMaxAllocations) + " are allowed"};
  }
  check_records(layout, more);
}

const Allocation& find_allocation(const ServerModel& model, const AllocationId& id) {
  const Allocation* allocation = model.layout().find(id);
  if (allocation == nullptr) throw unknown_allocation(id);
  return *allocation;
}

LayoutPage page_of(const Layout& layout, const ExportLayoutRequest& wanted, std::size_t limit) {
  LayoutPage page;
  const auto first = static_cast<std::uint64_t>(std::max<std::int64_t>(wanted.first_slot, 0));
  const auto& allocations = layout.allocations();
  for (auto at = allocations.lower_bound(first); at != allocations.end(); ++at) {
    if (wanted.tag && *wanted.tag != at->second.tag) continue;
    if (page.allocations.size() == limit) {
      page.next_slot = at->first;
      break;
    }
    page.allocations.push_back(&at->second);
  }
  return page;
}

std::optional<Reply> answer_from_state(ServerModel& model, Request& request) {
  return std::visit(Answers(model), request);
}

}  // namespace fo::gms
