#include "gms/server/served_layout.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "gms/protocol/layout_hash.h"
#include "gms/protocol/layout_record.h"
#include "loop/spawn.h"
#include "os/file/file.h"
#include "os/file/random.h"
#include "os/socket/fd_passing.h"

namespace fo::gms {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::use_awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using os::LogLevel;

// Size of the part of a layout that is hashed or written, about a millisecond's work, before other
// clients are served.
constexpr std::size_t kHashedAtOnce = std::size_t{256} * 1024;

}  // namespace

void ServedLayout::restore(StoredLayout stored_layout) {
  LayoutRecord record = read_record(stored_layout.record.get());
  const auto& allocations = record.layout.allocations();
  if (allocations.size() != stored_layout.memory.size()) {
    throw Error(ExitStatus::kSoftware, "restore a layout: descriptors for " +
                                           std::to_string(stored_layout.memory.size()) + " of " +
                                           base::counted(allocations.size(), "allocation"));
  }
  std::size_t next = 0;
  for (const auto& [slot, allocation] : allocations) {
    memory_.emplace(allocation.allocation_id,
                    std::make_shared<ServedMemory>(std::move(stored_layout.memory[next++]),
                                                   allocation.aligned_size));
    bytes_ += allocation.aligned_size;
  }
  is_protected_ = true;
  os::log(LogLevel::kInfo, "restored {}, layout {}: {}",
          base::counted(allocations.size(), "allocation"), record.hash.value(), parts_.label);
  parts_.model.restore(std::move(record.layout), std::move(record.hash), record.published);
  epoch_ = parts_.model.layout_epoch();
}

ServedLayout::Answer ServedLayout::answer(SessionPtr session, const Request& request) {
  if (const auto* one = std::get_if<AllocateRequest>(&request)) {
    co_return co_await answer_allocate(session, *one);
  }
  if (const auto* many = std::get_if<AllocateManyRequest>(&request)) {
    co_return co_await answer_allocate_many(session, *many);
  }
  if (const auto* wanted = std::get_if<ExportAllocationRequest>(&request)) {
    co_return co_await answer_export(session, *wanted);
  }
  if (const auto* wanted = std::get_if<ExportLayoutRequest>(&request)) {
    co_return co_await answer_export_layout(session, *wanted);
  }
  if (const auto* wanted = std::get_if<FreeAllocationRequest>(&request)) {
    co_return answer_free(*wanted);
  }
  const bool publish = std::holds_alternative<CommitRequest>(request);
  co_return co_await answer_commit(session, publish);
}

Reply ServedLayout::answer_free(const FreeAllocationRequest& wanted) {
  const auto found = memory_.find(wanted.allocation_id);
  if (found == memory_.end()) return reply(FreeAllocationResponse{false});
  bytes_ -= found->second->size();
  parts_.pool.release({std::move(found->second)});
  memory_.erase(found);
  return reply(FreeAllocationResponse{parts_.model.layout().remove(wanted.allocation_id)});
}

// The device memory for an allocation of this size. Throws Refusal for more than the device has.
base::ByteCount ServedLayout::aligned_size(std::int64_t size) const {
  if (size <= 0) {
    throw Refusal{"allocate " + std::to_string(size) + " bytes: size must be > 0"};
  }
  const auto bytes = static_cast<base::ByteCount>(size);
  const base::ByteCount aligned = base::round_up(bytes, parts_.config.device.granularity);
  if (aligned == 0 || aligned > parts_.config.device.total_memory) throw too_big(bytes);
  return aligned;
}

Refusal ServedLayout::too_big(base::ByteCount bytes) const {
  return {"allocate " + base::format_size(bytes) + ": the device has " +
          base::format_size(parts_.config.device.total_memory)};
}

AllocateResponse ServedLayout::add_allocation(const AllocationSpec& spec, Memory memory) {
  const Allocation& made =
      parts_.model.layout().add(AllocationId(os::make_uuid4()),
                                static_cast<base::ByteCount>(spec.size), memory->size(), spec.tag);
  bytes_ += made.aligned_size;
  memory_.emplace(made.allocation_id, std::move(memory));
  return {made.allocation_id, spec.size, static_cast<std::int64_t>(made.aligned_size),
          static_cast<std::int64_t>(made.layout_slot)};
}

ServedLayout::Answer ServedLayout::answer_allocate(SessionPtr session,
                                                   const AllocateRequest& request) {
  const AllocationSpec spec{request.size, request.tag};
  check_room(parts_.model.layout(), {spec});
  std::vector<base::ByteCount> sizes{aligned_size(spec.size)};
  std::vector<Memory> memory = co_await create_memory(session, std::move(sizes));
  if (memory.empty()) co_return std::nullopt;
  co_return reply(add_allocation(spec, std::move(memory.front())));
}

ServedLayout::Answer ServedLayout::answer_allocate_many(SessionPtr session,
                                                        const AllocateManyRequest& request) {
  const auto& specs = request.allocations;
  if (specs.empty()) throw Refusal{"an empty list of allocations"};
  check_room(parts_.model.layout(), specs);
  std::vector<base::ByteCount> sizes;
  base::ByteCount sum = 0;
  for (const AllocationSpec& spec : specs) {
    sizes.push_back(aligned_size(spec.size));
    sum += sizes.back();
    if (sum > parts_.config.device.total_memory) throw too_big(sum);
  }
  std::vector<Memory> memory = co_await create_memory(session, std::move(sizes));
  if (memory.empty()) co_return std::nullopt;
  AllocateManyResponse response;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    response.allocations.push_back(add_allocation(specs[i], std::move(memory[i])));
  }
  co_return reply(response);
}

// Device memory of these sizes; waits for free memory as configured. Empty if the client
// disconnected.
awaitable<std::vector<MemoryPool::Memory>> ServedLayout::create_memory(
    SessionPtr session, std::vector<base::ByteCount> sizes) {
  const auto deadline = Deadline::after(parts_.config.alloc_retry_timeout);
  std::vector<Memory> made;
  for (bool first = true;; first = false) {
    std::vector<base::ByteCount> missing(sizes.begin() + static_cast<std::ptrdiff_t>(made.size()),
                                         sizes.end());
    MemoryPool::Created more = co_await parts_.pool.create(std::move(missing));
    for (Memory& one : more.memory) made.push_back(std::move(one));
    if (made.size() == sizes.size()) co_return made;
    const base::ByteCount size = sizes[made.size()];
    if (!more.has_descriptors) {
      parts_.pool.release(std::move(made));
      throw not_made(size, "no descriptors left (ulimit -n)");
    }
    if (first) {
      parts_.model.add_event("allocation_oom", parts_.model.layout().allocations().size());
      loop::spawn(parts_.io, log_shortage(size, session->peer, session->label(parts_.label)));
    }
    const bool in_time = !deadline.expired();
    if (in_time) {
      const base::Duration pause =
          std::min(parts_.config.alloc_retry_interval, *deadline.remaining());
      co_await wait_for_change(session, Deadline::after(pause));
    }
    const bool alive = session->connection.is_alive();
    if (in_time && alive) {
      parts_.counters.oom_retries.add();
      continue;
    }
    parts_.pool.release(std::move(made));
    if (!alive) co_return std::vector<Memory>();
    parts_.counters.oom_refusals.add();
    throw not_made(size, "out of memory");
  }
}

Refusal ServedLayout::not_made(base::ByteCount size, const std::string& reason) const {
  return {"allocate " + base::format_size(size) + " on device " +
              std::to_string(parts_.config.device.ordinal.value()) + ": " + reason,
          ExitStatus::kTryAgain};
}

// Logs how much of the device's memory this layout and others use.
awaitable<void> ServedLayout::log_shortage(base::ByteCount size, os::PeerCredentials peer,
                                           std::string client) {
  const base::ByteCount ours = bytes_;
  std::string use = fmt::format("this layout has {} in {}", base::format_size(ours),
                                base::counted(memory_.size(), "allocation"));
  const std::optional<cuda::MemoryInfo> info = co_await parts_.pool.memory_info();
  if (info) {
    const base::ByteCount used = info->total - info->free;
    use += fmt::format(", others {}, of {}", base::format_size(used > ours ? used - ours : 0),
                       base::format_size(info->total));
  }
  parts_.log.write(peer, LogLevel::kWarning, "out of memory for {}, retrying: {}: {}",
                   base::format_size(size), use, client);
}

ServedLayout::Answer ServedLayout::answer_export(SessionPtr session,
                                                 const ExportAllocationRequest& request) {
  static_cast<void>(find_allocation(parts_.model, request.allocation_id));
  const bool is_reading = co_await session->connection.make_room(1, kPeerTimeout);
  if (!is_reading) co_return std::nullopt;
  const Allocation& allocation = find_allocation(parts_.model, request.allocation_id);
  Reply answer = reply(ExportAllocationResponse{to_record(allocation)});
  std::vector<Memory> memory{memory_.at(allocation.allocation_id)};
  answer.fds = co_await parts_.pool.export_fds(std::move(memory));
  parts_.counters.exports.add();
  co_return answer;
}

ServedLayout::Answer ServedLayout::answer_export_layout(SessionPtr session,
                                                        const ExportLayoutRequest& request) {
  const std::size_t most = std::min({os::kMaxFdsPerMessage, parts_.config.max_unread_fds,
                                     parts_.model.layout().allocations().size()});
  const bool is_reading = co_await session->connection.make_room(most, kPeerTimeout);
  if (!is_reading) co_return std::nullopt;
  const LayoutPage page = page_of(parts_.model.layout(), request, most);
  ExportLayoutResponse response;
  std::vector<Memory> memory;
  for (const Allocation* allocation : page.allocations) {
    response.allocations.push_back({to_record(*allocation)});
    memory.push_back(memory_.at(allocation->allocation_id));
  }
  if (page.next_slot) response.next_slot = static_cast<std::int64_t>(*page.next_slot);
  response.memory_layout_hash = parts_.model.hash();
  Reply answer = reply(response);
  if (!memory.empty()) answer.fds = co_await parts_.pool.export_fds(std::move(memory));
  parts_.counters.exports.add(answer.fds.size());
  co_return answer;
}

// The layout cannot change while others are served: it belongs to the writer, who waits for the
// answer.
awaitable<LayoutHash> ServedLayout::compute_hash() {
  LayoutHasher hasher(std::as_const(parts_.model).layout());
  while (hasher.step(kHashedAtOnce)) co_await asio::post(parts_.io, use_awaitable);
  co_return hasher.finish();
}

// A file with the layout's record; empty without a free descriptor or memory for it.
awaitable<base::UniqueFd> ServedLayout::write_record(const LayoutHash& hash, bool published) {
  base::UniqueFd file(::memfd_create("gms-layout", MFD_CLOEXEC));
  RecordWriter writer(std::as_const(parts_.model).layout(), hash, published);
  for (std::string part = writer.next(); file && !part.empty(); part = writer.next()) {
    try {
      os::write_all(file.get(), part, "write a layout's record");
    } catch (const Error&) {
      file.reset();
    }
    co_await asio::post(parts_.io, use_awaitable);
  }
  co_return file;
}

// Publishes or seals the layout. The parent stores it before any client sees it.
ServedLayout::Answer ServedLayout::answer_commit(SessionPtr session, bool publish) {
  LayoutHash hash = co_await compute_hash();
  const std::string label = session->label(parts_.label);
  if (parts_.fd_store) co_await keep(*session, hash, publish);
  const std::size_t count = parts_.model.layout().allocations().size();
  parts_.log.write(session->peer, LogLevel::kInfo, "{} {}, layout {}: {}",
                   publish ? "published" : "sealed", base::counted(count, "allocation"),
                   hash.value(), label);
  (publish ? parts_.counters.commits : parts_.counters.seals).add();
  if (publish) {
    parts_.model.publish(std::move(hash));
    co_return reply(CommitResponse{true}, true);
  }
  parts_.model.seal(std::move(hash));
  const CommitLayoutResponse response{true, parts_.model.hash(),
                                      std::string(to_string(Grant::kRwData))};
  co_return reply(response);
}

awaitable<void> ServedLayout::keep(const Session& session, const LayoutHash& hash, bool published) {
  std::vector<Memory> memory;
  for (const auto& [slot, allocation] : parts_.model.layout().allocations()) {
    memory.push_back(memory_.at(allocation.allocation_id));
  }
  base::UniqueFd record = co_await write_record(hash, published);
  FdStoreClient::Answer answer;
  if (record) answer = co_await parts_.fd_store->begin(std::move(record), memory.size());
  const std::size_t most = std::min(os::kMaxFdsPerMessage, parts_.config.max_unread_fds);
  for (std::size_t at = 0; answer.accepted && at < memory.size();) {
    const std::size_t end = std::min(at + most, memory.size());
    std::vector<Memory> part(memory.begin() + static_cast<std::ptrdiff_t>(at),
                             memory.begin() + static_cast<std::ptrdiff_t>(end));
    std::vector<base::UniqueFd> fds;
    try {
      fds = co_await parts_.pool.export_fds(std::move(part));
    } catch (const base::Error& error) {
      if (error.status() != ExitStatus::kTryAgain) throw;
      answer = {};
      break;
    }
    answer = co_await parts_.fd_store->add(std::move(fds));
    at = end;
  }
  if (answer.accepted) answer = co_await parts_.fd_store->keep();
  is_protected_ = answer.accepted;
  if (is_protected_) co_return;
  parts_.log.write(session.peer, LogLevel::kWarning,
                   "layout {} is not protected against a crash of this server: it takes {}, "
                   "there is room for {} (raise the limit on open files): {}",
                   hash.value(), base::counted(memory.size() + 1, "descriptor"), answer.room,
                   parts_.label);
}

void ServedLayout::drop_if_changed() {
  if (parts_.model.layout_epoch() == epoch_) return;
  epoch_ = parts_.model.layout_epoch();
  if (!memory_.empty()) parts_.counters.layouts_dropped.add();
  bytes_ = 0;
  is_protected_ = false;
  std::vector<Memory> dropped;
  for (auto& [id, memory] : memory_) dropped.push_back(std::move(memory));
  memory_.clear();
  parts_.pool.release(std::move(dropped));
}

void ServedLayout::update_gauges() {
  parts_.counters.allocations.set(memory_.size());
  parts_.counters.allocated_bytes.set(bytes_);
  parts_.counters.is_protected.set(is_protected_ ? 1 : 0);
}

}  // namespace fo::gms
