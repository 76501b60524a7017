#include "gms/protocol/protocol.h"

#include <gtest/gtest.h>
#include <msgpuck.h>

#include <array>

#include "support/failure.h"

namespace fo::gms {
namespace {

using test::status_of;

std::string body_of(const std::string& frame) { return frame.substr(kPrefixSize); }

// Builds msgpack by hand, so that the codec is not tested with itself.
class Pack {
 public:
  Pack& map(std::uint32_t n) { return put(mp_encode_map(at_, n)); }
  Pack& array(std::uint32_t n) { return put(mp_encode_array(at_, n)); }
  Pack& str(std::string_view s) {
    return put(mp_encode_str(at_, s.data(), static_cast<std::uint32_t>(s.size())));
  }
  Pack& bin(std::string_view s) {
    return put(mp_encode_bin(at_, s.data(), static_cast<std::uint32_t>(s.size())));
  }
  Pack& uint(std::uint64_t n) { return put(mp_encode_uint(at_, n)); }
  Pack& integer(std::int64_t n) { return put(mp_encode_int(at_, n)); }
  Pack& boolean(bool b) { return put(mp_encode_bool(at_, b)); }
  Pack& nil() { return put(mp_encode_nil(at_)); }
  [[nodiscard]] std::string done() const {
    return std::string(buffer_.data(), static_cast<std::size_t>(at_ - buffer_.data()));
  }

 private:
  Pack& put(char* end) {
    at_ = end;
    return *this;
  }
  std::array<char, 4096> buffer_{};
  char* at_ = buffer_.data();
};

TEST(Protocol, FrameIsLengthPrefixAndMapWithTypeFirst) {
  const std::string frame = encode_frame(AllocateRequest{5, "w"});
  const std::string expected = Pack()
                                   .map(3)
                                   .str("type")
                                   .str("allocate_request")
                                   .str("size")
                                   .uint(5)
                                   .str("tag")
                                   .str("w")
                                   .done();
  EXPECT_EQ(read_prefix(frame), expected.size());
  EXPECT_EQ(body_of(frame), expected);
}

TEST(Protocol, BytesAreBinAndAbsentOptionalsAreNil) {
  const std::string put =
      body_of(encode_frame(MetadataPutRequest{"k", AllocationId("a"), 0, Bytes{"v"}}));
  EXPECT_NE(put.find(Pack().bin("v").done()), std::string::npos);
  const std::string handshake = body_of(encode_frame(HandshakeRequest{"rw", std::nullopt}));
  EXPECT_NE(handshake.find(Pack().str("timeout_ms").nil().done()), std::string::npos);
}

TEST(Protocol, DecodesTypeAnywhereAndIgnoresUnknownKeys) {
  const std::string body = Pack()
                               .map(4)
                               .str("extra")
                               .array(2)
                               .nil()
                               .map(0)
                               .str("size")
                               .uint(7)
                               .str("type")
                               .str("allocate_request")
                               .uint(3)
                               .str("a key that is no text")
                               .done();
  const auto request = std::get<AllocateRequest>(decode_request(body));
  EXPECT_EQ(request.size, 7);
  EXPECT_EQ(request.tag, "default");
}

TEST(Protocol, MissingKeysKeepTheirDefaults) {
  const std::string body = Pack().map(1).str("type").str("handshake_request").done();
  const auto request = std::get<HandshakeRequest>(decode_request(body));
  EXPECT_EQ(request.lock_type, "");
  EXPECT_EQ(request.timeout_ms, std::nullopt);
}

TEST(Protocol, IntegersBeyondSigned64BitsSaturate) {
  const std::string body =
      Pack().map(2).str("type").str("allocate_request").str("size").uint(~std::uint64_t{0}).done();
  EXPECT_EQ(std::get<AllocateRequest>(decode_request(body)).size,
            std::numeric_limits<std::int64_t>::max());
}

TEST(Protocol, RefusesWhatIsNoMessage) {
  const std::array bodies{
      std::string(),
      std::string("\xc1"),                                             // never used
      Pack().uint(1).done(),                                           // not a map
      Pack().array(0).done(),                                          //
      Pack().map(0).done(),                                            // no type
      Pack().map(1).str("type").uint(1).done(),                        // type is not a string
      Pack().map(1).str("type").str("no_such_request").done(),         // unknown
      Pack().map(1).str("type").str("allocate_response").done(),       // not a request
      Pack().map(1).str("type").str("commit_request").uint(1).done(),  // bytes after the message
      Pack().map(2).str("type").str("allocate_request").str("size").str("5").done(),
      Pack().map(2).str("type").str("allocate_request").str("tag").bin("w").done(),
      Pack().map(2).str("type").str("metadata_put_request").str("value").str("v").done(),
  };
  for (const std::string& body : bodies) {
    EXPECT_EQ(status_of([&] { decode_request(body); }), base::ExitStatus::kProtocol);
  }
}

// Claims more values than an int counts; a reader that relies on it reads far past the message.
TEST(Protocol, RefusesListsAndMapsThatClaimMoreThanThereIs) {
  const std::string head = Pack().map(2).str("type").str("commit_request").str("x").done();
  using namespace std::string_literals;
  for (const std::string& claim :
       {"\xdd\xff\xff\xff\xff"s, "\xdd\xfc\x00\x00\x01"s, "\xdd\x80\x00\x00\x00"s,
        "\xdf\x7f\xff\xff\xff"s, "\xdf\x80\x00\x00\x00"s, "\xdf\xff\xff\xff\xff"s, "\xdc\x00\x02"s,
        "\xde\x00\x02\xc0"s, "\xdd\x00\x00\x00"s, "\xde\x00"s, "\xc1"s}) {
    for (const char* tail : {"", "\xc0"}) {
      EXPECT_EQ(status_of([&] { decode_request(head + claim + tail); }),
                base::ExitStatus::kProtocol);
    }
  }
}

// Every message survives the round trip, and none of its proper prefixes decodes.
template <typename Message>
void expect_round_trip(const Message& message) {
  const std::string body = body_of(encode_frame(message));
  EXPECT_EQ(body_of(encode_frame(decode_message<Message>(body))), body) << Message::kType;
  for (std::size_t size = 0; size < body.size(); ++size) {
    EXPECT_EQ(status_of([&] { decode_message<Message>(std::string_view(body).substr(0, size)); }),
              base::ExitStatus::kProtocol)
        << Message::kType << " cut at " << size;
  }
}

TEST(Protocol, EveryMessageSurvivesTheRoundTripAndNoTruncationDoes) {
  const GetAllocationResponse allocation{AllocationId("id"), 5, 2097152, "default", 3};
  expect_round_trip(HandshakeRequest{"rw_or_ro", 1500});
  expect_round_trip(HandshakeResponse{true, false, "rw_data", {"export_layout"}});
  expect_round_trip(GetRuntimeStateRequest{});
  expect_round_trip(
      GetRuntimeStateResponse{"RO", false, 2, 1, true, true, true, 7, LayoutHash("ab")});
  expect_round_trip(GetEventHistoryRequest{});
  expect_round_trip(GetEventHistoryResponse{{{"rw_connected", 0}, {"committed", 300}}});
  expect_round_trip(CommitRequest{});
  expect_round_trip(CommitResponse{true});
  expect_round_trip(CommitLayoutRequest{});
  expect_round_trip(CommitLayoutResponse{true, LayoutHash("ab"), "rw_data"});
  expect_round_trip(AllocateRequest{-1, "w"});
  expect_round_trip(AllocateResponse{AllocationId("id"), 5, 2097152, 70000});
  expect_round_trip(FreeAllocationRequest{AllocationId("id")});
  expect_round_trip(FreeAllocationResponse{true});
  expect_round_trip(
      MetadataPutRequest{"k", AllocationId("id"), 256, Bytes{std::string("\0\xff", 2)}});
  expect_round_trip(MetadataPutResponse{true});
  expect_round_trip(MetadataDeleteRequest{"k"});
  expect_round_trip(MetadataDeleteResponse{true});
  expect_round_trip(ExportAllocationRequest{AllocationId("id")});
  expect_round_trip(ExportAllocationResponse{AllocationId("id"), 5, 2097152, "default", 3});
  expect_round_trip(GetAllocationRequest{AllocationId("id")});
  expect_round_trip(allocation);
  expect_round_trip(ListAllocationsRequest{"w"});
  expect_round_trip(ListAllocationsResponse{{allocation, allocation}});
  expect_round_trip(MetadataGetRequest{"k"});
  expect_round_trip(MetadataGetResponse{true, AllocationId("id"), 0, Bytes{std::string(300, 'v')}});
  expect_round_trip(MetadataListRequest{"p"});
  expect_round_trip(MetadataListResponse{{"a", "b"}});
  expect_round_trip(GetLockStateRequest{});
  expect_round_trip(GetLockStateResponse{"RW", true, 0, 0, false, false, false});
  expect_round_trip(GetAllocationStateRequest{});
  expect_round_trip(GetAllocationStateResponse{9});
  expect_round_trip(GetMemoryLayoutHashRequest{});
  expect_round_trip(GetMemoryLayoutHashResponse{LayoutHash("ab")});
  expect_round_trip(ExportLayoutRequest{"w", 253});
  expect_round_trip(ExportLayoutResponse{{allocation, allocation}, 5, LayoutHash("ab")});
  expect_round_trip(MetadataDumpRequest{"p", "k"});
  expect_round_trip(MetadataDumpResponse{{{"k", AllocationId("id"), 256, Bytes{"v"}}}, true});
  expect_round_trip(AllocateManyRequest{{{5, "w"}, {6, "w"}}});
  expect_round_trip(AllocateManyResponse{{{AllocationId("id"), 5, 2097152, 0}}});
  expect_round_trip(MetadataPutManyRequest{{{"k", AllocationId("id"), 256, Bytes{"v"}}}});
  expect_round_trip(MetadataPutManyResponse{true});
  expect_round_trip(ErrorResponse{"no", 75});
}

TEST(Protocol, RefusesToEncodeMoreThanTheLimit) {
  const MetadataPutRequest big{"k", AllocationId("id"), 0, Bytes{std::string(1000, 'v')}};
  EXPECT_EQ(status_of([&] { encode_frame(big, 1000); }), base::ExitStatus::kBadData);
  EXPECT_NO_THROW(encode_frame(big, 2000));
}

}  // namespace
}  // namespace fo::gms
