#include "weights/file/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.h"
#include "weights/file/dtype.h"

namespace fo::weights {
namespace {

using base::Error;
using base::ExitStatus;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Tensor> parse(const std::string& file) {
  return parse_header(file, file.size(), "m.safetensors");
}

TEST(DType, KnowsBothSpellingsOfEveryType) {
  EXPECT_EQ(find_dtype("BF16")->torch_name, "torch.bfloat16");
  EXPECT_EQ(find_dtype("F8_E4M3")->torch_name, "torch.float8_e4m3fn");
  EXPECT_EQ(find_dtype("U8")->torch_name, "torch.uint8");
  EXPECT_EQ(find_dtype("BOOL")->size, 1u);
  for (const char* name : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16",
                           "I32", "U32", "F32", "F64", "I64", "U64"}) {
    const DType* dtype = find_dtype(name);
    ASSERT_NE(dtype, nullptr) << name;
    EXPECT_EQ(find_torch_dtype(dtype->torch_name), dtype);
  }
  EXPECT_EQ(find_dtype("F4"), nullptr);
  EXPECT_EQ(find_dtype("bf16"), nullptr);
  EXPECT_EQ(find_torch_dtype("bfloat16"), nullptr);
}

TEST(Safetensors, TellsWhereTensorsLieInTheOrderOfTheirBytes) {
  const std::string header =
      R"({"b":{"dtype":"F32","shape":[2,2],"data_offsets":[6,22]},)"
      R"("a":{"shape":[3],"data_offsets":[0,6],"dtype":"BF16"},"__metadata__":{"x":"y"}}  )";
  const auto tensors = parse(make_file(header, std::string(22, 'x')));
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].dtype, find_dtype("BF16"));
  EXPECT_EQ(tensors[0].offset, 8 + header.size());
  EXPECT_EQ(tensors[0].size, 6u);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_THAT(tensors[1].shape, ElementsAre(2, 2));
  EXPECT_EQ(tensors[1].offset, 8 + header.size() + 6);
}

TEST(Safetensors, TakesScalarsEmptyTensorsAndFilesWithoutAny) {
  const auto tensors = parse(make_file(R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                                       R"("e":{"dtype":"F32","shape":[4,0],"data_offsets":[8,8]},)"
                                       R"("f":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                                       "12345678"));
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "f");
  EXPECT_EQ(tensors[1].name, "s");
  EXPECT_TRUE(tensors[1].shape.empty());
  EXPECT_EQ(tensors[2].name, "e");
  EXPECT_EQ(tensors[2].size, 0u);
  EXPECT_TRUE(parse(make_file("{}")).empty());
}

struct Bad {
  const char* name;
  std::string file;
  const char* reason;
};
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }

std::string one(const std::string& tensor, std::size_t data = 4) {
  return make_file("{\"t\":" + tensor + "}", std::string(data, 'x'));
}

std::vector<Bad> bad_files() {
  const std::string good = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const auto two = [](const std::string& first, const std::string& second, std::size_t data) {
    return make_file(R"({"t":{"dtype":"U8","shape":)" + first + R"(},"u":{"dtype":"U8","shape":)" +
                         second + "}}",
                     std::string(data, 'x'));
  };
  std::string too_long = make_file("{}");
  too_long[0] = '\x01';
  too_long[3] = '\x10';
  std::string huge = make_file("{}");
  huge[7] = '\x7f';
  std::string past_end = make_file("{}");
  past_end[0] = '\x03';
  return {
      {"Empty", "", "too short"},
      {"SevenBytes", "1234567", "too short"},
      {"NoHeader", make_file(""), "not a JSON object"},
      {"HeaderOverTheLimit", too_long, "not a safetensors file"},
      {"HeaderLengthOf2To62", huge, "not a safetensors file"},
      {"HeaderPastTheEnd", past_end, "ends within its header"},
      {"NotJson", make_file("{\"t\" 1}"), "not JSON at byte 6"},
      {"CutJson", make_file("{\"t\":{\"dtype\""), "not JSON"},
      {"TextAfterTheObject", make_file("{} x"), "not JSON"},
      {"TwoObjects", make_file("{}{}"), "not JSON"},
      {"NulInTheHeader", make_file(std::string("{}\0garbage", 10)), "not JSON at byte 3"},
      {"NotUtf8", make_file("{\"\xff\xfe\":{}}"), "not JSON"},
      {"LoneSurrogate", make_file(R"({"\ud83d":{}})"), "the header is not JSON at byte 9"},
      {"LeadingSpace", make_file(" {}"), "not a JSON object"},
      {"List", make_file("[]"), "not a JSON object"},
      {"DeepNesting", make_file("{\"t\":" + std::string(100'000, '[')), "tensor 't': a list"},
      {"DeepObjects",
       [] {
         std::string deep = "{\"t\":{\"dtype\":";
         for (int i = 0; i < 100'000; ++i) deep += "{\"dtype\":";
         return make_file(deep);
       }(),
       "tensor 't': an object"},
      {"TensorIsANumber", one("4"), "tensor 't': a number"},
      {"TensorIsNull", one("null"), "tensor 't': null"},
      {"NoFields", one("{}"), "tensor 't': missing dtype"},
      {"NoOffsets", one(R"({"dtype":"F32","shape":[1]})"), "tensor 't': missing dtype, shape"},
      {"UnknownKey", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})"),
       "unknown key 'x'"},
      {"KeyTwice", one(R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})"),
       "key 'shape' appears twice"},
      {"NameTwice", make_file("{\"t\":" + good + ",\"t\":" + good + "}", "1234"),
       "tensor 't': it appears twice"},
      {"EmptyName", make_file("{\"\":" + good + "}", "1234"), "the name is empty"},
      {"LongName", make_file("{\"" + std::string(4097, 'n') + "\":" + good + "}", "1234"),
       "the name is too long"},
      {"UnknownDType", one(R"({"dtype":"F4","shape":[1],"data_offsets":[0,4]})"),
       "tensor 't': unknown dtype 'F4'"},
      {"DTypeIsANumber", one(R"({"dtype":1,"shape":[1],"data_offsets":[0,4]})"), "a number"},
      {"DTypeIsAList", one(R"({"dtype":["F32"],"shape":[1],"data_offsets":[0,4]})"), "a list"},
      {"ShapeIsText", one(R"({"dtype":"F32","shape":"1","data_offsets":[0,4]})"), "text"},
      {"ShapeInShape", one(R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})"), "a list"},
      {"NegativeExtent", one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"),
       "a negative number"},
      {"FractionalExtent", one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"),
       "not a non-negative integer"},
      {"ExtentOver64Bits",
       one(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]})"),
       "not a non-negative integer"},
      {"TooManyExtents",
       one(R"({"dtype":"F32","shape":[1)" +
           [] {
             std::string ones;
             for (int i = 0; i < 64; ++i) ones += ",1";
             return ones;
           }() +
           R"(],"data_offsets":[0,4]})"),
       "too many numbers"},
      {"ProductOverflows",
       one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})", 0),
       "shape is too large"},
      {"ProductOverflowsBesideAZero",
       one(R"({"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})", 0),
       "shape is too large"},
      {"ProductWrapsToTheSize",
       one(R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})"),
       "shape is too large"},
      {"OneOffset", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4]})"), "not two numbers"},
      {"ThreeOffsets", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})"),
       "too many numbers"},
      {"Backwards", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"),
       "end before they begin"},
      {"SpanTooShort", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,3]})"),
       "span 3 bytes, but dtype and shape need 4"},
      {"SpanTooLong", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})", 8),
       "span 8 bytes, but dtype and shape need 4"},
      {"PastTheFilesEnd", one(good, 3), "tensor 't': its bytes extend past the end of the file"},
      {"OffsetsNear2To64",
       one(R"({"dtype":"U8","shape":[4],)"
           R"("data_offsets":[18446744073709551611,18446744073709551615]})"),
       "tensor 't': there is a gap before its bytes"},
      {"BytesAfterTheLast", one(good, 5), "1 byte after the last tensor"},
      {"DataWithoutTensors", make_file("{}", "x"), "1 byte after the last tensor"},
      {"Gap", two(R"([1],"data_offsets":[0,1])", R"([1],"data_offsets":[2,3])", 3),
       "tensor 'u': there is a gap"},
      {"GapAtTheStart", one(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})", 2),
       "tensor 't': there is a gap"},
      {"Overlap", two(R"([2],"data_offsets":[0,2])", R"([2],"data_offsets":[1,3])", 3),
       "tensor 'u': its bytes overlap"},
      {"SameBytes", two(R"([2],"data_offsets":[0,2])", R"([2],"data_offsets":[0,2])", 2),
       "tensor 'u': its bytes overlap"},
      {"MetadataIsNotText", make_file(R"({"__metadata__":{"a":1}})"), "a number"},
      {"MetadataIsNested", make_file(R"({"__metadata__":{"a":{}}})"), "an object"},
      {"MetadataIsAList", make_file(R"({"__metadata__":[]})"), "a list"},
      {"MetadataTwice", make_file(R"({"__metadata__":{},"__metadata__":{}})"), "twice"},
  };
}

class BadHeader : public testing::TestWithParam<Bad> {};

TEST_P(BadHeader, IsRefusedInOneLineThatNamesTheFile) {
  const Failure failure = failure_of([] { parse(GetParam().file); });
  EXPECT_EQ(failure.status, ExitStatus::kBadData);
  EXPECT_THAT(failure.message, testing::StartsWith("read 'm.safetensors': "));
  EXPECT_THAT(failure.message, HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(Safetensors, BadHeader, testing::ValuesIn(bad_files()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string file = make_safetensors(
      {make_part("a", "F32", "[4]", 16, 1), make_part("b", "BF16", "[2,3]", 12, 2)});
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::string cut = file.substr(0, size);
    EXPECT_THROW(parse(cut), Error) << size;
    // The file is complete, but only a part was read.
    const auto header = header_end(file, file.size(), "m");
    if (size < header) {
      EXPECT_THROW(parse_header(cut, file.size(), "m"), Error) << size;
    }
  }
}

}  // namespace
}  // namespace fo::weights
