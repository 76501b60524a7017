#include "weights/file/model_index.h"

#include <utility>

#include "base/error.h"
#include "json/reader.h"

namespace fo::weights {
namespace {

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

// Reads {"weight_map": {"tensor": "file", ..}} and skips everything else.
class IndexReader final : public json::JsonReader {
 public:
  using json::JsonReader::JsonReader;

  std::map<std::string, std::string> take() {
    if (!seen_) json::refuse_file(file(), "missing weight_map");
    return std::move(files_);
  }

 protected:
  bool on_value(json::JsonValue value) override {
    if (depth() == 0) return value.kind == Kind::kObject;
    if (depth() == 1) {
      if (last_key() != "weight_map") return false;
      if (std::exchange(seen_, true)) json::refuse_file(file(), "weight_map appears twice");
      if (value.kind != Kind::kObject)
        json::refuse_file(file(), std::string("weight_map is ") + value.name);
      return true;
    }
    const std::string tensor = "tensor " + base::quoted(last_key()) + ": ";
    if (value.kind != Kind::kText) json::refuse_file(file(), tensor + "its file is " + value.name);
    if (!is_plain_name(value.text)) {
      json::refuse_file(file(),
                        tensor + "its file " + base::quoted(value.text) + " is not a file name");
    }
    if (!files_.emplace(last_key(), std::move(value.text)).second) {
      json::refuse_file(file(), tensor + "it appears twice");
    }
    return false;
  }

 private:
  bool seen_ = false;
  std::map<std::string, std::string> files_;
};

}  // namespace

std::map<std::string, std::string> parse_model_index(std::string_view text,
                                                     const std::string& file) {
  IndexReader reader(file);
  reader.read(text);
  return reader.take();
}

}  // namespace fo::weights
