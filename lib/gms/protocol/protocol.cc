#include "gms/protocol/protocol.h"

#include <msgpuck.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"

namespace fo::gms {
namespace {

using base::Error;
using base::ExitStatus;

template <typename T>
concept Record = requires(T& record) {
  T::each_field(record, [](auto, auto&) {});
};
template <typename T>
concept Tagged = requires {
  T::kType;
};

[[noreturn]] void fail(const std::string& what) {
  throw Error(ExitStatus::kProtocol, "GMS message: " + what);
}

// --- Encoding: two passes over the same code, of which the first counts and the second writes.

class Writer {
 public:
  explicit Writer(char* at) : at_(at) {}
  [[nodiscard]] std::size_t size() const { return size_; }

  void put(bool value) {
    emit(mp_sizeof_bool(value), [&](char* at) { mp_encode_bool(at, value); });
  }
  void put(std::int64_t value) {
    if (value >= 0) {
      const auto positive = static_cast<std::uint64_t>(value);
      emit(mp_sizeof_uint(positive), [&](char* at) { mp_encode_uint(at, positive); });
    } else {
      emit(mp_sizeof_int(value), [&](char* at) { mp_encode_int(at, value); });
    }
  }
  void put(std::string_view text) {
    const std::uint32_t size = checked(text.size());
    emit(mp_sizeof_str(size), [&](char* at) { mp_encode_str(at, text.data(), size); });
  }
  void put(const std::string& text) { put(std::string_view(text)); }
  void put(const Bytes& bytes) {
    const std::uint32_t size = checked(bytes.data.size());
    emit(mp_sizeof_bin(size), [&](char* at) { mp_encode_bin(at, bytes.data.data(), size); });
  }
  template <typename Tag>
  void put(const base::Strong<Tag, std::string>& text) {
    put(text.value());
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    if (value) {
      put(*value);
    } else {
      emit(mp_sizeof_nil(), [](char* at) { mp_encode_nil(at); });
    }
  }
  template <typename T>
  void put(const std::vector<T>& list) {
    const std::uint32_t count = checked(list.size());
    emit(mp_sizeof_array(count), [&](char* at) { mp_encode_array(at, count); });
    for (const T& element : list) put(element);
  }
  template <Record T>
  void put(const T& record) {
    std::uint32_t count = Tagged<T> ? 1 : 0;
    T::each_field(record, [&](std::string_view, const auto&) { ++count; });
    emit(mp_sizeof_map(count), [&](char* at) { mp_encode_map(at, count); });
    if constexpr (Tagged<T>) {
      put(std::string_view("type"));
      put(T::kType);
    }
    T::each_field(record, [&](std::string_view name, const auto& value) {
      put(name);
      put(value);
    });
  }

 private:
  static std::uint32_t checked(std::size_t size) {
    if (size > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ExitStatus::kBadData, "encode a GMS message: a value of over 4 GiB");
    }
    return static_cast<std::uint32_t>(size);
  }
  template <typename Emit>
  void emit(std::size_t size, Emit&& write) {
    if (at_ != nullptr) write(at_ + size_);
    size_ += size;
  }

  char* at_;
  std::size_t size_ = 0;
};

// --- Decoding. check_body has walked the whole message before, so values announced by mp_typeof
// are complete.

class Reader {
 public:
  explicit Reader(const char* at, std::size_t max_elements = kMaxListSize)
      : at_(at), max_elements_(max_elements) {}
  [[nodiscard]] mp_type kind() const { return mp_typeof(*at_); }
  void skip() { mp_next(&at_); }
  std::uint32_t map_size(std::string_view what) {
    if (kind() != MP_MAP) fail(std::string(what) + " is not a map");
    return mp_decode_map(&at_);
  }
  /// A map key; empty for one that is not a string, because no field has an empty name.
  std::string_view key() {
    if (kind() != MP_STR) {
      skip();
      return {};
    }
    return text();
  }
  std::string_view text() {
    std::uint32_t size = 0;
    const char* data = mp_decode_str(&at_, &size);
    return {data, size};
  }

  void get(std::string_view name, bool& value) {
    expect(name, MP_BOOL, "a boolean");
    value = mp_decode_bool(&at_);
  }
  void get(std::string_view name, std::int64_t& value) {
    if (kind() == MP_UINT) {
      constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      value = static_cast<std::int64_t>(std::min<std::uint64_t>(mp_decode_uint(&at_), kMax));
      return;
    }
    expect(name, MP_INT, "an integer");
    value = mp_decode_int(&at_);
  }
  void get(std::string_view name, std::string& value) {
    expect(name, MP_STR, "text");
    value = text();
  }
  void get(std::string_view name, Bytes& value) {
    expect(name, MP_BIN, "bytes");
    std::uint32_t size = 0;
    const char* data = mp_decode_bin(&at_, &size);
    value.data.assign(data, size);
  }
  template <typename Tag>
  void get(std::string_view name, base::Strong<Tag, std::string>& value) {
    expect(name, MP_STR, "text");
    value = base::Strong<Tag, std::string>(std::string(text()));
  }
  template <typename T>
  void get(std::string_view name, std::optional<T>& value) {
    if (kind() == MP_NIL) {
      mp_decode_nil(&at_);
      value.reset();
    } else {
      get(name, value.emplace());
    }
  }
  template <typename T>
  void get(std::string_view name, std::vector<T>& list) {
    expect(name, MP_ARRAY, "a list");
    const std::uint32_t count = mp_decode_array(&at_);
    if (count > kMaxListSize) fail("field " + base::quoted(name) + " is too long");
    if (count > max_elements_) {
      throw Error(ExitStatus::kBadData, "a list of " + std::to_string(count) + " " +
                                            std::string(name) + ": at most " +
                                            std::to_string(max_elements_) + " are allowed");
    }
    list.clear();
    for (std::uint32_t i = 0; i < count; ++i) get(name, list.emplace_back());
  }
  template <Record T>
  void get(std::string_view name, T& record) {
    const std::uint32_t count = map_size(name);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::string_view field = key();
      bool known = false;
      T::each_field(record, [&](std::string_view candidate, auto& value) {
        if (known || candidate != field) return;
        known = true;
        get(candidate, value);
      });
      if (!known) skip();
    }
  }

 private:
  void expect(std::string_view name, mp_type want, const char* wanted) const {
    if (kind() != want) fail("field " + base::quoted(name) + " is not " + wanted);
  }
  const char* at_;
  std::size_t max_elements_;
};

// Moves `at` past one value with everything in it; false if it extends past `end`. mp_check is not
// usable here: it counts values in an int, so a list that claims 4 G of them would count as
// complete.
bool pass_value(const char*& at, const char* end) {
  constexpr char kNeverUsed = '\xc1';
  for (std::uint64_t values = 1; values > 0; --values) {
    // Each value takes at least one byte.
    if (values > static_cast<std::uint64_t>(end - at) || *at == kNeverUsed) return false;
    const mp_type kind = mp_typeof(*at);
    if (kind == MP_MAP) {
      if (mp_check_map(at, end) > 0) return false;
      values += 2 * std::uint64_t{mp_decode_map(&at)};
    } else if (kind == MP_ARRAY) {
      if (mp_check_array(at, end) > 0) return false;
      values += mp_decode_array(&at);
    } else if (mp_check(&at, end) != 0) {
      return false;
    }
  }
  return true;
}

// Throws unless `body` is exactly one well-formed msgpack map.
void check_body(std::string_view body) {
  const char* at = body.data();
  const char* end = at + body.size();
  if (!pass_value(at, end)) fail("truncated or malformed");
  if (at != end) fail("bytes after the message");
  if (mp_typeof(body.front()) != MP_MAP) fail("not a map");
}

// The fields of a message whose body and type have been checked.
template <typename Message>
Message read_fields(std::string_view body) {
  Message message;
  std::size_t max_elements = kMaxListSize;
  if constexpr (requires { Message::kMaxElements; }) max_elements = Message::kMaxElements;
  Reader(body.data(), max_elements).get("message", message);
  return message;
}

template <typename... Messages>
Request decode_one_of(std::string_view type, std::string_view body,
                      std::type_identity<std::variant<Messages...>>) {
  std::optional<Request> request;
  (void)((type == Messages::kType && (request = read_fields<Messages>(body), true)) || ...);
  if (!request) fail("unknown type " + base::quoted(type));
  return std::move(*request);
}

}  // namespace

AllocationRecord to_record(const Allocation& allocation) {
  return {allocation.allocation_id, static_cast<std::int64_t>(allocation.size),
          static_cast<std::int64_t>(allocation.aligned_size), allocation.tag,
          static_cast<std::int64_t>(allocation.layout_slot)};
}

MetadataRecord to_record(const std::string& key, const MetadataEntry& entry) {
  return {key, entry.allocation_id, static_cast<std::int64_t>(entry.offset_bytes),
          Bytes{entry.value}};
}

std::size_t size_on_wire(const std::string& key, const MetadataEntry& entry) {
  constexpr std::size_t kFieldNames = 64;
  return key.size() + entry.allocation_id.value().size() + entry.value.size() + kFieldNames;
}

std::uint32_t read_prefix(std::string_view prefix) {
  std::uint32_t size = 0;
  for (const char c : prefix.substr(0, kPrefixSize)) {
    size = size << 8 | static_cast<unsigned char>(c);
  }
  return size;
}

template <typename Message>
std::string encode_frame(const Message& message, std::size_t limit) {
  Writer counter(nullptr);
  counter.put(message);
  const std::size_t size = counter.size();
  if (size > limit) {
    throw Error(ExitStatus::kBadData, "encode " + std::string(Message::kType) + ": " +
                                          std::to_string(size) + " bytes, at most " +
                                          std::to_string(limit) + " are allowed");
  }
  std::string frame(kPrefixSize + size, '\0');
  for (std::size_t i = 0; i < kPrefixSize; ++i) {
    frame[i] = static_cast<char>(size >> (8 * (kPrefixSize - 1 - i)) & 0xff);
  }
  Writer(frame.data() + kPrefixSize).put(message);
  return frame;
}

std::string message_type(std::string_view body) {
  check_body(body);
  Reader reader(body.data());
  const std::uint32_t count = reader.map_size("message");
  for (std::uint32_t i = 0; i < count; ++i) {
    if (reader.key() == "type") {
      std::string type;
      reader.get("type", type);
      return type;
    }
    reader.skip();
  }
  fail("missing type");
}

std::optional<std::string> other_protocol(std::string_view body) {
  constexpr std::array<std::string_view, 2> kKeys{"expected_identity", "process_fence"};
  constexpr std::array<std::string_view, 4> kTypes{
      "prepare_checkpoint_request", "abort_checkpoint_request", "complete_restore_request",
      "get_checkpoint_state_request"};
  const auto is_in = [](std::string_view word, const auto& list) {
    return std::find(list.begin(), list.end(), word) != list.end();
  };
  const std::string type = message_type(body);
  if (is_in(type, kTypes)) return "type " + base::quoted(type);
  Reader reader(body.data());
  const std::uint32_t count = reader.map_size("message");
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string_view key = reader.key();
    if (is_in(key, kKeys)) return "key " + base::quoted(key);
    reader.skip();
  }
  return std::nullopt;
}

template <typename Message>
Message decode_message(std::string_view body) {
  const std::string type = message_type(body);
  if (type != Message::kType) {
    fail("expected " + std::string(Message::kType) + ", got " + base::quoted(type));
  }
  return read_fields<Message>(body);
}

Request decode_request(std::string_view body) {
  return decode_one_of(message_type(body), body, std::type_identity<Request>{});
}

#define FO_GMS_MESSAGE(Message)                                            \
  template std::string encode_frame<Message>(const Message&, std::size_t); \
  template Message decode_message<Message>(std::string_view)
#define FO_GMS_PAIR(Name)        \
  FO_GMS_MESSAGE(Name##Request); \
  FO_GMS_MESSAGE(Name##Response)
FO_GMS_PAIR(Handshake);
FO_GMS_PAIR(GetRuntimeState);
FO_GMS_PAIR(GetEventHistory);
FO_GMS_PAIR(Commit);
FO_GMS_PAIR(CommitLayout);
FO_GMS_PAIR(Allocate);
FO_GMS_PAIR(FreeAllocation);
FO_GMS_PAIR(MetadataPut);
FO_GMS_PAIR(MetadataDelete);
FO_GMS_PAIR(ExportAllocation);
FO_GMS_PAIR(GetAllocation);
FO_GMS_PAIR(ListAllocations);
FO_GMS_PAIR(MetadataGet);
FO_GMS_PAIR(MetadataList);
FO_GMS_PAIR(GetLockState);
FO_GMS_PAIR(GetAllocationState);
FO_GMS_PAIR(GetMemoryLayoutHash);
FO_GMS_PAIR(ExportLayout);
FO_GMS_PAIR(MetadataDump);
FO_GMS_PAIR(AllocateMany);
FO_GMS_PAIR(MetadataPutMany);
FO_GMS_MESSAGE(ErrorResponse);
FO_GMS_MESSAGE(V1ErrorResponse);
#undef FO_GMS_PAIR
#undef FO_GMS_MESSAGE

}  // namespace fo::gms
