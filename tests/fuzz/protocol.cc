// Bytes as messages of gms-protocol(7). The first byte selects: a whole message, or one type, whose
// name is put before the fields in the remaining bytes so that the fuzzer reaches them at once.
#include "gms/protocol/protocol.h"

#include <msgpuck.h>

#include <string>

#include "fuzz.h"

namespace fo::gms {
namespace {

using base::ExitStatus;
using fuzz::require;
using fuzz::unless_refused;

template <typename... Messages>
struct List {};

template <typename Variant>
struct AsList;
template <typename... Messages>
struct AsList<std::variant<Messages...>> {
  using Type = List<Messages...>;
};

using Requests = AsList<Request>::Type;
using Answers =
    List<HandshakeResponse, GetRuntimeStateResponse, GetEventHistoryResponse, CommitResponse,
         CommitLayoutResponse, AllocateResponse, FreeAllocationResponse, MetadataPutResponse,
         MetadataDeleteResponse, ExportAllocationResponse, GetAllocationResponse,
         ListAllocationsResponse, MetadataGetResponse, MetadataListResponse, GetLockStateResponse,
         GetAllocationStateResponse, GetMemoryLayoutHashResponse, ErrorResponse,
         ExportLayoutResponse, MetadataDumpResponse, AllocateManyResponse, MetadataPutManyResponse>;

// A decoded message encodes to a frame that decodes to the same message, and to nothing if it is
// truncated.
template <typename Message>
void check_round_trip(std::string_view body) {
  const auto message =
      unless_refused({ExitStatus::kProtocol}, [&] { return decode_message<Message>(body); });
  if (!message) return;
  require(message_type(body) == Message::kType, "what decodes is of the type it names");
  const std::string frame = encode_frame(*message);
  const std::string_view again = std::string_view(frame).substr(kPrefixSize);
  require(read_prefix(frame) == again.size(), "the prefix is the size of the message");
  require(encode_frame(decode_message<Message>(again)) == frame, "the round trip changes nothing");
  const std::string_view cut = again.substr(0, body.size() % again.size());
  require(!unless_refused({ExitStatus::kProtocol}, [&] { return decode_message<Message>(cut); }),
          "a message that is cut is refused");
}

void check_request(std::string_view body) {
  unless_refused({ExitStatus::kProtocol}, [&] { return other_protocol(body); });
  const auto request = unless_refused({ExitStatus::kProtocol, ExitStatus::kBadData},
                                      [&] { return decode_request(body); });
  if (!request) return;
  const auto encode = [](const auto& message) { return encode_frame(message); };
  const std::string frame = std::visit(encode, *request);
  const Request again = decode_request(std::string_view(frame).substr(kPrefixSize));
  require(again.index() == request->index() && std::visit(encode, again) == frame,
          "a request survives the round trip");
}

template <typename... Messages>
void check_any(std::string_view body, List<Messages...>) {
  const auto type = unless_refused({ExitStatus::kProtocol}, [&] { return message_type(body); });
  (void)((type == Messages::kType && (check_round_trip<Messages>(body), true)) || ...);
}

// A map with the type and space for `pairs` more entries.
std::string with_type(std::string_view type, std::uint32_t pairs, std::string_view fields) {
  constexpr std::string_view kKey = "type";
  std::string body(16 + kKey.size() + type.size(), '\0');
  char* at = mp_encode_map(body.data(), pairs + 1);
  at = mp_encode_str(at, kKey.data(), static_cast<std::uint32_t>(kKey.size()));
  at = mp_encode_str(at, type.data(), static_cast<std::uint32_t>(type.size()));
  body.resize(static_cast<std::size_t>(at - body.data()));
  return body.append(fields);
}

// Checks the message type with this number in the two lists.
template <typename... Ones, typename... Others>
void check_fields(std::size_t number, std::uint32_t pairs, std::string_view fields, List<Ones...>,
                  List<Others...>) {
  const auto check = [&]<typename Message>(std::type_identity<Message>) {
    if (number-- != 0) return false;
    const std::string body = with_type(Message::kType, pairs, fields);
    check_request(body);
    check_round_trip<Message>(body);
    return true;
  };
  (void)((check(std::type_identity<Ones>()) || ...) ||
         (check(std::type_identity<Others>()) || ...));
}

void fuzz_one(fuzz::Input input) {
  const std::uint8_t choice = input.byte();
  if (choice == 0xff) {
    const std::string_view body = input.rest();
    check_request(body);
    check_any(body, Requests());
    check_any(body, Answers());
  } else {
    const std::uint32_t pairs = input.byte();
    check_fields(choice, pairs, input.rest(), Requests(), Answers());
  }
}

}  // namespace
}  // namespace fo::gms

FO_FUZZER(fo::gms::fuzz_one)
