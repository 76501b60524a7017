// Sequences of connections, grants, requests and disconnections against the server's state machine.
// A second implementation of gms-protocol(7)'s rules runs beside it, and derives everything from
// the list of clients and the history of the layout.
#include <array>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "gms/protocol/layout_record.h"
#include "gms/protocol/server_model.h"
#include "gms/server/answers.h"

namespace fo::gms {
namespace {

using fuzz::require;

constexpr std::size_t kMaxClients = 12;
constexpr base::ByteCount kGranule = 4096;

class Server {
 public:
  void step(fuzz::Input& input) {
    switch (input.below(14)) {
      case 0:
      case 1:
        enqueue(input);
        break;
      case 2:
        if (Client* client = pick(input)) client->is_alive = false;
        break;
      case 3:
        if (const Client* client = pick(input)) disconnect(client->id);
        break;
      case 4:
      case 5:
        while (grant_next()) check_state();
        break;
      case 6:
        add(input);
        break;
      case 7:
        remove(input);
        break;
      case 8:
        put(input);
        break;
      case 9:
        erase(input);
        break;
      case 10:
        seal();
        break;
      case 11:
        publish();
        break;
      case 12:
        query_anything(input);
        break;
      default:
        crash();
    }
    check_state();
  }

  void check_history() const {
    const std::vector<Event> history = model_.events();
    require(history.size() == history_.size(), "the history keeps the newest events");
    for (std::size_t i = 0; i < history.size(); ++i) {
      require(history[i].kind == history_[i].kind &&
                  history[i].allocation_count == history_[i].allocation_count,
              "the history tells what happened");
    }
  }

 private:
  struct Client {
    SessionId id;
    LockType type;
    bool is_alive = true;
    std::optional<Grant> grant = std::nullopt;
  };
  struct Piece {
    AllocationId id;
    base::ByteCount size;
    base::ByteCount aligned_size;
    std::string tag;
    std::uint64_t slot;
  };
  enum class Stage { kOpen, kSealed, kPublished };

  // --- The rules, implemented a second time.

  [[nodiscard]] bool has_any(std::initializer_list<Grant> grants) const {
    for (const Client& client : clients_) {
      for (const Grant grant : grants) {
        if (client.grant == grant) return true;
      }
    }
    return false;
  }
  [[nodiscard]] bool writer_is_connected() const { return has_any({Grant::kRw, Grant::kRwData}); }
  [[nodiscard]] std::size_t count(LockType type, bool waiting) const {
    std::size_t found = 0;
    for (const Client& client : clients_) {
      if (client.type == type && !client.grant == waiting) ++found;
    }
    return found;
  }
  [[nodiscard]] std::size_t waiting_writers() const {
    return count(LockType::kRw, true) + count(LockType::kRwDataOrRw, true);
  }

  [[nodiscard]] std::optional<Grant> grant_for(LockType type) const {
    const bool is_free = !has_any({Grant::kRw, Grant::kRwData, Grant::kRo});
    const bool is_readable =
        stage_ == Stage::kPublished && !writer_is_connected() && waiting_writers() == 0;
    if (type == LockType::kRw && is_free) return Grant::kRw;
    if (type == LockType::kRo && is_readable) return Grant::kRo;
    if (type == LockType::kRwOrRo && is_readable) return Grant::kRo;
    if (type == LockType::kRwOrRo && is_free && stage_ != Stage::kPublished) return Grant::kRw;
    if (type == LockType::kRwDataOrRw && is_free) {
      return stage_ == Stage::kSealed ? Grant::kRwData : Grant::kRw;
    }
    return std::nullopt;
  }

  // The next grant; removes dead clients that would have received it.
  std::optional<ServerModel::Granted> next_grant() {
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i].grant) continue;
      const std::optional<Grant> grant = grant_for(clients_[i].type);
      if (!grant) continue;
      if (clients_[i].is_alive) return ServerModel::Granted{clients_[i].id, *grant};
      clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
      return next_grant();
    }
    return std::nullopt;
  }

  [[nodiscard]] std::string expected_state() const {
    if (writer_is_connected()) return "RW";
    if (has_any({Grant::kRo})) return "RO";
    if (stage_ == Stage::kPublished) return "COMMITTED";
    return stage_ == Stage::kSealed ? "LAYOUT_COMMITTED" : "EMPTY";
  }

  void happened(std::string kind, std::size_t allocations = 0) {
    history_.push_back({std::move(kind), static_cast<std::int64_t>(allocations)});
    if (history_.size() > kMaxEvents) history_.pop_front();
  }

  void drop_layout() {
    stage_ = Stage::kOpen;
    pieces_.clear();
    metadata_.clear();
    next_slot_ = 0;
    hash_ = {};
    ++dropped_;
  }

  // --- The clients' actions.

  Client* pick(fuzz::Input& input) {
    const std::uint8_t number = input.byte();
    return clients_.empty() ? nullptr : &clients_[number % clients_.size()];
  }

  // The session that may write; nullptr if there is none.
  Client* writer() {
    for (Client& client : clients_) {
      if (client.grant == Grant::kRw) return &client;
    }
    return nullptr;
  }

  void enqueue(fuzz::Input& input) {
    constexpr std::array kTypes{LockType::kRw, LockType::kRo, LockType::kRwOrRo,
                                LockType::kRwDataOrRw};
    const LockType type = kTypes[input.below(kTypes.size())];
    if (clients_.size() == kMaxClients) return;
    const SessionId id = model_.enqueue(type);
    require(id > last_id_, "session ids are new");
    last_id_ = id;
    clients_.push_back({id, type});
    require(!model_.grant_of(id), "nobody is granted anything on arrival");
  }

  void disconnect(SessionId id) {
    model_.disconnect(id);
    const auto found =
        std::find_if(clients_.begin(), clients_.end(), [&](const Client& c) { return c.id == id; });
    const std::optional<Grant> grant = found->grant;
    clients_.erase(found);
    if (!grant || grant == Grant::kRo) return;
    if (stage_ != Stage::kOpen) {
      happened("rw_disconnected", pieces_.size());
      return;
    }
    happened("rw_aborted");
    happened("allocations_cleared", pieces_.size());
    drop_layout();
  }

  bool grant_next() {
    const std::vector<Client> before = clients_;
    const auto expected = next_grant();
    const auto is_alive = [&](SessionId id) {
      for (const Client& client : before) {
        if (client.id == id) return client.is_alive;
      }
      require(false, "nobody is asked about who is gone");
      return false;
    };
    const auto granted = model_.grant_next(is_alive);
    require(granted.has_value() == expected.has_value(), "whoever may have the lock gets it");
    if (!granted) return false;
    require(granted->session == expected->session && granted->grant == expected->grant,
            "the first who may have it gets what it may have");
    for (Client& client : clients_) {
      if (client.id == granted->session) client.grant = granted->grant;
    }
    if (granted->grant == Grant::kRw) {
      if (stage_ == Stage::kPublished) happened("allocations_cleared", pieces_.size());
      drop_layout();
    }
    if (granted->grant != Grant::kRo) happened("rw_connected");
    return true;
  }

  void add(fuzz::Input& input) {
    const base::ByteCount size = input.below(200) * 100 + 1;
    if (writer() == nullptr) return;
    Piece piece{AllocationId("id" + std::to_string(++made_)), size, base::round_up(size, kGranule),
                size % 2 == 0 ? "weights" : "", next_slot_++};
    const Allocation& added =
        model_.layout().add(piece.id, piece.size, piece.aligned_size, piece.tag);
    require(added.layout_slot == piece.slot, "slots count from 0 and are never used again");
    pieces_.push_back(std::move(piece));
  }

  // The id of an existing piece, or a missing one.
  AllocationId any_id(fuzz::Input& input) {
    const std::size_t number = input.below(pieces_.size() + 1);
    return number < pieces_.size() ? pieces_[number].id : AllocationId("id0");
  }

  const Piece* find(const AllocationId& id) const {
    for (const Piece& piece : pieces_) {
      if (piece.id == id) return &piece;
    }
    return nullptr;
  }

  void remove(fuzz::Input& input) {
    const AllocationId id = any_id(input);
    if (writer() == nullptr) return;
    const bool is_there = find(id) != nullptr;
    require(model_.layout().remove(id) == is_there, "what is there can be freed");
    std::erase_if(pieces_, [&](const Piece& piece) { return piece.id == id; });
    std::erase_if(metadata_, [&](const auto& entry) { return entry.second.allocation_id == id; });
  }

  // The server's answer to a request, encoded to frames in both directions; nullopt for a refusal.
  template <typename Answer>
  std::optional<Answer> ask(Grant grant, const auto& request) {
    Request asked = decode_request(std::string_view(encode_frame(request)).substr(kPrefixSize));
    try {
      check_allowed(asked, grant);
      const std::optional<Reply> answer = answer_from_state(model_, asked);
      require(answer.has_value(), "the state is enough for an answer");
      require(answer->fds.empty() && !answer->last, "an answer from the state is only a frame");
      return decode_message<Answer>(std::string_view(answer->frame).substr(kPrefixSize));
    } catch (const Refusal& refusal) {
      require(!refusal.error.empty(), "a refusal has a reason");
      return std::nullopt;
    }
  }

  void put(fuzz::Input& input) {
    MetadataPutManyRequest wanted;
    for (std::size_t left = input.below(3) + 1; left > 0; --left) {
      MetadataRecord& one = wanted.entries.emplace_back();
      one.allocation_id = any_id(input);
      one.key = input.text(input.below(3));
      one.offset_bytes = static_cast<std::int64_t>(input.number());
      one.value.data = input.text(input.below(8));
    }
    const Client* client = pick(input);
    if (client == nullptr || !client->grant) return;
    const auto fits = [&](const MetadataRecord& one) {
      const Piece* piece = find(one.allocation_id);
      return piece != nullptr && one.offset_bytes >= 0 &&
             std::cmp_less(one.offset_bytes, piece->aligned_size);
    };
    const bool expected = client->grant == Grant::kRw &&
                          std::all_of(wanted.entries.begin(), wanted.entries.end(), fits);
    const auto answer = ask<MetadataPutManyResponse>(*client->grant, wanted);
    require(answer.has_value() == expected, "a writer's keys that point into pieces are put");
    if (!expected) return;
    for (const MetadataRecord& one : wanted.entries) {
      metadata_[one.key] = {one.allocation_id, static_cast<base::ByteCount>(one.offset_bytes),
                            one.value.data};
    }
  }

  void erase(fuzz::Input& input) {
    const MetadataDeleteRequest wanted{std::string(input.text(input.below(3)))};
    const Client* client = pick(input);
    if (client == nullptr || !client->grant) return;
    const auto answer = ask<MetadataDeleteResponse>(*client->grant, wanted);
    require(answer.has_value() == (client->grant == Grant::kRw), "only a writer deletes");
    if (answer) require(answer->deleted == (metadata_.erase(wanted.key) == 1), "a key goes");
  }

  // The requests that readers may send.
  void query_anything(fuzz::Input& input) {
    const std::string prefix(input.text(input.below(3)));
    const AllocationId id = any_id(input);
    const Client* client = pick(input);
    if (client == nullptr || !client->grant) return;
    const Grant grant = *client->grant;
    require(!ask<HandshakeResponse>(grant, HandshakeRequest{"ro", 0}), "one handshake is enough");

    const auto keys = ask<MetadataListResponse>(grant, MetadataListRequest{prefix});
    std::vector<std::string> expected;
    for (const auto& [key, entry] : metadata_) {
      if (key.starts_with(prefix)) expected.push_back(key);
    }
    require(keys && keys->keys == expected, "keys are listed by prefix, in order");
    Metadata dumped;
    const std::string after = expected.empty() ? "" : expected[expected.size() / 2];
    const auto page = ask<MetadataDumpResponse>(grant, MetadataDumpRequest{prefix, after});
    require(page && !page->more, "a small dump has one page");
    for (const MetadataRecord& one : page->entries) {
      // An empty `after` means the first page, which may contain the empty key.
      require((after.empty() || one.key > after) && one.key.starts_with(prefix),
              "a page goes on where it should");
      require(metadata_.at(one.key) == MetadataEntry{one.allocation_id,
                                                     static_cast<base::ByteCount>(one.offset_bytes),
                                                     one.value.data},
              "a key is dumped as it was put");
    }

    const Piece* piece = find(id);
    const auto one = ask<GetAllocationResponse>(grant, GetAllocationRequest{id});
    require(one.has_value() == (piece != nullptr), "what is there is told of");
    require(!one || (std::cmp_equal(one->size, piece->size) && one->tag == piece->tag),
            "an allocation is told as it was made");
    const auto all = ask<ListAllocationsResponse>(grant, ListAllocationsRequest{std::nullopt});
    require(all && all->allocations.size() == pieces_.size(), "all allocations are listed");
    const ExportLayoutRequest exported{std::nullopt, static_cast<std::int64_t>(input.byte())};
    const LayoutPage layout_page = page_of(model_.layout(), exported, 2);
    const auto first_after = [&](std::uint64_t slot) {
      return std::find_if(pieces_.begin(), pieces_.end(),
                          [&](const Piece& each) { return each.slot >= slot; });
    };
    auto at = first_after(static_cast<std::uint64_t>(exported.first_slot));
    for (const Allocation* each : layout_page.allocations) {
      require(at != pieces_.end() && each->allocation_id == (at++)->id, "a page is in slot order");
    }
    require(layout_page.next_slot.has_value() == (at != pieces_.end()), "a page tells of the next");
    require(!layout_page.next_slot || *layout_page.next_slot == at->slot, "the next is the next");
  }

  // The server crashes and restarts with what its parent has kept.
  void crash() {
    ServerModel next;
    if (stage_ == Stage::kOpen) {
      drop_layout();
    } else {
      const bool published = stage_ == Stage::kPublished;
      RecordWriter writer(model_.layout(), hash_, published);
      RecordReader reader;
      for (std::string part = writer.next(); !part.empty(); part = writer.next()) {
        reader.add(std::string_view(part).substr(kPrefixSize));
      }
      LayoutRecord record = reader.finish();
      require(record.hash == hash_ && record.published == published, "a record is faithful");
      next.restore(std::move(record.layout), std::move(record.hash), published);
    }
    model_ = std::move(next);
    clients_.clear();
    history_.clear();
    last_id_ = 0;
    dropped_ = model_.layout_epoch();
  }

  void seal() {
    Client* client = writer();
    if (client == nullptr) return;
    hash_ = layout_hash(model_.layout());
    model_.seal(hash_);
    stage_ = Stage::kSealed;
    client->grant = Grant::kRwData;
    happened("layout_committed", pieces_.size());
  }

  void publish() {
    const Client* client = writer();
    if (client == nullptr) return;
    const SessionId id = client->id;
    hash_ = layout_hash(model_.layout());
    model_.publish(hash_);
    stage_ = Stage::kPublished;
    std::erase_if(clients_, [&](const Client& each) { return each.id == id; });
    happened("committed");
    model_.disconnect(id);  // the server closes its connection
  }

  // --- The invariants after every step.

  void check_state() const {
    for (const Client& client : clients_) {
      require(model_.grant_of(client.id) == client.grant, "a client has what it was granted");
    }
    require(!writer_is_connected() || !has_any({Grant::kRo}), "a writer is alone");
    const GetRuntimeStateResponse now = model_.runtime_state();
    const bool published = stage_ == Stage::kPublished;
    std::int64_t readers = 0;
    for (const Client& client : clients_) readers += client.grant == Grant::kRo ? 1 : 0;
    require(now.state == expected_state(), "the state is derived");
    require(now.has_rw_session == writer_is_connected(), "the writer is told of");
    require(now.ro_session_count == readers, "readers are counted");
    require(std::cmp_equal(now.waiting_writers, waiting_writers()), "waiting writers are counted");
    require(now.committed == published, "what is published is told of");
    require(now.is_ready == (published && !writer_is_connected()), "ready: nobody writes");
    require(now.layout_committed == (stage_ != Stage::kOpen), "what is sealed is told of");
    require(std::cmp_equal(now.allocation_count, pieces_.size()), "allocations are counted");
    require(now.memory_layout_hash == hash_ && model_.hash() == hash_,
            "the hash is that of the sealed layout");
    require(hash_.empty() == (stage_ == Stage::kOpen), "only what is sealed has a hash");
    require(model_.layout_epoch() == dropped_, "every layout that goes is counted");
    check_layout();
  }

  void check_layout() const {
    const Layout& layout = model_.layout();
    require(layout.allocations().size() == pieces_.size(), "no allocation is lost");
    auto at = layout.allocations().begin();
    for (const Piece& piece : pieces_) {
      const Allocation& allocation = (at++)->second;
      require(allocation ==
                      Allocation{piece.id, piece.size, piece.aligned_size, piece.tag, piece.slot} &&
                  layout.find(piece.id) == &allocation,
              "an allocation stays as it was made");
    }
    require(layout.metadata() == metadata_, "keys are as they were put");
    base::ByteCount records = 0;
    for (const Piece& piece : pieces_)
      records += record_cost(piece.id.value().size() + piece.tag.size());
    for (const auto& [key, entry] : metadata_) {
      records += record_cost(key.size() + entry.allocation_id.value().size() + entry.value.size());
    }
    require(layout.records() == records, "what the records take is counted");
  }

  ServerModel model_;
  std::vector<Client> clients_;
  Stage stage_ = Stage::kOpen;
  std::vector<Piece> pieces_;
  Metadata metadata_;
  std::uint64_t next_slot_ = 0;
  LayoutHash hash_;
  std::uint64_t dropped_ = 0;
  std::deque<Event> history_;
  SessionId last_id_ = 0;
  std::uint64_t made_ = 0;
};

}  // namespace
}  // namespace fo::gms

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fo::fuzz::Input input(data, size);
  fo::gms::Server server;
  while (!input.empty()) server.step(input);
  server.check_history();
  return 0;
}
