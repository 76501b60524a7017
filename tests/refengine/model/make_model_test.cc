#include "refengine/model/make_model.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "os/file/file.h"
#include "refengine/reference_model.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::refengine {
namespace {

using base::ExitStatus;
using test::TempDir;

MakeModelOptions tiny() {
  return {.layers = 2, .hidden = 32, .heads = 4, .kv_heads = 2, .seed = 7};
}

std::set<std::string> files_in(const std::string& dir) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.insert(entry.path().filename());
  }
  return names;
}

ExitStatus status_of(const std::string& dir, const MakeModelOptions& options) {
  return test::status_of([&] { make_model(dir, options); });
}

std::uint64_t checksum(const std::string& text) {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return sum;
}

TEST(MakeModel, WritesAFolderThatAStrictReaderTakes) {
  const TempDir dir;
  const MadeModel made = make_model(dir.path("m"), tiny());
  EXPECT_EQ(files_in(dir.path()), (std::set<std::string>{"m"}));
  EXPECT_EQ(files_in(dir.path("m")), (std::set<std::string>{"config.json", "model.safetensors"}));
  const test::LoadedModel model = test::load_model(dir.path("m"));
  EXPECT_EQ(model.weights.size(), made.tensors);
  EXPECT_EQ(made.files, 1u);
  std::uint64_t bytes = 0;
  for (const TensorSpec& spec : model_tensors(model.config)) {
    ASSERT_TRUE(model.weights.contains(spec.name)) << spec.name;
    EXPECT_EQ(model.weights.at(spec.name).shape, spec.shape);
    bytes += model.bytes.at(spec.name).size();
  }
  EXPECT_EQ(bytes, made.bytes);
}

TEST(MakeModel, TheSeedDecidesEveryByte) {
  const TempDir dir;
  MakeModelOptions options = tiny();
  make_model(dir.path("a"), options);
  make_model(dir.path("b"), options);
  options.seed = 8;
  make_model(dir.path("c"), options);
  const auto file = [&](const char* name) {
    return os::read_file(dir.path(name) + "/model.safetensors", base::kMiB);
  };
  EXPECT_EQ(file("a"), file("b"));
  EXPECT_NE(file("a"), file("c"));
}

// Other machines and later versions rely on identical bytes.
TEST(MakeModel, TheBytesAreTheSameEverywhere) {
  const TempDir dir;
  MakeModelOptions options = tiny();
  std::set<std::uint64_t> sums;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    options.dtype = dtype;
    const std::string name(torch_dtype_name(dtype));
    make_model(dir.path(name), options);
    sums.insert(checksum(os::read_file(dir.path(name) + "/model.safetensors", base::kMiB)));
  }
  EXPECT_EQ(sums, (std::set<std::uint64_t>{8439411508500211586u, 12321679167989576730u,
                                           16078194660463494020u}));
}

TEST(MakeModel, ShardsHoldTheSameTensors) {
  const TempDir dir;
  MakeModelOptions options = tiny();
  make_model(dir.path("one"), options);
  options.shard_size = 20 * base::kKiB;
  const MadeModel made = make_model(dir.path("many"), options);
  ASSERT_GT(made.files, 2u);
  const std::set<std::string> names = files_in(dir.path("many"));
  EXPECT_EQ(names.size(), made.files + 2);
  char first[64];
  std::snprintf(first, sizeof first, "model-00001-of-%05u.safetensors",
                static_cast<unsigned>(made.files));
  EXPECT_TRUE(names.contains(first));
  const std::string index =
      os::read_file(dir.path("many/model.safetensors.index.json"), base::kMiB);
  const test::LoadedModel model = test::load_model(dir.path("many"));
  EXPECT_EQ(nlohmann::json::parse(index)["weight_map"].size(), model.bytes.size());
  EXPECT_EQ(model.bytes, test::load_model(dir.path("one")).bytes);
}

TEST(MakeModel, WeightsAreSpreadAsAsked) {
  const TempDir dir;
  make_model(dir.path("m"), tiny());
  const test::LoadedModel model = test::load_model(dir.path("m"));
  const std::vector<std::byte>& bytes = model.bytes.at("model.layers.1.mlp.up_proj.weight");
  double sum = 0;
  double squares = 0;
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  const std::size_t count = bytes.size() / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]);
    squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0.0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), 1 / std::sqrt(32.0), 0.01);
}

TEST(MakeModel, TakesAnEmptyFolderAndRefusesAnyOther) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("empty"));
  EXPECT_EQ(status_of(dir.path("empty") + "/", tiny()), ExitStatus::kOk);
  EXPECT_TRUE(std::filesystem::exists(dir.path("empty") + "/config.json"));
  EXPECT_EQ(status_of(dir.path("empty"), tiny()), ExitStatus::kCannotCreate);
  std::ofstream(dir.path("file")) << "x";
  EXPECT_EQ(status_of(dir.path("file"), tiny()), ExitStatus::kCannotCreate);
  EXPECT_EQ(files_in(dir.path()), (std::set<std::string>{"empty", "file"}));
}

TEST(MakeModel, TakesOverWhatAKilledRunLeft) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("m.partial"));
  std::ofstream(dir.path("m.partial") + "/model.safetensors") << "half";
  EXPECT_EQ(status_of(dir.path("m"), tiny()), ExitStatus::kOk);
  EXPECT_EQ(files_in(dir.path()), (std::set<std::string>{"m"}));
}

TEST(MakeModel, LeavesARunAtWorkAlone) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("m.partial"));
  std::ofstream(dir.path("m.partial") + "/model.safetensors") << "half";
  const base::UniqueFd other = os::open_file(dir.path("m.partial"), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_EQ(status_of(dir.path("m"), tiny()), ExitStatus::kTryAgain);
  EXPECT_TRUE(std::filesystem::exists(dir.path("m.partial") + "/model.safetensors"));
}

TEST(MakeModel, WhatItMayNotTakeOverIsNoReasonToDie) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("m.partial"));
  std::ofstream(dir.path("m.partial") + "/model.safetensors") << "another user's";
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(dir.path("m.partial"), std::filesystem::perms(0555));
  const uid_t own = ::geteuid();
  if (own == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  EXPECT_EQ(status_of(dir.path("m"), tiny()), ExitStatus::kCannotCreate);
  ASSERT_EQ(::seteuid(own), 0);
  std::filesystem::permissions(dir.path("m.partial"), std::filesystem::perms(0755));
  EXPECT_EQ(files_in(dir.path("m.partial")), (std::set<std::string>{"model.safetensors"}));
}

TEST(MakeModel, RefusesNumbersThatAreNoModel) {
  const TempDir dir;
  const auto refused = [&](auto change) {
    MakeModelOptions options = tiny();
    change(options);
    return status_of(dir.path("m"), options) == ExitStatus::kUsage;
  };
  EXPECT_TRUE(refused([](MakeModelOptions& o) { o.hidden = 0; }));
  EXPECT_TRUE(refused([](MakeModelOptions& o) { o.heads = 0; }));
  EXPECT_TRUE(refused([](MakeModelOptions& o) { o.heads = 3; }));
  EXPECT_TRUE(refused([](MakeModelOptions& o) { o.hidden = 34; }));
  EXPECT_TRUE(refused([](MakeModelOptions& o) { o.kv_heads = 3; }));
  EXPECT_TRUE(refused([](MakeModelOptions& o) { o.layers = 0; }));
  EXPECT_TRUE(refused([](MakeModelOptions& o) { o.vocab = 0; }));
  EXPECT_TRUE(refused([](MakeModelOptions& o) { o.shard_size = 0; }));
  EXPECT_TRUE(refused([](MakeModelOptions& o) {
    o.hidden = 36;
    o.heads = 12;
  }));  // head_dim 3
  EXPECT_TRUE(files_in(dir.path()).empty());
}

TEST(MakeModel, AFolderThatCannotBeMadeIsSaid) {
  const TempDir dir;
  std::ofstream(dir.path("file")) << "x";
  EXPECT_EQ(status_of(dir.path("file") + "/m", tiny()), ExitStatus::kCannotCreate);
}

}  // namespace
}  // namespace fo::refengine
