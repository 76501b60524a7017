#include "gms/protocol/tensor_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fo::gms {
namespace {

using testing::ElementsAre;

TEST(TensorMetadata, IsSpelledAsTheProtocolSpellsIt) {
  EXPECT_EQ(
      format_tensor_metadata({"torch.bfloat16", {2, 3}, contiguous_stride({2, 3}), ""}),
      R"({"dtype": "torch.bfloat16", "shape": [2, 3], "stride": [3, 1], "tensor_type": "parameter"})");
  EXPECT_EQ(
      format_tensor_metadata({"torch.int64", {}, {}, "00ff"}),
      R"({"digest": "00ff", "dtype": "torch.int64", "shape": [], "stride": [], "tensor_type": "parameter"})");
}

TEST(TensorMetadata, StridesAreThoseOfPyTorchAlsoForEmptyTensors) {
  EXPECT_THAT(contiguous_stride({4, 3, 2}), ElementsAre(6, 2, 1));
  EXPECT_THAT(contiguous_stride({2, 0, 3}), ElementsAre(3, 3, 1));
  EXPECT_THAT(contiguous_stride({}), ElementsAre());
}

TEST(TensorMetadata, IsReadFromAnySpelling) {
  const auto read = parse_tensor_metadata(
      "{\"stride\":[3,1],\n\"x\":{\"y\":[1]},\"shape\":[2,3],\"dtype\":\"torch.f\"}");
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, (TensorMetadata{"torch.f", {2, 3}, {3, 1}, ""}));
  const TensorMetadata pinned{"torch.bool", {7}, {1}, "ab"};
  EXPECT_EQ(parse_tensor_metadata(format_tensor_metadata(pinned)), pinned);
}

TEST(TensorMetadata, WithoutAStrideIsContiguous) {
  for (const char* more : {"", R"(,"stride":null)"}) {
    const auto read =
        parse_tensor_metadata(std::string(R"({"dtype":"d","shape":[2,3])") + more + "}");
    ASSERT_TRUE(read);
    EXPECT_THAT(read->stride, ElementsAre(3, 1));
  }
}

TEST(TensorMetadata, RefusesWhatIsNone) {
  for (const std::string& value : {std::string(),
                                   std::string("x"),
                                   std::string("{"),
                                   std::string("[]"),
                                   std::string("[1]"),
                                   std::string("{}"),
                                   std::string("null"),
                                   std::string("\xff\0\xfe", 3),
                                   std::string(R"({"dtype":"d"})"),
                                   std::string(R"({"shape":[1]})"),
                                   std::string(R"({"dtype":1,"shape":[1]})"),
                                   std::string(R"({"dtype":7,"shape":"2,3"})"),
                                   std::string(R"({"dtype":"d","shape":1})"),
                                   std::string(R"({"dtype":"d","shape":[2,-3]})"),
                                   std::string(R"({"dtype":"d","shape":["1"]})"),
                                   std::string(R"({"dtype":"d","shape":[1.5]})"),
                                   std::string(R"({"dtype":"d","shape":[[2]]})"),
                                   std::string(R"({"dtype":"d","shape":[1e400]})"),
                                   std::string(R"({"dtype":"d","shape":[1],"stride":[]})"),
                                   std::string(R"({"dtype":"d","shape":[1],"stride":"1"})"),
                                   std::string(60'000, '['),
                                   std::string(100'000, '['),
                                   std::string(70'000, ' ') + R"({"dtype":"d","shape":[]})"}) {
    EXPECT_EQ(parse_tensor_metadata(value), std::nullopt) << value.substr(0, 40);
  }
}

}  // namespace
}  // namespace fo::gms
