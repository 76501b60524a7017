#include "weights/snapshot/snapshot_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "gms/protocol/protocol.h"
#include "support.h"

namespace fo::weights {
namespace {

using base::Error;
using base::ExitStatus;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kHash(64, 'a');

SnapshotManifest two_allocations() {
  return {gms::LayoutHash(kHash),
          {{gms::AllocationId("one"), 100, 4096, "weights", "shards/shard_0000.bin", 0},
           {gms::AllocationId("two"), 8192, 8192, "kv", "shards/shard_0000.bin", 4096}}};
}

SnapshotManifest manifest_of(const std::string& text) { return parse_manifest(text, "m.json"); }

// A manifest of one allocation with changed fields ("" removes one).
std::string manifest_with(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> fields{{"allocation_id", R"("id")"},
                                            {"size", "5"},
                                            {"aligned_size", "8"},
                                            {"tag", R"("t")"},
                                            {"tensor_file", R"("shards/a.bin")"},
                                            {"tensor_offset", "0"}};
  for (const auto& [name, value] : changes) fields[name] = value;
  std::string text;
  for (const auto& [name, value] : fields) {
    if (!value.empty()) text += (text.empty() ? "\"" : ", \"") + name + "\": " + value;
  }
  return R"({"layout_hash": ")" + kHash + R"(", "allocations": [{)" + text + "}]}";
}

void expect_refused(const std::string& text, const std::string& reason) {
  const Failure failure = failure_of([&] { manifest_of(text); });
  EXPECT_EQ(failure.status, ExitStatus::kBadData) << text.substr(0, 500);
  EXPECT_THAT(failure.message, StartsWith("read 'm.json': " + reason)) << text.substr(0, 500);
}

// A changed text may only cause Error(kBadData).
void expect_no_surprise(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kBadData) << error.what();
  }
}

TEST(SnapshotManifest, ComesBackAsItWasWritten) {
  const SnapshotManifest manifest = two_allocations();
  const std::string text = format_manifest(manifest, 1.5, base::DeviceOrdinal(3));
  const SnapshotManifest again = manifest_of(text);
  EXPECT_EQ(again.layout_hash.value(), kHash);
  EXPECT_EQ(again.allocations, manifest.allocations);
  EXPECT_THAT(text, HasSubstr("\"version\": \"1.0\",\n  \"timestamp\": 1.500000,\n"));
  EXPECT_THAT(text, HasSubstr("\"device\": 3,\n"));
  // Dynamo's reader accepts exactly these keys.
  EXPECT_THAT(text, HasSubstr(R"({"allocation_id": "one", "size": 100, "aligned_size": 4096, )"
                              R"("tag": "weights", "tensor_file": "shards/shard_0000.bin", )"
                              R"("tensor_offset": 0})"));
}

TEST(SnapshotManifest, PacksShardsOfAtMost4GiBUnlessOneAllocationIsLarger) {
  constexpr base::ByteCount kGiB = base::kGiB;
  SnapshotManifest manifest{gms::LayoutHash(kHash), {}};
  for (const base::ByteCount size :
       {2 * kGiB, 2 * kGiB, kGiB, 5 * kGiB, 9 * kGiB, kGiB, 3 * kGiB}) {
    manifest.allocations.push_back(
        {gms::AllocationId(std::to_string(manifest.allocations.size())), size, size, "", "", 0});
  }
  place_in_shards(manifest);
  std::vector<std::pair<std::string, base::ByteCount>> places;
  for (const SnapshotAllocation& one : manifest.allocations) {
    places.emplace_back(one.tensor_file, one.tensor_offset);
  }
  using testing::Pair;
  EXPECT_THAT(places,
              ElementsAre(Pair("shards/shard_0000.bin", 0), Pair("shards/shard_0000.bin", 2 * kGiB),
                          Pair("shards/shard_0001.bin", 0), Pair("shards/shard_0002.bin", 0),
                          Pair("shards/shard_0003.bin", 0), Pair("shards/shard_0004.bin", 0),
                          Pair("shards/shard_0004.bin", kGiB)));
  EXPECT_NO_THROW(manifest_of(format_manifest(manifest, 0, base::DeviceOrdinal(0))));
}

TEST(SnapshotManifest, MayListNothing) {
  EXPECT_TRUE(manifest_of(format_manifest({gms::LayoutHash(kHash), {}}, 0, base::DeviceOrdinal(0)))
                  .allocations.empty());
}

TEST(SnapshotManifest, PassesOverWhatItDoesNotKnow) {
  const SnapshotManifest manifest = manifest_of(
      R"({"use_gds": false, "more": {"allocations": [1], "layout_hash": 7, "deep": [[{"size": -1}]]},)"
      R"("device": null, "allocations": [{"allocation_id": "a", "size": 1, "aligned_size": 2,)"
      R"("extra": {"size": [9], "tag": 1}, "tag": "", "tensor_file": "x.bin", "layout_slot": -7.5}],)"
      R"("timestamp": 1e9, "layout_hash": ")" +
      kHash + R"("})");
  ASSERT_EQ(manifest.allocations.size(), 1u);
  EXPECT_EQ(manifest.allocations[0],
            (SnapshotAllocation{gms::AllocationId("a"), 1, 2, "", "x.bin", 0}));
}

TEST(SnapshotManifest, WithoutAnOffsetBeginsAtTheFilesBeginning) {
  EXPECT_EQ(manifest_of(manifest_with({{"tensor_offset", ""}})).allocations[0].tensor_offset, 0u);
}

TEST(SnapshotManifest, RefusesAllocationsThatCantBe) {
  const std::string long_text = '"' + std::string(kMaxSnapshotName + 1, 'x') + '"';
  const std::pair<std::map<std::string, std::string>, std::string> cases[] = {
      {{{"size", ""}}, "missing allocation_id, size"},
      {{{"tag", ""}}, "missing allocation_id, size"},
      {{{"tensor_file", ""}}, "missing allocation_id, size"},
      {{{"allocation_id", R"("")"}}, "its allocation_id is empty"},
      {{{"allocation_id", "7"}}, "its allocation_id is not a string"},
      {{{"allocation_id", long_text}}, "its allocation_id is too long"},
      {{{"tag", "null"}}, "its tag is not a string"},
      {{{"tag", long_text}}, "its tag is too long"},
      {{{"size", "0"}}, "its size is 0"},
      {{{"size", "-5"}}, "its size is not a size"},
      {{{"size", "5.0"}}, "its size is not a size"},
      {{{"size", R"("5")"}}, "its size is not a size"},
      {{{"size", "[5]"}}, "its size is not a size"},
      {{{"size", "9"}}, "its size is larger than its aligned_size"},
      {{{"size", "9223372036854775808"}}, "its size is not a size"},
      {{{"size", "5, \"size\": 5"}}, "size appears twice"},
      {{{"aligned_size", "99999999999999999999"}}, "its aligned_size is not a size"},
      {{{"tensor_offset", "-1"}}, "its tensor_offset is not a size"},
      {{{"tensor_offset", "9223372036854775800"}}, "too large"},
      {{{"tensor_file", R"("")"}}, "its tensor_file '' is not a path within the snapshot"},
      {{{"tensor_file", long_text}}, "its tensor_file is too long"},
      {{{"tensor_file", R"("a\u0000b")"}}, "its tensor_file"},
  };
  for (const auto& [changes, reason] : cases) {
    expect_refused(manifest_with(changes), "allocation 0: " + reason);
  }
}

TEST(SnapshotManifest, RefusesFilesOutsideItsFolder) {
  for (const char* path : {"/etc/passwd", "..", "../x", "shards/../../x", "shards/..", ".", "./x",
                           "shards//x", "shards/", "/"}) {
    expect_refused(manifest_with({{"tensor_file", '"' + std::string(path) + '"'}}),
                   "allocation 0: its tensor_file '" + std::string(path) +
                       "' is not a path within the snapshot");
  }
  for (const char* path : {"x", "...", "a/..b/c", "shards/x..bin"}) {
    EXPECT_NO_THROW(manifest_of(manifest_with({{"tensor_file", '"' + std::string(path) + '"'}})));
  }
}

TEST(SnapshotManifest, RefusesBytesThatBelongToTwoAllocations) {
  SnapshotManifest manifest = two_allocations();
  manifest.allocations[1].tensor_offset = 4095;
  expect_refused(format_manifest(manifest, 0, base::DeviceOrdinal(0)),
                 "allocation 1: its bytes overlap those of allocation 0");
  manifest.allocations[1].tensor_offset = 0;
  expect_refused(format_manifest(manifest, 0, base::DeviceOrdinal(0)),
                 "allocation 1: its bytes overlap");
  manifest.allocations[1].tensor_file = "shards/shard_0001.bin";
  EXPECT_NO_THROW(manifest_of(format_manifest(manifest, 0, base::DeviceOrdinal(0))));
}

TEST(SnapshotManifest, RefusesOneIdForTwoAllocations) {
  SnapshotManifest manifest = two_allocations();
  manifest.allocations[1].allocation_id = gms::AllocationId("one");
  expect_refused(format_manifest(manifest, 0, base::DeviceOrdinal(0)),
                 "allocation 1: its allocation_id appears twice");
}

TEST(SnapshotManifest, RefusesMoreBytesThanCanBeCounted) {
  SnapshotManifest manifest = two_allocations();
  manifest.allocations[0].aligned_size = 1ull << 62;
  manifest.allocations[1].aligned_size = 1ull << 62;
  manifest.allocations[1].tensor_file = "other";
  expect_refused(format_manifest(manifest, 0, base::DeviceOrdinal(0)), "allocation 1: too large");
}

TEST(SnapshotManifest, RefusesMoreAllocationsThanADeviceHas) {
  std::string text = R"({"allocations": [)";
  for (std::size_t i = 0; i <= kMaxSnapshotAllocations; ++i) {
    const std::string number = std::to_string(i);
    text += (i == 0 ? "" : ",") + (R"({"allocation_id":")" + number) +
            R"(","size":1,"aligned_size":1,"tag":"","tensor_file":"f","tensor_offset":)" + number +
            "}";
  }
  expect_refused(text + "]}", "too many allocations");
}

TEST(SnapshotManifest, RefusesOtherShapesOfJson) {
  const std::string hash = R"("layout_hash": ")" + kHash + '"';
  for (const auto& [text, reason] :
       {std::pair<std::string, std::string>{"", "not JSON at byte 1"},
        {"[]", "not a JSON object"},
        {"7", "not a JSON object"},
        {"{}", "missing layout_hash"},
        {"{" + hash + "}", "missing allocations"},
        {R"({"allocations": []})", "missing layout_hash"},
        {R"({"allocations": {}})", "allocations is not a list"},
        {R"({"allocations": 1})", "allocations is not a list"},
        {R"({"allocations": [], "allocations": []})", "allocations a"},
        {R"({"allocations": [[]]})", "allocation 0: not an object"},
        {R"({"allocations": [1]})", "allocation 0: not an object"},
        {R"({"layout_hash": 5})", "its layout_hash is not a layout hash"},
        {R"({"layout_hash": "abc"})", "its layout_hash is not a layout hash"},
        {"{" + hash + ", " + hash + "}", "layout_hash appears twice"},
        {R"({"version": "2.0"})", "version '2.0', expected 1.0"},
        {R"({"version": 1.0})", "version unknown, expected 1.0"},
        {"{" + hash + R"(, "allocations": []} x)", "not JSON at byte"},
        {R"({"x": "\ud83d"})", "not JSON at byte 14"},
        {R"({"\ude00": 1})", "not JSON at byte 9"},
        {R"({"x": "\ud83d\ude00"})", "missing layout_hash"},
        {std::string("{\0}", 3), "not JSON at byte 2"}}) {
    expect_refused(text, reason);
  }
}

TEST(SnapshotManifest, IsRefusedAtEveryTruncation) {
  const std::string text = format_manifest(two_allocations(), 1, base::DeviceOrdinal(0));
  const std::size_t end = text.find_last_of('}');
  for (std::size_t size = 0; size <= end; ++size) {
    EXPECT_EQ(status_of([&] { manifest_of(text.substr(0, size)); }), ExitStatus::kBadData) << size;
  }
}

TEST(SnapshotManifest, SurvivesEveryChangedByte) {
  const std::string good = format_manifest(two_allocations(), 1, base::DeviceOrdinal(0));
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char byte : {'\0', '"', '9', '-', '{', ']', '\\', '\xff'}) {
      std::string text = good;
      text[at] = byte;
      expect_no_surprise([&] { manifest_of(text); });
    }
  }
}

TEST(SnapshotManifest, NestingCostsNoStack) {
  std::string text(3'000'000, '[');
  expect_refused(R"({"x": )" + text, "nested too deeply");
  expect_refused(R"({"allocations": )" + text, "allocation 0: not an object");
}

gms::Metadata some_metadata() {
  return {{"layer \"0\"", {gms::AllocationId("one"), 4095, R"({"dtype": "torch.bfloat16"})"}},
          {"leer", {gms::AllocationId("two"), 0, ""}},
          {"umläut", {gms::AllocationId("two"), 17, std::string("\0\xff", 2)}}};
}

gms::Metadata metadata_of(const std::string& text) {
  return parse_snapshot_metadata(text, two_allocations(), "d.json");
}

void expect_metadata_refused(const std::string& text, const std::string& reason) {
  const Failure failure = failure_of([&] { metadata_of(text); });
  EXPECT_EQ(failure.status, ExitStatus::kBadData) << text.substr(0, 500);
  EXPECT_THAT(failure.message, StartsWith("read 'd.json': " + reason)) << text.substr(0, 500);
}

TEST(SnapshotMetadata, ComesBackAsItWasWritten) {
  EXPECT_EQ(metadata_of(format_snapshot_metadata(some_metadata())), some_metadata());
  EXPECT_EQ(metadata_of(format_snapshot_metadata({})), gms::Metadata());
}

TEST(SnapshotMetadata, TakesAnySpellingAndPassesOverUnknownKeys) {
  const gms::Metadata found = metadata_of(
      R"({"uml\u00e4ut":{"more":{"value":1},"value":"AP8=","offset_bytes":17,"allocation_id":"two"}})");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(*found.begin(), *some_metadata().rbegin());
}

TEST(SnapshotMetadata, RefusesEntriesThatCantBe) {
  const auto entry = [](const std::string& inner) { return R"({"k": {)" + inner + "}}"; };
  for (const auto& [text, reason] :
       {std::pair<std::string, std::string>{"[]", "not a JSON object"},
        {R"({"k": 1})", "key 'k': not an object"},
        {R"({"k": []})", "key 'k': not an object"},
        {entry(""), "key 'k': missing allocation_id"},
        {entry(R"("allocation_id": "one", "offset_bytes": 0)"), "key 'k': missing allocation_id"},
        {entry(R"("allocation_id": "x", "offset_bytes": 0, "value": "")"),
         "key 'k': its allocation is not in the manifest"},
        {entry(R"("allocation_id": 1)"), "key 'k': its allocation_id has the wrong type"},
        {entry(R"("allocation_id": "one", "offset_bytes": 4096, "value": "")"),
         "key 'k': its offset_bytes is past the allocation"},
        {entry(R"("offset_bytes": -1)"), "key 'k': its offset_bytes has the wrong type"},
        {entry(R"("offset_bytes": 0, "offset_bytes": 0)"), "key 'k': offset_bytes appears twice"},
        {entry(R"("value": "Zg")"), "key 'k': its value is not base64"},
        {entry(R"("value": null)"), "key 'k': its value has the wrong type"},
        {R"({"k": {"allocation_id": "one", "offset_bytes": 0, "value": ""},)"
         R"("k": {"allocation_id": "one", "offset_bytes": 0, "value": ""}})",
         "key 'k': it appears twice"}}) {
    expect_metadata_refused(text, reason);
  }
}

TEST(SnapshotMetadata, RefusesAValueThatNoServerWouldTake) {
  gms::Metadata metadata{
      {"k", {gms::AllocationId("one"), 0, std::string(gms::kMaxMetadataValue, 'x')}}};
  EXPECT_EQ(metadata_of(format_snapshot_metadata(metadata)), metadata);
  metadata["k"].value += 'x';
  expect_metadata_refused(format_snapshot_metadata(metadata), "key 'k': its value is too large");
}

TEST(SnapshotMetadata, IsRefusedAtEveryTruncation) {
  const std::string text = format_snapshot_metadata(some_metadata());
  const std::size_t end = text.find_last_of('}');
  for (std::size_t size = 0; size <= end; ++size) {
    EXPECT_EQ(status_of([&] { metadata_of(text.substr(0, size)); }), ExitStatus::kBadData) << size;
  }
}

TEST(SnapshotMetadata, SurvivesEveryChangedByte) {
  const std::string good = format_snapshot_metadata(some_metadata());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char byte : {'\0', '"', '9', '=', '{', ']', '\\', '\xff'}) {
      std::string text = good;
      text[at] = byte;
      expect_no_surprise([&] { metadata_of(text); });
    }
  }
}

TEST(SnapshotMetadata, WhatIsNotUtf8CannotBeSaved) {
  const Failure failure = failure_of([] {
    format_snapshot_metadata({{"\xff", {gms::AllocationId("one"), 0, ""}}});
  });
  EXPECT_EQ(failure.status, ExitStatus::kBadData);
  EXPECT_THAT(failure.message, HasSubstr("not UTF-8"));
}

TEST(SnapshotChecksums, ComeBackAsTheyWereWritten) {
  const std::map<std::string, std::string> sums{{"manifest.json", kHash},
                                                {"shards/shard_0000.bin", std::string(64, '0')}};
  const std::string text = format_checksums(sums);
  EXPECT_EQ(text, kHash + "  manifest.json\n" + std::string(64, '0') + "  shards/shard_0000.bin\n");
  EXPECT_EQ(parse_checksums(text, "c"), sums);
  EXPECT_EQ(parse_checksums(kHash + " *a\n", "c").at("a"), kHash);
  EXPECT_TRUE(parse_checksums("", "c").empty());
}

TEST(SnapshotChecksums, RefuseEveryOtherLine) {
  for (const std::string& text :
       {kHash + "  a", kHash + "\n", kHash + "  \n", kHash + " a\n", kHash + " -a\n",
        kHash.substr(1) + "  a\n", "a" + kHash + "  a\n", std::string(64, 'A') + "  a\n",
        "\\" + kHash + "  a\n", kHash + "  a\n\n", kHash + "  ../a\n", kHash + "  /a\n",
        kHash + "  a\n" + kHash + "  a\n"}) {
    const Failure failure = failure_of([&] { parse_checksums(text, "c"); });
    EXPECT_EQ(failure.status, ExitStatus::kBadData) << text;
    EXPECT_THAT(failure.message, StartsWith("read 'c': ")) << text;
  }
}

TEST(SnapshotChecksums, AreRefusedAtEveryTruncationWithinALine) {
  const std::string line = kHash + "  a\n";
  for (std::size_t size = 1; size < line.size(); ++size) {
    EXPECT_EQ(status_of([&] { parse_checksums(line + line.substr(0, size), "c"); }),
              ExitStatus::kBadData);
  }
}

}  // namespace
}  // namespace fo::weights
