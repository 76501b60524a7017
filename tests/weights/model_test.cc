#include "weights/file/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support.h"
#include "weights/file/model_index.h"

namespace fo::weights {
namespace {

using base::ExitStatus;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(ModelIndex, TakesTheWeightMapAndPassesOverTheRest) {
  const auto files = parse_model_index(
      R"({"metadata":{"total_size":1,"weight_map":{"no":1}},"x":[{"weight_map":2}],)"
      R"("weight_map":{"a":"1.safetensors","b":"2.safetensors"},"y":[1.5,-1,true,null]})",
      "i");
  EXPECT_THAT(files, ElementsAre(Pair("a", "1.safetensors"), Pair("b", "2.safetensors")));
}

TEST(ModelIndex, RefusesWhatIsNoIndex) {
  const auto refuse = [](const std::string& text, const std::string& reason) {
    const Failure failure = failure_of([&] { parse_model_index(text, "i"); });
    EXPECT_EQ(failure.status, ExitStatus::kBadData) << text;
    EXPECT_THAT(failure.message, HasSubstr("read 'i': ")) << text;
    EXPECT_THAT(failure.message, HasSubstr(reason)) << text;
  };
  refuse("", "not JSON");
  refuse("{", "not JSON");
  refuse("{}", "missing weight_map");
  refuse("[]", "missing weight_map");
  refuse("7", "missing weight_map");
  refuse(R"([{"weight_map":{"a":"b"}}])", "missing weight_map");
  refuse(R"({"weight_map":null})", "weight_map is null");
  refuse(R"({"weight_map":[]})", "weight_map is a list");
  refuse(R"({"weight_map":"x"})", "weight_map is text");
  refuse(R"({"weight_map":{"a":1}})", "tensor 'a': its file is a number");
  refuse(R"({"weight_map":{"a":{"b":"c"}}})", "tensor 'a': its file is an object");
  refuse(R"({"weight_map":{"a":["b"]}})", "tensor 'a': its file is a list");
  refuse(R"({"weight_map":{"a":"b","a":"c"}})", "tensor 'a': it appears twice");
  refuse(R"({"weight_map":{},"weight_map":{}})", "weight_map appears twice");
  refuse(std::string("{\"weight_map\":{}}\0x", 19), "not JSON at byte 18");
  refuse(std::string(1'000'000, '['), "nested too deeply");
}

TEST(ModelIndex, RefusesFilesThatCouldBeOutsideTheFolder) {
  for (const char* name : {"../m", "/etc/passwd", "a/b", "..", ".", "", "a\\u0000b"}) {
    const std::string text = std::string(R"({"weight_map":{"t":")") + name + "\"}}";
    const Failure failure = failure_of([&] { parse_model_index(text, "i"); });
    EXPECT_EQ(failure.status, ExitStatus::kBadData) << name;
    EXPECT_THAT(failure.message, HasSubstr("tensor 't': its file ")) << name;
    EXPECT_THAT(failure.message, HasSubstr("is not a file name")) << name;
  }
}

class ModelFolder : public testing::Test {
 protected:
  void expect_refused(ExitStatus status, const std::string& reason) const {
    const Failure failure = failure_of([&] { open_model(dir_.path()); });
    EXPECT_EQ(failure.status, status) << failure.message;
    EXPECT_THAT(failure.message, HasSubstr(reason));
    EXPECT_THAT(failure.message, testing::Not(HasSubstr("\n")));
  }
  void write_shards() const {
    dir_.write("b.safetensors", make_safetensors({make_part("x", "F32", "[2]", 8, 1)}));
    dir_.write("a.safetensors", make_safetensors({make_part("z", "U8", "[3]", 3, 2),
                                                  make_part("y", "U8", "[5]", 5, 3)}));
  }
  TempDir dir_;
};

TEST_F(ModelFolder, IsReadFileByFileInOneOrder) {
  write_shards();
  dir_.write(kIndex,
             R"({"weight_map":{"x":"b.safetensors","y":"a.safetensors","z":"a.safetensors"}})");
  const Model model = open_model(dir_.path());
  std::vector<std::string> names;
  for (const ModelTensor& one : model.tensors) names.push_back(one.tensor.name);
  EXPECT_THAT(names, ElementsAre("z", "y", "x"));
  EXPECT_EQ(model.bytes, 16u);
  ASSERT_EQ(model.files.size(), 2u);
  EXPECT_EQ(model.files[model.tensors[2].file].path(), dir_.path("b.safetensors"));
}

TEST_F(ModelFolder, MayBeOfSymbolicLinksAsTheHubCacheIs) {
  std::filesystem::create_directory(dir_.path("blobs"));
  dir_.write("blobs/0abc", make_safetensors({make_part("x", "U8", "[2]", 2, 1)}));
  std::filesystem::create_symlink("blobs/0abc", dir_.path("model.safetensors"));
  EXPECT_EQ(open_model(dir_.path()).bytes, 2u);
}

TEST_F(ModelFolder, WithoutAnIndexIsOneFile) {
  dir_.write("model.safetensors", make_safetensors({make_part("x", "F32", "[2]", 8, 1)}));
  EXPECT_EQ(open_model(dir_.path()).tensors.size(), 1u);
  EXPECT_EQ(open_model(dir_.path("model.safetensors")).tensors.size(), 1u);
}

TEST_F(ModelFolder, MayHaveTensorsThatTheIndexDoesNotName) {
  write_shards();
  dir_.write(kIndex, R"({"weight_map":{"y":"a.safetensors"}})");
  EXPECT_EQ(open_model(dir_.path()).tensors.size(), 2u);
}

TEST_F(ModelFolder, WithoutAModelIsAbsentInput) {
  expect_refused(ExitStatus::kNoInput, "no model.safetensors.index.json or model.safetensors");
  EXPECT_EQ(status_of([&] { open_model(dir_.path("nothing.safetensors")); }), ExitStatus::kNoInput);
}

TEST_F(ModelFolder, RefusesAnIndexThatNamesAnAbsentFile) {
  write_shards();
  dir_.write(kIndex, R"({"weight_map":{"x":"c.safetensors"}})");
  expect_refused(ExitStatus::kNoInput, "c.safetensors");
}

TEST_F(ModelFolder, RefusesATensorThatIsNotInItsFile) {
  write_shards();
  dir_.write(kIndex, R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  expect_refused(ExitStatus::kBadData, "tensor 'x': it is missing in 'a.safetensors'");
  dir_.write(kIndex, R"({"weight_map":{"w":"a.safetensors"}})");
  expect_refused(ExitStatus::kBadData, "tensor 'w': it is missing in 'a.safetensors'");
}

TEST_F(ModelFolder, RefusesATensorInTwoFiles) {
  write_shards();
  dir_.write("c.safetensors", make_safetensors({make_part("y", "U8", "[1]", 1, 1)}));
  dir_.write(kIndex, R"({"weight_map":{"y":"a.safetensors","y2":"c.safetensors"}})");
  expect_refused(ExitStatus::kBadData, "c.safetensors': tensor 'y': it is also in '");
}

TEST_F(ModelFolder, RefusesAModelWithoutTensors) {
  dir_.write(kIndex, R"({"weight_map":{}})");
  expect_refused(ExitStatus::kBadData, "no tensors");
  std::filesystem::remove(dir_.path(kIndex));
  dir_.write("model.safetensors", make_file("{}"));
  expect_refused(ExitStatus::kBadData, "no tensors");
}

TEST_F(ModelFolder, NamesTheFileThatIsBad) {
  write_shards();
  dir_.write("b.safetensors", "nonsense");
  dir_.write(kIndex, R"({"weight_map":{"x":"b.safetensors","y":"a.safetensors"}})");
  expect_refused(ExitStatus::kBadData, "b.safetensors': a header of ");
}

TEST_F(ModelFolder, RefusesWhatIsNoRegularFileWithoutWaitingForIt) {
  ASSERT_EQ(::mkfifo(dir_.path("model.safetensors").c_str(), 0600), 0);
  expect_refused(ExitStatus::kBadData, "not a regular file");
}

TEST_F(ModelFolder, RefusesADanglingLink) {
  std::filesystem::create_symlink("gone", dir_.path("model.safetensors"));
  expect_refused(ExitStatus::kNoInput, "model.safetensors");
}

TEST_F(ModelFolder, NoticesAFileThatIsWrittenToLater) {
  const std::string path = dir_.write("m", make_safetensors({make_part("x", "U8", "[2]", 2, 1)}));
  const Model model = open_model(path);
  model.files[0].check_unchanged();
  std::ofstream(path, std::ios::app) << "more";
  EXPECT_EQ(status_of([&] { model.files[0].check_unchanged(); }), ExitStatus::kBadData);
  std::filesystem::resize_file(path, 8);
  std::byte buffer[4];
  EXPECT_EQ(status_of([&] { model.files[0].read(buffer, 6); }), ExitStatus::kBadData);
}

}  // namespace
}  // namespace fo::weights
