#include "weights/file/safetensors.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "gms/protocol/tensor_metadata.h"
#include "json/scanner.h"

namespace fo::weights {
namespace {

using base::ByteCount;

constexpr std::string_view kMetadataKey = "__metadata__";

// Accepts exactly {"name": {"dtype": "..", "shape": [..], "data_offsets": [.., ..]}, ..} and
// {"__metadata__": {"key": "text"}}.
class HeaderReader {
 public:
  HeaderReader(json::Scanner& scanner, const std::string& file) : scanner_(scanner), file_(file) {}

  std::vector<Tensor> read() {
    scanner_.object([this](std::string_view name) {
      start_tensor(name);
      expect(Kind::kObject);
      scanner_.object([this](std::string_view key) {
        if (is_metadata()) {
          expect(Kind::kText);
          scanner_.skip();
        } else {
          read_field(key);
        }
      });
      if (!is_metadata()) finish_tensor();
    });
    return std::move(tensors_);
  }

 private:
  using Kind = json::Scanner::Kind;
  enum Field : unsigned { kNone = 0, kDType = 1, kShape = 2, kOffsets = 4, kAllFields = 7 };

  [[nodiscard]] bool is_metadata() const { return tensor_.name == kMetadataKey; }

  [[noreturn]] void fail_tensor(const std::string& reason) const {
    json::refuse_file(file_, "tensor " + base::quoted(tensor_.name) + ": " + reason);
  }

  void expect(Kind kind) {
    if (scanner_.kind() != kind) refuse(scanner_);
  }

  // Refuses the next value of `scanner`.
  [[noreturn]] void refuse(json::Scanner& scanner) const {
    fail_tensor(std::string(scanner.describe()) + " is not allowed here");
  }

  void start_tensor(std::string_view name) {
    tensor_ = Tensor{};
    tensor_.name = name;
    offsets_.clear();
    fields_ = 0;
    if (name.size() > kMaxTensorName) fail_tensor("the name is too long");
    if (name.empty()) fail_tensor("the name is empty");
    if (!names_.insert(tensor_.name).second) fail_tensor("it appears twice");
  }

  void read_field(std::string_view key) {
    const Field field = key == "dtype"          ? kDType
                        : key == "shape"        ? kShape
                        : key == "data_offsets" ? kOffsets
                                                : kNone;
    if (field == kNone) fail_tensor("unknown key " + base::quoted(key));
    if ((fields_ & field) != 0) fail_tensor("key " + base::quoted(key) + " appears twice");
    fields_ |= field;
    expect(field == kDType ? Kind::kText : Kind::kList);
    if (field == kDType) {
      const std::string dtype = scanner_.text();
      tensor_.dtype = find_dtype(dtype);
      if (tensor_.dtype == nullptr) fail_tensor("unknown dtype " + base::quoted(dtype));
    } else if (field == kShape) {
      read_numbers(tensor_.shape, gms::kMaxTensorRank);
    } else {
      read_numbers(offsets_, 2);
      if (offsets_.size() != 2) fail_tensor("data_offsets are not two numbers");
    }
  }

  void read_numbers(std::vector<ByteCount>& numbers, std::size_t max_size) {
    scanner_.list([&] {
      expect(Kind::kNumber);
      json::Scanner here = scanner_;
      const std::optional<ByteCount> number = scanner_.number();
      if (!number) refuse(here);
      if (numbers.size() == max_size) fail_tensor("too many numbers in a list");
      numbers.push_back(*number);
    });
  }

  // Offsets are relative to the header's end until parse_header adds it.
  void finish_tensor() {
    if (fields_ != kAllFields) fail_tensor("missing dtype, shape or data_offsets");
    if (offsets_[1] < offsets_[0]) fail_tensor("data_offsets end before they begin");
    tensor_.offset = offsets_[0];
    tensor_.size = offsets_[1] - offsets_[0];
    // Extents of 0 count as 1 here, so that strides cannot overflow either.
    ByteCount bytes = tensor_.dtype->size;
    bool is_empty = false;
    for (const ByteCount extent : tensor_.shape) {
      is_empty = is_empty || extent == 0;
      constexpr ByteCount kMax = std::numeric_limits<std::int64_t>::max();
      if (extent > kMax / bytes) fail_tensor("its shape is too large");
      bytes *= std::max<ByteCount>(extent, 1);
    }
    if (is_empty) bytes = 0;
    if (tensor_.size != bytes) {
      fail_tensor("data_offsets span " + std::to_string(tensor_.size) +
                  " bytes, but dtype and shape need " + std::to_string(bytes));
    }
    tensors_.push_back(std::move(tensor_));
  }

  json::Scanner& scanner_;
  const std::string& file_;
  Tensor tensor_;
  std::vector<ByteCount> offsets_;
  unsigned fields_ = 0;
  std::unordered_set<std::string> names_;
  std::vector<Tensor> tensors_;
};

}  // namespace

ByteCount header_end(std::string_view prefix, ByteCount file_size, const std::string& file) {
  if (prefix.size() < kPrefixSize || file_size < kPrefixSize) {
    json::refuse_file(file, "too short for a safetensors file");
  }
  ByteCount length = 0;
  for (std::size_t i = kPrefixSize; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(prefix[i]);
  }
  if (length > kMaxHeader) {
    json::refuse_file(file,
                      "a header of " + base::counted(length, "byte") + ": not a safetensors file");
  }
  if (length > file_size - kPrefixSize) json::refuse_file(file, "the file ends within its header");
  return kPrefixSize + length;
}

std::vector<Tensor> parse_header(std::string_view bytes, ByteCount file_size,
                                 const std::string& file) {
  const ByteCount data = header_end(bytes, file_size, file);
  if (bytes.size() < data) json::refuse_file(file, "the file ends within its header");
  const std::string_view header = bytes.substr(kPrefixSize, data - kPrefixSize);
  if (!header.starts_with('{')) json::refuse_file(file, "the header is not a JSON object");
  std::vector<Tensor> tensors;
  const auto read = [&](json::Scanner& scanner) { tensors = HeaderReader(scanner, file).read(); };
  json::scan_file(header, file, read, "the header is ");
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& one, const Tensor& other) {
    return std::tie(one.offset, one.size, one.name) <
           std::tie(other.offset, other.size, other.name);
  });
  ByteCount end = 0;
  for (Tensor& tensor : tensors) {
    const std::string who = "tensor " + base::quoted(tensor.name) + ": ";
    if (tensor.offset < end) json::refuse_file(file, who + "its bytes overlap those of another");
    if (tensor.offset > end) json::refuse_file(file, who + "there is a gap before its bytes");
    if (tensor.size > file_size - data - end)
      json::refuse_file(file, who + "its bytes extend past the end of the file");
    end += tensor.size;
    tensor.offset += data;
  }
  if (data + end != file_size) {
    json::refuse_file(file,
                      base::counted(file_size - data - end, "byte") + " after the last tensor");
  }
  return tensors;
}

}  // namespace fo::weights
